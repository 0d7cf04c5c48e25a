/* SPDX-License-Identifier: Apache-2.0 */
/** What the launchers share. */
#ifndef TPC_CUSTOM_AR_LAUNCH_CUH
#define TPC_CUSTOM_AR_LAUNCH_CUH

#include "launch.h"
#include "wait.cuh"

/** dependent: the kernel may begin before its predecessor has ended, and awaits it itself. */
template <typename... Parameters, typename... Arguments>
static int launch_either(void (*kernel)(Parameters...), tpc_ar_shape_t shape, bool dependent, tpcomm_stream_t stream,
                         const Arguments &...arguments) {
    cudaLaunchConfig_t config = {};
    cudaLaunchAttribute attribute = {};
    config.gridDim = dim3((unsigned)shape.blocks);
    config.blockDim = dim3((unsigned)shape.threads + TPC_AR_HEADER_THREADS);
    config.stream = (cudaStream_t)stream;
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    if (dependent) {
        config.attrs = &attribute;
        config.numAttrs = 1;
    }
    return (int)cudaLaunchKernelEx(&config, kernel, arguments...);
}

template <typename... Parameters, typename... Arguments>
static int launch(void (*kernel)(Parameters...), tpc_ar_shape_t shape, tpcomm_stream_t stream,
                  const Arguments &...arguments) {
    return launch_either(kernel, shape, false, stream, arguments...);
}

#endif
