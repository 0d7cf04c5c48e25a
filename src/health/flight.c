/* SPDX-License-Identifier: Apache-2.0 */
#include "health/flight.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"
#include "base/hash.h"
#include "base/status.h"

/* A writer is in a slot for nanoseconds; one that was stopped there is given up. */
#define READ_TURNS 1000

tpcomm_status_t tpc_flight_init(tpc_flight_t *flight, uint64_t records) {
    uint64_t slots = 1;
    while (slots < records) slots *= 2;
    flight->slots = calloc((size_t)slots, sizeof *flight->slots);
    if (flight->slots == NULL)
        return tpc_error(TPCOMM_ERR_NO_MEMORY, "out of memory for %llu flight records (TPCOMM_FLIGHT_RECORDS)",
                         (unsigned long long)slots);
    flight->mask = slots - 1;
    return TPCOMM_OK;
}

void tpc_flight_free(tpc_flight_t *flight) {
    free(flight->slots);
    flight->slots = NULL;
}

bool tpc_flight_read(const tpc_flight_t *flight, uint64_t seq, tpc_flight_record_t *record_p) {
    const tpc_flight_slot_t *slot = &flight->slots[seq & flight->mask];
    uint32_t words[TPC_FLIGHT_WORDS];
    for (int turn = 0; turn < READ_TURNS; turn++) {
        uint64_t version = atomic_load_explicit(&slot->version, memory_order_acquire);
        if (version % 2 != 0) continue;
        for (size_t i = 0; i < TPC_FLIGHT_WORDS; i++)
            words[i] = atomic_load_explicit(&slot->words[i], memory_order_acquire);
        if (atomic_load_explicit(&slot->version, memory_order_relaxed) != version) continue;
        tpc_flight_record_t record;
        memcpy(&record, words, sizeof record);
        if (seq == 0 || record.seq != seq) return false;
        *record_p = record;
        return true;
    }
    return false;
}

uint64_t tpc_flight_oldest(const tpc_flight_t *flight) {
    uint64_t last = atomic_load_explicit(&flight->seq, memory_order_acquire);
    return last > flight->mask + 1 ? last - flight->mask : 1;
}

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
    bool ends = record->coll == TPCOMM_BARRIER && (record->rows.form & TPC_ROWS_ENDS) != 0;
    int used = snprintf(text_p, bytes, "%s", ends ? "finalize" : tpcomm_coll_name(record->coll));
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
