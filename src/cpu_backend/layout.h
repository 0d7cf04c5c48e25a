/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Where everything of the cpu backend lies in the workspace. One function gives gate, capacity and allocation alike.
 *
 *   rank 0, parity 0       announcement, then chunk_bytes of input; answer, then share_bytes of result
 *   rank 0, parity 1       the same
 *   rank 1, parity 0 ...   each (rank, parity) begins on a page of its own: written by that rank alone
 */
#ifndef TPC_CPU_LAYOUT_H
#define TPC_CPU_LAYOUT_H

#include <stddef.h>
#include <stdint.h>

#include "backend/backend.h"

#define TPC_CPU_LINE 64u

/** What a rank announces with each round; fills a cache line, right before the data it announces. */
typedef struct {
    tpc_signal_t posted; /**< the round's epoch */
    int16_t coll, dtype, op, path;
    int32_t root, reserved;
    tpc_rows_t rows;
    uint64_t count;
    _Atomic uint64_t seq;
    _Atomic uint64_t arrived_ns; /**< when the rank entered the call */
} tpc_cpu_announcement_t;

/** Says that a rank's share of a two-shot round is reduced; a cache line, right before that share. */
typedef struct {
    tpc_signal_t posted;
    uint64_t reserved[7];
} tpc_cpu_answer_t;

typedef struct {
    size_t chunk_bytes; /**< message bytes that one round carries */
    size_t share_bytes; /**< room for one rank's share of a reduced chunk */
    size_t answer_offset, parity_stride, rank_stride;
    size_t data_bytes; /**< in all */
} tpc_cpu_layout_t;

/** Layout for a group. Fails: TOO_SMALL where the limit per rank leaves no room. Pure. */
tpcomm_status_t tpc_cpu_layout(const tpc_agreed_t *agreed, tpc_cpu_layout_t *layout_p);

#endif
