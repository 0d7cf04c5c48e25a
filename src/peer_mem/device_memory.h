/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Device workspaces: each rank's own device memory, mapped by all ranks of its group. By the first way of sharing
 * (share.h) that works for every rank, each pair proved by writing and reading both ways before anybody relies on it.
 */
#ifndef TPC_PEER_MEM_DEVICE_MEMORY_H
#define TPC_PEER_MEM_DEVICE_MEMORY_H

#include <stdatomic.h>

#include "bootstrap/bootstrap.h"
#include "peer_mem/share.h"

typedef struct {
    int32_t rank, size;
    size_t bytes;
    unsigned char *own;                      /**< NULL: none */
    unsigned char *mapped[TPCOMM_MAX_RANKS]; /**< every rank's, as mapped here; mapped[rank] == own */
    bool same_process[TPCOMM_MAX_RANKS];
    int pidfds[TPCOMM_MAX_RANKS]; /**< of the other processes (tpc_member_t) */
    _Atomic uint64_t *users;      /**< shared, one a rank: which peers still have its memory mapped, bit by bit */
    const tpc_share_method_t *method;
    tpc_share_t share;
} tpc_device_memory_t;

/** What is wanted; equal on all members but for the place of users. */
typedef struct {
    const tpc_share_method_t *const *methods; /**< to try in order, NULL at the end: tpc_share_methods */
    const char *only;                         /**< the word of TPCOMM_PEER_MEM: "auto", or the one way to try */
    size_t bytes;                             /**< of each rank */
    size_t probe_offset;                      /**< the proof may use everything from here on */
    _Atomic uint64_t *users;                  /**< n words in memory that all members share, zero */
} tpc_device_memory_plan_t;

/**
 * Allocate, filled with 0xFF, exchange, map and prove; collective. A member's failure of one way is the next way for
 * all, with one line in the leader's log. Fails alike on all members, with everything undone: NO_TRANSPORT with the
 * reason of each way.
 * @param bootstrap  outlives the memory.
 * @param facts  of each member's device, in team order; kept.
 */
tpcomm_status_t tpc_device_memory_open(tpc_bootstrap_t *bootstrap, const tpc_team_t *team,
                                       const tpc_cuda_facts_t *facts, const tpc_device_memory_plan_t *plan,
                                       const tpc_deadline_t *deadline, tpc_device_memory_t *memory_p);

/**
 * Unmap the peers' memory and free the own one. No kernel of this rank may use them any more. Where freeing would take
 * it from under a peer that still has it mapped, the last peer of the same process frees it; a peer in another process
 * is waited for, a moment, and then it is left to the end of this process (told in the log). A process that has ended
 * has nothing mapped.
 */
void tpc_device_memory_close(tpc_device_memory_t *memory);

#endif
