/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Check broadcast, all_gather and reduce_scatter: bit for bit on every rank, every dtype, every root, odd and large
 * counts, in place as NCCL has it and not, misaligned; a reduce_scatter's share is that of an all_reduce; wrong roots
 * and overlaps are refused; count 0 with NULL pointers works; ranks that differ in root or collective are told so.
 */
#include "base/status.h"
#include "multirank/pattern.h"
#include "multirank/ranks.h"

static void compare(const char *what, const rank_t *rank, tpcomm_dtype_t dtype, size_t count, const void *got,
                    const void *want, size_t bytes) {
    if (memcmp(got, want, bytes) != 0)
        FAIL("%s of %zu %s on rank %d of %d is wrong", what, count, tpcomm_dtype_name(dtype), rank->rank, rank->size);
}

static void one_broadcast(rank_t *rank, tpcomm_dtype_t dtype, size_t count, int32_t root, bool in_place,
                          uint64_t seed) {
    size_t bytes = count * tpcomm_dtype_size(dtype);
    guarded_t in = guarded_new(bytes, seed % 4), out = guarded_new(bytes, seed % 3), want = guarded_new(bytes, 0);
    pattern_fill(PATTERN_BITS, dtype, seed, root, count, want.data);
    pattern_fill(PATTERN_BITS, dtype, seed, rank->rank, count, in.data);
    memset(out.data, 0xEE, bytes);
    unsigned char *to = in_place ? in.data : out.data;
    /* in is looked at on the root alone. */
    const void *from = rank->rank == root || in_place ? in.data : NULL;
    CHECK_OK(tpcomm_broadcast(rank->comm, from, to, count, dtype, root, NULL));
    compare("broadcast", rank, dtype, count, to, want.data, bytes);
    guarded_check(&in);
    guarded_check(&out);
    guarded_free(&in);
    guarded_free(&out);
    guarded_free(&want);
}

static void one_all_gather(rank_t *rank, tpcomm_dtype_t dtype, size_t count, bool in_place, uint64_t seed) {
    size_t bytes = count * tpcomm_dtype_size(dtype), all = bytes * (size_t)rank->size,
           mine = bytes * (size_t)rank->rank;
    guarded_t in = guarded_new(bytes, seed % 4), out = guarded_new(all, seed % 3), want = guarded_new(all, 0);
    for (int32_t r = 0; r < rank->size; r++)
        pattern_fill(PATTERN_BITS, dtype, seed, r, count, want.data + bytes * (size_t)r);
    memset(out.data, 0xEE, all);
    memcpy(in_place ? out.data + mine : in.data, want.data + mine, bytes);
    CHECK_OK(tpcomm_all_gather(rank->comm, in_place ? out.data + mine : in.data, out.data, count, dtype, NULL));
    compare("all_gather", rank, dtype, count, out.data, want.data, all);
    guarded_check(&in);
    guarded_check(&out);
    guarded_free(&in);
    guarded_free(&out);
    guarded_free(&want);
}

static void one_reduce_scatter(rank_t *rank, tpcomm_dtype_t dtype, tpcomm_op_t op, size_t count, bool in_place,
                               uint64_t seed) {
    size_t element = tpcomm_dtype_size(dtype), bytes = count * element, all = bytes * (size_t)rank->size;
    size_t mine = bytes * (size_t)rank->rank, total = count * (size_t)rank->size;
    guarded_t in = guarded_new(all, seed % 4), out = guarded_new(bytes, seed % 3), want = guarded_new(all, 0);
    pattern_fill(PATTERN_BITS, dtype, seed, rank->rank, total, in.data);
    pattern_result(PATTERN_BITS, dtype, op, seed, rank->size, total, want.data);
    unsigned char *to = in_place ? in.data + mine : out.data;
    CHECK_OK(tpcomm_reduce_scatter(rank->comm, in.data, to, count, dtype, op, NULL));
    compare("reduce_scatter", rank, dtype, count, to, want.data + mine, bytes);
    guarded_check(&in);
    guarded_check(&out);
    guarded_free(&in);
    guarded_free(&out);
    guarded_free(&want);
}

