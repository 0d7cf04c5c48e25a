/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Check that ranks which make different calls all get MISMATCH with both calls in the text, that nobody gets wrong data
 * with success, and that the group is then failed for good (W13, H19, F1): counts, dtypes, ops, paths, collectives; 2
 * and 3 ranks; threads and processes.
 */
#include "multirank/ranks.h"

typedef struct {
    const char *what;
    tpcomm_call_t odd; /* what the last rank calls instead; zero fields: as the others */
    bool odd_is_zero;  /* the last rank's count is 0 */
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
};

static void body(rank_t *rank) {
    const mistake_t *mistake = rank->arg;
    float *data = calloc(409600, sizeof *data);
    CHECK(data != NULL);
    tpcomm_call_t call = {.struct_size = sizeof call,
                          .coll = TPCOMM_ALL_REDUCE,
                          .dtype = TPCOMM_F32,
                          .op = TPCOMM_SUM,
                          .path = TPCOMM_PATH_CPU_TWOSHOT,
                          .in = data,
                          .out = data,
                          .count = 409600};
    CHECK_OK(tpcomm_call(rank->comm, &call, NULL));
    if (rank->rank == rank->size - 1) {
        if (mistake->odd.coll != 0) {
            call.coll = mistake->odd.coll;
            call.path = 0;
        }
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
}

int main(void) {
    tpcomm_config_t config = ranks_config();
    for (int kind = 0; kind < RANKS_KINDS; kind++)
        for (int32_t size = 2; size <= 3; size++)
            for (size_t m = 0; m < sizeof mistakes / sizeof *mistakes; m++) {
                printf("%d %s, %s\n", size, ranks_kind_name(kind), mistakes[m].what);
                ranks_run(kind, size, &config, body, (void *)&mistakes[m]);
            }
    return 0;
}
