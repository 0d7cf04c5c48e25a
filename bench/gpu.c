/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "gpu_driver.h"
#include "ranks.h"

#if BENCH_CUDA
#include "kernels.h"
#endif

typedef int (*any_fn)(void);
typedef bench_handle_t handle_t;
typedef bench_address_t address_t;

enum {
    CU_OUT_OF_MEMORY = 2,
    CU_STREAM_NON_BLOCKING = 1,
    CU_EVENT_DEFAULT = 0,
    CU_CAPTURE_THREAD_LOCAL = 1,
    CU_ATTRIBUTE_MULTIPROCESSORS = 16,
    CU_ATTRIBUTE_L2_BYTES = 38,
    NVML_CLOCK_SM = 1,
    NVML_CLOCK_MEMORY = 2,
    NVML_TEMPERATURE_GPU = 0
};

/* X(name here, symbol, parameters); every one returns a CUresult. */
#define DRIVER_LIST(X)                                                                                                 \
    X(init, "cuInit", (unsigned flags))                                                                                \
    X(driver_version, "cuDriverGetVersion", (int *version))                                                            \
    X(error_name, "cuGetErrorName", (int error, const char **text))                                                    \
    X(error_text, "cuGetErrorString", (int error, const char **text))                                                  \
    X(count, "cuDeviceGetCount", (int *count))                                                                         \
    X(device, "cuDeviceGet", (int *device, int ordinal))                                                               \
    X(name, "cuDeviceGetName", (char *name, int bytes, int device))                                                    \
    X(bus_id, "cuDeviceGetPCIBusId", (char *bus_id, int bytes, int device))                                            \
    X(memory, "cuDeviceTotalMem_v2", (size_t * bytes, int device))                                                     \
    X(attribute, "cuDeviceGetAttribute", (int *value, int attribute, int device))                                      \
    X(retain, "cuDevicePrimaryCtxRetain", (handle_t * context, int device))                                            \
    X(release, "cuDevicePrimaryCtxRelease_v2", (int device))                                                           \
    X(set_current, "cuCtxSetCurrent", (handle_t context))                                                              \
    X(alloc, "cuMemAlloc_v2", (address_t * memory, size_t bytes))                                                      \
    X(free, "cuMemFree_v2", (address_t memory))                                                                        \
    X(memory_info, "cuMemGetInfo_v2", (size_t * free_bytes, size_t * total))                                           \
    X(alloc_host, "cuMemHostAlloc", (void **memory, size_t bytes, unsigned flags))                                     \
    X(free_host, "cuMemFreeHost", (void *memory))                                                                      \
    X(put, "cuMemcpyHtoDAsync_v2", (address_t to, const void *from, size_t bytes, handle_t stream))                    \
    X(get, "cuMemcpyDtoHAsync_v2", (void *to, address_t from, size_t bytes, handle_t stream))                          \
    X(copy, "cuMemcpyDtoDAsync_v2", (address_t to, address_t from, size_t bytes, handle_t stream))                     \
    X(fill, "cuMemsetD8Async", (address_t to, unsigned char value, size_t bytes, handle_t stream))                     \
    X(stream_new, "cuStreamCreate", (handle_t * stream, unsigned flags))                                               \
    X(stream_free, "cuStreamDestroy_v2", (handle_t stream))                                                            \
    X(stream_sync, "cuStreamSynchronize", (handle_t stream))                                                           \
    X(capture_begin, "cuStreamBeginCapture_v2", (handle_t stream, int mode))                                           \
    X(capture_end, "cuStreamEndCapture", (handle_t stream, handle_t * graph))                                          \
    X(instantiate, "cuGraphInstantiateWithFlags", (handle_t * exec, handle_t graph, unsigned long long flags))         \
    X(upload, "cuGraphUpload", (handle_t exec, handle_t stream))                                                       \
    X(launch, "cuGraphLaunch", (handle_t exec, handle_t stream))                                                       \
    X(exec_free, "cuGraphExecDestroy", (handle_t exec))                                                                \
    X(graph_free, "cuGraphDestroy", (handle_t graph))                                                                  \
    X(event_new, "cuEventCreate", (handle_t * event, unsigned flags))                                                  \
    X(event_free, "cuEventDestroy_v2", (handle_t event))                                                               \
    X(event_record, "cuEventRecord", (handle_t event, handle_t stream))                                                \
    X(event_sync, "cuEventSynchronize", (handle_t event))                                                              \
    X(elapsed, "cuEventElapsedTime", (float *ms, handle_t from, handle_t to))

