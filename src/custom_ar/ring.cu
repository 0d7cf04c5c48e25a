/* SPDX-License-Identifier: Apache-2.0 */
/* The ring kernels' instances. */
#include "ring.cuh"

#include "launch.cuh"

typedef void (*kernel_t)(const tpc_ar_params_t);

template <typename T> static kernel_t choose(tpc_ar_kind_t kind, int size) {
    if (kind == TPC_AR_RING_GENERAL) return ring_general<T>;
    return size == 2 ? ring_fast<T, 2> : size <= 4 ? ring_fast<T, 4> : ring_fast<T, 8>;
}

extern "C" int tpc_ar_launch_ring(const tpc_ar_params_t *params, tpc_ar_kind_t kind, tpc_ar_shape_t shape,
                                  tpcomm_stream_t stream) {
    const tpc_ar_params_t &p = *params;
    kernel_t kernel = p.dtype == TPCOMM_F32   ? choose<float>(kind, p.size)
                      : p.dtype == TPCOMM_F16 ? choose<__half>(kind, p.size)
                                              : choose<__nv_bfloat16>(kind, p.size);
    return launch(kernel, shape, stream, p);
}

extern "C" size_t tpc_ar_ring_kernels(tpc_ar_kind_t kind, int32_t size, const void **kernels) {
    kernels[0] = (const void *)choose<float>(kind, size);
    kernels[1] = (const void *)choose<__half>(kind, size);
    kernels[2] = (const void *)choose<__nv_bfloat16>(kind, size);
    return 3;
}
