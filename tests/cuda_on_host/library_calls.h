/* SPDX-License-Identifier: Apache-2.0 */
/** Included before the library's sources in the tests on this runtime: whatever they make has their place written on
 * it. */
#ifndef TPC_CUDA_ON_HOST_LIBRARY_CALLS_H
#define TPC_CUDA_ON_HOST_LIBRARY_CALLS_H

#include <cuda_runtime_api.h>

void host_cuda_called_from(const char *file, int line);

#define FROM_HERE                                         host_cuda_called_from(__FILE__, __LINE__)
#define cudaMalloc(pointer_p, bytes)                      (FROM_HERE, cudaMalloc(pointer_p, bytes))
#define cudaHostAlloc(pointer_p, bytes, flags)            (FROM_HERE, cudaHostAlloc(pointer_p, bytes, flags))
#define cudaHostRegister(pointer, bytes, flags)           (FROM_HERE, cudaHostRegister(pointer, bytes, flags))
#define cudaIpcOpenMemHandle(pointer_p, handle, flags)    (FROM_HERE, cudaIpcOpenMemHandle(pointer_p, handle, flags))
#define cudaStreamCreateWithFlags(stream_p, flags)        (FROM_HERE, cudaStreamCreateWithFlags(stream_p, flags))
#define cudaEventCreateWithFlags(event_p, flags)          (FROM_HERE, cudaEventCreateWithFlags(event_p, flags))
#define cudaUserObjectCreate(object_p, arg, gone, n, how) (FROM_HERE, cudaUserObjectCreate(object_p, arg, gone, n, how))

#endif
