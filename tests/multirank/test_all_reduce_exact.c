/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Check that all_reduce gives the bits of the numbers contract on every rank, every element: 1 to 8 ranks and 16,
 * threads and processes, both paths and the automatic choice, every dtype and op, odd and large counts, misaligned, in
 * place and not.
 */
#include "base/status.h"
#include "multirank/pattern.h"
#include "multirank/ranks.h"

typedef struct {
    const size_t *counts;
    size_t count_count;
    bool few; /* only some dtypes: for large counts and groups */
} plan_t;

static void one(rank_t *rank, tpcomm_path_t path, tpcomm_dtype_t dtype, tpcomm_op_t op, int kind, size_t count,
                bool in_place, size_t misalign, uint64_t seed) {
    size_t bytes = count * tpcomm_dtype_size(dtype);
    guarded_t in = guarded_new(bytes, misalign), out = guarded_new(bytes, misalign / 2), want = guarded_new(bytes, 0);
    pattern_fill(kind, dtype, seed, rank->rank, count, in.data);
    pattern_result(kind, dtype, op, seed, rank->size, count, want.data);
    memset(out.data, 0xEE, bytes);
    tpcomm_call_t call = {.struct_size = sizeof call,
                          .coll = TPCOMM_ALL_REDUCE,
                          .dtype = dtype,
                          .op = op,
                          .path = path,
                          .in = in.data,
                          .out = in_place ? in.data : out.data,
                          .count = count};
    CHECK_OK(tpcomm_call(rank->comm, &call, NULL));
    const unsigned char *got = call.out;
    size_t element = tpcomm_dtype_size(dtype);
    for (size_t i = 0; memcmp(got, want.data, bytes) != 0 && i < bytes; i++)
        if (got[i] != want.data[i])
            FAIL("rank %d of %d, %s %s %s, pattern %d, count %zu, %s, misaligned by %zu: element %zu differs",
                 rank->rank, rank->size, tpcomm_path_name(path), tpcomm_dtype_name(dtype), tpcomm_op_name(op), kind,
                 count, in_place ? "in place" : "out of place", misalign, i / element);
    if (!in_place) {
        pattern_fill(kind, dtype, seed, rank->rank, count, want.data);
        CHECK(memcmp(in.data, want.data, bytes) == 0); /* the input is only read */
    }
    guarded_check(&in);
    guarded_check(&out);
    guarded_free(&in);
    guarded_free(&out);
    guarded_free(&want);
}

static void body(rank_t *rank) {
    const plan_t *plan = rank->arg;
    const tpcomm_path_t paths[] = {TPCOMM_PATH_AUTO, TPCOMM_PATH_CPU_ONESHOT, TPCOMM_PATH_CPU_TWOSHOT};
    uint64_t seed = 1;
    for (size_t p = 0; p < (rank->size == 1 ? 1 : 3); p++)
        for (tpcomm_dtype_t dtype = TPCOMM_F32; dtype <= TPCOMM_F8_E5M2; dtype++)
            for (tpcomm_op_t op = TPCOMM_SUM; op <= TPCOMM_PROD; op++) {
                if (!tpc_reduction_defined(dtype, op)) continue;
                if (plan->few &&
                    (op != TPCOMM_SUM || (dtype != TPCOMM_BF16 && dtype != TPCOMM_F64 && dtype != TPCOMM_I8)))
                    continue;
                for (size_t c = 0; c < plan->count_count; c++, seed++) {
                    /* One rank misaligned and another not: a local fact that must not change the path. */
                    size_t misalign = seed % 3 == 0 ? 0 : (seed + (uint64_t)rank->rank) % 5;
                    one(rank, paths[p], dtype, op, seed % 2 == 0 ? PATTERN_BITS : PATTERN_EXACT, plan->counts[c],
                        seed % 4 < 2, misalign, seed);
                }
            }
}

int main(void) {
    static const size_t small[] = {1, 2, 3, 5, 7, 9, 15, 17, 31, 33, 257, 1021, 4097};
    /* Around one round (128 KiB) and over several. */
    static const size_t large[] = {16383, 16385, 32768, 65537, 131071, 131072, 131073, 300007};
    const plan_t all = {small, sizeof small / sizeof *small, false}, some = {small, sizeof small / sizeof *small, true};
    const plan_t rounds = {large, sizeof large / sizeof *large, true};
    tpcomm_config_t config = ranks_config();
    static const int32_t sizes[] = {1, 2, 3, 4, 5, 7, 8, 16};
    for (int kind = 0; kind < RANKS_KINDS; kind++)
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
            bool thorough = sizes[s] <= 4;
            printf("%d %s\n", sizes[s], ranks_kind_name(kind));
            ranks_run(kind, sizes[s], &config, body, thorough ? (void *)&all : (void *)&some);
            if (sizes[s] != 5 && sizes[s] != 7) ranks_run(kind, sizes[s], &config, body, (void *)&rounds);
        }
    /* The smallest workspace: rounds of a few KiB. */
    config.workspace_bytes = 65536;
    ranks_run(RANKS_THREADS, 3, &config, body, (void *)&rounds);
    return 0;
}
