/* SPDX-License-Identifier: Apache-2.0 */
/* Streams and events, and what is put into streams. */
#include <string.h>

#include "driver.h"
#include "runtime.h"

namespace host_cuda {

static std::set<stream_t *> &streams = *new std::set<stream_t *>;
static std::set<event_t *> &events = *new std::set<event_t *>;

stream_t *stream_new(context_t *context) {
    static unsigned long long id;
    stream_t *stream = new stream_t{context, ++id, nullptr, nullptr, {}, {}};
    streams.insert(stream);
    context->streams.insert(stream);
    return stream;
}

stream_t *stream_of(cudaStream_t handle) {
    if (handle == nullptr || handle == cudaStreamLegacy) return current_context()->legacy;
    if (handle == cudaStreamPerThread) return nullptr;
    return streams.count((stream_t *)handle) != 0 ? (stream_t *)handle : nullptr;
}

static event_t *event_of(cudaEvent_t handle) {
    return events.count((event_t *)handle) != 0 ? (event_t *)handle : nullptr;
}

void stream_append(stream_t *stream, const item_p &item, bool early) {
    item_follow(item, stream->last, early);
    item_submit(item);
    stream->last = item;
}

void stream_make_room(std::unique_lock<std::mutex> &held, stream_t *stream) {
    while (!stream->launches.empty() && stream->launches.front()->done) stream->launches.pop_front();
    if (stream->launches.size() >= STREAM_LAUNCHES) item_wait(held, item_p(stream->launches.front()));
}

cudaError_t stream_put(stream_t *stream, work_t work, bool early) {
    if (stream->capture != nullptr) return capture_put(stream, std::move(work), early);
    bool launch = work.kind == work_t::KERNEL;
    stream_append(stream, item_new(std::move(work), stream->context->device), early);
    if (launch) stream->launches.push_back(stream->last);
    return cudaSuccess;
}

static cudaError_t query(const item_p &item) {
    return item == nullptr || item->done ? cudaSuccess : cudaErrorNotReady;
}

/* ------------------------------------------------------------------ the driver's functions */

static CUresult EventQuery(CUevent handle) {
    return driver_call("cuEventQuery", UNSAFE_IN_CAPTURE, [&](std::unique_lock<std::mutex> &) {
        const event_t *event = event_of(handle);
        if (event == nullptr) return cudaErrorInvalidResourceHandle;
        return event->capture != nullptr ? cudaErrorCapturedEvent : query(event->item);
    });
}

static CUresult StreamQuery(CUstream handle) {
    return driver_call("cuStreamQuery", UNSAFE_IN_CAPTURE, [&](std::unique_lock<std::mutex> &) {
        stream_t *stream = stream_of(handle);
        if (stream == nullptr) return cudaErrorInvalidResourceHandle;
        return stream->capture != nullptr ? capture_spoil(stream) : query(stream->last);
    });
}

static CUresult StreamGetCtx(CUstream handle, CUcontext *context_p) {
    return driver_call("cuStreamGetCtx", CONTEXT_NEEDED, [&](std::unique_lock<std::mutex> &) {
        const stream_t *stream = stream_of(handle);
        if (stream == nullptr) return cudaErrorInvalidResourceHandle;
        *context_p = (CUcontext)stream->context;
        return cudaSuccess;
    });
}

static CUresult StreamWriteValue32(CUstream handle, CUdeviceptr address, uint32_t value, unsigned) {
    return driver_call("cuStreamWriteValue32", CONTEXT_NEEDED, [&](std::unique_lock<std::mutex> &) {
        stream_t *stream = stream_of(handle);
        if (stream == nullptr) return cudaErrorInvalidResourceHandle;
        uint32_t *word = (uint32_t *)(uintptr_t)address;
        return stream_put(
            stream, {work_t::ACTION, [word, value] { __atomic_store_n(word, value, __ATOMIC_RELEASE); }, {}}, false);
    });
}

const driver_row_t stream_functions[] = {
    {"cuEventQuery", (void *)EventQuery},
    {"cuStreamQuery", (void *)StreamQuery},
    {"cuStreamGetCtx", (void *)StreamGetCtx},
    {"cuStreamWriteValue32", (void *)StreamWriteValue32},
    {nullptr, nullptr},
};

} // namespace host_cuda

