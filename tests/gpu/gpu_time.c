/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Times all_reduce by kernels, to choose between shapes, paths and forms: bf16, graphs of 50 dependent calls, median of
 * the replays, the slowest rank. A replay is timed behind another one, so that neither the launch of the graph nor the
 * ranks' skew is in it. Prints a table, best shape of each size last, and JSON lines with --json.
 */
#include <getopt.h>

#include "base/hook.h"
#include "gpu/gpu_ranks.h"

enum { CALLS = 50, REPLAYS = 40, SHAPES_MAX = 64, ROTATED = 4 };

typedef struct {
    int threads, vectors; /* threads: 64 << it; -1: the library's own choice */
    int blocks;           /* at most; 0: as many as the library takes */
    tpcomm_path_t path;
} shape_t;

typedef struct {
    bool sweep, each, processes;
    size_t from, to;
    tpcomm_path_t path;
    int early, lead; /* -1: the library's own choice */
    FILE *json;
    double us[TPCOMM_MAX_RANKS][2]; /* of this shape: p50, p95 (ranks as threads) */
} options_t;

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void choose(const gpu_rank_t *rank, const shape_t *shape) {
    const options_t *options = rank->arg;
    char text[200] = "", *at = text;
    if (options->early >= 0) at += sprintf(at, "set@ar_early:%d", options->early);
    if (options->lead >= 0) at += sprintf(at, "%sset@ar_lead:%d", at > text ? ";" : "", options->lead);
    if (shape->threads >= 0)
        at +=
            sprintf(at, "%sset@ar_threads:%d;set@ar_vectors:%d", at > text ? ";" : "", shape->threads, shape->vectors);
    if (shape->blocks > 0) sprintf(at, "%sset@ar_blocks:%d", at > text ? ";" : "", shape->blocks);
    CHECK_OK(tpcomm_host_barrier(rank->comm, 0));
    const char *now = getenv("TPCOMM_TEST_HOOKS");
    if ((rank->rank == 0 || options->processes) && (now == NULL || strcmp(now, text) != 0)) {
        CHECK_EQ(setenv("TPCOMM_TEST_HOOKS", text, 1), 0);
        tpc_hook_reload();
    }
    CHECK_OK(tpcomm_host_barrier(rank->comm, 0));
}

static void time_shape(const gpu_rank_t *rank, size_t bytes, const shape_t *shape, double us_p[2]) {
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    cudaEvent_t from, to;
    double us[REPLAYS];
    int calls = bytes > 4 << 20 ? 10 : CALLS;
    size_t apart = (bytes + 255) / 256 * 256, rotated = rank->room / apart < ROTATED ? rank->room / apart : ROTATED;
    choose(rank, shape);
    CUDA_OK(cudaEventCreate(&from));
    CUDA_OK(cudaEventCreate(&to));
    CUDA_OK(cudaStreamBeginCapture(rank->stream, cudaStreamCaptureModeThreadLocal));
    for (int k = 0; k < calls; k++) {
        tpcomm_call_t call = {.struct_size = sizeof call,
                              .coll = TPCOMM_ALL_REDUCE,
                              .dtype = TPCOMM_BF16,
                              .op = TPCOMM_SUM,
                              .path = shape->path,
                              .in = rank->in + (size_t)k % rotated * apart,
                              .out = rank->out + (size_t)k % rotated * apart,
                              .count = bytes / 2};
        CHECK_OK(tpcomm_call(rank->comm, &call, rank->stream));
    }
    CUDA_OK(cudaStreamEndCapture(rank->stream, &graph));
    CUDA_OK(cudaGraphInstantiate(&exec, graph, 0));
    CUDA_OK(cudaGraphUpload(exec, rank->stream));
    CUDA_OK(cudaStreamSynchronize(rank->stream));
    for (int replay = 0; replay < REPLAYS; replay++) {
        float ms = 0;
        CHECK_OK(tpcomm_host_barrier(rank->comm, 0));
        CUDA_OK(cudaGraphLaunch(exec, rank->stream));
        CUDA_OK(cudaEventRecord(from, rank->stream));
        CUDA_OK(cudaGraphLaunch(exec, rank->stream));
        CUDA_OK(cudaEventRecord(to, rank->stream));
        CUDA_OK(cudaStreamSynchronize(rank->stream));
        CUDA_OK(cudaEventElapsedTime(&ms, from, to));
        us[replay] = (double)ms * 1000.0 / calls;
    }
    CHECK_OK(tpcomm_async_status(rank->comm, NULL));
    CHECK_OK(tpcomm_host_barrier(rank->comm, 0));
    CUDA_OK(cudaGraphExecDestroy(exec));
    CUDA_OK(cudaGraphDestroy(graph));
    CUDA_OK(cudaEventDestroy(from));
    CUDA_OK(cudaEventDestroy(to));
    qsort(us, REPLAYS, sizeof *us, by_value);
    us_p[0] = us[REPLAYS / 2];
    us_p[1] = us[REPLAYS * 95 / 100];
}

