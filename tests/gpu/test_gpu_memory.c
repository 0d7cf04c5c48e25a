/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Check every way of sharing device memory on a GPU: exact results over each, by the way that was asked for; a pair
 * that carries nothing, a proof that hangs, a step that fails (all ranks get the same status and every reason);
 * descriptors and device memory come back; no peer's mapping is pulled away when the others go first.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/hook.h"
#include "gpu/gpu_ranks.h"

enum { ROOM = 4 << 20 };

/* ------------------------------------------------------------------ each way, by name */

/* Memory that a peer in another process has mapped still stays (device_memory.h); here it is waited for, however late
 * the peer is. */
#define PATIENT "set@close_wait_ms:60000"

static char *shared_by; /* what rank 0's log said, in memory of all processes */

static void keep_line(void *arg, int32_t level, const char *subsystem, const char *line) {
    (void)arg, (void)level;
    const char *by = strstr(line, "share device memory by ");
    if (strcmp(subsystem, "peer_mem") == 0 && by != NULL) snprintf(shared_by, 64, "%s", by + 23);
}

/* Two calls in a graph, replayed with fresh data. */
static void in_a_graph(gpu_rank_t *rank) {
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    unsigned char *in = rank->in + (1 << 20), *out = rank->out + (1 << 20);
    CUDA_OK(cudaStreamBeginCapture(rank->stream, cudaStreamCaptureModeThreadLocal));
    CHECK_OK(tpcomm_all_reduce(rank->comm, rank->in, rank->out, 4096, TPCOMM_BF16, TPCOMM_SUM, rank->stream));
    CHECK_OK(tpcomm_all_reduce(rank->comm, in, out, 70001, TPCOMM_F32, TPCOMM_SUM, rank->stream));
    CUDA_OK(cudaStreamEndCapture(rank->stream, &graph));
    CUDA_OK(cudaGraphInstantiate(&exec, graph, 0));
    gpu_together(rank);
    for (uint64_t seed = 10; seed < 20; seed++) {
        gpu_pattern_in(rank, rank->in, TPCOMM_BF16, seed, 4096);
        gpu_pattern_in(rank, in, TPCOMM_F32, seed + 100, 70001);
        CUDA_OK(cudaGraphLaunch(exec, rank->stream));
        gpu_pattern_check(rank, rank->out, TPCOMM_BF16, seed, 4096, "graph, small");
        gpu_pattern_check(rank, out, TPCOMM_F32, seed + 100, 70001, "graph, large");
    }
    gpu_together(rank);
    CUDA_OK(cudaGraphExecDestroy(exec));
    CUDA_OK(cudaGraphDestroy(graph));
    gpu_together(rank);
}

/* What a rank knows of the others' GPUs. */
static void links_are_known(gpu_rank_t *rank) {
    tpcomm_info_t info = {.struct_size = sizeof info};
    tpcomm_rank_info_t mine = {.struct_size = sizeof mine}, peer = {.struct_size = sizeof peer};
    int32_t other = (rank->rank + 1) % rank->size;
    CHECK_OK(tpcomm_comm_info(rank->comm, &info));
    CHECK_OK(tpcomm_rank_info(rank->comm, rank->rank, &mine));
    CHECK_OK(tpcomm_rank_info(rank->comm, other, &peer));
    /* Known before an engine divides up what is left. */
    CHECK(info.workspace_bytes >= 1 << 20 && info.workspace_bytes <= 32 << 20);
    CHECK(strcmp(mine.link, "self") == 0 && mine.device[0] != '\0' && peer.device[0] != '\0');
    if (strcmp(mine.bus_id, peer.bus_id) == 0) {
        CHECK(strcmp(peer.link, "same gpu") == 0);
        CHECK(strcmp(info.topology, "same_gpu") == 0);
    } else if (rank->rank == 0) {
        printf("%s (%s) and %s (%s): %s, topology %s\n", mine.device, mine.bus_id, peer.device, peer.bus_id, peer.link,
               info.topology);
        fflush(stdout);
        CHECK(strcmp(info.topology, "same_gpu") != 0);
    }
}

