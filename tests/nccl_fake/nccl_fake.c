/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A library with NCCL's names that works on host memory, between threads and processes of one host, and fails as it is
 * told. A communicator of ncclCommInitRankConfig behaves as a non-blocking one of NCCL's: a call begins something,
 * ncclCommGetAsyncError carries it on; one of ncclCommInitRank blocks. Ranks meet in a memfd of the one that made the
 * unique id, which names it by process and descriptor; nothing is left behind.
 *
 * NCCL_FAKE_VERSION=21003      what ncclGetVersion says
 * NCCL_FAKE_FAULTS="KIND@RANK[:K];..."
 *   id@0       no unique id is made
 *   refuse@R   ncclCommInitRankConfig fails at once
 *   init@R     init fails while it is under way
 *   hang@R     init never ends
 *   die@R      the process ends while all are in init
 *   call@R:K   the K-th collective (1 is the first) fails at once
 *   async@R:K  the K-th collective fails while it is under way
 *   wrong@R:K  the K-th collective's first byte is wrong
 *   abort@R    ncclCommAbort never returns
 *   version@0, final@R, destroy@R, aborted@R: ncclGetVersion, ncclCommFinalize, ncclCommDestroy, ncclCommAbort give an
 *              error (and the last two free the communicator all the same)
 *   query@R[:K] ncclCommGetAsyncError gives an error, from the K-th collective on
 * NCCL_FAKE_WINDOWS=none|missing  ncclCommWindowRegister gives no window; fails
 * NCCL_DEBUG=INFO, NCCL_DEBUG_FILE=...: rank 0 logs ways and choices in NCCL's words, appended to the file
 * NCCL_FAKE_LOG=numbers  in those of NCCL 2.20
 * Built with FAKE_SMALL it lacks what is optional, with FAKE_BROKEN something that is not.
 *
 * nccl_fake_aborts() counts the calls of ncclCommAbort in this process. It also checks its user: two threads inside one
 * communicator, or one that was freed, end the program.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "nccl_fake.h"

#ifndef FAKE_VERSION
#define FAKE_VERSION 22809
#endif

#define EXPORT     __attribute__((visibility("default")))
#define MAX_RANKS  32
#define CHUNK      65536u
#define MAGIC      0x4e434346u /* of a living communicator */
#define FAULTS_MAX 8

typedef struct {
    _Atomic int attached;
    _Atomic uint64_t arrived[MAX_RANKS]; /* rounds that a rank has put its data in for */
    unsigned char data[MAX_RANKS][2][CHUNK];
} shared_t;

typedef struct {
    int pid, fd;
} name_t;

typedef struct {
    char kind[9];
    int rank;
    unsigned long number; /* 0: any */
} fault_t;

typedef enum { ALL_REDUCE, BROADCAST, ALL_GATHER, REDUCE_SCATTER } coll_t;

struct ncclComm {
    unsigned magic;
    _Atomic int inside;
    int rank, size;
    int own_fd; /* of the memfd, on the rank whose process made it, until all are attached; else -1 */
    shared_t *shared;
    bool ready, finalizing, blocking;
    int windows;
    int error;
    unsigned long calls;
    uint64_t epoch;
    fault_t faults[FAULTS_MAX];
    int fault_count;
    struct {
        bool active, staged, wrong;
        coll_t coll;
        const unsigned char *in;
        unsigned char *out;
        size_t count, element, done, now;
        int dtype, op, root;
    } call;
};

static _Thread_local char last_error[128];

/* ------------------------------------------------------------------ faults */

static int read_faults(fault_t *faults) {
    char text[256];
    int count = 0;
    const char *given = getenv("NCCL_FAKE_FAULTS");
    if (given == NULL) return 0;
    snprintf(text, sizeof text, "%s", given);
    char *rest = NULL;
    for (char *one = strtok_r(text, ";", &rest); one != NULL && count < FAULTS_MAX; one = strtok_r(NULL, ";", &rest)) {
        fault_t *fault = &faults[count];
        memset(fault, 0, sizeof *fault);
        char *at = strchr(one, '@');
        if (at == NULL) continue;
        *at = '\0';
        snprintf(fault->kind, sizeof fault->kind, "%.8s", one);
        char *end = NULL;
        fault->rank = (int)strtol(at + 1, &end, 10);
        if (*end == ':') fault->number = strtoul(end + 1, NULL, 10);
        count++;
    }
    return count;
}

