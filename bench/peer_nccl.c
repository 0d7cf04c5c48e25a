/* SPDX-License-Identifier: Apache-2.0 */
#include "peer_nccl.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "bench.h"
#include "measure.h"

enum { NCCL_SUCCESS = 0, NCCL_IN_PROGRESS = 7, NCCL_UINT8 = 1, NCCL_WINDOW_SYMMETRIC = 1, WINDOWS_MAX = 2 };

typedef void *handle_t;
typedef struct {
    char bytes[128];
} nccl_id_t;

/* X(name here, symbol, needed, result, parameters). Without the last four there are no windows. */
#define NCCL_LIST(X)                                                                                                   \
    X(version, "ncclGetVersion", 1, int, (int *version))                                                               \
    X(id, "ncclGetUniqueId", 1, int, (nccl_id_t * id))                                                                 \
    X(init, "ncclCommInitRank", 1, int, (handle_t * comm, int size, nccl_id_t id, int rank))                           \
    X(destroy, "ncclCommDestroy", 1, int, (handle_t comm))                                                             \
    X(async_error, "ncclCommGetAsyncError", 1, int, (handle_t comm, int *error))                                       \
    X(error_text, "ncclGetErrorString", 1, const char *, (int error))                                                  \
    X(all_reduce, "ncclAllReduce", 1, int,                                                                             \
      (const void *in, void *out, size_t count, int dtype, int op, handle_t comm, handle_t stream))                    \
    X(broadcast, "ncclBroadcast", 1, int,                                                                              \
      (const void *in, void *out, size_t count, int dtype, int root, handle_t comm, handle_t stream))                  \
    X(all_gather, "ncclAllGather", 1, int,                                                                             \
      (const void *in, void *out, size_t count, int dtype, handle_t comm, handle_t stream))                            \
    X(reduce_scatter, "ncclReduceScatter", 1, int,                                                                     \
      (const void *in, void *out, size_t count, int dtype, int op, handle_t comm, handle_t stream))                    \
    X(mem_alloc, "ncclMemAlloc", 0, int, (void **memory, size_t bytes))                                                \
    X(mem_free, "ncclMemFree", 0, int, (void *memory))                                                                 \
    X(window_new, "ncclCommWindowRegister", 0, int,                                                                    \
      (handle_t comm, void *memory, size_t bytes, handle_t *window, int flags))                                        \
    X(window_free, "ncclCommWindowDeregister", 0, int, (handle_t comm, handle_t window))

#define POINTER(name, symbol, needed, result, parameters) result(*name) parameters;
static struct { NCCL_LIST(POINTER) } nccl_api;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static char load_failed[256], described[320];

struct bench_nccl {
    tpcomm_t *comm; /* NULL: alone */
    handle_t handle;
    void *memory[WINDOWS_MAX];
    handle_t window[WINDOWS_MAX];
    int windows;
};

/* ---------------------------------------------------------------- loading */

static void *open_library(void) {
    const char *given = getenv("TPCOMM_NCCL_PATH");
    struct stat there;
    if (given && given[0] && stat(given, &there) == 0 && !S_ISREG(there.st_mode)) { /* a pipe's writer is waited for */
        snprintf(load_failed, sizeof load_failed, "no NCCL: %.200s is no regular file", given);
        return NULL;
    }
    if (given && given[0]) return dlopen(given, RTLD_NOW | RTLD_LOCAL);
    void *library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
    return library ? library : dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
}

static void describe(int version) {
    Dl_info where;
    void *symbol;
    memcpy(&symbol, &nccl_api.version, sizeof symbol);
    int major = version >= 10000 ? version / 10000 : version / 1000;
    int minor = version >= 10000 ? version / 100 % 100 : version / 100 % 10;
    snprintf(described, sizeof described, "NCCL %d.%d.%d (%.255s)", major, minor, version % 100,
             dladdr(symbol, &where) && where.dli_fname ? where.dli_fname : "?");
}

static void load(void) {
    int version = 0;
    void *library = open_library();
    if (load_failed[0]) return;
    if (!library) {
        const char *why = dlerror();
        snprintf(load_failed, sizeof load_failed, "no NCCL: %.200s", why ? why : "libnccl.so.2");
        return;
    }
#define LOAD(name, symbol, needed, result, parameters)                                                                 \
    {                                                                                                                  \
        void *found = dlsym(library, symbol);                                                                          \
        memcpy(&nccl_api.name, &found, sizeof found);                                                                  \
        if (needed && !found) snprintf(load_failed, sizeof load_failed, "NCCL without %s", symbol);                    \
    }
    NCCL_LIST(LOAD)
#undef LOAD
    if (load_failed[0]) return;
    if (nccl_api.version(&version) != NCCL_SUCCESS)
        snprintf(load_failed, sizeof load_failed, "NCCL does not tell its version");
    describe(version);
}

const char *bench_nccl_text(const bench_nccl_t *nccl) {
    (void)nccl;
    return described;
}

/* ---------------------------------------------------------------- communicators */

