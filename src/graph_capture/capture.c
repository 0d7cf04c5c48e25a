/* SPDX-License-Identifier: Apache-2.0 */
#include "graph_capture/capture.h"

uint64_t tpc_capture_next(tpc_capture_t *capture, uint64_t id, bool *first_p) {
    *first_p = capture->id != id;
    if (*first_p) capture->ordinal = 0;
    capture->id = id;
    return ++capture->ordinal;
}

void tpc_capture_note(tpc_capture_t *capture, const tpc_flight_record_t *call, uint64_t ordinal) {
    if (capture->log != NULL) tpc_capture_log_add(capture->log, call, ordinal);
}