static void body(rank_t *rank) {
    static const size_t counts[] = {1, 2, 3, 7, 17, 1021, 4097, 20011};
    uint64_t seed = 1;
    for (tpcomm_dtype_t dtype = TPCOMM_F32; dtype <= TPCOMM_F8_E5M2; dtype++)
        for (size_t c = 0; c < sizeof counts / sizeof *counts; c++, seed++) {
            int32_t root = (int32_t)(seed % (uint64_t)rank->size);
            one_broadcast(rank, dtype, counts[c], root, seed % 2, seed);
            one_all_gather(rank, dtype, counts[c], seed % 2, seed);
            for (tpcomm_op_t op = TPCOMM_SUM; op <= TPCOMM_PROD; op++)
                if (tpc_reduction_defined(dtype, op) && (op == TPCOMM_SUM || counts[c] == 17))
                    one_reduce_scatter(rank, dtype, op, counts[c], seed % 2, seed);
        }
    /* Several rounds. */
    one_broadcast(rank, TPCOMM_BF16, 300007, rank->size - 1, false, 5);
    one_all_gather(rank, TPCOMM_U8, 300007, true, 6);
    one_reduce_scatter(rank, TPCOMM_F32, TPCOMM_SUM, 100003, false, 7);

    CHECK_OK(tpcomm_broadcast(rank->comm, NULL, NULL, 0, TPCOMM_F8_E4M3, 0, NULL));
    CHECK_OK(tpcomm_all_gather(rank->comm, NULL, NULL, 0, TPCOMM_F32, NULL));
    CHECK_OK(tpcomm_reduce_scatter(rank->comm, NULL, NULL, 0, TPCOMM_F32, TPCOMM_SUM, NULL));

    float x[64] = {0};
    CHECK_STATUS(tpcomm_broadcast(rank->comm, x, x, 4, TPCOMM_F32, rank->size, NULL), TPCOMM_ERR_INVALID_ARG);
    CHECK_ERROR_HAS("root");
    CHECK_STATUS(tpcomm_broadcast(rank->comm, x, x, 4, TPCOMM_F32, -1, NULL), TPCOMM_ERR_INVALID_ARG);
    CHECK_STATUS(tpcomm_all_gather(rank->comm, x + 1 + rank->rank * 2, x, 2, TPCOMM_F32, NULL), TPCOMM_ERR_INVALID_ARG);
    CHECK_ERROR_HAS("overlap");
    CHECK_STATUS(tpcomm_reduce_scatter(rank->comm, x, x + 1 + rank->rank * 2, 2, TPCOMM_F32, TPCOMM_SUM, NULL),
                 TPCOMM_ERR_INVALID_ARG);
    CHECK_STATUS(tpcomm_all_gather(rank->comm, x, NULL, 2, TPCOMM_F32, NULL), TPCOMM_ERR_INVALID_ARG);
    CHECK_STATUS(tpcomm_all_gather(rank->comm, x, x + 32, SIZE_MAX / 8, TPCOMM_F32, NULL), TPCOMM_ERR_INVALID_ARG);
    CHECK_STATUS(tpcomm_reduce_scatter(rank->comm, x, x + 32, 1, TPCOMM_F8_E4M3, TPCOMM_SUM, NULL),
                 TPCOMM_ERR_UNSUPPORTED);
}

static void different_roots(rank_t *rank) {
    float x[4] = {0};
    CHECK_STATUS(tpcomm_broadcast(rank->comm, x, x, 4, TPCOMM_F32, rank->rank, NULL), TPCOMM_ERR_MISMATCH);
    CHECK_ERROR_HAS("root 0");
    CHECK_ERROR_HAS("root 1");
}

static void different_collectives(rank_t *rank) {
    float x[8] = {0};
    if (rank->rank == 0)
        CHECK_STATUS(tpcomm_all_gather(rank->comm, x, x + 4, 1, TPCOMM_F32, NULL), TPCOMM_ERR_MISMATCH);
    else
        CHECK_STATUS(tpcomm_reduce_scatter(rank->comm, x, x + 4, 1, TPCOMM_F32, TPCOMM_SUM, NULL), TPCOMM_ERR_MISMATCH);
    CHECK_ERROR_HAS("all_gather seq 1 count 1 f32");
    CHECK_ERROR_HAS("reduce_scatter seq 1 count 1 f32 sum");
}

int main(void) {
    tpcomm_config_t config = ranks_config();
    static const int32_t sizes[] = {1, 2, 3, 4, 8};
    for (int kind = 0; kind < RANKS_KINDS; kind++) {
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) ranks_run(kind, sizes[s], &config, body, NULL);
        ranks_run(kind, 2, &config, different_roots, NULL);
        ranks_run(kind, 2, &config, different_collectives, NULL);
    }
    return 0;
}
