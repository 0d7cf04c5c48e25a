/* SPDX-License-Identifier: Apache-2.0 */
/*
 * (i of docs/gpu.md) Check that a rank's first use of any kernel works while a peer on the same GPU waits for it in
 * that very call, under CUDA's lazy loading: all kernels that a group may launch are loaded when it is made.
 */
#include <time.h>

#include "base/status.h"
#include "gpu/gpu_ranks.h"
#include "multirank/pattern.h"

static void pause_ms(long ms) {
    const struct timespec wait = {.tv_nsec = ms * 1000000};
    nanosleep(&wait, NULL);
}

static void each_kernel(gpu_rank_t *rank) {
    static const tpcomm_coll_t colls[] = {TPCOMM_ALL_REDUCE,     TPCOMM_ALL_REDUCE, TPCOMM_ALL_REDUCE,
                                          TPCOMM_REDUCE_SCATTER, TPCOMM_BROADCAST,  TPCOMM_ALL_GATHER,
                                          TPCOMM_BARRIER};
    static const tpcomm_path_t paths[] = {TPCOMM_PATH_ONESHOT, TPCOMM_PATH_TWOSHOT, TPCOMM_PATH_RING};
    static const size_t counts[] = {4096, 4097, 1 << 20}; /* fast, general, several vectors a thread */
    int made = 0;
    for (size_t c = 0; c < sizeof colls / sizeof *colls; c++)
        for (tpcomm_dtype_t dtype = TPCOMM_F32; dtype <= TPCOMM_I8; dtype++)
            for (size_t n = 0; n < sizeof counts / sizeof *counts; n++) {
                tpcomm_call_t call = {.struct_size = sizeof call,
                                      .coll = colls[c],
                                      .dtype = dtype,
                                      .op = TPCOMM_SUM,
                                      .path = c < 3 ? paths[c] : TPCOMM_PATH_ONESHOT,
                                      .in = rank->in,
                                      .out = rank->out,
                                      .count = counts[n]};
                if (colls[c] != TPCOMM_ALL_REDUCE && n == 2) continue;
                if (call.path == TPCOMM_PATH_RING && dtype > TPCOMM_BF16) continue;
                if (made++ % rank->size != rank->rank) pause_ms(3); /* the peers come while one waits */
                CHECK_OK(tpcomm_call(rank->comm, &call, rank->stream));
                CUDA_OK(cudaStreamSynchronize(rank->stream));
                CHECK_OK(tpcomm_async_status(rank->comm, NULL));
            }
    static const int32_t hiddens[] = {256, 4096, 16384}; /* one, two, four vectors a thread */
    for (tpcomm_dtype_t dtype = TPCOMM_F32; dtype <= TPCOMM_BF16; dtype++)
        for (int h = 0; h < 3; h++)
            for (int path = 0; path < 2; path++) {
                tpcomm_rms_norm_t norm = {.struct_size = sizeof norm,
                                          .dtype = dtype,
                                          .path = path ? TPCOMM_PATH_UNFUSED : TPCOMM_PATH_FUSED_ONESHOT,
                                          .hidden = hiddens[h],
                                          .tokens = 9,
                                          .eps = 1e-5f,
                                          .in = rank->in,
                                          .weight = rank->in + (8 << 20),
                                          .out = rank->out};
                if (made++ % rank->size != rank->rank) pause_ms(3);
                CHECK_OK(tpcomm_all_reduce_rms_norm(rank->comm, &norm, rank->stream));
                CUDA_OK(cudaStreamSynchronize(rank->stream));
                CHECK_OK(tpcomm_async_status(rank->comm, NULL));
            }
    gpu_all_reduce(rank, rank->in, rank->out, TPCOMM_BF16, 1, 5000, "after all first uses");
}

int main(void) {
    gpu_need();
    CHECK_EQ(setenv("CUDA_MODULE_LOADING", "LAZY", 1), 0);
    tpcomm_config_t config = gpu_config();
    config.op_timeout_ms = 4000;
    static const int32_t sizes[] = {2, 4, 8};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
        gpu_run(RANKS_THREADS, sizes[s], false, &config, 40 << 20, each_kernel, NULL);
    printf("ok\n");
    return 0;
}