static bool faulty(const ncclComm_t comm, const char *kind) {
    for (int i = 0; i < comm->fault_count; i++) {
        const fault_t *fault = &comm->faults[i];
        if (strcmp(fault->kind, kind) != 0 || fault->rank != comm->rank) continue;
        if (fault->number == 0 || fault->number == comm->calls) return true;
    }
    return false;
}

static int fail(int error, const char *text) {
    snprintf(last_error, sizeof last_error, "nccl_fake: %s\n", text);
    return error;
}

/* ------------------------------------------------------------------ log */

static void log_line(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void log_line(const char *format, ...) {
    const char *level = getenv("NCCL_DEBUG"), *path = getenv("NCCL_DEBUG_FILE");
    FILE *file = level != NULL && strcmp(level, "INFO") == 0 && path != NULL ? fopen(path, "ae") : NULL;
    if (file == NULL) return;
    va_list arguments;
    va_start(arguments, format);
    fprintf(file, "host:%d:%d [0] NCCL INFO ", getpid(), getpid());
    vfprintf(file, format, arguments);
    fputc('\n', file);
    fclose(file);
    va_end(arguments);
}

static void log_choice(const ncclComm_t comm, const char *name, size_t bytes) {
    const char *form = getenv("NCCL_FAKE_LOG");
    if (comm->rank != 0) return;
    if (form != NULL)
        log_line("%zu Bytes -> Algo 1 proto %d time 12.5", bytes, bytes > 4096 ? 2 : 0);
    else if (comm->windows >= 2)
        log_line("%s [Symmetric]: %zu Bytes -> Kernel %s_AGxLL_R nchannels 8 nthreads 512 nWorks 1", name, bytes, name);
    else
        log_line("%s: %zu Bytes -> Algo RING proto %s channel{Lo..Hi}={0..%d}", name, bytes,
                 bytes > 4096 ? "SIMPLE" : "LL", bytes > 4096 ? 3 : 1);
}

/* ------------------------------------------------------------------ who is in */

static void enter(ncclComm_t comm) {
    if (comm == NULL || comm->magic != MAGIC || atomic_exchange(&comm->inside, 1) != 0) {
        fprintf(stderr, "nccl_fake: a communicator that is freed, or that another thread is in\n");
        abort();
    }
}

static int leave(ncclComm_t comm, int result) {
    atomic_store(&comm->inside, 0);
    return result;
}

/* ------------------------------------------------------------------ arithmetic */

static float from_half(uint16_t bits) {
    int exponent = bits >> 10 & 31, sign = bits >> 15;
    float mantissa = (float)(bits & 1023), value;
    if (exponent == 31)
        value = mantissa == 0 ? INFINITY : NAN;
    else
        value = exponent == 0 ? ldexpf(mantissa, -24) : ldexpf(mantissa + 1024, exponent - 25);
    return sign ? -value : value;
}

/* Exact values only need to come out exact; everything else to the nearest. */
static uint16_t to_half(float value) {
    uint16_t sign = signbit(value) ? 0x8000 : 0;
    float size = fabsf(value);
    if (isnan(value)) return 0x7fff;
    if (size >= 65520.0f) return sign | 0x7c00;
    if (size == 0) return sign;
    int exponent;
    (void)frexpf(size, &exponent);
    if (exponent < -13) exponent = -13;
    float scaled = rintf(ldexpf(size, 11 - exponent));
    if (scaled == 2048.0f) {
        scaled = 1024.0f;
        exponent++;
    }
    unsigned mantissa = (unsigned)scaled;
    return (uint16_t)(sign | (mantissa < 1024 ? mantissa : ((unsigned)(exponent + 14) << 10) + (mantissa - 1024)));
}

static float from_bf16(uint16_t bits) {
    uint32_t wide = (uint32_t)bits << 16;
    float value;
    memcpy(&value, &wide, sizeof value);
    return value;
}

static uint16_t to_bf16(float value) {
    uint32_t wide;
    if (isnan(value)) return 0x7fff;
    memcpy(&wide, &value, sizeof wide);
    return (uint16_t)((wide + 0x7fff + (wide >> 16 & 1)) >> 16);
}

#define COMBINE(sum, x, op)                                                                                            \
    do {                                                                                                               \
        switch (op) {                                                                                                  \
        case FAKE_PROD:                                                                                                \
            (sum) = (sum) * (x);                                                                                       \
            break;                                                                                                     \
        case FAKE_MAX:                                                                                                 \
            (sum) = (x) > (sum) ? (x) : (sum);                                                                         \
            break;                                                                                                     \
        case FAKE_MIN:                                                                                                 \
            (sum) = (x) < (sum) ? (x) : (sum);                                                                         \
            break;                                                                                                     \
        default:                                                                                                       \
            (sum) = (sum) + (x);                                                                                       \
            break;                                                                                                     \
        }                                                                                                              \
    } while (0)

/* Elements that WIDE holds; LOAD and STORE convert. */
#define REDUCE(TYPE, WIDE, LOAD, STORE, AVERAGE)                                                                       \
    for (size_t i = 0; i < count; i++) {                                                                               \
        WIDE sum = 0;                                                                                                  \
        for (int r = 0; r < size; r++) {                                                                               \
            TYPE element;                                                                                              \
            memcpy(&element, sources[r] + i * sizeof element, sizeof element);                                         \
            WIDE x = LOAD(element);                                                                                    \
            if (r == 0)                                                                                                \
                sum = x;                                                                                               \
            else                                                                                                       \
                COMBINE(sum, x, op);                                                                                   \
        }                                                                                                              \
        if (op == FAKE_AVG) sum = AVERAGE;                                                                             \
        TYPE result = STORE(sum);                                                                                      \
        memcpy(out + i * sizeof result, &result, sizeof result);                                                       \
    }                                                                                                                  \
    break

#define SAME(x) (x)
/* Integers wrap: as unsigned ones of their size, but for the order of MAX and MIN. */
#define REDUCE_INT(SIGNED, UNSIGNED)                                                                                   \
    if (op == FAKE_MAX || op == FAKE_MIN) {                                                                            \
        REDUCE(SIGNED, SIGNED, SAME, SAME, sum);                                                                       \
    }                                                                                                                  \
    REDUCE(UNSIGNED, uint64_t, SAME, (UNSIGNED), sum)

static void reduce(int dtype, int op, const unsigned char *const *sources, int size, size_t count, unsigned char *out) {
    switch (dtype) {
    case FAKE_INT8:
        REDUCE_INT(int8_t, uint8_t);
    case FAKE_UINT8:
        REDUCE_INT(uint8_t, uint8_t);
    case FAKE_INT32:
        REDUCE_INT(int32_t, uint32_t);
    case FAKE_UINT32:
        REDUCE_INT(uint32_t, uint32_t);
    case FAKE_INT64:
        REDUCE_INT(int64_t, uint64_t);
    case FAKE_UINT64:
        REDUCE_INT(uint64_t, uint64_t);
    case FAKE_FLOAT16:
        REDUCE(uint16_t, float, from_half, to_half, sum / (float)size);
    case FAKE_FLOAT32:
        REDUCE(float, float, SAME, SAME, sum / (float)size);
    case FAKE_FLOAT64:
        REDUCE(double, double, SAME, SAME, sum / (double)size);
    case FAKE_BFLOAT16:
        REDUCE(uint16_t, float, from_bf16, to_bf16, sum / (float)size);
    default:
        break;
    }
}

static size_t element_bytes(int dtype) {
    static const size_t bytes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};
    return dtype >= 0 && dtype < 10 ? bytes[dtype] : 0;
}

