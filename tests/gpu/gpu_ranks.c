/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/gpu_ranks.h"

#include <pthread.h>
#include <time.h>
#include <unistd.h>

#include "multirank/pattern.h"

bool gpu_dry(void) {
    return getenv("TPCOMM_TEST_DRY") != NULL;
}

void gpu_need(void) {
    if (gpu_dry()) return;
    /* Ranks that share a GPU: a queue for each stream, and no kernel loaded while another waits (docs/gpu.md). */
    CHECK_EQ(setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 1), 0);
    CHECK_EQ(setenv("CUDA_MODULE_LOADING", "EAGER", 1), 0);
    /* Asked in a child: a process that has started CUDA cannot fork ranks. */
    if (gpu_count() == 0) SKIP("no GPU that CUDA can use on this machine");
}

static void count_in_child(int32_t rank, int32_t size, void *arg) {
    (void)rank, (void)size;
    int count = 0;
    if (cudaGetDeviceCount(&count) != cudaSuccess) count = 0;
    FILE *file = fopen(arg, "we");
    CHECK(file != NULL);
    fprintf(file, "%d", count);
    CHECK_EQ(fclose(file), 0);
}

int gpu_count(void) {
    static int known = -1;
    if (gpu_dry()) return 1;
    if (known >= 0) return known;
    char path[] = "/tmp/tpcomm-gpu-count-XXXXXX";
    int fd = mkstemp(path), count = 0;
    CHECK(fd >= 0);
    ranks_fork(1, count_in_child, path);
    char text[16] = {0};
    CHECK(read(fd, text, sizeof text - 1) > 0);
    count = atoi(text);
    close(fd);
    unlink(path);
    known = count;
    return count;
}

