/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Check buffers that are used again at once: an input overwritten right behind its call while a late peer still works
 * on it; one pair of buffers back to back a thousand times, eager and in a graph; outputs and everything else poisoned
 * with NaN before; the same input ten thousand times, bit for bit the same output. No host synchronisation between
 * rounds; kernels on the same streams do the checking.
 */
#include "gpu/gpu_ranks.h"

enum { SOAK_ROUNDS = 10000 };

/* A stream takes about a thousand launches before the next one waits inside the driver, where it keeps the peers of
 * this process out (docs/gpu.md). */
static void not_too_many(const gpu_rank_t *rank, int round) {
    if (round % 200 == 199) CUDA_OK(cudaStreamSynchronize(rank->stream));
}

static unsigned fetch_count(const gpu_rank_t *rank, const unsigned *count) {
    unsigned value = 0;
    gpu_fetch(rank, &value, count, sizeof value);
    return value;
}

static unsigned *new_count(const gpu_rank_t *rank) {
    unsigned *count = NULL;
    CUDA_OK(cudaMalloc((void **)&count, 256));
    CUDA_OK(cudaMemsetAsync(count, 0, 256, rank->stream));
    gpu_together(rank);
    return count;
}

static void drop_count(const gpu_rank_t *rank, unsigned *count) {
    gpu_together(rank);
    CUDA_OK(cudaFree(count));
    gpu_together(rank);
}

/* Value round + r on rank r: the sum is n * round + n (n - 1) / 2. */
static void one_round(const gpu_rank_t *rank, int round, size_t count, unsigned *bad) {
    float *in = (float *)(void *)rank->in, *out = (float *)(void *)rank->out;
    float want = (float)(rank->size * round + rank->size * (rank->size - 1) / 2);
    CUDA_OK((cudaError_t)gpu_kernel_set(in, count, (float)(round + rank->rank), rank->stream));
    CHECK_OK(tpcomm_all_reduce(rank->comm, in, out, count, TPCOMM_F32, TPCOMM_SUM, rank->stream));
    CUDA_OK((cudaError_t)gpu_kernel_expect(out, count, want, bad, rank->stream));
}

static void back_to_back(gpu_rank_t *rank) {
    static const size_t counts[] = {2048, 150000};
    unsigned *bad = new_count(rank);
    for (int c = 0; c < 2; c++) {
        CUDA_OK(cudaMemsetAsync(rank->out, 0xFF, rank->room, rank->stream)); /* NaN */
        for (int round = 0; round < gpu_rounds(1000); round++) {
            one_round(rank, round, counts[c], bad);
            not_too_many(rank, round);
        }
        CHECK_EQ(fetch_count(rank, bad), 0);
        CHECK_OK(tpcomm_async_status(rank->comm, NULL));
    }
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    CUDA_OK(cudaStreamBeginCapture(rank->stream, cudaStreamCaptureModeThreadLocal));
    for (int round = 0; round < gpu_rounds(200); round++) one_round(rank, round, 2048, bad);
    CUDA_OK(cudaStreamEndCapture(rank->stream, &graph));
    CUDA_OK(cudaGraphInstantiate(&exec, graph, 0));
    gpu_together(rank);
    for (int replay = 0; replay < 5; replay++) CUDA_OK(cudaGraphLaunch(exec, rank->stream));
    CHECK_EQ(fetch_count(rank, bad), 0);
    gpu_together(rank);
    CUDA_OK(cudaGraphExecDestroy(exec));
    CUDA_OK(cudaGraphDestroy(graph));
    drop_count(rank, bad);
}

/* (W1) A thousand calls of 16 bytes to 64 KiB, f32 and bf16, rank r's input all r + 1; behind each its input becomes
 * NaN at once, on the same stream, and now and then a rank is late. */