/* ------------------------------------------------------------------ calls */

static void stage(ncclComm_t comm) {
    size_t size = (size_t)comm->size, element = comm->call.element, left = comm->call.count - comm->call.done;
    size_t room = CHUNK / element / (comm->call.coll == REDUCE_SCATTER ? size : 1);
    unsigned char *chunk = comm->shared->data[comm->rank][++comm->epoch & 1];
    comm->call.now = left < room ? left : room;
    size_t bytes = comm->call.now * element, at = comm->call.done * element;
    if (comm->call.coll == REDUCE_SCATTER)
        for (size_t r = 0; r < size; r++)
            memcpy(chunk + r * bytes, comm->call.in + r * comm->call.count * element + at, bytes);
    else if (comm->call.coll != BROADCAST || comm->call.root == comm->rank)
        memcpy(chunk, comm->call.in + at, bytes);
    atomic_store(&comm->shared->arrived[comm->rank], comm->epoch);
    comm->call.staged = true;
}

static bool all_arrived(const ncclComm_t comm) {
    for (int r = 0; r < comm->size; r++)
        if (atomic_load(&comm->shared->arrived[r]) < comm->epoch) return false;
    return true;
}

static void finish_round(ncclComm_t comm) {
    const unsigned char *sources[MAX_RANKS];
    size_t bytes = comm->call.now * comm->call.element, at = comm->call.done * comm->call.element;
    size_t whole = comm->call.count * comm->call.element;
    for (int r = 0; r < comm->size; r++) sources[r] = comm->shared->data[r][comm->epoch & 1];
    switch (comm->call.coll) {
    case BROADCAST:
        memcpy(comm->call.out + at, sources[comm->call.root], bytes);
        break;
    case ALL_GATHER:
        for (int r = 0; r < comm->size; r++) memcpy(comm->call.out + (size_t)r * whole + at, sources[r], bytes);
        break;
    case REDUCE_SCATTER:
        for (int r = 0; r < comm->size; r++) sources[r] += (size_t)comm->rank * bytes;
        reduce(comm->call.dtype, comm->call.op, sources, comm->size, comm->call.now, comm->call.out + at);
        break;
    case ALL_REDUCE:
        reduce(comm->call.dtype, comm->call.op, sources, comm->size, comm->call.now, comm->call.out + at);
        break;
    }
    comm->call.done += comm->call.now;
    comm->call.staged = false;
}

