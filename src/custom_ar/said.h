/* SPDX-License-Identifier: Apache-2.0 */
/**
 * What each rank launches, in host memory that all ranks of a group see. Kernels compare two words of a call, and know
 * nothing else when they differ; this has the rest, for the text of a MISMATCH. One table a rank, written by its rank;
 * a launch's place comes from its hash, so that calls made again and again, and those of graphs, stay.
 */
#ifndef TPC_CUSTOM_AR_SAID_H
#define TPC_CUSTOM_AR_SAID_H

#include <stdatomic.h>
#include <stddef.h>

#include "health/flight.h"

#define TPC_AR_SAID_SLOTS 512u

/** Of a call, what its text needs. */
typedef struct {
    uint64_t seq, count;
    int32_t coll, dtype, op, path, root, capturing;
    tpc_rows_t rows;
} tpc_ar_said_call_t;
enum { TPC_AR_SAID_WORDS = sizeof(tpc_ar_said_call_t) / 8 };
_Static_assert(sizeof(tpc_ar_said_call_t) % 8 == 0 && offsetof(tpc_ar_said_call_t, seq) == 0, "as words, seq first");

typedef struct {
    _Atomic uint64_t key; /**< what and hash; 0: empty, or being written */
    _Atomic uint64_t words[TPC_AR_SAID_WORDS];
} tpc_ar_said_t;

/** Before a launch. */
void tpc_ar_say(tpc_ar_said_t *table, uint32_t what, uint32_t hash, const tpc_flight_record_t *record);

/**
 * The call of this launch as its rank made it: "all_reduce seq 7 count 4096 bf16 sum by oneshot"; what and hash in
 * numbers where something else has taken its place.
 */
const char *tpc_ar_said_text(const tpc_ar_said_t *table, uint32_t what, uint32_t hash, char *text_p, size_t bytes);

#endif
