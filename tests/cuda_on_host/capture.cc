/* SPDX-License-Identifier: Apache-2.0 */
/* Streams that are being captured: who may do what meanwhile, and what becomes nodes of which graph. */
#include <algorithm>

#include "runtime.h"

namespace host_cuda {

static std::set<capture_t *> &captures = *new std::set<capture_t *>;

/* What the documentation of cudaThreadExchangeStreamCaptureMode says. A call that is forbidden breaks the capture. */
bool captures_forbid() {
    bool forbidden = false;
    for (capture_t *capture : captures) {
        bool own = capture->owner == &self && capture->mode != cudaStreamCaptureModeRelaxed;
        bool others = capture->owner != &self && capture->mode == cudaStreamCaptureModeGlobal;
        if (self.mode == cudaStreamCaptureModeRelaxed) continue;
        if (!own && !(others && self.mode == cudaStreamCaptureModeGlobal)) continue;
        capture->broken = true;
        forbidden = true;
    }
    return forbidden;
}

cudaError_t capture_spoil(stream_t *stream) {
    stream->capture->broken = true;
    return cudaErrorStreamCaptureUnsupported;
}

cudaError_t capture_put(stream_t *stream, work_t work, bool early) {
    capture_t &capture = *stream->capture;
    if (capture.broken) return cudaErrorStreamCaptureInvalidated;
    for (dependency_t &end : stream->ends) end.early = early && end.node->work.kind == work_t::KERNEL;
    node_t *node = graph_add(capture.graph, std::move(work), stream->context->device, stream->ends);
    stream->ends = {{node, false}};
    return cudaSuccess;
}

cudaError_t capture_record(event_t *event, stream_t *stream) {
    if (stream->capture->broken) return cudaErrorStreamCaptureInvalidated;
    event->item = nullptr;
    event->capture = stream->capture;
    event->ends = stream->ends;
    return cudaSuccess;
}

static void add_ends(stream_t *stream, const std::vector<dependency_t> &ends) {
    for (const dependency_t &end : ends) {
        bool there = std::any_of(stream->ends.begin(), stream->ends.end(),
                                 [&](const dependency_t &other) { return other.node == end.node; });
        if (!there) stream->ends.push_back(end);
    }
}

/* A stream that waits for an event of a capture becomes part of it. */
cudaError_t capture_wait(stream_t *stream, const event_t *event) {
    const std::shared_ptr<capture_t> &capture = event->capture;
    if (captures.count(capture.get()) == 0) return cudaErrorCapturedEvent; /* it is over */
    if (capture->broken) return cudaErrorStreamCaptureInvalidated;
    if (stream->capture != nullptr && stream->capture != capture) {
        stream->capture->broken = capture->broken = true;
        return cudaErrorStreamCaptureMerge;
    }
    stream->capture = capture;
    capture->streams.insert(stream);
    add_ends(stream, event->ends);
    return cudaSuccess;
}

/* Whether what a stream ends with lies before what the origin ends with. */
static bool is_joined(const stream_t *stream, const stream_t *origin) {
    std::set<node_t *> before;
    std::vector<node_t *> left;
    for (const dependency_t &end : origin->ends) left.push_back(end.node);
    while (!left.empty()) {
        node_t *node = left.back();
        left.pop_back();
        if (!before.insert(node).second) continue;
        for (const dependency_t &end : node->before) left.push_back(end.node);
    }
    return std::all_of(stream->ends.begin(), stream->ends.end(),
                       [&](const dependency_t &end) { return before.count(end.node) != 0; });
}

static cudaError_t end(stream_t *origin, cudaGraph_t *graph_p) {
    std::shared_ptr<capture_t> capture = origin->capture;
    bool joined = true;
    for (const stream_t *stream : capture->streams) joined = joined && is_joined(stream, origin);
    for (stream_t *stream : capture->streams) {
        stream->capture = nullptr;
        stream->ends.clear();
    }
    captures.erase(capture.get());
    *graph_p = nullptr;
    if (capture->broken || !joined) {
        graph_drop(capture->graph);
        return capture->broken ? cudaErrorStreamCaptureInvalidated : cudaErrorStreamCaptureUnjoined;
    }
    *graph_p = graph_publish(capture->graph);
    return cudaSuccess;
}

} // namespace host_cuda

