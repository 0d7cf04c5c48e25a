/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The order of one communicator's calls over CUDA streams, whichever backend carries each of them: a call begins after
 * the call before it has ended, also where that was on another stream.
 *
 * An event is recorded behind each eager call; where the next is on another stream, that waits for it. The old stream
 * is not touched again: its owner may have destroyed it, or be capturing on it. Calls of one capture on several of
 * its streams are joined by edges of the graph. Between a capture and anything else no edge is possible.
 */
#ifndef TPC_DEVICE_CUDA_ORDER_H
#define TPC_DEVICE_CUDA_ORDER_H

#include <stdbool.h>

#include "device/cuda.h"

typedef struct tpc_cuda_order tpc_cuda_order_t;

/** What one call is enqueued on, read once for everybody. */
typedef struct {
    tpcomm_stream_t stream;
    bool capturing;
    unsigned long long capture_id; /**< of the capture; 0: none */
    tpc_cuda_scope_t scope;
} tpc_cuda_call_t;

/** facts: of this rank's device; kept. Fails: DEVICE, NO_MEMORY. */
tpcomm_status_t tpc_cuda_order_new(const tpc_cuda_facts_t *facts, tpc_cuda_order_t **order_p);
/** NULL is allowed. */
void tpc_cuda_order_free(tpc_cuda_order_t *order);

/** Make the device current and look at the stream. The caller ends with tpc_cuda_order_leave if this succeeds. */
tpcomm_status_t tpc_cuda_order_enter(tpc_cuda_order_t *order, tpcomm_stream_t stream, tpc_cuda_call_t *call_p);
void tpc_cuda_order_leave(const tpc_cuda_call_t *call);

/** Put the call behind the one before. Right before it is enqueued. */
tpcomm_status_t tpc_cuda_order_follow(tpc_cuda_order_t *order, const tpc_cuda_call_t *call);
/** The call is enqueued, or as much of it as did not fail. */
tpcomm_status_t tpc_cuda_order_called(tpc_cuda_order_t *order, const tpc_cuda_call_t *call);

/**
 * The graph that takes a captured call, and whatever is made from it, keeps something: when the last of them is gone
 * gone(arg) is called, once, on a thread that may make no CUDA call; at once where this fails.
 */
tpcomm_status_t tpc_cuda_order_keep(const tpc_cuda_call_t *call, void (*gone)(void *arg), void *arg);

/**
 * Wait until everything enqueued by eager calls has ended, at most timeout_ms; false: it has not, so memory that
 * kernels use must stay. A second time it gives the first answer. At finalize, else at destroy.
 */
bool tpc_cuda_order_drain(tpc_cuda_order_t *order, uint32_t timeout_ms);

#endif