/** Every rank takes part; the first that has a reason not to gives it to all. "": none. */
static tpcomm_status_t agree_on_why(tpcomm_t *comm, char *why, size_t bytes) {
    char all[TPCOMM_MAX_RANKS][256], mine[256];
    tpcomm_info_t info = {.struct_size = sizeof info};
    tpcomm_status_t status = tpcomm_comm_info(comm, &info);
    snprintf(mine, sizeof mine, "%s", why);
    if (status == TPCOMM_OK) status = tpcomm_host_all_gather(comm, mine, all, sizeof mine, 0);
    if (status != TPCOMM_OK) return status;
    why[0] = '\0';
    for (int32_t r = 0; r < info.size && !why[0]; r++) snprintf(why, bytes, "%.*s", (int)sizeof mine - 1, all[r]);
    return TPCOMM_OK;
}

static bool shares_gpu(const tpcomm_t *comm, int32_t size) {
    tpcomm_rank_info_t a = {.struct_size = sizeof a}, b = {.struct_size = sizeof b};
    for (int32_t i = 0; i < size; i++)
        for (int32_t k = 0; k < i; k++) {
            if (tpcomm_rank_info(comm, i, &a) != TPCOMM_OK || tpcomm_rank_info(comm, k, &b) != TPCOMM_OK) continue;
            if (a.bus_id[0] && strcmp(a.bus_id, b.bus_id) == 0 && strcmp(a.host, b.host) == 0) return true;
        }
    return false;
}

/** What can be said before anything is tried; "": nothing against it. */
static void why_not_at_all(const bench_device_t *device, char *why, size_t bytes) {
    why[0] = '\0';
    /* A stand-in for NCCL works on host memory, for the bench's own tests. */
    if (!device->gpu && !getenv("TPCOMM_BENCH_NCCL_ON_HOST")) {
        snprintf(why, bytes, "NCCL works on GPUs");
        return;
    }
    pthread_once(&once, load);
    snprintf(why, bytes, "%s", load_failed);
}

static void say(char *why, size_t bytes, const char *what, int error) {
    snprintf(why, bytes, "%s: %s", what, nccl_api.error_text(error));
}

/** What a call has begun may have to be seen to its end. */
static int finish(handle_t handle, int result) {
    while (result == NCCL_IN_PROGRESS) {
        int begun = nccl_api.async_error(handle, &result);
        if (begun != NCCL_SUCCESS) return begun;
    }
    return result;
}

static bench_nccl_t *init(tpcomm_t *comm, const nccl_id_t *id, int32_t rank, int32_t size, char *why, size_t bytes) {
    bench_nccl_t *nccl = calloc(1, sizeof *nccl);
    if (!nccl) {
        snprintf(why, bytes, "no memory");
        return NULL;
    }
    nccl->comm = comm;
    int result = nccl_api.init(&nccl->handle, size, *id, rank);
    if (nccl->handle) result = finish(nccl->handle, result);
    if (result == NCCL_SUCCESS) return nccl;
    say(why, bytes, "ncclCommInitRank", result);
    free(nccl);
    return NULL;
}

tpcomm_status_t bench_nccl_open(tpcomm_t *comm, const bench_device_t *device, char *missing, size_t bytes,
                                bench_nccl_t **nccl_p) {
    struct {
        nccl_id_t id;
        int32_t result;
    } named;
    tpcomm_info_t info = {.struct_size = sizeof info};
    *nccl_p = NULL;
    memset(&named, 0, sizeof named);
    tpcomm_status_t status = tpcomm_comm_info(comm, &info);
    why_not_at_all(device, missing, bytes);
    if (!missing[0] && shares_gpu(comm, info.size))
        snprintf(missing, bytes, "ranks share a GPU, and NCCL takes one rank a GPU");
    if (status == TPCOMM_OK) status = agree_on_why(comm, missing, bytes);
    if (status != TPCOMM_OK || missing[0]) return status;
    if (info.rank == 0) named.result = nccl_api.id(&named.id);
    status = tpcomm_host_broadcast(comm, &named, sizeof named, 0, 0);
    if (status != TPCOMM_OK) return status;
    if (named.result != NCCL_SUCCESS) {
        say(missing, bytes, "ncclGetUniqueId", named.result);
        return TPCOMM_OK;
    }
    bench_nccl_t *nccl = init(comm, &named.id, info.rank, info.size, missing, bytes);
    status = agree_on_why(comm, missing, bytes);
    if (status != TPCOMM_OK || missing[0]) {
        bench_nccl_close(nccl);
        return status;
    }
    *nccl_p = nccl;
    return TPCOMM_OK;
}

void bench_nccl_open_alone(const bench_device_t *device, char *missing, size_t bytes, bench_nccl_t **nccl_p) {
    nccl_id_t id;
    *nccl_p = NULL;
    why_not_at_all(device, missing, bytes);
    if (missing[0]) return;
    int result = nccl_api.id(&id);
    if (result != NCCL_SUCCESS)
        say(missing, bytes, "ncclGetUniqueId", result);
    else
        *nccl_p = init(NULL, &id, 0, 1, missing, bytes);
}

