/* SPDX-License-Identifier: Apache-2.0 */
/** The kernels of one form and dtype, and their launcher; a .cu for each includes this, so that they compile at once.
 */
#ifndef TPC_FUSED_INSTANCES_CUH
#define TPC_FUSED_INSTANCES_CUH

#include "custom_ar/launch.cuh"
#include "instances.h"

typedef void (*fused_kernel_t)(const tpc_ar_params_t, const tpc_norm_params_t);

/** Form: has the kernels, get<T, N, V, EARLY>(), and whether there are some OF_TWO ranks. */
template <typename Form, typename T, int V, bool EARLY> static fused_kernel_t fast_kernel(int size) {
    if constexpr (Form::OF_TWO)
        if (size == 2) return Form::template get<T, 2, V, EARLY>();
    if constexpr (sizeof(T) == 2)
        if (size <= 4) return Form::template get<T, 4, V, EARLY>();
    return Form::template get<T, 8, V, EARLY>();
}

/** NULL: there is none (tpc_fused_kind). */
template <typename Form, typename T> static fused_kernel_t fused_kernel(tpc_fused_kind_t kind, int size, int vectors) {
    if (kind == TPC_FUSED_GENERAL)
        return vectors <= 2 ? Form::template get<T, 0, 2, false>() : Form::template get<T, 0, 4, false>();
    if (vectors > 2) return nullptr;
    if constexpr (sizeof(T) == 2)
        if (kind == TPC_FUSED_EARLY)
            return vectors == 1 ? fast_kernel<Form, T, 1, true>(size) : fast_kernel<Form, T, 2, true>(size);
    if (kind == TPC_FUSED_EARLY) return nullptr;
    return vectors == 1 ? fast_kernel<Form, T, 1, false>(size) : fast_kernel<Form, T, 2, false>(size);
}

template <typename Form, typename T>
static int launch_fused(const tpc_ar_params_t *params, const tpc_norm_params_t *norm, tpc_norm_shape_t shape,
                        int32_t blocks, tpcomm_stream_t stream) {
    tpc_ar_params_t p = *params;
    tpc_ar_shape_t launched = {blocks, 32 * shape.warps, shape.vectors};
    tpc_fused_kind_t kind = tpc_fused_kind(&p, norm, shape.vectors);
    p.work_threads = launched.threads;
    return launch_either(fused_kernel<Form, T>(kind, p.size, shape.vectors), launched, kind == TPC_FUSED_EARLY, stream,
                         p, *norm);
}

#define TPC_FUSED_INSTANCES(form, name, T)                                                                             \
    extern "C" const tpc_fused_instances_t tpc_fused_##form##_##name = {                                               \
        [](tpc_fused_kind_t kind, int32_t size, int32_t vectors) {                                                     \
            return (const void *)fused_kernel<form##_t, T>(kind, size, vectors);                                       \
        },                                                                                                             \
        launch_fused<form##_t, T>};

#endif
