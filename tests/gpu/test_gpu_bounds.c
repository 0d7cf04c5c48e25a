/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Check that nothing waits for ever and nobody is surprised: a kernel of any form whose peer never comes, launched or
 * replayed, ends by itself and the device is none the worse (H22); calls of any form whose grids find all SMs taken
 * complete afterwards (H23); ranks that make calls which differ in any one thing all get MISMATCH, soon, and again at
 * once (W13, U2); two ranks on one GPU without sharing are refused on both, naming the GPU and the way out (I1).
 */
#include <unistd.h>

#include "device/cuda.h"
#include "gpu/gpu_ranks.h"

/* ------------------------------------------------------------------ every form */

typedef struct {
    const char *name;
    tpcomm_coll_t coll;
    tpcomm_path_t path;
    tpcomm_dtype_t dtype;
    tpcomm_op_t op;
    size_t count; /* of calls with a norm: rows of HIDDEN */
} form_t;

enum { HIDDEN = 1024 };

static const form_t forms[] = {
    {"one-shot", TPCOMM_ALL_REDUCE, TPCOMM_PATH_ONESHOT, TPCOMM_F32, TPCOMM_SUM, 1500000},
    {"one-shot, general", TPCOMM_ALL_REDUCE, TPCOMM_PATH_ONESHOT, TPCOMM_BF16, TPCOMM_MAX, 1000003},
    {"one-shot, integers", TPCOMM_ALL_REDUCE, TPCOMM_PATH_ONESHOT, TPCOMM_I32, TPCOMM_SUM, 500001},
    {"two-shot", TPCOMM_ALL_REDUCE, TPCOMM_PATH_TWOSHOT, TPCOMM_F16, TPCOMM_SUM, 2000000},
    {"two-shot, general", TPCOMM_ALL_REDUCE, TPCOMM_PATH_TWOSHOT, TPCOMM_F32, TPCOMM_AVG, 700001},
    {"two-shot, f64", TPCOMM_ALL_REDUCE, TPCOMM_PATH_TWOSHOT, TPCOMM_F64, TPCOMM_SUM, 300001},
    {"ring", TPCOMM_ALL_REDUCE, TPCOMM_PATH_RING, TPCOMM_BF16, TPCOMM_SUM, 3000000},
    {"ring, general", TPCOMM_ALL_REDUCE, TPCOMM_PATH_RING, TPCOMM_F32, TPCOMM_SUM, 1000001},
    {"reduce_scatter", TPCOMM_REDUCE_SCATTER, 0, TPCOMM_BF16, TPCOMM_SUM, 600000},
    {"broadcast", TPCOMM_BROADCAST, 0, TPCOMM_F32, 0, 1000000},
    {"all_gather", TPCOMM_ALL_GATHER, 0, TPCOMM_F32, 0, 500000},
    {"barrier", TPCOMM_BARRIER, 0, 0, 0, 0},
    {"fused norm", TPCOMM_ALL_REDUCE_RMS_NORM, TPCOMM_PATH_FUSED_ONESHOT, TPCOMM_BF16, TPCOMM_SUM, 512},
    {"two-shot norm", TPCOMM_ALL_REDUCE_RMS_NORM, TPCOMM_PATH_FUSED_TWOSHOT, TPCOMM_BF16, TPCOMM_SUM, 512},
    {"unfused norm", TPCOMM_ALL_REDUCE_RMS_NORM, TPCOMM_PATH_UNFUSED, TPCOMM_BF16, TPCOMM_SUM, 512},
};
enum { FORMS = sizeof forms / sizeof *forms };

/* In and out are apart; a norm's weight lies behind the rows. */
static tpcomm_status_t make_call(const gpu_rank_t *rank, tpcomm_t *comm, const form_t *form, size_t count) {
    if (form->coll == TPCOMM_ALL_REDUCE_RMS_NORM) {
        tpcomm_rms_norm_t norm = {.struct_size = sizeof norm,
                                  .dtype = form->dtype,
                                  .path = form->path,
                                  .hidden = HIDDEN,
                                  .tokens = count,
                                  .eps = 1e-5f,
                                  .in = rank->in,
                                  .weight = rank->in + rank->room / 2,
                                  .out = rank->out};
        return tpcomm_all_reduce_rms_norm(comm, &norm, rank->stream);
    }
    tpcomm_call_t call = {.struct_size = sizeof call,
                          .coll = form->coll,
                          .dtype = form->dtype,
                          .op = form->op,
                          .path = form->path,
                          .in = rank->in,
                          .out = rank->out,
                          .count = count};
    return tpcomm_call(comm, &call, rank->stream);
}

/* A group of all ranks that may be broken without harm to the others. */
static tpcomm_t *own_group(const gpu_rank_t *rank, uint32_t op_timeout_ms) {
    int32_t ranks[TPCOMM_MAX_RANKS];
    tpcomm_t *group = NULL;
    for (int32_t r = 0; r < rank->size; r++) ranks[r] = r;
    CHECK_OK(tpcomm_group_create(rank->comm, ranks, rank->size, "to be broken", &group));
    CHECK_OK(tpcomm_set_op_timeout(group, op_timeout_ms));
    gpu_together(rank);
    return group;
}

