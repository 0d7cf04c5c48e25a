/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Check that two groups of the same ranks, on one GPU, at their largest grids, may be called in opposite order on
 * streams of their own: grids are limited so that all their kernels are resident together. By every path, and by two
 * different ones at once; results are right. In one stream the same order cannot work: it ends at the deadline, on all
 * ranks of both, by name.
 */
#include "base/status.h"
#include "gpu/gpu_ranks.h"

enum { ROUNDS = 60, COUNT = GPU_FILLING(2 << 20) };
static const tpcomm_path_t paths[] = {TPCOMM_PATH_ONESHOT, TPCOMM_PATH_TWOSHOT, TPCOMM_PATH_RING};
enum { PATHS = sizeof paths / sizeof *paths };

typedef struct {
    tpcomm_t *comm[2];
    cudaStream_t stream[2];
    unsigned char *in[2], *out[2];
} pair_t;

static void call_one(const pair_t *pair, int which, tpcomm_path_t path) {
    tpcomm_call_t call = {.struct_size = sizeof call,
                          .coll = TPCOMM_ALL_REDUCE,
                          .dtype = TPCOMM_BF16,
                          .op = TPCOMM_SUM,
                          .path = path,
                          .in = pair->in[which],
                          .out = pair->out[which],
                          .count = COUNT};
    CHECK_OK(tpcomm_call(pair->comm[which], &call, pair->stream[which]));
}

static void opposite(const gpu_rank_t *rank, const pair_t *pair) {
    for (int p = 0; p < PATHS * PATHS; p++) {
        for (int which = 0; which < 2; which++)
            gpu_pattern_in(rank, pair->in[which], TPCOMM_BF16, (uint64_t)(2 * p + which), COUNT);
        gpu_together(rank);
        for (int round = 0; round < gpu_rounds(ROUNDS); round++)
            for (int i = 0; i < 2; i++) {
                int which = i ^ (rank->rank & 1);
                call_one(pair, which, paths[which == 0 ? p % PATHS : p / PATHS]);
            }
        for (int which = 0; which < 2; which++) {
            CUDA_OK(cudaStreamSynchronize(pair->stream[which]));
            CHECK_OK(tpcomm_async_status(pair->comm[which], NULL));
            gpu_pattern_check(rank, pair->out[which], TPCOMM_BF16, (uint64_t)(2 * p + which), COUNT,
                              "in opposite order");
        }
    }
    gpu_together(rank); /* the second group may be destroyed */
}

/* Each rank's first kernel waits for one that stands behind the peer's first. */
static void in_one_stream(const gpu_rank_t *rank, pair_t *pair) {
    gpu_together(rank);
    pair->stream[1] = pair->stream[0];
    for (int i = 0; i < 2; i++) {
        CHECK_OK(tpcomm_set_op_timeout(pair->comm[i], 500));
        CHECK_OK(tpcomm_host_barrier(pair->comm[i], 0));
    }
    for (int i = 0; i < 2; i++) {
        int which = i ^ (rank->rank & 1);
        tpcomm_status_t status = TPCOMM_OK;
        tpcomm_call_t call = {.struct_size = sizeof call,
                              .coll = TPCOMM_ALL_REDUCE,
                              .dtype = TPCOMM_BF16,
                              .op = TPCOMM_SUM,
                              .in = pair->in[which],
                              .out = pair->out[which],
                              .count = COUNT};
        status = tpcomm_call(pair->comm[which], &call, pair->stream[0]);
        CHECK(status == TPCOMM_OK || status == TPCOMM_ERR_TIMEOUT || status == TPCOMM_ERR_PEER_FAILED);
    }
    CUDA_OK(cudaStreamSynchronize(pair->stream[0]));
    int failed = 0;
    for (int which = 0; which < 2; which++)
        failed += tpcomm_async_status(pair->comm[which], NULL) == TPCOMM_ERR_TIMEOUT;
    CHECK(failed > 0);
}

static void all(gpu_rank_t *rank) {
    pair_t pair = {.comm = {rank->comm}, .stream = {rank->stream}};
    CHECK_OK(tpcomm_group_split(rank->comm, 0, rank->rank, "second", &pair.comm[1]));
    gpu_stream_new(&pair.stream[1]);
    for (int which = 0; which < 2; which++) {
        pair.in[which] = rank->in + which * 2 * COUNT;
        pair.out[which] = rank->out + which * 2 * COUNT;
    }
    opposite(rank, &pair);
    cudaStream_t second = pair.stream[1];
    if (rank->size == 2) in_one_stream(rank, &pair);
    CHECK_OK(tpcomm_destroy(pair.comm[1]));
    CUDA_OK(cudaStreamDestroy(second));
}

int main(void) {
    gpu_need();
    tpcomm_config_t config = gpu_config();
    static const int32_t sizes[] = {4, 2};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        printf("%d ranks share a GPU, threads\n", sizes[s]);
        fflush(stdout);
        gpu_run(RANKS_THREADS, sizes[s], false, &config, 4 * COUNT, all, NULL);
    }
    printf("ok\n");
    return 0;
}