/* ------------------------------------------------------------------ the runtime's functions */

using namespace host_cuda;
typedef std::unique_lock<std::mutex> held_t;

extern "C" {

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream_p, unsigned flags) {
    return runtime_call(__func__, CONTEXT_NEEDED, [&](held_t &) {
        if (flags != cudaStreamNonBlocking) return unsupported("a stream that the NULL stream waits for");
        stream_t *stream = stream_new(current_context());
        made(stream, "stream", 0);
        *stream_p = (cudaStream_t)stream;
        return cudaSuccess;
    });
}

cudaError_t cudaStreamDestroy(cudaStream_t handle) {
    return runtime_call(__func__, CONTEXT_NEEDED, [&](held_t &) {
        stream_t *stream = handle == nullptr ? nullptr : stream_of(handle);
        if (stream == nullptr || stream == stream->context->legacy) return cudaErrorInvalidResourceHandle;
        if (stream->capture != nullptr) {
            stream->capture->broken = true;
            stream->capture->streams.erase(stream);
        }
        if (query(stream->last) != cudaSuccess) stream->context->orphans.push_back(stream->last);
        stream->context->streams.erase(stream);
        streams.erase(stream);
        unmade(stream);
        delete stream;
        return cudaSuccess;
    });
}

cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
    return runtime_call(__func__, UNSAFE_IN_CAPTURE, [&](held_t &held) {
        stream_t *stream = stream_of(handle);
        if (stream == nullptr) return cudaErrorInvalidResourceHandle;
        if (stream->capture != nullptr) return capture_spoil(stream);
        item_wait(held, item_p(stream->last));
        return cudaSuccess;
    });
}

cudaError_t cudaStreamQuery(cudaStream_t handle) {
    return runtime_call(__func__, UNSAFE_IN_CAPTURE, [&](held_t &) {
        stream_t *stream = stream_of(handle);
        if (stream == nullptr) return cudaErrorInvalidResourceHandle;
        return stream->capture != nullptr ? capture_spoil(stream) : query(stream->last);
    });
}

cudaError_t cudaStreamGetId(cudaStream_t handle, unsigned long long *id_p) {
    return runtime_call(__func__, CONTEXT_NEEDED, [&](held_t &) {
        const stream_t *stream = stream_of(handle);
        if (stream == nullptr) return cudaErrorInvalidResourceHandle;
        *id_p = stream->id;
        return cudaSuccess;
    });
}

/* ------------------------------------------------------------------ events */

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event_p, unsigned) {
    return runtime_call(__func__, CONTEXT_NEEDED, [&](held_t &) {
        event_t *event = new event_t{current_context(), nullptr, nullptr, {}};
        events.insert(event);
        made(event, "event", 0);
        *event_p = (cudaEvent_t)event;
        return cudaSuccess;
    });
}

cudaError_t cudaEventCreate(cudaEvent_t *event_p) {
    return cudaEventCreateWithFlags(event_p, cudaEventDefault);
}

cudaError_t cudaEventDestroy(cudaEvent_t handle) {
    return runtime_call(__func__, CONTEXT_NEEDED, [&](held_t &) {
        event_t *event = event_of(handle);
        if (event == nullptr) return cudaErrorInvalidResourceHandle;
        events.erase(event);
        unmade(event);
        delete event;
        return cudaSuccess;
    });
}

cudaError_t cudaEventRecord(cudaEvent_t event_handle, cudaStream_t stream_handle) {
    return runtime_call(__func__, CONTEXT_NEEDED, [&](held_t &) {
        event_t *event = event_of(event_handle);
        stream_t *stream = stream_of(stream_handle);
        if (event == nullptr || stream == nullptr || event->context != stream->context)
            return cudaErrorInvalidResourceHandle;
        if (stream->capture != nullptr) return capture_record(event, stream);
        event->capture = nullptr;
        event->ends.clear();
        event->item = item_new({}, stream->context->device);
        stream_append(stream, event->item, false);
        return cudaSuccess;
    });
}

cudaError_t cudaEventQuery(cudaEvent_t handle) {
    return runtime_call(__func__, UNSAFE_IN_CAPTURE, [&](held_t &) {
        const event_t *event = event_of(handle);
        if (event == nullptr) return cudaErrorInvalidResourceHandle;
        return event->capture != nullptr ? cudaErrorCapturedEvent : query(event->item);
    });
}

