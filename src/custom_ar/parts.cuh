/* SPDX-License-Identifier: Apache-2.0 */
/** How two-shot all_reduce and reduce_scatter divide a message among the ranks that own its parts; and who has its
 * tail. */
#ifndef TPC_CUSTOM_AR_PARTS_CUH
#define TPC_CUSTOM_AR_PARTS_CUH

#include "packet.cuh"

#define TPC_AR_TAIL_LANE 16u

/** Bytes of rank's part: rank's own. That of an all_reduce's last ranks may be shorter than others. */
TPC_DEVICE uint32_t part_bytes(const tpc_ar_params_t &p, bool gathers, int rank) {
    if (!gathers) return (uint32_t)p.parts_bytes;
    uint32_t from = (uint32_t)rank * (uint32_t)p.in_stride, bytes = (uint32_t)p.parts_bytes;
    if (from >= bytes) return 0;
    return bytes - from < (uint32_t)p.in_stride ? bytes - from : (uint32_t)p.in_stride;
}

/**
 * Whether this thread has the tail: the end of an aligned message, behind its last whole vector. The threads that move
 * data never see it; a thread of the warp beside them, one that exchanges no header, does all of it: in the last block,
 * whose warp has no header to wait for unless it is the only block.
 */
TPC_DEVICE bool has_tail(const tpc_ar_params_t &p) {
    bool last = blockIdx.x == gridDim.x - 1 || TPC_FAULT(tail_of_all_blocks);
    return p.tail_bytes != 0 && last && threadIdx.x == (unsigned)p.work_threads + TPC_AR_TAIL_LANE;
}

/** The results' slots: after the parts', which are as many. */
TPC_DEVICE slots_t results_of(const tpc_ar_params_t &p, slots_t slots) {
    if (!TPC_FAULT(phases_share_slots)) slots.offset += (uint32_t)(p.size - 1) * slots.slot_bytes;
    return slots;
}

#endif