using namespace host_cuda;
typedef std::unique_lock<std::mutex> held_t;

extern "C" {

cudaError_t cudaStreamBeginCapture(cudaStream_t handle, cudaStreamCaptureMode mode) {
    return runtime_call(__func__, CONTEXT_NEEDED, [&](held_t &) {
        static unsigned long long id;
        stream_t *stream = stream_of(handle);
        if (stream == nullptr) return cudaErrorInvalidResourceHandle;
        if (stream == stream->context->legacy) return cudaErrorStreamCaptureUnsupported;
        if (stream->capture != nullptr) return cudaErrorIllegalState;
        auto capture = std::make_shared<capture_t>();
        *capture = {++id, new graph_t(), mode, &self, stream, {stream}, false};
        stream->capture = capture;
        stream->ends.clear();
        captures.insert(capture.get());
        return cudaSuccess;
    });
}

cudaError_t cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t *graph_p) {
    return runtime_call(__func__, CONTEXT_NEEDED, [&](held_t &) {
        stream_t *stream = stream_of(handle);
        if (stream == nullptr) return cudaErrorInvalidResourceHandle;
        if (stream->capture == nullptr) return cudaErrorIllegalState;
        const capture_t &capture = *stream->capture;
        if (capture.origin != stream) return cudaErrorStreamCaptureUnmatched;
        if (capture.owner != &self && capture.mode != cudaStreamCaptureModeRelaxed)
            return cudaErrorStreamCaptureWrongThread;
        return end(stream, graph_p);
    });
}

cudaError_t cudaStreamIsCapturing(cudaStream_t handle, cudaStreamCaptureStatus *status_p) {
    return cudaStreamGetCaptureInfo(handle, status_p, nullptr, nullptr, nullptr, nullptr, nullptr);
}

cudaError_t cudaStreamGetCaptureInfo(cudaStream_t handle, cudaStreamCaptureStatus *status_p, unsigned long long *id_p,
                                     cudaGraph_t *graph_p, const cudaGraphNode_t **nodes_p,
                                     const cudaGraphEdgeData **edges_p, size_t *count_p) {
    return runtime_call(__func__, CONTEXT_NEEDED, [&](held_t &) {
        static thread_local std::vector<cudaGraphNode_t> nodes;
        static thread_local std::vector<cudaGraphEdgeData> edges;
        stream_t *stream = stream_of(handle);
        if (stream == nullptr) return cudaErrorInvalidResourceHandle;
        *status_p = stream->capture == nullptr ? cudaStreamCaptureStatusNone
                    : stream->capture->broken  ? cudaStreamCaptureStatusInvalidated
                                               : cudaStreamCaptureStatusActive;
        if (*status_p != cudaStreamCaptureStatusActive) return cudaSuccess;
        nodes.clear();
        for (const dependency_t &end : stream->ends) nodes.push_back((cudaGraphNode_t)end.node);
        edges.assign(nodes.size(), cudaGraphEdgeData{});
        if (id_p != nullptr) *id_p = stream->capture->id;
        if (graph_p != nullptr) *graph_p = (cudaGraph_t)stream->capture->graph;
        if (nodes_p != nullptr) *nodes_p = nodes.data();
        if (edges_p != nullptr) *edges_p = edges.data();
        if (count_p != nullptr) *count_p = nodes.size();
        return cudaSuccess;
    });
}

cudaError_t cudaStreamUpdateCaptureDependencies(cudaStream_t handle, cudaGraphNode_t *nodes, const cudaGraphEdgeData *,
                                                size_t count, unsigned flags) {
    return runtime_call(__func__, CONTEXT_NEEDED, [&](held_t &) {
        stream_t *stream = stream_of(handle);
        if (stream == nullptr) return cudaErrorInvalidResourceHandle;
        if (stream->capture == nullptr) return cudaErrorIllegalState;
        if (stream->capture->broken) return cudaErrorStreamCaptureInvalidated;
        std::vector<dependency_t> ends;
        for (size_t i = 0; i < count; i++) {
            if (!graph_has(stream->capture->graph, nodes[i])) return cudaErrorInvalidValue;
            ends.push_back({(node_t *)nodes[i], false});
        }
        if (flags == cudaStreamSetCaptureDependencies) stream->ends.clear();
        add_ends(stream, ends);
        return cudaSuccess;
    });
}

} /* extern "C" */
