/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cumem: memory of the driver's virtual memory functions. Between processes a POSIX descriptor goes to each peer;
 * threads of one process map the same handle. Every mapping keeps the memory alive, so that no order of going is needed
 * and no peer ever writes into freed memory; after the handles and descriptors are let go of, only mappings are left.
 *
 * One thread at a time is in the driver with memory of this kind. Where ranks are threads, several mappings of one
 * allocation go at the same moment, and the driver (580.159, on an H200) then frees something of its own twice inside
 * cuMemUnmap: SIGSEGV, or a heap that is broken for whoever uses it next. gpu_cycles has the case.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

#include "base/error.h"
#include "base/hook.h"
#include "device/cuda_driver.h"
#include "peer_mem/share.h"

static pthread_mutex_t one_at_a_time = PTHREAD_MUTEX_INITIALIZER;

static tpcomm_status_t driver_of(const tpc_share_t *share, const tpc_cuda_driver_t **driver_p) {
    const tpc_cuda_driver_t *driver = NULL;
    int virtual_memory = 0, descriptors = 0;
    CUdevice device = share->facts->ordinal;
    tpcomm_status_t status = tpc_cuda_driver(&driver);
    if (status != TPCOMM_OK) return status;
    if (driver->no_virtual_memory != NULL)
        return tpc_error(TPCOMM_ERR_NO_TRANSPORT, "the CUDA driver has no %s", driver->no_virtual_memory);
    CUresult result =
        driver->DeviceGetAttribute(&virtual_memory, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, device);
    if (result == CUDA_SUCCESS)
        result = driver->DeviceGetAttribute(&descriptors,
                                            CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, device);
    status = tpc_cuda_driver_error(driver, result, "cannot ask the device for its virtual memory");
    if (status == TPCOMM_OK && !virtual_memory)
        status = tpc_error(TPCOMM_ERR_NO_TRANSPORT, "the device has no virtual memory management");
    if (status == TPCOMM_OK && share->several_processes && !descriptors)
        status = tpc_error(TPCOMM_ERR_NO_TRANSPORT, "the device's memory cannot be shared by descriptor");
    if (status == TPCOMM_OK) *driver_p = driver;
    return status;
}

/* Map a handle for this rank's device. */
static tpcomm_status_t map_alone(const tpc_cuda_driver_t *driver, const tpc_share_t *share,
                                 CUmemGenericAllocationHandle handle, void **pointer_p) {
    CUdeviceptr address = 0;
    CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = share->facts->ordinal},
                              .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    tpcomm_status_t status = tpc_hook("cumem/map", share->rank);
    if (status != TPCOMM_OK) return status;
    CUresult result = driver->MemAddressReserve(&address, share->bytes, 0, 0, 0);
    if (result != CUDA_SUCCESS) return tpc_cuda_driver_error(driver, result, "cannot reserve addresses");
    result = driver->MemMap(address, share->bytes, 0, handle, 0);
    if (result != CUDA_SUCCESS) goto free_address;
    result = tpc_hook("cumem/access", share->rank) == TPCOMM_OK
                 ? driver->MemSetAccess(address, share->bytes, &access, 1)
                 : CUDA_ERROR_NOT_PERMITTED;
    if (result != CUDA_SUCCESS) goto unmap;
    *pointer_p = (void *)(uintptr_t)address;
    return TPCOMM_OK;
unmap:
    (void)driver->MemUnmap(address, share->bytes);
free_address:
    (void)driver->MemAddressFree(address, share->bytes);
    return tpc_cuda_driver_error(driver, result, "cannot map device memory");
}

static tpcomm_status_t map(const tpc_cuda_driver_t *driver, const tpc_share_t *share,
                           CUmemGenericAllocationHandle handle, void **pointer_p) {
    pthread_mutex_lock(&one_at_a_time);
    tpcomm_status_t status = map_alone(driver, share, handle, pointer_p);
    pthread_mutex_unlock(&one_at_a_time);
    return status;
}

static void unmap(const tpc_share_t *share, void *pointer) {
    const tpc_cuda_driver_t *driver;
    if (pointer == NULL || tpc_cuda_driver(&driver) != TPCOMM_OK) return;
    pthread_mutex_lock(&one_at_a_time);
    (void)driver->MemUnmap((CUdeviceptr)(uintptr_t)pointer, share->bytes);
    (void)driver->MemAddressFree((CUdeviceptr)(uintptr_t)pointer, share->bytes);
    pthread_mutex_unlock(&one_at_a_time);
}

