/* SPDX-License-Identifier: Apache-2.0 */
/* The two-shot and reduce_scatter kernels' instances. */
#include "twoshot.cuh"

#include "launch.cuh"

typedef void (*kernel_t)(const tpc_ar_params_t, bool);

template <typename T> static kernel_t choose(tpc_ar_kind_t kind, int size) {
    if (kind == TPC_AR_TWOSHOT_GENERAL) return twoshot_general<T>;
    if (kind == TPC_AR_TWOSHOT_EARLY) return size <= 4 ? twoshot_fast<T, 4, true> : twoshot_fast<T, 8, true>;
    return size <= 4 ? twoshot_fast<T, 4, false> : twoshot_fast<T, 8, false>;
}

extern "C" int tpc_ar_launch_twoshot(const tpc_ar_params_t *params, tpc_ar_kind_t kind, tpc_ar_shape_t shape,
                                     bool gathers, tpcomm_stream_t stream) {
    const tpc_ar_params_t &p = *params;
    kernel_t kernel = p.dtype == TPCOMM_F32   ? choose<float>(kind, p.size)
                      : p.dtype == TPCOMM_F16 ? choose<__half>(kind, p.size)
                                              : choose<__nv_bfloat16>(kind, p.size);
    return launch_either(kernel, shape, kind == TPC_AR_TWOSHOT_EARLY, stream, p, gathers);
}

extern "C" size_t tpc_ar_twoshot_kernels(tpc_ar_kind_t kind, int32_t size, const void **kernels) {
    kernels[0] = (const void *)choose<float>(kind, size);
    kernels[1] = (const void *)choose<__half>(kind, size);
    kernels[2] = (const void *)choose<__nv_bfloat16>(kind, size);
    return 3;
}
