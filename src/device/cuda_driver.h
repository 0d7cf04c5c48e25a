/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The functions of the CUDA driver that the runtime has no equal of: contexts and virtual memory. Found through the
 * runtime, so that nothing is linked to libcuda. They also leave the caller's cudaGetLastError as it is. Compiled only
 * with CUDA.
 */
#ifndef TPC_DEVICE_CUDA_DRIVER_H
#define TPC_DEVICE_CUDA_DRIVER_H

#include <cuda.h>

#include "device/cuda.h"
#include "tpcomm.h"

/* X(name without cu, its parameters, required) */
#define TPC_CUDA_DRIVER_LIST(X)                                                                                        \
    X(GetErrorName, (CUresult, const char **), true)                                                                   \
    X(GetErrorString, (CUresult, const char **), true)                                                                 \
    X(CtxGetCurrent, (CUcontext *), true)                                                                              \
    X(CtxGetDevice, (CUdevice *), true)                                                                                \
    X(CtxPushCurrent, (CUcontext), true)                                                                               \
    X(CtxPopCurrent, (CUcontext *), true)                                                                              \
    X(CtxEnablePeerAccess, (CUcontext, unsigned), true)                                                                \
    X(DeviceGet, (CUdevice *, int), true)                                                                              \
    X(DeviceGetAttribute, (int *, CUdevice_attribute, CUdevice), true)                                                 \
    X(DevicePrimaryCtxRetain, (CUcontext *, CUdevice), true)                                                           \
    X(DevicePrimaryCtxGetState, (CUdevice, unsigned *, int *), true)                                                   \
    X(EventQuery, (CUevent), true)                                                                                     \
    X(PointerGetAttributes, (unsigned, CUpointer_attribute *, void **, CUdeviceptr), true)                             \
    X(StreamGetCtx, (CUstream, CUcontext *), true)                                                                     \
    X(StreamQuery, (CUstream), true)                                                                                   \
    X(MemGetAllocationGranularity, (size_t *, const CUmemAllocationProp *, CUmemAllocationGranularity_flags), false)   \
    X(MemCreate, (CUmemGenericAllocationHandle *, size_t, const CUmemAllocationProp *, unsigned long long), false)     \
    X(MemRelease, (CUmemGenericAllocationHandle), false)                                                               \
    X(MemExportToShareableHandle,                                                                                      \
      (void *, CUmemGenericAllocationHandle, CUmemAllocationHandleType, unsigned long long), false)                    \
    X(MemImportFromShareableHandle, (CUmemGenericAllocationHandle *, void *, CUmemAllocationHandleType), false)        \
    X(MemAddressReserve, (CUdeviceptr *, size_t, size_t, CUdeviceptr, unsigned long long), false)                      \
    X(MemAddressFree, (CUdeviceptr, size_t), false)                                                                    \
    X(MemMap, (CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle, unsigned long long), false)                  \
    X(MemUnmap, (CUdeviceptr, size_t), false)                                                                          \
    X(MemSetAccess, (CUdeviceptr, size_t, const CUmemAccessDesc *, size_t), false)                                     \
    X(MemGetAccess, (unsigned long long *, const CUmemLocation *, CUdeviceptr), false)

typedef struct {
#define TPC_CUDA_DRIVER_FIELD(name, parameters, required) CUresult(*name) parameters;
    TPC_CUDA_DRIVER_LIST(TPC_CUDA_DRIVER_FIELD)
#undef TPC_CUDA_DRIVER_FIELD
    const char *no_virtual_memory; /**< NULL: all Mem* functions are there; else the first that is missing */
} tpc_cuda_driver_t;

/** The table, loaded by the first caller of this process. Fails: UNSUPPORTED, naming what is missing. */
tpcomm_status_t tpc_cuda_driver(const tpc_cuda_driver_t **driver_p);

/** Record the text of a driver function's error: "what: CUDA_ERROR_X (text)"; CUDA_SUCCESS gives OK. Status DEVICE, or
 * NO_MEMORY. */
tpcomm_status_t tpc_cuda_driver_error_number(const tpc_cuda_driver_t *driver, int result, const char *what);
#ifndef TPC_HOOKS
#define tpc_cuda_driver_error(driver, result, what) tpc_cuda_driver_error_number((driver), (int)(result), (what))
#else
#define tpc_cuda_driver_error(driver, result, what)                                                                    \
    tpc_cuda_driver_error_number((driver), tpc_cuda_fails() ? TPC_CUDA_UNKNOWN : (int)(result), (what))
#endif

#endif
