/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Check that graphs may outlive their communicators: a replay after destroy ends at once with NaN on every rank,
 * finalized before or not, also where a graph was made a child of another; later memory goes; 100 captures of graphs on
 * one communicator, and communicators made and destroyed before and after their graphs, leave the device's free memory
 * where it was (M1). An argument names one of the parts.
 */
#include <pthread.h>
#include <unistd.h>

#include "graph_capture/kept.h"
#include "gpu/gpu_plan.h"

/* The graphs' end is told on a thread of the driver, a moment later. */
static void sweep_all(void) {
    for (int i = 0; i < 2000 && tpc_kept_sweep() > 0; i++) usleep(1000);
    CHECK_EQ(tpc_kept_sweep(), 0);
}

/* ------------------------------------------------------------------ replay after destroy */

typedef struct {
    bool finalize, child;
    pthread_barrier_t here; /* of all ranks: the communicator's own is gone */
} end_t;

static void replay_after_destroy(gpu_rank_t *rank) {
    end_t *end = rank->arg;
    plan_t plan;
    cudaGraphExec_t exec = NULL;
    plan_make(&plan, rank, 30, true);
    cudaGraph_t graph = plan_capture(&plan, rank);
    if (end->child) {
        cudaGraph_t parent = NULL;
        cudaGraphNode_t node;
        CUDA_OK(cudaGraphCreate(&parent, 0));
        CUDA_OK(cudaGraphAddChildGraphNode(&node, parent, NULL, 0, graph));
        CUDA_OK(cudaGraphDestroy(graph));
        graph = parent;
    }
    CUDA_OK(cudaGraphInstantiate(&exec, graph, 0));
    CUDA_OK(cudaGraphDestroy(graph)); /* what is instantiated keeps the memory, too */
    gpu_together(rank);
    plan_fill(&plan, rank, 1);
    CUDA_OK(cudaGraphLaunch(exec, rank->stream));
    plan_check(&plan, rank, 1, "before destroy");
    plan_fill(&plan, rank, 2);
    CUDA_OK(cudaStreamSynchronize(rank->stream));
    if (end->finalize) CHECK_OK(tpcomm_finalize(rank->comm));
    pthread_barrier_wait(&end->here);
    CHECK_OK(tpcomm_destroy(rank->comm));
    rank->comm = NULL;
    pthread_barrier_wait(&end->here);
    CHECK(tpc_kept_sweep() > 0); /* nothing goes under a graph */
    pthread_barrier_wait(&end->here);
    double start = gpu_now_s();
    for (int replay = 0; replay < 20; replay++) CUDA_OK(cudaGraphLaunch(exec, rank->stream));
    CUDA_OK(cudaStreamSynchronize(rank->stream));
    gpu_check_soon(start, 10, "20 replays"); /* they would wait for 400 s */
    plan_check_nan(&plan, rank);
    pthread_barrier_wait(&end->here);
    CUDA_OK(cudaGraphExecDestroy(exec));
    pthread_barrier_wait(&end->here);
    if (rank->rank == 0) sweep_all();
    pthread_barrier_wait(&end->here);
    plan_free(&plan);
}

static void after_destroy(void) {
    tpcomm_config_t config = gpu_config();
    for (int32_t size = 2; size <= 4; size += 2)
        for (int how = 0; how < 4; how++) {
            end_t end = {.finalize = how % 2 == 0, .child = how >= 2};
            CHECK_EQ(pthread_barrier_init(&end.here, NULL, (unsigned)size), 0);
            printf("%d ranks, %s%s\n", size, end.finalize ? "finalized" : "not finalized", end.child ? ", child" : "");
            fflush(stdout);
            gpu_run(RANKS_THREADS, size, false, &config, 4 << 20, replay_after_destroy, &end);
            pthread_barrier_destroy(&end.here);
        }
}

/* ------------------------------------------------------------------ cycles: nothing runs, so one thread plays all
 * ranks */

enum { RANKS = 2, CALLS = 3, SLACK = 4 << 20 };

