/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Check the ring on a GPU against the numbers contract: f32, f16, bf16 and every op, from fewer elements than ranks to
 * many chunks a block, misaligned, in place; among calls by the other paths, eager and in one graph; grids of any size;
 * what it does not carry is refused with the reason. An argument N runs only that many ranks.
 */
#include "base/hook.h"
#include "base/status.h"
#include "gpu/gpu_ranks.h"

enum { ROOM = 26 << 20 };

static tpcomm_call_t call_of(tpcomm_path_t path, tpcomm_dtype_t dtype, tpcomm_op_t op, uint64_t count) {
    return (tpcomm_call_t){.struct_size = sizeof(tpcomm_call_t),
                           .coll = TPCOMM_ALL_REDUCE,
                           .dtype = dtype,
                           .op = op,
                           .path = path,
                           .count = count};
}

static void reductions(gpu_rank_t *rank) {
    static const size_t counts[] = {1, 3, 16, 1021, 65536, 1048576 + 24, 1500001};
    uint64_t seed = 1;
    for (tpcomm_dtype_t dtype = TPCOMM_F32; dtype <= TPCOMM_BF16; dtype++)
        for (tpcomm_op_t op = TPCOMM_SUM; op <= TPCOMM_PROD; op++)
            for (size_t c = 0; c < sizeof counts / sizeof *counts; c++, seed++) {
                if (counts[c] > 100000 && op != TPCOMM_SUM && (op != TPCOMM_AVG || dtype != TPCOMM_BF16)) continue;
                gpu_reduce_check(rank, call_of(TPCOMM_PATH_RING, dtype, op, counts[c]), seed % 4 < 2,
                                 seed % 5 == 0 ? (seed + (uint64_t)rank->rank) % 3 : 0, seed);
                if (seed % 7 == 0) /* its slots and epochs are others', or the same */
                    gpu_reduce_check(rank, call_of(TPCOMM_PATH_ONESHOT, dtype, op, counts[c] % 5000), false, 0, seed);
            }
    gpu_reduce_check(rank, call_of(TPCOMM_PATH_RING, TPCOMM_BF16, TPCOMM_SUM, 12 << 20), true, 0, 7);
    gpu_reduce_check(rank, call_of(TPCOMM_PATH_RING, TPCOMM_F32, TPCOMM_SUM, 0), false, 0, 9);
}

/* Any grid that all ranks have gives the same bits. */
static void grids(gpu_rank_t *rank) {
    for (int blocks = 1; blocks <= 32; blocks = 2 * blocks + 1) {
        CHECK_OK(tpcomm_host_barrier(rank->comm, 0));
        if (rank->rank == 0) {
            char text[40];
            sprintf(text, "set@ar_blocks:%d", blocks);
            CHECK_EQ(setenv("TPCOMM_TEST_HOOKS", text, 1), 0);
            tpc_hook_reload();
        }
        CHECK_OK(tpcomm_host_barrier(rank->comm, 0));
        gpu_reduce_check(rank, call_of(TPCOMM_PATH_RING, TPCOMM_BF16, TPCOMM_SUM, 400000), false, 0, 5);
    }
    CHECK_OK(tpcomm_host_barrier(rank->comm, 0));
    if (rank->rank == 0) {
        CHECK_EQ(unsetenv("TPCOMM_TEST_HOOKS"), 0);
        tpc_hook_reload();
    }
    CHECK_OK(tpcomm_host_barrier(rank->comm, 0));
}

static void eager_between(gpu_rank_t *rank, uint64_t replay) {
    if (replay % 4 == 0)
        gpu_reduce_check(rank, call_of(TPCOMM_PATH_RING, TPCOMM_F16, TPCOMM_SUM, 30000), false, 0, replay);
}

/* Three paths in turn, and an eager call by the ring between replays. */
static void in_graphs(gpu_rank_t *rank) {
    static const size_t counts[3] = {524288, 264, 65536};
    static const tpcomm_path_t paths[3] = {TPCOMM_PATH_RING, TPCOMM_PATH_ONESHOT, TPCOMM_PATH_TWOSHOT};
    gpu_three_in_a_graph(rank, paths, counts, 20, eager_between);
}

static void refusals(const gpu_rank_t *rank) {
    tpcomm_call_t call = call_of(TPCOMM_PATH_RING, TPCOMM_I32, TPCOMM_SUM, 8);
    call.in = call.out = rank->out;
    CHECK_STATUS(tpcomm_call(rank->comm, &call, rank->stream), TPCOMM_ERR_UNSUPPORTED);
    CHECK(strstr(tpcomm_last_error(), "the ring carries f32, f16 and bf16"));
    call.dtype = TPCOMM_BF16;
    call.coll = TPCOMM_BROADCAST;
    CHECK_STATUS(tpcomm_call(rank->comm, &call, rank->stream), TPCOMM_ERR_UNSUPPORTED);
    CHECK(strstr(tpcomm_last_error(), "the ring is a form of all_reduce"));
}

static void all(gpu_rank_t *rank) {
    reductions(rank);
    if (rank->arg == NULL) grids(rank); /* hooks are a process's */
    in_graphs(rank);
    refusals(rank);
}

/* So small a workspace has no ring, and says so; the other paths are there. */
static void no_room(gpu_rank_t *rank) {
    tpcomm_call_t call = call_of(TPCOMM_PATH_RING, TPCOMM_BF16, TPCOMM_SUM, 8);
    call.in = call.out = rank->out;
    CHECK_STATUS(tpcomm_call(rank->comm, &call, rank->stream), TPCOMM_ERR_UNSUPPORTED);
    CHECK(strstr(tpcomm_last_error(), "TPCOMM_WORKSPACE_BYTES leaves no room for the ring"));
    gpu_reduce_check(rank, call_of(TPCOMM_PATH_TWOSHOT, TPCOMM_BF16, TPCOMM_SUM, 100000), false, 0, 3);
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
        gpu_run(RANKS_PROCESSES, 2, true, &config, ROOM, all, "processes");
    }
    config.workspace_bytes = 1 << 20;
    gpu_run(RANKS_THREADS, 2, false, &config, 1 << 20, no_room, NULL);
    printf("ok\n");
    return 0;
}
