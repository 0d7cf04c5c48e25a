/* SPDX-License-Identifier: Apache-2.0 */
#include "peer_mem/device_memory.h"

#include <cuda_runtime_api.h>
#include <stdatomic.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/hook.h"
#include "base/log.h"

#define PROBE_BYTES 64u

/* How long close waits for peers that are also about to unmap. */
#define CLOSE_WAIT_MS 200u

/* What a member tells the others of its memory. */
typedef struct {
    unsigned char *pointer; /* means something to threads of its process */
    cudaIpcMemHandle_t handle;
    uint64_t bytes;
} offer_t;

static tpcomm_status_t allocate(tpc_device_memory_t *memory, offer_t *offer, bool needs_handle) {
    tpcomm_status_t status = tpc_hook("device_memory", memory->rank);
    if (status != TPCOMM_OK) return status;
    void *pointer = NULL;
    status = tpc_cuda_error(cudaMalloc(&pointer, memory->bytes), "cannot allocate the device workspace");
    if (status != TPCOMM_OK) return status;
    memory->own = pointer;
    /* EMPTY before anybody can see it. */
    status = tpc_cuda_error(cudaMemset(pointer, 0xFF, memory->bytes), "cannot fill the device workspace");
    if (status == TPCOMM_OK) status = tpc_cuda_error(cudaDeviceSynchronize(), "cannot fill the device workspace");
    if (status == TPCOMM_OK && needs_handle)
        status =
            tpc_cuda_error(cudaIpcGetMemHandle(&offer->handle, pointer), "cannot share the device workspace (cudaIpc)");
    offer->pointer = pointer;
    offer->bytes = memory->bytes;
    return status;
}

static tpcomm_status_t map_one(tpc_device_memory_t *memory, int32_t r, const offer_t *offer, bool same_process,
                               const tpc_cuda_facts_t *theirs) {
    if (offer->bytes != memory->bytes)
        return tpc_error(TPCOMM_ERR_MISMATCH, "rank %d has %llu bytes of device workspace, rank %d has %zu", r,
                         (unsigned long long)offer->bytes, memory->rank, memory->bytes);
    if (same_process) {
        if (theirs->ordinal != memory->ordinal) {
            cudaError_t error = cudaDeviceEnablePeerAccess(theirs->ordinal, 0);
            if (error == cudaErrorPeerAccessAlreadyEnabled) {
                (void)cudaGetLastError();
                error = cudaSuccess;
            }
            tpcomm_status_t status = tpc_cuda_error(error, "no peer access between the group's devices");
            if (status != TPCOMM_OK) return status;
        }
        memory->mapped[r] = offer->pointer;
        return TPCOMM_OK;
    }
    void *pointer = NULL;
    cudaError_t error = cudaIpcOpenMemHandle(&pointer, offer->handle, cudaIpcMemLazyEnablePeerAccess);
    tpcomm_status_t status = tpc_cuda_error(error, "cannot map a peer's device workspace (cudaIpc)");
    if (status != TPCOMM_OK) return status;
    memory->mapped[r] = pointer;
    memory->by_ipc[r] = true;
    return TPCOMM_OK;
}

/* Seeded by the pair, so that one pair's bytes never pass for another's. */
static void pattern(uint64_t nonce, int32_t from, int32_t to, unsigned char bytes[PROBE_BYTES]) {
    uint64_t x = nonce ^ (uint64_t)(from * 256 + to + 1) * 0x9e3779b97f4a7c15u;
    for (unsigned i = 0; i < PROBE_BYTES; i++) {
        x = (x ^ (x >> 31)) * 0xbf58476d1ce4e5b9u + i;
        bytes[i] = (unsigned char)(x >> 24);
    }
}

