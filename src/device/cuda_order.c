/* SPDX-License-Identifier: Apache-2.0 */
#include "device/cuda_order.h"

#include <cuda_runtime_api.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "device/cuda_driver.h"

/* Edges of a graph carry data (programmatic launches) since 12.3; a query without them fails where there are such. */
#if CUDART_VERSION >= 13000
#define GET_CAPTURE_INFO    cudaStreamGetCaptureInfo
#define UPDATE_DEPENDENCIES cudaStreamUpdateCaptureDependencies
#elif CUDART_VERSION >= 12030
#define GET_CAPTURE_INFO    cudaStreamGetCaptureInfo_v3
#define UPDATE_DEPENDENCIES cudaStreamUpdateCaptureDependencies_v2
#else
#error "CUDA 12.3 or newer is needed"
#endif

struct tpc_cuda_order {
    const tpc_cuda_facts_t *facts; /* of the rank's device: whose context the event belongs to */
    cudaEvent_t event;
    bool called; /* an eager call was enqueued, on eager */
    cudaStream_t eager;
    unsigned long long capture_id; /* of the last captured call, on captured; 0: none */
    cudaStream_t captured;
    bool drained, idle; /* drain has an answer, which is idle */
};

tpcomm_status_t tpc_cuda_order_new(const tpc_cuda_facts_t *facts, tpc_cuda_order_t **order_p) {
    tpc_cuda_scope_t scope;
    tpc_cuda_order_t *order = calloc(1, sizeof *order);
    if (order == NULL) return tpc_error(TPCOMM_ERR_NO_MEMORY, "out of memory");
    order->facts = facts;
    tpcomm_status_t status = tpc_cuda_enter(facts, &scope);
    if (status == TPCOMM_OK) {
        status =
            tpc_cuda_error(cudaEventCreateWithFlags(&order->event, cudaEventDisableTiming), "cannot make an event");
        tpc_cuda_leave(scope);
    }
    if (status != TPCOMM_OK) {
        free(order);
        return status;
    }
    *order_p = order;
    return TPCOMM_OK;
}

void tpc_cuda_order_free(tpc_cuda_order_t *order) {
    tpc_cuda_scope_t scope;
    if (order == NULL) return;
    if (tpc_cuda_enter(order->facts, &scope) == TPCOMM_OK) { /* not in a forked child */
        (void)tpc_cuda_error(cudaEventDestroy(order->event), "event");
        tpc_cuda_leave(scope);
    }
    free(order);
}

static cudaError_t look(cudaStream_t stream, enum cudaStreamCaptureStatus *status_p, unsigned long long *id_p) {
    return GET_CAPTURE_INFO(stream, status_p, id_p, NULL, NULL, NULL, NULL);
}

tpcomm_status_t tpc_cuda_order_enter(tpc_cuda_order_t *order, tpcomm_stream_t stream, tpc_cuda_call_t *call_p) {
    enum cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
    tpc_cuda_call_t call = {.stream = stream};
    tpcomm_status_t status = tpc_cuda_enter(order->facts, &call.scope);
    if (status != TPCOMM_OK) return status;
    status = tpc_cuda_error(look((cudaStream_t)stream, &capture, &call.capture_id),
                            "cannot tell whether the stream is being captured");
    if (status != TPCOMM_OK) {
        tpc_cuda_leave(call.scope);
        return status;
    }
    call.capturing = capture != cudaStreamCaptureStatusNone;
    if (!call.capturing) call.capture_id = 0;
    *call_p = call;
    return TPCOMM_OK;
}

void tpc_cuda_order_leave(const tpc_cuda_call_t *call) {
    tpc_cuda_leave(call->scope);
}

/* What the capture on `from` ends with becomes what the next node on `to` depends on, too. */
static cudaError_t join_capture(cudaStream_t from, cudaStream_t to, unsigned long long id) {
    enum cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
    unsigned long long theirs = 0;
    const cudaGraphNode_t *nodes = NULL;
    size_t count = 0;
    const cudaGraphEdgeData *edges = NULL;
    cudaError_t error = GET_CAPTURE_INFO(from, &capture, &theirs, NULL, &nodes, &edges, &count);
    if (error != cudaSuccess || capture != cudaStreamCaptureStatusActive || theirs != id || count == 0) return error;
    /* The driver's own arrays do not outlive the next call. */
    cudaGraphNode_t *copy = malloc(count * sizeof *copy);
    cudaGraphEdgeData *kinds = edges != NULL ? malloc(count * sizeof *kinds) : NULL;
    if (copy == NULL || (edges != NULL && kinds == NULL)) {
        error = cudaErrorMemoryAllocation;
    } else {
        memcpy(copy, nodes, count * sizeof *copy);
        if (kinds != NULL) memcpy(kinds, edges, count * sizeof *kinds);
        error = UPDATE_DEPENDENCIES(to, copy, kinds, count, cudaStreamAddCaptureDependencies);
    }
    free(kinds);
    free(copy);
    return error;
}

static tpcomm_status_t follow_capture(tpc_cuda_order_t *order, const tpc_cuda_call_t *call) {
    cudaStream_t stream = (cudaStream_t)call->stream;
    if (order->capture_id == call->capture_id && order->captured != stream) {
        cudaError_t error = join_capture(order->captured, stream, call->capture_id);
        tpcomm_status_t status =
            tpc_cuda_error(error, "cannot order this stream after the capture's last call of the group");
        if (status != TPCOMM_OK) return status;
    }
    order->capture_id = call->capture_id;
    order->captured = stream;
    return TPCOMM_OK;
}

tpcomm_status_t tpc_cuda_order_follow(tpc_cuda_order_t *order, const tpc_cuda_call_t *call) {
    if (call->capturing) return follow_capture(order, call);
    cudaStream_t stream = (cudaStream_t)call->stream;
    if (order->called && order->eager != stream) {
        enum cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
        unsigned long long id = 0;
        cudaError_t error = look(order->eager, &capture, &id);
        /* An event recorded there would pull this stream into the capture. */
        if (error == cudaSuccess && capture != cudaStreamCaptureStatusNone)
            return tpc_error(TPCOMM_ERR_INVALID_STATE,
                             "the group's last call was on stream %p, which is being captured: this call on stream %p "
                             "cannot be ordered after it",
                             (void *)order->eager, (void *)stream);
        if (error == cudaSuccess) error = cudaEventRecord(order->event, order->eager);
        if (error == cudaSuccess) error = cudaStreamWaitEvent(stream, order->event, 0);
        tpcomm_status_t status = tpc_cuda_error(error, "cannot order this stream after the group's last one");
        if (status != TPCOMM_OK) return status;
    }
    order->eager = stream;
    order->called = true;
    return TPCOMM_OK;
}

bool tpc_cuda_order_drain(tpc_cuda_order_t *order, uint32_t timeout_ms) {
    if (order->drained) return order->idle;
    order->drained = order->idle = true;
    const tpc_cuda_driver_t *driver; /* the runtime's query would leave "not ready" as the caller's last error */
    if (!order->called || tpc_cuda_driver(&driver) != TPCOMM_OK) return true;
    if (tpc_cuda_error(cudaEventRecord(order->event, order->eager), "event") != TPCOMM_OK) return true;
    tpc_deadline_t deadline = tpc_deadline_in(timeout_ms, NULL, NULL);
    while ((order->idle = driver->EventQuery(order->event) != CUDA_ERROR_NOT_READY) == false &&
           tpc_deadline_left_ms(&deadline) > 0)
        tpc_deadline_sleep(&deadline, 1);
    return order->idle;
}
