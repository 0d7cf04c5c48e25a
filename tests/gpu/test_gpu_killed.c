/* SPDX-License-Identifier: Apache-2.0 */
/*
 * (j of docs/gpu.md) Check that a process which is killed while kernels run takes nobody with it: the survivor's
 * kernel, which writes into the dead one's memory, ends; the failure names who died; the survivor's context and device
 * are whole and a new group works. Over each way of sharing memory.
 */
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "gpu/gpu_ranks.h"

static _Atomic int *stage;

static void nap(unsigned ms) {
    struct timespec time = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000};
    while (nanosleep(&time, &time) != 0 && errno == EINTR) {
    }
}

static void make(gpu_rank_t *rank) {
    tpcomm_config_t config = gpu_config();
    config.device = 1;
    CUDA_OK((cudaError_t)gpu_kernels_load());
    gpu_stream_new(&rank->stream);
    CUDA_OK(cudaMalloc((void **)&rank->in, 1 << 20));
    CUDA_OK(cudaMalloc((void **)&rank->out, 1 << 20));
    CHECK_OK(tpcomm_init_env(&config, &rank->comm));
}

static void killed(gpu_rank_t *rank) {
    make(rank);
    gpu_all_reduce(rank, rank->in, rank->out, TPCOMM_F32, 1, 1000, "before");
    CHECK_OK(tpcomm_host_barrier(rank->comm, 0));
    /* A call that runs, and one that waits for the SMs: this process dies with both in flight. */
    CHECK_OK(tpcomm_all_reduce(rank->comm, rank->in, rank->out, 1000, TPCOMM_F32, TPCOMM_SUM, rank->stream));
    CUDA_OK((cudaError_t)gpu_kernel_delay(5000, rank->stream));
    CHECK_OK(tpcomm_all_reduce(rank->comm, rank->in, rank->out, 1000, TPCOMM_F32, TPCOMM_SUM, rank->stream));
    while (atomic_load(stage) < 1) nap(1);
    nap(300);
    raise(SIGKILL);
}

static void survivor(gpu_rank_t *rank, const char *way) {
    make(rank);
    gpu_all_reduce(rank, rank->in, rank->out, TPCOMM_F32, 1, 1000, "before");
    CHECK_OK(tpcomm_host_barrier(rank->comm, 0));
    for (int k = 0; k < 40; k++)
        CHECK_OK(tpcomm_all_reduce(rank->comm, rank->in, rank->out, 1000, TPCOMM_F32, TPCOMM_SUM, rank->stream));
    atomic_store(stage, 1);
    cudaError_t error = cudaStreamSynchronize(rank->stream);
    printf("%s: the survivor's stream ended with %s\n", way, cudaGetErrorName(error));
    CUDA_OK(error);
    tpcomm_error_t failure = {.struct_size = sizeof failure};
    while (tpcomm_async_status(rank->comm, &failure) == TPCOMM_OK) nap(1);
    CHECK_EQ(failure.status, TPCOMM_ERR_PEER_DIED);
    CHECK(strstr(failure.text, "rank 1") != NULL);
    CUDA_OK(cudaMemsetAsync(rank->out, 0, 4096, rank->stream));
    CUDA_OK(cudaStreamSynchronize(rank->stream));
    CHECK_OK(tpcomm_destroy(rank->comm));
    CUDA_OK(cudaDeviceSynchronize());
    printf("%s: the survivor's context is whole\n", way);
    fflush(stdout);
    atomic_store(stage, 2);
}

/* A new group in the survivor, and a process that takes the dead one's place. */
static void again(gpu_rank_t *rank, const char *job) {
    ranks_set_env(rank->rank, 2, job);
    make(rank);
    gpu_all_reduce(rank, rank->in, rank->out, TPCOMM_F32, 2, 1000, "again");
    CHECK_OK(tpcomm_finalize(rank->comm));
    CHECK_OK(tpcomm_destroy(rank->comm));
}

static pid_t start(int32_t r, const char *way, int turn) {
    char job[64];
    snprintf(job, sizeof job, "gpu-killed-%s-%d", way, (int)getpid());
    fflush(NULL);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid != 0) return pid;
    gpu_rank_t rank = {.rank = r, .size = 2};
    ranks_set_env(r, 2, job);
    strcat(job, "-again");
    if (turn == 0 && r == 1) killed(&rank);
    if (turn == 0) survivor(&rank, way);
    again(&rank, job);
    fflush(NULL);
    _Exit(0);
}

static int wait_for(pid_t pid) {
    int how = 0;
    CHECK_EQ(waitpid(pid, &how, 0), pid);
    return how;
}

int main(void) {
    static const char *const ways[] = {"cumem", "cudaipc"};
    gpu_need();
    stage = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(stage != MAP_FAILED);
    for (int i = 0; i < 2; i++) {
        CHECK_EQ(setenv("TPCOMM_PEER_MEM", ways[i], 1), 0);
        atomic_store(stage, 0);
        pid_t zero = start(0, ways[i], 0), one = start(1, ways[i], 0);
        int how = wait_for(one);
        CHECK(WIFSIGNALED(how) && WTERMSIG(how) == SIGKILL);
        while (atomic_load(stage) < 2) {
            int ended = 0;
            CHECK_EQ(waitpid(zero, &ended, WNOHANG), 0); /* it failed: its text stands above */
            nap(10);
        }
        one = start(1, ways[i], 1);
        how = wait_for(one);
        CHECK(WIFEXITED(how) && WEXITSTATUS(how) == 0);
        how = wait_for(zero);
        CHECK(WIFEXITED(how) && WEXITSTATUS(how) == 0);
    }
    printf("ok\n");
    return 0;
}
