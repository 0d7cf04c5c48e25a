/* SPDX-License-Identifier: Apache-2.0 */
#include "health/calls.h"

#include "base/hash.h"
#include "base/status.h"
#include "base/text.h"

_Static_assert(sizeof(tpc_call_note_t) % sizeof(uint64_t) == 0, "a note is copied by words");

#define READ_TURNS 100 /* a writer is in a slot for nanoseconds */

/* ------------------------------------------------------------------ noting */

tpc_call_note_t tpc_calls_of(const tpc_flight_record_t *record) {
    bool moves = tpc_coll_moves_data(record->coll);
    tpc_call_note_t note = {.seq = record->seq,
                            .what = (uint64_t)record->coll | (uint64_t)record->path << 24,
                            .count = moves ? record->count : 0,
                            .shape = (uint32_t)record->rows.hidden | (uint64_t)record->rows.form << 32,
                            .numbers = record->rows.eps | (uint64_t)record->rows.bias << 32};
    if (moves) note.what |= (uint64_t)record->dtype << 8;
    if (tpc_coll_reduces(record->coll) && !tpc_coll_norms(record->coll)) note.what |= (uint64_t)record->op << 16;
    if (record->coll == TPCOMM_BROADCAST) note.what |= (uint64_t)(uint32_t)record->root << 32;
    return note;
}

static void write_note(tpc_rank_calls_t *rank, const tpc_call_note_t *note) {
    _Atomic uint64_t *slot = rank->calls[note->number & (TPC_CALLS_KEPT - 1)].words;
    atomic_store_explicit(&slot[0], 0, memory_order_relaxed);
    for (size_t i = 1; i < TPC_CALL_WORDS; i++) { /* word by word: a copy of all would wait for the fields' stores */
        uint64_t word;
        memcpy(&word, (const unsigned char *)note + i * sizeof word, sizeof word);
        atomic_store_explicit(&slot[i], word, memory_order_release);
    }
    atomic_store_explicit(&slot[0], note->number, memory_order_release);
    atomic_store_explicit(&rank->last, note->number, memory_order_release);
}

uint64_t tpc_calls_note(tpc_calls_t *calls, const tpc_flight_record_t *record) {
    tpc_call_note_t note = tpc_calls_of(record);
    note.number = ++calls->number;
    note.before = calls->hash;
    const uint64_t facts[] = {note.what, note.count, note.shape, note.numbers};
    calls->hash = tpc_hash_words(calls->hash, facts, sizeof facts / sizeof facts[0]);
    write_note(&calls->ranks[calls->rank], &note);
    return note.number;
}

void tpc_calls_keep(tpc_calls_t *calls, int32_t rank, const tpc_call_note_t *note) {
    if (calls->ranks != NULL && note->number != 0) write_note(&calls->ranks[rank], note);
}

/* ------------------------------------------------------------------ reading */

bool tpc_calls_read(const tpc_calls_t *calls, int32_t rank, uint64_t number, tpc_call_note_t *note_p) {
    const _Atomic uint64_t *slot = calls->ranks[rank].calls[number & (TPC_CALLS_KEPT - 1)].words;
    uint64_t words[TPC_CALL_WORDS];
    for (int turn = 0; number != 0 && turn < READ_TURNS; turn++) {
        words[0] = atomic_load_explicit(&slot[0], memory_order_acquire);
        if (words[0] != number) return false;
        for (size_t i = 1; i < TPC_CALL_WORDS; i++) words[i] = atomic_load_explicit(&slot[i], memory_order_acquire);
        if (atomic_load_explicit(&slot[0], memory_order_relaxed) != number) continue;
        memcpy(note_p, words, sizeof words);
        return true;
    }
    return false;
}

uint64_t tpc_calls_last(const tpc_calls_t *calls, int32_t rank) {
    return atomic_load_explicit(&calls->ranks[rank].last, memory_order_acquire);
}

uint64_t tpc_calls_last_seq(const tpc_calls_t *calls, int32_t rank) {
    tpc_call_note_t note;
    return tpc_calls_read(calls, rank, tpc_calls_last(calls, rank), &note) ? note.seq : 0;
}

const char *tpc_calls_text(const tpc_call_note_t *note, char *text_p, size_t bytes) {
    tpc_flight_record_t record = {.seq = note->seq,
                                  .count = note->count,
                                  .coll = (tpcomm_coll_t)(note->what & 0xFF),
                                  .dtype = (tpcomm_dtype_t)(note->what >> 8 & 0xFF),
                                  .op = (tpcomm_op_t)(note->what >> 16 & 0xFF),
                                  .root = (int32_t)(note->what >> 32),
                                  .rows = {.hidden = (int32_t)(uint32_t)note->shape,
                                           .form = (uint32_t)(note->shape >> 32),
                                           .eps = (uint32_t)note->numbers,
                                           .bias = (uint32_t)(note->numbers >> 32)}};
    tpc_flight_text(&record, text_p, bytes);
    (void)tpc_text_append(text_p, bytes, strlen(text_p), " by %s",
                          tpcomm_path_name((tpcomm_path_t)(note->what >> 24 & 0xFF)));
    return text_p;
}

/* ------------------------------------------------------------------ comparing */

static void raise_mismatch(tpc_calls_t *calls, const tpc_call_note_t *mine, int32_t peer,
                           const tpc_call_note_t *theirs) {
    char my_call[200], their_call[200], text[480];
    tpc_failure_place_t place = {.rank = peer, .coll = (tpcomm_coll_t)(mine->what & 0xFF), .seq = mine->seq};
    tpc_calls_text(mine, my_call, sizeof my_call);
    tpc_calls_text(theirs, their_call, sizeof their_call);
    if (tpc_calls_same(mine, theirs))
        (void)tpc_text_append(
            text, sizeof text, 0,
            "rank %d and rank %d made different calls, further back than the last %u before %s of rank %d, which "
            "is %s of rank %d; their flight records tell which",
            calls->rank, peer, TPC_CALLS_KEPT, my_call, calls->rank, their_call, peer);
    else
        (void)tpc_text_append(text, sizeof text, 0, "rank %d called %s, rank %d called %s", calls->rank, my_call, peer,
                              their_call);
    tpc_failure_raise(calls->failure, TPCOMM_ERR_MISMATCH, place, text);
}

/* False: they differ. */
static bool compare_with(tpc_calls_t *calls, int32_t peer) {
    uint64_t to = tpc_calls_last(calls, calls->rank), theirs_to = tpc_calls_last(calls, peer);
    if (theirs_to < to) to = theirs_to;
    uint64_t from = calls->compared[peer] + 1;
    if (to >= TPC_CALLS_KEPT && from <= to - TPC_CALLS_KEPT) from = to - TPC_CALLS_KEPT + 1;
    for (uint64_t number = from; number <= to; number++) {
        tpc_call_note_t mine, theirs;
        if (!tpc_calls_read(calls, calls->rank, number, &mine) || !tpc_calls_read(calls, peer, number, &theirs))
            continue; /* one of them is far ahead: the hash of a later call has it */
        if (!tpc_calls_same(&mine, &theirs) || mine.before != theirs.before) {
            raise_mismatch(calls, &mine, peer, &theirs);
            return false;
        }
        calls->compared[peer] = number;
    }
    return true;
}

void tpc_calls_compare(tpc_calls_t *calls) {
    if (calls->ranks == NULL || !calls->compares) return;
    for (int32_t r = 0; r < calls->size; r++)
        if (r != calls->rank && !compare_with(calls, r)) return;
}