static void overwritten(gpu_rank_t *rank) {
    static const size_t sizes[] = {16, 48, 1024, 4096, 20480, 65536};
    unsigned *bad = new_count(rank);
    for (int round = 0; round < gpu_rounds(1000); round++) {
        tpcomm_dtype_t dtype = round / 6 % 2 ? TPCOMM_BF16 : TPCOMM_F32;
        size_t bytes = sizes[round % 6];
        unsigned mine, want[3];
        float value = (float)(rank->rank + 1), sum = (float)(rank->size * (rank->size + 1) / 2);
        memcpy(&mine, &value, sizeof mine);
        memcpy(want, &sum, sizeof *want);
        if (dtype == TPCOMM_BF16)
            mine = mine >> 16 | (mine & 0xFFFF0000u), want[0] = want[0] >> 16 | (want[0] & 0xFFFF0000u);
        want[1] = want[2] = want[0];
        tpcomm_call_t call = {.struct_size = sizeof call,
                              .coll = TPCOMM_ALL_REDUCE,
                              .dtype = dtype,
                              .op = TPCOMM_SUM,
                              .path = round % 5 == 4 ? TPCOMM_PATH_TWOSHOT : TPCOMM_PATH_ONESHOT,
                              .in = rank->in,
                              .out = rank->out,
                              .count = bytes / tpcomm_dtype_size(dtype)};
        CUDA_OK((cudaError_t)gpu_kernel_words(rank->in, bytes / 4, mine, rank->stream));
        if (round % 25 == 0 && round / 25 % rank->size == rank->rank)
            CUDA_OK((cudaError_t)gpu_kernel_delay(5, rank->stream));
        CHECK_OK(tpcomm_call(rank->comm, &call, rank->stream));
        CUDA_OK((cudaError_t)gpu_kernel_words(rank->in, bytes / 4, 0xFFFFFFFFu, rank->stream));
        CUDA_OK((cudaError_t)gpu_kernel_none_of(rank->out, bytes / 4, want, bad, rank->stream));
        CUDA_OK((cudaError_t)gpu_kernel_words(rank->out, bytes / 4, 0xFFFFFFFFu, rank->stream));
        if (round % 100 == 99) CUDA_OK(cudaStreamSynchronize(rank->stream));
    }
    CHECK_EQ(fetch_count(rank, bad), 0);
    CHECK_OK(tpcomm_async_status(rank->comm, NULL));
    drop_count(rank, bad);
}

/* Each rank in its turn is late by some milliseconds; the others overwrite their inputs at once. */
static void late_reader(gpu_rank_t *rank) {
    const size_t count = 100000;
    float *in = (float *)(void *)rank->in, *out = (float *)(void *)rank->out;
    unsigned *bad = new_count(rank);
    for (int round = 0; round < 40; round++) {
        float want = (float)(rank->size * round + rank->size * (rank->size - 1) / 2);
        CUDA_OK((cudaError_t)gpu_kernel_set(in, count, (float)(round + rank->rank), rank->stream));
        if (round % rank->size == rank->rank) CUDA_OK((cudaError_t)gpu_kernel_delay(5, rank->stream));
        CHECK_OK(tpcomm_all_reduce(rank->comm, in, out, count, TPCOMM_F32, TPCOMM_SUM, rank->stream));
        CUDA_OK(cudaMemsetAsync(in, 0xFF, count * 4, rank->stream)); /* NaN: whoever reads it late shows it */
        CUDA_OK((cudaError_t)gpu_kernel_expect(out, count, want, bad, rank->stream));
        CUDA_OK(cudaMemsetAsync(out, 0xFF, count * 4, rank->stream));
    }
    CHECK_EQ(fetch_count(rank, bad), 0);
    CHECK_OK(tpcomm_async_status(rank->comm, NULL));
    drop_count(rank, bad);
}

static void soak(gpu_rank_t *rank) {
    static const size_t sizes[] = {8 << 10, 600 << 10};
    unsigned *differ = new_count(rank);
    unsigned char *first = NULL;
    CUDA_OK(cudaMalloc((void **)&first, rank->room));
    gpu_together(rank);
    for (int s = 0; s < 2; s++) {
        size_t count = sizes[s] / 2;
        gpu_pattern_in(rank, rank->in, TPCOMM_BF16, 7, count);
        CHECK_OK(tpcomm_all_reduce(rank->comm, rank->in, first, count, TPCOMM_BF16, TPCOMM_SUM, rank->stream));
        gpu_pattern_check(rank, first, TPCOMM_BF16, 7, count, "first round");
        for (int round = 0; round < gpu_rounds(SOAK_ROUNDS); round++) {
            CHECK_OK(tpcomm_all_reduce(rank->comm, rank->in, rank->out, count, TPCOMM_BF16, TPCOMM_SUM, rank->stream));
            CUDA_OK((cudaError_t)gpu_kernel_differ(rank->out, first, sizes[s], differ, rank->stream));
            not_too_many(rank, round);
        }
        CHECK_EQ(fetch_count(rank, differ), 0);
        CHECK_OK(tpcomm_async_status(rank->comm, NULL));
    }
    gpu_together(rank);
    CUDA_OK(cudaFree(first));
    drop_count(rank, differ);
}

static void reuse(gpu_rank_t *rank) {
    back_to_back(rank);
    overwritten(rank);
    late_reader(rank);
}

static void everything(gpu_rank_t *rank) {
    reuse(rank);
    soak(rank);
}

int main(void) {
    gpu_need();
    tpcomm_config_t config = gpu_config();
    printf("2 threads\n");
    fflush(stdout);
    gpu_run(RANKS_THREADS, 2, false, &config, 1 << 20, everything, NULL);
    printf("4 threads\n");
    fflush(stdout);
    gpu_run(RANKS_THREADS, 4, false, &config, 1 << 20, reuse, NULL);
    if (gpu_count() >= 2) {
        printf("2 processes, a GPU each\n");
        fflush(stdout);
        gpu_run(RANKS_PROCESSES, 2, true, &config, 1 << 20, everything, NULL);
    }
    printf("ok\n");
    return 0;
}