void bench_nccl_close(bench_nccl_t *nccl) {
    if (!nccl) return;
    for (int w = 0; w < nccl->windows; w++) {
        if (nccl->window[w]) (void)nccl_api.window_free(nccl->handle, nccl->window[w]);
        if (nccl->memory[w]) (void)nccl_api.mem_free(nccl->memory[w]);
    }
    (void)nccl_api.destroy(nccl->handle);
    free(nccl);
}

tpcomm_status_t bench_nccl_window(bench_nccl_t *nccl, uint64_t bytes, char *missing, size_t missing_bytes,
                                  void **memory_p) {
    int at = nccl->windows, result = NCCL_SUCCESS;
    missing[0] = '\0';
    *memory_p = NULL;
    if (at == WINDOWS_MAX) return tpc_error(TPCOMM_ERR_INVALID_STATE, "over %d windows", WINDOWS_MAX);
    if (!nccl_api.mem_alloc || !nccl_api.mem_free || !nccl_api.window_new || !nccl_api.window_free) {
        snprintf(missing, missing_bytes, "%.200s has no ncclCommWindowRegister", described);
    } else {
        nccl->windows++;
        result = nccl_api.mem_alloc(&nccl->memory[at], (size_t)bytes);
        if (result != NCCL_SUCCESS) say(missing, missing_bytes, "ncclMemAlloc", result);
    }
    tpcomm_status_t status = agree_on_why(nccl->comm, missing, missing_bytes);
    if (status != TPCOMM_OK || missing[0]) return status;
    result =
        nccl_api.window_new(nccl->handle, nccl->memory[at], (size_t)bytes, &nccl->window[at], NCCL_WINDOW_SYMMETRIC);
    if (result != NCCL_SUCCESS)
        say(missing, missing_bytes, "ncclCommWindowRegister", result);
    else if (!nccl->window[at])
        snprintf(missing, missing_bytes, "ncclCommWindowRegister gives no window: no symmetric memory here");
    status = agree_on_why(nccl->comm, missing, missing_bytes);
    if (status == TPCOMM_OK && !missing[0]) *memory_p = nccl->memory[at];
    return status;
}

/* ---------------------------------------------------------------- calls */

/** NCCL's number of a dtype; -1: it has none. */
static int dtype_of(tpcomm_dtype_t dtype) {
    switch (dtype) {
    case TPCOMM_I8:
        return 0;
    case TPCOMM_U8:
        return NCCL_UINT8;
    case TPCOMM_I32:
        return 2;
    case TPCOMM_U32:
        return 3;
    case TPCOMM_I64:
        return 4;
    case TPCOMM_U64:
        return 5;
    case TPCOMM_F16:
        return 6;
    case TPCOMM_F32:
        return 7;
    case TPCOMM_F64:
        return 8;
    case TPCOMM_BF16:
        return 9;
    default:
        return -1;
    }
}

static int op_of(tpcomm_op_t op) {
    static const int ops[] = {0, 0, 4, 2, 3, 1}; /* by TPCOMM_SUM, AVG, MAX, MIN, PROD */
    return op >= TPCOMM_SUM && op <= TPCOMM_PROD ? ops[op] : 0;
}

const char *bench_nccl_why_not(tpcomm_coll_t coll, tpcomm_dtype_t dtype) {
    if (coll != TPCOMM_ALL_REDUCE && coll != TPCOMM_BROADCAST && coll != TPCOMM_ALL_GATHER &&
        coll != TPCOMM_REDUCE_SCATTER)
        return "NCCL has no such collective";
    return dtype_of(dtype) < 0 ? "no dtype of NCCL's" : NULL;
}

tpcomm_status_t bench_nccl_call(bench_nccl_t *nccl, const tpcomm_call_t *call, tpcomm_stream_t stream) {
    int dtype = dtype_of(call->dtype), result;
    size_t count = (size_t)call->count;
    switch (call->coll) {
    case TPCOMM_BROADCAST:
        result = nccl_api.broadcast(call->in, call->out, count, dtype, call->root, nccl->handle, stream);
        break;
    case TPCOMM_ALL_GATHER:
        result = nccl_api.all_gather(call->in, call->out, count, dtype, nccl->handle, stream);
        break;
    case TPCOMM_REDUCE_SCATTER:
        result = nccl_api.reduce_scatter(call->in, call->out, count, dtype, op_of(call->op), nccl->handle, stream);
        break;
    default:
        result = nccl_api.all_reduce(call->in, call->out, count, dtype, op_of(call->op), nccl->handle, stream);
        break;
    }
    if (result == NCCL_IN_PROGRESS) result = finish(nccl->handle, result);
    if (result == NCCL_SUCCESS) return TPCOMM_OK;
    return tpc_error(TPCOMM_ERR_BACKEND, "NCCL: %s", nccl_api.error_text(result));
}
