/* SPDX-License-Identifier: Apache-2.0 */
#include "device/cuda_copy.h"

#include <cuda_runtime_api.h>
#include <sched.h>
#include <string.h>

#include "base/error.h"
#include "device/cuda.h"
#include "device/cuda_driver.h"

/* A copy of this size ends within microseconds; only then is a sleep worth its while. */
#define SPINS 2000

tpcomm_status_t tpc_cuda_copier_open(size_t bytes, tpc_cuda_copier_t *copier_p) {
    cudaStream_t stream = NULL;
    void *staging = NULL;
    tpcomm_status_t status =
        tpc_cuda_error(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cannot make a stream");
    if (status != TPCOMM_OK) return status;
    status = tpc_cuda_error(cudaHostAlloc(&staging, bytes, cudaHostAllocPortable), "cannot allocate pinned memory");
    if (status != TPCOMM_OK) {
        (void)cudaStreamDestroy(stream);
        return status;
    }
    *copier_p = (tpc_cuda_copier_t){.stream = stream, .staging = staging, .bytes = bytes};
    return TPCOMM_OK;
}

void tpc_cuda_copier_close(tpc_cuda_copier_t *copier) {
    if (copier->stream == NULL) return;
    if (!copier->stuck) {
        (void)cudaStreamDestroy(copier->stream);
        (void)cudaFreeHost(copier->staging);
    }
    *copier = (tpc_cuda_copier_t){.stream = NULL};
}

/* Until the stream is idle. */
static tpcomm_status_t finish(tpc_cuda_copier_t *copier, cudaError_t begun, const char *what,
                              const tpc_deadline_t *deadline) {
    const tpc_cuda_driver_t *driver;
    tpcomm_status_t status = tpc_cuda_error(begun, what);
    if (status == TPCOMM_OK) status = tpc_cuda_driver(&driver);
    if (status != TPCOMM_OK) return status;
    for (int spin = 0;; spin++) {
        CUresult result = driver->StreamQuery(copier->stream);
        if (result != CUDA_ERROR_NOT_READY) return tpc_cuda_driver_error(driver, result, what);
        if (spin < SPINS) {
            sched_yield();
            continue;
        }
        status = tpc_deadline_sleep(deadline, 1);
        if (status == TPCOMM_OK && tpc_deadline_left_ms(deadline) > 0) continue;
        copier->stuck = true;
        if (status == TPCOMM_ERR_INTERRUPTED) return status;
        return tpc_error(TPCOMM_ERR_TIMEOUT, "%s: it did not end within %llu ms", what,
                         (unsigned long long)tpc_deadline_elapsed_ms(deadline));
    }
}

tpcomm_status_t tpc_cuda_copy_in(tpc_cuda_copier_t *copier, void *device, const void *host, size_t bytes,
                                 const char *what, const tpc_deadline_t *deadline) {
    memcpy(copier->staging, host, bytes);
    return finish(copier, cudaMemcpyAsync(device, copier->staging, bytes, cudaMemcpyDefault, copier->stream), what,
                  deadline);
}

tpcomm_status_t tpc_cuda_copy_out(tpc_cuda_copier_t *copier, void *host, const void *device, size_t bytes,
                                  const char *what, const tpc_deadline_t *deadline) {
    tpcomm_status_t status = finish(
        copier, cudaMemcpyAsync(copier->staging, device, bytes, cudaMemcpyDefault, copier->stream), what, deadline);
    if (status == TPCOMM_OK) memcpy(host, copier->staging, bytes);
    return status;
}

tpcomm_status_t tpc_cuda_fill(tpc_cuda_copier_t *copier, void *device, unsigned char byte, size_t bytes,
                              const char *what, const tpc_deadline_t *deadline) {
    return finish(copier, cudaMemsetAsync(device, byte, bytes, copier->stream), what, deadline);
}
