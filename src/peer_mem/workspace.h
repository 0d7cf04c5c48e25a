/* SPDX-License-Identifier: Apache-2.0 */
/** A group's workspace: memory that all its ranks read and write. Allocated, handed round, mapped, and proved by use.
 */
#ifndef TPC_PEER_MEM_WORKSPACE_H
#define TPC_PEER_MEM_WORKSPACE_H

#include <stdatomic.h>
#include <stdint.h>

#include "bootstrap/bootstrap.h"
#include "device/device.h"

#define TPC_WORKSPACE_LAYOUT 1u

/** The first 256 bytes of every workspace. Everything after is the backend's. */
typedef struct {
    char magic[8]; /**< "TPCOMMWS" */
    uint32_t layout;
    int32_t leader; /**< world rank that made it */
    uint64_t nonce; /**< of the job */
    uint64_t group_id;
    uint64_t bytes;
    int32_t size;
    _Atomic uint32_t op_timeout_ms; /**< in force; any rank may change it */
    _Atomic uint64_t fail;          /**< health/failure.h; 0 while healthy */
    unsigned char reserved[200];
} tpc_workspace_header_t;

typedef struct {
    const tpc_device_t *device;
    tpc_workspace_header_t *header; /**< where it is mapped; NULL: none */
    unsigned char *data;            /**< behind the header, 256-byte aligned */
    size_t bytes;                   /**< in all */
    bool one_mapping;               /**< all ranks are threads of this process and use the same addresses */
    bool *stays; /**< true while a device of this rank's knows the pages (pinned): close leaves them mapped; or NULL */
} tpc_workspace_t;

/**
 * Make the workspace of a team, collectively: the leader creates it, every member maps it, writes a pattern of its own
 * in the first bytes of its n-th share and reads everybody else's. Zero-filled again afterwards. Fails alike on all
 * members.
 * @param data_bytes  bytes behind the header, equal on all members.
 */
tpcomm_status_t tpc_workspace_open(tpc_bootstrap_t *bootstrap, const tpc_team_t *team, const tpc_device_t *device,
                                   uint64_t group_id, size_t data_bytes, const tpc_deadline_t *deadline,
                                   tpc_workspace_t *workspace_p);

/** What threads of one process share: whoever has mapped it uses it, and offers it to the others. Fails: NO_MEMORY. */
tpcomm_status_t tpc_workspace_offer(tpc_workspace_header_t *header);
/** One more uses it. False: nobody does any more, or it is another group's by now. */
bool tpc_workspace_take(tpc_workspace_header_t *header, uint64_t nonce, uint64_t group_id);

/** Unmap, unless it stays; local. Peers keep theirs. Pages that go while a device knows them leave it with an address
 * that somebody else gets. */
void tpc_workspace_close(tpc_workspace_t *workspace);

#endif
