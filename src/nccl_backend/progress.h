/* SPDX-License-Identifier: Apache-2.0 */
/**
 * What NCCL's kernels do not have: a deadline, and a comparison of the ranks' calls. The caller's stream writes when a
 * call begins and ends, and what the ranks called is noted (health/calls.h). Whoever looks finds out what has been
 * under way for too long, and who has not come; the watchdog's thread, who came with another call.
 *
 * Calls inside a CUDA graph are compared when they are captured; a replay writes nothing, so it has no deadline.
 */
#ifndef TPC_NCCL_PROGRESS_H
#define TPC_NCCL_PROGRESS_H

#include <pthread.h>
#include <stdatomic.h>

#include "backend/backend.h"
#include "device/cuda_side.h"

/** In the workspace that the group's ranks of one host share; zero at first. */
typedef struct {
    _Atomic int32_t stop; /**< a rank has failed in making its communicator: the others need not wait */
} tpc_nccl_control_t;

typedef struct {
    const tpc_backend_group_t *group;
    tpc_nccl_control_t *control;
    tpc_cuda_side_t *side; /**< NULL: no GPU (test builds); then words stand for it */
    _Atomic uint32_t words[2];
    bool unseen[TPCOMM_MAX_RANKS]; /**< on another host, and nobody tells what it calls */
    bool no_marks;                 /**< the driver cannot have a stream write */
    pthread_mutex_t lock;          /**< of those below */
    uint32_t flying;               /**< the call under way when looked at last, by its number's low half; 0: none */
    uint64_t looked_ns, flying_ns; /**< when that was, and for how long it has been */
} tpc_nccl_progress_t;

tpcomm_status_t tpc_nccl_progress_init(tpc_nccl_progress_t *progress, const tpc_backend_group_t *group,
                                       tpc_nccl_control_t *control);
void tpc_nccl_progress_end(tpc_nccl_progress_t *progress);

/** Around the call's own launch on its stream. */
void tpc_nccl_progress_begin(tpc_nccl_progress_t *progress, const tpc_request_t *request);
void tpc_nccl_progress_ended(tpc_nccl_progress_t *progress, const tpc_request_t *request);

/** Look; break the group where a call is over its limit (TIMEOUT) and, if that is asked for, where one differs from
 * another rank's (MISMATCH). Any thread; cheap. */
void tpc_nccl_progress_look(tpc_nccl_progress_t *progress, bool compares);

#endif
