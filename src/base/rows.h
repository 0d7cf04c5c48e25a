/* SPDX-License-Identifier: Apache-2.0 */
/** Calls on rows: which rows a rank has, and what the ranks must agree on beside the call itself. */
#ifndef TPC_BASE_ROWS_H
#define TPC_BASE_ROWS_H

#include <stdbool.h>
#include <stddef.h>

#include "tpcomm.h"

/** Bits of tpc_rows_t.form beside the two dtypes; the first three say why a call cannot be composed of others. */
enum {
    TPC_ROWS_STRIDED = 1u << 0, /**< in, or the room for the sum, is not packed */
    TPC_ROWS_NO_ROOM = 1u << 1, /**< neither out nor sum is given */
    TPC_ROWS_UNEQUAL = 1u << 2, /**< reduce_scatter: the ranks' parts are not all equally long */
    TPC_ROWS_RESIDUAL = 1u << 3,
    TPC_ROWS_ENDS = 1u << 30 /**< no rows: of the barrier in tpcomm_finalize, which is no other barrier */
};

/** Bit of tpcomm_call_t.flags that callers do not have: the barrier in tpcomm_finalize. */
#define TPC_CALL_ENDS (1u << 30)

/** Of one call on rows; all zero for other calls. Equal on all ranks, or the calls do not match. */
typedef struct {
    int32_t hidden;
    uint32_t form;      /**< bits above; quant << 4; weight dtype << 8 */
    uint32_t eps, bias; /**< the floats' bits: compared as such */
} tpc_rows_t;

/**
 * Of checked arguments, strides and weight dtype filled in. Where a rank may have no rows, and so no buffers, nothing
 * is said of buffers: without tokens, and in a reduce_scatter of unequal parts.
 */
tpc_rows_t tpc_rows_of(const tpcomm_rms_norm_t *norm, bool unequal);

static inline bool tpc_rows_equal(const tpc_rows_t *a, const tpc_rows_t *b) {
    return a->hidden == b->hidden && a->form == b->form && a->eps == b->eps && a->bias == b->bias;
}

/** " hidden 4096 weight f32 eps 1e-05 bias 0 residual f8_token"; "" for no rows. Returns text_p. */
const char *tpc_rows_text(const tpc_rows_t *rows, tpcomm_coll_t coll, char *text_p, size_t bytes);

/** Rows of a rank, by the rule of tpcomm_row_range. */
typedef struct {
    uint64_t first, count;
} tpc_row_range_t;

/** The greatest number of rows that a rank has. */
static inline uint64_t tpc_rows_per_rank(uint64_t tokens, int32_t size) {
    return tokens / (uint64_t)size + (tokens % (uint64_t)size != 0);
}

static inline tpc_row_range_t tpc_row_range(uint64_t tokens, int32_t size, int32_t rank) {
    uint64_t most = tpc_rows_per_rank(tokens, size), first = most * (uint64_t)rank;
    if (most != 0 && tokens / most < (uint64_t)rank) first = tokens; /* nothing wraps: most * rank may pass 64 bits */
    if (first > tokens) first = tokens;
    return (tpc_row_range_t){first, tokens - first < most ? tokens - first : most};
}

#endif
