/* SPDX-License-Identifier: Apache-2.0 */
#include "custom_ar/said.h"

#include <stdio.h>
#include <string.h>

#include "base/status.h"
#include "base/text.h"

static uint64_t key_of(uint32_t what, uint32_t hash) {
    return (uint64_t)what << 32 | hash;
}

void tpc_ar_say(tpc_ar_said_t *table, uint32_t what, uint32_t hash, const tpc_flight_record_t *record) {
    tpc_ar_said_t *said = &table[hash % TPC_AR_SAID_SLOTS];
    if (atomic_load_explicit(&said->key, memory_order_relaxed) == key_of(what, hash)) {
        atomic_store_explicit(&said->words[0], record->seq, memory_order_relaxed);
        return;
    }
    tpc_ar_said_call_t call = {.seq = record->seq,
                               .count = record->count,
                               .coll = (int32_t)record->coll,
                               .dtype = (int32_t)record->dtype,
                               .op = (int32_t)record->op,
                               .path = (int32_t)record->path,
                               .root = record->root,
                               .capturing = record->capturing,
                               .rows = record->rows};
    uint64_t words[TPC_AR_SAID_WORDS];
    memcpy(words, &call, sizeof words);
    atomic_store_explicit(&said->key, 0, memory_order_relaxed);
    for (int i = 0; i < TPC_AR_SAID_WORDS; i++) /* none is seen before the 0 is */
        atomic_store_explicit(&said->words[i], words[i], memory_order_release);
    atomic_store_explicit(&said->key, key_of(what, hash), memory_order_release);
}

const char *tpc_ar_said_text(const tpc_ar_said_t *table, uint32_t what, uint32_t hash, char *text_p, size_t bytes) {
    const tpc_ar_said_t *said = &table[hash % TPC_AR_SAID_SLOTS];
    uint64_t words[TPC_AR_SAID_WORDS];
    char text[256];
    tpc_ar_said_call_t call;
    bool known = atomic_load_explicit(&said->key, memory_order_acquire) == key_of(what, hash);
    for (int i = 0; i < TPC_AR_SAID_WORDS; i++) words[i] = atomic_load_explicit(&said->words[i], memory_order_acquire);
    known = known && atomic_load_explicit(&said->key, memory_order_relaxed) == key_of(what, hash);
    memcpy(&call, words, sizeof call);
    tpc_flight_record_t record = {.seq = call.seq,
                                  .count = call.count,
                                  .coll = (tpcomm_coll_t)call.coll,
                                  .dtype = (tpcomm_dtype_t)call.dtype,
                                  .op = (tpcomm_op_t)call.op,
                                  .path = (tpcomm_path_t)call.path,
                                  .root = call.root,
                                  .capturing = call.capturing,
                                  .rows = call.rows};
    if (known)
        tpc_text_append(text_p, bytes, 0, "%s by %s%s", tpc_flight_text(&record, text, sizeof text),
                        tpcomm_path_name(record.path), record.capturing ? ", captured" : "");
    else
        tpc_text_append(text_p, bytes, 0, "%s %s %s by %s (what %08x, hash %08x)", tpcomm_coll_name(what & 0xFF),
                        tpcomm_dtype_name(what >> 20 & 0xFF), tpcomm_op_name(what >> 16 & 0xF),
                        tpcomm_path_name(what >> 8 & 0xFF), what, hash);
    return text_p;
}
