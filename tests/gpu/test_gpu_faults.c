/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Check what every rank is told when something goes wrong between ranks on one GPU: an abort's reason reaches ranks
 * with 2000 queued calls, which drain; a deadline, eager and in graphs, names who is missing and that rank's last call;
 * different calls are named on both sides; destroy without finalize is told; ranks that are late are no failure. And
 * that the status socket answers while a kernel waits, and a watchdog that wakes every millisecond disturbs no capture.
 * usage: test_gpu_faults threads|processes [PART]
 */
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "gpu/gpu_ranks.h"
#include "multirank/status_client.h"

enum { SIZE = 3, COUNT = 1000, QUEUED = 2000, CAPTURES = 50 };

static void warm_up(gpu_rank_t *rank) {
    for (uint64_t seed = 1; seed <= 6; seed++)
        gpu_all_reduce(rank, rank->in, rank->out, TPCOMM_F32, seed, COUNT, "before");
    gpu_together(rank);
}

/* Output of a call that came to nothing. */
static void check_nan(const gpu_rank_t *rank) {
    float out[COUNT];
    if (gpu_dry()) return;
    gpu_fetch(rank, out, rank->out, sizeof out);
    for (int i = 0; i < COUNT; i++)
        if (out[i] == out[i]) FAIL("rank %d: element %d of a failed call is %g, and no NaN", rank->rank, i, out[i]);
}

static void until_broken(const gpu_rank_t *rank) {
    for (int ms = 0; tpcomm_async_status(rank->comm, NULL) == TPCOMM_OK; ms++) {
        CHECK(ms < 30000);
        usleep(1000);
    }
}

/* ------------------------------------------------------------------ failures */

static void reason(gpu_rank_t *rank) {
    warm_up(rank);
    double start = gpu_now_s();
    if (rank->rank == 0) {
        usleep(500000);
        CHECK_OK(tpcomm_abort(rank->comm, "the scheduler gave up on request 17"));
    } else {
        /* More than a stream takes: the thread waits inside the driver. */
        for (int i = 0; i < QUEUED; i++) (void)gpu_enqueue(rank, COUNT);
    }
    gpu_await_failure(rank, TPCOMM_ERR_ABORTED, "tpcomm_abort by rank 0", "the scheduler gave up on request 17");
    if (rank->rank != 0) check_nan(rank);
    if (rank->rank == 1)
        printf("  %d queued calls were over in %.0f ms, the abort was at 500\n", QUEUED, (gpu_now_s() - start) * 1e3);
    gpu_check_soon(start, 10, "a rank's end after an abort");
}

static void deadline(gpu_rank_t *rank) {
    warm_up(rank);
    CHECK_OK(tpcomm_set_op_timeout(rank->comm, 1500));
    gpu_together(rank);
    if (rank->rank == 2)
        until_broken(rank);
    else
        for (int i = 0; i < 3; i++) (void)gpu_enqueue(rank, COUNT);
    gpu_await_failure(rank, TPCOMM_ERR_TIMEOUT, "ms still waiting for rank 2 (last seq 6", NULL);
    if (rank->rank != 2) check_nan(rank);
}

/* Rank 2 leaves out the last replay. */
static void graph_deadline(gpu_rank_t *rank) {
    if (gpu_dry()) return;
    cudaGraph_t graph = NULL;
    cudaGraphExec_t exec = NULL;
    warm_up(rank);
    CHECK_OK(tpcomm_set_op_timeout(rank->comm, 1500));
    CUDA_OK(cudaStreamBeginCapture(rank->stream, cudaStreamCaptureModeThreadLocal));
    CHECK_OK(gpu_enqueue(rank, COUNT));
    CUDA_OK(cudaStreamEndCapture(rank->stream, &graph));
    gpu_together(rank);
    CUDA_OK(cudaGraphInstantiate(&exec, graph, 0));
    gpu_together(rank);
    for (int i = 0; i < (rank->rank == 2 ? 4 : 5); i++) CUDA_OK(cudaGraphLaunch(exec, rank->stream));
    if (rank->rank == 2) until_broken(rank);
    gpu_await_failure(rank, TPCOMM_ERR_TIMEOUT, "ms still waiting for rank 2 (last seq 7)", NULL);
    if (rank->rank != 2) check_nan(rank);
    CUDA_OK(cudaGraphExecDestroy(exec));
    CUDA_OK(cudaGraphDestroy(graph));
}