#define NVML_LIST(X)                                                                                                   \
    X(init, "nvmlInit_v2", (void))                                                                                     \
    X(device, "nvmlDeviceGetHandleByPciBusId_v2", (const char *bus_id, handle_t *device))                              \
    X(clock, "nvmlDeviceGetClockInfo", (handle_t device, int type, unsigned *mhz))                                     \
    X(max_clock, "nvmlDeviceGetMaxClockInfo", (handle_t device, int type, unsigned *mhz))                              \
    X(throttle, "nvmlDeviceGetCurrentClocksThrottleReasons", (handle_t device, unsigned long long *reasons))           \
    X(temperature, "nvmlDeviceGetTemperature", (handle_t device, int sensor, unsigned *celsius))

#define POINTER(name, symbol, parameters) int(*name) parameters;
#define SYMBOL(name, symbol, parameters)  symbol,

static struct { DRIVER_LIST(POINTER) } cu;
static const char *const cu_symbols[] = {DRIVER_LIST(SYMBOL)};

static struct { NVML_LIST(POINTER) } nvml;
static const char *const nvml_symbols[] = {NVML_LIST(SYMBOL)};

struct bench_gpu {
    bench_gpu_facts_t facts;
    int device;
    handle_t context, stream, side, marks[BENCH_GPU_MARKS], nvml_device;
    uint64_t *words; /* pinned: what the clock kernel and this thread tell each other */
};

struct bench_graph {
    handle_t graph, exec;
};

/* ---------------------------------------------------------------- loading */

static pthread_once_t driver_once = PTHREAD_ONCE_INIT, nvml_once = PTHREAD_ONCE_INIT;
static char driver_missing[384]; /* "": the driver is loaded */
static bool nvml_loaded;

static void *driver_library;

bool bench_load_symbols(void *library, const char *const *symbols, size_t count, void *pointers) {
    for (size_t i = 0; i < count; i++) {
        void *symbol = dlsym(library, symbols[i]);
        if (!symbol) return false;
        memcpy((char *)pointers + i * sizeof(any_fn), &symbol, sizeof symbol);
    }
    return true;
}

static const char *cu_text(int error) {
    const char *name = NULL;
    return cu.error_name && cu.error_name(error, &name) == 0 && name ? name : "unknown CUDA error";
}

static void load_driver(void) {
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    bool whole = library && bench_load_symbols(library, cu_symbols, sizeof cu_symbols / sizeof cu_symbols[0], &cu);
    if (!whole) {
        const char *why = dlerror();
        snprintf(driver_missing, sizeof driver_missing, "no CUDA driver: %.300s", why ? why : "libcuda.so.1");
        return;
    }
    driver_library = library;
    int error = cu.init(0);
    if (error != 0)
        snprintf(driver_missing, sizeof driver_missing, "the CUDA driver does not start: %s", cu_text(error));
}

static void load_nvml(void) {
    void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    nvml_loaded = library &&
                  bench_load_symbols(library, nvml_symbols, sizeof nvml_symbols / sizeof nvml_symbols[0], &nvml) &&
                  nvml.init() == 0;
}

static tpcomm_status_t need_driver(void) {
    pthread_once(&driver_once, load_driver);
    return driver_missing[0] ? tpc_error(TPCOMM_ERR_UNSUPPORTED, "%s", driver_missing) : TPCOMM_OK;
}

void *bench_driver_library(void) {
    return driver_library;
}

tpcomm_status_t bench_driver_check(int error, const char *what) {
    const char *text = NULL;
    if (error == 0) return TPCOMM_OK;
    if (cu.error_text(error, &text) != 0 || !text) text = "no text";
    return tpc_error(error == CU_OUT_OF_MEMORY ? TPCOMM_ERR_NO_MEMORY : TPCOMM_ERR_DEVICE, "%s: %s (%s)", what,
                     cu_text(error), text);
}

