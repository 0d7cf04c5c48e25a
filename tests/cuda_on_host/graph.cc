/* SPDX-License-Identifier: Apache-2.0 */
/* Graphs: what they are made of, what they keep, and their launch. */
#include <algorithm>
#include <deque>
#include <thread>
#include <unordered_map>

#include "runtime.h"

namespace host_cuda {

/** What is instantiated: a copy. */
struct exec_t {
    graph_t *graph;
    item_p last; /* of its launches: they do not overlap */
};

static std::set<graph_t *> &graphs = *new std::set<graph_t *>;
static std::set<exec_t *> &execs = *new std::set<exec_t *>;
static std::set<object_t *> &objects = *new std::set<object_t *>;

/* ------------------------------------------------------------------ user objects */

static std::deque<object_t *> &gone = *new std::deque<object_t *>;
static std::condition_variable &some_are_gone = *new std::condition_variable;

/* On a thread that may make no call. */
static void call_back() {
    std::unique_lock<std::mutex> held(lock);
    self.callback = true;
    for (;;) {
        some_are_gone.wait(held, [] { return !gone.empty(); });
        object_t *object = gone.front();
        gone.pop_front();
        held.unlock();
        object->gone(object->arg);
        delete object;
        held.lock();
    }
}

static void let_go(object_t *object, unsigned count) {
    static bool started;
    object->held -= count;
    if (object->held > 0) return;
    objects.erase(object);
    unmade(object);
    gone.push_back(object);
    if (!started) std::thread(call_back).detach();
    started = true;
    some_are_gone.notify_one();
}

/* ------------------------------------------------------------------ graphs */

graph_t::~graph_t() {
    for (const auto &node : nodes) graph_drop(node->child);
    for (const auto &[object, count] : objects) let_go(object, count);
}

void graph_drop(graph_t *graph) {
    delete graph;
}

node_t *graph_add(graph_t *graph, work_t work, int device, const std::vector<dependency_t> &before) {
    graph->nodes.emplace_back(new node_t{std::move(work), device, nullptr, before});
    return graph->nodes.back().get();
}

bool graph_has(const graph_t *graph, const cudaGraphNode_t node) {
    return std::any_of(graph->nodes.begin(), graph->nodes.end(),
                       [=](const auto &other) { return other.get() == (const node_t *)node; });
}

cudaGraph_t graph_publish(graph_t *graph) {
    graphs.insert(graph);
    made(graph, "graph", 0);
    return (cudaGraph_t)graph;
}

static graph_t *copy(const graph_t *graph) {
    graph_t *twin = new graph_t();
    std::unordered_map<const node_t *, node_t *> of;
    for (const auto &node : graph->nodes) {
        std::vector<dependency_t> before = node->before;
        for (dependency_t &dependency : before) dependency.node = of[dependency.node];
        of[node.get()] = graph_add(twin, node->work, node->device, before);
        if (node->child != nullptr) of[node.get()]->child = copy(node->child);
    }
    for (const auto &[object, count] : graph->objects) {
        object->held += count;
        twin->objects[object] = count;
    }
    return twin;
}

/* Everything behind begin; end behind everything. */
static void launch(const graph_t *graph, const item_p &begin, const item_p &end) {
    std::unordered_map<const node_t *, item_p> of;
    for (const auto &node : graph->nodes) {
        bool parent = node->child != nullptr;
        item_p item = item_new(parent ? work_t{} : node->work, node->device);
        if (node->before.empty()) item_follow(item, begin, false);
        for (const dependency_t &dependency : node->before) item_follow(item, of[dependency.node], dependency.early);
        item_p last = item;
        if (parent) {
            last = item_new({}, node->device);
            launch(node->child, item, last);
        }
        of[node.get()] = last;
        item_follow(end, last, false);
        item_submit(item);
        if (parent) item_submit(last);
    }
}

} // namespace host_cuda

using namespace host_cuda;
typedef std::unique_lock<std::mutex> held_t;

static graph_t *graph_of(cudaGraph_t handle) {
    return graphs.count((graph_t *)handle) != 0 ? (graph_t *)handle : nullptr;
}

