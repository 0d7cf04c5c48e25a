/* SPDX-License-Identifier: Apache-2.0 */
/** A call's arguments as kernels take them. */
#ifndef TPC_FUSED_PARAMS_H
#define TPC_FUSED_PARAMS_H

#include "fused/fused_abi.h"

/** Everything but first, rows and per_rank. Of checked arguments, every default filled in. */
static inline tpc_norm_params_t tpc_norm_params(const tpcomm_rms_norm_t *norm) {
    uint64_t element = tpcomm_dtype_size(norm->dtype);
    tpc_norm_params_t params = {.in = norm->in,
                                .weight = norm->weight,
                                .residual = norm->residual,
                                .sum = norm->sum,
                                .out = norm->out,
                                .quantized = norm->quantized,
                                .scale = norm->scale,
                                .in_stride = norm->in_stride * element,
                                .residual_stride = norm->residual_stride * element,
                                .sum_stride = norm->sum_stride * element,
                                .out_stride = norm->out_stride * element,
                                .quantized_stride = norm->quantized_stride,
                                .tokens = norm->tokens,
                                .hidden = norm->hidden,
                                .dtype = norm->dtype,
                                .weight_is_f32 = norm->weight_dtype == TPCOMM_F32,
                                .quant = norm->quant,
                                .eps = norm->eps,
                                .weight_bias = norm->weight_bias};
    return params;
}

#endif
