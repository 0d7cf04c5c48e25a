/* SPDX-License-Identifier: Apache-2.0 */
/** Flight record: this rank's last calls on one communicator, in a ring of fixed size. Written by the calling thread
 * alone. */
#ifndef TPC_HEALTH_FLIGHT_H
#define TPC_HEALTH_FLIGHT_H

#include <stdatomic.h>
#include <stdint.h>

#include "base/rows.h"

#define TPC_FLIGHT_RECORDS 256u /* a power of two */

typedef struct {
    uint64_t seq; /**< 1 is the first call; 0: empty */
    uint64_t count, tag;
    uint64_t start_ns, end_ns; /**< end 0: in flight */
    tpcomm_coll_t coll;
    tpcomm_dtype_t dtype;
    tpcomm_op_t op;
    tpcomm_path_t path;
    tpcomm_status_t status;
    int32_t root;
    tpc_rows_t rows; /**< of a call on rows */
} tpc_flight_record_t;

typedef struct {
    tpc_flight_record_t records[TPC_FLIGHT_RECORDS];
    _Atomic uint64_t seq; /**< of the last call begun; any thread may read it */
} tpc_flight_t;

/** Begin a call: the next sequence number. */
static inline tpc_flight_record_t *tpc_flight_begin(tpc_flight_t *flight, const tpcomm_call_t *call, tpcomm_path_t path,
                                                    uint64_t now_ns) {
    uint64_t seq = atomic_load_explicit(&flight->seq, memory_order_relaxed) + 1;
    atomic_store_explicit(&flight->seq, seq, memory_order_relaxed);
    tpc_flight_record_t *record = &flight->records[seq & (TPC_FLIGHT_RECORDS - 1)];
    *record = (tpc_flight_record_t){.seq = seq,
                                    .count = call->count,
                                    .tag = call->tag,
                                    .start_ns = now_ns,
                                    .coll = call->coll,
                                    .dtype = call->dtype,
                                    .op = call->op,
                                    .root = call->root,
                                    .rows = {.hidden = call->hidden},
                                    .path = path};
    return record;
}

/** Hash of what all ranks must have equal of a call: not its number, tag, times and status. */
uint64_t tpc_flight_hash(const tpc_flight_record_t *record);

/** "all_reduce seq 7 count 4096 bf16 sum"; a barrier has only its number; seq 0 is left out. Returns text_p. */
const char *tpc_flight_text(const tpc_flight_record_t *record, char *text_p, size_t bytes);

#endif
