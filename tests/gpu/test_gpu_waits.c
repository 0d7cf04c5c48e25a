/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Check what kernels note of their waits (tpcomm_note_waits): nothing before they are asked to and nothing behind; by
 * path each call of each replay of a graph that was captured before; the rank that is late in it, on all ranks and on
 * itself; that others have waited for it. One call of the graph puts the ranks in step, and the late rank's delay is
 * part of the graph: no host's clock decides. An argument N runs only that many ranks.
 */
#include "gpu/gpu_ranks.h"

enum { COUNT = 4096, CALLS = 3, REPLAYS = 4, DELAY_MS = 2 };

typedef struct {
    uint64_t waits, wait_ns, last[8];
} seen_t;

static seen_t look(const gpu_rank_t *rank, tpcomm_path_t path) {
    seen_t seen = {0, 0, {0}};
    tpcomm_stats_t stats = {.struct_size = sizeof stats};
    gpu_together(rank);
    for (int32_t i = 0; tpcomm_stats(rank->comm, i, &stats) == TPCOMM_OK; i++)
        if (stats.path == path) seen.waits = stats.waits, seen.wait_ns = stats.wait_ns;
    for (int32_t r = 0; r < rank->size; r++) {
        tpcomm_rank_info_t info = {.struct_size = sizeof info};
        CHECK_OK(tpcomm_rank_info(rank->comm, r, &info));
        seen.last[r] = info.times_last;
    }
    return seen;
}

static void enqueue(const gpu_rank_t *rank, tpcomm_path_t path) {
    tpcomm_call_t call = {.struct_size = sizeof call,
                          .coll = TPCOMM_ALL_REDUCE,
                          .dtype = TPCOMM_BF16,
                          .op = TPCOMM_SUM,
                          .path = path,
                          .in = rank->in,
                          .out = rank->out,
                          .count = COUNT};
    CHECK_OK(tpcomm_call(rank->comm, &call, rank->stream));
}

static cudaGraphExec_t capture(const gpu_rank_t *rank, tpcomm_path_t path, int32_t late) {
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    CUDA_OK(cudaStreamBeginCapture(rank->stream, cudaStreamCaptureModeThreadLocal));
    enqueue(rank, path);
    for (int i = 0; i < CALLS; i++) {
        if (rank->rank == late) CUDA_OK((cudaError_t)gpu_kernel_delay(DELAY_MS, rank->stream));
        enqueue(rank, path);
    }
    CUDA_OK(cudaStreamEndCapture(rank->stream, &graph));
    CUDA_OK(cudaGraphInstantiate(&exec, graph, 0));
    CUDA_OK(cudaGraphDestroy(graph));
    gpu_together(rank);
    return exec;
}

static void replay(const gpu_rank_t *rank, cudaGraphExec_t exec) {
    for (int i = 0; i < REPLAYS; i++) CUDA_OK(cudaGraphLaunch(exec, rank->stream));
    gpu_sync(rank);
}

/* The setting is copied to the device on a stream of its own: not while another rank's kernel may wait. */
static void note(const gpu_rank_t *rank, int32_t on) {
    gpu_together(rank);
    CHECK_OK(tpcomm_note_waits(rank->comm, on));
    gpu_together(rank);
}

static void by_path(gpu_rank_t *rank, tpcomm_path_t path) {
    int32_t late = (int32_t)path % rank->size;
    cudaGraphExec_t exec = capture(rank, path, late);
    seen_t before = look(rank, path);
    replay(rank, exec);
    seen_t off = look(rank, path);
    if (memcmp(&before, &off, sizeof off) != 0) FAIL("rank %d: noted without being asked to", rank->rank);
    note(rank, TPCOMM_ON);
    replay(rank, exec);
    seen_t on = look(rank, path);
    note(rank, TPCOMM_OFF);
    replay(rank, exec);
    seen_t after = look(rank, path);
    if (memcmp(&on, &after, sizeof on) != 0) FAIL("rank %d: noted when it should not any more", rank->rank);
    CHECK_EQ(on.waits - off.waits, (CALLS + 1) * REPLAYS);
    uint64_t others = 0;
    for (int32_t r = 0; r < rank->size; r++) others += r == late ? 0 : on.last[r] - off.last[r];
    uint64_t its = on.last[late] - off.last[late];
    if (its < CALLS * REPLAYS || others + its > (CALLS + 1) * REPLAYS)
        FAIL("rank %d of %d, %s: rank %d was last in %llu calls, others in %llu", rank->rank, rank->size,
             tpcomm_path_name(path), late, (unsigned long long)its, (unsigned long long)others);
    uint64_t waited_ns = on.wait_ns - off.wait_ns, least_ns = CALLS * REPLAYS * DELAY_MS * 1000000ull / 2;
    if (rank->rank != late && waited_ns < least_ns)
        FAIL("rank %d of %d, %s: waited %llu ns for rank %d", rank->rank, rank->size, tpcomm_path_name(path),
             (unsigned long long)waited_ns, late);
    gpu_together(rank);
    CUDA_OK(cudaGraphExecDestroy(exec));
    gpu_together(rank);
}

static void waits(gpu_rank_t *rank) {
    by_path(rank, TPCOMM_PATH_ONESHOT);
    by_path(rank, TPCOMM_PATH_TWOSHOT);
    by_path(rank, TPCOMM_PATH_RING);
    note(rank, TPCOMM_ON);
    gpu_all_reduce(rank, rank->in, rank->out, TPCOMM_F32, 7, 5001, "with waits noted");
    CHECK_STATUS(tpcomm_note_waits(rank->comm, 3), TPCOMM_ERR_INVALID_ARG);
}

int main(int argc, char **argv) {
    static const int32_t sizes[] = {2, 3, 8};
    gpu_need();
    tpcomm_config_t config = gpu_config();
    for (int i = 0; i < 3; i++)
        if (argc < 2 || atoi(argv[1]) == sizes[i])
            gpu_run(RANKS_THREADS, sizes[i], false, &config, 1 << 20, waits, NULL);
    printf("ok\n");
    return 0;
}
