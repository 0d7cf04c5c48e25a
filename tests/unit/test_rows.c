/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Check the partition of rows for every group size and many numbers of tokens, up to the largest: the ranges are
 * contiguous, in rank order, cover every row once, and none is longer than the first; and that it refuses nonsense.
 */
#include "base/rows.h"

#include "check.h"

static void check(uint64_t tokens, int32_t size) {
    uint64_t end = 0, longest = 0;
    for (int32_t r = 0; r < size; r++) {
        uint64_t first = 77, count = 77;
        CHECK_OK(tpcomm_row_range(tokens, size, r, &first, &count));
        CHECK_EQ(first, end);
        if (r == 0) longest = count;
        CHECK(count <= longest);
        CHECK(count == longest || first + count == tokens); /* only the last rows make it shorter */
        end = first + count;
    }
    CHECK_EQ(end, tokens);
    CHECK_EQ(longest, tpc_rows_per_rank(tokens, size));
}

int main(void) {
    for (int32_t size = 1; size <= 40; size++) {
        for (uint64_t tokens = 0; tokens < 200; tokens++) check(tokens, size);
        for (uint64_t below = 0; below < 50; below++) {
            check(UINT64_MAX - below, size);
            check((UINT64_C(1) << 63) - below, size);
        }
    }
    uint64_t first = 77, count = 77;
    CHECK_STATUS(tpcomm_row_range(4, 0, 0, &first, &count), TPCOMM_ERR_INVALID_ARG);
    CHECK_ERROR_HAS("size is 0");
    CHECK_STATUS(tpcomm_row_range(4, 2, 2, &first, &count), TPCOMM_ERR_INVALID_ARG);
    CHECK_ERROR_HAS("rank is 2");
    CHECK_STATUS(tpcomm_row_range(4, 2, -1, &first, &count), TPCOMM_ERR_INVALID_ARG);
    CHECK_STATUS(tpcomm_row_range(4, 2, 0, NULL, &count), TPCOMM_ERR_INVALID_ARG);
    CHECK_STATUS(tpcomm_row_range(4, 2, 0, &first, NULL), TPCOMM_ERR_INVALID_ARG);
    CHECK_EQ(first, 77);
    CHECK_EQ(count, 77);

    tpcomm_rms_norm_t norm = {.dtype = TPCOMM_BF16,
                              .weight_dtype = TPCOMM_F32,
                              .quant = TPCOMM_QUANT_F8_TOKEN,
                              .hidden = 4096,
                              .tokens = 3,
                              .eps = 0.5f,
                              .weight_bias = 1,
                              .in_stride = 4096,
                              .residual = &norm};
    char text[200];
    tpc_rows_t rows = tpc_rows_of(&norm, false);
    const char *want = " hidden 4096 weight f32 eps 0.5 bias 1 residual f8_token without out and sum";
    CHECK(strcmp(tpc_rows_text(&rows, TPCOMM_ALL_REDUCE_RMS_NORM, text, sizeof text), want) == 0);
    tpc_rows_t other = rows;
    CHECK(tpc_rows_equal(&rows, &other));
    norm.eps = 0.25f;
    other = tpc_rows_of(&norm, false);
    CHECK(!tpc_rows_equal(&rows, &other));
    /* Where ranks may have no rows, buffers say nothing. */
    rows = tpc_rows_of(&norm, true);
    norm.residual = NULL;
    norm.in_stride = 4104;
    other = tpc_rows_of(&norm, true);
    CHECK(tpc_rows_equal(&rows, &other));
    CHECK_EQ(rows.form & (TPC_ROWS_RESIDUAL | TPC_ROWS_STRIDED | TPC_ROWS_NO_ROOM), 0);
    return 0;
}
