/* SPDX-License-Identifier: Apache-2.0 */
/* Devices, contexts, the state of a thread, errors, and where the driver's functions are. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "driver.h"
#include "runtime.h"

namespace host_cuda {

thread_local thread_t self;

static context_t *primary[DEVICES_MAX];
static std::set<context_t *> &contexts = *new std::set<context_t *>;
static bool started;                     /* with the lock held */
static std::atomic<bool> in_fork{false}; /* of a process that had started */

uint64_t now_ns() {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

bool forked() {
    return in_fork.load(std::memory_order_relaxed);
}

cudaError_t unsupported(const char *what) {
    static std::set<std::string> &said = *new std::set<std::string>;
    if (said.insert(what).second) fprintf(stderr, "cuda_on_host: %s is not supported\n", what);
    return cudaErrorNotSupported;
}

/* ------------------------------------------------------------------ devices */

static const char uuid_bytes[17] = "cuda-on-host-\0\0\0";

static std::string uuid_text(int device) {
    std::string text = "GPU-";
    for (int i = 0; i < 16; i++) {
        char two[8];
        snprintf(two, sizeof two, "%02x%s", (unsigned char)(i == 15 ? device : uuid_bytes[i]),
                 i == 3 || i == 5 || i == 7 || i == 9 ? "-" : "");
        text += two;
    }
    return text;
}

/* CUDA_VISIBLE_DEVICES: those before the first that is none. */
static int count_devices() {
    const char *text = getenv("CUDA_ON_HOST_DEVICES"), *visible = getenv("CUDA_VISIBLE_DEVICES");
    int there = text == nullptr ? 1 : atoi(text), count = 0;
    if (there < 1 || there > DEVICES_MAX) there = 1;
    if (visible == nullptr) return there;
    for (std::string rest = visible; !rest.empty(); count++) {
        size_t comma = rest.find(',');
        std::string name = rest.substr(0, comma);
        int device = -1;
        for (int d = 0; d < there; d++)
            if (name == std::to_string(d) || name == uuid_text(d)) device = d;
        if (device != count) break; /* in another order: no test has it */
        rest = comma == std::string::npos ? "" : rest.substr(comma + 1);
    }
    return count;
}

int device_count() {
    static int count = -1;
    if (count < 0) count = count_devices();
    return count;
}

/* ------------------------------------------------------------------ each call */

static void after_fork_in_child() {
    if (started) in_fork.store(true);
}

/* The lock must not be a parent's other thread's; in a child it is never taken. */
static void start() {
    if (started) return;
    pthread_atfork(nullptr, nullptr, after_fork_in_child);
    watch_exit();
    device_start_thread();
    started = true;
}

context_t *primary_context(int device) {
    if (primary[device] == nullptr) {
        primary[device] = new context_t{device, true, {}, nullptr, {}};
        primary[device]->legacy = stream_new(primary[device]);
        contexts.insert(primary[device]);
    }
    return primary[device];
}

context_t *current_context() {
    return self.stack.empty() ? nullptr : self.stack.back();
}

static cudaError_t enter(const char *name, need_t need) {
    if (self.callback) {
        fprintf(stderr, "cuda_on_host: %s was called by a user object's destructor\n", name);
        abort();
    }
    if (need == NOTHING_NEEDED) return cudaSuccess;
    if (device_count() == 0) return cudaErrorNoDevice;
    start();
    if (need == UNSAFE_IN_CAPTURE && captures_forbid()) return cudaErrorStreamCaptureUnsupported;
    return cudaSuccess;
}

cudaError_t runtime_call(const char *name, need_t need,
                         const std::function<cudaError_t(std::unique_lock<std::mutex> &held)> &body) {
    cudaError_t error = cudaErrorInitializationError;
    if (!forked()) {
        std::unique_lock<std::mutex> held(lock);
        error = enter(name, need);
        if (error == cudaSuccess && need >= CONTEXT_NEEDED && self.stack.empty())
            self.stack.push_back(primary_context(self.device)); /* as the runtime does, and the driver does not */
        if (error == cudaSuccess) error = body(held);
    }
    if (error != cudaSuccess) self.last_error = error;
    nothing_made();
    return error;
}

/* Both have the same numbers for the errors that are here. */
CUresult driver_call(const char *name, need_t need,
                     const std::function<cudaError_t(std::unique_lock<std::mutex> &held)> &body) {
    if (forked()) return CUDA_ERROR_NOT_INITIALIZED;
    std::unique_lock<std::mutex> held(lock);
    cudaError_t error = enter(name, need);
    if (error == cudaSuccess && need >= CONTEXT_NEEDED && self.stack.empty()) error = cudaErrorDeviceUninitialized;
    if (error == cudaSuccess) error = body(held);
    return (CUresult)error;
}

void wait_for_context(std::unique_lock<std::mutex> &held, context_t *context) {
    std::vector<item_p> all = std::move(context->orphans);
    for (const stream_t *stream : context->streams) all.push_back(stream->last);
    for (const item_p &item : all) item_wait(held, item);
}

} // namespace host_cuda

