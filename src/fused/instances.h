/* SPDX-License-Identifier: Apache-2.0 */
/** The kernels of one dtype, as the others of this folder see them. */
#ifndef TPC_FUSED_INSTANCES_H
#define TPC_FUSED_INSTANCES_H

#include "fused_abi.h"

#ifdef __cplusplus
extern "C" {
#endif

/** The launchers return a cudaError_t as int; the others a kernel, for the CUDA runtime's questions. */
typedef struct {
    const void *(*fused_kernel)(int32_t size, int32_t vectors);
    const void *(*norm_kernel)(int32_t vectors);
    int (*launch_fused)(const tpc_ar_params_t *params, const tpc_norm_params_t *norm, tpc_norm_shape_t shape,
                        int32_t blocks, tpcomm_stream_t stream);
    int (*launch_norm)(const tpc_norm_params_t *norm, tpc_norm_shape_t shape, int32_t blocks, tpcomm_stream_t stream);
} tpc_fused_instances_t;

extern const tpc_fused_instances_t tpc_fused_f32, tpc_fused_f16, tpc_fused_bf16;

static inline const tpc_fused_instances_t *tpc_fused_instances(tpcomm_dtype_t dtype) {
    return dtype == TPCOMM_F32 ? &tpc_fused_f32 : dtype == TPCOMM_F16 ? &tpc_fused_f16 : &tpc_fused_bf16;
}

#ifdef __cplusplus
}
#endif
#endif