static tpcomm_status_t check(int error, const char *what) {
    return bench_driver_check(error, what);
}

void bench_gpu_environment(void) {
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0); /* else streams of ranks on one GPU may share a queue */
    setenv("CUDA_MODULE_LOADING", "EAGER", 0);      /* else a kernel's first use waits for one that waits for a peer */
}

tpcomm_status_t bench_gpu_count(int32_t *count_p) {
    int count = 0;
    tpcomm_status_t status = need_driver();
    if (status == TPCOMM_OK) status = check(cu.count(&count), "cannot count the GPUs");
    if (status == TPCOMM_OK) *count_p = count;
    return status;
}

/* ---------------------------------------------------------------- a device */

static tpcomm_status_t read_facts(bench_gpu_t *gpu) {
    size_t bytes = 0;
    tpcomm_status_t status =
        check(cu.name(gpu->facts.name, (int)sizeof gpu->facts.name, gpu->device), "a GPU without a name");
    if (status == TPCOMM_OK)
        status = check(cu.bus_id(gpu->facts.bus_id, (int)sizeof gpu->facts.bus_id, gpu->device), "a GPU without a bus");
    if (status == TPCOMM_OK) status = check(cu.memory(&bytes, gpu->device), "a GPU without memory");
    if (status == TPCOMM_OK) status = check(cu.driver_version(&gpu->facts.driver_version), "a driver without version");
    gpu->facts.memory_bytes = bytes;
    int l2 = 0;
    if (status == TPCOMM_OK)
        status = check(cu.attribute(&gpu->facts.sms, CU_ATTRIBUTE_MULTIPROCESSORS, gpu->device), "a GPU's size");
    if (status == TPCOMM_OK) status = check(cu.attribute(&l2, CU_ATTRIBUTE_L2_BYTES, gpu->device), "a GPU's cache");
    gpu->facts.l2_bytes = l2 > 0 ? (uint64_t)l2 : 0;
    pthread_once(&nvml_once, load_nvml);
    if (nvml_loaded && nvml.device(gpu->facts.bus_id, &gpu->nvml_device) != 0) gpu->nvml_device = NULL;
    return status;
}

/* Where ranks share the GPU, a stream's first kernel must not wait for one that waits for it (docs/gpu.md). */
static tpcomm_status_t run_first(handle_t stream) {
    const size_t bytes = 64 << 10;
    address_t memory = 0;
    tpcomm_status_t status = check(cu.alloc(&memory, bytes), "no GPU memory");
    if (status == TPCOMM_OK) status = check(cu.fill(memory, 0, bytes, stream), "cannot fill GPU memory");
    if (status == TPCOMM_OK) status = check(cu.stream_sync(stream), "the GPU's work failed");
    if (memory) cu.free(memory);
    return status;
}

tpcomm_status_t bench_gpu_open(int32_t ordinal, bench_gpu_t **gpu_p) {
    int32_t count = 0;
    tpcomm_status_t status = bench_gpu_count(&count);
    if (status != TPCOMM_OK) return status;
    if (ordinal < 0 || ordinal >= count)
        return tpc_error(TPCOMM_ERR_UNSUPPORTED, "GPU %d was asked for, but this process sees %d", ordinal, count);
    bench_gpu_t *gpu = calloc(1, sizeof *gpu);
    if (!gpu) return tpc_error(TPCOMM_ERR_NO_MEMORY, "no memory");
    gpu->facts.ordinal = ordinal;
    status = check(cu.device(&gpu->device, ordinal), "cannot get the GPU");
    if (status == TPCOMM_OK) status = read_facts(gpu);
    if (status == TPCOMM_OK) status = check(cu.retain(&gpu->context, gpu->device), "cannot get the GPU's context");
    if (status == TPCOMM_OK) status = check(cu.set_current(gpu->context), "cannot use the GPU's context");
    if (status == TPCOMM_OK)
        status = check(cu.stream_new(&gpu->stream, CU_STREAM_NON_BLOCKING), "cannot make a stream");
    if (status == TPCOMM_OK)
        status = check(cu.stream_new(&gpu->side, CU_STREAM_NON_BLOCKING), "cannot make a second stream");
    if (status == TPCOMM_OK) status = run_first(gpu->stream);
    if (status == TPCOMM_OK) status = run_first(gpu->side);
    for (size_t i = 0; i < BENCH_GPU_MARKS && status == TPCOMM_OK; i++)
        status = check(cu.event_new(&gpu->marks[i], CU_EVENT_DEFAULT), "cannot make an event");
    if (status != TPCOMM_OK) {
        bench_gpu_close(gpu);
        return status;
    }
    *gpu_p = gpu;
    return TPCOMM_OK;
}

