/* SPDX-License-Identifier: Apache-2.0 */
#include "health/relay.h"

#include <string.h>

#include "base/clock.h"
#include "health/watchdog.h"

_Static_assert(sizeof(tpc_relay_note_t) == 520, "no padding");

#define SETTLE_MS 1000u
/* How long to wait for another process of this host that is just writing the same account. */
#define ACCOUNT_NS 10000000u
/* A host counts as gone when it has been seen so for this many turns of a millisecond: its last word may be under way
 * from one thread of this process to another. */
#define GONE_TURNS 3

static int32_t reporter_of(uint64_t word) {
    return (int32_t)(uint32_t)(word >> 32) - 1;
}

static void set_once(_Atomic uint64_t *word, uint64_t value) {
    uint64_t none = 0;
    atomic_compare_exchange_strong(word, &none, value);
}

static void send(tpc_relay_t *relay, const tpc_relay_note_t *note) {
    for (int32_t i = 0; i < relay->size; i++)
        if (relay->host[i] != relay->here)
            tpc_bootstrap_note(relay->bootstrap, relay->ranks[i], relay->channel, note, sizeof *note);
}

void tpc_relay_tell(tpc_relay_t *relay) {
    uint64_t word = atomic_load_explicit(relay->failure->word, memory_order_acquire);
    if (word == 0 || atomic_exchange(&relay->told, 1) != 0) return;
    set_once(&relay->board->said[relay->here], word);
    const tpc_failure_slot_t *slot = &relay->failure->slots[reporter_of(word)];
    tpc_relay_note_t note;
    memset(&note, 0, sizeof note);
    note.status = -(int32_t)(uint32_t)word;
    note.reporter = reporter_of(word);
    note.rank = slot->rank;
    note.coll = slot->coll;
    note.seq = slot->seq;
    note.left_early = atomic_load(&slot->left) == TPC_LEFT_EARLY;
    memcpy(note.text, slot->text, strnlen(slot->text, sizeof note.text - 1));
    send(relay, &note);
}

void tpc_relay_left(tpc_relay_t *relay) {
    tpc_relay_note_t note;
    memset(&note, 0, sizeof note);
    note.kind = TPC_RELAY_LEFT;
    send(relay, &note);
}

/* ------------------------------------------------------------------ calls */

#define CALLS_A_NOTE (sizeof((tpc_relay_note_t *)0)->text / sizeof(tpc_call_note_t))
#define CALLS_A_TIME 64u /* of each look: what is left out, the hash in the next one covers */

/* To the first member of each other host, whose process keeps them where its host's ranks see them. */
static void send_calls(tpc_relay_t *relay, const tpc_relay_note_t *note) {
    bool done[TPCOMM_MAX_RANKS] = {false};
    for (int32_t i = 0; i < relay->size; i++) {
        int32_t host = relay->host[i];
        if (host == relay->here || done[host]) continue;
        done[host] = true;
        tpc_bootstrap_note(relay->bootstrap, relay->ranks[i], relay->channel, note, sizeof *note);
    }
}

void tpc_relay_calls(tpc_relay_t *relay) {
    tpc_calls_t *calls = relay->calls;
    if (calls == NULL || calls->ranks == NULL || !calls->compares) return;
    /* Of a broken group the links may be gone: graphs can keep what is left of it. */
    if (tpc_failure_status(relay->failure) != TPCOMM_OK) return;
    uint64_t last = tpc_calls_last(calls, calls->rank), number = calls->told + 1;
    if (last > CALLS_A_TIME && number <= last - CALLS_A_TIME) number = last - CALLS_A_TIME + 1;
    while (number <= last) {
        tpc_relay_note_t note;
        memset(&note, 0, sizeof note);
        note.kind = TPC_RELAY_CALLS;
        note.seq = number;
        while (number <= last && (size_t)note.status < CALLS_A_NOTE) {
            tpc_call_note_t call;
            if (!tpc_calls_read(calls, calls->rank, number, &call)) break; /* overwritten meanwhile */
            memcpy(note.text + (size_t)note.status * sizeof call, &call, sizeof call);
            note.status++;
            number++;
        }
        if (note.status == 0)
            number++;
        else
            send_calls(relay, &note);
    }
    calls->told = last;
}

static void hear_calls(tpc_relay_t *relay, int32_t from, const tpc_relay_note_t *note) {
    for (int32_t i = 0; i < note->status && (size_t)i < CALLS_A_NOTE; i++) {
        tpc_call_note_t call;
        memcpy(&call, note->text + (size_t)i * sizeof call, sizeof call);
        if (relay->calls != NULL && call.number == note->seq + (uint64_t)i) tpc_calls_keep(relay->calls, from, &call);
    }
}

