/* SPDX-License-Identifier: Apache-2.0 */
#include "custom_ar/said.h"

#include <stdio.h>

#include "base/status.h"
#include "base/text.h"

static uint64_t key_of(uint32_t what, uint32_t hash) {
    return (uint64_t)what << 32 | hash;
}

void tpc_ar_say(tpc_ar_said_t *table, uint32_t what, uint32_t hash, const tpc_flight_record_t *record) {
    tpc_ar_said_t *said = &table[hash % TPC_AR_SAID_SLOTS];
    if (atomic_load_explicit(&said->key, memory_order_relaxed) == key_of(what, hash)) {
        said->seq = record->seq;
        return;
    }
    atomic_store_explicit(&said->key, 0, memory_order_release);
    said->seq = record->seq;
    said->count = record->count;
    said->coll = record->coll;
    said->dtype = record->dtype;
    said->op = record->op;
    said->path = record->path;
    said->root = record->root;
    said->capturing = record->capturing;
    said->rows = record->rows;
    atomic_store_explicit(&said->key, key_of(what, hash), memory_order_release);
}

const char *tpc_ar_said_text(const tpc_ar_said_t *table, uint32_t what, uint32_t hash, char *text_p, size_t bytes) {
    const tpc_ar_said_t *said = &table[hash % TPC_AR_SAID_SLOTS];
    char call[256];
    tpc_flight_record_t record = {0};
    bool known = atomic_load_explicit(&said->key, memory_order_acquire) == key_of(what, hash);
    if (known)
        record = (tpc_flight_record_t){.seq = said->seq,
                                       .count = said->count,
                                       .coll = said->coll,
                                       .dtype = said->dtype,
                                       .op = said->op,
                                       .path = said->path,
                                       .root = said->root,
                                       .capturing = said->capturing,
                                       .rows = said->rows};
    atomic_thread_fence(memory_order_acquire);
    if (known && atomic_load_explicit(&said->key, memory_order_relaxed) == key_of(what, hash))
        tpc_text_append(text_p, bytes, 0, "%s by %s%s", tpc_flight_text(&record, call, sizeof call),
                        tpcomm_path_name(record.path), record.capturing ? ", captured" : "");
    else
        tpc_text_append(text_p, bytes, 0, "%s %s %s by %s (what %08x, hash %08x)", tpcomm_coll_name(what & 0xFF),
                        tpcomm_dtype_name(what >> 20 & 0xFF), tpcomm_op_name(what >> 16 & 0xF),
                        tpcomm_path_name(what >> 8 & 0xFF), what, hash);
    return text_p;
}
