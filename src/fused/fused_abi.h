/* SPDX-License-Identifier: Apache-2.0 */
/** What host code and the kernels of this folder both know. Plain C; no CUDA header needed. */
#ifndef TPC_FUSED_ABI_H
#define TPC_FUSED_ABI_H

#include <stdbool.h>

#include "custom_ar/ar_abi.h"
#include "tpcomm.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Threads of a block that work on a row, at most; the warp for call headers is added to them. */
#define TPC_NORM_MAX_THREADS 512

/** The same of the norm alone, which has no such warp. */
#define TPC_NORM_ALONE_MAX_THREADS 1024

/** Rows to normalise, of one launch; by value. Strides in bytes. */
typedef struct {
    const void *in, *weight;
    void *residual, *sum, *out, *quantized; /**< NULL: none */
    float *scale;                           /**< NULL: none */
    uint64_t in_stride, residual_stride, sum_stride, out_stride, quantized_stride;
    uint64_t tokens;   /**< rows of in */
    uint64_t first;    /**< the launch's first row, as a rank counts its own */
    uint64_t rows;     /**< of the launch; some may be past tokens in a reduce_scatter */
    uint64_t per_rank; /**< reduce_scatter: rows of a rank, of which the last ranks may lack some; 0: all_reduce */
    int32_t hidden, dtype;
    int32_t weight_is_f32, quant;
    float eps, weight_bias;
} tpc_norm_params_t;

/** Whether all rows and the weight lie on multiples of 16 bytes, and rows of codes on multiples of 8. */
static inline bool tpc_norm_is_aligned(const tpc_norm_params_t *n) {
    uint64_t places = (uintptr_t)n->in | n->in_stride | (uintptr_t)n->weight;
    if (n->residual != NULL) places |= (uintptr_t)n->residual | n->residual_stride;
    if (n->sum != NULL) places |= (uintptr_t)n->sum | n->sum_stride;
    if (n->out != NULL) places |= (uintptr_t)n->out | n->out_stride;
    uint64_t codes = n->quantized != NULL ? (uintptr_t)n->quantized | n->quantized_stride : 0;
    return places % 16 == 0 && codes % 8 == 0;
}

/** A kernel's shape: a block a row, warps * 32 threads, each with vectors * 8 elements of it. */
typedef struct {
    int32_t warps, vectors; /**< vectors: 1, 2 or 4; warps * vectors groups of 256 elements cover a row */
} tpc_norm_shape_t;

/** The narrowest shape for rows of hidden elements in which a thread has `vectors` vectors, or more where it must. */
static inline tpc_norm_shape_t tpc_norm_shape(int32_t hidden, int32_t vectors) {
    int32_t groups = (hidden + 255) / 256, most = TPC_NORM_MAX_THREADS / 32;
    while (vectors < 4 && (groups + vectors - 1) / vectors > most) vectors *= 2;
    tpc_norm_shape_t shape = {(groups + vectors - 1) / vectors, vectors};
    return shape;
}

#ifdef __cplusplus
}
#endif
#endif