static void drop_group(const gpu_rank_t *rank, tpcomm_t *group) {
    gpu_together(rank);
    CHECK_OK(tpcomm_destroy(group));
    gpu_together(rank);
}

/* ------------------------------------------------------------------ H22 */

static void device_is_well(const gpu_rank_t *rank) {
    unsigned bad = 1, *count = (unsigned *)(void *)(rank->out + (rank->room / 2));
    float *numbers = (float *)(void *)rank->out;
    CUDA_OK(cudaMemsetAsync(count, 0, sizeof *count, rank->stream));
    CUDA_OK((cudaError_t)gpu_kernel_set(numbers, 10000, 2.5f, rank->stream));
    CUDA_OK((cudaError_t)gpu_kernel_expect(numbers, 10000, 2.5f, count, rank->stream));
    gpu_fetch(rank, &bad, count, sizeof bad);
    CHECK_EQ(bad, 0);
}

/* Every other form in a graph, which obeys the limit of the moment as well. */
static void peer_never_comes(gpu_rank_t *rank) {
    for (int f = 0; f < FORMS; f++) {
        const form_t *form = &forms[f];
        uint32_t limit_ms = f == 0 ? 2000 : 200;
        size_t count = form->count > 10000 ? form->count / 1000 : form->count / 16;
        tpcomm_t *group = own_group(rank, limit_ms);
        cudaGraph_t graph = NULL;
        cudaGraphExec_t exec = NULL;
        if (rank->rank == 0 && f % 2 == 1) {
            CUDA_OK(cudaStreamBeginCapture(rank->stream, cudaStreamCaptureModeThreadLocal));
            CHECK_OK(make_call(rank, group, form, count));
            CUDA_OK(cudaStreamEndCapture(rank->stream, &graph));
            CUDA_OK(cudaGraphInstantiate(&exec, graph, 0));
        }
        gpu_together(rank);
        double start = gpu_now_s();
        if (rank->rank == 0) {
            if (exec != NULL)
                CUDA_OK(cudaGraphLaunch(exec, rank->stream));
            else
                CHECK_OK(make_call(rank, group, form, count));
            CUDA_OK(cudaStreamSynchronize(rank->stream));
            if (tpcomm_async_status(group, NULL) != TPCOMM_ERR_TIMEOUT)
                FAIL("%s: async_status is %s", form->name, tpcomm_status_name(tpcomm_async_status(group, NULL)));
        }
        while (tpcomm_async_status(group, NULL) == TPCOMM_OK) usleep(1000);
        gpu_check_soon(start, limit_ms / 1000.0 + 2, form->name);
        CHECK_STATUS(tpcomm_barrier(group, rank->stream), TPCOMM_ERR_TIMEOUT);
        if (rank->rank == 0) device_is_well(rank);
        gpu_together(rank);
        if (exec != NULL) {
            CUDA_OK(cudaGraphExecDestroy(exec));
            CUDA_OK(cudaGraphDestroy(graph));
        }
        drop_group(rank, group);
    }
    gpu_all_reduce(rank, rank->in, rank->out, TPCOMM_F32, 3, 1000, "the parent, after all");
}

/* ------------------------------------------------------------------ H23 */

/* Rank 0 takes the whole device for a while; both ranks' largest grids come to stand behind it. */
static void no_room(gpu_rank_t *rank) {
    cudaStream_t side;
    gpu_stream_new(&side);
    for (int f = 0; f < FORMS; f++) {
        const form_t *form = &forms[f];
        bool sums = form->coll == TPCOMM_ALL_REDUCE && form->op == TPCOMM_SUM;
        CUDA_OK(cudaMemsetAsync(rank->in, 0, rank->room, rank->stream));
        if (sums) gpu_pattern_in(rank, rank->in, form->dtype, 5, form->count);
        gpu_together(rank);
        if (rank->rank == 0) CUDA_OK((cudaError_t)gpu_kernel_occupy(f == 0 ? 3000 : 150, side));
        CHECK_OK(tpcomm_host_barrier(rank->comm, 0));
        CHECK_OK(make_call(rank, rank->comm, form, form->count));
        CUDA_OK(cudaStreamSynchronize(rank->stream));
        CHECK_OK(tpcomm_async_status(rank->comm, NULL));
        if (sums) gpu_pattern_check(rank, rank->out, form->dtype, 5, form->count, "behind a full device");
        CUDA_OK(cudaStreamSynchronize(side));
        gpu_together(rank);
    }
    CUDA_OK(cudaStreamDestroy(side));
    gpu_together(rank);
}

/* ------------------------------------------------------------------ W13, U2 */

