/* SPDX-License-Identifier: Apache-2.0 */
/** The kernels of one dtype, and their launchers; a .cu for each dtype includes this, so that they compile at once. */
#ifndef TPC_FUSED_INSTANCES_CUH
#define TPC_FUSED_INSTANCES_CUH

#include "custom_ar/launch.cuh"
#include "fused.cuh"
#include "instances.h"

template <typename T, int V> static auto fused_of_size(int size) {
    if (size > 8) return fused_oneshot<T, 0, V>;
    return size == 2 ? fused_oneshot<T, 2, V> : size <= 4 ? fused_oneshot<T, 4, V> : fused_oneshot<T, 8, V>;
}

template <typename T> static auto fused_kernel(int size, int vectors) {
    return vectors == 1   ? fused_of_size<T, 1>(size)
           : vectors == 2 ? fused_of_size<T, 2>(size)
                          : fused_of_size<T, 4>(size);
}

template <typename T> static auto norm_kernel(int vectors) {
    return vectors == 1 ? norm_rows<T, 1> : vectors == 2 ? norm_rows<T, 2> : norm_rows<T, 4>;
}

template <typename T>
static int launch_fused(const tpc_ar_params_t *params, const tpc_norm_params_t *norm, tpc_norm_shape_t shape,
                        int32_t blocks, tpcomm_stream_t stream) {
    tpc_ar_params_t p = *params;
    tpc_ar_shape_t launched = {blocks, 32 * shape.warps, shape.vectors};
    p.work_threads = launched.threads;
    return launch(fused_kernel<T>(p.size, shape.vectors), launched, stream, p, *norm);
}

template <typename T>
static int launch_norm(const tpc_norm_params_t *norm, tpc_norm_shape_t shape, int32_t blocks, tpcomm_stream_t stream) {
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3((unsigned)blocks);
    config.blockDim = dim3(32u * (unsigned)shape.warps);
    config.stream = (cudaStream_t)stream;
    return (int)cudaLaunchKernelEx(&config, norm_kernel<T>(shape.vectors), *norm);
}

#define TPC_FUSED_INSTANCES(name, T)                                                                                   \
    extern "C" const tpc_fused_instances_t tpc_fused_##name = {                                                        \
        [](int32_t size, int32_t vectors) { return (const void *)fused_kernel<T>(size, vectors); },                    \
        [](int32_t vectors) { return (const void *)norm_kernel<T>(vectors); }, launch_fused<T>, launch_norm<T>};

#endif