static void mismatch(gpu_rank_t *rank) {
    warm_up(rank);
    (void)gpu_enqueue(rank, rank->rank == 1 ? 2 * COUNT : COUNT);
    gpu_await_failure(rank, TPCOMM_ERR_MISMATCH, "count 1000", "count 2000");
}

static void other_collective(gpu_rank_t *rank) {
    warm_up(rank);
    if (rank->rank == 1)
        (void)tpcomm_broadcast(rank->comm, rank->in, rank->out, COUNT, TPCOMM_F32, 0, rank->stream);
    else
        (void)gpu_enqueue(rank, COUNT);
    gpu_await_failure(rank, TPCOMM_ERR_MISMATCH, "all_reduce", "broadcast");
}

static void left(gpu_rank_t *rank) {
    warm_up(rank);
    if (rank->rank == 1) {
        usleep(200000);
        CHECK_OK(tpcomm_destroy(rank->comm));
        rank->comm = NULL;
        return;
    }
    for (int i = 0; i < 10; i++) (void)gpu_enqueue(rank, COUNT);
    gpu_await_failure(rank, TPCOMM_ERR_ABORTED, "rank 1 destroyed its communicator without finalizing", NULL);
}

/* ------------------------------------------------------------------ no failures */

static void late(gpu_rank_t *rank) {
    warm_up(rank);
    if (rank->rank == 1) gpu_late(rank, 700);
    if (rank->rank == 2) usleep(300000);
    CHECK_OK(gpu_enqueue(rank, COUNT));
    for (uint64_t seed = 1; seed <= 6; seed++)
        gpu_all_reduce(rank, rank->in, rank->out, TPCOMM_F32, seed, COUNT, "late");
}

static char socket_format[64];

/* Rank 2 asks the others while their kernels wait for it. */
static void ask(int32_t rank) {
    char address[96];
    snprintf(address, sizeof address, "%s%d", socket_format, rank);
    for (int ms = 0;; ms += 10) {
        char *text = status_ask(address, "text\n");
        bool told = strstr(text, "waits for rank 2 (last seq 6)") != NULL;
        if (told && strstr(text, "in all_reduce seq 7 ") == NULL) FAIL("no call is told: %s", text);
        if (!told && ms >= 10000) FAIL("rank %d does not tell whom it waits for: %s", rank, text);
        free(text);
        if (told) break;
        usleep(10000);
    }
    char *json = status_ask(address, "json\n");
    if (strstr(json, "\"waits_for\":[2]") == NULL) FAIL("rank %d: no \"waits_for\":[2]: %s", rank, json);
    free(json);
}

static void status(gpu_rank_t *rank) {
    warm_up(rank);
    if (rank->rank == 2)
        for (int32_t r = 0; r < 2; r++) ask(r);
    gpu_pattern_in(rank, rank->in, TPCOMM_F32, 9, COUNT);
    CHECK_OK(gpu_enqueue(rank, COUNT));
    gpu_pattern_check(rank, rank->out, TPCOMM_F32, 9, COUNT, "asked meanwhile");
}

/*
 * As engines capture, 100 graphs in all: whatever a thread of ours asked CUDA that is not allowed beside a capture of
 * another thread would spoil it. All ranks capture at once.
 */
