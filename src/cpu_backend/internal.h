/* SPDX-License-Identifier: Apache-2.0 */
/** What the files of the cpu backend share: its state, a round, and where a rank's data of a round lie. */
#ifndef TPC_CPU_BACKEND_INTERNAL_H
#define TPC_CPU_BACKEND_INTERNAL_H

#include "backend/backend.h"
#include "cpu_backend/layout.h"
#include "cpu_backend/reduce.h"

typedef struct {
    tpc_backend_group_t group;
    tpc_cpu_layout_t layout;
    uint32_t epoch;                                              /**< of the last round begun */
    tpc_reduce_fn_t reduce[TPCOMM_F8_E5M2 + 1][TPCOMM_PROD + 1]; /**< by dtype and op; NULL where not defined */
    unsigned char *row;                                          /**< room for a row's sum */
} tpc_cpu_state_t;

/** One round: [done, done + count) of what the collective counts, element bytes each. */
typedef struct {
    const tpc_request_t *request;
    uint32_t epoch;
    size_t element, done, count;
    const unsigned char *in; /**< the call's buffers, from their beginning */
    unsigned char *out;
} tpc_cpu_round_t;

static inline tpc_cpu_announcement_t *tpc_cpu_announcement_of(const tpc_cpu_state_t *state, int32_t rank,
                                                              uint32_t epoch) {
    return (void *)(state->group.workspace->data + (size_t)rank * state->layout.rank_stride +
                    (epoch & 1u) * state->layout.parity_stride);
}

static inline unsigned char *tpc_cpu_chunk_of(const tpc_cpu_state_t *state, int32_t rank, uint32_t epoch) {
    return (unsigned char *)tpc_cpu_announcement_of(state, rank, epoch) + TPC_CPU_LINE;
}

/* rows.c: collectives on rows. Those with a norm count rows, all_gather_rows elements of a rank's part. */

/** What a call on rows counts, and the bytes of one. */
size_t tpc_cpu_rows_total(const tpc_cpu_state_t *state, const tpc_request_t *request, size_t *element_p);
/** Before and after the announcements of a round. */
void tpc_cpu_rows_stage(const tpc_cpu_state_t *state, const tpc_cpu_round_t *round);
tpcomm_status_t tpc_cpu_rows_finish(tpc_cpu_state_t *state, const tpc_cpu_round_t *round);
/** Bytes that this rank stages in a round. */
uint64_t tpc_cpu_rows_staged(const tpc_cpu_state_t *state, const tpc_cpu_round_t *round);

#endif
