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
    bool called;                   /* an eager call was enqueued: the event is behind it */
    unsigned long long eager;      /* the id of its stream, which may be gone by now: another can have its handle */
    unsigned long long capture_id; /* of the last captured call, on captured; 0: none */
    cudaStream_t captured;
    cudaGraphNode_t *last; /* that call's nodes, and the data of edges from them */
    cudaGraphEdgeData *last_edges;
    size_t last_count, last_room;
    bool last_has_edges;
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
    free(order->last_edges);
    free(order->last);
    free(order);
}

/* What a stream's capture is, and what it ends with; the arrays are the driver's, until its next call. */
typedef struct {
    enum cudaStreamCaptureStatus status;
    unsigned long long id;
    cudaGraph_t graph;
    const cudaGraphNode_t *nodes;
    const cudaGraphEdgeData *edges;
    size_t count;
} capture_t;

/* All of it is asked for: a question without the edges' data fails where edges have any. */
static cudaError_t look(cudaStream_t stream, capture_t *capture_p) {
    capture_t capture = {.status = cudaStreamCaptureStatusNone};
    cudaError_t error = GET_CAPTURE_INFO(stream, &capture.status, &capture.id, &capture.graph, &capture.nodes,
                                         &capture.edges, &capture.count);
    *capture_p = capture;
    if (capture.status != cudaStreamCaptureStatusActive) *capture_p = (capture_t){.status = capture.status};
    return error;
}

/* A stream that is none, or a capture that its owner has broken, is the caller's mistake and not the device's end. */
static tpcomm_status_t stream_error(cudaError_t error, tpcomm_stream_t stream, const char *what) {
    tpcomm_status_t status = tpc_cuda_error(error, what);
    if (status != TPCOMM_ERR_DEVICE) return status;
    if (error == cudaErrorInvalidResourceHandle || error == cudaErrorInvalidValue)
        return tpc_error_prefix(TPCOMM_ERR_INVALID_ARG, "stream is %p", (void *)stream);
    if (error >= cudaErrorStreamCaptureUnsupported && error <= cudaErrorStreamCaptureWrongThread)
        return tpc_error_prefix(TPCOMM_ERR_INVALID_STATE, "stream is %p", (void *)stream);
    return status;
}

tpcomm_status_t tpc_cuda_order_enter(tpc_cuda_order_t *order, tpcomm_stream_t stream, tpc_cuda_call_t *call_p) {
    capture_t capture;
    tpc_cuda_call_t call = {.stream = stream};
    tpcomm_status_t status = tpc_cuda_enter(order->facts, &call.scope);
    if (status != TPCOMM_OK) return status;
    status =
        stream_error(look((cudaStream_t)stream, &capture), stream, "cannot tell whether the stream is being captured");
    if (status != TPCOMM_OK) {
        tpc_cuda_leave(call.scope);
        return status;
    }
    call.capturing = capture.status != cudaStreamCaptureStatusNone;
    call.capture_id = capture.id;
    *call_p = call;
    return TPCOMM_OK;
}

void tpc_cuda_order_leave(const tpc_cuda_call_t *call) {
    tpc_cuda_leave(call->scope);
}

/* Keep the nodes that the capture on this stream ends with, which are the call's own. */
static cudaError_t remember_call(tpc_cuda_order_t *order, const tpc_cuda_call_t *call) {
    capture_t capture;
    order->last_count = 0;
    cudaError_t error = look((cudaStream_t)call->stream, &capture);
    if (error != cudaSuccess || capture.id != call->capture_id || capture.count == 0) return error;
    if (capture.count > order->last_room) {
        cudaGraphNode_t *nodes = realloc(order->last, capture.count * sizeof *nodes);
        if (nodes == NULL) return cudaErrorMemoryAllocation;
        order->last = nodes;
        cudaGraphEdgeData *edges = realloc(order->last_edges, capture.count * sizeof *edges);
        if (edges == NULL) return cudaErrorMemoryAllocation;
        order->last_edges = edges;
        order->last_room = capture.count;
    }
    memcpy(order->last, capture.nodes, capture.count * sizeof *order->last);
    order->last_has_edges = capture.edges != NULL;
    if (capture.edges != NULL) memcpy(order->last_edges, capture.edges, capture.count * sizeof *order->last_edges);
    order->last_count = capture.count;
    return cudaSuccess;
}