cudaError_t cudaEventSynchronize(cudaEvent_t handle) {
    return runtime_call(__func__, UNSAFE_IN_CAPTURE, [&](held_t &held) {
        const event_t *event = event_of(handle);
        if (event == nullptr) return cudaErrorInvalidResourceHandle;
        if (event->capture != nullptr) return cudaErrorCapturedEvent;
        item_wait(held, item_p(event->item));
        return cudaSuccess;
    });
}

cudaError_t cudaEventElapsedTime(float *ms_p, cudaEvent_t from_handle, cudaEvent_t to_handle) {
    return runtime_call(__func__, CONTEXT_NEEDED, [&](held_t &) {
        const event_t *from = event_of(from_handle), *to = event_of(to_handle);
        if (from == nullptr || to == nullptr || from->item == nullptr || to->item == nullptr)
            return cudaErrorInvalidResourceHandle;
        if (!from->item->done || !to->item->done) return cudaErrorNotReady;
        *ms_p = (float)(int64_t)(to->item->end_ns - from->item->end_ns) / 1e6f;
        return cudaSuccess;
    });
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream_handle, cudaEvent_t event_handle, unsigned) {
    return runtime_call(__func__, CONTEXT_NEEDED, [&](held_t &) {
        const event_t *event = event_of(event_handle);
        stream_t *stream = stream_of(stream_handle);
        if (event == nullptr || stream == nullptr) return cudaErrorInvalidResourceHandle;
        if (event->capture != nullptr) return capture_wait(stream, event);
        if (event->item == nullptr) return cudaSuccess;
        if (stream->capture != nullptr) {
            stream->capture->broken = true;
            return cudaErrorStreamCaptureIsolation;
        }
        item_p both = item_new({}, stream->context->device);
        item_follow(both, event->item, false);
        stream_append(stream, both, false);
        return cudaSuccess;
    });
}

} /* extern "C" */

/* ------------------------------------------------------------------ copies */

/* What comes from pageable memory is taken at once, and what goes there has arrived when the call returns. */
static cudaError_t copy(held_t &held, void *to, const void *from, size_t bytes, stream_t *stream) {
    if (stream == nullptr) return cudaErrorInvalidResourceHandle;
    if (bytes == 0) return cudaSuccess;
    if (stream->capture != nullptr || memory_is_known(from)) {
        cudaError_t error = stream_put(stream, {work_t::ACTION, [=] { memcpy(to, from, bytes); }, {}}, false);
        if (error == cudaSuccess && stream->capture == nullptr && !memory_is_known(to))
            item_wait(held, item_p(stream->last));
        return error;
    }
    auto taken = std::make_shared<std::vector<char>>((const char *)from, (const char *)from + bytes);
    return stream_put(stream, {work_t::ACTION, [=] { memcpy(to, taken->data(), bytes); }, {}}, false);
}

static cudaError_t fill(void *to, int byte, size_t bytes, stream_t *stream) {
    if (stream == nullptr) return cudaErrorInvalidResourceHandle;
    if (!memory_is_known(to)) return cudaErrorInvalidValue;
    return stream_put(stream, {work_t::ACTION, [=] { memset(to, byte, bytes); }, {}}, false);
}

extern "C" {

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind, cudaStream_t stream) {
    return runtime_call(__func__, CONTEXT_NEEDED,
                        [&](held_t &held) { return copy(held, to, from, bytes, stream_of(stream)); });
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, cudaMemcpyKind) {
    return runtime_call(__func__, UNSAFE_IN_CAPTURE, [&](held_t &held) {
        cudaError_t error = copy(held, to, from, bytes, current_context()->legacy);
        item_wait(held, item_p(current_context()->legacy->last));
        return error;
    });
}

cudaError_t cudaMemsetAsync(void *to, int byte, size_t bytes, cudaStream_t stream) {
    return runtime_call(__func__, CONTEXT_NEEDED, [&](held_t &) { return fill(to, byte, bytes, stream_of(stream)); });
}

cudaError_t cudaMemset(void *to, int byte, size_t bytes) {
    return runtime_call(__func__, UNSAFE_IN_CAPTURE,
                        [&](held_t &) { return fill(to, byte, bytes, current_context()->legacy); });
}

} /* extern "C" */
