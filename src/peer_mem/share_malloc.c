/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cudaipc and pointer: memory of cudaMalloc, reached by a cudaIpc handle from other processes and by its address from
 * threads of its own. Whoever frees it takes it from under its peers: the last one out must be its owner.
 */
#include <cuda_runtime_api.h>
#include <string.h>

#include "base/error.h"
#include "base/hook.h"
#include "device/cuda_driver.h"
#include "peer_mem/share.h"

_Static_assert(sizeof(cudaIpcMemHandle_t) == sizeof((tpc_share_offer_t *)0)->handle, "the handle goes as bytes");

static tpcomm_status_t create(tpc_share_t *share, tpc_share_offer_t *offer_p, int *fd_p) {
    cudaIpcMemHandle_t handle;
    void *pointer = NULL;
    (void)fd_p;
    tpcomm_status_t status = tpc_cuda_error(cudaMalloc(&pointer, share->bytes), "cannot allocate device memory");
    if (status != TPCOMM_OK) return status;
    share->own = pointer;
    if (share->several_processes) {
        status = tpc_hook("cudaipc/get", share->rank);
        if (status == TPCOMM_OK)
            status =
                tpc_cuda_error(cudaIpcGetMemHandle(&handle, pointer), "cannot make a handle (cudaIpcGetMemHandle)");
        if (status != TPCOMM_OK) return status;
        memcpy(offer_p->handle, &handle, sizeof handle);
    }
    offer_p->address = (uint64_t)(uintptr_t)pointer;
    offer_p->bytes = share->bytes;
    return TPCOMM_OK;
}

/* Of threads' ranks: the peer's context, whatever it is, becomes reachable from ours. */
static tpcomm_status_t enable_access(const tpc_share_t *share, const tpc_cuda_facts_t *theirs) {
    const tpc_cuda_driver_t *driver;
    if (theirs->context == share->facts->context) return TPCOMM_OK;
    tpcomm_status_t status = tpc_cuda_driver(&driver);
    if (status != TPCOMM_OK) return status;
    CUresult result = driver->CtxEnablePeerAccess((CUcontext)(uintptr_t)theirs->context, 0);
    if (result == CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED) return TPCOMM_OK;
    return tpc_cuda_driver_error(driver, result, "no peer access between the group's devices");
}

static tpcomm_status_t open_peer(const tpc_share_t *share, const tpc_cuda_facts_t *theirs, bool same_process,
                                 const tpc_share_offer_t *offer, int fd, void **pointer_p) {
    cudaIpcMemHandle_t handle;
    void *pointer = (void *)(uintptr_t)offer->address;
    tpcomm_status_t status;
    (void)fd;
    if (same_process) {
        status = enable_access(share, theirs);
    } else {
        memcpy(&handle, offer->handle, sizeof handle);
        status = tpc_hook("cudaipc/open", share->rank);
        if (status == TPCOMM_OK)
            status = tpc_cuda_error(cudaIpcOpenMemHandle(&pointer, handle, cudaIpcMemLazyEnablePeerAccess),
                                    "cannot map a peer's device memory (cudaIpcOpenMemHandle)");
    }
    if (status == TPCOMM_OK) *pointer_p = pointer;
    return status;
}

static void settle(tpc_share_t *share) {
    (void)share;
}

static void close_peer(const tpc_share_t *share, void *pointer, bool same_process) {
    (void)share;
    if (!same_process) (void)tpc_cuda_error(cudaIpcCloseMemHandle(pointer), "cudaIpcCloseMemHandle");
}

static void destroy(tpc_share_t *share) {
    if (share->own != NULL) (void)tpc_cuda_error(cudaFree(share->own), "cudaFree");
    share->own = NULL;
}

#define METHOD                                                                                                         \
    .asked_by = "cudaipc", .create = create, .open = open_peer, .settle = settle, .close = close_peer,                 \
    .destroy = destroy, .copy_in = tpc_cuda_copy_in, .copy_out = tpc_cuda_copy_out, .fill = tpc_cuda_fill,             \
    .copier_open = tpc_cuda_copier_open, .copier_close = tpc_cuda_copier_close

const tpc_share_method_t tpc_share_cudaipc = {.name = "cudaipc", .scope = TPC_SHARE_BETWEEN_PROCESSES, METHOD};
const tpc_share_method_t tpc_share_pointer = {.name = "pointer", .scope = TPC_SHARE_WITHIN_PROCESS, METHOD};

const tpc_share_method_t *const tpc_share_methods[] = {&tpc_share_cumem, &tpc_share_cudaipc, &tpc_share_pointer, NULL};
