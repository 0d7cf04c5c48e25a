/* SPDX-License-Identifier: Apache-2.0 */
#include "replay_buffers.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"

enum { ALIGNMENT = 4096, LUMP_DATA = 1 };

uint64_t bench_replay_elements(const bench_replay_t *replay, uint32_t tokens) {
    return tokens * replay->model.hidden;
}

uint64_t bench_replay_bytes(const bench_replay_t *replay, uint32_t tokens) {
    return bench_replay_elements(replay, tokens) * tpcomm_dtype_size(replay->dtype);
}

uint64_t bench_replay_lump_bytes(const bench_replay_t *replay, uint32_t tokens) {
    uint64_t bytes = bench_replay_bytes(replay, tokens);
    return bytes <= BENCH_LUMP_MAX_BYTES / replay->calls ? bytes * replay->calls : 0;
}

uint64_t bench_replay_lump_elements(const bench_replay_t *replay, uint32_t tokens) {
    return bench_replay_lump_bytes(replay, tokens) / tpcomm_dtype_size(replay->dtype);
}

static void *allocate(uint64_t bytes) {
    uint64_t rounded = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    return rounded <= SIZE_MAX / 2 ? aligned_alloc(ALIGNMENT, (size_t)rounded) : NULL;
}

/** The greatest message of at most `greatest` tokens that turns through more than `pair` pairs. */
static uint64_t pair_bytes(const bench_replay_t *replay, uint32_t pair, uint32_t greatest) {
    uint64_t limit = pair < 2 ? UINT64_MAX : BENCH_HOT_BYTES / (2 * (pair + UINT64_C(1)));
    uint64_t bytes = bench_replay_bytes(replay, greatest);
    return bytes < limit ? bytes : limit;
}

tpcomm_status_t bench_buffers_new(const bench_replay_t *replay, const bench_data_t *data, uint32_t greatest,
                                  bench_buffers_t *buffers_p) {
    bench_buffers_t buffers;
    uint64_t total = 0, element_bytes = tpcomm_dtype_size(replay->dtype);
    memset(&buffers, 0, sizeof buffers);
    for (uint32_t pair = 0; pair < BENCH_ROTATION_MAX; pair++) {
        buffers.bytes[pair] = pair_bytes(replay, pair, greatest);
        total += 2 * buffers.bytes[pair];
    }
    if (replay->lump) {
        buffers.lump_bytes = BENCH_LUMP_MAX_BYTES;
        uint64_t needed = replay->calls <= UINT64_MAX / bench_replay_bytes(replay, greatest)
                              ? replay->calls * bench_replay_bytes(replay, greatest)
                              : UINT64_MAX;
        if (needed < buffers.lump_bytes) buffers.lump_bytes = needed;
        total += 2 * buffers.lump_bytes;
        buffers.lump_in = allocate(buffers.lump_bytes);
        buffers.lump_out = allocate(buffers.lump_bytes);
        if (!buffers.lump_in || !buffers.lump_out) goto no_memory;
        bench_data_fill(data, LUMP_DATA, 0, buffers.lump_in, buffers.lump_bytes / element_bytes);
        memset(buffers.lump_out, BENCH_POISON, buffers.lump_bytes);
    }
    for (uint32_t pair = 0; pair < BENCH_ROTATION_MAX; pair++) {
        buffers.in[pair] = allocate(buffers.bytes[pair]);
        buffers.out[pair] = allocate(buffers.bytes[pair]);
        if (!buffers.in[pair] || !buffers.out[pair]) goto no_memory;
        bench_data_fill(data, pair, 0, buffers.in[pair], buffers.bytes[pair] / element_bytes);
        memset(buffers.out[pair], BENCH_POISON, buffers.bytes[pair]);
    }
    *buffers_p = buffers;
    return TPCOMM_OK;
no_memory:
    bench_buffers_free(&buffers);
    return tpc_error(TPCOMM_ERR_NO_MEMORY,
                     "no memory for the buffers: messages of up to %u tokens take %" PRIu64 " bytes on every rank",
                     greatest, total);
}

void bench_buffers_free(bench_buffers_t *buffers) {
    for (uint32_t pair = 0; pair < BENCH_ROTATION_MAX; pair++) {
        free(buffers->in[pair]);
        free(buffers->out[pair]);
    }
    free(buffers->lump_in);
    free(buffers->lump_out);
    memset(buffers, 0, sizeof *buffers);
}
