/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Check that no failure of CUDA's ends the process or leaves a rank waiting (C6): each call into CUDA that init, calls,
 * a captured graph, a change of the limit and the end make is said to fail, once, one after the other, over one
 * way of sharing memory or the other. Then all ranks
 * get an error with a text, or all results are exact; and a group made afterwards works.
 */
#include <pthread.h>

#include "base/hook.h"
#include "device/cuda.h"
#include "gpu/gpu_ranks.h"

enum { COUNT = 5000, MOST = 600, OP_MS = 700 };

static void hooks(uint64_t which) {
    char text[64] = "";
    if (which != 0) snprintf(text, sizeof text, "set@cuda_fails:%llu", (unsigned long long)which);
    ranks_set_hooks(text);
    if (which == 0) (void)tpc_cuda_fails(); /* counts from the beginning again */
}

typedef struct {
    tpcomm_t *comm;
    cudaStream_t stream, other;
    unsigned char *in, *out;
    pthread_t thread;
    pthread_barrier_t *together;
    uint32_t op_timeout_ms;
    bool failed, exact;
} member_t;

/* Whether the group is broken for this rank; then with a text, and soon. */
static bool broken(const member_t *member, tpcomm_status_t status) {
    tpcomm_error_t error = {.struct_size = sizeof error};
    if (status != TPCOMM_OK) CHECK(tpcomm_last_error()[0] != '\0');
    if (tpcomm_async_status(member->comm, &error) == TPCOMM_OK) return status != TPCOMM_OK;
    CHECK(error.text[0] != '\0');
    return true;
}

static void *live(void *arg) {
    member_t *member = arg;
    static const float zero[COUNT];
    float got[COUNT];
    CUDA_OK(cudaSetDevice(0));
    tpcomm_status_t status = tpcomm_set_op_timeout(member->comm, member->op_timeout_ms);
    for (int i = 0; i < 4 && status == TPCOMM_OK; i++) /* the streams by turns: events between them */
        status = tpcomm_all_reduce(member->comm, member->in, member->out, COUNT, TPCOMM_F32, TPCOMM_SUM,
                                   (tpcomm_stream_t)(i % 2 ? member->other : member->stream));
    cudaGraph_t graph = NULL;
    if (status == TPCOMM_OK) {
        CUDA_OK(cudaStreamBeginCapture(member->stream, cudaStreamCaptureModeThreadLocal));
        status = tpcomm_all_reduce(member->comm, member->in, member->out, COUNT, TPCOMM_F32, TPCOMM_SUM,
                                   (tpcomm_stream_t)member->stream);
        CUDA_OK(cudaStreamEndCapture(member->stream, &graph));
    }
    CUDA_OK(cudaStreamSynchronize(member->stream));
    CUDA_OK(cudaStreamSynchronize(member->other));
    if (graph != NULL) CUDA_OK(cudaGraphDestroy(graph));
    member->failed = broken(member, status);
    CUDA_OK(cudaMemcpyAsync(got, member->out, sizeof got, cudaMemcpyDefault, member->stream));
    CUDA_OK(cudaStreamSynchronize(member->stream));
    member->exact = memcmp(got, zero, sizeof got) == 0;
    pthread_barrier_wait(member->together);
    if (!member->failed) (void)tpcomm_finalize(member->comm);
    pthread_barrier_wait(member->together);
    tpcomm_status_t gone = tpcomm_destroy(member->comm);
    if (gone != TPCOMM_OK) CHECK(tpcomm_last_error()[0] != '\0');
    return NULL;
}

/* A group's life; whether something failed, where something may. */
static bool one_life(member_t members[2], uint64_t which) {
    tpcomm_config_t config = gpu_config();
    static const int32_t devices[2] = {0, 0};
    tpcomm_t *comms[2] = {NULL, NULL};
    pthread_barrier_t together;
    /* Short where a rank may be left waiting for one whose call failed. */
    bool whole = which == 0 || which == UINT64_MAX;
    config.init_timeout_ms = whole ? 60000 : 4000;
    config.op_timeout_ms = whole ? 20000 : OP_MS;
    double start = gpu_now_s();
    char what[40];
    snprintf(what, sizeof what, "call %llu", (unsigned long long)which);
    for (int r = 0; r < 2; r++) CUDA_OK(cudaMemset(members[r].out, 0xFF, COUNT * 4));
    CUDA_OK(cudaDeviceSynchronize());
    hooks(which);
    tpcomm_status_t status = tpcomm_init_local(2, devices, &config, comms);
    if (status != TPCOMM_OK) {
        CHECK(which != 0);
        CHECK(tpcomm_last_error()[0] != '\0');
        CHECK(comms[0] == NULL && comms[1] == NULL);
        gpu_check_soon(start, 10, what);
        return true;
    }
    CHECK_EQ(pthread_barrier_init(&together, NULL, 2), 0);
    for (int r = 0; r < 2; r++) {
        members[r].comm = comms[r];
        members[r].together = &together;
        members[r].op_timeout_ms = config.op_timeout_ms;
        CHECK_EQ(pthread_create(&members[r].thread, NULL, live, &members[r]), 0);
    }
    for (int r = 0; r < 2; r++) CHECK_EQ(pthread_join(members[r].thread, NULL), 0);
    CHECK_EQ(pthread_barrier_destroy(&together), 0);
    gpu_check_soon(start, 12, what);
    for (int r = 0; r < 2; r++) CHECK(members[r].failed || members[r].exact);
    /* A rank alone may fail where its own call alone did not begin; the other then has a result or an error. */
    return members[0].failed || members[1].failed;
}

/* Every other call, beginning with the first or the second: most are those of both ways. */
static void all(void *arg) {
    member_t members[2];
    unsigned failures = 0;
    uint64_t first = *(const uint64_t *)arg;
    CHECK_OK(tpcomm_log_set(NULL, NULL, TPCOMM_LOG_ERROR));
    CUDA_OK(cudaSetDevice(0));
    CUDA_OK((cudaError_t)gpu_kernels_load());
    memset(members, 0, sizeof members);
    for (int r = 0; r < 2; r++) {
        gpu_stream_new(&members[r].stream);
        gpu_stream_new(&members[r].other);
        CUDA_OK(cudaMalloc((void **)&members[r].in, COUNT * 4));
        CUDA_OK(cudaMalloc((void **)&members[r].out, COUNT * 4));
        CUDA_OK(cudaMemset(members[r].in, 0, COUNT * 4));
    }
    CHECK(!one_life(members, 0));
    CHECK(!one_life(members, UINT64_MAX)); /* which counts them */
    uint64_t calls = tpc_cuda_calls();
    hooks(0);
    printf("%llu calls of CUDA\n", (unsigned long long)calls);
    fflush(stdout);
    CHECK(calls > 40 && calls < MOST);
    for (uint64_t which = first; which <= calls; which += 2) {
        failures += one_life(members, which);
        hooks(0);
        if (which % 20 < 2) CHECK(!one_life(members, 0)); /* none the worse */
    }
    CHECK(!one_life(members, 0));
    printf("%u of them are errors of the group, the others cost a way that has another beside it\n", failures);
    fflush(stdout);
    CHECK(failures > 5);
}

int main(void) {
    static const char *const ways[] = {"cumem", "cudaipc"};
    gpu_need();
    for (uint64_t i = 0; i < 2; i++) {
        uint64_t first = i + 1;
        printf("by %s\n", ways[i]);
        fflush(stdout);
        CHECK_EQ(setenv("TPCOMM_PEER_MEM", ways[i], 1), 0);
        gpu_process(all, &first);
    }
    printf("ok\n");
    return 0;
}