typedef struct {
    cudaStream_t stream;
    unsigned char *data;
} device_t;

static void set_up(device_t *device) {
    CUDA_OK(cudaSetDevice(0));
    gpu_stream_new(&device->stream);
    CUDA_OK(cudaMalloc((void **)&device->data, 1 << 20));
}

static void make(tpcomm_t *comms[RANKS]) {
    static const int32_t devices[RANKS] = {0};
    tpcomm_config_t config = gpu_config();
    CHECK_OK(tpcomm_init_local(RANKS, devices, &config, comms));
}

static void capture(const device_t *device, tpcomm_t *comm, cudaGraph_t *graph_p, cudaGraphExec_t *exec_p) {
    CUDA_OK(cudaStreamBeginCapture(device->stream, cudaStreamCaptureModeThreadLocal));
    for (int k = 0; k < CALLS; k++)
        CHECK_OK(
            tpcomm_all_reduce(comm, device->data, device->data, 1000u << k, TPCOMM_F32, TPCOMM_SUM, device->stream));
    CUDA_OK(cudaStreamEndCapture(device->stream, graph_p));
    CUDA_OK(cudaGraphInstantiate(exec_p, *graph_p, 0));
}

static void drop(cudaGraph_t graph, cudaGraphExec_t exec) {
    CUDA_OK(cudaGraphExecDestroy(exec));
    CUDA_OK(cudaGraphDestroy(graph));
}

static size_t free_bytes(void) {
    size_t free_p = 0, total = 0;
    CUDA_OK(cudaMemGetInfo(&free_p, &total));
    return free_p;
}

static void check_flat(size_t before, const char *what) {
    size_t after = free_bytes();
    printf("%s: free before %zu, after %zu\n", what, before, after);
    fflush(stdout);
    if (after + SLACK < before) FAIL("%s: %zu bytes of device memory are gone", what, before - after);
}

/* Graphs that profiling throws away. */
static void graphs_of_one(void *arg) {
    (void)arg;
    device_t device;
    tpcomm_t *comms[RANKS];
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    set_up(&device);
    make(comms);
    size_t before = 0;
    for (int cycle = 0; cycle < 110; cycle++) {
        if (cycle == 10) before = free_bytes();
        for (int r = 0; r < RANKS; r++) {
            capture(&device, comms[r], &graph, &exec);
            drop(graph, exec);
        }
    }
    check_flat(before, "100 captures");
    for (int r = 0; r < RANKS; r++) CHECK_OK(tpcomm_destroy(comms[r]));
    sweep_all();
}

static void communicators(void *arg) {
    (void)arg;
    device_t device;
    tpcomm_t *comms[RANKS];
    cudaGraph_t graphs[RANKS];
    cudaGraphExec_t execs[RANKS];
    set_up(&device);
    size_t before = 0;
    for (int cycle = 0; cycle < 26; cycle++) {
        bool graphs_first = cycle % 2 == 0;
        if (cycle == 6) {
            sweep_all();
            before = free_bytes();
        }
        make(comms);
        for (int r = 0; r < RANKS; r++) capture(&device, comms[r], &graphs[r], &execs[r]);
        for (int r = 0; r < RANKS && graphs_first; r++) drop(graphs[r], execs[r]);
        for (int r = 0; r < RANKS; r++) CHECK_OK(tpcomm_destroy(comms[r]));
        for (int r = 0; r < RANKS && !graphs_first; r++) drop(graphs[r], execs[r]);
    }
    sweep_all();
    check_flat(before, "20 communicators");
}

int main(int argc, char **argv) {
    gpu_need();
    const char *only = argc > 1 ? argv[1] : "";
    if (argc == 1 || strcmp(only, "destroy") == 0) after_destroy();
    if (argc == 1 || strcmp(only, "cycles") == 0) {
        gpu_process(graphs_of_one, NULL);
        gpu_process(communicators, NULL);
    }
    printf("ok\n");
    return 0;
}