/* Everybody writes to everybody, then everybody reads what the others wrote to him. */
static tpcomm_status_t probe(tpc_device_memory_t *memory, tpc_bootstrap_t *bootstrap, const tpc_team_t *team,
                             size_t offset, const tpc_deadline_t *deadline) {
    uint64_t nonce = tpc_bootstrap_nonce(bootstrap);
    unsigned char bytes[PROBE_BYTES], got[PROBE_BYTES];
    tpcomm_status_t status = tpc_hook("device_probe", memory->rank);
    for (int32_t r = 0; r < memory->size && status == TPCOMM_OK; r++) {
        pattern(nonce, memory->rank, r, bytes);
        if (tpc_hook_value("break_pair", UINT64_MAX) == (uint64_t)(memory->rank * 16 + r)) bytes[7] ^= 1;
        status = tpc_cuda_error(cudaMemcpy(memory->mapped[r] + offset + (size_t)memory->rank * PROBE_BYTES, bytes,
                                           PROBE_BYTES, cudaMemcpyDefault),
                                "cannot write to a peer's device workspace");
    }
    if (status == TPCOMM_OK)
        status = tpc_cuda_error(cudaDeviceSynchronize(), "cannot write to a peer's device workspace");
    status = tpc_team_gather(bootstrap, team, "write to device workspaces", status, NULL, 0, NULL, deadline);
    if (status != TPCOMM_OK) return status;
    for (int32_t r = 0; r < memory->size && status == TPCOMM_OK; r++) {
        pattern(nonce, r, memory->rank, bytes);
        status = tpc_cuda_error(
            cudaMemcpy(got, memory->own + offset + (size_t)r * PROBE_BYTES, PROBE_BYTES, cudaMemcpyDefault),
            "cannot read the own device workspace");
        if (status == TPCOMM_OK && memcmp(got, bytes, PROBE_BYTES) != 0)
            status =
                tpc_error(TPCOMM_ERR_NO_TRANSPORT,
                          "what rank %d wrote into rank %d's device memory did not arrive, though the driver allows "
                          "peer access (an IOMMU or ACS on the way?)",
                          r, memory->rank);
    }
    status = tpc_team_gather(bootstrap, team, "read device workspaces", status, NULL, 0, NULL, deadline);
    if (status != TPCOMM_OK) return status;
    status = tpc_cuda_error(cudaMemset(memory->own + offset, 0xFF, (size_t)memory->size * PROBE_BYTES), "cannot clear");
    if (status == TPCOMM_OK) status = tpc_cuda_error(cudaDeviceSynchronize(), "cannot clear the device workspace");
    return tpc_team_gather(bootstrap, team, "clear device workspaces", status, NULL, 0, NULL, deadline);
}

tpcomm_status_t tpc_device_memory_open(tpc_bootstrap_t *bootstrap, const tpc_team_t *team,
                                       const tpc_cuda_facts_t *facts, size_t bytes, size_t probe_offset,
                                       _Atomic int32_t *users, const tpc_deadline_t *deadline,
                                       tpc_device_memory_t *memory_p) {
    tpc_device_memory_t memory = {
        .rank = team->me, .size = team->n, .ordinal = facts[team->me].ordinal, .bytes = bytes, .users = users};
    offer_t offer, offers[TPCOMM_MAX_RANKS];
    bool needs_handle = false;
    memset(&offer, 0, sizeof offer);
    for (int32_t r = 0; r < team->n; r++)
        needs_handle = needs_handle || !tpc_bootstrap_member(bootstrap, team->ranks[r])->same_process;
    tpcomm_status_t status = allocate(&memory, &offer, needs_handle);
    status =
        tpc_team_gather(bootstrap, team, "share device workspaces", status, &offer, sizeof offer, offers, deadline);
    if (status == TPCOMM_OK) {
        memory.mapped[team->me] = memory.own;
        for (int32_t r = 0; r < team->n && status == TPCOMM_OK; r++)
            if (r != team->me)
                status = map_one(&memory, r, &offers[r], tpc_bootstrap_member(bootstrap, team->ranks[r])->same_process,
                                 &facts[r]);
        for (int32_t r = 0; r < team->n; r++)
            if (r != team->me && memory.mapped[r] != NULL) atomic_fetch_add(&users[r], 1);
        status = tpc_team_gather(bootstrap, team, "map device workspaces", status, NULL, 0, NULL, deadline);
    }
    if (status == TPCOMM_OK) status = probe(&memory, bootstrap, team, probe_offset, deadline);
    if (status != TPCOMM_OK) {
        tpc_device_memory_close(&memory);
        return status;
    }
    *memory_p = memory;
    return TPCOMM_OK;
}

void tpc_device_memory_close(tpc_device_memory_t *memory) {
    for (int32_t r = 0; r < memory->size; r++) {
        if (r == memory->rank || memory->mapped[r] == NULL) continue;
        if (memory->by_ipc[r]) (void)cudaIpcCloseMemHandle(memory->mapped[r]);
        atomic_fetch_sub(&memory->users[r], 1);
        memory->mapped[r] = NULL;
    }
    if (memory->own == NULL) return;
    tpc_deadline_t deadline = tpc_deadline_in(CLOSE_WAIT_MS, NULL, NULL);
    while (atomic_load(&memory->users[memory->rank]) > 0 && tpc_deadline_left_ms(&deadline) > 0)
        tpc_deadline_sleep(&deadline, 1);
    if (atomic_load(&memory->users[memory->rank]) > 0)
        TPC_WARN("peer_mem", "rank %d: %zu bytes of device memory are still mapped by a peer and stay allocated",
                 memory->rank, memory->bytes);
    else
        (void)cudaFree(memory->own);
    memory->own = NULL;
}
