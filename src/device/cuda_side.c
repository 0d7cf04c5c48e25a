/* SPDX-License-Identifier: Apache-2.0 */
#include "device/cuda_side.h"

#include <cuda_runtime_api.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "device/cuda_copy.h"
#include "device/cuda_driver.h"

typedef CUresult (*write_value_t)(CUstream, CUdeviceptr, uint32_t, unsigned);

struct tpc_cuda_side {
    tpc_cuda_copier_t copier;
    void *buffer;
    _Atomic uint32_t *words; /* pinned, 2 of them */
    CUdeviceptr device_words;
    write_value_t write_value;
};

/* The form that needs no module parameter came with 11.7. */
static write_value_t find_write_value(void) {
    void *function = NULL;
    enum cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
#if CUDART_VERSION >= 12050
    cudaError_t error =
        cudaGetDriverEntryPointByVersion("cuStreamWriteValue32", &function, 12000, cudaEnableDefault, &found);
#else
    cudaError_t error = cudaGetDriverEntryPoint("cuStreamWriteValue32", &function, cudaEnableDefault, &found);
#endif
    write_value_t write_value = NULL;
    if (error == cudaSuccess && found == cudaDriverEntryPointSuccess)
        memcpy(&write_value, &function, sizeof write_value);
    return write_value;
}

tpcomm_status_t tpc_cuda_side_new(size_t bytes, tpc_cuda_side_t **side_p) {
    void *words = NULL, *device_words = NULL;
    tpc_cuda_side_t *side = calloc(1, sizeof *side);
    if (side == NULL) return tpc_error(TPCOMM_ERR_NO_MEMORY, "out of memory");
    tpcomm_status_t status = tpc_cuda_copier_open(bytes, &side->copier);
    if (status == TPCOMM_OK) status = tpc_cuda_error(cudaMalloc(&side->buffer, bytes), "cannot allocate a buffer");
    if (status == TPCOMM_OK)
        status = tpc_cuda_error(cudaHostAlloc(&words, 2 * sizeof *side->words, cudaHostAllocMapped),
                                "cannot allocate pinned memory");
    if (status == TPCOMM_OK) {
        side->words = words;
        atomic_init(&side->words[0], 0);
        atomic_init(&side->words[1], 0);
        status = tpc_cuda_error(cudaHostGetDevicePointer(&device_words, words, 0), "pinned memory has no address");
    }
    side->device_words = (CUdeviceptr)(uintptr_t)device_words;
    side->write_value = find_write_value();
    if (status != TPCOMM_OK) {
        tpc_cuda_side_free(side);
        return status;
    }
    *side_p = side;
    return TPCOMM_OK;
}

void tpc_cuda_side_free(tpc_cuda_side_t *side) {
    if (side == NULL) return;
    bool stuck = side->copier.stuck;
    tpc_cuda_copier_close(&side->copier);
    if (!stuck) {
        if (side->buffer != NULL) (void)cudaFree(side->buffer);
        if (side->words != NULL) (void)cudaFreeHost((void *)side->words);
    }
    free(side);
}

void *tpc_cuda_side_buffer(const tpc_cuda_side_t *side) {
    return side->buffer;
}

tpcomm_stream_t tpc_cuda_side_stream(const tpc_cuda_side_t *side) {
    return side->copier.stream;
}

tpcomm_status_t tpc_cuda_side_put(tpc_cuda_side_t *side, const void *from, size_t bytes,
                                  const tpc_deadline_t *deadline) {
    return tpc_cuda_copy_in(&side->copier, side->buffer, from, bytes, "copy to the device", deadline);
}

tpcomm_status_t tpc_cuda_side_get(tpc_cuda_side_t *side, void *to, size_t bytes, const tpc_deadline_t *deadline) {
    return tpc_cuda_copy_out(&side->copier, to, side->buffer, bytes, "copy from the device", deadline);
}

tpcomm_status_t tpc_cuda_side_mark(tpc_cuda_side_t *side, tpcomm_stream_t stream, int word, uint32_t value) {
    const tpc_cuda_driver_t *driver;
    if (side->write_value == NULL) return tpc_error(TPCOMM_ERR_UNSUPPORTED, "the driver has no cuStreamWriteValue32");
    tpcomm_status_t status = tpc_cuda_driver(&driver);
    if (status != TPCOMM_OK) return status;
    CUresult result = side->write_value(stream, side->device_words + (CUdeviceptr)word * sizeof *side->words, value, 0);
    return tpc_cuda_driver_error(driver, result, "cannot have a stream write a word");
}

uint32_t tpc_cuda_side_word(const tpc_cuda_side_t *side, int word) {
    return atomic_load_explicit(&side->words[word], memory_order_acquire);
}

void tpc_cuda_relax_thread(void) {
    enum cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    (void)cudaThreadExchangeStreamCaptureMode(&mode);
}