static void captures(gpu_rank_t *rank) {
    if (gpu_dry()) return;
    cudaGraph_t graphs[CAPTURES];
    cudaGraphExec_t exec = NULL;
    warm_up(rank);
    for (int g = 0; g < CAPTURES; g++) {
        CUDA_OK(cudaStreamBeginCapture(rank->stream, cudaStreamCaptureModeGlobal));
        for (int k = 0; k < 3; k++) CHECK_OK(gpu_enqueue(rank, COUNT));
        usleep(2000); /* so that the watchdog wakes inside */
        CUDA_OK(cudaStreamEndCapture(rank->stream, &graphs[g]));
    }
    CHECK_OK(tpcomm_host_barrier(rank->comm, 0)); /* no synchronize beside a capture */
    CUDA_OK(cudaGraphInstantiate(&exec, graphs[CAPTURES - 1], 0));
    gpu_together(rank);
    for (uint64_t seed = 1; seed <= 10; seed++) {
        gpu_pattern_in(rank, rank->in, TPCOMM_F32, seed, COUNT);
        CUDA_OK(cudaGraphLaunch(exec, rank->stream));
        gpu_pattern_check(rank, rank->out, TPCOMM_F32, seed, COUNT, "captured beside the watchdog");
    }
    gpu_together(rank);
    CUDA_OK(cudaGraphExecDestroy(exec));
    for (int g = 0; g < CAPTURES; g++) CUDA_OK(cudaGraphDestroy(graphs[g]));
    gpu_together(rank);
}

/* ------------------------------------------------------------------ */

static const struct {
    const char *name;
    gpu_fn fn;
    int32_t size;
    bool apart; /* also by ranks that are processes, whose start takes seconds */
} parts[] = {{"reason", reason, SIZE, true},
             {"deadline", deadline, SIZE, true},
             {"graph_deadline", graph_deadline, SIZE, false},
             {"mismatch", mismatch, SIZE, true},
             {"other_collective", other_collective, SIZE, false},
             {"left", left, SIZE, true},
             {"late", late, SIZE, false},
             {"status", status, SIZE, true},
             {"captures", captures, 2, false}};

static void run(int kind, size_t p) {
    char folder[] = "/tmp/tpcomm-gpu-faults-XXXXXX", pattern[80];
    tpcomm_config_t config = gpu_config();
    config.op_timeout_ms = 60000; /* nothing here may wait for it */
    bool captures_here = parts[p].fn == captures;
    snprintf(socket_format, sizeof socket_format, "@gpu-faults-%d-", (int)getpid());
    snprintf(pattern, sizeof pattern, "%s%%r", socket_format);
    CHECK_EQ(setenv("TPCOMM_STATUS_SOCKET", pattern, 1), 0);
    if (captures_here) {
        CHECK(mkdtemp(folder) != NULL);
        CHECK_EQ(setenv("TPCOMM_FLIGHT_DIR", folder, 1), 0); /* with it the watchdog looks at the groups */
        ranks_set_hooks("set@tick_ms:1;set@pulse_ms:1");
    }
    uint64_t start = tpc_clock_ns();
    gpu_run(kind, parts[p].size, false, &config, 1 << 20, parts[p].fn, NULL);
    printf("%s, %s: %.1f s\n", parts[p].name, ranks_kind_name(kind), (double)(tpc_clock_ns() - start) / 1e9);
    fflush(stdout);
    if (!captures_here) return;
    CHECK_EQ(unsetenv("TPCOMM_FLIGHT_DIR"), 0);
    ranks_set_hooks("");
    CHECK_EQ(rmdir(folder), 0); /* nothing failed, so nothing was dumped */
}

int main(int argc, char **argv) {
    CHECK(argc > 1);
    gpu_need();
    int kind = strcmp(argv[1], "threads") == 0 ? RANKS_THREADS : RANKS_PROCESSES;
    for (size_t p = 0; p < sizeof parts / sizeof *parts; p++)
        if (argc < 3 ? kind == RANKS_THREADS || parts[p].apart : strcmp(argv[2], parts[p].name) == 0) run(kind, p);
    printf("ok\n");
    return 0;
}