static int carry_on(ncclComm_t comm) {
    while (comm->call.active) {
        if (!comm->call.staged) stage(comm);
        if (!all_arrived(comm)) return FAKE_IN_PROGRESS;
        finish_round(comm);
        comm->call.active = comm->call.done < comm->call.count;
    }
    if (comm->call.wrong) comm->call.out[0] ^= 1;
    comm->call.wrong = false;
    return FAKE_SUCCESS;
}

static int begin(ncclComm_t comm, coll_t coll, const void *in, void *out, size_t count, int dtype, int op, int root) {
    enter(comm);
    comm->calls++;
    if (!comm->ready || comm->call.active) return leave(comm, fail(FAKE_INVALID_USAGE, "not ready for a collective"));
    if (faulty(comm, "call")) return leave(comm, fail(FAKE_CUDA_ERROR, "this collective was to fail"));
    if (element_bytes(dtype) == 0 || root < 0 || root >= comm->size || op < 0 || op > FAKE_AVG)
        return leave(comm, fail(FAKE_INVALID_ARGUMENT, "dtype, op or root"));
    comm->call.active = count > 0;
    comm->call.staged = false;
    comm->call.wrong = faulty(comm, "wrong");
    comm->call.coll = coll;
    comm->call.in = in;
    comm->call.out = out;
    comm->call.count = count;
    comm->call.element = element_bytes(dtype);
    comm->call.done = 0;
    comm->call.dtype = dtype;
    comm->call.op = op;
    comm->call.root = root;
    static const char *const names[] = {"AllReduce", "Broadcast", "AllGather", "ReduceScatter"};
    log_choice(comm, names[coll], count * comm->call.element);
    if (faulty(comm, "async")) comm->error = fail(FAKE_REMOTE_ERROR, "a peer was to be lost");
    int result = FAKE_IN_PROGRESS;
    while (comm->blocking && result == FAKE_IN_PROGRESS) result = comm->error != 0 ? comm->error : carry_on(comm);
    return leave(comm, result);
}

#ifndef FAKE_BROKEN
EXPORT int ncclAllReduce(const void *in, void *out, size_t count, int dtype, int op, ncclComm_t comm, void *stream) {
    (void)stream;
    return begin(comm, ALL_REDUCE, in, out, count, dtype, op, 0);
}
#endif

EXPORT int ncclBroadcast(const void *in, void *out, size_t count, int dtype, int root, ncclComm_t comm, void *stream) {
    (void)stream;
    return begin(comm, BROADCAST, in, out, count, dtype, 0, root);
}

EXPORT int ncclAllGather(const void *in, void *out, size_t count, int dtype, ncclComm_t comm, void *stream) {
    (void)stream;
    return begin(comm, ALL_GATHER, in, out, count, dtype, 0, 0);
}

