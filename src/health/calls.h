/* SPDX-License-Identifier: Apache-2.0 */
/**
 * What the ranks of a group have called, where the host compares it: for groups with a path whose kernels compare
 * nothing. Each rank notes its last calls in memory that the ranks of its host share; the watchdog's thread compares
 * them, and tells the hosts of the others.
 *
 * A note costs its caller a few stores. It also holds a hash of all calls before it, so that two ranks that have once
 * differed never look alike again, however many calls a look has missed.
 */
#ifndef TPC_HEALTH_CALLS_H
#define TPC_HEALTH_CALLS_H

#include "health/failure.h"
#include "health/flight.h"

#define TPC_CALLS_KEPT 256u /* a power of two: as many calls may be queued on a stream and still be named */

/** One call as others see it. */
typedef struct {
    uint64_t number; /**< among those noted: 1 is the first */
    uint64_t seq;
    uint64_t what; /**< collective, dtype, op, path, root; a byte each but for root */
    uint64_t count;
    uint64_t shape, numbers; /**< of calls on rows: hidden and form; eps and bias */
    uint64_t before;         /**< hash of all calls before it */
} tpc_call_note_t;

#define TPC_CALL_WORDS (sizeof(tpc_call_note_t) / sizeof(uint64_t))

/** One rank's last calls; in shared memory, zero at first. */
typedef struct {
    _Atomic uint64_t last; /**< number of the last one */
    struct {
        _Atomic uint64_t words[TPC_CALL_WORDS]; /**< words[0], the number: 0 while the others are written */
    } calls[TPC_CALLS_KEPT];                    /**< by the low bits of the number */
} tpc_rank_calls_t;

typedef struct {
    tpc_rank_calls_t *ranks; /**< shared, one a rank; NULL: this group notes nothing */
    tpc_failure_t *failure;
    int32_t rank, size;
    bool compares; /**< TPCOMM_CHECK is not off */
    uint64_t hash; /**< of this rank's calls so far; the calling thread's, as the next */
    uint64_t number;
    uint64_t
        compared[TPCOMM_MAX_RANKS]; /**< up to which call, with each rank; whoever compares, one thread at a time */
    uint64_t told;                  /**< up to which call the other hosts know; the watchdog's */
} tpc_calls_t;

/** A call as it is noted, without number and before. */
tpc_call_note_t tpc_calls_of(const tpc_flight_record_t *record);
/** Whether two are one call of two ranks. */
static inline bool tpc_calls_same(const tpc_call_note_t *a, const tpc_call_note_t *b) {
    return a->what == b->what && a->count == b->count && a->shape == b->shape && a->numbers == b->numbers;
}

/** Note a call of this rank's that is about to begin. Returns its number. No system call. */
uint64_t tpc_calls_note(tpc_calls_t *calls, const tpc_flight_record_t *record);

/** Keep what a rank on another host has called. One thread of one process of this host. */
void tpc_calls_keep(tpc_calls_t *calls, int32_t rank, const tpc_call_note_t *note);

/** A rank's call, whole; false: it is no longer there, or not yet. Any thread. */
bool tpc_calls_read(const tpc_calls_t *calls, int32_t rank, uint64_t number, tpc_call_note_t *note_p);
/** Number and seq of a rank's last call that is known here; 0: none. Any thread. */
uint64_t tpc_calls_last(const tpc_calls_t *calls, int32_t rank);
uint64_t tpc_calls_last_seq(const tpc_calls_t *calls, int32_t rank);

/** "all_reduce seq 7 count 4096 bf16 sum by nccl". Returns text_p. */
const char *tpc_calls_text(const tpc_call_note_t *note, char *text_p, size_t bytes);

/**
 * Compare what this rank and the others have called since the last look; the first difference breaks the group:
 * MISMATCH, with both calls. Cheap where there is nothing new. One thread at a time.
 */
void tpc_calls_compare(tpc_calls_t *calls);

#endif