static void unequal_calls(gpu_rank_t *rank) {
    static const struct {
        const char *what, *text; /* what the error has, of rank 1's call */
        form_t even, odd;
    } rows[] = {
        {"count",
         "count 2000",
         {.coll = TPCOMM_ALL_REDUCE, .dtype = TPCOMM_F32, .op = TPCOMM_SUM, .count = 1000},
         {.coll = TPCOMM_ALL_REDUCE, .dtype = TPCOMM_F32, .op = TPCOMM_SUM, .count = 2000}},
        {"dtype of equal bytes",
         "bf16",
         {.coll = TPCOMM_ALL_REDUCE, .dtype = TPCOMM_F16, .op = TPCOMM_SUM, .count = 512},
         {.coll = TPCOMM_ALL_REDUCE, .dtype = TPCOMM_BF16, .op = TPCOMM_SUM, .count = 512}},
        {"op",
         "max",
         {.coll = TPCOMM_ALL_REDUCE, .dtype = TPCOMM_F32, .op = TPCOMM_SUM, .count = 512},
         {.coll = TPCOMM_ALL_REDUCE, .dtype = TPCOMM_F32, .op = TPCOMM_MAX, .count = 512}},
        {"collective",
         "broadcast",
         {.coll = TPCOMM_ALL_REDUCE, .dtype = TPCOMM_F32, .op = TPCOMM_SUM, .count = 512},
         {.coll = TPCOMM_BROADCAST, .dtype = TPCOMM_F32, .count = 512}},
        {"path",
         "all_reduce",
         {.coll = TPCOMM_ALL_REDUCE, .path = TPCOMM_PATH_ONESHOT, .dtype = TPCOMM_F32, .op = TPCOMM_SUM, .count = 4096},
         {.coll = TPCOMM_ALL_REDUCE,
          .path = TPCOMM_PATH_TWOSHOT,
          .dtype = TPCOMM_F32,
          .op = TPCOMM_SUM,
          .count = 4096}},
        {"nothing and something",
         "count 8",
         {.coll = TPCOMM_ALL_REDUCE, .dtype = TPCOMM_F32, .op = TPCOMM_SUM},
         {.coll = TPCOMM_ALL_REDUCE, .dtype = TPCOMM_F32, .op = TPCOMM_SUM, .count = 8}},
        {"a norm and none",
         "all_reduce",
         {.coll = TPCOMM_ALL_REDUCE, .dtype = TPCOMM_BF16, .op = TPCOMM_SUM, .count = HIDDEN},
         {.coll = TPCOMM_ALL_REDUCE_RMS_NORM, .dtype = TPCOMM_BF16, .op = TPCOMM_SUM, .count = 1}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        tpcomm_t *group = own_group(rank, 60000); /* nothing here may wait for it */
        tpcomm_error_t error = {.struct_size = sizeof error};
        const form_t *form = rank->rank == 0 ? &rows[i].even : &rows[i].odd;
        double start = gpu_now_s();
        CHECK_OK(make_call(rank, group, form, form->count));
        CUDA_OK(cudaStreamSynchronize(rank->stream));
        while (tpcomm_async_status(group, NULL) == TPCOMM_OK) usleep(1000);
        gpu_check_soon(start, 5, rows[i].what);
        CHECK_STATUS(tpcomm_async_status(group, &error), TPCOMM_ERR_MISMATCH);
        if (strstr(error.text, rows[i].text) == NULL) FAIL("another %s: the text is '%s'", rows[i].what, error.text);
        start = gpu_now_s();
        CHECK_STATUS(make_call(rank, group, form, form->count), TPCOMM_ERR_MISMATCH);
        gpu_check_soon(start, 0.5, "a call behind it");
        drop_group(rank, group);
    }
}

/* I1 */
static void duplicates(int32_t r, int32_t size, void *arg) {
    tpcomm_config_t config = gpu_config();
    tpcomm_t *comm = NULL;
    tpc_cuda_facts_t facts;
    (void)r, (void)size, (void)arg;
    config.share_device = TPCOMM_OFF;
    config.device = 1;
    CHECK_STATUS(tpcomm_init_env(&config, &comm), TPCOMM_ERR_DUPLICATE_DEVICE);
    tpc_cuda_probe(0, &facts);
    CHECK(facts.usable == 1);
    CHECK_ERROR_HAS("ranks 0 and 1");
    CHECK_ERROR_HAS(facts.bus_id);
    CHECK_ERROR_HAS("TPCOMM_SHARE_DEVICE=1");
}

int main(void) {
    gpu_need();
    tpcomm_config_t config = gpu_config();
    printf("a peer never comes\n");
    fflush(stdout);
    gpu_run(RANKS_THREADS, 2, false, &config, 4 << 20, peer_never_comes, NULL);
    gpu_run(RANKS_PROCESSES, 2, false, &config, 4 << 20, peer_never_comes, NULL);
    printf("no room\n");
    fflush(stdout);
    gpu_run(RANKS_THREADS, 2, false, &config, 8 << 20, no_room, NULL);
    printf("unequal calls\n");
    fflush(stdout);
    gpu_run(RANKS_THREADS, 2, false, &config, 4 << 20, unequal_calls, NULL);
    gpu_run(RANKS_PROCESSES, 2, false, &config, 4 << 20, unequal_calls, NULL);
    ranks_fork(2, duplicates, NULL);
    printf("ok\n");
    return 0;
}
