/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Where a communicator's calls stand in the graphs that are being captured. The state comes from the stream of each
 * call; nothing needs to be told that a capture begins or ends.
 */
#ifndef TPC_GRAPH_CAPTURE_CAPTURE_H
#define TPC_GRAPH_CAPTURE_CAPTURE_H

#include "graph_capture/capture_log.h"

typedef struct {
    uint64_t id;            /**< of the capture that the last captured call was in; 0: none */
    uint64_t ordinal;       /**< of that call in it, from 1 */
    tpc_capture_log_t *log; /**< of the open bracket; NULL: none is open */
} tpc_capture_t;

/**
 * The next call is captured by capture id: its ordinal there, which the device compares between ranks on each replay.
 * *first_p: it is the capture's first.
 */
uint64_t tpc_capture_next(tpc_capture_t *capture, uint64_t id, bool *first_p);

/** Note a call in the open bracket, if there is one. ordinal: 0 where the device captures nothing. */
void tpc_capture_note(tpc_capture_t *capture, const tpc_flight_record_t *call, uint64_t ordinal);

#endif
