/* SPDX-License-Identifier: Apache-2.0 */
#include "health/flight.h"

#include <stdio.h>

const char *tpc_flight_text(const tpc_flight_record_t *record, char *text_p, size_t bytes) {
    if (record->coll == TPCOMM_BARRIER)
        snprintf(text_p, bytes, "%s seq %llu", tpcomm_coll_name(record->coll), (unsigned long long)record->seq);
    else
        snprintf(text_p, bytes, "%s seq %llu count %llu %s %s", tpcomm_coll_name(record->coll),
                 (unsigned long long)record->seq, (unsigned long long)record->count, tpcomm_dtype_name(record->dtype),
                 tpcomm_op_name(record->op));
    return text_p;
}
