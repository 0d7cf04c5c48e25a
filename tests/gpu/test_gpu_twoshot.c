/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Check two-shot all_reduce and reduce_scatter on a GPU against the numbers contract: every dtype and op, odd counts,
 * counts with fewer packets than ranks, misaligned, in place, several launches; both paths by turns in one graph. An
 * argument N runs only that many ranks.
 */
#include "base/status.h"
#include "gpu/gpu_ranks.h"
#include "multirank/pattern.h"

enum { ROOM = 40 << 20 };

static tpcomm_call_t call_of(bool scatters, tpcomm_dtype_t dtype, tpcomm_op_t op, uint64_t count) {
    return (tpcomm_call_t){.struct_size = sizeof(tpcomm_call_t),
                           .coll = scatters ? TPCOMM_REDUCE_SCATTER : TPCOMM_ALL_REDUCE,
                           .dtype = dtype,
                           .op = op,
                           .path = scatters ? TPCOMM_PATH_ONESHOT : TPCOMM_PATH_TWOSHOT,
                           .count = count};
}

static void reductions(gpu_rank_t *rank) {
    static const size_t counts[] = {1, 3, 16, 1021, 4096, 65536};
    uint64_t seed = 1;
    for (tpcomm_dtype_t dtype = TPCOMM_F32; dtype <= TPCOMM_F64; dtype++)
        for (tpcomm_op_t op = TPCOMM_SUM; op <= TPCOMM_PROD; op++)
            for (size_t c = 0; c < sizeof counts / sizeof *counts && tpc_reduction_defined(dtype, op); c++, seed++)
                gpu_reduce_check(rank, call_of(seed % 3 == 0, dtype, op, counts[c]), seed % 4 < 2,
                                 seed % 5 == 0 ? (seed + (uint64_t)rank->rank) % 3 : 0, seed);
    for (int scatters = 0; scatters < 2; scatters++) { /* several launches */
        gpu_reduce_check(rank, call_of(scatters, TPCOMM_BF16, TPCOMM_SUM, scatters ? 2200000 : 9000000), false, 0, 7);
        gpu_reduce_check(rank, call_of(scatters, TPCOMM_I64, TPCOMM_MAX, scatters ? 300001 : 2300001), true, 0, 8);
        gpu_reduce_check(rank, call_of(scatters, TPCOMM_F32, TPCOMM_SUM, 0), false, 0, 9);
    }
}

/* Three calls, by the two paths in turn. */
static void graph_of_both(gpu_rank_t *rank) {
    static const size_t counts[3] = {65536, 264, 8192};
    static const tpcomm_path_t paths[3] = {TPCOMM_PATH_TWOSHOT, TPCOMM_PATH_ONESHOT, TPCOMM_PATH_TWOSHOT};
    gpu_three_in_a_graph(rank, paths, counts, 50, NULL);
}

static void all(gpu_rank_t *rank) {
    reductions(rank);
    graph_of_both(rank);
}

int main(int argc, char **argv) {
    gpu_need();
    tpcomm_config_t config = gpu_config();
    static const int32_t sizes[] = {2, 3, 4, 5, 8};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        if (argc > 1 && atoi(argv[1]) != sizes[s]) continue;
        printf("%d ranks share a GPU, threads\n", sizes[s]);
        fflush(stdout);
        gpu_run(RANKS_THREADS, sizes[s], false, &config, ROOM, all, NULL);
    }
    if (gpu_count() >= 2) {
        printf("2 ranks, a GPU each, processes\n");
        fflush(stdout);
        gpu_run(RANKS_PROCESSES, 2, true, &config, ROOM, all, NULL);
    }
    printf("ok\n");
    return 0;
}