extern "C" {

cudaError_t cudaGraphCreate(cudaGraph_t *graph_p, unsigned) {
    return runtime_call(__func__, DEVICE_NEEDED, [&](held_t &) {
        *graph_p = graph_publish(new graph_t());
        return cudaSuccess;
    });
}

cudaError_t cudaGraphDestroy(cudaGraph_t handle) {
    return runtime_call(__func__, DEVICE_NEEDED, [&](held_t &) {
        graph_t *graph = graph_of(handle);
        if (graph == nullptr) return cudaErrorInvalidValue;
        graphs.erase(graph);
        unmade(graph);
        graph_drop(graph);
        return cudaSuccess;
    });
}

cudaError_t cudaGraphAddChildGraphNode(cudaGraphNode_t *node_p, cudaGraph_t handle, const cudaGraphNode_t *before,
                                       size_t count, cudaGraph_t child_handle) {
    return runtime_call(__func__, DEVICE_NEEDED, [&](held_t &) {
        graph_t *graph = graph_of(handle);
        const graph_t *child = graph_of(child_handle);
        if (graph == nullptr || child == nullptr) return cudaErrorInvalidValue;
        std::vector<dependency_t> dependencies;
        for (size_t i = 0; i < count; i++) {
            if (!graph_has(graph, before[i])) return cudaErrorInvalidValue;
            dependencies.push_back({(node_t *)before[i], false});
        }
        node_t *node = graph_add(graph, {}, 0, dependencies);
        node->child = copy(child);
        *node_p = (cudaGraphNode_t)node;
        return cudaSuccess;
    });
}

cudaError_t cudaGraphGetNodes(cudaGraph_t handle, cudaGraphNode_t *nodes, size_t *count_p) {
    return runtime_call(__func__, DEVICE_NEEDED, [&](held_t &) {
        const graph_t *graph = graph_of(handle);
        if (graph == nullptr) return cudaErrorInvalidValue;
        for (size_t i = 0; nodes != nullptr && i < *count_p && i < graph->nodes.size(); i++)
            nodes[i] = (cudaGraphNode_t)graph->nodes[i].get();
        *count_p = graph->nodes.size();
        return cudaSuccess;
    });
}

cudaError_t cudaGraphGetEdges(cudaGraph_t handle, cudaGraphNode_t *from, cudaGraphNode_t *to, cudaGraphEdgeData *,
                              size_t *count_p) {
    return runtime_call(__func__, DEVICE_NEEDED, [&](held_t &) {
        const graph_t *graph = graph_of(handle);
        if (graph == nullptr) return cudaErrorInvalidValue;
        if (from != nullptr || to != nullptr) return unsupported("to name the edges of a graph");
        *count_p = 0;
        for (const auto &node : graph->nodes) *count_p += node->before.size();
        return cudaSuccess;
    });
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec_p, cudaGraph_t handle, unsigned long long) {
    return runtime_call(__func__, CONTEXT_NEEDED, [&](held_t &) {
        const graph_t *graph = graph_of(handle);
        if (graph == nullptr) return cudaErrorInvalidValue;
        exec_t *exec = new exec_t{copy(graph), nullptr};
        execs.insert(exec);
        made(exec, "instantiated graph", 0);
        *exec_p = (cudaGraphExec_t)exec;
        return cudaSuccess;
    });
}

cudaError_t cudaGraphUpload(cudaGraphExec_t, cudaStream_t) {
    return cudaSuccess;
}

/* What runs of it goes on; what it keeps is kept until then. */
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t handle) {
    return runtime_call(__func__, DEVICE_NEEDED, [&](held_t &held) {
        exec_t *exec = (exec_t *)handle;
        if (execs.erase(exec) == 0) return cudaErrorInvalidValue;
        unmade(exec);
        item_wait(held, item_p(exec->last));
        graph_drop(exec->graph);
        delete exec;
        return cudaSuccess;
    });
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t handle, cudaStream_t stream_handle) {
    return runtime_call(__func__, CONTEXT_NEEDED, [&](held_t &) {
        exec_t *exec = (exec_t *)handle;
        stream_t *stream = stream_of(stream_handle);
        if (execs.count(exec) == 0) return cudaErrorInvalidValue;
        if (stream == nullptr) return cudaErrorInvalidResourceHandle;
        if (stream->capture != nullptr) return unsupported("a graph's launch in a capture");
        item_p begin = item_new({}, stream->context->device), end = item_new({}, stream->context->device);
        item_follow(begin, stream->last, false);
        item_follow(begin, exec->last, false);
        item_follow(end, begin, false);
        launch(exec->graph, begin, end);
        item_submit(begin);
        item_submit(end);
        stream->last = exec->last = end;
        return cudaSuccess;
    });
}

/* ------------------------------------------------------------------ what they keep */

cudaError_t cudaUserObjectCreate(cudaUserObject_t *object_p, void *arg, cudaHostFn_t destroy, unsigned count,
                                 unsigned) {
    return runtime_call(__func__, DEVICE_NEEDED, [&](held_t &) {
        object_t *object = new object_t{arg, destroy, count};
        objects.insert(object);
        made(object, "user object", 0);
        *object_p = (cudaUserObject_t)object;
        return cudaSuccess;
    });
}

cudaError_t cudaUserObjectRelease(cudaUserObject_t handle, unsigned count) {
    return runtime_call(__func__, DEVICE_NEEDED, [&](held_t &) {
        object_t *object = (object_t *)handle;
        if (objects.count(object) == 0 || object->held < count) return cudaErrorInvalidValue;
        let_go(object, count);
        return cudaSuccess;
    });
}

/* Also of a graph that is still being captured. */
cudaError_t cudaGraphRetainUserObject(cudaGraph_t handle, cudaUserObject_t object_handle, unsigned count,
                                      unsigned flags) {
    return runtime_call(__func__, DEVICE_NEEDED, [&](held_t &) {
        graph_t *graph = (graph_t *)handle;
        object_t *object = (object_t *)object_handle;
        if (objects.count(object) == 0 || count == 0) return cudaErrorInvalidValue;
        if (flags != cudaGraphUserObjectMove) object->held += count;
        graph->objects[object] += count;
        return cudaSuccess;
    });
}

} /* extern "C" */