double gpu_now_s(void) {
    struct timespec t;
    CHECK_EQ(clock_gettime(CLOCK_MONOTONIC, &t), 0);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

void gpu_check_soon(double start, double most_s, const char *what) {
    double took = gpu_now_s() - start;
#ifdef CUDA_ON_HOST
    most_s += 15;
#endif
    if (took > most_s) FAIL("%s: it took %.3f s, more than %.3f s", what, took, most_s);
}

tpcomm_config_t gpu_config(void) {
    return (tpcomm_config_t){.struct_size = sizeof(tpcomm_config_t),
                             .device_kind = gpu_dry() ? TPCOMM_DEVICE_CPU : TPCOMM_DEVICE_CUDA,
                             .init_timeout_ms = 60000,
                             .op_timeout_ms = 20000,
                             .share_device = TPCOMM_ON,
                             .workspace_bytes = GPU_WORKSPACE_BYTES};
}

void gpu_stream_new(cudaStream_t *stream_p) {
    CUDA_OK(cudaStreamCreateWithFlags(stream_p, cudaStreamNonBlocking));
    CUDA_OK((cudaError_t)gpu_kernel_delay(0, *stream_p));
    CUDA_OK(cudaStreamSynchronize(*stream_p));
}

void gpu_set_up(gpu_rank_t *rank, int device) {
    if (gpu_dry()) {
        rank->in = calloc(1, rank->room + 256);
        rank->out = calloc(1, rank->room + 256);
        CHECK(rank->in != NULL && rank->out != NULL);
        return;
    }
    CUDA_OK(cudaSetDevice(device));
    CUDA_OK((cudaError_t)gpu_kernels_load());
    gpu_stream_new(&rank->stream);
    CUDA_OK(cudaMalloc((void **)&rank->in, rank->room + 256));
    CUDA_OK(cudaMalloc((void **)&rank->out, rank->room + 256));
}

void gpu_free(gpu_rank_t *rank) {
    if (gpu_dry()) {
        free(rank->in);
        free(rank->out);
        return;
    }
    CUDA_OK(cudaFree(rank->in));
    CUDA_OK(cudaFree(rank->out));
    if (rank->stream != NULL) CUDA_OK(cudaStreamDestroy(rank->stream));
}

static void drop_stream(gpu_rank_t *rank) {
    if (rank->stream != NULL) CUDA_OK(cudaStreamDestroy(rank->stream));
    rank->stream = NULL;
}

static void tear_down(gpu_rank_t *rank) {
    if (tpcomm_async_status(rank->comm, NULL) == TPCOMM_OK) CHECK_OK(tpcomm_finalize(rank->comm));
    drop_stream(rank); /* before the communicator that used it */
    CHECK_OK(tpcomm_destroy(rank->comm));
}

typedef struct {
    pthread_t thread;
    gpu_rank_t rank;
    gpu_fn fn;
    int device;
    pthread_barrier_t *together;
} thread_t;

static void *thread_main(void *arg) {
    thread_t *thread = arg;
    gpu_set_up(&thread->rank, thread->device);
    pthread_barrier_wait(thread->together); /* no allocation while a peer's kernel may wait */
    thread->fn(&thread->rank);
    tear_down(&thread->rank);
    pthread_barrier_wait(thread->together);
    gpu_free(&thread->rank);
    return NULL;
}

static void run_threads(int32_t size, bool one_each, const tpcomm_config_t *config, size_t room, gpu_fn fn, void *arg) {
    tpcomm_t *comms[TPCOMM_MAX_RANKS];
    thread_t threads[TPCOMM_MAX_RANKS];
    int32_t devices[TPCOMM_MAX_RANKS];
    pthread_barrier_t together;
    CHECK_EQ(pthread_barrier_init(&together, NULL, (unsigned)size), 0);
    for (int32_t r = 0; r < size; r++) devices[r] = one_each ? r : 0;
    CHECK_OK(tpcomm_init_local(size, devices, config, comms));
    for (int32_t r = 0; r < size; r++) {
        threads[r] = (thread_t){.rank = {.comm = comms[r], .rank = r, .size = size, .room = room, .arg = arg},
                                .fn = fn,
                                .device = devices[r],
                                .together = &together};
        CHECK_EQ(pthread_create(&threads[r].thread, NULL, thread_main, &threads[r]), 0);
    }
    for (int32_t r = 0; r < size; r++) CHECK_EQ(pthread_join(threads[r].thread, NULL), 0);
    pthread_barrier_destroy(&together);
}

typedef struct {
    bool one_each;
    const tpcomm_config_t *config;
    size_t room;
    gpu_fn fn;
    void *arg;
} process_t;

static void process_main(int32_t r, int32_t size, void *arg) {
    const process_t *process = arg;
    gpu_rank_t rank = {.rank = r, .size = size, .room = process->room, .arg = process->arg};
    tpcomm_config_t config = *process->config;
    config.device = (process->one_each ? r : 0) + 1;
    gpu_set_up(&rank, config.device - 1);
    CHECK_OK(tpcomm_init_env(&config, &rank.comm));
    process->fn(&rank);
    tear_down(&rank);
}

typedef struct {
    int32_t size;
    process_t process;
} threads_t;

static void threads_main(int32_t r, int32_t one, void *arg) {
    const threads_t *threads = arg;
    const process_t *process = &threads->process;
    (void)r, (void)one;
    run_threads(threads->size, process->one_each, process->config, process->room, process->fn, process->arg);
}

void gpu_run(int kind, int32_t size, bool one_each, const tpcomm_config_t *config, size_t room, gpu_fn fn, void *arg) {
    if (kind == RANKS_THREADS) {
        threads_t threads = {size, {one_each, config, room, fn, arg}};
        ranks_fork(1, threads_main, &threads); /* in a child: this process stays free of CUDA, and can fork again */
        return;
    }
    process_t process = {one_each, config, room, fn, arg};
    ranks_fork(size, process_main, &process);
}

typedef struct {
    void (*fn)(void *arg);
    void *arg;
} alone_t;

static void alone_main(int32_t rank, int32_t size, void *arg) {
    const alone_t *alone = arg;
    (void)rank, (void)size;
    alone->fn(alone->arg);
}

void gpu_process(void (*fn)(void *arg), void *arg) {
    alone_t alone = {fn, arg};
    ranks_fork(1, alone_main, &alone);
}

/* ------------------------------------------------------------------ data */

void gpu_sync(const gpu_rank_t *rank) {
    if (!gpu_dry()) CUDA_OK(cudaStreamSynchronize(rank->stream));
}

void gpu_late(const gpu_rank_t *rank, unsigned ms) {
    if (gpu_dry())
        usleep(ms * 1000);
    else
        CUDA_OK((cudaError_t)gpu_kernel_delay(ms, rank->stream));
}

static void copy(const gpu_rank_t *rank, void *to, const void *from, size_t bytes) {
    if (gpu_dry())
        memcpy(to, from, bytes);
    else
        CUDA_OK(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, rank->stream));
}

