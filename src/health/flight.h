/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Flight record: this rank's last calls on one plane of a group, in a ring of fixed size.
 *
 * One thread writes at a time (whoever is inside the plane); any thread may read while it does, without a lock. Each
 * slot is a sequence lock: its version is odd while it is written. The slot's words are atomics that are stored with
 * release and read with acquire, so a reader that saw any word of a newer record also sees the version that betrays it.
 */
#ifndef TPC_HEALTH_FLIGHT_H
#define TPC_HEALTH_FLIGHT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/rows.h"

/** One call. Times are of tpc_clock_ns; 0: not yet, or not known. */
typedef struct {
    uint64_t seq; /**< 1 is the first call */
    uint64_t count;
    uint64_t bytes; /**< of the message, as explain counts them */
    uint64_t tag;
    uint64_t stream;   /**< the handle's bits: tells streams apart */
    uint64_t start_ns; /**< this rank called */
    tpcomm_coll_t coll;
    tpcomm_dtype_t dtype;
    tpcomm_op_t op;
    tpcomm_path_t path;
    int32_t root;
    tpc_rows_t rows;        /**< of a call on rows */
    int32_t capturing;      /**< into a graph: runs when that is launched, not now */
    tpcomm_status_t status; /**< this and what follows is known when the call ends */
    int32_t last_rank;      /**< group rank that arrived last; -1: not known */
    uint64_t begun_ns;      /**< every rank had called */
    uint64_t end_ns;        /**< this rank's call returned; 0: in flight */
    uint64_t wait_ns;       /**< this rank waited for others */
    uint64_t skew_ns;       /**< last arrival minus first */
} tpc_flight_record_t;

/* Words as narrow as the narrowest field: a wider load right behind the stores of two fields would wait for both. */
#define TPC_FLIGHT_WORDS (sizeof(tpc_flight_record_t) / sizeof(uint32_t))
#define TPC_FLIGHT_END   (offsetof(tpc_flight_record_t, status) / sizeof(uint32_t)) /* the first that an end writes */
_Static_assert(sizeof(tpc_flight_record_t) % sizeof(uint32_t) == 0, "a record is copied by words");

typedef struct {
    _Atomic uint64_t version; /**< odd: being written */
    _Atomic uint32_t words[TPC_FLIGHT_WORDS];
} tpc_flight_slot_t;

typedef struct {
    tpc_flight_slot_t *slots;
    uint64_t mask;               /**< number of slots, a power of two, minus 1 */
    _Atomic uint64_t seq;        /**< of the last call begun; any thread may read it */
    _Atomic uint64_t ended;      /**< of the last call that has returned */
    tpc_flight_record_t current; /**< the writer's own */
} tpc_flight_t;

/** Room for at least this many records (the next power of two). Fails: NO_MEMORY. */
tpcomm_status_t tpc_flight_init(tpc_flight_t *flight, uint64_t records);
void tpc_flight_free(tpc_flight_t *flight);

/** Make flight->current readable, from a word on. For the functions below. */
static inline void tpc_flight_publish(tpc_flight_t *flight, size_t first) {
    const unsigned char *from = (const unsigned char *)&flight->current;
    tpc_flight_slot_t *slot = &flight->slots[flight->current.seq & flight->mask];
    uint64_t version = atomic_load_explicit(&slot->version, memory_order_relaxed);
    atomic_store_explicit(&slot->version, version + 1, memory_order_relaxed);
    for (size_t i = first; i < TPC_FLIGHT_WORDS; i++) {
        uint32_t word;
        memcpy(&word, from + i * sizeof word, sizeof word);
        atomic_store_explicit(&slot->words[i], word, memory_order_release);
    }
    atomic_store_explicit(&slot->version, version + 2, memory_order_release);
}

/** What is known of a call before it begins; the rest is 0. */
static inline void tpc_flight_fill(tpc_flight_record_t *record_p, const tpcomm_call_t *call, tpcomm_path_t path,
                                   uint64_t bytes) {
    memset(record_p, 0, sizeof *record_p);
    record_p->count = call->count;
    record_p->bytes = bytes;
    record_p->tag = call->tag;
    record_p->coll = call->coll;
    record_p->dtype = call->dtype;
    record_p->op = call->op;
    record_p->path = path;
    record_p->root = call->root;
    record_p->last_rank = -1;
    record_p->rows.hidden = call->hidden;
    record_p->rows.form = (call->flags & TPC_CALL_ENDS) != 0 ? TPC_ROWS_ENDS : 0;
}

/** The next call's record, with its sequence number: in its place, so that nothing is copied, and for the caller to
 * complete. Valid until the next one; nobody else sees it before begin. */
static inline tpc_flight_record_t *tpc_flight_next(tpc_flight_t *flight, const tpcomm_call_t *call, tpcomm_path_t path,
                                                   uint64_t bytes) {
    tpc_flight_fill(&flight->current, call, path, bytes);
    flight->current.seq = atomic_load_explicit(&flight->seq, memory_order_relaxed) + 1;
    return &flight->current;
}

/** That call begins. */
static inline void tpc_flight_begin(tpc_flight_t *flight, uint64_t now_ns) {
    flight->current.start_ns = now_ns;
    tpc_flight_publish(flight, 0);
    atomic_store_explicit(&flight->seq, flight->current.seq, memory_order_release);
}

/** The call that began last has returned. */
static inline void tpc_flight_end(tpc_flight_t *flight, tpcomm_status_t status, uint64_t now_ns) {
    flight->current.status = status;
    flight->current.end_ns = now_ns;
    tpc_flight_publish(flight, TPC_FLIGHT_END);
    atomic_store_explicit(&flight->ended, flight->current.seq, memory_order_release);
}

/** Copy the record of a call; false if it is no longer there, or not yet. Any thread. */
bool tpc_flight_read(const tpc_flight_t *flight, uint64_t seq, tpc_flight_record_t *record_p);

/** The oldest call that may still be there; 1 if none was lost yet. */
uint64_t tpc_flight_oldest(const tpc_flight_t *flight);

/** Hash of what all ranks must have equal of a call: not its number, tag, times and status. */
uint64_t tpc_flight_hash(const tpc_flight_record_t *record);

/** "all_reduce seq 7 count 4096 bf16 sum"; a barrier has only its number; seq 0 is left out. Returns text_p. */
const char *tpc_flight_text(const tpc_flight_record_t *record, char *text_p, size_t bytes);

#endif