using namespace host_cuda;
typedef std::unique_lock<std::mutex> held_t;

/* ------------------------------------------------------------------ the runtime's functions */

extern "C" {

cudaError_t cudaGetDeviceCount(int *count_p) {
    return runtime_call(__func__, DEVICE_NEEDED, [&](held_t &) {
        *count_p = device_count();
        return cudaSuccess;
    });
}

cudaError_t cudaGetDevice(int *device_p) {
    return runtime_call(__func__, DEVICE_NEEDED, [&](held_t &) {
        *device_p = self.stack.empty() ? self.device : self.stack.back()->device;
        return cudaSuccess;
    });
}

cudaError_t cudaSetDevice(int device) {
    return runtime_call(__func__, DEVICE_NEEDED, [&](held_t &) {
        if (device < 0 || device >= device_count()) return cudaErrorInvalidDevice;
        self.device = device;
        if (self.stack.empty()) self.stack.push_back(nullptr);
        self.stack.back() = primary_context(device);
        return cudaSuccess;
    });
}

cudaError_t cudaDeviceSynchronize(void) {
    return runtime_call(__func__, UNSAFE_IN_CAPTURE, [&](held_t &held) {
        for (stream_t *stream : current_context()->streams)
            if (stream->capture != nullptr) return capture_spoil(stream); /* it waits for all of them: in any mode */
        wait_for_context(held, current_context());
        return cudaSuccess;
    });
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp *properties_p, int device) {
    return runtime_call(__func__, DEVICE_NEEDED, [&](held_t &) {
        if (device < 0 || device >= device_count()) return cudaErrorInvalidDevice;
        memset(properties_p, 0, sizeof *properties_p);
        snprintf(properties_p->name, sizeof properties_p->name, "this machine as a GPU");
        memcpy(properties_p->uuid.bytes, uuid_bytes, 16);
        properties_p->uuid.bytes[15] = (char)device;
        properties_p->major = 9;
        properties_p->multiProcessorCount = SMS;
        properties_p->maxThreadsPerBlock = properties_p->maxThreadsPerMultiProcessor = SM_THREADS;
        properties_p->totalGlobalMem = (size_t)1 << 36;
        properties_p->warpSize = 32;
        return cudaSuccess;
    });
}

cudaError_t cudaDeviceGetPCIBusId(char *text, int bytes, int device) {
    return runtime_call(__func__, DEVICE_NEEDED, [&](held_t &) {
        if (device < 0 || device >= device_count()) return cudaErrorInvalidDevice;
        snprintf(text, (size_t)bytes, "0000:%02x:00.0", 0xf0 + device);
        return cudaSuccess;
    });
}

cudaError_t cudaDeviceGetAttribute(int *value_p, cudaDeviceAttr attribute, int device) {
    return runtime_call(__func__, DEVICE_NEEDED, [&](held_t &) {
        if (device < 0 || device >= device_count()) return cudaErrorInvalidDevice;
        switch (attribute) {
        case cudaDevAttrMultiProcessorCount:
            *value_p = SMS;
            return cudaSuccess;
        case cudaDevAttrPageableMemoryAccess:
            *value_p = 0;
            return cudaSuccess;
        case cudaDevAttrComputeCapabilityMajor:
            *value_p = 9;
            return cudaSuccess;
        case cudaDevAttrComputeCapabilityMinor:
            *value_p = 0;
            return cudaSuccess;
        default:
            return unsupported("an attribute of a device");
        }
    });
}

cudaError_t cudaDeviceGetP2PAttribute(int *value_p, cudaDeviceP2PAttr, int one, int other) {
    return runtime_call(__func__, DEVICE_NEEDED, [&](held_t &) {
        if (one < 0 || other < 0 || one >= device_count() || other >= device_count()) return cudaErrorInvalidDevice;
        *value_p = one != other;
        return cudaSuccess;
    });
}

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes *attributes_p, const void *kernel) {
    return runtime_call(__func__, CONTEXT_NEEDED, [&](held_t &) {
        if (kernel == nullptr) return cudaErrorInvalidDeviceFunction;
        *attributes_p = {};
        attributes_p->maxThreadsPerBlock = SM_THREADS;
        return cudaSuccess;
    });
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks_p, const void *kernel, int threads, size_t) {
    return runtime_call(__func__, CONTEXT_NEEDED, [&](held_t &) {
        if (kernel == nullptr || threads <= 0) return cudaErrorInvalidValue;
        *blocks_p = SM_THREADS / threads;
        return cudaSuccess;
    });
}

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode *mode_p) {
    return runtime_call(__func__, DEVICE_NEEDED, [&](held_t &) {
        std::swap(self.mode, *mode_p);
        return cudaSuccess;
    });
}

