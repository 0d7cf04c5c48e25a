/* SPDX-License-Identifier: Apache-2.0 */
/**
 * One failure for a whole group: a word in shared memory that the first rank to fail sets, a slot per rank that holds
 * its text, and the futexes to wake. Sticky: once set, the word never changes.
 */
#ifndef TPC_HEALTH_FAILURE_H
#define TPC_HEALTH_FAILURE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "tpcomm.h"

/** tpc_failure_slot_t.left of a rank whose destroy without finalize is all that has broken the group. */
#define TPC_LEFT_EARLY 2

/** One rank's account of the failure it saw first; in shared memory. */
typedef struct {
    _Atomic uint32_t claimed; /**< 1: somebody writes it, 2: has written it */
    int32_t rank;             /**< group rank at fault, or this one */
    tpcomm_coll_t coll;
    _Atomic int32_t left; /**< the rank has finalized (1), or destroyed what was whole until then (TPC_LEFT_EARLY): its
                             end is no failure any more */
    uint64_t seq;
    _Atomic uint64_t begun; /**< the rank's last call of the device plane, where calls return when they are enqueued */
    char text[480];
} tpc_failure_slot_t;

typedef struct {
    _Atomic uint64_t *word;    /**< shared; 0, or status (low 32 bits, negated) and reporting rank + 1 (high 32 bits) */
    tpc_failure_slot_t *slots; /**< shared; one a rank */
    int32_t rank, size;        /**< mine */
    void (*wake)(void *arg);   /**< wakes every rank that sleeps in a wait of this group */
    void *wake_arg;
    struct tpc_relay *relay; /**< to members on other hosts (relay.h); NULL: there are none */
} tpc_failure_t;

/** Where and what, for a failure's text. */
typedef struct {
    int32_t rank;       /**< at fault; -1: the reporting rank itself */
    tpcomm_coll_t coll; /**< 0: none */
    uint64_t seq;
} tpc_failure_place_t;

/**
 * Break the group with this text, unless it is broken already; wakes everybody. Any thread; no lock and no allocation
 * where all members are on one host. Returns the status in force, which may be another rank's.
 */
tpcomm_status_t tpc_failure_raise(tpc_failure_t *failure, tpcomm_status_t status, tpc_failure_place_t place,
                                  const char *text);

/** OK or the status in force: one load. */
static inline tpcomm_status_t tpc_failure_status(const tpc_failure_t *failure) {
    return -(tpcomm_status_t)(uint32_t)atomic_load_explicit(failure->word, memory_order_acquire);
}

/** Whether nothing has broken the group but that a rank has gone early (TPC_LEFT_EARLY). False while it is whole. */
bool tpc_failure_is_leaving(const tpc_failure_t *failure);

/** How long somebody goes on who has seen a reason to stop; all zero before. */
typedef struct {
    uint64_t since_ns;
    uint32_t looks;
} tpc_patience_t;

#define TPC_LOOK_MS 20 /**< a wait looks so often, or more often */

/** Another look at the reason. True: ms have passed since the first, and as many looks as belong to that time. (A rank
 * that its processor has no time for has not seen what came meanwhile, either.) */
bool tpc_patience_is_over(tpc_patience_t *patience, uint64_t ms);

/**
 * The failure in force: status, and place and text of the rank that reported it. OK and "" while healthy. Where members
 * are on other hosts, waits a moment for theirs (relay.h).
 */
tpcomm_status_t tpc_failure_read(const tpc_failure_t *failure, tpc_failure_place_t *place_p, char *text_p,
                                 size_t text_bytes);

/** The same without waiting: what is known so far. */
tpcomm_status_t tpc_failure_look(const tpc_failure_t *failure, tpc_failure_place_t *place_p, char *text_p,
                                 size_t text_bytes);

#endif
