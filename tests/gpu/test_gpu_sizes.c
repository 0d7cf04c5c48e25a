/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Check messages around what one launch carries (C1): some bytes less, as many, an element more, several times as many,
 * of every form, in place and not; an engine's rows around its limit; and small odd ones, by every path, into outputs
 * full of NaN (W2, W7). Exact, and 64 bytes before and behind stay. Then that a message which is no multiple of
 * 16 bytes is not far slower than its round neighbour (P1): the fastest of many replays stand in a ratio under 1.5.
 */
#include "base/status.h"
#include "custom_ar/launch.h"
#include "custom_ar/share.h"
#include "gpu/gpu_ranks.h"
#include "multirank/pattern.h"

enum { SLOT = 64 << 10, ROOM = 8 << 20, GUARD = 64, POISON = 0xFF };

typedef struct {
    size_t in, out, from; /* elements; where this rank's part of the whole begins */
} extent_t;

static extent_t extent_of(const gpu_rank_t *rank, const tpcomm_call_t *call) {
    size_t count = (size_t)call->count, ranks = (size_t)rank->size, mine = (size_t)rank->rank * count;
    if (call->coll == TPCOMM_REDUCE_SCATTER) return (extent_t){count * ranks, count, mine};
    if (call->coll == TPCOMM_ALL_GATHER) return (extent_t){count, count * ranks, mine};
    return (extent_t){count, count, 0};
}

static void want_of(const gpu_rank_t *rank, const tpcomm_call_t *call, uint64_t seed, unsigned char *want) {
    extent_t extent = extent_of(rank, call);
    size_t element = tpcomm_dtype_size(call->dtype), bytes = (size_t)call->count * element;
    if (call->coll == TPCOMM_BROADCAST)
        pattern_fill(PATTERN_BITS, call->dtype, seed, call->root, extent.out, want);
    else if (call->coll == TPCOMM_ALL_GATHER)
        for (int32_t r = 0; r < rank->size; r++)
            pattern_fill(PATTERN_BITS, call->dtype, seed, r, (size_t)call->count, want + (size_t)r * bytes);
    else
        pattern_result(PATTERN_BITS, call->dtype, call->op, seed, rank->size, extent.in, want);
    if (call->coll == TPCOMM_REDUCE_SCATTER) memmove(want, want + extent.from * element, bytes);
}

/* One call; the output full of NaN before, unless it is the input. */
static void one(const gpu_rank_t *rank, tpcomm_call_t call, bool in_place, uint64_t seed) {
    extent_t extent = extent_of(rank, &call);
    size_t element = tpcomm_dtype_size(call.dtype), in_bytes = extent.in * element, out_bytes = extent.out * element;
    size_t room = (in_bytes > out_bytes ? in_bytes : out_bytes) + 2 * GUARD;
    unsigned char *host = malloc(room), *got = malloc(room), *want = malloc(room);
    CHECK(host != NULL && got != NULL && want != NULL && room <= rank->room);
    bool gathers = call.coll == TPCOMM_ALL_GATHER, scatters = call.coll == TPCOMM_REDUCE_SCATTER;
    unsigned char *in = rank->in + GUARD, *out = rank->out + GUARD;
    if (in_place && gathers) in = out + extent.from * element;
    if (in_place && !gathers) out = in + (scatters ? extent.from * element : 0);
    pattern_fill(PATTERN_BITS, call.dtype, seed, rank->rank, extent.in, host);
    CUDA_OK(cudaMemsetAsync(rank->in, POISON, rank->room, rank->stream));
    CUDA_OK(cudaMemsetAsync(rank->out, POISON, rank->room, rank->stream));
    gpu_send(rank, in, host, in_bytes);
    call.struct_size = sizeof call;
    call.in = in;
    call.out = out;
    CHECK_OK(tpcomm_call(rank->comm, &call, rank->stream));
    gpu_fetch(rank, got, out - (scatters && in_place ? 0 : GUARD), out_bytes + 2 * GUARD);
    CHECK_OK(tpcomm_async_status(rank->comm, NULL));
    want_of(rank, &call, seed, want);
    if (scatters && in_place) memmove(got + GUARD, got, out_bytes + GUARD);
    for (size_t i = 0; i < out_bytes; i++)
        if (got[GUARD + i] != want[i])
            FAIL("rank %d of %d: %s %s %s path %s count %llu%s: byte %zu is %02x, want %02x", rank->rank, rank->size,
                 tpcomm_coll_name(call.coll), tpcomm_dtype_name(call.dtype), tpcomm_op_name(call.op),
                 tpcomm_path_name(call.path), (unsigned long long)call.count, in_place ? " in place" : "", i,
                 got[GUARD + i], want[i]);
    for (size_t i = 0; i < GUARD && !(scatters && in_place); i++)
        CHECK(got[i] == POISON && got[GUARD + out_bytes + i] == POISON);
    free(host);
    free(got);
    free(want);
}

