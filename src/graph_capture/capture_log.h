/* SPDX-License-Identifier: Apache-2.0 */
/**
 * What a rank captured between two brackets, and whether all ranks captured the same. The first TPC_CAPTURE_CALLS calls
 * are kept, to name the first that differs; of all calls there is one hash, which decides.
 */
#ifndef TPC_GRAPH_CAPTURE_CAPTURE_LOG_H
#define TPC_GRAPH_CAPTURE_CAPTURE_LOG_H

#include <stdbool.h>
#include <stddef.h>

#include "health/flight.h"

#define TPC_CAPTURE_CALLS 16384u /* 67 batch sizes of 161 calls, and more */

typedef struct {
    uint64_t prefix;  /**< hash of all calls up to this one */
    uint64_t graph;   /**< which capture of the bracket it is in, from 1; 0: nothing is captured on this device */
    uint64_t ordinal; /**< in that capture */
    tpc_flight_record_t call;
} tpc_captured_t;

typedef struct {
    uint64_t count; /**< calls */
    uint64_t graphs;
    uint64_t hash;         /**< of all of them */
    size_t kept, room;     /**< calls[0 .. kept) */
    tpc_captured_t *calls; /**< grows as it fills: host memory alone */
} tpc_capture_log_t;

/** Fails: NO_MEMORY. */
tpcomm_status_t tpc_capture_log_new(tpc_capture_log_t **log_p);
/** NULL is allowed. */
void tpc_capture_log_free(tpc_capture_log_t *log);

/** ordinal 1 begins another capture. Without memory for a call, its place is still counted and hashed. */
void tpc_capture_log_add(tpc_capture_log_t *log, const tpc_flight_record_t *call, uint64_t ordinal);

/** How ranks tell each other: an all-gather of bytes each, collective; fails alike on all. */
typedef tpcomm_status_t (*tpc_capture_exchange_fn)(void *arg, const void *mine, size_t bytes, void *all);

/**
 * Compare with all ranks; collective. Every rank takes the same steps: one where all is equal, else a search for the
 * first difference, which takes about 16.
 * Fails: MISMATCH, with the numbers of calls and the first difference of two ranks, the same text on all ranks; as
 * exchange.
 */
tpcomm_status_t tpc_capture_log_compare(const tpc_capture_log_t *log, int32_t size, tpc_capture_exchange_fn exchange,
                                        void *arg);

#endif
