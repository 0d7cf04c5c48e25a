/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Check that ranks which make different calls all get MISMATCH with both calls in the text, that nobody gets wrong data
 * with success, and that the group is then failed for good (W13, H19, F1): counts, dtypes, ops, paths, collectives,
 * roots and rows; also where the bytes are the same, so that nothing but the call itself differs; of every collective;
 * 2 and 3 ranks; threads and processes; and a barrier too many at the end.
 */
#include "multirank/ranks.h"

typedef struct {
    const char *what;
    tpcomm_call_t base; /* what all others call; zero fields: an all_reduce of 409600 f32 by cpu_twoshot */
    tpcomm_call_t odd;  /* what the last rank calls instead; zero fields: as the others */
    bool odd_is_zero;   /* the last rank's count is 0 */
    const char *text[2];
} mistake_t;

static const mistake_t mistakes[] = {
    {.what = "count", .odd = {.count = 409598}, .text = {"count 409600", "count 409598"}},
    {.what = "count within a round", .odd = {.count = 409599}, .text = {"count 409600", "count 409599"}},
    {.what = "count 0", .odd_is_zero = true, .text = {"count 409600", "count 0"}},
    {.what = "dtype", .odd = {.dtype = TPCOMM_BF16}, .text = {"f32", "bf16"}},
    {.what = "op", .odd = {.op = TPCOMM_MAX}, .text = {"sum", "max"}},
    {.what = "path", .odd = {.path = TPCOMM_PATH_CPU_ONESHOT}, .text = {"cpu_twoshot", "cpu_oneshot"}},
    {.what = "collective", .odd = {.coll = TPCOMM_BARRIER}, .text = {"all_reduce", "barrier"}},
    /* The same bytes. */
    {.what = "f32 and i32", .odd = {.dtype = TPCOMM_I32}, .text = {"f32", "i32"}},
    {.what = "f32 and f64", .odd = {.dtype = TPCOMM_F64, .count = 204800}, .text = {"f32", "f64"}},
    {.what = "bf16 and f16",
     .base = {.dtype = TPCOMM_BF16, .count = 33},
     .odd = {.dtype = TPCOMM_F16},
     .text = {"bf16", " f16"}},
    {.what = "u8 and i8", .base = {.dtype = TPCOMM_U8, .count = 1}, .odd = {.dtype = TPCOMM_I8}, .text = {"u8", "i8"}},
    {.what = "sum and avg", .odd = {.op = TPCOMM_AVG}, .text = {"sum", "avg"}},
    {.what = "max and min of nothing but zeros",
     .base = {.op = TPCOMM_MAX, .count = 4},
     .odd = {.op = TPCOMM_MIN},
     .text = {"max", "min"}},
    /* Other collectives, those that only move data among them. */
    {.what = "broadcast: root",
     .base = {.coll = TPCOMM_BROADCAST, .count = 4096},
     .odd = {.root = 1},
     .text = {"root 0", "root 1"}},
    {.what = "broadcast: dtype",
     .base = {.coll = TPCOMM_BROADCAST, .count = 4096},
     .odd = {.dtype = TPCOMM_U32},
     .text = {"f32", "u32"}},
    {.what = "broadcast: count",
     .base = {.coll = TPCOMM_BROADCAST, .count = 4096},
     .odd = {.count = 4095},
     .text = {"count 4096", "count 4095"}},
    {.what = "broadcast: count 0",
     .base = {.coll = TPCOMM_BROADCAST, .count = 4096},
     .odd_is_zero = true,
     .text = {"count 4096", "count 0"}},
    {.what = "all_gather: dtype",
     .base = {.coll = TPCOMM_ALL_GATHER, .count = 4096},
     .odd = {.dtype = TPCOMM_U8, .count = 16384},
     .text = {"f32", "u8"}},
    {.what = "all_gather: count",
     .base = {.coll = TPCOMM_ALL_GATHER, .count = 100000},
     .odd = {.count = 99999},
     .text = {"count 100000", "count 99999"}},
    {.what = "all_gather and broadcast",
     .base = {.coll = TPCOMM_ALL_GATHER, .count = 64},
     .odd = {.coll = TPCOMM_BROADCAST},
     .text = {"all_gather", "broadcast"}},
    {.what = "reduce_scatter: op",
     .base = {.coll = TPCOMM_REDUCE_SCATTER, .count = 64},
     .odd = {.op = TPCOMM_PROD},
     .text = {"sum", "prod"}},
    {.what = "reduce_scatter: count 0",
     .base = {.coll = TPCOMM_REDUCE_SCATTER, .count = 64},
     .odd_is_zero = true,
     .text = {"count 64", "count 0"}},
    {.what = "reduce_scatter and all_reduce",
     .base = {.coll = TPCOMM_REDUCE_SCATTER, .count = 64},
     .odd = {.coll = TPCOMM_ALL_REDUCE},
     .text = {"reduce_scatter", "all_reduce"}},
    {.what = "all_gather_rows: hidden",
     .base = {.coll = TPCOMM_ALL_GATHER_ROWS, .count = 4096, .hidden = 16},
     .odd = {.hidden = 32},
     .text = {"hidden 16", "hidden 32"}},
    {.what = "barrier and all_gather",
     .base = {.coll = TPCOMM_BARRIER},
     .odd = {.coll = TPCOMM_ALL_GATHER, .count = 1},
     .text = {"barrier", "all_gather"}},
};

