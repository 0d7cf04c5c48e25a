/* SPDX-License-Identifier: Apache-2.0 */
#include "health/flight.h"

#include <stdio.h>

#include "base/hash.h"
#include "base/status.h"

uint64_t tpc_flight_hash(const tpc_flight_record_t *record) {
    bool moves = tpc_coll_moves_data(record->coll), reduces = tpc_coll_reduces(record->coll);
    uint64_t facts[] = {(uint64_t)record->coll,
                        (uint64_t)record->path,
                        moves ? (uint64_t)record->dtype : 0,
                        reduces ? (uint64_t)record->op : 0,
                        record->coll == TPCOMM_BROADCAST ? (uint64_t)record->root : 0,
                        moves ? record->count : 0,
                        (uint32_t)record->rows.hidden,
                        record->rows.form,
                        record->rows.eps,
                        record->rows.bias};
    return tpc_hash(TPC_HASH_START, facts, sizeof facts);
}

const char *tpc_flight_text(const tpc_flight_record_t *record, char *text_p, size_t bytes) {
    int used = snprintf(text_p, bytes, "%s", tpcomm_coll_name(record->coll));
    if (record->seq != 0 && used >= 0 && (size_t)used < bytes)
        used += snprintf(text_p + used, bytes - (size_t)used, " seq %llu", (unsigned long long)record->seq);
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
