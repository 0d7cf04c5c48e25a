/* SPDX-License-Identifier: Apache-2.0 */
#include "health/failure.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "health/relay.h"

_Static_assert(sizeof(tpc_failure_slot_t) == 512, "part of the workspace's layout");

/* How long a thread waits for another thread of its rank that is just writing the slot. */
#define SLOT_WAIT_NS 10000000u

tpcomm_status_t tpc_failure_raise(tpc_failure_t *failure, tpcomm_status_t status, tpc_failure_place_t place,
                                  const char *text) {
    tpc_failure_slot_t *slot = &failure->slots[failure->rank];
    uint32_t unclaimed = 0;
    if (atomic_compare_exchange_strong(&slot->claimed, &unclaimed, 1)) {
        slot->rank = place.rank >= 0 ? place.rank : failure->rank;
        slot->coll = place.coll;
        slot->seq = place.seq;
        snprintf(slot->text, sizeof slot->text, "%s", text);
        atomic_store_explicit(&slot->claimed, 2, memory_order_release);
    } else {
        uint64_t until = tpc_clock_ns() + SLOT_WAIT_NS;
        while (tpc_failure_status(failure) == TPCOMM_OK && tpc_clock_ns() < until) {
        }
    }
    uint64_t healthy = 0;
    uint64_t mine = (uint64_t)(uint32_t)-status | ((uint64_t)(uint32_t)(failure->rank + 1) << 32);
    atomic_compare_exchange_strong(failure->word, &healthy, mine); /* publishes the slot with it */
    if (failure->wake != NULL) failure->wake(failure->wake_arg);
    if (failure->relay != NULL) tpc_relay_tell(failure->relay);
    return tpc_failure_status(failure);
}

static tpcomm_status_t read_word(const tpc_failure_t *failure, uint64_t word, tpc_failure_place_t *place_p,
                                 char *text_p, size_t text_bytes) {
    int32_t reporter = (int32_t)(uint32_t)(word >> 32) - 1;
    *place_p = (tpc_failure_place_t){.rank = -1};
    if (text_bytes > 0) text_p[0] = '\0';
    if (word == 0) return TPCOMM_OK;
    if (reporter < 0 || reporter >= failure->size) return -(tpcomm_status_t)(uint32_t)word;
    /* A word of another host's can be here before its account is. */
    const tpc_failure_slot_t *slot = &failure->slots[reporter];
    if (atomic_load_explicit(&slot->claimed, memory_order_acquire) == 2) {
        *place_p = (tpc_failure_place_t){.rank = slot->rank, .coll = slot->coll, .seq = slot->seq};
        snprintf(text_p, text_bytes, "%.*s", (int)sizeof slot->text - 1, slot->text);
    }
    return -(tpcomm_status_t)(uint32_t)word;
}

tpcomm_status_t tpc_failure_read(const tpc_failure_t *failure, tpc_failure_place_t *place_p, char *text_p,
                                 size_t text_bytes) {
    uint64_t word = atomic_load_explicit(failure->word, memory_order_acquire);
    if (word != 0 && failure->relay != NULL) word = tpc_relay_settle(failure->relay, true);
    return read_word(failure, word, place_p, text_p, text_bytes);
}

tpcomm_status_t tpc_failure_look(const tpc_failure_t *failure, tpc_failure_place_t *place_p, char *text_p,
                                 size_t text_bytes) {
    uint64_t word = atomic_load_explicit(failure->word, memory_order_acquire);
    if (word != 0 && failure->relay != NULL) word = tpc_relay_settle(failure->relay, false);
    return read_word(failure, word, place_p, text_p, text_bytes);
}

bool tpc_failure_is_leaving(const tpc_failure_t *failure) {
    uint64_t word = atomic_load_explicit(failure->word, memory_order_acquire), reporter = (word >> 32) - 1;
    return word != 0 && reporter < (uint64_t)failure->size &&
           atomic_load(&failure->slots[reporter].left) == TPC_LEFT_EARLY;
}

bool tpc_patience_is_over(tpc_patience_t *patience, uint64_t ms) {
    uint64_t now = tpc_clock_ns();
    if (patience->looks == 0) patience->since_ns = now;
    if (patience->looks < UINT32_MAX) patience->looks++;
    return patience->looks > ms / TPC_LOOK_MS && now - patience->since_ns > ms * 1000000u;
}
