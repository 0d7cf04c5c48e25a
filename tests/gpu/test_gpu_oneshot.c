/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Check the one-shot kernels on a GPU against the cpu device's bits: every dtype and op, odd counts, misaligned, in
 * place; broadcast and all_gather; several launches for large messages; graphs of mixed sizes replayed with fresh data,
 * eager calls between; ranks as threads and as processes. An argument N runs only that many ranks; "time" prints graph
 * times in place of the tests.
 */

#include "base/status.h"
#include "gpu/gpu_ranks.h"
#include "multirank/pattern.h"

enum { ROOM = 24 << 20 };

/* The kernel first: a copy to pageable memory waits for it inside the driver, where it keeps the peers of this process
 * out. */
static void fetch(const gpu_rank_t *rank, void *to, const void *from, size_t bytes) {
    CUDA_OK(cudaStreamSynchronize(rank->stream));
    CUDA_OK(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, rank->stream));
    CUDA_OK(cudaStreamSynchronize(rank->stream));
}

static void send(const gpu_rank_t *rank, void *to, const void *from, size_t bytes) {
    CUDA_OK(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, rank->stream));
}

static void one_all_reduce(gpu_rank_t *rank, tpcomm_dtype_t dtype, tpcomm_op_t op, int kind, size_t count,
                           bool in_place, size_t misalign, uint64_t seed) {
    size_t bytes = count * tpcomm_dtype_size(dtype), element = tpcomm_dtype_size(dtype);
    unsigned char *host = malloc(bytes + 64), *want = malloc(bytes + 1);
    CHECK(host && want);
    unsigned char *in = rank->in + misalign * element, *out = in_place ? in : rank->out + (seed % 3) * element;
    pattern_fill(kind, dtype, seed, rank->rank, count, host);
    send(rank, in, host, bytes);
    if (!in_place) CUDA_OK(cudaMemsetAsync(out, 0xEE, bytes + 64, rank->stream));
    CHECK_OK(tpcomm_all_reduce(rank->comm, in, out, count, dtype, op, rank->stream));
    fetch(rank, host, out, bytes + (in_place ? 0 : 64));
    CHECK_OK(tpcomm_async_status(rank->comm, NULL));
    pattern_result(kind, dtype, op, seed, rank->size, count, want);
    for (size_t i = 0; i < bytes; i++)
        if (host[i] != want[i])
            FAIL("rank %d of %d: %s %s count %zu pattern %d misalign %zu %s: byte %zu is %02x, want %02x", rank->rank,
                 rank->size, tpcomm_dtype_name(dtype), tpcomm_op_name(op), count, kind, misalign,
                 in_place ? "in place" : "", i, host[i], want[i]);
    if (!in_place)
        for (size_t i = 0; i < 64; i++) CHECK(host[bytes + i] == 0xEE);
    free(host);
    free(want);
}

static void reductions(gpu_rank_t *rank) {
    static const size_t counts[] = {1, 3, 8, 17, 1021, 4096, 65537};
    uint64_t seed = 1;
    for (tpcomm_dtype_t dtype = TPCOMM_F32; dtype <= TPCOMM_F64; dtype++)
        for (tpcomm_op_t op = TPCOMM_SUM; op <= TPCOMM_PROD; op++) {
            if (!tpc_reduction_defined(dtype, op)) continue;
            for (size_t c = 0; c < sizeof counts / sizeof *counts; c++, seed++)
                one_all_reduce(rank, dtype, op, seed % 2 ? PATTERN_BITS : PATTERN_EXACT, counts[c], seed % 4 < 2,
                               seed % 5 == 0 ? (seed + (uint64_t)rank->rank) % 3 : 0, seed);
        }
    one_all_reduce(rank, TPCOMM_BF16, TPCOMM_SUM, PATTERN_BITS, 5000001, false, 0, 7); /* several launches */
    one_all_reduce(rank, TPCOMM_I32, TPCOMM_SUM, PATTERN_BITS, 1500001, true, 0, 8);
    CHECK_OK(tpcomm_all_reduce(rank->comm, NULL, NULL, 0, TPCOMM_BF16, TPCOMM_SUM, rank->stream));
    CHECK_OK(tpcomm_barrier(rank->comm, rank->stream));
    CUDA_OK(cudaStreamSynchronize(rank->stream));
}

