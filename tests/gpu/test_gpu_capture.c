/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Check what decode servers do with graphs: 1, 3 and 161 calls of mixed sizes, replayed 1000 times with fresh data;
 * graphs and eager calls in a random order; graphs as children of others; calls on two streams of one capture; brackets
 * around captures, and captures that differ between ranks, with brackets and without (G1); calls that nothing orders
 * are found out. 2 and 4 threads share a GPU. An argument names one of the parts.
 */
#include <unistd.h>

#include "gpu/gpu_plan.h"

/* Ranks that share a GPU: nobody instantiates while another's kernel may wait. */
static cudaGraphExec_t instantiate(const gpu_rank_t *rank, cudaGraph_t graph) {
    cudaGraphExec_t exec = NULL;
    CUDA_OK(cudaGraphInstantiate(&exec, graph, 0));
    gpu_together(rank);
    return exec;
}

static void destroy(const gpu_rank_t *rank, cudaGraph_t graph, cudaGraphExec_t exec) {
    gpu_together(rank);
    CUDA_OK(cudaGraphExecDestroy(exec));
    if (graph != NULL) CUDA_OK(cudaGraphDestroy(graph));
    gpu_together(rank);
}

static void replays(gpu_rank_t *rank) {
    static const int calls[] = {1, 3, 161};
    for (size_t c = 0; c < sizeof calls / sizeof *calls; c++) {
        plan_t plan;
        plan_make(&plan, rank, calls[c], true);
        cudaGraph_t graph = plan_capture(&plan, rank);
        cudaGraphExec_t exec = instantiate(rank, graph);
        for (uint64_t run = 0; run < (uint64_t)gpu_rounds(1000); run++) {
            plan_fill(&plan, rank, run);
            CUDA_OK(cudaGraphLaunch(exec, rank->stream));
            plan_check(&plan, rank, run, "replay");
        }
        CHECK_OK(tpcomm_async_status(rank->comm, NULL));
        destroy(rank, graph, exec);
        plan_free(&plan);
    }
}

static void in_any_order(gpu_rank_t *rank) {
    plan_t plans[2];
    cudaGraph_t graphs[2];
    cudaGraphExec_t execs[2];
    uint64_t seed = 7; /* the same order on all ranks */
    for (int g = 0; g < 2; g++) {
        plan_make(&plans[g], rank, g == 0 ? 5 : 30, g == 1);
        graphs[g] = plan_capture(&plans[g], rank);
        execs[g] = instantiate(rank, graphs[g]);
    }
    for (uint64_t run = 0; run < (uint64_t)gpu_rounds(300); run++) {
        uint64_t what = random_next(&seed) % 3;
        plan_t *plan = &plans[random_next(&seed) % 2];
        plan_fill(plan, rank, run);
        if (what == 0)
            plan_calls(plan, rank, rank->stream);
        else
            CUDA_OK(cudaGraphLaunch(execs[plan - plans], rank->stream));
        if (what == 2) { /* twice, back to back: in place sums sums, so with outputs apart alone */
            if (plan == &plans[0]) CUDA_OK(cudaGraphLaunch(execs[0], rank->stream));
        }
        plan_check(plan, rank, run, what == 0 ? "eager" : "graph");
    }
    for (int g = 0; g < 2; g++) {
        destroy(rank, graphs[g], execs[g]);
        plan_free(&plans[g]);
    }
}

/* A captured graph twice in another, one behind the other, and gone before that runs. */
static void children(gpu_rank_t *rank) {
    plan_t plan;
    plan_make(&plan, rank, 3, false);
    cudaGraph_t graph = plan_capture(&plan, rank), parent = NULL;
    cudaGraphNode_t first, second;
    CUDA_OK(cudaGraphCreate(&parent, 0));
    CUDA_OK(cudaGraphAddChildGraphNode(&first, parent, NULL, 0, graph));
    CUDA_OK(cudaGraphAddChildGraphNode(&second, parent, &first, 1, graph));
    CUDA_OK(cudaGraphDestroy(graph));
    cudaGraphExec_t exec = instantiate(rank, parent);
    CUDA_OK(cudaGraphDestroy(parent));
    gpu_together(rank);
    for (uint64_t run = 0; run < (uint64_t)gpu_rounds(100); run++) {
        plan_fill(&plan, rank, run);
        CUDA_OK(cudaGraphLaunch(exec, rank->stream));
        plan_check(&plan, rank, run, "child graphs");
    }
    destroy(rank, NULL, exec);
    plan_free(&plan);
}

