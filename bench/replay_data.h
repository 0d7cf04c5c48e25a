/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Inputs of a replay and the result that every rank must get, worked out here from the written contract (fp32 sum in
 * rank order, rounded once), not by the library. Element i of a buffer depends on i alone, so one table serves every
 * message size, and repeats after a prime number of elements, so it never lines up with a page, a vector or a row.
 *
 * Even buffers hold x[rank][i] = (7 i + 3 rank) mod 13, whose sums are exact in every type: a missing rank, one counted
 * twice or a wrong index shows. Odd buffers hold seeded random values of mixed sign and size, whose sum depends on the
 * order of the additions, and among them raw bit patterns: infinities, NaNs, subnormals.
 */
#ifndef BENCH_REPLAY_DATA_H
#define BENCH_REPLAY_DATA_H

#include <stddef.h>
#include <stdint.h>

#include "tpcomm.h"

/** What an output holds before a call: bits that no sum of two or more ranks has. */
#define BENCH_POISON 0xFF

typedef struct bench_data bench_data_t;

/** Tables of one rank. dtype: f32, f16 or bf16. Fails: NO_MEMORY. */
tpcomm_status_t bench_data_new(tpcomm_dtype_t dtype, int32_t rank, int32_t ranks, uint64_t seed, bench_data_t **data_p);
void bench_data_free(bench_data_t *data);

/** Write this rank's input of a buffer. */
void bench_data_fill(const bench_data_t *data, uint32_t buffer, void *in, uint64_t count);

/** Compare every element of out with the sum of the ranks' inputs of a buffer; returns how many are wrong, first_p the
 * first of them. */
uint64_t bench_data_check(const bench_data_t *data, uint32_t buffer, const void *out, uint64_t count,
                          uint64_t *first_p);

/** The bits that element i of a buffer's result must have. */
uint64_t bench_data_expected(const bench_data_t *data, uint32_t buffer, uint64_t i);

/** Sum of the ranks' values, rounded once: the reference itself, for one element's bits. */
uint32_t bench_data_sum(tpcomm_dtype_t dtype, const uint32_t *bits, int32_t ranks);

/** The bits of value in dtype, rounded to nearest even; and the value of bits. */
uint32_t bench_data_encode(tpcomm_dtype_t dtype, float value);
float bench_data_decode(tpcomm_dtype_t dtype, uint32_t bits);

#endif