void gpu_fetch(const gpu_rank_t *rank, void *to, const void *from, size_t bytes) {
    gpu_sync(rank);
    copy(rank, to, from, bytes);
    gpu_sync(rank);
}

void gpu_send(const gpu_rank_t *rank, void *to, const void *from, size_t bytes) {
    gpu_sync(rank);
    copy(rank, to, from, bytes);
}

void gpu_pattern_in(const gpu_rank_t *rank, void *in, tpcomm_dtype_t dtype, uint64_t seed, size_t count) {
    size_t bytes = count * tpcomm_dtype_size(dtype);
    unsigned char *host = malloc(bytes + 1);
    CHECK(host != NULL);
    pattern_fill(PATTERN_BITS, dtype, seed, rank->rank, count, host);
    gpu_send(rank, in, host, bytes);
    gpu_sync(rank);
    free(host);
}

void gpu_pattern_check(const gpu_rank_t *rank, const void *out, tpcomm_dtype_t dtype, uint64_t seed, size_t count,
                       const char *what) {
    size_t bytes = count * tpcomm_dtype_size(dtype);
    unsigned char *host = malloc(bytes + 1), *want = malloc(bytes + 1);
    CHECK(host != NULL && want != NULL);
    gpu_fetch(rank, host, out, bytes);
    CHECK_OK(tpcomm_async_status(rank->comm, NULL));
    pattern_result(PATTERN_BITS, dtype, TPCOMM_SUM, seed, rank->size, count, want);
    for (size_t i = 0; i < bytes; i++)
        if (host[i] != want[i])
            FAIL("rank %d of %d: %s, seed %llu, %zu of %s: byte %zu is %02x, want %02x", rank->rank, rank->size, what,
                 (unsigned long long)seed, count, tpcomm_dtype_name(dtype), i, host[i], want[i]);
    free(host);
    free(want);
}

void gpu_all_reduce(const gpu_rank_t *rank, void *in, void *out, tpcomm_dtype_t dtype, uint64_t seed, size_t count,
                    const char *what) {
    gpu_pattern_in(rank, in, dtype, seed, count);
    CHECK_OK(tpcomm_all_reduce(rank->comm, in, out, count, dtype, TPCOMM_SUM, rank->stream));
    gpu_pattern_check(rank, out, dtype, seed, count, what);
}

static void compare(const gpu_rank_t *rank, const tpcomm_call_t *call, const unsigned char *got,
                    const unsigned char *want, size_t bytes, const char *what) {
    for (size_t i = 0; i < bytes; i++)
        if (got[i] != want[i])
            FAIL("rank %d of %d: %s %s %s count %llu %s: byte %zu is %02x, want %02x", rank->rank, rank->size,
                 tpcomm_coll_name(call->coll), tpcomm_dtype_name(call->dtype), tpcomm_op_name(call->op),
                 (unsigned long long)call->count, what, i, got[i], want[i]);
}

void gpu_reduce_check(const gpu_rank_t *rank, tpcomm_call_t call, bool in_place, size_t misalign, uint64_t seed) {
    bool scatters = call.coll == TPCOMM_REDUCE_SCATTER;
    size_t element = tpcomm_dtype_size(call.dtype), bytes = call.count * element;
    size_t total = scatters ? call.count * (size_t)rank->size : call.count,
           from = scatters ? bytes * (size_t)rank->rank : 0;
    unsigned char *host = malloc(total * element + 64), *want = malloc(total * element + 1);
    CHECK(host && want);
    unsigned char *in = rank->in + misalign * element, *out = in_place ? in + from : rank->out + (seed % 3) * element;
    int kind = seed % 2 ? PATTERN_BITS : PATTERN_EXACT;
    pattern_fill(kind, call.dtype, seed, rank->rank, total, host);
    gpu_send(rank, in, host, total * element);
    if (!in_place) CUDA_OK(cudaMemsetAsync(out, 0xEE, bytes + 64, rank->stream));
    call.in = in;
    call.out = out;
    CHECK_OK(tpcomm_call(rank->comm, &call, rank->stream));
    gpu_fetch(rank, host, out, bytes + (in_place ? 0 : 64));
    CHECK_OK(tpcomm_async_status(rank->comm, NULL));
    pattern_result(kind, call.dtype, call.op, seed, rank->size, total, want);
    compare(rank, &call, host, want + from, bytes, in_place ? "in place" : "");
    for (size_t i = 0; i < 64 && !in_place; i++) CHECK(host[bytes + i] == 0xEE);
    free(host);
    free(want);
}