static size_t count_edges(cudaGraph_t graph) {
    size_t edges = 0;
#if CUDART_VERSION >= 13000
    CUDA_OK(cudaGraphGetEdges(graph, NULL, NULL, NULL, &edges));
#else
    CUDA_OK(cudaGraphGetEdges(graph, NULL, NULL, &edges));
#endif
    return edges;
}

/*
 * The caller forks before the first call, so that only tpcomm can put the calls on the two streams in order; a branch
 * of the caller's own (a delay) runs beside them.
 */
static void two_streams(gpu_rank_t *rank) {
    plan_t plan;
    cudaGraph_t graph = NULL;
    cudaStream_t side;
    cudaEvent_t forked, joined;
    plan_make(&plan, rank, 12, false);
    gpu_stream_new(&side);
    CUDA_OK(cudaEventCreateWithFlags(&forked, cudaEventDisableTiming));
    CUDA_OK(cudaEventCreateWithFlags(&joined, cudaEventDisableTiming));
    gpu_together(rank);
    CUDA_OK(cudaStreamBeginCapture(rank->stream, cudaStreamCaptureModeThreadLocal));
    CUDA_OK(cudaEventRecord(forked, rank->stream));
    CUDA_OK(cudaStreamWaitEvent(side, forked, 0));
    for (int k = 0; k < plan.calls; k++) {
        plan_call(&plan, rank, k, k % 2 == 0 ? rank->stream : side);
        if (k == 4) CUDA_OK((cudaError_t)gpu_kernel_delay(1, rank->stream)); /* not before call 5 */
    }
    CUDA_OK(cudaEventRecord(joined, side));
    CUDA_OK(cudaStreamWaitEvent(rank->stream, joined, 0));
    CUDA_OK(cudaStreamEndCapture(rank->stream, &graph));
    /* Each call behind the one before (11), each behind the one before on its own stream (10), the delay between (1).
     */
    CHECK_EQ(count_edges(graph), 22);
    cudaGraphExec_t exec = instantiate(rank, graph);
    for (uint64_t run = 0; run < (uint64_t)gpu_rounds(200); run++) {
        plan_fill(&plan, rank, run);
        CUDA_OK(cudaGraphLaunch(exec, rank->stream));
        plan_check(&plan, rank, run, "two streams of one capture");
    }
    CHECK_OK(tpcomm_async_status(rank->comm, NULL));
    destroy(rank, graph, exec);
    /* Eager calls, too. */
    for (uint64_t run = 0; run < (uint64_t)gpu_rounds(50); run++) {
        plan_fill(&plan, rank, run);
        CUDA_OK(cudaEventRecord(forked, rank->stream));
        CUDA_OK(cudaStreamWaitEvent(side, forked, 0));
        for (int k = 0; k < plan.calls; k++) plan_call(&plan, rank, k, k % 3 == 0 ? rank->stream : side);
        CUDA_OK(cudaEventRecord(joined, side));
        CUDA_OK(cudaStreamWaitEvent(rank->stream, joined, 0));
        plan_check(&plan, rank, run, "two streams");
    }
    gpu_together(rank);
    CUDA_OK(cudaEventDestroy(forked));
    CUDA_OK(cudaEventDestroy(joined));
    CUDA_OK(cudaStreamDestroy(side)); /* the last call's; the next is behind it all the same */
    gpu_together(rank);
    plan_fill(&plan, rank, 50);
    plan_calls(&plan, rank, rank->stream);
    plan_check(&plan, rank, 50, "behind a stream that is gone");
    plan_free(&plan);
}

static void brackets(gpu_rank_t *rank) {
    plan_t plan;
    cudaGraph_t graphs[3];
    plan_make(&plan, rank, 161, true);
    CHECK_OK(tpcomm_graph_capture_begin(rank->comm));
    for (int g = 0; g < 3; g++) {
        graphs[g] = plan_capture(&plan, rank);
        plan_fill(&plan, rank, 1); /* a warm-up between: not captured, not compared */
        plan_calls(&plan, rank, rank->stream);
        plan_check(&plan, rank, 1, "eager in brackets");
    }
    CHECK_OK(tpcomm_graph_capture_end(rank->comm));
    for (int g = 0; g < 3; g++) CUDA_OK(cudaGraphDestroy(graphs[g]));
    /* Inside of one capture. */
    CUDA_OK(cudaStreamBeginCapture(rank->stream, cudaStreamCaptureModeThreadLocal));
    CHECK_OK(tpcomm_graph_capture_begin(rank->comm));
    plan_calls(&plan, rank, rank->stream);
    CHECK_OK(tpcomm_graph_capture_end(rank->comm));
    CUDA_OK(cudaStreamEndCapture(rank->stream, &graphs[0]));
    cudaGraphExec_t exec = instantiate(rank, graphs[0]);
    plan_fill(&plan, rank, 2);
    CUDA_OK(cudaGraphLaunch(exec, rank->stream));
    plan_check(&plan, rank, 2, "captured in brackets");
    destroy(rank, graphs[0], exec);
    plan_free(&plan);
}

