/* SPDX-License-Identifier: Apache-2.0 */
#include "health/flight.h"

#include <stdio.h>

#include "base/status.h"

const char *tpc_flight_text(const tpc_flight_record_t *record, char *text_p, size_t bytes) {
    int used = snprintf(text_p, bytes, "%s seq %llu", tpcomm_coll_name(record->coll), (unsigned long long)record->seq);
    if (!tpc_coll_moves_data(record->coll) || used < 0 || (size_t)used >= bytes) return text_p;
    used += snprintf(text_p + used, bytes - (size_t)used, " count %llu %s", (unsigned long long)record->count,
                     tpcomm_dtype_name(record->dtype));
    if ((size_t)used >= bytes) return text_p;
    char rows[160];
    used += snprintf(text_p + used, bytes - (size_t)used, "%s",
                     tpc_rows_text(&record->rows, record->coll, rows, sizeof rows));
    if ((size_t)used >= bytes) return text_p;
    if (tpc_coll_reduces(record->coll) && !tpc_coll_norms(record->coll))
        snprintf(text_p + used, bytes - (size_t)used, " %s", tpcomm_op_name(record->op));
    else if (record->coll == TPCOMM_BROADCAST)
        snprintf(text_p + used, bytes - (size_t)used, " root %d", record->root);
    return text_p;
}
