/* SPDX-License-Identifier: Apache-2.0 */
/**
 * What a reduction must give, worked out from the written contract (docs/numerics.md), not by the library: elements as
 * bits, in the low end of 64.
 */
#ifndef BENCH_REFERENCE_H
#define BENCH_REFERENCE_H

#include <stddef.h>
#include <stdint.h>

#include "tpcomm.h"

/** Greatest row of bench_norm_row. */
#define BENCH_HIDDEN_MAX 16384

/** The reduction of the ranks' values, rounded once. */
uint64_t bench_reduce(tpcomm_dtype_t dtype, tpcomm_op_t op, const uint64_t *bits, int32_t ranks);

/**
 * Residual and RMSNorm of one row: *residual becomes round(sum + residual), out the norm of that. All as bits of dtype
 * (f32, f16, bf16); weight of the same dtype.
 */
void bench_norm_row(tpcomm_dtype_t dtype, size_t hidden, float eps, const uint64_t *sum, const uint64_t *weight,
                    uint64_t *residual, uint64_t *out);

/** The bits of value in f32, f16 or bf16, rounded to nearest even; and the value of bits. */
uint32_t bench_encode(tpcomm_dtype_t dtype, float value);
float bench_decode(tpcomm_dtype_t dtype, uint32_t bits);

/** The bits of a small whole number in any dtype but the 8-bit floats, where it stays as it is. */
uint64_t bench_whole(tpcomm_dtype_t dtype, uint32_t value);

#endif