static void movement(gpu_rank_t *rank) {
    static const size_t counts[] = {1, 7, 1021, 70001};
    unsigned char *host = malloc(ROOM), *want = malloc(ROOM);
    CHECK(host && want);
    for (size_t c = 0; c < sizeof counts / sizeof *counts; c++)
        for (int32_t root = 0; root < rank->size; root++) {
            size_t bytes = counts[c] * 2;
            pattern_fill(PATTERN_BITS, TPCOMM_BF16, c, root, counts[c], want);
            pattern_fill(PATTERN_BITS, TPCOMM_BF16, c, rank->rank, counts[c], host);
            send(rank, rank->in, host, bytes);
            CHECK_OK(tpcomm_broadcast(rank->comm, rank->in, rank->out, counts[c], TPCOMM_BF16, root, rank->stream));
            fetch(rank, host, rank->out, bytes);
            CHECK(memcmp(host, want, bytes) == 0);
        }
    for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
        size_t bytes = counts[c] * 4;
        for (int32_t r = 0; r < rank->size; r++)
            pattern_fill(PATTERN_BITS, TPCOMM_F32, c, r, counts[c], want + (size_t)r * bytes);
        send(rank, rank->in, want + (size_t)rank->rank * bytes, bytes);
        CHECK_OK(tpcomm_all_gather(rank->comm, rank->in, rank->out, counts[c], TPCOMM_F32, rank->stream));
        fetch(rank, host, rank->out, bytes * (size_t)rank->size);
        CHECK(memcmp(host, want, bytes * (size_t)rank->size) == 0);
    }
    free(host);
    free(want);
}

/* Three calls of mixed sizes in one graph, replayed with fresh data; an eager call between replays. */
static void graphs(gpu_rank_t *rank) {
    static const size_t counts[3] = {4096, 33, 100000};
    size_t at[3], total = 0;
    for (int k = 0; k < 3; k++) {
        at[k] = total;
        total += (counts[k] * 2 + 255) / 256 * 256;
    }
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    CUDA_OK(cudaStreamBeginCapture(rank->stream, cudaStreamCaptureModeThreadLocal));
    for (int k = 0; k < 3; k++)
        CHECK_OK(tpcomm_all_reduce(rank->comm, rank->in + at[k], rank->out + at[k], counts[k], TPCOMM_BF16, TPCOMM_SUM,
                                   rank->stream));
    CUDA_OK(cudaStreamEndCapture(rank->stream, &graph));
    size_t nodes = 0;
    CUDA_OK(cudaGraphGetNodes(graph, NULL, &nodes));
    CHECK(nodes >= 3);
    CUDA_OK(cudaGraphInstantiate(&exec, graph, 0));
    CHECK_OK(tpcomm_host_barrier(rank->comm, 0)); /* instantiation done everywhere before a kernel waits */
    unsigned char *host = malloc(total), *want = malloc(total);
    CHECK(host && want);
    for (uint64_t replay = 0; replay < (uint64_t)gpu_rounds(100); replay++) {
        for (int k = 0; k < 3; k++)
            pattern_fill(PATTERN_BITS, TPCOMM_BF16, replay * 3 + (uint64_t)k, rank->rank, counts[k], host + at[k]);
        send(rank, rank->in, host, total);
        CUDA_OK(cudaMemsetAsync(rank->out, 0xEE, total, rank->stream));
        CUDA_OK(cudaGraphLaunch(exec, rank->stream));
        fetch(rank, host, rank->out, total);
        for (int k = 0; k < 3; k++) {
            pattern_result(PATTERN_BITS, TPCOMM_BF16, TPCOMM_SUM, replay * 3 + (uint64_t)k, rank->size, counts[k],
                           want);
            if (memcmp(host + at[k], want, counts[k] * 2) != 0)
                FAIL("rank %d: replay %llu call %d differs", rank->rank, (unsigned long long)replay, k);
        }
        if (replay % 7 == 0)
            one_all_reduce(rank, TPCOMM_F32, TPCOMM_SUM, PATTERN_BITS, 1000 + replay, false, 0, replay);
    }
    CUDA_OK(cudaGraphExecDestroy(exec));
    CUDA_OK(cudaGraphDestroy(graph));
    free(host);
    free(want);
}

