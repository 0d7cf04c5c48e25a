/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Check what a host program keeps of its own: its current context and its last CUDA error stay as they were through
 * init, calls, introspection and destroy; a group works in the context that was current at init, primary or not; a
 * forked child is refused and touches nothing; a device is found whatever CUDA_VISIBLE_DEVICES holds, which we never
 * read.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "device/cuda.h"
#include "device/cuda_driver.h"
#include "gpu/gpu_ranks.h"
#include "topology/nvml.h"

static const tpc_cuda_driver_t *driver;

static CUcontext current(void) {
    CUcontext context = NULL;
    CHECK_EQ(driver->CtxGetCurrent(&context), CUDA_SUCCESS);
    return context;
}

/* A context of one's own, current afterwards. */
static CUcontext new_context(void) {
    CUresult (*create)(CUcontext *, unsigned, CUdevice) = NULL;
    enum cudaDriverEntryPointQueryResult found;
    CUcontext context = NULL;
    void *function = NULL;
    CUDA_OK(cudaGetDriverEntryPointByVersion("cuCtxCreate", &function, 11020, cudaEnableDefault, &found));
    CHECK(function != NULL);
    memcpy(&create, &function, sizeof create);
    CHECK_EQ(create(&context, 0, 0), CUDA_SUCCESS);
    CHECK(current() == context);
    return context;
}

/* ------------------------------------------------------------------ nothing of the caller's changes */

typedef struct {
    tpcomm_t *comm;
    cudaStream_t stream;
    float *in, *out;
    CUcontext own; /* NULL: the thread has none */
    pthread_t thread;
} guest_t;

static void expect(const guest_t *guest, const char *where) {
    if (current() != guest->own) FAIL("after %s another context is current", where);
    if (cudaPeekAtLastError() != cudaErrorInvalidDevice)
        FAIL("after %s the last error is %s", where, cudaGetErrorName(cudaPeekAtLastError()));
}

static void *visit(void *arg) {
    guest_t *guest = arg;
    tpcomm_info_t info = {.struct_size = sizeof info};
    tpcomm_error_t error = {.struct_size = sizeof error};
    if (guest->own != NULL) CHECK_EQ(driver->CtxPushCurrent(guest->own), CUDA_SUCCESS);
    CHECK_EQ(cudaSetDevice(4711), cudaErrorInvalidDevice); /* the caller's own mistake, not yet looked at */
    expect(guest, "the beginning");
    for (int k = 0; k < 20; k++) {
        CHECK_OK(tpcomm_all_reduce(guest->comm, guest->in, guest->out, 1000, TPCOMM_F32, TPCOMM_SUM, guest->stream));
        expect(guest, "a call");
    }
    CHECK_OK(tpcomm_comm_info(guest->comm, &info));
    expect(guest, "info");
    CHECK_OK(tpcomm_async_status(guest->comm, &error));
    expect(guest, "async_status");
    CHECK_OK(tpcomm_set_op_timeout(guest->comm, 15000));
    expect(guest, "set_op_timeout");
    CHECK_OK(tpcomm_host_barrier(guest->comm, 0));
    CHECK_OK(tpcomm_finalize(guest->comm));
    expect(guest, "finalize");
    CHECK_OK(tpcomm_destroy(guest->comm));
    expect(guest, "destroy");
    return NULL;
}