static void settle(tpc_share_t *share) {
    const tpc_cuda_driver_t *driver;
    if (share->handle == 0 || tpc_cuda_driver(&driver) != TPCOMM_OK) return;
    pthread_mutex_lock(&one_at_a_time);
    (void)driver->MemRelease(share->handle);
    pthread_mutex_unlock(&one_at_a_time);
    share->handle = 0;
}

static CUresult allocate(const tpc_cuda_driver_t *driver, size_t bytes, const CUmemAllocationProp *properties,
                         CUmemGenericAllocationHandle *handle_p) {
    pthread_mutex_lock(&one_at_a_time);
    CUresult result = driver->MemCreate(handle_p, bytes, properties, 0);
    pthread_mutex_unlock(&one_at_a_time);
    return result;
}

static tpcomm_status_t create(tpc_share_t *share, tpc_share_offer_t *offer_p, int *fd_p) {
    const tpc_cuda_driver_t *driver = NULL;
    CUmemGenericAllocationHandle handle;
    CUmemAllocationHandleType type =
        share->several_processes ? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR : CU_MEM_HANDLE_TYPE_NONE;
    CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .requestedHandleTypes = type,
                                      .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = share->facts->ordinal}};
    size_t granularity = 0;
    int fd = -1;
    tpcomm_status_t status = driver_of(share, &driver);
    if (status != TPCOMM_OK) return status;
    status = tpc_cuda_driver_error(
        driver, driver->MemGetAllocationGranularity(&granularity, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM),
        "cannot ask for the granularity of memory");
    if (status != TPCOMM_OK) return status;
    if (granularity == 0) granularity = 1;
    share->bytes = (share->bytes + granularity - 1) / granularity * granularity;
    status = tpc_cuda_driver_error(driver, allocate(driver, share->bytes, &properties, &handle),
                                   "cannot allocate device memory (cuMemCreate)");
    if (status != TPCOMM_OK) return status;
    share->handle = handle;
    if (share->several_processes) {
        status = tpc_hook("cumem/export", share->rank);
        if (status == TPCOMM_OK)
            status = tpc_cuda_driver_error(driver, driver->MemExportToShareableHandle(&fd, handle, type, 0),
                                           "cannot make a descriptor of device memory");
        if (status != TPCOMM_OK) return status;
        if (fcntl(fd, F_SETFD, FD_CLOEXEC) != 0) {
            status = tpc_error_errno(TPCOMM_ERR_IO, errno, "cannot mark the descriptor of device memory");
            close(fd);
            return status;
        }
    }
    status = map(driver, share, handle, &share->own);
    if (status != TPCOMM_OK) {
        if (fd >= 0) close(fd);
        return status;
    }
    offer_p->address = handle;
    offer_p->bytes = share->bytes;
    if (fd >= 0) *fd_p = fd;
    return TPCOMM_OK;
}

static tpcomm_status_t open_peer(const tpc_share_t *share, const tpc_cuda_facts_t *theirs, bool same_process,
                                 const tpc_share_offer_t *offer, int fd, void **pointer_p) {
    const tpc_cuda_driver_t *driver;
    (void)theirs;
    tpcomm_status_t status = tpc_cuda_driver(&driver);
    if (status != TPCOMM_OK) return status;
    CUmemGenericAllocationHandle handle = offer->address;
    if (same_process) return map(driver, share, handle, pointer_p);
    status = tpc_hook("cumem/import", share->rank);
    if (status == TPCOMM_OK)
        status = tpc_cuda_driver_error(driver,
                                       driver->MemImportFromShareableHandle(&handle, (void *)(intptr_t)fd,
                                                                            CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
                                       "cannot take over a peer's device memory");
    if (status != TPCOMM_OK) return status;
    pthread_mutex_lock(&one_at_a_time);
    status = map_alone(driver, share, handle, pointer_p);
    (void)driver->MemRelease(handle); /* the mapping keeps it */
    pthread_mutex_unlock(&one_at_a_time);
    return status;
}

static void close_peer(const tpc_share_t *share, void *pointer, bool same_process) {
    (void)same_process;
    unmap(share, pointer);
}

static void destroy(tpc_share_t *share) {
    settle(share);
    unmap(share, share->own);
    share->own = NULL;
}

const tpc_share_method_t tpc_share_cumem = {
    .name = "cumem",
    .asked_by = "cumem",
    .scope = TPC_SHARE_ANYWHERE,
    .passes_fd = true,
    .outlives_own = true,
    .create = create,
    .open = open_peer,
    .settle = settle,
    .close = close_peer,
    .destroy = destroy,
    .copy_in = tpc_cuda_copy_in,
    .copy_out = tpc_cuda_copy_out,
    .fill = tpc_cuda_fill,
    .copier_open = tpc_cuda_copier_open,
    .copier_close = tpc_cuda_copier_close,
};
