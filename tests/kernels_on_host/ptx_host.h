/* SPDX-License-Identifier: Apache-2.0 */
/** The host half of signal.cuh: the same functions, played by what device_side.h names. */
#ifndef TPC_KERNELS_ON_HOST_PTX_HOST_H
#define TPC_KERNELS_ON_HOST_PTX_HOST_H

#include <string.h>

#include "device_side.h"

#define TPC_DEVICE     inline
#define TPC_LOOK_EVERY 2 /* a waiting thread soon finds out that nothing happens, and sleeps */
#ifdef HOSTRUN_LIVE
#define TPC_FAULT(name)        false
#define TPC_HOST_LOOK_TICKS    2 /* as on a GPU (signal.cuh) */
#define TPC_LONGEST_STOP_TICKS 54931640
#else
#include "faults.h"
/* Time stands still while anybody can go on, and a thread sleeps on the words it has looked at: all at once. */
#define TPC_HOST_LOOK_TICKS    0
#define TPC_LONGEST_STOP_TICKS 152588 /* 10 s */
#endif

TPC_DEVICE void packet_store(void *slot, packet_t packet) {
    hostrun::strong_store(slot, &packet, 16);
}
TPC_DEVICE packet_t packet_load(const void *slot) {
    packet_t packet;
    hostrun::strong_load(slot, &packet, 16);
    return packet;
}

TPC_DEVICE uint64_t word_load(const uint64_t *word) {
    uint64_t value;
    hostrun::strong_load(word, &value, 8);
    return value;
}
TPC_DEVICE void word_store(uint64_t *word, uint64_t value) {
    hostrun::strong_store(word, &value, 8);
}
TPC_DEVICE bool word_claim(uint64_t *word, uint64_t value) {
    return hostrun::strong_claim(word, value) == 0;
}
TPC_DEVICE void word_publish(uint64_t *word, uint64_t value) {
    hostrun::fence();
    hostrun::strong_store(word, &value, 8);
}

TPC_DEVICE uint32_t count_claim(uint32_t *count, uint32_t number) {
    uint32_t before = hostrun::strong_add(count, number);
    if (before != 0) hostrun::strong_add(count, 0u - number);
    return before;
}
TPC_DEVICE void count_take(uint32_t *count, uint32_t number) {
    hostrun::strong_add(count, 0u - number);
}

TPC_DEVICE void flag_release() {
    hostrun::fence();
}
TPC_DEVICE void flag_store(uint32_t *flag, uint32_t value) {
    hostrun::strong_store(flag, &value, 4);
}
TPC_DEVICE uint32_t flag_acquire(const uint32_t *flag) {
    uint32_t value;
    hostrun::strong_load(flag, &value, 4);
    hostrun::acquire();
    return value;
}

TPC_DEVICE uint32_t setting_load(const uint32_t *setting) {
    uint32_t value;
    hostrun::strong_load(setting, &value, 4);
    return value;
}

#define TPC_SHARED(type, name, count) type *name = (type *)hostrun::block_memory(#name, (count) * sizeof(type))
TPC_DEVICE void team_barrier(unsigned threads) {
    (void)hostrun::team_any(1, threads, false);
}
TPC_DEVICE bool team_any(unsigned id, unsigned threads, bool mine) {
    return hostrun::team_any(id, threads, mine);
}
TPC_DEVICE float warp_exchange(float x, int bits) {
    return hostrun::warp_exchange(x, bits);
}
TPC_DEVICE uint32_t warp_most(uint32_t x) {
    for (int bits = 16; bits > 0; bits /= 2) {
        float given;
        uint32_t other;
        memcpy(&given, &x, 4);
        given = hostrun::warp_exchange(given, bits);
        memcpy(&other, &given, 4);
        if (other > x) x = other;
    }
    return x;
}

TPC_DEVICE bool warp_agrees(bool same) {
    return same;
}

TPC_DEVICE uint64_t timer_ns() {
    return hostrun::clock_ns();
}
TPC_DEVICE void await_predecessor() {
    hostrun::await_predecessor();
}
TPC_DEVICE void release_successor() {
    hostrun::release_successor();
}

TPC_DEVICE void prefetch_to_sm(const void *line) {
    hostrun::prefetch(line);
}
TPC_DEVICE void prefetch_to_device(const void *line) {
    hostrun::prefetch(line);
}

TPC_DEVICE void compute_anew(uint32_t &x) {
    (void)x;
}
TPC_DEVICE void wait_pause() {
    hostrun::pause();
}

/** Reads what the caller may use; the other bytes are garbage, so that using them shows. */
TPC_DEVICE uint32_t edge_load(const uint32_t *word, unsigned from, unsigned to) {
    uint32_t value = 0xDEADBEEFu;
    for (unsigned b = from; b < to; b++) ((unsigned char *)&value)[b] = ((const unsigned char *)word)[b];
    return value;
}

#endif
