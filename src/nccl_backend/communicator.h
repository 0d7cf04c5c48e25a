/* SPDX-License-Identifier: Apache-2.0 */
/**
 * One communicator of NCCL's, which never blocks (config.blocking 0): each call returns at once, and one that is not
 * done yet is looked at until it is. So every wait in it has our deadlines, and it can be ended from any thread: no two
 * threads are ever inside NCCL with one communicator.
 */
#ifndef TPC_NCCL_COMMUNICATOR_H
#define TPC_NCCL_COMMUNICATOR_H

#include <stdbool.h>

#include "device/cuda.h"
#include "nccl_backend/library.h"

typedef struct tpc_nccl_communicator tpc_nccl_communicator_t;

/** One collective in NCCL's terms. */
typedef struct {
    tpcomm_coll_t coll;
    const void *in;
    void *out;
    size_t count;
    tpc_nccl_dtype_t dtype;
    tpc_nccl_op_t op;
    int root;
    tpcomm_stream_t stream;
} tpc_nccl_call_t;

/**
 * Begin to join; settle says when it is done.
 * @param facts  of the rank's device, which is current; not usable: there is none (test builds).
 * Fails: NO_MEMORY; BACKEND, with NCCL's own text.
 */
tpcomm_status_t tpc_nccl_comm_join(const tpc_nccl_library_t *library, const tpc_nccl_id_t *id, int32_t size,
                                   int32_t rank, const tpc_cuda_facts_t *facts, tpc_nccl_communicator_t **comm_p);

/** Look whether what was begun last is done. Fails: BACKEND, with NCCL's own text; ABORTED once it is being ended. */
tpcomm_status_t tpc_nccl_comm_settle(tpc_nccl_communicator_t *comm, bool *done_p);

/** Begin a collective. Fails: as settle. */
tpcomm_status_t tpc_nccl_comm_call(tpc_nccl_communicator_t *comm, const tpc_nccl_call_t *call);

/**
 * Begin to end it, on a thread of its own, since NCCL may take its time: by abort, or by finalize and destroy. Once;
 * later calls change nothing. Any thread; does not wait.
 */
void tpc_nccl_comm_end(tpc_nccl_communicator_t *comm, bool abort);

/**
 * Wait for the end, at most wait_ms, and let go. NULL is allowed. False: NCCL has not ended in time; the thread is left
 * to it, and what NCCL may use must stay.
 */
bool tpc_nccl_comm_free(tpc_nccl_communicator_t *comm, uint32_t wait_ms);

/** In a forked child: free what is our own, and touch neither NCCL nor a lock that a thread of the parent may hold. */
void tpc_nccl_comm_forget(tpc_nccl_communicator_t *comm);

#endif
