/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Check that a finished call leaves nothing behind: the caller overwrites its input at once while a peer is late (W1),
 * the same buffers go back to back without any other order between ranks (W16), sizes, paths, dtypes and operations
 * change at random between calls (F3), the epoch passes its wrap, and the same input gives the same bits ten thousand
 * times (W17).
 */
#include <unistd.h>

#include "base/status.h"
#include "multirank/pattern.h"
#include "multirank/ranks.h"

static void overwrite_at_once(rank_t *rank) {
    enum { COUNT = 16384 };
    static _Thread_local float in[COUNT], out[COUNT];
    for (int round = 0; round < 1000; round++) {
        size_t count = round % 2 == 0 ? 4 : (size_t)COUNT >> (round % 8);
        for (size_t i = 0; i < count; i++) in[i] = (float)(rank->rank + 1);
        if (round % 100 == 0 && rank->rank == 1) usleep(5000);
        CHECK_OK(tpcomm_all_reduce(rank->comm, in, out, count, TPCOMM_F32, TPCOMM_SUM, NULL));
        memset(in, 0xFF, count * sizeof *in);
        float want = (float)(rank->size * (rank->size + 1) / 2);
        for (size_t i = 0; i < count; i++)
            if (out[i] != want)
                FAIL("round %d rank %d element %zu: %g, want %g", round, rank->rank, i, (double)out[i], (double)want);
    }
}

static void back_to_back(rank_t *rank) {
    float in[64], out[64];
    for (int round = 0; round < 1000; round++) {
        for (int i = 0; i < 64; i++) in[i] = (float)(round + rank->rank);
        CHECK_OK(tpcomm_all_reduce(rank->comm, in, out, 64, TPCOMM_F32, TPCOMM_SUM, NULL));
        float want = (float)(round * rank->size + rank->size * (rank->size - 1) / 2);
        for (int i = 0; i < 64; i++) CHECK(out[i] == want);
    }
}

static void random_calls(rank_t *rank) {
    uint64_t shared = 42, own = 1000 + (uint64_t)rank->rank; /* shared: the same sequence on every rank */
    enum { LARGEST = 40000 };
    unsigned char *in = malloc(LARGEST * 8), *out = malloc(LARGEST * 8), *want = malloc(LARGEST * 8);
    CHECK(in && out && want);
    for (uint64_t call_number = 0; call_number < 600; call_number++) {
        uint64_t draw = random_next(&shared);
        if (random_next(&own) % 61 == 0) usleep((useconds_t)(random_next(&own) % 3000));
        if (draw % 16 == 0) {
            CHECK_OK(tpcomm_barrier(rank->comm, NULL));
            continue;
        }
        tpcomm_dtype_t dtype = (tpcomm_dtype_t)(1 + (draw >> 8) % 10);
        tpcomm_op_t op = (tpcomm_op_t)(1 + (draw >> 16) % 5);
        if (!tpc_reduction_defined(dtype, op)) op = TPCOMM_SUM;
        size_t count = (size_t)((draw >> 24) % ((draw >> 56) % 4 == 0 ? LARGEST : 300));
        static const tpcomm_path_t paths[] = {TPCOMM_PATH_AUTO, TPCOMM_PATH_CPU_ONESHOT, TPCOMM_PATH_CPU_TWOSHOT};
        tpcomm_call_t call = {.struct_size = sizeof call,
                              .coll = TPCOMM_ALL_REDUCE,
                              .dtype = dtype,
                              .op = op,
                              .path = paths[(draw >> 48) % 3],
                              .in = in,
                              .out = (draw >> 52) % 2 ? in : out,
                              .count = count};
        pattern_fill(PATTERN_BITS, dtype, call_number, rank->rank, count, in);
        CHECK_OK(tpcomm_call(rank->comm, &call, NULL));
        pattern_result(PATTERN_BITS, dtype, op, call_number, rank->size, count, want);
        if (memcmp(call.out, want, count * tpcomm_dtype_size(dtype)) != 0)
            FAIL("call %llu on rank %d: %s %s %s count %zu is wrong", (unsigned long long)call_number, rank->rank,
                 tpcomm_path_name(call.path), tpcomm_dtype_name(dtype), tpcomm_op_name(op), count);
    }
    free(in);
    free(out);
    free(want);
}

static void same_bits(rank_t *rank) {
    enum { SMALL = 4096, LARGE = 300 * 1024 };
    static const size_t counts[] = {SMALL, LARGE};
    for (int which = 0; which < 2; which++) {
        size_t count = counts[which], bytes = count * 2;
        unsigned char *in = malloc(bytes), *first = malloc(bytes), *out = malloc(bytes);
        CHECK(in && first && out);
        pattern_fill(PATTERN_BITS, TPCOMM_BF16, 7, rank->rank, count, in);
        for (int round = 0; round < (which == 0 ? 10000 : 300); round++) {
            CHECK_OK(tpcomm_all_reduce(rank->comm, in, round == 0 ? first : out, count, TPCOMM_BF16, TPCOMM_SUM, NULL));
            if (round > 0 && memcmp(first, out, bytes) != 0) FAIL("round %d differs from round 0", round);
        }
        free(in);
        free(first);
        free(out);
    }
}

int main(void) {
    tpcomm_config_t config = ranks_config();
    for (int kind = 0; kind < RANKS_KINDS; kind++) {
        ranks_run(kind, 2, &config, overwrite_at_once, NULL);
        ranks_run(kind, 4, &config, overwrite_at_once, NULL);
        ranks_run(kind, 2, &config, back_to_back, NULL);
        ranks_run(kind, 3, &config, back_to_back, NULL);
        ranks_run(kind, 2, &config, same_bits, NULL);
    }
    for (int wrap = 0; wrap < 2; wrap++) {
        /* 4294967288 is 2^32 - 8: the epoch passes its wrap in the first calls. */
        ranks_set_hooks(wrap ? "set@epoch:4294967288" : "");
        for (int kind = 0; kind < RANKS_KINDS; kind++)
            for (int32_t size = 2; size <= 5; size++) ranks_run(kind, size, &config, random_calls, NULL);
    }
    return 0;
}
