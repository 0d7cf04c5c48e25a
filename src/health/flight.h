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
    uint64_t begun_ns; /**< every rank had called */
    uint64_t end_ns;   /**< this rank's call returned; 0: in flight */
    uint64_t wait_ns;  /**< this rank waited for others */
    uint64_t skew_ns;  /**< last arrival minus first */
    tpcomm_coll_t coll;
    tpcomm_dtype_t dtype;
    tpcomm_op_t op;
    tpcomm_path_t path;
    tpcomm_status_t status;
    int32_t root;
    tpc_rows_t rows;   /**< of a call on rows */
    int32_t last_rank; /**< group rank that arrived last; -1: not known */
    int32_t capturing; /**< into a graph: runs when that is launched, not now */
} tpc_flight_record_t;

#define TPC_FLIGHT_WORDS (sizeof(tpc_flight_record_t) / sizeof(uint64_t))
_Static_assert(sizeof(tpc_flight_record_t) % sizeof(uint64_t) == 0, "a record is copied by words");

typedef struct {
    _Atomic uint64_t version; /**< odd: being written */
    _Atomic uint64_t words[TPC_FLIGHT_WORDS];
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

/** Make flight->current readable. For the functions below. */
static inline void tpc_flight_publish(tpc_flight_t *flight) {
    uint64_t words[TPC_FLIGHT_WORDS];
    memcpy(words, &flight->current, sizeof words);
    tpc_flight_slot_t *slot = &flight->slots[flight->current.seq & flight->mask];
    uint64_t version = atomic_load_explicit(&slot->version, memory_order_relaxed);
    atomic_store_explicit(&slot->version, version + 1, memory_order_relaxed);
    for (size_t i = 0; i < TPC_FLIGHT_WORDS; i++)
        atomic_store_explicit(&slot->words[i], words[i], memory_order_release);
    atomic_store_explicit(&slot->version, version + 2, memory_order_release);
}

/** What is known of a call before it begins. */
static inline tpc_flight_record_t tpc_flight_of(const tpcomm_call_t *call, tpcomm_path_t path, uint64_t bytes) {
    return (tpc_flight_record_t){.count = call->count,
                                 .bytes = bytes,
                                 .tag = call->tag,
                                 .coll = call->coll,
                                 .dtype = call->dtype,
                                 .op = call->op,
                                 .path = path,
                                 .root = call->root,
                                 .last_rank = -1,
                                 .rows = {.hidden = call->hidden}};
}

/** Begin a call: the next sequence number. The result is valid until the next begin. */
static inline tpc_flight_record_t *tpc_flight_begin(tpc_flight_t *flight, const tpc_flight_record_t *what,
                                                    uint64_t now_ns) {
    uint64_t seq = atomic_load_explicit(&flight->seq, memory_order_relaxed) + 1;
    flight->current = *what;
    flight->current.seq = seq;
    flight->current.start_ns = now_ns;
    tpc_flight_publish(flight);
    atomic_store_explicit(&flight->seq, seq, memory_order_release);
    return &flight->current;
}

/** The call that began last has returned. */
static inline void tpc_flight_end(tpc_flight_t *flight, tpcomm_status_t status, uint64_t now_ns) {
    flight->current.status = status;
    flight->current.end_ns = now_ns;
    tpc_flight_publish(flight);
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
