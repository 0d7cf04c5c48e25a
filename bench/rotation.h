/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The order in which calls take turns in buffers. Input i holds test data i. Small messages turn through up to eight
 * pairs of input and output, as many as fit in BENCH_HOT_BYTES; great ones through two. Each time round an output meets
 * another input, so that a call which left its output as the one before had written it would show.
 */
#ifndef BENCH_ROTATION_H
#define BENCH_ROTATION_H

#include <stdint.h>

/** Most buffers that calls take turns in, each one input and one output; fewer where they would not fit in
 * BENCH_HOT_BYTES, which stay in a GPU's second-level cache as they do after a GEMM. */
#define BENCH_ROTATION_MAX 8
#define BENCH_HOT_BYTES    (UINT64_C(25) << 20)

/** How many pairs messages of so many bytes turn through. */
uint32_t bench_rotation_pairs(uint64_t bytes);
/**
 * The same where calls are to find their buffers in no cache. The cache is emptied before each batch, and in a batch of
 * so many calls each has a pair of its own; or as many pairs turn as hold cold_bytes, which is more than the cache
 * does. Two at least.
 */
uint32_t bench_rotation_cold_pairs(uint64_t bytes, uint64_t calls, uint64_t cold_bytes);
/** Input and output of a call, by its number. */
uint32_t bench_rotation_in(uint32_t pairs, uint64_t call);
uint32_t bench_rotation_out(uint32_t pairs, uint64_t call);
/** The call that is the last of `calls` to write an output; UINT64_MAX: none writes it. */
uint64_t bench_rotation_last(uint32_t pairs, uint64_t calls, uint32_t out);

#endif