/* What another thread of an engine may do meanwhile, and this one: none of it ends a capture of the strictest mode. */
static void settings(gpu_rank_t *rank) {
    plan_t plan;
    cudaGraph_t graph = NULL;
    tpcomm_t *beside = NULL, *made = NULL;
    plan_make(&plan, rank, 3, false);
    CHECK_OK(tpcomm_group_split(rank->comm, 0, rank->rank, "beside", &beside));
    for (int32_t turn = 0; turn < rank->size; turn++) {
        if (turn == rank->rank) {
            CUDA_OK(cudaStreamBeginCapture(rank->stream, cudaStreamCaptureModeGlobal));
            plan_call(&plan, rank, 0, rank->stream);
            CHECK_OK(tpcomm_set_op_timeout(rank->comm, 19000));
            CHECK_OK(tpcomm_note_waits(rank->comm, TPCOMM_ON));
            plan_call(&plan, rank, 1, rank->stream);
        }
        CHECK_OK(tpcomm_host_barrier(rank->comm, 0));
        if (turn != rank->rank) CHECK_OK(tpcomm_set_op_timeout(rank->comm, 18000));
        CHECK_OK(tpcomm_group_split(rank->comm, 0, rank->rank, "made", &made));
        CHECK_OK(tpcomm_host_barrier(made, 0));
        CHECK_OK(tpcomm_destroy(made));
        if (turn == rank->size - 1 && rank->rank == 0) CHECK_OK(tpcomm_destroy(beside));
        CHECK_OK(tpcomm_host_barrier(rank->comm, 0));
        if (turn != rank->rank) continue;
        CHECK_OK(tpcomm_note_waits(rank->comm, TPCOMM_OFF));
        plan_call(&plan, rank, 2, rank->stream);
        CUDA_OK(cudaStreamEndCapture(rank->stream, &graph));
    }
    CHECK_OK(tpcomm_host_barrier(rank->comm, 0)); /* nobody captures any more */
    if (rank->rank != 0) CHECK_OK(tpcomm_destroy(beside));
    gpu_together(rank);
    cudaGraphExec_t exec = instantiate(rank, graph);
    plan_fill(&plan, rank, 1);
    CUDA_OK(cudaGraphLaunch(exec, rank->stream));
    plan_check(&plan, rank, 1, "captured beside settings");
    destroy(rank, graph, exec);
    plan_free(&plan);
}

static void wait_until_broken(const gpu_rank_t *rank) {
    while (tpcomm_async_status(rank->comm, NULL) == TPCOMM_OK) {
    }
}

/* The last rank captures a call less. All calls are alike: only their ordinals tell. */
static void capture_unequal(const gpu_rank_t *rank, cudaGraph_t *graph_p) {
    CUDA_OK(cudaStreamBeginCapture(rank->stream, cudaStreamCaptureModeThreadLocal));
    for (int k = 0; k < (rank->rank == rank->size - 1 ? 2 : 3); k++)
        CHECK_OK(tpcomm_all_reduce(rank->comm, rank->in, rank->out, 4096, TPCOMM_BF16, TPCOMM_SUM, rank->stream));
    CUDA_OK(cudaStreamEndCapture(rank->stream, graph_p));
}

static void unequal(gpu_rank_t *rank) {
    cudaGraph_t graph = NULL;
    CUDA_OK(cudaMemsetAsync(rank->in, 0, 8192, rank->stream));
    CUDA_OK(cudaStreamSynchronize(rank->stream));
    capture_unequal(rank, &graph);
    cudaGraphExec_t exec = instantiate(rank, graph);
    for (int replay = 0; replay < 2; replay++) CUDA_OK(cudaGraphLaunch(exec, rank->stream));
    CUDA_OK(cudaStreamSynchronize(rank->stream));
    wait_until_broken(rank);
    CHECK_STATUS(tpcomm_barrier(rank->comm, rank->stream), TPCOMM_ERR_MISMATCH);
    CHECK_ERROR_HAS("all_reduce");
    CUDA_OK(cudaGraphExecDestroy(exec));
    CUDA_OK(cudaGraphDestroy(graph));
}

