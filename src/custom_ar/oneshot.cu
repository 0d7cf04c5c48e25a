/* SPDX-License-Identifier: Apache-2.0 */
/* The one-shot kernels' instances. */
#include "oneshot.cuh"

#include "launch.cuh"

typedef void (*kernel_t)(const tpc_ar_params_t);

template <typename T, bool EARLY> static kernel_t choose_fast(int size) {
    return size == 2   ? oneshot_fast<T, 2, 1, EARLY>
           : size <= 4 ? oneshot_fast<T, 4, 1, EARLY>
                       : oneshot_fast<T, 8, 1, EARLY>;
}

template <typename T> static kernel_t choose(tpc_ar_kind_t kind, int size) {
    switch (kind) {
    case TPC_AR_ONESHOT_GENERAL:
        return oneshot_general<T>;
    case TPC_AR_ONESHOT_2:
        return oneshot_fast<T, 2, 2, false>;
    case TPC_AR_ONESHOT_EARLY:
        return choose_fast<T, true>(size);
    default:
        return choose_fast<T, false>(size);
    }
}

extern "C" int tpc_ar_launch_oneshot(const tpc_ar_params_t *params, tpc_ar_kind_t kind, tpc_ar_shape_t shape,
                                     tpcomm_stream_t stream) {
    const tpc_ar_params_t &p = *params;
    kernel_t kernel = p.dtype == TPCOMM_F32   ? choose<float>(kind, p.size)
                      : p.dtype == TPCOMM_F16 ? choose<__half>(kind, p.size)
                                              : choose<__nv_bfloat16>(kind, p.size);
    return launch_either(kernel, shape, kind == TPC_AR_ONESHOT_EARLY, stream, p);
}

extern "C" size_t tpc_ar_oneshot_kernels(tpc_ar_kind_t kind, int32_t size, const void **kernels) {
    kernels[0] = (const void *)choose<float>(kind, size);
    kernels[1] = (const void *)choose<__half>(kind, size);
    kernels[2] = (const void *)choose<__nv_bfloat16>(kind, size);
    return 3;
}
