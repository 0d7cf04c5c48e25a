/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Check that descriptors, threads, mappings and device memory are as before after 200 communicators of two ranks that
 * share a GPU: finalized, left early, aborted, broken by a mismatch and by a deadline, with graphs, and where making
 * one fails at each of its steps (F10). One thread plays both ranks, so nobody allocates while another's kernel waits.
 * Then 400 communicators of four ranks, threads that all go at the same moment (the driver cannot stand that).
 * usage: test_gpu_cycles [CYCLES]
 */
#include <pthread.h>
#include <unistd.h>

#include "gpu/gpu_ranks.h"
#include "graph_capture/kept.h"

enum { RANKS = 2, COUNT = 1000, SLACK = 2 << 20 /* the grain of device memory */ };

static gpu_rank_t ranks[RANKS];

static size_t free_bytes(void) {
    size_t free_p = 0, total = 0;
    if (gpu_dry()) return 0;
    CUDA_OK(cudaMemGetInfo(&free_p, &total));
    return free_p;
}

static void make(uint32_t op_timeout_ms) {
    static const int32_t devices[RANKS] = {0};
    tpcomm_config_t config = gpu_config();
    tpcomm_t *comms[RANKS];
    config.op_timeout_ms = op_timeout_ms;
    config.workspace_bytes = 1 << 20;
    CHECK_OK(tpcomm_init_local(RANKS, devices, &config, comms));
    for (int r = 0; r < RANKS; r++) ranks[r].comm = comms[r];
}

/* On the cpu device a call waits: a thread for each rank. */
static void *call_of(void *arg) {
    gpu_rank_t *rank = arg;
    (void)gpu_enqueue(rank, COUNT * (rank->arg != NULL ? 2 : 1));
    return NULL;
}

static void *finalize_of(void *arg) {
    const gpu_rank_t *rank = arg;
    CHECK_OK(tpcomm_finalize(rank->comm));
    return NULL;
}

static void both(void *(*fn)(void *arg)) {
    pthread_t thread;
    CHECK_EQ(pthread_create(&thread, NULL, fn, &ranks[1]), 0);
    fn(&ranks[0]);
    CHECK_EQ(pthread_join(thread, NULL), 0);
}

static void work(void) {
    float in[COUNT], out[COUNT];
    for (int r = 0; r < RANKS; r++) {
        for (int i = 0; i < COUNT; i++) in[i] = (float)(7 * i + 3 * r);
        gpu_send(&ranks[r], ranks[r].in, in, sizeof in);
        gpu_sync(&ranks[r]);
    }
    both(call_of);
    for (int r = 0; r < RANKS; r++) {
        gpu_fetch(&ranks[r], out, ranks[r].out, sizeof out);
        for (int i = 0; i < COUNT; i++) CHECK(out[i] == (float)(14 * i + 3));
    }
}

static void broken(tpcomm_status_t want) {
    for (int r = 0; r < RANKS; r++) gpu_await_failure(&ranks[r], want, NULL, NULL);
}

static void leave(void) {
    for (int r = 0; r < RANKS; r++) CHECK_OK(tpcomm_destroy(ranks[r].comm));
}

/* ------------------------------------------------------------------ how one ends */

static void finalized(void) {
    make(20000);
    work();
    both(finalize_of);
    leave();
}

static void left_early(void) {
    make(20000);
    work();
    leave();
}

static void aborted(void) {
    make(20000);
    work();
    if (!gpu_dry())
        for (int i = 0; i < 20; i++) (void)gpu_enqueue(&ranks[0], COUNT); /* they wait for rank 1 */
    CHECK_OK(tpcomm_abort(ranks[1].comm, "enough"));
    broken(TPCOMM_ERR_ABORTED);
    leave();
}

static void mismatched(void) {
    make(20000);
    ranks[1].arg = &ranks[1];
    both(call_of);
    ranks[1].arg = NULL;
    broken(TPCOMM_ERR_MISMATCH);
    leave();
}

static void timed_out(void) {
    make(60);
    (void)gpu_enqueue(&ranks[0], COUNT);
    broken(TPCOMM_ERR_TIMEOUT);
    leave();
}

/* Graphs' memory is given back by the next communicator, or here. */
static void sweep(void) {
    for (int i = 0; i < 2000 && tpc_kept_sweep() > 0; i++) usleep(1000);
    CHECK_EQ(tpc_kept_sweep(), 0);
}

static void captured(void) {
    cudaGraph_t graph = NULL;
    cudaGraphExec_t exec = NULL;
    make(20000);
    for (int r = 0; r < RANKS && !gpu_dry(); r++) {
        CUDA_OK(cudaStreamBeginCapture(ranks[r].stream, cudaStreamCaptureModeThreadLocal));
        CHECK_OK(gpu_enqueue(&ranks[r], COUNT));
        CUDA_OK(cudaStreamEndCapture(ranks[r].stream, &graph));
        CUDA_OK(cudaGraphInstantiate(&exec, graph, 0));
        CUDA_OK(cudaGraphExecDestroy(exec));
        CUDA_OK(cudaGraphDestroy(graph));
    }
    leave();
    sweep(); /* CUDA tells of the graphs' end when it likes */
}