static size_t list_shapes(const options_t *options, int32_t size, size_t bytes, shape_t *shapes) {
    static const tpcomm_path_t paths[] = {TPCOMM_PATH_ONESHOT, TPCOMM_PATH_TWOSHOT, TPCOMM_PATH_RING};
    size_t n = 0;
    for (int p = 0; p < 3; p++) {
        bool worth = p == 0 || (p == 1 && size > 2) || (p == 2 && bytes >= 1 << 20);
        if (options->path != 0 ? options->path != paths[p] : !worth) continue;
        shapes[n++] = (shape_t){.threads = -1, .path = paths[p]};
        for (int blocks = 16; p == 2 && options->sweep && blocks <= 64; blocks *= 2)
            shapes[n++] = (shape_t){.threads = -1, .blocks = blocks, .path = paths[p]};
        if (p == 2) continue;
        for (int threads = 0; threads < 4 && options->sweep; threads++)
            for (int vectors = 1; vectors <= (size == 2 && p == 0 ? 2 : 1); vectors *= 2)
                for (int half = 0; half < 2; half++) {
                    /* No more blocks than vectors; the smaller grid where it means more turns. */
                    size_t blocks = bytes / 16 / ((size_t)64 << threads) / (size_t)vectors;
                    if (threads > 0 && blocks == 0) continue;
                    if (half == 1 && (blocks < 64 || size > 2)) continue;
                    shapes[n++] = (shape_t){.threads = threads,
                                            .vectors = vectors,
                                            .blocks = half == 1 ? (int)(blocks > 512 ? 132 : blocks / 2) : 0,
                                            .path = paths[p]};
                }
    }
    return n;
}

static void timing(gpu_rank_t *rank) {
    options_t *options = rank->arg;
    for (size_t i = 0; i < rank->room; i += 1 << 20) /* not zeros */
        CUDA_OK(cudaMemsetAsync(rank->in + i, (int)(i >> 20) + 0x31 + rank->rank, 1 << 20, rank->stream));
    for (size_t bytes = options->from; bytes <= options->to; bytes *= 2) {
        shape_t shapes[SHAPES_MAX], best = {0};
        size_t n = list_shapes(options, rank->size, bytes, shapes);
        double least = 1e9;
        for (size_t s = 0; s < n; s++) {
            double us[2];
            time_shape(rank, bytes, &shapes[s], us);
            memcpy(options->us[rank->rank], us, sizeof us);
            CHECK_OK(tpcomm_host_barrier(rank->comm, 0));
            if (rank->rank == 0) {
                for (int32_t r = 1; r < rank->size && !options->processes; r++)
                    for (int i = 0; i < 2; i++)
                        if (options->us[r][i] > us[i]) us[i] = options->us[r][i];
                if (us[0] < least) least = us[0], best = shapes[s];
                printf("%d ranks %9zu bytes %-8s ", rank->size, bytes, tpcomm_path_name(shapes[s].path));
                if (shapes[s].threads < 0 && shapes[s].blocks > 0)
                    printf("%3d blocks at most   ", shapes[s].blocks);
                else if (shapes[s].threads < 0)
                    printf("own shape            ");
                else
                    printf("%3d thr %d vec %3d blk ", 64 << shapes[s].threads, shapes[s].vectors, shapes[s].blocks);
                printf("p50 %8.2f p95 %8.2f us\n", us[0], us[1]);
                if (options->json != NULL)
                    fprintf(
                        options->json,
                        "{\"ranks\": %d, \"gpus\": %d, \"bytes\": %zu, \"path\": \"%s\", \"early\": %d, \"lead\": %d, "
                        "\"threads\": %d, "
                        "\"vectors\": %d, \"blocks_max\": %d, \"p50_us\": %.3f, \"p95_us\": %.3f}\n",
                        rank->size, options->each ? rank->size : 1, bytes, tpcomm_path_name(shapes[s].path),
                        options->early, options->lead, shapes[s].threads < 0 ? 0 : 64 << shapes[s].threads,
                        shapes[s].vectors, shapes[s].blocks, us[0], us[1]);
                fflush(stdout);
            }
            CHECK_OK(tpcomm_host_barrier(rank->comm, 0));
        }
        if (rank->rank == 0 && options->sweep)
            printf("%d ranks %9zu bytes best: %s, %d threads, %d vectors, %d blocks: %.2f us\n", rank->size, bytes,
                   tpcomm_path_name(best.path), best.threads < 0 ? 0 : 64 << best.threads, best.vectors, best.blocks,
                   least);
    }
    if (rank->rank == 0 && options->json != NULL) fflush(options->json);
}