static void state_stays(void *arg) {
    tpcomm_config_t config = gpu_config();
    int32_t devices[2] = {0, 0};
    guest_t guests[2];
    tpcomm_t *comms[2];
    (void)arg;
    CUDA_OK(cudaSetDevice(0));
    CUDA_OK(cudaFree(NULL));
    CUDA_OK((cudaError_t)gpu_kernels_load());
    CHECK_OK(tpc_cuda_driver(&driver));
    for (int r = 0; r < 2; r++) {
        CUDA_OK(cudaStreamCreateWithFlags(&guests[r].stream, cudaStreamNonBlocking));
        CUDA_OK(cudaMalloc((void **)&guests[r].in, 4096));
        CUDA_OK(cudaMalloc((void **)&guests[r].out, 4096));
        CUDA_OK((cudaError_t)gpu_kernel_set(guests[r].in, 1000, (float)(r + 1), guests[r].stream));
        CUDA_OK(cudaStreamSynchronize(guests[r].stream));
    }
    CUcontext own = new_context();
    CHECK_EQ(cudaSetDevice(4711), cudaErrorInvalidDevice);
    guest_t here = {.own = own};
    expect(&here, "the beginning");
    CHECK_OK(tpcomm_init_local(2, devices, &config, comms));
    expect(&here, "init");
    for (int r = 0; r < 2; r++) {
        guests[r].comm = comms[r];
        guests[r].own = r == 0 ? own : NULL; /* one thread in a context of its own, one without any */
        CHECK_EQ(pthread_create(&guests[r].thread, NULL, visit, &guests[r]), 0);
    }
    for (int r = 0; r < 2; r++) CHECK_EQ(pthread_join(guests[r].thread, NULL), 0);
    expect(&here, "everything");
    (void)cudaGetLastError();
    CHECK_EQ(driver->CtxPopCurrent(&own), CUDA_SUCCESS);
    CUDA_OK(cudaSetDevice(0));
    for (int r = 0; r < 2; r++) {
        float out[1000];
        CUDA_OK(cudaMemcpy(out, guests[r].out, sizeof out, cudaMemcpyDefault));
        for (int i = 0; i < 1000; i++) CHECK(out[i] == 3.0f);
    }
}

/* ------------------------------------------------------------------ a context that is not the primary one */

static void own_context(int32_t r, int32_t size, void *arg) {
    tpcomm_config_t config = gpu_config();
    gpu_rank_t rank = {.rank = r, .size = size, .room = 1 << 20};
    int count = 0;
    (void)arg;
    CUDA_OK(cudaGetDeviceCount(&count));
    CUDA_OK(cudaFree(NULL));
    CHECK_OK(tpc_cuda_driver(&driver));
    CUcontext own = new_context();
    CUDA_OK((cudaError_t)gpu_kernels_load());
    CUDA_OK(cudaStreamCreateWithFlags(&rank.stream, cudaStreamNonBlocking));
    CUDA_OK(cudaMalloc((void **)&rank.in, 1 << 20));
    CUDA_OK(cudaMalloc((void **)&rank.out, 1 << 20));
    CHECK_OK(tpcomm_init_env(&config, &rank.comm));
    CHECK(current() == own);
    gpu_all_reduce(&rank, rank.in, rank.out, TPCOMM_BF16, 1, 50001, "in a context of its own");
    gpu_all_reduce(&rank, rank.in, rank.out, TPCOMM_F32, 2, 100, "in a context of its own");
    CHECK_OK(tpcomm_finalize(rank.comm));
    CHECK_OK(tpcomm_destroy(rank.comm));
    CHECK(current() == own);
}

/* ------------------------------------------------------------------ fork */

static void forks(gpu_rank_t *rank) {
    gpu_all_reduce(rank, rank->in, rank->out, TPCOMM_F32, 1, 1000, "before the fork");
    gpu_together(rank);
    fflush(NULL);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        tpcomm_config_t config = gpu_config();
        tpcomm_t *comm = NULL;
        CHECK_STATUS(tpcomm_all_reduce(rank->comm, rank->in, rank->out, 1000, TPCOMM_F32, TPCOMM_SUM, rank->stream),
                     TPCOMM_ERR_INVALID_STATE);
        CHECK_STATUS(tpcomm_barrier(rank->comm, rank->stream), TPCOMM_ERR_INVALID_STATE);
        CHECK_OK(tpcomm_destroy(rank->comm));
        /* Its parent's CUDA is of no use to it, and it is told so. */
        ranks_set_env(0, 1, "gpu-fork-child");
        CHECK_STATUS(tpcomm_init_env(&config, &comm), TPCOMM_ERR_UNSUPPORTED);
        CHECK_ERROR_HAS("forked");
        _Exit(0);
    }
    int how = 0;
    CHECK_EQ(waitpid(pid, &how, 0), pid);
    CHECK(WIFEXITED(how) && WEXITSTATUS(how) == 0);
    gpu_all_reduce(rank, rank->in, rank->out, TPCOMM_F32, 2, 1000, "after the fork");
}

