/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Where a rank's buffers are: host memory for the cpu device, a GPU's for cuda. The same calls for both, so that the
 * rest of the bench need not ask. On a GPU all but get and sync are enqueued on the rank's stream.
 */
#ifndef BENCH_DEVICE_H
#define BENCH_DEVICE_H

#include "gpu.h"

/** Buffers start at multiples of this. */
#define BENCH_ALIGNMENT 4096u

typedef struct {
    bench_gpu_t *gpu; /**< NULL: the cpu device */
    void *staging;    /**< on a GPU: pinned host memory through which data goes in and out */
} bench_device_t;

/** Bytes of the staging memory: what one put or get moves at most. */
#define BENCH_STAGING_BYTES (UINT64_C(4) << 20)

/** ordinal -1: the cpu device. Fails: as bench_gpu_open. */
tpcomm_status_t bench_device_open(int32_t ordinal, bench_device_t *device_p);
/** Nothing of the device may be running any more. */
void bench_device_close(bench_device_t *device);

/** NULL on the cpu device. */
tpcomm_stream_t bench_device_stream(const bench_device_t *device);

tpcomm_status_t bench_device_alloc(bench_device_t *device, uint64_t bytes, void **memory_p);
void bench_device_free(bench_device_t *device, void *memory);

/** Every byte of memory becomes value. */
tpcomm_status_t bench_device_fill(bench_device_t *device, void *memory, uint8_t value, uint64_t bytes);
tpcomm_status_t bench_device_copy(bench_device_t *device, void *to, const void *from, uint64_t bytes);
/** What stands before and behind a call: copy; and 0xFF into spoil, which may be NULL. On a GPU by one kernel, which
 * bench_gpu_load_kernels must have loaded. */
tpcomm_status_t bench_device_pass(bench_device_t *device, void *to, const void *from, uint64_t bytes, void *spoil,
                                  uint64_t spoil_bytes);
/** Bytes of the last cache level that ranks on this device share, as far as the machine says. */
uint64_t bench_device_cache_bytes(const bench_device_t *device);
tpcomm_status_t bench_device_sync(bench_device_t *device);

/**
 * Host memory that holds what should go to, or what came from, so many bytes of the device: the memory itself on the
 * cpu device, the staging memory on a GPU. bytes: at most bench_device_piece(). put: after it was written; get: waits
 * for the stream first, and returns the data.
 */
uint64_t bench_device_piece(const bench_device_t *device, uint64_t bytes);
void *bench_device_window(bench_device_t *device, void *memory);
tpcomm_status_t bench_device_put(bench_device_t *device, void *memory, uint64_t bytes);
tpcomm_status_t bench_device_get(bench_device_t *device, const void *memory, uint64_t bytes, const void **data_p);

#endif