EXPORT int ncclReduceScatter(const void *in, void *out, size_t count, int dtype, int op, ncclComm_t comm,
                             void *stream) {
    (void)stream;
    return begin(comm, REDUCE_SCATTER, in, out, count, dtype, op, 0);
}

/* ------------------------------------------------------------------ communicators */

EXPORT int ncclGetVersion(int *version) {
    const char *given = getenv("NCCL_FAKE_VERSION");
    fault_t faults[FAULTS_MAX];
    int count = read_faults(faults);
    for (int i = 0; i < count; i++)
        if (strcmp(faults[i].kind, "version") == 0) return fail(FAKE_SYSTEM_ERROR, "there was to be no version");
    *version = given != NULL ? (int)strtol(given, NULL, 10) : FAKE_VERSION;
    return FAKE_SUCCESS;
}

EXPORT int ncclGetUniqueId(ncclUniqueId *id) {
    fault_t faults[FAULTS_MAX];
    int count = read_faults(faults);
    for (int i = 0; i < count; i++)
        if (strcmp(faults[i].kind, "id") == 0) return fail(FAKE_SYSTEM_ERROR, "there was to be no id");
    name_t name = {.pid = getpid(), .fd = memfd_create("nccl_fake", MFD_CLOEXEC)};
    if (name.fd < 0 || ftruncate(name.fd, sizeof(shared_t)) != 0) return fail(FAKE_SYSTEM_ERROR, "no memfd");
    memset(id, 0, sizeof *id);
    memcpy(id, &name, sizeof name);
    return FAKE_SUCCESS;
}

static int attach(ncclComm_t comm, const name_t *name) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/fd/%d", name->pid, name->fd);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0) return fail(FAKE_SYSTEM_ERROR, "the id's maker is not there");
    void *base = mmap(NULL, sizeof(shared_t), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (base == MAP_FAILED) return fail(FAKE_SYSTEM_ERROR, "no mapping");
    comm->shared = base;
    atomic_fetch_add(&comm->shared->attached, 1);
    return FAKE_SUCCESS;
}

static int init_rank(ncclComm_t *comm_p, int size, ncclUniqueId id, int rank, const fake_config_t *config) {
    name_t name;
    *comm_p = NULL;
    if (config->size < sizeof *config || config->magic != 0xcafebeef || config->version < 21400 ||
        config->blocking != 0)
        return fail(FAKE_INVALID_ARGUMENT, "the config is not a non-blocking one");
    ncclComm_t comm = calloc(1, sizeof *comm);
    if (comm == NULL) return fail(FAKE_SYSTEM_ERROR, "no memory");
    memcpy(&name, &id, sizeof name);
    comm->magic = MAGIC;
    comm->rank = rank;
    comm->size = size;
    comm->own_fd = rank == 0 ? name.fd : -1;
    comm->fault_count = read_faults(comm->faults);
    int result = faulty(comm, "refuse") ? fail(FAKE_INVALID_USAGE, "init was to be refused") : attach(comm, &name);
    if (result != FAKE_SUCCESS) {
        if (comm->own_fd >= 0) close(comm->own_fd);
        free(comm);
        return result;
    }
    if (faulty(comm, "init")) comm->error = fail(FAKE_SYSTEM_ERROR, "init was to fail");
    *comm_p = comm;
    return FAKE_IN_PROGRESS;
}

EXPORT int ncclCommInitRankConfig(ncclComm_t *comm_p, int size, ncclUniqueId id, int rank,
                                  const fake_config_t *config) {
    return init_rank(comm_p, size, id, rank, config);
}

static int ask(ncclComm_t comm, int *error) {
    enter(comm);
    if (faulty(comm, "query")) return leave(comm, fail(FAKE_SYSTEM_ERROR, "the question was to fail"));
    if (comm->error != 0) {
        *error = comm->error;
    } else if (!comm->ready) {
        bool attached = atomic_load(&comm->shared->attached) >= comm->size;
        if (attached && faulty(comm, "die")) (void)raise(SIGKILL);
        bool complete = attached && !faulty(comm, "hang");
        if (complete && comm->own_fd >= 0) {
            close(comm->own_fd);
            comm->own_fd = -1;
        }
        comm->ready = complete;
        *error = complete ? FAKE_SUCCESS : FAKE_IN_PROGRESS;
    } else {
        *error = carry_on(comm);
    }
    return leave(comm, FAKE_SUCCESS);
}

