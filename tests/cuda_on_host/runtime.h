/* SPDX-License-Identifier: Apache-2.0 */
/**
 * A small CUDA runtime for tests, whose devices are this machine: memory is host memory, a kernel is the project's own
 * source compiled by a host compiler, and its threads are fibers of one thread that plays all devices.
 *
 * Everything that is enqueued becomes an item (item.cc) of one graph of dependencies: a stream is its last item, an
 * event is an item, a graph's launch is an item for each of its nodes. One lock guards everything; kernels run without
 * it (device.cc).
 *
 * As CUDA has them, because the library's host code depends on them: contexts and who is in which; the last error of a
 * thread; what a capture forbids, and to whom; what waits for the device (cudaFree, cudaDeviceSynchronize); dependent
 * launches; memory that another process opens; that a forked child has nothing. What CUDA leaves undefined is a fault
 * here where it is cheap to see: dead handles are refused, freed memory is unmapped, and a process that ends well and
 * has left something of the library's behind ends badly (leftovers.cc). Not modelled: time, the order of memory
 * accesses, what a device can be short of but room for blocks.
 *
 * Environment: CUDA_ON_HOST_DEVICES (1 to 8; default 1); CUDA_ON_HOST_KERNELS=none: launches do nothing;
 * CUDA_ON_HOST_LEFTOVERS: what the library leaves is no failure.
 */
#ifndef TPC_CUDA_ON_HOST_RUNTIME_H
#define TPC_CUDA_ON_HOST_RUNTIME_H

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "kernels_on_host/device_side.h"

