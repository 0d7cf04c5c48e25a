/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Check a group that several threads of a rank are in: two that call it at once, each on a stream of its own, get BUSY
 * or an exact result (H16); one whose launch hangs in the driver behind 2000 queued calls is let go by another's abort,
 * within a second (h of docs/gpu.md, H11).
 */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <unistd.h>

#include "gpu/gpu_ranks.h"

/* ------------------------------------------------------------------ H16 */

enum { CALLERS = 2, CALLS = 200, COUNT = 3000 };

typedef struct {
    const gpu_rank_t *rank;
    pthread_t thread;
    cudaStream_t stream;
    unsigned char *in, *out;
    unsigned *bad; /* device memory */
    int device;
    unsigned long busy;
} caller_t;

/* All calls are alike, so it does not matter whose call meets whose. */
static void *call_often(void *arg) {
    caller_t *caller = arg;
    const gpu_rank_t *rank = caller->rank;
    float sum = (float)(rank->size * (rank->size + 1) / 2);
    unsigned want[3];
    memcpy(want, &sum, sizeof *want);
    want[1] = want[2] = want[0];
    CUDA_OK(cudaSetDevice(caller->device));
    for (int made = 0; made < CALLS;) {
        tpcomm_status_t status = tpcomm_all_reduce(rank->comm, caller->in, caller->out, COUNT, TPCOMM_F32, TPCOMM_SUM,
                                                   (tpcomm_stream_t)caller->stream);
        if (status == TPCOMM_ERR_BUSY) {
            caller->busy++;
            sched_yield();
            continue;
        }
        CHECK_OK(status);
        CUDA_OK((cudaError_t)gpu_kernel_none_of(caller->out, COUNT, want, caller->bad, caller->stream));
        CUDA_OK((cudaError_t)gpu_kernel_words(caller->out, COUNT, 0xFFFFFFFFu, caller->stream));
        if (++made % 20 == 0) CUDA_OK(cudaStreamSynchronize(caller->stream));
    }
    CUDA_OK(cudaStreamSynchronize(caller->stream));
    return NULL;
}

static void two_threads(gpu_rank_t *rank) {
    caller_t callers[CALLERS];
    float value = (float)(rank->rank + 1);
    int device = 0;
    CUDA_OK(cudaGetDevice(&device));
    for (int c = 0; c < CALLERS; c++) {
        size_t at = (size_t)c * COUNT * 4;
        callers[c] = (caller_t){.rank = rank,
                                .in = rank->in + at,
                                .out = rank->out + at,
                                .bad = (unsigned *)(void *)(rank->out + rank->room / 2) + c,
                                .device = device};
        gpu_stream_new(&callers[c].stream);
        CUDA_OK((cudaError_t)gpu_kernel_set((float *)(void *)callers[c].in, COUNT, value, rank->stream));
        CUDA_OK(cudaMemsetAsync(callers[c].bad, 0, sizeof *callers[c].bad, rank->stream));
    }
    gpu_together(rank);
    for (int c = 0; c < CALLERS; c++) CHECK_EQ(pthread_create(&callers[c].thread, NULL, call_often, &callers[c]), 0);
    for (int c = 0; c < CALLERS; c++) CHECK_EQ(pthread_join(callers[c].thread, NULL), 0);
    CHECK_OK(tpcomm_async_status(rank->comm, NULL));
    unsigned bad[CALLERS];
    gpu_fetch(rank, bad, callers[0].bad, sizeof bad);
    for (int c = 0; c < CALLERS; c++) {
        if (bad[c] != 0) FAIL("rank %d, thread %d: %u wrong", rank->rank, c, bad[c]);
        if (rank->rank == 0) printf("thread %d was told BUSY %lu times\n", c, callers[c].busy);
    }
    fflush(stdout);
    gpu_together(rank);
    for (int c = 0; c < CALLERS; c++) CUDA_OK(cudaStreamDestroy(callers[c].stream));
    gpu_together(rank);
}

/* ------------------------------------------------------------------ h */

typedef struct {
    gpu_rank_t *rank;
    int device;
    _Atomic int made;
} launcher_t;

static void *launch_many(void *arg) {
    launcher_t *launcher = arg;
    const gpu_rank_t *rank = launcher->rank;
    CUDA_OK(cudaSetDevice(launcher->device));
    for (int i = 0; i < 2000; i++) {
        tpcomm_status_t status =
            tpcomm_all_reduce(rank->comm, rank->in, rank->out, 1000, TPCOMM_F32, TPCOMM_SUM, rank->stream);
        if (status != TPCOMM_OK) {
            CHECK_STATUS(status, TPCOMM_ERR_ABORTED);
            break;
        }
        atomic_store(&launcher->made, i + 1);
    }
    return NULL;
}

static void blocked_launcher(gpu_rank_t *rank) {
    gpu_all_reduce(rank, rank->in, rank->out, TPCOMM_F32, 1, 1000, "before");
    gpu_together(rank);
    if (rank->rank == 0) {
        launcher_t launcher = {.rank = rank};
        pthread_t thread;
        CUDA_OK(cudaGetDevice(&launcher.device));
        CHECK_EQ(pthread_create(&thread, NULL, launch_many, &launcher), 0);
        int made = 0;
        for (int looks = 0; looks < 80;
             looks++) { /* in so many looks in a row nothing has come: it hangs in a launch */
            usleep(10000);
            if (atomic_load(&launcher.made) != made) looks = -1;
            made = atomic_load(&launcher.made);
        }
        CHECK(made < 2000);
        printf("the launching thread hangs behind %d calls\n", made);
        fflush(stdout);
        double start = gpu_now_s();
        CHECK_OK(tpcomm_abort(rank->comm, "enough"));
        gpu_check_soon(start, 0.1, "abort");
        CHECK_EQ(pthread_join(thread, NULL), 0);
        CUDA_OK(cudaStreamSynchronize(rank->stream));
        gpu_check_soon(start, 1, "until all had ended");
    }
    while (tpcomm_async_status(rank->comm, NULL) == TPCOMM_OK) usleep(1000);
    CHECK_STATUS(tpcomm_barrier(rank->comm, rank->stream), TPCOMM_ERR_ABORTED);
    CHECK_ERROR_HAS("enough");
}

int main(void) {
    gpu_need();
    tpcomm_config_t config = gpu_config();
    config.op_timeout_ms = 60000;
    for (int kind = 0; kind < RANKS_KINDS; kind++) {
        printf("2 %s, two threads each\n", ranks_kind_name(kind));
        fflush(stdout);
        gpu_run(kind, 2, false, &config, 1 << 20, two_threads, NULL);
    }
    if (gpu_count() >= 2) gpu_run(RANKS_PROCESSES, 2, true, &config, 1 << 20, two_threads, NULL);
    for (int kind = 0; kind < RANKS_KINDS; kind++) {
        printf("2 %s, a launch that hangs\n", ranks_kind_name(kind));
        fflush(stdout);
        gpu_run(kind, 2, false, &config, 1 << 20, blocked_launcher, NULL);
    }
    printf("ok\n");
    return 0;
}
