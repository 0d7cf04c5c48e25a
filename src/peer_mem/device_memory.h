/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Device workspaces: each rank's own device memory, mapped by all ranks of its group. By plain pointer between threads
 * of one process, by cudaIpc between processes. Every pair is proved by a write and a read before anybody relies on it.
 */
#ifndef TPC_PEER_MEM_DEVICE_MEMORY_H
#define TPC_PEER_MEM_DEVICE_MEMORY_H

#include "bootstrap/bootstrap.h"
#include "device/cuda.h"

typedef struct {
    int32_t rank, size, ordinal;
    size_t bytes;
    unsigned char *own;                      /**< NULL: none */
    unsigned char *mapped[TPCOMM_MAX_RANKS]; /**< every rank's, as mapped here; mapped[rank] == own */
    bool by_ipc[TPCOMM_MAX_RANKS];           /**< opened by cudaIpc: to be closed */
    _Atomic int32_t *users;                  /**< shared, one a rank: how many ranks still have its memory mapped */
} tpc_device_memory_t;

/**
 * Allocate bytes on ordinal, filled with 0xFF, exchange and map; collective, fails alike on all members with everything
 * undone.
 * @param facts  of each member's device, in team order.
 * @param users  n words in memory that all members share, zero.
 * @param probe_offset  place of n times 64 bytes that the proof may use; 0xFF again afterwards.
 */
tpcomm_status_t tpc_device_memory_open(tpc_bootstrap_t *bootstrap, const tpc_team_t *team,
                                       const tpc_cuda_facts_t *facts, size_t bytes, size_t probe_offset,
                                       _Atomic int32_t *users, const tpc_deadline_t *deadline,
                                       tpc_device_memory_t *memory_p);

/**
 * Unmap the peers' memory and free the own one. No kernel of this rank may use them any more. Where a peer still has
 * the own memory mapped it is not freed under it: it is left to the end of the process (told in the log).
 */
void tpc_device_memory_close(tpc_device_memory_t *memory);

#endif
