/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Check that a message which is no multiple of 16 bytes is not far slower than its round neighbour (P1): the two take
 * turns, and the fastest of many calls of each stand in a ratio under 1.5. The fastest, since anything else is a
 * measure of the machine's other work; a systematic fault shows in it all the same.
 */
#include "base/clock.h"
#include "multirank/ranks.h"

enum { ROUNDS = 60, ATTEMPTS = 8 };
typedef struct {
    tpcomm_path_t path;
    size_t round, odd; /* elements of bf16 */
} pair_t;

static uint64_t fastest_ns(rank_t *rank, tpcomm_path_t path, size_t count, void *in, void *out, uint64_t fastest) {
    tpcomm_call_t call = {.struct_size = sizeof call,
                          .coll = TPCOMM_ALL_REDUCE,
                          .dtype = TPCOMM_BF16,
                          .op = TPCOMM_SUM,
                          .path = path,
                          .in = in,
                          .out = out,
                          .count = count};
    CHECK_OK(tpcomm_barrier(rank->comm, NULL));
    uint64_t start_ns = tpc_clock_ns();
    CHECK_OK(tpcomm_call(rank->comm, &call, NULL));
    uint64_t took_ns = tpc_clock_ns() - start_ns;
    return took_ns < fastest ? took_ns : fastest;
}

static void body(rank_t *rank) {
    const pair_t *pair = rank->arg;
    void *in = calloc(pair->odd, 2), *out = calloc(pair->odd, 2);
    CHECK(in != NULL && out != NULL);
    uint64_t round_ns = UINT64_MAX, odd_ns = UINT64_MAX;
    float good = 0;
    /* Further attempts only add samples to both; every rank goes as long as one has not seen enough. */
    for (int attempt = 0; attempt < ATTEMPTS && good == 0; attempt++) {
        for (int i = 0; i < ROUNDS; i++) {
            round_ns = fastest_ns(rank, pair->path, pair->round, in, out, round_ns);
            odd_ns = fastest_ns(rank, pair->path, pair->odd, in, out, odd_ns);
        }
        good = 2 * odd_ns < 3 * round_ns;
        CHECK_OK(tpcomm_all_reduce(rank->comm, &good, &good, 1, TPCOMM_F32, TPCOMM_MIN, NULL));
    }
    if (good == 0)
        FAIL("rank %d, %s: %zu elements take %llu ns, %zu take %llu ns", rank->rank, tpcomm_path_name(pair->path),
             pair->round, (unsigned long long)round_ns, pair->odd, (unsigned long long)odd_ns);
    free(in);
    free(out);
}

int main(void) {
    const tpcomm_path_t paths[] = {TPCOMM_PATH_CPU_ONESHOT, TPCOMM_PATH_CPU_TWOSHOT};
    for (size_t p = 0; p < sizeof paths / sizeof *paths; p++)
        for (size_t s = 0; s < 2; s++) {
            pair_t pair = {.path = paths[p], .round = s == 0 ? 4096 : 524288};
            pair.odd = pair.round + 1;
            tpcomm_config_t config = ranks_config();
            ranks_run(RANKS_PROCESSES, 2, &config, body, &pair);
        }
    return 0;
}
