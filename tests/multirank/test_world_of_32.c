/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Check a world of 32, as processes and as threads, on one host and on four: reductions in one order on all ranks,
 * gathers, host messages, a split into groups of 8, and that 33 are refused.
 */
#include "multirank/ranks.h"

#define SIZE TPCOMM_MAX_RANKS

static void host_messages(rank_t *rank, tpcomm_t *comm, int32_t me, int32_t size) {
    uint32_t mine = (uint32_t)(rank->rank * 3 + 1), all[SIZE], word = me == size - 1 ? 77 : 0;
    CHECK_OK(tpcomm_host_all_gather(comm, &mine, all, sizeof mine, 0));
    CHECK(all[me] == mine);
    CHECK_OK(tpcomm_host_broadcast(comm, &word, sizeof word, size - 1, 0));
    CHECK(word == 77);
    CHECK_OK(tpcomm_host_barrier(comm, 0));
}

static void group_of_8(rank_t *rank) {
    tpcomm_t *group = NULL;
    uint32_t bit = 1u << rank->rank;
    CHECK_OK(tpcomm_group_split(rank->comm, rank->rank / 8, 0, "tp", &group));
    CHECK_OK(tpcomm_all_reduce(group, &bit, &bit, 1, TPCOMM_U32, TPCOMM_SUM, NULL));
    CHECK(bit == 0xffu << rank->rank / 8 * 8);
    host_messages(rank, group, rank->rank % 8, 8);
    CHECK_OK(tpcomm_finalize(group));
    CHECK_OK(tpcomm_destroy(group));
}

static void one_host(rank_t *rank) {
    static const size_t counts[] = {1, 33, 5000, 70001};
    for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
        size_t count = counts[c];
        float *x = malloc(count * sizeof *x);
        CHECK(x != NULL);
        /* Sums that depend on the order: 2^24 of rank 0 swallows the ones of the others, one by one. */
        for (size_t i = 0; i < count; i++) x[i] = rank->rank == 0 && i % 2 == 0 ? 16777216.0f : 1.0f;
        CHECK_OK(tpcomm_all_reduce(rank->comm, x, x, count, TPCOMM_F32, TPCOMM_SUM, NULL));
        for (size_t i = 0; i < count; i++)
            if (x[i] != (i % 2 == 0 ? 16777216.0f : (float)SIZE)) FAIL("%zu of %zu: %g", i, count, (double)x[i]);
        free(x);
    }
    uint32_t bit = 1u << rank->rank, bits[SIZE], out[SIZE];
    CHECK_OK(tpcomm_all_gather(rank->comm, &bit, bits, 1, TPCOMM_U32, NULL));
    for (int32_t r = 0; r < SIZE; r++) CHECK(bits[r] == 1u << r);
    CHECK_OK(tpcomm_reduce_scatter(rank->comm, bits, out, 1, TPCOMM_U32, TPCOMM_SUM, NULL));
    CHECK(out[0] == (1u << rank->rank) * (uint32_t)SIZE);
    uint32_t from = rank->rank == SIZE - 1 ? 5 : 0;
    CHECK_OK(tpcomm_broadcast(rank->comm, &from, &from, 1, TPCOMM_U32, SIZE - 1, NULL));
    CHECK(from == 5);
    host_messages(rank, rank->comm, rank->rank, SIZE);
    group_of_8(rank);
}

static void four_hosts(rank_t *rank) {
    float x = 1;
    CHECK_STATUS(tpcomm_all_reduce(rank->comm, &x, &x, 1, TPCOMM_F32, TPCOMM_SUM, NULL), TPCOMM_ERR_NO_TRANSPORT);
    host_messages(rank, rank->comm, rank->rank, SIZE);
    group_of_8(rank);
}

int main(void) {
    tpcomm_config_t config = ranks_config();
    tpcomm_t *comms[SIZE + 1];
    resources_t before = resources_now();
    for (int kind = 0; kind < RANKS_KINDS; kind++) ranks_run(kind, SIZE, &config, one_host, NULL);
    ranks_set_hooks("set@threads_per_host:8");
    ranks_run(RANKS_THREADS, SIZE, &config, four_hosts, NULL);
    ranks_set_hooks("");
    CHECK_STATUS(tpcomm_init_local(SIZE + 1, NULL, &config, comms), TPCOMM_ERR_INVALID_ARG);
    CHECK_ERROR_HAS("1 to 32");
    resources_check_equal(before, "after worlds of 32");
    return 0;
}