EXPORT int ncclCommGetAsyncError(ncclComm_t comm, int *error) {
    return ask(comm, error);
}

/* Calls none of the exported functions: a test takes these away one by one. */
EXPORT int ncclCommInitRank(ncclComm_t *comm_p, int size, ncclUniqueId id, int rank) {
    fake_config_t config = {.size = sizeof config, .magic = 0xcafebeef, .version = 21400};
    int result = init_rank(comm_p, size, id, rank, &config), state = FAKE_IN_PROGRESS;
    if (result != FAKE_IN_PROGRESS) return result;
    while (state == FAKE_IN_PROGRESS)
        if ((result = ask(*comm_p, &state)) != FAKE_SUCCESS) return result;
    (*comm_p)->blocking = true;
    if (rank == 0)
        for (int channel = 0; channel < 4; channel++) log_line("Channel %02d/0 : 0[0] -> 1[1] via P2P/CUMEM", channel);
    return state;
}

static void release(ncclComm_t comm) {
    if (comm->own_fd >= 0) close(comm->own_fd);
    munmap(comm->shared, sizeof(shared_t));
    comm->magic = 0;
    free(comm);
}

EXPORT int ncclCommDestroy(ncclComm_t comm) {
    enter(comm);
    int result = faulty(comm, "destroy") ? fail(FAKE_SYSTEM_ERROR, "destroy was to fail") : FAKE_SUCCESS;
    release(comm);
    return result;
}

EXPORT const char *ncclGetErrorString(int result) {
    static const char *const texts[] = {"no error",
                                        "unhandled cuda error",
                                        "unhandled system error",
                                        "internal error",
                                        "invalid argument",
                                        "invalid usage",
                                        "remote process exited or there was a network error",
                                        "NCCL operation in progress"};
    return result >= 0 && result < 8 ? texts[result] : "unknown result code";
}

#ifndef FAKE_SMALL
EXPORT int ncclCommFinalize(ncclComm_t comm) {
    enter(comm);
    if (faulty(comm, "final")) return leave(comm, fail(FAKE_SYSTEM_ERROR, "finalize was to fail"));
    if (!comm->ready || comm->finalizing) return leave(comm, fail(FAKE_INVALID_USAGE, "not ready to be finalized"));
    comm->finalizing = true;
    return leave(comm, FAKE_IN_PROGRESS);
}

static _Atomic int aborts;

EXPORT int nccl_fake_aborts(void) {
    return atomic_load(&aborts);
}

EXPORT int ncclCommAbort(ncclComm_t comm) {
    enter(comm);
    atomic_fetch_add(&aborts, 1);
    while (faulty(comm, "abort")) usleep(1000);
    int result = faulty(comm, "aborted") ? fail(FAKE_SYSTEM_ERROR, "abort was to fail") : FAKE_SUCCESS;
    release(comm);
    return result;
}

EXPORT const char *ncclGetLastError(ncclComm_t comm) {
    (void)comm;
    return last_error;
}

EXPORT int ncclMemAlloc(void **memory, size_t bytes) {
    *memory = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
    return *memory != NULL ? FAKE_SUCCESS : fail(FAKE_SYSTEM_ERROR, "no memory");
}

EXPORT int ncclMemFree(void *memory) {
    free(memory);
    return FAKE_SUCCESS;
}

EXPORT int ncclCommWindowRegister(ncclComm_t comm, void *buffer, size_t bytes, void **window, int flags) {
    const char *windows = getenv("NCCL_FAKE_WINDOWS");
    (void)bytes;
    *window = NULL;
    if (flags != 1 || (windows != NULL && strcmp(windows, "missing") == 0))
        return fail(FAKE_INVALID_USAGE, "no windows here");
    if (windows != NULL) return FAKE_SUCCESS;
    enter(comm);
    comm->windows++;
    *window = buffer;
    return leave(comm, FAKE_SUCCESS);
}

EXPORT int ncclCommWindowDeregister(ncclComm_t comm, void *window) {
    enter(comm);
    if (window != NULL) comm->windows--;
    return leave(comm, FAKE_SUCCESS);
}
#endif