cudaError_t cudaGetLastError(void) {
    cudaError_t error = self.last_error;
    self.last_error = cudaSuccess;
    return error;
}

cudaError_t cudaPeekAtLastError(void) {
    return self.last_error;
}

const char *cudaGetErrorName(cudaError_t error) {
    switch (error) {
#define NAME(name)                                                                                                     \
    case name:                                                                                                         \
        return #name;
        NAME(cudaSuccess)
        NAME(cudaErrorInvalidValue)
        NAME(cudaErrorMemoryAllocation)
        NAME(cudaErrorInitializationError)
        NAME(cudaErrorInvalidConfiguration)
        NAME(cudaErrorNoDevice)
        NAME(cudaErrorInvalidDevice)
        NAME(cudaErrorDeviceUninitialized)
        NAME(cudaErrorInvalidResourceHandle)
        NAME(cudaErrorNotReady)
        NAME(cudaErrorHostMemoryAlreadyRegistered)
        NAME(cudaErrorHostMemoryNotRegistered)
        NAME(cudaErrorNotPermitted)
        NAME(cudaErrorNotSupported)
        NAME(cudaErrorNoKernelImageForDevice)
        NAME(cudaErrorStreamCaptureUnsupported)
        NAME(cudaErrorStreamCaptureInvalidated)
        NAME(cudaErrorStreamCaptureUnjoined)
        NAME(cudaErrorStreamCaptureImplicit)
        NAME(cudaErrorCapturedEvent)
        NAME(cudaErrorStreamCaptureWrongThread)
        NAME(cudaErrorUnknown)
#undef NAME
    default:
        return "an error without a name";
    }
}

const char *cudaGetErrorString(cudaError_t error) {
    return cudaGetErrorName(error);
}

cudaError_t cudaGetDriverEntryPointByVersion(const char *name, void **function_p, unsigned, unsigned long long,
                                             cudaDriverEntryPointQueryResult *found_p) {
    *function_p = driver_function(name);
    *found_p = *function_p != nullptr ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
    if (*function_p == nullptr) unsupported(name);
    return cudaSuccess;
}

} /* extern "C" */

/* ------------------------------------------------------------------ the driver's */

