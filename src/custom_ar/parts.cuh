/* SPDX-License-Identifier: Apache-2.0 */
/** How two-shot all_reduce and reduce_scatter divide a message among the ranks that own its parts. */
#ifndef TPC_CUSTOM_AR_PARTS_CUH
#define TPC_CUSTOM_AR_PARTS_CUH

#include "packet.cuh"

/** Bytes of rank's part: rank's own. That of an all_reduce's last ranks may be shorter than others. */
TPC_DEVICE uint32_t part_bytes(const tpc_ar_params_t &p, bool gathers, int rank) {
    if (!gathers) return (uint32_t)p.parts_bytes;
    uint32_t from = (uint32_t)rank * (uint32_t)p.in_stride, bytes = (uint32_t)p.parts_bytes;
    if (from >= bytes) return 0;
    return bytes - from < (uint32_t)p.in_stride ? bytes - from : (uint32_t)p.in_stride;
}

/** The results' slots: after the parts', which are as many. */
TPC_DEVICE slots_t results_of(const tpc_ar_params_t &p, slots_t slots) {
    if (!TPC_FAULT(phases_share_slots)) slots.offset += (uint32_t)(p.size - 1) * slots.slot_bytes;
    return slots;
}

#endif