/* In one group: starting CUDA anew for each takes longer than what they do. */
static void all(gpu_rank_t *rank) {
    reductions(rank);
    movement(rank);
    gpu_together(rank);
    graphs(rank);
    gpu_together(rank);
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* A graph of 50 dependent calls, replayed; microseconds a call, median over 100 replays, on rank 0. */
static void timing(gpu_rank_t *rank) {
    for (size_t bytes = 1024; bytes <= 4 << 20; bytes *= 2) {
        enum { CALLS = 50, REPLAYS = 100 };
        cudaGraph_t graph;
        cudaGraphExec_t exec;
        cudaEvent_t from, to;
        double us[REPLAYS];
        CUDA_OK(cudaEventCreate(&from));
        CUDA_OK(cudaEventCreate(&to));
        CUDA_OK(cudaMemsetAsync(rank->in, 0, bytes, rank->stream));
        CUDA_OK(cudaStreamBeginCapture(rank->stream, cudaStreamCaptureModeThreadLocal));
        for (int k = 0; k < CALLS; k++)
            CHECK_OK(
                tpcomm_all_reduce(rank->comm, rank->in, rank->out, bytes / 2, TPCOMM_BF16, TPCOMM_SUM, rank->stream));
        CUDA_OK(cudaStreamEndCapture(rank->stream, &graph));
        CUDA_OK(cudaGraphInstantiate(&exec, graph, 0));
        for (int replay = 0; replay < REPLAYS; replay++) {
            CHECK_OK(tpcomm_host_barrier(rank->comm, 0));
            CUDA_OK(cudaEventRecord(from, rank->stream));
            CUDA_OK(cudaGraphLaunch(exec, rank->stream));
            CUDA_OK(cudaEventRecord(to, rank->stream));
            CUDA_OK(cudaStreamSynchronize(rank->stream));
            float ms = 0;
            CUDA_OK(cudaEventElapsedTime(&ms, from, to));
            us[replay] = (double)ms * 1000.0 / CALLS;
        }
        CHECK_OK(tpcomm_async_status(rank->comm, NULL));
        qsort(us, REPLAYS, sizeof *us, by_value);
        double eager = gpu_now_s();
        for (int k = 0; k < 200; k++)
            CHECK_OK(
                tpcomm_all_reduce(rank->comm, rank->in, rank->out, bytes / 2, TPCOMM_BF16, TPCOMM_SUM, rank->stream));
        eager = (gpu_now_s() - eager) * 1e6 / 200;
        CUDA_OK(cudaStreamSynchronize(rank->stream));
        if (rank->rank == 0)
            printf("%d ranks, %8zu bytes: graph p50 %.2f us, p95 %.2f us; host time of an eager call %.2f us\n",
                   rank->size, bytes, us[REPLAYS / 2], us[REPLAYS * 95 / 100], eager);
        fflush(stdout);
        CHECK_OK(tpcomm_host_barrier(rank->comm, 0));
        CUDA_OK(cudaGraphExecDestroy(exec));
        CUDA_OK(cudaGraphDestroy(graph));
        CHECK_OK(tpcomm_host_barrier(rank->comm, 0));
    }
}

static void missing_rank(gpu_rank_t *rank) {
    CHECK_OK(tpcomm_set_op_timeout(rank->comm, 1500));
    CHECK_OK(tpcomm_host_barrier(rank->comm, 0));
    if (rank->rank == 0) {
        float nan_check[4];
        CHECK_OK(tpcomm_all_reduce(rank->comm, rank->in, rank->out, 1000, TPCOMM_F32, TPCOMM_SUM, rank->stream));
        tpcomm_status_t status = TPCOMM_OK;
        for (int k = 0; k < 500 && status == TPCOMM_OK; k++) /* queued behind: leave at once */
            status = tpcomm_all_reduce(rank->comm, rank->in, rank->out, 1000, TPCOMM_F32, TPCOMM_SUM, rank->stream);
        if (status != TPCOMM_OK) CHECK_STATUS(status, TPCOMM_ERR_TIMEOUT); /* this thread was kept from its calls */
        double start = gpu_now_s();
        CUDA_OK(cudaStreamSynchronize(rank->stream));
        gpu_check_soon(start, 4, "the calls behind one that nobody answers");
        CHECK_STATUS(tpcomm_async_status(rank->comm, NULL), TPCOMM_ERR_TIMEOUT);
        CHECK_STATUS(tpcomm_barrier(rank->comm, rank->stream), TPCOMM_ERR_TIMEOUT);
        CHECK_ERROR_HAS("for rank 1");
        fetch(rank, nan_check, rank->out, sizeof nan_check);
        for (int i = 0; i < 4; i++) CHECK(nan_check[i] != nan_check[i]);
        CUDA_OK(cudaMemsetAsync(rank->out, 0, 4096, rank->stream)); /* the device is none the worse */
        CUDA_OK(cudaStreamSynchronize(rank->stream));
    } else {
        while (tpcomm_async_status(rank->comm, NULL) == TPCOMM_OK) {
        }
        CHECK_STATUS(tpcomm_barrier(rank->comm, rank->stream), TPCOMM_ERR_TIMEOUT);
    }
}

static void mismatch(gpu_rank_t *rank) {
    CHECK_OK(tpcomm_host_barrier(rank->comm, 0));
    CHECK_OK(tpcomm_all_reduce(rank->comm, rank->in, rank->out, rank->rank == 0 ? 1000 : 2000, TPCOMM_F32, TPCOMM_SUM,
                               rank->stream));
    CUDA_OK(cudaStreamSynchronize(rank->stream));
    while (tpcomm_async_status(rank->comm, NULL) == TPCOMM_OK) {
    }
    CHECK_STATUS(tpcomm_barrier(rank->comm, rank->stream), TPCOMM_ERR_MISMATCH);
    CHECK_ERROR_HAS("count 1000 f32 sum");
    CHECK_ERROR_HAS("count 2000 f32 sum");
}

static void aborted(gpu_rank_t *rank) {
    CHECK_OK(tpcomm_host_barrier(rank->comm, 0));
    if (rank->rank == 0) {
        for (int k = 0; k < 800; k++)
            CHECK_OK(tpcomm_all_reduce(rank->comm, rank->in, rank->out, 1000, TPCOMM_F32, TPCOMM_SUM, rank->stream));
        CHECK_OK(tpcomm_abort(rank->comm, "enough"));
        double start = gpu_now_s();
        CUDA_OK(cudaStreamSynchronize(rank->stream));
        gpu_check_soon(start, 1, "the calls behind an abort");
    }
    while (tpcomm_async_status(rank->comm, NULL) == TPCOMM_OK) {
    }
    CHECK_STATUS(tpcomm_barrier(rank->comm, rank->stream), TPCOMM_ERR_ABORTED);
    CHECK_ERROR_HAS("enough");
}

int main(int argc, char **argv) {
    gpu_need();
    tpcomm_config_t config = gpu_config();
    bool each = gpu_count() >= 2;
    if (argc > 1 && strcmp(argv[1], "time") == 0) {
        static const int32_t sizes[] = {2, 4, 8};
        for (size_t s = 0; s < 3; s++) gpu_run(RANKS_THREADS, sizes[s], false, &config, 8 << 20, timing, NULL);
        if (each) {
            printf("one rank a GPU, processes:\n");
            fflush(stdout);
            gpu_run(RANKS_PROCESSES, 2, true, &config, 8 << 20, timing, NULL);
        }
        return 0;
    }
    static const int32_t sizes[] = {2, 3, 4, 5, 8};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        if (argc > 1 && atoi(argv[1]) != sizes[s]) continue;
        printf("%d ranks share a GPU, threads\n", sizes[s]);
        fflush(stdout);
        gpu_run(RANKS_THREADS, sizes[s], false, &config, ROOM, all, NULL);
    }
    printf("failures\n");
    fflush(stdout);
    gpu_run(RANKS_THREADS, 2, false, &config, 1 << 20, missing_rank, NULL);
    gpu_run(RANKS_THREADS, 2, false, &config, 1 << 20, mismatch, NULL);
    gpu_run(RANKS_THREADS, 2, false, &config, 1 << 20, aborted, NULL);
    printf("2 ranks share a GPU, processes\n");
    fflush(stdout);
    gpu_run(RANKS_PROCESSES, 2, false, &config, ROOM, movement, NULL);
    if (each) {
        printf("2 ranks, a GPU each\n");
        fflush(stdout);
        for (int kind = 0; kind < RANKS_KINDS; kind++) gpu_run(kind, 2, true, &config, ROOM, all, NULL);
    }
    printf("ok\n");
    return 0;
}