static void small_and_large(gpu_rank_t *rank) {
    links_are_known(rank);
    for (uint64_t seed = 0; seed < 3; seed++) {
        gpu_all_reduce(rank, rank->in, rank->out, TPCOMM_BF16, seed, 4096, "small");
        gpu_all_reduce(rank, rank->in, rank->out, TPCOMM_F32, seed, 700001, "large");
    }
    CHECK_OK(tpcomm_barrier(rank->comm, rank->stream));
    CUDA_OK(cudaStreamSynchronize(rank->stream));
    in_a_graph(rank);
}

static void each_way(bool processes_alone) {
    static const struct {
        const char *asked;
        int kind;
        int32_t size;
        bool one_each; /* a GPU each */
        const char *want;
    } rows[] = {{"cumem", RANKS_PROCESSES, 2, false, "cumem"},   {"cudaipc", RANKS_PROCESSES, 2, false, "cudaipc"},
                {"auto", RANKS_PROCESSES, 3, false, "cumem"},    {"cumem", RANKS_THREADS, 2, false, "cumem"},
                {"cudaipc", RANKS_THREADS, 2, false, "pointer"}, {"auto", RANKS_THREADS, 4, false, "cumem"},
                {"cumem", RANKS_PROCESSES, 2, true, "cumem"},    {"cudaipc", RANKS_PROCESSES, 2, true, "cudaipc"},
                {"cumem", RANKS_THREADS, 2, true, "cumem"},      {"cudaipc", RANKS_THREADS, 2, true, "pointer"}};
    tpcomm_config_t config = gpu_config();
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (processes_alone && rows[i].kind != RANKS_PROCESSES) continue;
        if (rows[i].one_each && gpu_count() < 2) continue;
        printf("%d %s by %s%s\n", rows[i].size, ranks_kind_name(rows[i].kind), rows[i].asked,
               rows[i].one_each ? ", a GPU each" : "");
        fflush(stdout);
        CHECK_EQ(setenv("TPCOMM_PEER_MEM", rows[i].asked, 1), 0);
        CHECK_OK(tpcomm_log_set(keep_line, NULL, TPCOMM_LOG_INFO));
        shared_by[0] = '\0';
        gpu_run(rows[i].kind, rows[i].size, rows[i].one_each, &config, ROOM, small_and_large, NULL);
        if (strcmp(shared_by, rows[i].want) != 0) FAIL("shared by '%s', want %s", shared_by, rows[i].want);
    }
    CHECK_EQ(unsetenv("TPCOMM_PEER_MEM"), 0);
}

/* ------------------------------------------------------------------ two ranks in one process, the third in another */

static struct {
    _Atomic int ready;
    tpcomm_unique_id_t id;
} * meeting;

static void *one_of_three(void *arg) {
    gpu_rank_t *rank = arg;
    tpcomm_config_t config = gpu_config();
    config.device = 1;
    CUDA_OK(cudaSetDevice(0));
    gpu_stream_new(&rank->stream);
    CUDA_OK(cudaMalloc((void **)&rank->in, ROOM));
    CUDA_OK(cudaMalloc((void **)&rank->out, ROOM));
    while (atomic_load(&meeting->ready) == 0) usleep(1000);
    CHECK_OK(tpcomm_init_rank(&meeting->id, rank->rank, 3, &config, &rank->comm));
    gpu_all_reduce(rank, rank->in, rank->out, TPCOMM_BF16, 1, 4096, "threads and a process");
    gpu_all_reduce(rank, rank->in, rank->out, TPCOMM_F32, 2, 300001, "threads and a process");
    gpu_together(rank);
    CHECK_OK(tpcomm_finalize(rank->comm));
    CHECK_OK(tpcomm_destroy(rank->comm));
    return NULL;
}

static void two_and_one(int32_t r, int32_t size, void *arg) {
    gpu_rank_t ranks[2] = {{.rank = r == 0 ? 0 : 2, .size = 3, .room = ROOM}, {.rank = 1, .size = 3, .room = ROOM}};
    pthread_t threads[2];
    (void)size, (void)arg;
    int count = r == 0 ? 2 : 1;
    if (r == 0) {
        CHECK_OK(tpcomm_unique_id_create(&meeting->id));
        atomic_store(&meeting->ready, 1);
    }
    for (int t = 0; t < count; t++) CHECK_EQ(pthread_create(&threads[t], NULL, one_of_three, &ranks[t]), 0);
    for (int t = 0; t < count; t++) CHECK_EQ(pthread_join(threads[t], NULL), 0);
}

/* ------------------------------------------------------------------ failures */

