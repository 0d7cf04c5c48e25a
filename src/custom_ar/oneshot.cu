/* SPDX-License-Identifier: Apache-2.0 */
/* The one-shot kernels' instances and their launchers. */
#include "launch.h"
#include "oneshot.cuh"

template <typename... Parameters, typename... Arguments>
static int launch(void (*kernel)(Parameters...), tpc_ar_shape_t shape, tpcomm_stream_t stream, Arguments... arguments) {
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3((unsigned)shape.blocks);
    config.blockDim = dim3((unsigned)shape.threads + TPC_AR_WARP);
    config.stream = (cudaStream_t)stream;
    return (int)cudaLaunchKernelEx(&config, kernel, arguments...);
}

template <typename T> static void (*sentinel_kernel(int size))(const tpc_ar_params_t) {
    switch (size) {
    case 2:
        return oneshot_sentinel<T, 2>;
    case 4:
        return oneshot_sentinel<T, 4>;
    case 8:
        return oneshot_sentinel<T, 8>;
    default:
        return oneshot_sentinel<T, 0>;
    }
}

static bool uses_sentinels(tpcomm_coll_t coll, tpcomm_dtype_t dtype) {
    return coll == TPCOMM_ALL_REDUCE && (dtype == TPCOMM_F32 || dtype == TPCOMM_F16 || dtype == TPCOMM_BF16);
}

extern "C" size_t tpc_ar_slot_payload(tpcomm_coll_t coll, tpcomm_dtype_t dtype, size_t slot_bytes) {
    return uses_sentinels(coll, dtype) ? slot_bytes : slot_bytes / 2;
}

static uint32_t element_bytes(tpcomm_dtype_t dtype) {
    switch (dtype) {
    case TPCOMM_F16:
    case TPCOMM_BF16:
        return 2;
    case TPCOMM_F32:
    case TPCOMM_I32:
    case TPCOMM_U32:
        return 4;
    case TPCOMM_F64:
    case TPCOMM_I64:
    case TPCOMM_U64:
        return 8;
    default:
        return 1;
    }
}

extern "C" int tpc_ar_launch_oneshot(tpcomm_coll_t coll, const tpc_ar_params_t *params, tpc_ar_shape_t shape,
                                     tpcomm_stream_t stream) {
    tpc_ar_params_t p = *params;
    p.work_threads = shape.threads;
    if (uses_sentinels(coll, p.dtype)) {
        if (p.dtype == TPCOMM_F32) return launch(sentinel_kernel<float>(p.size), shape, stream, p);
        if (p.dtype == TPCOMM_F16) return launch(sentinel_kernel<__half>(p.size), shape, stream, p);
        return launch(sentinel_kernel<__nv_bfloat16>(p.size), shape, stream, p);
    }
    uint32_t element = element_bytes(p.dtype);
    switch (coll) {
    case TPCOMM_BROADCAST:
        return launch(oneshot_raw<TPCOMM_BROADCAST>, shape, stream, p, element);
    case TPCOMM_ALL_GATHER:
        return launch(oneshot_raw<TPCOMM_ALL_GATHER>, shape, stream, p, element);
    default:
        return launch(oneshot_raw<TPCOMM_ALL_REDUCE>, shape, stream, p, element); /* a barrier moves nothing */
    }
}

#ifdef __CUDACC__
template <typename Visit> static cudaError_t visit_kernels(Visit visit) {
    const void *kernels[] = {
        (const void *)oneshot_sentinel<float, 2>,         (const void *)oneshot_sentinel<float, 4>,
        (const void *)oneshot_sentinel<float, 8>,         (const void *)oneshot_sentinel<float, 0>,
        (const void *)oneshot_sentinel<__half, 2>,        (const void *)oneshot_sentinel<__half, 4>,
        (const void *)oneshot_sentinel<__half, 8>,        (const void *)oneshot_sentinel<__half, 0>,
        (const void *)oneshot_sentinel<__nv_bfloat16, 2>, (const void *)oneshot_sentinel<__nv_bfloat16, 4>,
        (const void *)oneshot_sentinel<__nv_bfloat16, 8>, (const void *)oneshot_sentinel<__nv_bfloat16, 0>,
        (const void *)oneshot_raw<TPCOMM_ALL_REDUCE>,     (const void *)oneshot_raw<TPCOMM_BROADCAST>,
        (const void *)oneshot_raw<TPCOMM_ALL_GATHER>};
    for (const void *kernel : kernels) {
        cudaError_t error = visit(kernel);
        if (error != cudaSuccess) return error;
    }
    return cudaSuccess;
}

extern "C" int tpc_ar_load_kernels(void) {
    return (int)visit_kernels([](const void *kernel) {
        cudaFuncAttributes attributes;
        return cudaFuncGetAttributes(&attributes, kernel);
    });
}

extern "C" int tpc_ar_blocks_per_sm(int32_t threads, int32_t *blocks_p) {
    int fewest = 1 << 20;
    cudaError_t error = visit_kernels([&](const void *kernel) {
        int blocks = 0;
        cudaError_t queried = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, threads + TPC_AR_WARP, 0);
        if (queried == cudaSuccess && blocks < fewest) fewest = blocks;
        return queried;
    });
    *blocks_p = fewest;
    return (int)error;
}
#endif