/* ------------------------------------------------------------------ C1 */

static const struct {
    tpc_ar_form_t form;
    tpcomm_path_t path;
} forms[] = {{{.coll = TPCOMM_ALL_REDUCE}, TPCOMM_PATH_ONESHOT},
             {{.coll = TPCOMM_ALL_REDUCE, .twoshot = true}, TPCOMM_PATH_TWOSHOT},
             {{.coll = TPCOMM_REDUCE_SCATTER}, TPCOMM_PATH_ONESHOT},
             {{.coll = TPCOMM_BROADCAST}, TPCOMM_PATH_ONESHOT},
             {{.coll = TPCOMM_ALL_GATHER}, TPCOMM_PATH_ONESHOT}};

static void around_capacity(gpu_rank_t *rank) {
    static const tpcomm_dtype_t dtypes[] = {TPCOMM_F32, TPCOMM_BF16, TPCOMM_I32};
    tpc_agreed_t agreed = {.size = rank->size,
                           .workspace_bytes = tpc_ar_workspace_bytes(rank->size, SLOT)}; /* as the config says */
    CHECK_EQ(tpc_ar_slot_bytes(&agreed), SLOT);
    uint64_t seed = 1;
    for (size_t f = 0; f < sizeof forms / sizeof *forms; f++)
        for (int d = 0; d < 3; d++) {
            size_t element = tpcomm_dtype_size(dtypes[d]);
            size_t most = tpc_ar_capacity(forms[f].form, dtypes[d], rank->size, SLOT);
            const size_t bytes[] = {most - 16, most, most + element, most + 16, 3 * most, 10 * most};
            for (size_t b = 0; b < sizeof bytes / sizeof *bytes; b++, seed++) {
                tpcomm_call_t call = {.coll = forms[f].form.coll,
                                      .dtype = dtypes[d],
                                      .op = TPCOMM_SUM,
                                      .path = forms[f].path,
                                      .root = (int32_t)seed % rank->size,
                                      .count = bytes[b] / element};
                if (bytes[b] * (size_t)rank->size + 2 * GUARD > rank->room) continue;
                one(rank, call, false, seed);
                if (b < 4) one(rank, call, true, seed);
            }
        }
}

/* Rows of 7168 bf16 numbers with 2 MiB: an engine's batch passes the limit between two of these. */
static void rows_around_the_limit(gpu_rank_t *rank) {
    static const uint64_t tokens[] = {48, 49, 146, 147};
    for (int t = 0; t < 4; t++)
        for (tpcomm_path_t path = TPCOMM_PATH_AUTO; path <= TPCOMM_PATH_TWOSHOT; path++) {
            tpcomm_call_t call = {.coll = TPCOMM_ALL_REDUCE,
                                  .dtype = TPCOMM_BF16,
                                  .op = TPCOMM_SUM,
                                  .path = path,
                                  .count = tokens[t] * 7168};
            one(rank, call, path == TPCOMM_PATH_AUTO, tokens[t]);
        }
}

/* ------------------------------------------------------------------ W2, W7 */

static void small(gpu_rank_t *rank) {
    static const tpcomm_dtype_t dtypes[] = {TPCOMM_F32, TPCOMM_F16, TPCOMM_BF16, TPCOMM_F64};
    const uint64_t n = (uint64_t)rank->size, counts[] = {1, 7, 8, 9, 4 * n, 4 * n + 1, 1021, 4096, 65536};
    for (int d = 0; d < 4; d++)
        for (size_t c = 0; c < sizeof counts / sizeof *counts; c++)
            for (size_t f = 0; f < sizeof forms / sizeof *forms; f++) {
                tpcomm_call_t call = {.coll = forms[f].form.coll,
                                      .dtype = dtypes[d],
                                      .op = TPCOMM_SUM,
                                      .path = forms[f].path,
                                      .root = (int32_t)c % rank->size,
                                      .count = counts[c]};
                if (counts[c] > 5000 && (d > 0 || f > 1)) continue;
                one(rank, call, false, c);
            }
}

/* ------------------------------------------------------------------ P1 */

typedef struct {
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    float fastest_ms;
} timed_t;

enum { CHAIN = 50, REPLAYS = 60 };