namespace host_cuda {

static CUresult GetErrorName(CUresult error, const char **text_p) {
    *text_p = cudaGetErrorName((cudaError_t)error);
    return CUDA_SUCCESS;
}

static CUresult CtxGetCurrent(CUcontext *context_p) {
    return driver_call("cuCtxGetCurrent", NOTHING_NEEDED, [&](held_t &) {
        *context_p = (CUcontext)current_context();
        return cudaSuccess;
    });
}

static CUresult CtxGetDevice(CUdevice *device_p) {
    return driver_call("cuCtxGetDevice", CONTEXT_NEEDED, [&](held_t &) {
        *device_p = current_context()->device;
        return cudaSuccess;
    });
}

static CUresult CtxPushCurrent(CUcontext handle) {
    return driver_call("cuCtxPushCurrent", DEVICE_NEEDED, [&](held_t &) {
        if (contexts.count((context_t *)handle) == 0) return cudaErrorDeviceUninitialized;
        self.stack.push_back((context_t *)handle);
        return cudaSuccess;
    });
}

static CUresult CtxPopCurrent(CUcontext *context_p) {
    return driver_call("cuCtxPopCurrent", CONTEXT_NEEDED, [&](held_t &) {
        *context_p = (CUcontext)self.stack.back();
        self.stack.pop_back();
        return cudaSuccess;
    });
}

static CUresult CtxEnablePeerAccess(CUcontext handle, unsigned) {
    return driver_call("cuCtxEnablePeerAccess", CONTEXT_NEEDED, [&](held_t &) {
        static std::set<std::pair<context_t *, context_t *>> &enabled =
            *new std::set<std::pair<context_t *, context_t *>>;
        if (contexts.count((context_t *)handle) == 0) return cudaErrorDeviceUninitialized;
        bool fresh = enabled.insert({current_context(), (context_t *)handle}).second;
        return fresh ? cudaSuccess : cudaErrorPeerAccessAlreadyEnabled;
    });
}

static CUresult CtxCreate(CUcontext *context_p, unsigned, CUdevice device) {
    return driver_call("cuCtxCreate", DEVICE_NEEDED, [&](held_t &) {
        if (device < 0 || device >= device_count()) return cudaErrorInvalidDevice;
        context_t *context = new context_t{device, false, {}, nullptr, {}};
        context->legacy = stream_new(context);
        contexts.insert(context);
        self.stack.push_back(context);
        *context_p = (CUcontext)context;
        return cudaSuccess;
    });
}

static CUresult DeviceGet(CUdevice *device_p, int ordinal) {
    return driver_call("cuDeviceGet", DEVICE_NEEDED, [&](held_t &) {
        if (ordinal < 0 || ordinal >= device_count()) return cudaErrorInvalidDevice;
        *device_p = ordinal;
        return cudaSuccess;
    });
}

static CUresult DeviceGetAttribute(int *value_p, CUdevice_attribute attribute, CUdevice) {
    return driver_call("cuDeviceGetAttribute", DEVICE_NEEDED, [&](held_t &) {
        *value_p = attribute == CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED ||
                   attribute == CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED;
        if (*value_p != 0 || attribute == CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS) return cudaSuccess;
        return unsupported("an attribute of a device");
    });
}

static CUresult DevicePrimaryCtxRetain(CUcontext *context_p, CUdevice device) {
    return driver_call("cuDevicePrimaryCtxRetain", DEVICE_NEEDED, [&](held_t &) {
        if (device < 0 || device >= device_count()) return cudaErrorInvalidDevice;
        *context_p = (CUcontext)primary_context(device);
        return cudaSuccess;
    });
}

static CUresult DevicePrimaryCtxGetState(CUdevice device, unsigned *flags_p, int *active_p) {
    return driver_call("cuDevicePrimaryCtxGetState", DEVICE_NEEDED, [&](held_t &) {
        *flags_p = 0;
        *active_p = primary[device] != nullptr;
        return cudaSuccess;
    });
}

const driver_row_t context_functions[] = {
    {"cuGetErrorName", (void *)GetErrorName},
    {"cuGetErrorString", (void *)GetErrorName},
    {"cuCtxGetCurrent", (void *)CtxGetCurrent},
    {"cuCtxGetDevice", (void *)CtxGetDevice},
    {"cuCtxPushCurrent", (void *)CtxPushCurrent},
    {"cuCtxPopCurrent", (void *)CtxPopCurrent},
    {"cuCtxEnablePeerAccess", (void *)CtxEnablePeerAccess},
    {"cuCtxCreate", (void *)CtxCreate},
    {"cuDeviceGet", (void *)DeviceGet},
    {"cuDeviceGetAttribute", (void *)DeviceGetAttribute},
    {"cuDevicePrimaryCtxRetain", (void *)DevicePrimaryCtxRetain},
    {"cuDevicePrimaryCtxGetState", (void *)DevicePrimaryCtxGetState},
    {nullptr, nullptr},
};

void *driver_function(const char *name) {
    for (const driver_row_t *table : {context_functions, memory_functions, stream_functions})
        for (const driver_row_t *row = table; row->name != nullptr; row++)
            if (strcmp(row->name, name) == 0) return row->function;
    return nullptr;
}

} // namespace host_cuda