int main(int argc, char **argv) {
    static const struct option known[] = {{"ranks", 1, NULL, 'n'}, {"from", 1, NULL, 'f'}, {"to", 1, NULL, 't'},
                                          {"sweep", 0, NULL, 's'}, {"each", 0, NULL, 'e'}, {"path", 1, NULL, 'p'},
                                          {"json", 1, NULL, 'j'},  {"help", 0, NULL, 'h'}, {"processes", 0, NULL, 'P'},
                                          {"early", 1, NULL, 'E'}, {"lead", 1, NULL, 'l'}, {NULL, 0, NULL, 0}};
    options_t options = {.from = 1024, .to = 4 << 20, .early = -1, .lead = -1};
    int32_t ranks = 2;
    for (int c; (c = getopt_long(argc, argv, "", known, NULL)) != -1;) {
        if (c == 'n') ranks = atoi(optarg);
        if (c == 'f') options.from = (size_t)atoll(optarg);
        if (c == 't') options.to = (size_t)atoll(optarg);
        if (c == 's') options.sweep = true;
        if (c == 'e') options.each = true;
        if (c == 'E') options.early = atoi(optarg);
        if (c == 'l') options.lead = atoi(optarg);
        if (c == 'P') options.processes = true;
        if (c == 'p')
            options.path = strcmp(optarg, "twoshot") == 0 ? TPCOMM_PATH_TWOSHOT
                           : strcmp(optarg, "ring") == 0  ? TPCOMM_PATH_RING
                                                          : TPCOMM_PATH_ONESHOT;
        if (c == 'j' && (options.json = fopen(optarg, "ae")) == NULL) return 2;
        if (c == 'h' || c == '?') {
            printf("usage: gpu_time [--ranks N] [--each (a GPU a rank) [--processes]] [--from BYTES] [--to BYTES] "
                   "[--path oneshot|twoshot|ring] [--early 0|1 (dependent launch)] [--lead TURNS] [--sweep (shapes)] "
                   "[--json FILE (lines "
                   "are appended)]\n");
            return c == 'h' ? 0 : 2;
        }
    }
    gpu_need();
    tpcomm_config_t config = gpu_config();
    size_t room = options.to * ROTATED > 64 << 20 ? options.to : options.to * ROTATED;
    room = (room + (1 << 20) - 1) >> 20 << 20;
    printf("%s\n", options.each ? "a GPU for each rank" : "all ranks on one GPU");
    fflush(stdout);
    gpu_run(options.processes ? RANKS_PROCESSES : RANKS_THREADS, ranks, options.each, &config, room, timing, &options);
    return 0;
}