void bench_gpu_close(bench_gpu_t *gpu) {
    if (!gpu) return;
    for (size_t i = 0; i < BENCH_GPU_MARKS; i++)
        if (gpu->marks[i]) cu.event_free(gpu->marks[i]);
    if (gpu->words) cu.free_host(gpu->words);
    if (gpu->side) cu.stream_free(gpu->side);
    if (gpu->stream) cu.stream_free(gpu->stream);
    if (gpu->context) cu.release(gpu->device);
    free(gpu);
}

const bench_gpu_facts_t *bench_gpu_facts(const bench_gpu_t *gpu) {
    return &gpu->facts;
}

void bench_gpu_clocks(const bench_gpu_t *gpu, bench_gpu_clocks_t *clocks_p) {
    unsigned sm = 0, sm_max = 0, memory = 0, celsius = 0;
    unsigned long long reasons = 0;
    memset(clocks_p, 0, sizeof *clocks_p);
    if (!gpu->nvml_device || nvml.clock(gpu->nvml_device, NVML_CLOCK_SM, &sm) != 0) return;
    if (nvml.max_clock(gpu->nvml_device, NVML_CLOCK_SM, &sm_max) != 0) sm_max = 0;
    if (nvml.clock(gpu->nvml_device, NVML_CLOCK_MEMORY, &memory) != 0) memory = 0;
    if (nvml.throttle(gpu->nvml_device, &reasons) != 0) reasons = 0;
    if (nvml.temperature(gpu->nvml_device, NVML_TEMPERATURE_GPU, &celsius) != 0) celsius = 0;
    *clocks_p = (bench_gpu_clocks_t){true, sm, sm_max, memory, celsius, reasons};
}

tpcomm_stream_t bench_gpu_stream(const bench_gpu_t *gpu) {
    return gpu->stream;
}

bench_handle_t bench_gpu_handle(const bench_gpu_t *gpu, int side) {
    return side ? gpu->side : gpu->stream;
}

bench_handle_t bench_graph_handle(const bench_graph_t *graph) {
    return graph->graph;
}

/* ---------------------------------------------------------------- memory */

static address_t address(const void *memory) {
    return (address_t)(uintptr_t)memory;
}

tpcomm_status_t bench_gpu_alloc(bench_gpu_t *gpu, uint64_t bytes, void **memory_p) {
    address_t memory = 0;
    (void)gpu;
    tpcomm_status_t status = check(cu.alloc(&memory, (size_t)bytes), "no GPU memory for the buffers");
    if (status == TPCOMM_OK) *memory_p = (void *)(uintptr_t)memory;
    return status;
}

void bench_gpu_free(bench_gpu_t *gpu, void *memory) {
    (void)gpu;
    if (memory) cu.free(address(memory));
}

tpcomm_status_t bench_gpu_free_bytes(const bench_gpu_t *gpu, uint64_t *bytes_p) {
    size_t free_bytes = 0, total = 0;
    (void)gpu;
    tpcomm_status_t status = check(cu.memory_info(&free_bytes, &total), "ask how much GPU memory is free");
    if (status == TPCOMM_OK) *bytes_p = free_bytes;
    return status;
}

tpcomm_status_t bench_gpu_alloc_host(bench_gpu_t *gpu, uint64_t bytes, void **memory_p) {
    (void)gpu;
    return check(cu.alloc_host(memory_p, (size_t)bytes, 0), "no pinned host memory");
}