namespace host_cuda {

/** A small device: grids stay small, and a group of 8 ranks that share it still has room (custom_ar.c, parts). */
enum { DEVICES_MAX = 8, SMS = 16, SM_THREADS = 1024 };

extern std::mutex lock;

/* ------------------------------------------------------------------ item.cc */

/** What is to be done on a device: nothing, a small thing that its thread does at once, or a kernel. */
struct work_t {
    enum { NOTHING, ACTION, KERNEL } kind = NOTHING;
    std::function<void()> act;
    hostrun::launch_t launch;
};

struct item_t;
typedef std::shared_ptr<item_t> item_p;

struct successor_t {
    item_p item;
    bool early; /**< it may start when this one has released it */
};

struct item_t {
    work_t work;
    int device = 0;
    bool done = false, released = false;
    int start_left = 1;              /**< what must be there before it may start; the first is its own submission */
    std::atomic<int> before_left{1}; /**< what must have ended before it; read by its kernel, too */
    bool work_ended = false;         /**< but not all that is before it */
    std::vector<successor_t> next;
    uint64_t end_ns = 0;
    /* A kernel's. */
    size_t blocks_started = 0, blocks_alive = 0, blocks_released = 0;
};

item_p item_new(work_t work, int device);
/** All with the lock held. early: of a dependent launch, behind a kernel. */
void item_follow(const item_p &item, const item_p &before, bool early);
void item_submit(const item_p &item);
void item_released(const item_p &item);
void item_work_ended(const item_p &item);
/** Wait until it is done; gives the lock away meanwhile. */
void item_wait(std::unique_lock<std::mutex> &held, const item_p &item);

/* ------------------------------------------------------------------ device.cc */

/** It may start: takes its place in the device's queue. */
void device_enqueue(const item_p &item);
void device_start_thread();

/* ------------------------------------------------------------------ context.cc */

struct stream_t;
struct capture_t;

struct context_t {
    int device;
    bool primary;
    std::set<stream_t *> streams;
    stream_t *legacy;            /**< the NULL stream */
    std::vector<item_p> orphans; /**< of streams that are gone */
};

/** The calling thread's. */
struct thread_t {
    std::vector<context_t *> stack;
    int device = 0; /**< chosen by cudaSetDevice, or by nobody */
    cudaError_t last_error = cudaSuccess;
    cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
    bool callback = false; /**< runs a user object's destructor: may make no call */
};
extern thread_local thread_t self;

enum need_t { NOTHING_NEEDED, DEVICE_NEEDED, CONTEXT_NEEDED, UNSAFE_IN_CAPTURE };

/**
 * What every function of the runtime (or of the driver) does: refuse a forked child and a machine without devices, give
 * the thread a context where it needs one, refuse what a capture forbids, keep the error. body has the lock.
 */
cudaError_t runtime_call(const char *name, need_t need,
                         const std::function<cudaError_t(std::unique_lock<std::mutex> &held)> &body);
CUresult driver_call(const char *name, need_t need,
                     const std::function<cudaError_t(std::unique_lock<std::mutex> &held)> &body);
/** The calling thread's current context; it has one where CONTEXT_NEEDED or more was said. */
context_t *current_context();
context_t *primary_context(int device);
int device_count();
bool forked();
uint64_t now_ns();
/** Once a process: something that no test has needed so far. */
cudaError_t unsupported(const char *what);
/** Wait for everything that was enqueued in a context. */
void wait_for_context(std::unique_lock<std::mutex> &held, context_t *context);

/* ------------------------------------------------------------------ stream.cc, capture.cc */

struct graph_t;
struct node_t;

/** An edge of a capture: from where, and whether a dependent launch may use it. */
struct dependency_t {
    node_t *node;
    bool early;
};

struct stream_t {
    context_t *context;
    unsigned long long id;
    item_p last; /**< NULL: nothing was enqueued */
    std::shared_ptr<capture_t> capture;
    std::vector<dependency_t> ends; /**< what its capture ends with here */
    std::deque<item_p> launches;    /**< the last of them, for stream_make_room */
};

struct event_t {
    context_t *context;
    item_p item; /**< NULL: never recorded, or captured */
    std::shared_ptr<capture_t> capture;
    std::vector<dependency_t> ends;
};

struct capture_t {
    unsigned long long id;
    graph_t *graph;
    cudaStreamCaptureMode mode;
    thread_t *owner;
    stream_t *origin;
    std::set<stream_t *> streams;
    bool broken = false;
};

/** NULL: not a stream. */
stream_t *stream_of(cudaStream_t handle);
stream_t *stream_new(context_t *context);
/** A stream takes so many launches; the next waits inside the call. */
enum { STREAM_LAUNCHES = 1024 };
void stream_make_room(std::unique_lock<std::mutex> &held, stream_t *stream);
/** Enqueue, or capture. */
cudaError_t stream_put(stream_t *stream, work_t work, bool early);
/** Behind everything that was enqueued. */
void stream_append(stream_t *stream, const item_p &item, bool early);
/** Captures that forbid the calling thread what is not safe: broken by it. */
bool captures_forbid();
cudaError_t capture_put(stream_t *stream, work_t work, bool early);
cudaError_t capture_record(event_t *event, stream_t *stream);
cudaError_t capture_wait(stream_t *stream, const event_t *event);
/** A call that a capturing stream does not allow. */
cudaError_t capture_spoil(stream_t *stream);

/* ------------------------------------------------------------------ graph.cc */

/** With its graph's, and whatever else holds it. */
struct object_t {
    void *arg;
    cudaHostFn_t gone;
    unsigned held;
};

struct node_t {
    work_t work;
    int device;
    graph_t *child; /**< own; NULL: none */
    std::vector<dependency_t> before;
};

struct graph_t {
    std::vector<std::unique_ptr<node_t>> nodes; /**< each behind those that it depends on */
    std::map<object_t *, unsigned> objects;
    graph_t() = default;
    graph_t(const graph_t &) = delete;
    ~graph_t();
};

node_t *graph_add(graph_t *graph, work_t work, int device, const std::vector<dependency_t> &before);
bool graph_has(const graph_t *graph, cudaGraphNode_t node);
void graph_drop(graph_t *graph);
/** A graph that a capture makes becomes a handle that the caller may use. */
cudaGraph_t graph_publish(graph_t *graph);

/* ------------------------------------------------------------------ memory.cc */

/** Of a device, or pinned. */
bool memory_is_known(const void *pointer);

/* ------------------------------------------------------------------ leftovers.cc */

/** Who has made what there is: "file:line" of the library, or "" for a test's own. */
void made(const void *what, const char *kind, size_t bytes);
void unmade(const void *what);
/** The calling thread's call into the runtime is over, whether it has made something or not. */
void nothing_made();
void watch_exit();

} // namespace host_cuda

/** Said by the library's sources (library_calls.h) right before a call that makes something. */
extern "C" void host_cuda_called_from(const char *file, int line);

#endif
