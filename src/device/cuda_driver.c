/* SPDX-License-Identifier: Apache-2.0 */
#include "device/cuda_driver.h"

#include <cuda_runtime_api.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "device/cuda.h"

/* All of the list are of CUDA 11.2 or older; this is the oldest driver that the versioned lookup is asked for. */
#define OLDEST_VERSION 11020u

static pthread_once_t once = PTHREAD_ONCE_INIT;
static tpc_cuda_driver_t table;
static char missing[192]; /* "": all that is required is there */

static bool find(const char *name, void *function_p) {
    void *function = NULL;
    enum cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
#if CUDART_VERSION >= 12050
    cudaError_t error = cudaGetDriverEntryPointByVersion(name, &function, OLDEST_VERSION, cudaEnableDefault, &found);
#elif CUDART_VERSION >= 12000
    cudaError_t error = cudaGetDriverEntryPoint(name, &function, cudaEnableDefault, &found);
#else
    cudaError_t error = cudaGetDriverEntryPoint(name, &function, cudaEnableDefault);
    found = cudaDriverEntryPointSuccess;
#endif
    if (error != cudaSuccess || found != cudaDriverEntryPointSuccess || function == NULL) return false;
    memcpy(function_p, &function, sizeof function);
    return true;
}

static void load(void) {
#define FIND(name, parameters, required)                                                                               \
    if (!find("cu" #name, &table.name)) {                                                                              \
        if (required && missing[0] == '\0') snprintf(missing, sizeof missing, "the CUDA driver has no cu" #name);      \
        if (!required && table.no_virtual_memory == NULL) table.no_virtual_memory = "cu" #name;                        \
    }
    TPC_CUDA_DRIVER_LIST(FIND)
#undef FIND
}

tpcomm_status_t tpc_cuda_driver(const tpc_cuda_driver_t **driver_p) {
    pthread_once(&once, load);
    if (missing[0] != '\0') return tpc_error(TPCOMM_ERR_UNSUPPORTED, "%s", missing);
    *driver_p = &table;
    return TPCOMM_OK;
}

tpcomm_status_t tpc_cuda_driver_error_number(const tpc_cuda_driver_t *driver, int error, const char *what) {
    CUresult result = (CUresult)error;
    if (result == CUDA_SUCCESS) return TPCOMM_OK;
    const char *name = NULL, *text = NULL;
    (void)driver->GetErrorName(result, &name);
    (void)driver->GetErrorString(result, &text);
    return tpc_error(result == CUDA_ERROR_OUT_OF_MEMORY ? TPCOMM_ERR_NO_MEMORY : TPCOMM_ERR_DEVICE, "%s: %s (%s)", what,
                     name ? name : "unknown error", text ? text : "no text");
}