void bench_gpu_free_host(bench_gpu_t *gpu, void *memory) {
    (void)gpu;
    if (memory) cu.free_host(memory);
}

tpcomm_status_t bench_gpu_put(bench_gpu_t *gpu, void *to_device, const void *from_host, uint64_t bytes) {
    return check(cu.put(address(to_device), from_host, (size_t)bytes, gpu->stream), "copy to the GPU");
}

tpcomm_status_t bench_gpu_get(bench_gpu_t *gpu, void *to_host, const void *from_device, uint64_t bytes) {
    return check(cu.get(to_host, address(from_device), (size_t)bytes, gpu->stream), "copy from the GPU");
}

tpcomm_status_t bench_gpu_copy(bench_gpu_t *gpu, void *to_device, const void *from_device, uint64_t bytes) {
    return check(cu.copy(address(to_device), address(from_device), (size_t)bytes, gpu->stream), "copy on the GPU");
}

tpcomm_status_t bench_gpu_fill(bench_gpu_t *gpu, void *device, uint8_t value, uint64_t bytes) {
    return check(cu.fill(address(device), value, (size_t)bytes, gpu->stream), "fill GPU memory");
}

tpcomm_status_t bench_gpu_sync(bench_gpu_t *gpu) {
    return check(cu.stream_sync(gpu->stream), "the GPU's work failed");
}

/* ---------------------------------------------------------------- the bench's kernels */

#if BENCH_CUDA
#define KERNEL(call, what) check(call, what)
#else
#define KERNEL(call, what) tpc_error(TPCOMM_ERR_UNSUPPORTED, "this build has no kernels of its own: %s", what)
#endif

tpcomm_status_t bench_gpu_load_kernels(bench_gpu_t *gpu) {
    tpcomm_status_t status = KERNEL(bench_kernel_load(), "load the bench's kernels");
    if (status != TPCOMM_OK || gpu->words) return status;
    void *words = NULL;
    status = bench_gpu_alloc_host(gpu, 4096, &words);
    gpu->words = words;
    return status;
}

tpcomm_status_t bench_gpu_nothing(bench_gpu_t *gpu) {
    (void)gpu;
    return KERNEL(bench_kernel_nothing(gpu->stream), "launch a kernel that does nothing");
}

tpcomm_status_t bench_gpu_pass(bench_gpu_t *gpu, void *to, const void *from, uint64_t bytes, void *spoil,
                               uint64_t spoil_bytes) {
    (void)gpu, (void)to, (void)from, (void)bytes, (void)spoil, (void)spoil_bytes;
    return KERNEL(bench_kernel_copy(to, from, bytes, spoil, spoil_bytes, gpu->stream), "launch a copying kernel");
}

tpcomm_status_t bench_gpu_stamp(bench_gpu_t *gpu, uint64_t *slot) {
    (void)gpu, (void)slot;
    return KERNEL(bench_kernel_stamp(slot, gpu->stream), "launch a kernel that looks at the clock");
}

enum { CLOCK_ROUNDS = 200, CLOCK_LIMIT_MS = 100 };

/** One question and answer; false: no answer came. */
static bool ask_clock(volatile uint64_t *words, uint64_t round, int64_t *add_p, uint64_t *error_p) {
    uint64_t asked = tpc_clock_ns(), end = asked + CLOCK_LIMIT_MS * UINT64_C(1000000), now = asked;
    __atomic_store_n(&words[0], round, __ATOMIC_RELEASE);
    while (__atomic_load_n(&words[2], __ATOMIC_ACQUIRE) < round)
        if ((now = tpc_clock_ns()) > end) return false;
    now = tpc_clock_ns();
    *error_p = (now - asked) / 2;
    *add_p = (int64_t)(asked + *error_p - words[1]);
    return true;
}

