/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Check calls in CUDA graphs: 1, 2, 3 and 8 calls of distinct buffers and sizes in one graph, replayed with fresh data;
 * eight batch sizes captured in a row with temporaries freed and made anew between; capture, eager, replay in turn; two
 * graphs in turn, instantiated on one stream and run on another. Exact every time; what is not an output stays.
 */
#include "gpu/gpu_ranks.h"

enum { CALLS = 8, REPLAYS = 100, GUARD = 256 };

typedef struct {
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    int calls;
    unsigned char *in[CALLS], *out[CALLS];
    size_t count[CALLS];
} captured_t;

static size_t bytes_of(size_t count) {
    return (count * 2 + GUARD - 1) / GUARD * GUARD + GUARD; /* always some bytes behind the data */
}

/* Inputs and outputs apart, each with a guard behind it. */
static void lay_out(const gpu_rank_t *rank, captured_t *captured, int calls, const size_t *counts) {
    size_t at = 0;
    captured->calls = calls;
    for (int k = 0; k < calls; k++) {
        captured->in[k] = rank->in + at;
        captured->out[k] = rank->out + at;
        captured->count[k] = counts[k];
        at += bytes_of(counts[k]);
        CHECK(at <= rank->room);
    }
}

static void capture(const gpu_rank_t *rank, captured_t *captured) {
    size_t nodes = 0;
    CUDA_OK(cudaStreamBeginCapture(rank->stream, cudaStreamCaptureModeThreadLocal));
    for (int k = 0; k < captured->calls; k++)
        CHECK_OK(tpcomm_all_reduce(rank->comm, captured->in[k], captured->out[k], captured->count[k], TPCOMM_BF16,
                                   TPCOMM_SUM, rank->stream));
    CUDA_OK(cudaStreamEndCapture(rank->stream, &captured->graph));
    CUDA_OK(cudaGraphGetNodes(captured->graph, NULL, &nodes));
    CHECK(nodes >= (size_t)captured->calls);
    CUDA_OK(cudaGraphInstantiate(&captured->exec, captured->graph, 0));
}

static void drop(captured_t *captured) {
    CUDA_OK(cudaGraphExecDestroy(captured->exec));
    CUDA_OK(cudaGraphDestroy(captured->graph));
}

static void replay(const gpu_rank_t *rank, const captured_t *captured, uint64_t seed, cudaStream_t stream) {
    static const unsigned char canary[GUARD] = {0};
    unsigned char guard[GUARD];
    for (int k = 0; k < captured->calls; k++) {
        gpu_pattern_in(rank, captured->in[k], TPCOMM_BF16, seed * CALLS + (uint64_t)k, captured->count[k]);
        CUDA_OK(cudaMemsetAsync(captured->out[k], 0, bytes_of(captured->count[k]), rank->stream));
    }
    CUDA_OK(cudaStreamSynchronize(rank->stream));
    CUDA_OK(cudaGraphLaunch(captured->exec, stream));
    CUDA_OK(cudaStreamSynchronize(stream));
    for (int k = 0; k < captured->calls; k++) {
        size_t bytes = captured->count[k] * 2;
        gpu_pattern_check(rank, captured->out[k], TPCOMM_BF16, seed * CALLS + (uint64_t)k, captured->count[k],
                          "replay");
        gpu_fetch(rank, guard, captured->out[k] + bytes, GUARD);
        CHECK(memcmp(guard, canary, GUARD) == 0);
    }
}

static void many_calls(gpu_rank_t *rank) {
    static const size_t counts[CALLS] = {4096, 33, 100000, 1, 8192, 65536, 7, 30000};
    static const int calls[] = {1, 2, 3, 8};
    for (int c = 0; c < 4; c++) {
        captured_t captured;
        lay_out(rank, &captured, calls[c], counts);
        capture(rank, &captured);
        gpu_together(rank);
        for (uint64_t turn = 0; turn < (uint64_t)gpu_rounds(REPLAYS / (c == 3 ? 4 : 1)); turn++)
            replay(rank, &captured, turn, rank->stream);
        gpu_together(rank);
        drop(&captured);
        gpu_together(rank);
    }
}

/* Temporaries of each capture are given back before the next: only outputs and inputs of the caller's must live on. */
static void batch_sizes(gpu_rank_t *rank) {
    captured_t captured[CALLS];
    for (int b = 0; b < CALLS; b++) {
        size_t count = (size_t)4096 << (CALLS - 1 - b);
        void *temporary = NULL;
        CUDA_OK(cudaMalloc(&temporary, count * 4));
        gpu_together(rank);
        gpu_all_reduce(rank, temporary, (unsigned char *)temporary + count * 2, TPCOMM_BF16, (uint64_t)b, count,
                       "warm-up");
        lay_out(rank, &captured[b], 1, &count);
        capture(rank, &captured[b]);
        gpu_together(rank);
        CUDA_OK(cudaFree(temporary));
        gpu_together(rank);
    }
    for (uint64_t turn = 0; turn < 5; turn++)
        for (int b = 0; b < CALLS; b++) replay(rank, &captured[b], turn, rank->stream);
    gpu_together(rank);
    for (int b = 0; b < CALLS; b++) drop(&captured[b]);
    gpu_together(rank);
}

