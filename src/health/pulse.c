/* SPDX-License-Identifier: Apache-2.0 */
#include "health/pulse.h"

#include "base/clock.h"

void tpc_pulse_beat(tpc_pulse_t *pulse, uint64_t now_ns) {
    uint32_t now = (uint32_t)(now_ns / 1000000u);
    uint64_t seen = atomic_load(pulse), next;
    do {
        int32_t gap = (int32_t)(now - (uint32_t)(seen >> 32));
        uint32_t since = seen == 0 || gap > (int32_t)(TPC_STOPPED_GAP_NS / 1000000u) ? now : (uint32_t)seen;
        /* Of two ranks the later one may come first: time does not go back, and what changes is new. */
        next = seen != 0 && gap < 0 ? seen : (uint64_t)now << 32 | since;
    } while (!atomic_compare_exchange_weak(pulse, &seen, next));
}
