/* SPDX-License-Identifier: Apache-2.0 */
#include "replay_buffers.h"

#include <inttypes.h>
#include <string.h>

#include "bench.h"
#include "device_data.h"

enum { LUMP_DATA = 1 };

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

/** The greatest message of at most `greatest` tokens that turns through more than `pair` pairs. */
static uint64_t pair_bytes(const bench_replay_t *replay, uint32_t pair, uint32_t greatest) {
    uint64_t limit = pair < 2 ? UINT64_MAX : BENCH_HOT_BYTES / (2 * (pair + UINT64_C(1)));
    uint64_t bytes = bench_replay_bytes(replay, greatest);
    return bytes < limit ? bytes : limit;
}

/** An input with test data, and a poisoned output. */
static tpcomm_status_t make_pair(bench_device_t *device, const bench_data_t *data, uint32_t buffer, uint64_t bytes,
                                 void **in_p, void **out_p) {
    tpcomm_status_t status = bench_device_alloc(device, bytes, in_p);
    if (status == TPCOMM_OK) status = bench_device_alloc(device, bytes, out_p);
    if (status == TPCOMM_OK)
        status =
            bench_device_put_data(device, data, BENCH_INPUT, buffer, *in_p, bytes / bench_data_element_bytes(data));
    return status == TPCOMM_OK ? bench_device_fill(device, *out_p, BENCH_POISON, bytes) : status;
}

/** What the calls on a pair's input read and write beside it. */
static tpcomm_status_t make_residual(bench_device_t *device, const bench_data_t *data, uint32_t pair,
                                     bench_buffers_t *buffers) {
    uint64_t bytes = buffers->bytes[pair];
    tpcomm_status_t status = bench_device_alloc(device, bytes, &buffers->residual[pair]);
    if (status == TPCOMM_OK) status = bench_device_alloc(device, bytes, &buffers->residual_from[pair]);
    if (status != TPCOMM_OK) return status;
    return bench_device_put_data(device, data, BENCH_RESIDUAL, pair, buffers->residual_from[pair],
                                 bytes / bench_data_element_bytes(data));
}

static tpcomm_status_t make_weight(bench_device_t *device, const bench_data_t *data, uint64_t hidden,
                                   bench_buffers_t *buffers) {
    tpcomm_status_t status = bench_device_alloc(device, hidden * bench_data_element_bytes(data), &buffers->weight);
    return status == TPCOMM_OK ? bench_device_put_data(device, data, BENCH_WEIGHT, 0, buffers->weight, hidden) : status;
}

tpcomm_status_t bench_buffers_new(const bench_replay_t *replay, bench_device_t *device, const bench_data_t *data,
                                  uint32_t greatest, bench_buffers_t *buffers_p) {
    bench_buffers_t buffers;
    uint64_t total = 0;
    tpcomm_status_t status = TPCOMM_OK;
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
        status = make_pair(device, data, LUMP_DATA, buffers.lump_bytes, &buffers.lump_in, &buffers.lump_out);
    }
    for (uint32_t pair = 0; pair < BENCH_ROTATION_MAX && status == TPCOMM_OK; pair++)
        status = make_pair(device, data, pair, buffers.bytes[pair], &buffers.in[pair], &buffers.out[pair]);
    for (uint32_t pair = 0; pair < BENCH_ROTATION_MAX && status == TPCOMM_OK && replay->fused; pair++)
        status = make_residual(device, data, pair, &buffers);
    if (status == TPCOMM_OK && replay->fused) status = make_weight(device, data, replay->model.hidden, &buffers);
    if (status == TPCOMM_OK) {
        *buffers_p = buffers;
        return TPCOMM_OK;
    }
    bench_buffers_free(device, &buffers);
    if (status != TPCOMM_ERR_NO_MEMORY) return status;
    return tpc_error(TPCOMM_ERR_NO_MEMORY,
                     "no memory for the buffers: messages of up to %u tokens take %" PRIu64 " bytes on every rank",
                     greatest, total);
}

void bench_buffers_free(bench_device_t *device, bench_buffers_t *buffers) {
    for (uint32_t pair = 0; pair < BENCH_ROTATION_MAX; pair++) {
        bench_device_free(device, buffers->in[pair]);
        bench_device_free(device, buffers->out[pair]);
        bench_device_free(device, buffers->residual[pair]);
        bench_device_free(device, buffers->residual_from[pair]);
    }
    bench_device_free(device, buffers->weight);
    bench_device_free(device, buffers->lump_in);
    bench_device_free(device, buffers->lump_out);
    memset(buffers, 0, sizeof *buffers);
}