static timed_t chain_of(const gpu_rank_t *rank, tpcomm_path_t path, size_t count) {
    timed_t timed = {.fastest_ms = 1e9f};
    tpcomm_call_t call = {.struct_size = sizeof call,
                          .coll = TPCOMM_ALL_REDUCE,
                          .dtype = TPCOMM_BF16,
                          .op = TPCOMM_SUM,
                          .path = path,
                          .in = rank->in,
                          .out = rank->out,
                          .count = count};
    CUDA_OK(cudaStreamBeginCapture(rank->stream, cudaStreamCaptureModeThreadLocal));
    for (int k = 0; k < CHAIN; k++) CHECK_OK(tpcomm_call(rank->comm, &call, rank->stream));
    CUDA_OK(cudaStreamEndCapture(rank->stream, &timed.graph));
    CUDA_OK(cudaGraphInstantiate(&timed.exec, timed.graph, 0));
    gpu_together(rank);
    return timed;
}

static void replay(const gpu_rank_t *rank, timed_t *timed, cudaEvent_t from, cudaEvent_t to) {
    float ms = 0;
    CHECK_OK(tpcomm_host_barrier(rank->comm, 0));
    CUDA_OK(cudaEventRecord(from, rank->stream));
    CUDA_OK(cudaGraphLaunch(timed->exec, rank->stream));
    CUDA_OK(cudaEventRecord(to, rank->stream));
    CUDA_OK(cudaStreamSynchronize(rank->stream));
    CUDA_OK(cudaEventElapsedTime(&ms, from, to));
    if (ms < timed->fastest_ms) timed->fastest_ms = ms;
}

static void drop(const gpu_rank_t *rank, timed_t *timed) {
    gpu_together(rank);
    CUDA_OK(cudaGraphExecDestroy(timed->exec));
    CUDA_OK(cudaGraphDestroy(timed->graph));
    gpu_together(rank);
}

static void odd_is_not_slow(gpu_rank_t *rank) {
    static const size_t rounds[] = {4096, 524288};
    static const tpcomm_path_t paths[] = {TPCOMM_PATH_ONESHOT, TPCOMM_PATH_TWOSHOT, TPCOMM_PATH_RING};
    cudaEvent_t from, to;
    CUDA_OK(cudaEventCreate(&from));
    CUDA_OK(cudaEventCreate(&to));
    CUDA_OK(cudaMemsetAsync(rank->in, 0, rank->room, rank->stream));
    gpu_together(rank);
    for (size_t w = 0; w < sizeof paths / sizeof *paths; w++)
        for (int i = 0; i < 2; i++) {
            tpcomm_path_t path = paths[w];
            timed_t even = chain_of(rank, path, rounds[i]), odd = chain_of(rank, path, rounds[i] + 1);
            for (int k = 0; k < REPLAYS; k++) {
                replay(rank, &even, from, to);
                replay(rank, &odd, from, to);
            }
            CHECK_OK(tpcomm_async_status(rank->comm, NULL));
            float even_us = even.fastest_ms * 1000 / CHAIN, odd_us = odd.fastest_ms * 1000 / CHAIN;
            if (rank->rank == 0)
                printf("%s: %zu of bf16 %.2f us, one more %.2f us\n", tpcomm_path_name(path), rounds[i],
                       (double)even_us, (double)odd_us);
            fflush(stdout);
            if (odd_us >= 1.5f * even_us)
                FAIL("rank %d, %s: %zu take %.2f us, one more %.2f us", rank->rank, tpcomm_path_name(path), rounds[i],
                     (double)even_us, (double)odd_us);
            drop(rank, &even);
            drop(rank, &odd);
        }
    CUDA_OK(cudaEventDestroy(from));
    CUDA_OK(cudaEventDestroy(to));
}

int main(void) {
    static const int32_t sizes[] = {2, 3, 4};
    gpu_need();
    tpcomm_config_t config = gpu_config();
    for (int s = 0; s < 3; s++) {
        printf("%d ranks\n", sizes[s]);
        fflush(stdout);
        config.workspace_bytes = tpc_ar_workspace_bytes(sizes[s], SLOT);
        gpu_run(RANKS_THREADS, sizes[s], false, &config, ROOM, around_capacity, NULL);
        gpu_run(RANKS_THREADS, sizes[s], false, &config, ROOM, small, NULL);
    }
    config.workspace_bytes = 2 << 20;
    gpu_run(RANKS_THREADS, 2, false, &config, ROOM, rows_around_the_limit, NULL);
    gpu_run(RANKS_PROCESSES, 2, false, &config, ROOM, rows_around_the_limit, NULL);
    config.workspace_bytes = 0;
    gpu_run(RANKS_THREADS, 2, false, &config, ROOM, odd_is_not_slow, NULL);
    printf("ok\n");
    return 0;
}
