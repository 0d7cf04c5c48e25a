/* SPDX-License-Identifier: Apache-2.0 */
/** TPCOMM_CHECK=sync: a call's buffers and stream in depth, and the ranks' agreement on it, before it begins. */
#ifndef TPC_COORDINATOR_CHECK_H
#define TPC_COORDINATOR_CHECK_H

#include "coordinator/comm.h"
#include "device/range.h"

/** What a call reads and writes. */
typedef struct {
    tpc_range_t range[TPC_RANGES_MAX];
    int32_t count;
} tpc_call_ranges_t;

/** Add a buffer; one without bytes is left out. */
static inline void tpc_call_ranges_add(tpc_call_ranges_t *ranges, tpc_range_t range) {
    if (range.bytes > 0) ranges->range[ranges->count++] = range;
}

/** The stream is of the rank's context. Fails: INVALID_ARG. */
tpcomm_status_t tpc_check_stream(const tpcomm_t *comm, tpcomm_stream_t stream);

/** Every buffer is memory that the call can use. Fails: INVALID_ARG, naming buffer and place. */
tpcomm_status_t tpc_check_ranges(const tpcomm_t *comm, const tpc_call_ranges_t *ranges);

/**
 * Wait for all ranks, as they come to this call, and compare what each is about to do. Every wait is limited as those
 * of the call itself. Not while capturing: the ranks may capture one after the other.
 * Fails, alike on all ranks: MISMATCH (naming both calls), TIMEOUT, PEER_DIED, whatever breaks the group meanwhile;
 * *refused_p: INVALID_ARG, which leaves the group as it was (two ranks of one process in the same memory).
 * @param arrivals_p  out: who came when, where the ranks share a clock; for paths that do not know.
 */
tpcomm_status_t tpc_check_together(tpcomm_t *comm, const tpc_flight_record_t *record, const tpc_call_ranges_t *ranges,
                                   bool *refused_p, tpc_outcome_t *arrivals_p);

/** "off", "async", "sync". */
const char *tpc_check_name(const tpcomm_t *comm);

/** "async: ..." for explain: the mode, and who compares calls that take this path. */
const char *tpc_check_text(const tpcomm_t *comm, tpcomm_path_t path);

#endif
