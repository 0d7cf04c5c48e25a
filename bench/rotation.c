/* SPDX-License-Identifier: Apache-2.0 */
#include "rotation.h"

uint32_t bench_rotation_pairs(uint64_t bytes) {
    uint64_t fit = BENCH_HOT_BYTES / (2 * (bytes ? bytes : 1));
    if (fit < 2) return 2;
    return fit < BENCH_ROTATION_MAX ? (uint32_t)fit : BENCH_ROTATION_MAX;
}

uint32_t bench_rotation_cold_pairs(uint64_t bytes, uint64_t calls, uint64_t cold_bytes) {
    uint64_t pairs = cold_bytes / (2 * (bytes ? bytes : 1)) + 1;
    if (pairs > calls) pairs = calls;
    return pairs < 2 ? 2 : (uint32_t)pairs;
}

uint32_t bench_rotation_in(uint32_t pairs, uint64_t call) {
    return (uint32_t)(call % pairs);
}

uint32_t bench_rotation_out(uint32_t pairs, uint64_t call) {
    return (uint32_t)((call + call / pairs) % pairs);
}

uint64_t bench_rotation_last(uint32_t pairs, uint64_t calls, uint32_t out) {
    /* Each round of `pairs` calls writes every output once. */
    for (uint64_t back = 1; back <= calls && back < 2 * (uint64_t)pairs; back++)
        if (bench_rotation_out(pairs, calls - back) == out) return calls - back;
    return UINT64_MAX;
}