static void in_turn(gpu_rank_t *rank) {
    static const size_t counts[2][2] = {{5000, 300}, {77, 20000}};
    captured_t captured[2];
    cudaStream_t other;
    gpu_stream_new(&other);
    gpu_together(rank);
    gpu_all_reduce(rank, rank->in, rank->out, TPCOMM_F32, 1, 999, "eager before");
    for (int g = 0; g < 2; g++) {
        lay_out(rank, &captured[g], 2, counts[g]);
        capture(rank, &captured[g]);
        gpu_together(rank);
        gpu_all_reduce(rank, rank->in, rank->out, TPCOMM_F32, 2, 5001, "eager between captures");
        gpu_together(rank);
    }
    for (uint64_t turn = 0; turn < 40; turn++) {
        replay(rank, &captured[turn % 2], turn, turn % 3 == 0 ? other : rank->stream);
        if (turn % 4 == 1) gpu_all_reduce(rank, rank->in, rank->out, TPCOMM_I32, turn, 1234, "eager between replays");
    }
    gpu_together(rank);
    for (int g = 0; g < 2; g++) drop(&captured[g]);
    CUDA_OK(cudaStreamDestroy(other));
    gpu_together(rank);
}

/* One short round of everything, for a run under a checker that makes all of it slow. */
static void short_round(gpu_rank_t *rank) {
    static const size_t counts[2] = {1000, 33};
    captured_t captured;
    CUDA_OK(cudaMemsetAsync(rank->in, 0, rank->room, rank->stream)); /* read in part where only some was written */
    CUDA_OK(cudaMemsetAsync(rank->out, 0, rank->room, rank->stream));
    gpu_all_reduce(rank, rank->in, rank->out, TPCOMM_F32, 1, 1021, "eager");
    gpu_all_reduce(rank, rank->in + 2, rank->out + 4, TPCOMM_BF16, 2, 70001, "misaligned");
    gpu_all_reduce(rank, rank->in, rank->in, TPCOMM_I32, 3, 4096, "in place");
    CHECK_OK(tpcomm_broadcast(rank->comm, rank->in, rank->out, 333, TPCOMM_F32, 1, rank->stream));
    CHECK_OK(tpcomm_all_gather(rank->comm, rank->in, rank->out, 333, TPCOMM_F32, rank->stream));
    CHECK_OK(tpcomm_barrier(rank->comm, rank->stream));
    tpcomm_call_t twoshot = {.struct_size = sizeof twoshot,
                             .coll = TPCOMM_ALL_REDUCE,
                             .dtype = TPCOMM_F16,
                             .op = TPCOMM_SUM,
                             .path = TPCOMM_PATH_TWOSHOT,
                             .in = rank->in,
                             .out = rank->out,
                             .count = 9000};
    CHECK_OK(tpcomm_call(rank->comm, &twoshot, rank->stream));
    CHECK_OK(tpcomm_reduce_scatter(rank->comm, rank->in, rank->out, 777, TPCOMM_F32, TPCOMM_MAX, rank->stream));
    tpcomm_rms_norm_t norm = {.struct_size = sizeof norm,
                              .dtype = TPCOMM_BF16,
                              .path = TPCOMM_PATH_FUSED_ONESHOT,
                              .hidden = 2048,
                              .tokens = 7,
                              .eps = 1e-5f,
                              .in = rank->in,
                              .weight = rank->in + (1 << 20),
                              .out = rank->out};
    CHECK_OK(tpcomm_all_reduce_rms_norm(rank->comm, &norm, rank->stream));
    gpu_together(rank);
    CHECK_OK(tpcomm_async_status(rank->comm, NULL));
    lay_out(rank, &captured, 2, counts);
    capture(rank, &captured);
    gpu_together(rank);
    for (uint64_t turn = 0; turn < 3; turn++) replay(rank, &captured, turn, rank->stream);
    gpu_together(rank);
    drop(&captured);
    gpu_together(rank);
}

/* In one group: what one leaves behind the next one finds. */
static void everything(gpu_rank_t *rank) {
    many_calls(rank);
    batch_sizes(rank);
    in_turn(rank);
}

int main(int argc, char **argv) {
    gpu_need();
    tpcomm_config_t config = gpu_config();
    if (argc > 1 && strcmp(argv[1], "short") == 0) {
        /* A checker lets one kernel of a process run at a time: ranks that wait for each other need one each. */
        gpu_run(RANKS_PROCESSES, 2, false, &config, 4 << 20, short_round, NULL);
        printf("ok\n");
        return 0;
    }
    for (int kind = 0; kind < RANKS_KINDS; kind++) {
        printf("2 %s\n", ranks_kind_name(kind));
        fflush(stdout);
        gpu_run(kind, 2, false, &config, 4 << 20, everything, NULL);
    }
    printf("4 threads\n");
    fflush(stdout);
    gpu_run(RANKS_THREADS, 4, false, &config, 4 << 20, in_turn, NULL);
    printf("ok\n");
    return 0;
}