void gpu_together(const gpu_rank_t *rank) {
    gpu_sync(rank);
    CHECK_OK(tpcomm_host_barrier(rank->comm, 0));
}

/* ------------------------------------------------------------------ failures */

tpcomm_status_t gpu_enqueue(const gpu_rank_t *rank, size_t count) {
    tpcomm_status_t status =
        tpcomm_all_reduce(rank->comm, rank->in, rank->out, count, TPCOMM_F32, TPCOMM_SUM, rank->stream);
    if (status != TPCOMM_OK && tpcomm_async_status(rank->comm, NULL) != status)
        FAIL("rank %d: %s, but the group is not broken in this way: %s", rank->rank, tpcomm_status_name(status),
             tpcomm_last_error());
    return status;
}

static void check_piece(const tpcomm_error_t *failure, const char *piece) {
    if (piece != NULL && strstr(failure->text, piece) == NULL)
        FAIL("the failure's text has no '%s': %s", piece, failure->text);
}

void gpu_await_failure(const gpu_rank_t *rank, tpcomm_status_t want, const char *piece, const char *another) {
    tpcomm_error_t failure = {.struct_size = sizeof failure};
    gpu_sync(rank);
    for (int ms = 0; tpcomm_async_status(rank->comm, &failure) == TPCOMM_OK; ms++) {
        if (ms == 30000) FAIL("rank %d: the group is not broken after 30 s", rank->rank);
        usleep(1000);
    }
    if (failure.status != want)
        FAIL("rank %d: %s, want %s: %s", rank->rank, tpcomm_status_name(failure.status), tpcomm_status_name(want),
             failure.text);
    check_piece(&failure, piece);
    check_piece(&failure, another);
    CHECK_STATUS(tpcomm_all_reduce(rank->comm, rank->in, rank->out, 1, TPCOMM_F32, TPCOMM_SUM, rank->stream), want);
}

void gpu_three_in_a_graph(gpu_rank_t *rank, const tpcomm_path_t paths[3], const size_t counts[3], uint64_t replays,
                          void (*between)(gpu_rank_t *rank, uint64_t replay)) {
    enum { MIB = 1 << 20 };
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    CUDA_OK(cudaStreamBeginCapture(rank->stream, cudaStreamCaptureModeThreadLocal));
    for (int k = 0; k < 3; k++) {
        tpcomm_call_t call = {.struct_size = sizeof call,
                              .coll = TPCOMM_ALL_REDUCE,
                              .dtype = TPCOMM_BF16,
                              .op = TPCOMM_SUM,
                              .path = paths[k],
                              .in = rank->in + k * MIB,
                              .out = rank->out + k * MIB,
                              .count = counts[k]};
        CHECK_OK(tpcomm_call(rank->comm, &call, rank->stream));
    }
    CUDA_OK(cudaStreamEndCapture(rank->stream, &graph));
    CUDA_OK(cudaGraphInstantiate(&exec, graph, 0));
    CHECK_OK(tpcomm_host_barrier(rank->comm, 0)); /* instantiated everywhere before a kernel waits */
    for (uint64_t replay = 0; replay < (uint64_t)gpu_rounds((int)replays); replay++) {
        for (int k = 0; k < 3; k++)
            gpu_pattern_in(rank, rank->in + k * MIB, TPCOMM_BF16, 3 * replay + (uint64_t)k, counts[k]);
        CUDA_OK(cudaMemsetAsync(rank->out, 0xEE, 3 * MIB, rank->stream));
        CUDA_OK(cudaGraphLaunch(exec, rank->stream));
        for (int k = 0; k < 3; k++)
            gpu_pattern_check(rank, rank->out + k * MIB, TPCOMM_BF16, 3 * replay + (uint64_t)k, counts[k],
                              "in a graph");
        if (between != NULL) between(rank, replay);
    }
    gpu_together(rank);
    CUDA_OK(cudaGraphExecDestroy(exec));
    CUDA_OK(cudaGraphDestroy(graph));
    gpu_together(rank);
}
