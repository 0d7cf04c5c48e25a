/* SPDX-License-Identifier: Apache-2.0 */
/* The norm alone: its kernels, and their launcher. */
#include "instances.h"
#include "norm.cuh"

typedef void (*norm_kernel_t)(const tpc_norm_params_t);

template <typename T, bool A> static norm_kernel_t kernel_of(int32_t vectors) {
    return vectors == 1 ? norm_rows<T, 1, A> : vectors == 2 ? norm_rows<T, 2, A> : norm_rows<T, 4, A>;
}

template <typename T> static norm_kernel_t kernel_of(bool aligned, int32_t vectors) {
    return aligned ? kernel_of<T, true>(vectors) : kernel_of<T, false>(vectors);
}

static norm_kernel_t kernel_of(tpcomm_dtype_t dtype, bool aligned, int32_t vectors) {
    if (dtype == TPCOMM_F32) return kernel_of<float>(aligned, vectors);
    return dtype == TPCOMM_F16 ? kernel_of<__half>(aligned, vectors) : kernel_of<__nv_bfloat16>(aligned, vectors);
}

extern "C" const void *tpc_norm_kernel(tpcomm_dtype_t dtype, bool aligned, int32_t vectors) {
    return (const void *)kernel_of(dtype, aligned, vectors);
}

extern "C" int tpc_norm_launch(const tpc_norm_params_t *norm, tpc_norm_shape_t shape, int32_t blocks,
                               tpcomm_stream_t stream) {
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3((unsigned)blocks);
    config.blockDim = dim3(32u * (unsigned)shape.warps);
    config.stream = (cudaStream_t)stream;
    return (int)cudaLaunchKernelEx(&config, kernel_of(norm->dtype, tpc_norm_is_aligned(norm), shape.vectors), *norm);
}
