/* SPDX-License-Identifier: Apache-2.0 */
/** The buffers that a replay's calls take turns in. */
#ifndef BENCH_REPLAY_BUFFERS_H
#define BENCH_REPLAY_BUFFERS_H

#include "data.h"
#include "replay.h"
#include "rotation.h"

/**
 * Input i holds test data i and is never written again. Small messages turn through up to eight pairs, as many as fit
 * in BENCH_HOT_BYTES; great ones through two. Each time round an output meets another input, so that a call which left
 * its output as the one before had written it would show.
 */
typedef struct {
    void *in[BENCH_ROTATION_MAX], *out[BENCH_ROTATION_MAX];
    uint64_t bytes[BENCH_ROTATION_MAX]; /**< greatest message that uses this pair; 0: none does */
    void *residual[BENCH_ROTATION_MAX],
        *residual_from[BENCH_ROTATION_MAX]; /**< --fused: of a pair's input; fresh ones */
    void *weight;
    void *lump_in, *lump_out; /**< --lump's; holds test data 1 */
    uint64_t lump_bytes;
} bench_buffers_t;

/** Buffers for messages of up to `greatest` tokens. Fails: NO_MEMORY. */
tpcomm_status_t bench_buffers_new(const bench_replay_t *replay, bench_device_t *device, const bench_data_t *data,
                                  uint32_t greatest, bench_buffers_t *buffers_p);
/** Nothing may use them any more. */
void bench_buffers_free(bench_device_t *device, bench_buffers_t *buffers);

#endif
