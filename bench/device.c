/* SPDX-License-Identifier: Apache-2.0 */
#include "device.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench.h"

tpcomm_status_t bench_device_open(int32_t ordinal, bench_device_t *device_p) {
    bench_device_t device = {NULL, NULL};
    if (ordinal >= 0) {
        tpcomm_status_t status = bench_gpu_open(ordinal, &device.gpu);
        if (status == TPCOMM_OK) status = bench_gpu_alloc_host(device.gpu, BENCH_STAGING_BYTES, &device.staging);
        if (status != TPCOMM_OK) {
            bench_device_close(&device);
            return status;
        }
    }
    *device_p = device;
    return TPCOMM_OK;
}

void bench_device_close(bench_device_t *device) {
    if (device->gpu) {
        bench_gpu_free_host(device->gpu, device->staging);
        bench_gpu_close(device->gpu);
    }
    memset(device, 0, sizeof *device);
}

tpcomm_stream_t bench_device_stream(const bench_device_t *device) {
    return device->gpu ? bench_gpu_stream(device->gpu) : NULL;
}

tpcomm_status_t bench_device_alloc(bench_device_t *device, uint64_t bytes, void **memory_p) {
    if (device->gpu) return bench_gpu_alloc(device->gpu, bytes, memory_p);
    uint64_t rounded = (bytes + BENCH_ALIGNMENT - 1) / BENCH_ALIGNMENT * BENCH_ALIGNMENT;
    void *memory = rounded >= bytes && rounded <= SIZE_MAX / 2 ? aligned_alloc(BENCH_ALIGNMENT, (size_t)rounded) : NULL;
    if (!memory) return tpc_error(TPCOMM_ERR_NO_MEMORY, "no memory for a buffer of %" PRIu64 " bytes", bytes);
    *memory_p = memory;
    return TPCOMM_OK;
}

void bench_device_free(bench_device_t *device, void *memory) {
    if (device->gpu)
        bench_gpu_free(device->gpu, memory);
    else
        free(memory);
}

tpcomm_status_t bench_device_fill(bench_device_t *device, void *memory, uint8_t value, uint64_t bytes) {
    if (bytes == 0) return TPCOMM_OK;
    if (device->gpu) return bench_gpu_fill(device->gpu, memory, value, bytes);
    memset(memory, value, (size_t)bytes);
    return TPCOMM_OK;
}

tpcomm_status_t bench_device_copy(bench_device_t *device, void *to, const void *from, uint64_t bytes) {
    if (bytes == 0) return TPCOMM_OK;
    if (device->gpu) return bench_gpu_copy(device->gpu, to, from, bytes);
    memcpy(to, from, (size_t)bytes);
    return TPCOMM_OK;
}

tpcomm_status_t bench_device_pass(bench_device_t *device, void *to, const void *from, uint64_t bytes, void *spoil,
                                  uint64_t spoil_bytes) {
    if (device->gpu) return bench_gpu_pass(device->gpu, to, from, bytes, spoil, spoil_bytes);
    memcpy(to, from, (size_t)bytes);
    if (spoil) memset(spoil, 0xFF, (size_t)spoil_bytes);
    return TPCOMM_OK;
}

uint64_t bench_device_cache_bytes(const bench_device_t *device) {
    if (device->gpu) return bench_gpu_facts(device->gpu)->l2_bytes;
    long bytes = sysconf(_SC_LEVEL3_CACHE_SIZE);
    if (bytes <= 0) bytes = sysconf(_SC_LEVEL2_CACHE_SIZE);
    return bytes > 0 ? (uint64_t)bytes : 0;
}

tpcomm_status_t bench_device_sync(bench_device_t *device) {
    return device->gpu ? bench_gpu_sync(device->gpu) : TPCOMM_OK;
}

uint64_t bench_device_piece(const bench_device_t *device, uint64_t bytes) {
    return device->gpu && bytes > BENCH_STAGING_BYTES ? BENCH_STAGING_BYTES : bytes;
}

void *bench_device_window(bench_device_t *device, void *memory) {
    return device->gpu ? device->staging : memory;
}

tpcomm_status_t bench_device_put(bench_device_t *device, void *memory, uint64_t bytes) {
    if (!device->gpu) return TPCOMM_OK;
    tpcomm_status_t status = bench_gpu_put(device->gpu, memory, device->staging, bytes);
    return status == TPCOMM_OK ? bench_gpu_sync(device->gpu) : status; /* the staging memory is written again */
}

tpcomm_status_t bench_device_get(bench_device_t *device, const void *memory, uint64_t bytes, const void **data_p) {
    *data_p = memory;
    if (!device->gpu) return TPCOMM_OK;
    tpcomm_status_t status = bench_gpu_get(device->gpu, device->staging, memory, bytes);
    *data_p = device->staging;
    return status == TPCOMM_OK ? bench_gpu_sync(device->gpu) : status;
}