static const struct {
    const char *hooks, *piece;
    tpcomm_status_t status;
} failures[] = {
    {"set@break_pair:1", "pair 0 -> 1: ", TPCOMM_ERR_NO_TRANSPORT},
    {"set@break_pair:32", "pair 1 -> 0: ", TPCOMM_ERR_NO_TRANSPORT},
    {"set@probe_hang:1;set@probe_limit_ms:100", "proof of peer access did not end within", TPCOMM_ERR_NO_TRANSPORT},
    {"fail@device_memory:1", "rank 1 failed in 'share device memory'", TPCOMM_ERR_NO_TRANSPORT},
    {"fail@device_map:0", "rank 0 failed in 'map device memory'", TPCOMM_ERR_NO_TRANSPORT},
    {"fail@device_probe:1", "rank 1 failed in 'write to device memory'", TPCOMM_ERR_NO_TRANSPORT},
    {"set@no_kernel_image:1", "built for sm_", TPCOMM_ERR_NO_TRANSPORT},
    {"fail@team/prepare kernels:0", "rank 0 failed in 'prepare kernels'", TPCOMM_ERR_PEER_FAILED},
    {"fail@team/write headers:1", "rank 1 failed in 'write headers'", TPCOMM_ERR_PEER_FAILED},
};

static size_t free_bytes(void) {
    size_t free_now = 0, total = 0;
    usleep(500000); /* the other process has let go, too */
    CUDA_OK(cudaMemGetInfo(&free_now, &total));
    return free_now;
}

/* One step of cuMem fails on one rank: cudaIpc for both; of cudaIpc, too: nothing is left, and every reason is told. */
static const struct {
    const char *hooks, *by; /* NULL: none */
} detours[] = {{"fail@cumem/export:0", "cudaipc"},
               {"fail@cumem/map:1", "cudaipc"},
               {"fail@cumem/access:1", "cudaipc"},
               {"fail@cumem/import:0", "cudaipc"},
               {"fail@cumem/import:1;fail@cudaipc/get:1", NULL},
               {"fail@cumem/export:1;fail@cudaipc/open:0", NULL}};

static void take_detours(int32_t r, int32_t size, void *arg) {
    tpcomm_config_t config = gpu_config();
    tpcomm_t *comm = NULL;
    char job[64], hooks[256];
    int fds = 0;
    config.path = TPCOMM_PATH_ONESHOT;
    CHECK_OK(tpcomm_log_set(keep_line, NULL, TPCOMM_LOG_INFO));
    for (size_t i = 0; i < sizeof detours / sizeof *detours; i++) {
        snprintf(job, sizeof job, "%s-detour-%zu", (const char *)arg, i);
        ranks_set_env(r, size, job);
        snprintf(hooks, sizeof hooks, "%s;" PATIENT, detours[i].hooks);
        ranks_set_hooks(hooks);
        if (detours[i].by != NULL) {
            CHECK_OK(tpcomm_init_env(&config, &comm));
            if (r == 0 && strcmp(shared_by, detours[i].by) != 0)
                FAIL("hooks %s: shared by '%s', want %s", detours[i].hooks, shared_by, detours[i].by);
            CHECK_OK(tpcomm_finalize(comm));
            CHECK_OK(tpcomm_destroy(comm));
        } else {
            CHECK_STATUS(tpcomm_init_env(&config, &comm), TPCOMM_ERR_NO_TRANSPORT);
            CHECK_ERROR_HAS("cumem: rank 1 failed in");
            CHECK_ERROR_HAS("; cudaipc: rank ");
        }
        if (i == 0) fds = resources_now().fds;
        CHECK_EQ(resources_now().fds, fds);
    }
}