/* Where the device's memory is shared a step that fails may be made up for by another way. */
static void failing(int cycle) {
    static const char *const steps[] = {
        "settings",  "workspace_create", "workspace_map", "workspace_probe", "backend",
        "watch",     "device_map",       "device_probe",  "cumem/export",    "cumem/import",
        "cumem/map", "cumem/access",     "device_memory"};
    static const int32_t devices[RANKS] = {0};
    const int count = (int)(sizeof steps / sizeof *steps);
    char hooks[64];
    tpcomm_config_t config = gpu_config();
    tpcomm_t *comms[RANKS];
    bool creates = cycle % count == 1; /* which rank 0 alone does */
    snprintf(hooks, sizeof hooks, "fail@%s:%d", steps[cycle % count], creates ? 0 : cycle / count % 2);
    ranks_set_hooks(hooks);
    config.workspace_bytes = 1 << 20;
    tpcomm_status_t status = tpcomm_init_local(RANKS, devices, &config, comms);
    ranks_set_hooks("");
    if (status != TPCOMM_OK) {
        if (strstr(tpcomm_last_error(), "hook") == NULL) FAIL("%s: %s", hooks, tpcomm_last_error());
        return;
    }
    if (cycle % count < 6) FAIL("%s: init went well", hooks);
    for (int r = 0; r < RANKS; r++) CHECK_OK(tpcomm_destroy(comms[r]));
}

static void one_cycle(int cycle) {
    static void (*const ends[])(void) = {finalized, left_early, aborted, mismatched, timed_out, captured};
    if (cycle % 2 == 0)
        ends[cycle / 2 % 6]();
    else
        failing(cycle / 2);
}

static void cycles(void *arg) {
    const int count = *(const int *)arg, warm = 52; /* every way to end and every step that fails, once */
    for (int r = 0; r < RANKS; r++) {
        ranks[r] = (gpu_rank_t){.rank = r, .size = RANKS, .room = 1 << 20};
        gpu_set_up(&ranks[r], 0);
    }
    for (int i = 0; i < warm; i++) one_cycle(i);
    sweep();
    resources_t before = resources_now();
    size_t before_free = free_bytes();
    for (int i = 0; i < count; i++) {
        one_cycle(i);
        if (i % 2 == 0) resources_check_equal(before, "a communicator");
    }
    sweep();
    resources_check_equal(before, "after all");
    size_t after_free = free_bytes();
    printf("%d communicators; device memory free before %zu, after %zu\n", count, before_free, after_free);
    if (after_free + SLACK < before_free) FAIL("%zu bytes of device memory are gone", before_free - after_free);
    for (int r = 0; r < RANKS; r++) gpu_free(&ranks[r]);
}

/* ------------------------------------------------------------------ all at once */

enum { MANY = 4, LIVES = 400 };

typedef struct {
    pthread_t thread;
    tpcomm_t *comm;
    pthread_barrier_t *together;
} goer_t;

static void *go(void *arg) {
    const goer_t *goer = arg;
    CHECK_OK(tpcomm_finalize(goer->comm));
    pthread_barrier_wait(goer->together);
    CHECK_OK(tpcomm_destroy(goer->comm));
    return NULL;
}

static void all_at_once(void *arg) {
    static const int32_t devices[MANY] = {0};
    tpcomm_config_t config = gpu_config();
    (void)arg;
    config.workspace_bytes = 1 << 20;
    for (int life = 0; life < gpu_rounds(LIVES); life++) {
        goer_t goers[MANY];
        tpcomm_t *comms[MANY];
        pthread_barrier_t together;
        CHECK_EQ(pthread_barrier_init(&together, NULL, MANY), 0);
        CHECK_OK(tpcomm_init_local(MANY, devices, &config, comms));
        for (int r = 0; r < MANY; r++) {
            goers[r] = (goer_t){.comm = comms[r], .together = &together};
            CHECK_EQ(pthread_create(&goers[r].thread, NULL, go, &goers[r]), 0);
        }
        for (int r = 0; r < MANY; r++) CHECK_EQ(pthread_join(goers[r].thread, NULL), 0);
        CHECK_EQ(pthread_barrier_destroy(&together), 0);
    }
}

int main(int argc, char **argv) {
    int count = argc > 1 ? atoi(argv[1]) : 200;
    gpu_need();
    gpu_process(cycles, &count);
    gpu_process(all_at_once, NULL);
    printf("ok\n");
    return 0;
}