static void body(rank_t *rank) {
    const mistake_t *mistake = rank->arg;
    float *data = calloc(409600, sizeof *data), *other = calloc(409600, sizeof *data);
    CHECK(data != NULL && other != NULL);
    tpcomm_call_t call = {.struct_size = sizeof call,
                          .coll = TPCOMM_ALL_REDUCE,
                          .dtype = TPCOMM_F32,
                          .op = TPCOMM_SUM,
                          .path = TPCOMM_PATH_CPU_TWOSHOT,
                          .in = data,
                          .out = data,
                          .count = 409600};
    CHECK_OK(tpcomm_call(rank->comm, &call, NULL));
    if (mistake->base.coll != 0) {
        call.coll = mistake->base.coll;
        call.path = 0;
        call.out = other;
    }
    if (mistake->base.dtype != 0) call.dtype = mistake->base.dtype;
    if (mistake->base.op != 0) call.op = mistake->base.op;
    if (mistake->base.count != 0) call.count = mistake->base.count;
    call.hidden = mistake->base.hidden;
    if (rank->rank == rank->size - 1) {
        if (mistake->odd.coll != 0) {
            call.coll = mistake->odd.coll;
            call.path = 0;
        }
        if (mistake->odd.root != 0) call.root = mistake->odd.root;
        if (mistake->odd.hidden != 0) call.hidden = mistake->odd.hidden;
        if (mistake->odd.dtype != 0) call.dtype = mistake->odd.dtype;
        if (mistake->odd.op != 0) call.op = mistake->odd.op;
        if (mistake->odd.path != 0) call.path = mistake->odd.path;
        if (mistake->odd.count != 0 || mistake->odd_is_zero) call.count = mistake->odd.count;
    }
    CHECK_STATUS(tpcomm_call(rank->comm, &call, NULL), TPCOMM_ERR_MISMATCH);
    CHECK_ERROR_HAS(mistake->text[0]);
    CHECK_ERROR_HAS(mistake->text[1]);
    CHECK_ERROR_HAS("seq 2");
    tpcomm_error_t error = {.struct_size = sizeof error};
    CHECK_STATUS(tpcomm_async_status(rank->comm, &error), TPCOMM_ERR_MISMATCH);
    CHECK_EQ(error.seq, 2);
    CHECK(strstr(error.text, mistake->text[1]) != NULL);
    /* For good, and for every kind of call. */
    CHECK_STATUS(tpcomm_barrier(rank->comm, NULL), TPCOMM_ERR_MISMATCH);
    CHECK_STATUS(tpcomm_all_reduce(rank->comm, data, data, 4, TPCOMM_F32, TPCOMM_SUM, NULL), TPCOMM_ERR_MISMATCH);
    CHECK_STATUS(tpcomm_finalize(rank->comm), TPCOMM_ERR_MISMATCH);
    free(data);
    free(other);
}

/* One rank has a barrier more than the others, who end: neither is taken for the other. */
static void one_barrier_more(rank_t *rank) {
    bool odd = rank->rank == rank->size - 1;
    CHECK_OK(tpcomm_barrier(rank->comm, NULL));
    CHECK_STATUS(odd ? tpcomm_barrier(rank->comm, NULL) : tpcomm_finalize(rank->comm), TPCOMM_ERR_MISMATCH);
    CHECK_ERROR_HAS("finalize seq 2");
    CHECK_ERROR_HAS("barrier seq 2");
    CHECK_STATUS(tpcomm_finalize(rank->comm), TPCOMM_ERR_MISMATCH);
}

int main(void) {
    tpcomm_config_t config = ranks_config();
    for (int kind = 0; kind < RANKS_KINDS; kind++) ranks_run(kind, 3, &config, one_barrier_more, NULL);
    for (int kind = 0; kind < RANKS_KINDS; kind++)
        for (int32_t size = 2; size <= 3; size++)
            for (size_t m = 0; m < sizeof mistakes / sizeof *mistakes; m++) {
                printf("%d %s, %s\n", size, ranks_kind_name(kind), mistakes[m].what);
                ranks_run(kind, size, &config, body, (void *)&mistakes[m]);
            }
    return 0;
}
