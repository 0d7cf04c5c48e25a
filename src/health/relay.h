/* SPDX-License-Identifier: Apache-2.0 */
/**
 * A group's failure across hosts. The members on one host share a failure word (failure.h); the relay carries it to
 * those on the others, and settles on one account where several hosts failed at once.
 *
 * Each host has one word: the first failure that was raised there, or the first that another host told it. A process
 * that sets its host's word, by its own failure or by what it was told, tells it to all members elsewhere, once. All
 * waits end as soon as there is a word; what is reported as the reason waits until every host has told its word, or is
 * gone, or a second is over, and is then the word of the lowest reporting rank: the same choice on every host.
 */
#ifndef TPC_HEALTH_RELAY_H
#define TPC_HEALTH_RELAY_H

#include "bootstrap/bootstrap.h"
#include "health/calls.h"
#include "health/failure.h"

/** In the memory that the members on one host share, zero at first. */
typedef struct {
    _Atomic uint64_t settled;                /**< the word that counts on all hosts; 0: not known yet */
    _Atomic uint64_t said[TPCOMM_MAX_RANKS]; /**< by host: its word; 0: not heard yet */
} tpc_relay_board_t;

/** What a note is about. */
enum {
    TPC_RELAY_FAILED = 0,
    TPC_RELAY_LEFT = 1, /**< the sender has finalized; the rest is empty */
    TPC_RELAY_CALLS = 2 /**< what the sender has called: as many as status says, the first one's number is seq */
};

/** What one process tells a member on another host, on the group's channel. */
typedef struct {
    int32_t kind;
    int32_t status;   /**< of its host's word */
    int32_t reporter; /**< whose account it is */
    int32_t rank;     /**< at fault */
    int32_t coll;
    int32_t left_early; /**< 1: the reporter has gone, and nothing else is wrong (TPC_LEFT_EARLY) */
    uint64_t seq;
    char text[488]; /**< its account; of TPC_RELAY_CALLS the calls, as they are noted */
} tpc_relay_note_t;

typedef struct tpc_relay {
    tpc_bootstrap_t *bootstrap;
    tpc_failure_t *failure;
    tpc_relay_board_t *board;
    uint64_t channel;               /**< the group's id */
    const int32_t *ranks;           /**< world rank of each member */
    int32_t host[TPCOMM_MAX_RANKS]; /**< of each member: its number in order of appearance */
    int32_t size, hosts, here;
    uint32_t fork_generation; /**< of the process that made it: no other one may tell or decide anything */
    _Atomic int32_t told;     /**< this process has told */
    tpc_calls_t *calls;       /**< of the group: those of ranks on other hosts are noted here when they are heard of */
} tpc_relay_t;

/** Tell the members elsewhere of the word of this host, if there is one. Any thread; does not wait. */
void tpc_relay_tell(tpc_relay_t *relay);
/** Tell them that this rank has finalized: its end is no failure any more. */
void tpc_relay_left(tpc_relay_t *relay);
/** Tell each host elsewhere what this rank has called since the last time. On the watchdog's thread. */
void tpc_relay_calls(tpc_relay_t *relay);
/** Take what a member elsewhere (world rank) has told. On the watchdog's thread. */
void tpc_relay_hear(tpc_relay_t *relay, int32_t world_rank, const tpc_relay_note_t *note);
/** The word that counts, once there is one; waits for it a second at most, and never on the watchdog's thread. */
uint64_t tpc_relay_settle(tpc_relay_t *relay, bool wait);

#endif