/* ------------------------------------------------------------------ CUDA_VISIBLE_DEVICES */

typedef struct {
    const char *visible; /* NULL: unset */
    tpc_cuda_facts_t *facts;
    bool works; /* a device must be found, the first one */
} visible_t;

static void look(void *arg) {
    visible_t *visible = arg;
    tpcomm_config_t config = gpu_config();
    tpcomm_t *comm = NULL;
    tpc_cuda_facts_t facts;
    if (visible->visible == NULL)
        CHECK_EQ(unsetenv("CUDA_VISIBLE_DEVICES"), 0);
    else
        CHECK_EQ(setenv("CUDA_VISIBLE_DEVICES", visible->visible, 1), 0);
    tpc_cuda_probe(-1, &facts);
    const char *name = visible->visible != NULL ? visible->visible : "unset";
    printf("CUDA_VISIBLE_DEVICES %s: %s\n", name, facts.usable ? facts.bus_id : facts.reason);
    if (visible->works) {
        CHECK(facts.usable == 1);
        if (visible->visible == NULL)
            *visible->facts = facts;
        else
            CHECK(memcmp(facts.uuid, visible->facts->uuid, sizeof facts.uuid) == 0);
    }
    /* cuda: works or says why; auto: takes the cpu device where there is no GPU. */
    tpcomm_status_t status = tpcomm_init_env(&config, &comm);
    CHECK_EQ(status, facts.usable ? TPCOMM_OK : TPCOMM_ERR_UNSUPPORTED);
    if (!facts.usable) CHECK_ERROR_HAS("no CUDA device");
    if (status == TPCOMM_OK) CHECK_OK(tpcomm_destroy(comm));
    config.device_kind = TPCOMM_DEVICE_AUTO;
    tpcomm_info_t info = {.struct_size = sizeof info};
    CHECK_EQ(setenv("TPCOMM_JOB_ID", "gpu-visible-auto", 1), 0);
    CHECK_OK(tpcomm_init_env(&config, &comm));
    CHECK_OK(tpcomm_comm_info(comm, &info));
    CHECK_EQ(info.device_kind, facts.usable ? TPCOMM_DEVICE_CUDA : TPCOMM_DEVICE_CPU);
    CHECK_OK(tpcomm_destroy(comm));
}

static void visible_devices(void) {
    visible_t row = {.works = true};
    row.facts = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(row.facts != MAP_FAILED);
    gpu_process(look, &row);
    char uuid[48] = "GPU-";
    for (int i = 0; i < 16; i++)
        snprintf(uuid + strlen(uuid), 8, "%02x%s", row.facts->uuid[i], i == 3 || i == 5 || i == 7 || i == 9 ? "-" : "");
    row.visible = uuid;
    gpu_process(look, &row);
    static const char *const odd[] = {"", "0,,1", "-1", "MIG-0123", "nonsense"};
    row.works = false;
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
        row.visible = odd[i];
        gpu_process(look, &row);
    }
}

/* ------------------------------------------------------------------ NVML */

/* Where NVML is, it knows the GPU that CUDA has given us. */
static void ask_nvml(void *arg) {
    tpc_cuda_facts_t facts;
    tpc_gpu_row_t row;
    (void)arg;
    tpc_cuda_probe(0, &facts);
    CHECK(facts.usable == 1);
    tpc_nvml_look("", &facts, 0, 1, &row);
    printf("%s %s: %s; %u NVLinks into switches\n", facts.name, facts.bus_id, row.source, row.switched);
    CHECK(row.by_nvml == 1 || strstr(row.source, "NVML cannot be loaded") != NULL);
}

int main(void) {
    gpu_need();
    gpu_process(ask_nvml, NULL);
    tpcomm_config_t config = gpu_config();
    gpu_process(state_stays, NULL);
    printf("state stays\n");
    fflush(stdout);
    ranks_fork(2, own_context, NULL);
    printf("own context\n");
    fflush(stdout);
    gpu_run(RANKS_PROCESSES, 2, false, &config, 1 << 20, forks, NULL);
    printf("fork\n");
    fflush(stdout);
    visible_devices();
    printf("ok\n");
    return 0;
}