/* The call's own nodes, and not whatever its stream ends with by now: what the caller has put behind it there may run
 * beside the next call. */
static tpcomm_status_t follow_capture(tpc_cuda_order_t *order, const tpc_cuda_call_t *call) {
    if (order->capture_id != call->capture_id || order->captured == (cudaStream_t)call->stream) return TPCOMM_OK;
    if (order->last_count == 0) return TPCOMM_OK;
    cudaError_t error =
        UPDATE_DEPENDENCIES((cudaStream_t)call->stream, order->last, order->last_has_edges ? order->last_edges : NULL,
                            order->last_count, cudaStreamAddCaptureDependencies);
    return stream_error(error, call->stream, "cannot order this stream after the capture's last call of the group");
}

tpcomm_status_t tpc_cuda_order_follow(tpc_cuda_order_t *order, const tpc_cuda_call_t *call) {
    if (call->capturing) return follow_capture(order, call);
    unsigned long long id = 0;
    cudaError_t error = cudaStreamGetId((cudaStream_t)call->stream, &id);
    if (error == cudaSuccess && order->called && order->eager != id)
        error = cudaStreamWaitEvent((cudaStream_t)call->stream, order->event, 0);
    order->eager = id;
    return stream_error(error, call->stream, "cannot order this stream after the group's last one");
}

tpcomm_status_t tpc_cuda_order_called(tpc_cuda_order_t *order, const tpc_cuda_call_t *call) {
    if (!call->capturing) {
        order->called = true;
        return stream_error(cudaEventRecord(order->event, (cudaStream_t)call->stream), call->stream,
                            "cannot mark the call's end");
    }
    order->capture_id = call->capture_id;
    order->captured = (cudaStream_t)call->stream;
    return tpc_cuda_error(remember_call(order, call), "cannot tell what was captured");
}

tpcomm_status_t tpc_cuda_order_keep(const tpc_cuda_call_t *call, void (*gone)(void *arg), void *arg) {
    capture_t capture = {0};
    cudaUserObject_t object = NULL;
    tpcomm_status_t status = tpc_cuda_error(look((cudaStream_t)call->stream, &capture), "cannot find the graph");
    if (status == TPCOMM_OK)
        status = tpc_cuda_error(cudaUserObjectCreate(&object, arg, gone, 1, cudaUserObjectNoDestructorSync),
                                "cannot make the graph keep the group's memory");
    if (status != TPCOMM_OK) {
        gone(arg);
        return status;
    }
    status = tpc_cuda_error(cudaGraphRetainUserObject(capture.graph, object, 1, cudaGraphUserObjectMove),
                            "cannot make the graph keep the group's memory");
    if (status != TPCOMM_OK) (void)cudaUserObjectRelease(object, 1); /* which calls gone */
    return status;
}

static bool wait_idle(tpc_cuda_order_t *order, uint32_t timeout_ms) {
    bool idle = true;
    const tpc_cuda_driver_t *driver; /* the runtime's query would leave "not ready" as the caller's last error */
    if (tpc_cuda_driver(&driver) != TPCOMM_OK) return true;
    tpc_deadline_t deadline = tpc_deadline_in(timeout_ms, NULL, NULL);
    while ((idle = driver->EventQuery(order->event) != CUDA_ERROR_NOT_READY) == false &&
           tpc_deadline_left_ms(&deadline) > 0)
        tpc_deadline_sleep(&deadline, 1);
    return idle;
}

bool tpc_cuda_order_drain(tpc_cuda_order_t *order, uint32_t timeout_ms) {
    tpc_cuda_scope_t scope;
    if (order->drained) return order->idle;
    order->drained = order->idle = true;
    if (!order->called || tpc_cuda_enter_relaxed(order->facts, &scope) != TPCOMM_OK) return true;
    order->idle = wait_idle(order, timeout_ms);
    tpc_cuda_leave(scope);
    return order->idle;
}