/* A forced path, so that no other backend can take the calls and hide the failure. */
static void fail_each_step(int32_t r, int32_t size, void *arg) {
    tpcomm_config_t config = gpu_config();
    tpcomm_t *comm = NULL;
    char job[64];
    size_t before = 0;
    int fds = 0;
    (void)arg;
    config.path = TPCOMM_PATH_ONESHOT;
    CHECK_OK(tpcomm_log_set(NULL, NULL, TPCOMM_LOG_ERROR));
    for (size_t i = 0; i < sizeof failures / sizeof *failures; i++) {
        snprintf(job, sizeof job, "%s-%zu", (const char *)arg, i);
        ranks_set_env(r, size, job);
        ranks_set_hooks(failures[i].hooks);
        CHECK_STATUS(tpcomm_init_env(&config, &comm), failures[i].status);
        CHECK_ERROR_HAS(failures[i].piece);
        ranks_set_hooks("");
        ranks_set_env(r, size, strcat(job, "-well"));
        CHECK_OK(tpcomm_init_env(&config, &comm)); /* the process is none the worse */
        CHECK_OK(tpcomm_finalize(comm));
        CHECK_OK(tpcomm_destroy(comm));
        /* What the first round has left is the context and the loaded kernels. */
        if (i == 0) {
            before = free_bytes();
            fds = resources_now().fds;
        }
        CHECK_EQ(resources_now().fds, fds);
    }
    /* The other process comes and goes, too: what is lost each time would be nine times 2 MiB at the least. */
    size_t after = free_bytes();
    if (after + (8u << 20) < before) FAIL("%zu bytes of device memory are gone", before - after);
}

/* ------------------------------------------------------------------ going in any order */

/* Rank 0 goes while rank 1's kernels may still write to it; rank 1 then waits for it, in vain, until the abort comes.
 */
static void one_goes_first(gpu_rank_t *rank) {
    gpu_all_reduce(rank, rank->in, rank->out, TPCOMM_F32, 1, 1000, "before");
    gpu_together(rank);
    if (rank->rank == 0) return; /* destroyed by the runner without a finalize */
    for (int k = 0; k < 50; k++)
        if (tpcomm_all_reduce(rank->comm, rank->in, rank->out, 1000, TPCOMM_F32, TPCOMM_SUM, rank->stream) != TPCOMM_OK)
            break;
    CUDA_OK(cudaStreamSynchronize(rank->stream)); /* the context is whole */
    while (tpcomm_async_status(rank->comm, NULL) == TPCOMM_OK) usleep(1000);
    CUDA_OK(cudaMemsetAsync(rank->out, 0, 4096, rank->stream));
    CUDA_OK(cudaStreamSynchronize(rank->stream));
}

static void go_in_any_order(int32_t r, int32_t size, void *arg) {
    tpcomm_config_t config = gpu_config();
    (void)arg;
    config.device = 1;
    gpu_rank_t rank = {.rank = r, .size = size, .room = ROOM};
    gpu_stream_new(&rank.stream);
    CUDA_OK(cudaMalloc((void **)&rank.in, ROOM));
    CUDA_OK(cudaMalloc((void **)&rank.out, ROOM));
    CHECK_OK(tpcomm_init_env(&config, &rank.comm));
    one_goes_first(&rank);
    CHECK_OK(tpcomm_destroy(rank.comm));
    CUDA_OK(cudaDeviceSynchronize());
}

/* An argument "processes": the ways between processes alone. */
int main(int argc, char **argv) {
    gpu_need();
    shared_by = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(shared_by != MAP_FAILED);
    ranks_set_hooks(PATIENT);
    each_way(argc > 1 && strcmp(argv[1], "processes") == 0);
    if (argc > 1) return 0;
    static const char *const ways[] = {"cumem", "cudaipc"};
    meeting = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(meeting != MAP_FAILED);
    for (int i = 0; i < 2; i++) {
        printf("two threads and a process, by %s\n", ways[i]);
        fflush(stdout);
        CHECK_EQ(setenv("TPCOMM_PEER_MEM", ways[i], 1), 0);
        atomic_store(&meeting->ready, 0);
        ranks_fork(2, two_and_one, NULL);
    }
    CHECK_EQ(unsetenv("TPCOMM_PEER_MEM"), 0);
    ranks_set_hooks("");
    char job[32];
    snprintf(job, sizeof job, "gpu-memory-%d", (int)getpid());
    printf("each step fails\n");
    fflush(stdout);
    ranks_fork(2, fail_each_step, job);
    printf("one way fails\n");
    fflush(stdout);
    ranks_fork(2, take_detours, job);
    for (int i = 0; i < 2; i++) {
        printf("one goes first, by %s\n", ways[i]);
        fflush(stdout);
        CHECK_EQ(setenv("TPCOMM_PEER_MEM", ways[i], 1), 0);
        ranks_fork(2, go_in_any_order, NULL);
    }
    printf("ok\n");
    return 0;
}