static void unequal_in_brackets(gpu_rank_t *rank) {
    cudaGraph_t graph = NULL;
    cudaGraphExec_t exec = NULL;
    char want[128];
    CHECK_OK(tpcomm_graph_capture_begin(rank->comm));
    capture_unequal(rank, &graph);
    CUDA_OK(cudaGraphInstantiate(&exec, graph, 0));
    CHECK_STATUS(tpcomm_graph_capture_end(rank->comm), TPCOMM_ERR_MISMATCH);
    snprintf(want, sizeof want, "rank %d captured 2 calls in 1 graph; first difference at call 3: rank 0 all_reduce",
             rank->size - 1);
    CHECK_ERROR_HAS("rank 0 captured 3 calls in 1 graph, ");
    CHECK_ERROR_HAS(want);
    /* A replay all the same: it waits for nobody. */
    uint16_t out[4096];
    CUDA_OK(cudaMemsetAsync(rank->out, 0, 8192, rank->stream));
    for (int replay = 0; replay < 10; replay++) CUDA_OK(cudaGraphLaunch(exec, rank->stream));
    gpu_fetch(rank, out, rank->out, sizeof out);
    for (int i = 0; i < 4096; i++) CHECK((out[i] & 0x7F80) == 0x7F80 && (out[i] & 0x7F) != 0);
    CHECK_STATUS(tpcomm_async_status(rank->comm, NULL), TPCOMM_ERR_MISMATCH);
    CUDA_OK(cudaGraphExecDestroy(exec));
    CUDA_OK(cudaGraphDestroy(graph));
}

/*
 * Rank 1 makes a call beside a replay that waits for rank 0, on a stream of its own, so that nothing orders the two: an
 * eager call, or another graph.
 */
static void overlap(gpu_rank_t *rank, bool graph_beside) {
    cudaGraph_t graph = NULL;
    cudaStream_t side;
    CUDA_OK(cudaMemsetAsync(rank->in, 0, 8192, rank->stream));
    CUDA_OK(cudaStreamSynchronize(rank->stream));
    gpu_stream_new(&side);
    CUDA_OK(cudaStreamBeginCapture(rank->stream, cudaStreamCaptureModeThreadLocal));
    CHECK_OK(tpcomm_all_reduce(rank->comm, rank->in, rank->out, 4096, TPCOMM_BF16, TPCOMM_SUM, rank->stream));
    CUDA_OK(cudaStreamEndCapture(rank->stream, &graph));
    cudaGraphExec_t execs[2];
    CUDA_OK(cudaGraphInstantiate(&execs[0], graph, 0));
    CUDA_OK(cudaGraphInstantiate(&execs[1], graph, 0));
    gpu_together(rank);
    if (rank->rank == 0) CUDA_OK((cudaError_t)gpu_kernel_delay(400, rank->stream));
    CUDA_OK(cudaGraphLaunch(execs[0], rank->stream));
    if (rank->rank == 1) {
        usleep(100000);
        if (graph_beside)
            CUDA_OK(cudaGraphLaunch(execs[1], side));
        else
            CHECK_OK(
                tpcomm_all_reduce(rank->comm, rank->in + 8192, rank->out + 8192, 4096, TPCOMM_BF16, TPCOMM_SUM, side));
        CUDA_OK(cudaStreamSynchronize(side));
    }
    CUDA_OK(cudaStreamSynchronize(rank->stream));
    wait_until_broken(rank);
    CHECK_STATUS(tpcomm_barrier(rank->comm, rank->stream), TPCOMM_ERR_OVERLAP);
    CHECK_ERROR_HAS("of rank 1 began while another of its calls was running");
    for (int g = 0; g < 2; g++) CUDA_OK(cudaGraphExecDestroy(execs[g]));
    CUDA_OK(cudaGraphDestroy(graph));
}

static void eager_beside(gpu_rank_t *rank) {
    overlap(rank, false);
}

static void graph_beside(gpu_rank_t *rank) {
    overlap(rank, true);
}

static const struct {
    const char *name;
    gpu_fn fn;
} parts[] = {{"replays", replays},           {"order", in_any_order},
             {"children", children},         {"streams", two_streams},
             {"brackets", brackets},         {"settings", settings},
             {"unequal", unequal},           {"unequal_in_brackets", unequal_in_brackets},
             {"eager_beside", eager_beside}, {"graph_beside", graph_beside}};

int main(int argc, char **argv) {
    gpu_need();
    tpcomm_config_t config = gpu_config();
    for (size_t p = 0; p < sizeof parts / sizeof *parts; p++) {
        if (argc > 1 && strcmp(argv[1], parts[p].name) != 0) continue;
        for (int32_t size = 2; size <= 4; size += 2) {
            printf("%s: %d ranks share a GPU, threads\n", parts[p].name, size);
            fflush(stdout);
            gpu_run(RANKS_THREADS, size, false, &config, 4 << 20, parts[p].fn, NULL);
        }
    }
    printf("ok\n");
    return 0;
}