/* ------------------------------------------------------------------ hearing */

/* An account of another host's rank, which the processes of this host may all have been told. */
static void keep_account(tpc_failure_slot_t *slot, const tpc_relay_note_t *note) {
    uint32_t unclaimed = 0;
    if (atomic_compare_exchange_strong(&slot->claimed, &unclaimed, 1)) {
        slot->rank = note->rank;
        slot->coll = note->coll;
        slot->seq = note->seq;
        memcpy(slot->text, note->text, sizeof slot->text - 1);
        atomic_store_explicit(&slot->claimed, 2, memory_order_release);
        return;
    }
    uint64_t until = tpc_clock_ns() + ACCOUNT_NS;
    while (atomic_load_explicit(&slot->claimed, memory_order_acquire) != 2 && tpc_clock_ns() < until) {
    }
}

void tpc_relay_hear(tpc_relay_t *relay, int32_t world_rank, const tpc_relay_note_t *note) {
    int32_t from = 0;
    while (from < relay->size && relay->ranks[from] != world_rank) from++;
    if (from == relay->size || relay->host[from] == relay->here) return;
    if (note->kind == TPC_RELAY_LEFT) {
        atomic_store(&relay->failure->slots[from].left, 1);
        return;
    }
    if (note->kind == TPC_RELAY_CALLS) {
        hear_calls(relay, from, note);
        return;
    }
    if (note->status >= 0 || note->reporter < 0 || note->reporter >= relay->size || note->rank >= relay->size) return;
    if (relay->host[note->reporter] != relay->here && note->left_early == 1)
        atomic_store(&relay->failure->slots[note->reporter].left, TPC_LEFT_EARLY);
    if (relay->host[note->reporter] != relay->here) keep_account(&relay->failure->slots[note->reporter], note);
    uint64_t word = (uint64_t)(uint32_t)-note->status | ((uint64_t)(uint32_t)(note->reporter + 1) << 32);
    set_once(&relay->board->said[relay->host[from]], word);
    set_once(relay->failure->word, word);
    if (relay->failure->wake != NULL) relay->failure->wake(relay->failure->wake_arg);
    tpc_relay_tell(relay);
}

static bool is_gone(const tpc_relay_t *relay, int32_t host) {
    for (int32_t i = 0; i < relay->size; i++)
        if (relay->host[i] == host && tpc_bootstrap_peer(relay->bootstrap, relay->ranks[i]) == TPC_PEER_HERE)
            return false;
    return true;
}

static bool all_heard(const tpc_relay_t *relay, bool without_gone) {
    for (int32_t host = 0; host < relay->hosts; host++) {
        if (atomic_load_explicit(&relay->board->said[host], memory_order_acquire) != 0) continue;
        if (!without_gone || !is_gone(relay, host)) return false;
    }
    return true;
}

/* The word of the lowest reporting rank. */
static uint64_t choose(const tpc_relay_t *relay) {
    uint64_t chosen = atomic_load_explicit(relay->failure->word, memory_order_acquire);
    for (int32_t host = 0; host < relay->hosts; host++) {
        uint64_t said = atomic_load_explicit(&relay->board->said[host], memory_order_acquire);
        if (said != 0 && reporter_of(said) < reporter_of(chosen)) chosen = said;
    }
    return chosen;
}

uint64_t tpc_relay_settle(tpc_relay_t *relay, bool wait) {
    uint64_t word = atomic_load_explicit(relay->failure->word, memory_order_acquire);
    uint64_t settled = atomic_load_explicit(&relay->board->settled, memory_order_acquire);
    bool ours = relay->fork_generation == tpc_fork_generation();
    if (word == 0 || settled != 0 || !ours || !wait || tpc_watchdog_is_me()) return settled != 0 ? settled : word;
    tpc_relay_tell(relay);
    tpc_deadline_t deadline = tpc_deadline_in(SETTLE_MS, NULL, NULL);
    for (int turns = 0; !all_heard(relay, false) && turns < GONE_TURNS && tpc_deadline_left_ms(&deadline) > 0;) {
        tpc_deadline_sleep(&deadline, 1);
        turns = all_heard(relay, true) ? turns + 1 : 0;
    }
    set_once(&relay->board->settled, choose(relay));
    return atomic_load_explicit(&relay->board->settled, memory_order_acquire);
}