/* The shortest of many trips over PCIe and back has the middle that is nearest to the truth. */
tpcomm_status_t bench_gpu_clock_offset(bench_gpu_t *gpu, int64_t *add_ns_p, double *error_ns_p) {
    int64_t best_add = 0;
    uint64_t best_error = UINT64_MAX;
    if (!gpu->words) return tpc_error(TPCOMM_ERR_INVALID_STATE, "the bench's kernels are not loaded");
    memset(gpu->words, 0, 3 * sizeof *gpu->words);
    tpcomm_status_t status =
        KERNEL(bench_kernel_answer(gpu->words, CLOCK_ROUNDS, CLOCK_LIMIT_MS * UINT64_C(1000000), gpu->stream),
               "launch a kernel that tells the time");
    bool answered = status == TPCOMM_OK;
    for (uint64_t round = 1; round <= CLOCK_ROUNDS && answered; round++) {
        int64_t add = 0;
        uint64_t error = 0;
        answered = ask_clock(gpu->words, round, &add, &error);
        if (answered && error < best_error) best_error = error, best_add = add;
    }
    if (status == TPCOMM_OK) status = bench_gpu_sync(gpu);
    if (status == TPCOMM_OK && !answered) status = tpc_error(TPCOMM_ERR_DEVICE, "the GPU does not tell the time");
    if (status != TPCOMM_OK) return status;
    *add_ns_p = best_add;
    *error_ns_p = (double)best_error;
    return TPCOMM_OK;
}

/* ---------------------------------------------------------------- time */

tpcomm_status_t bench_gpu_mark(bench_gpu_t *gpu, uint32_t mark) {
    return check(cu.event_record(gpu->marks[mark], gpu->stream), "record an event");
}

tpcomm_status_t bench_gpu_sync_side(bench_gpu_t *gpu) {
    return check(cu.stream_sync(gpu->side), "the GPU's work failed");
}

tpcomm_status_t bench_gpu_mark_side(bench_gpu_t *gpu, uint32_t mark) {
    return check(cu.event_record(gpu->marks[mark], gpu->side), "record an event");
}

tpcomm_status_t bench_gpu_wait(bench_gpu_t *gpu, uint32_t mark) {
    return check(cu.event_sync(gpu->marks[mark]), "the GPU's work failed");
}

tpcomm_status_t bench_gpu_between(bench_gpu_t *gpu, uint32_t from, uint32_t to, double *us_p) {
    float ms = 0;
    tpcomm_status_t status = check(cu.elapsed(&ms, gpu->marks[from], gpu->marks[to]), "time between events");
    if (status == TPCOMM_OK) *us_p = (double)ms * 1000;
    return status;
}

/* ---------------------------------------------------------------- graphs */

tpcomm_status_t bench_gpu_capture_begin(bench_gpu_t *gpu) {
    return check(cu.capture_begin(gpu->stream, CU_CAPTURE_THREAD_LOCAL), "begin a capture");
}

tpcomm_status_t bench_gpu_capture_end(bench_gpu_t *gpu, bench_graph_t **graph_p) {
    bench_graph_t *graph = calloc(1, sizeof *graph);
    handle_t captured = NULL;
    tpcomm_status_t status = check(cu.capture_end(gpu->stream, &captured), "end a capture");
    if (!graph) {
        if (captured) cu.graph_free(captured);
        return tpc_error(TPCOMM_ERR_NO_MEMORY, "no memory");
    }
    graph->graph = captured;
    if (status == TPCOMM_OK) status = check(cu.instantiate(&graph->exec, captured, 0), "instantiate a graph");
    if (status == TPCOMM_OK) status = check(cu.upload(graph->exec, gpu->stream), "upload a graph");
    if (status == TPCOMM_OK) status = bench_gpu_sync(gpu);
    if (status != TPCOMM_OK) {
        bench_graph_free(graph);
        return status;
    }
    *graph_p = graph;
    return TPCOMM_OK;
}

tpcomm_status_t bench_gpu_launch(bench_gpu_t *gpu, const bench_graph_t *graph) {
    return check(cu.launch(graph->exec, gpu->stream), "launch a graph");
}

void bench_graph_free(bench_graph_t *graph) {
    if (!graph) return;
    if (graph->exec) cu.exec_free(graph->exec);
    if (graph->graph) cu.graph_free(graph->graph);
    free(graph);
}
