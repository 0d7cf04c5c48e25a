/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Residual, RMSNorm and quantisation of one row on the cpu device: the arithmetic of docs/numerics.md, bit for bit the
 * same on every instruction set. A kernel computes as if the float environment were the default one, as those of
 * reduce.h; its caller brackets a run of rows by tpc_float_env_enter and tpc_float_env_leave.
 */
#ifndef TPC_CPU_BACKEND_NORM_H
#define TPC_CPU_BACKEND_NORM_H

#include <stddef.h>

#include "cpu_backend/reduce.h"

/** One row; pointers at its first element, of any alignment but for scale. */
typedef struct {
    const void *sum; /**< may equal out, and nothing else that is written */
    const void *weight;
    void *residual, *out, *quantized; /**< NULL: none */
    float *scale;
    size_t hidden;
    tpcomm_quant_t quant;
    float eps, weight_bias;
} tpc_norm_row_t;

typedef void (*tpc_norm_fn_t)(const tpc_norm_row_t *row);

/** The kernel for this machine; dtype is f32, f16 or bf16, weight_dtype that or f32. */
tpc_norm_fn_t tpc_norm_find(tpcomm_dtype_t dtype, tpcomm_dtype_t weight_dtype);

/** Row `index` of norm's matrices, whose sum stands at sum. */
tpc_norm_row_t tpc_norm_row(const tpcomm_rms_norm_t *norm, uint64_t index, const void *sum);

/** Where row `index` of a matrix begins. */
static inline void *tpc_norm_at(const void *matrix, uint64_t index, uint64_t stride, size_t element) {
    return (unsigned char *)(uintptr_t)matrix + (size_t)(index * stride) * element;
}

#endif
