/* SPDX-License-Identifier: Apache-2.0 */
/** What the launchers share. */
#ifndef TPC_CUSTOM_AR_LAUNCH_CUH
#define TPC_CUSTOM_AR_LAUNCH_CUH

#include "launch.h"
#include "wait.cuh"

template <typename... Parameters, typename... Arguments>
static int launch(void (*kernel)(Parameters...), tpc_ar_shape_t shape, tpcomm_stream_t stream, const tpc_ar_params_t &p,
                  Arguments... arguments) {
    cudaLaunchConfig_t config = {};
    cudaLaunchAttribute early = {};
    config.gridDim = dim3((unsigned)shape.blocks);
    config.blockDim = dim3((unsigned)shape.threads + TPC_AR_HEADER_THREADS);
    config.stream = (cudaStream_t)stream;
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
    config.attrs = &early;
    config.numAttrs = p.early != 0 ? 1 : 0;
    return (int)cudaLaunchKernelEx(&config, kernel, p, arguments...);
}

#endif
