/* SPDX-License-Identifier: Apache-2.0 */
/** Random numbers that are the same everywhere for the same seed: SplitMix64. (Steele, Lea, Flood: Fast splittable
 * pseudorandom number generators, 2014) */
#ifndef BENCH_RANDOM_H
#define BENCH_RANDOM_H

#include <stdint.h>

/** Mix a counter into 64 random bits. */
static inline uint64_t bench_random_mix(uint64_t x) {
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

static inline uint64_t bench_random_next(uint64_t *state) {
    return bench_random_mix(*state += UINT64_C(0x9e3779b97f4a7c15));
}

/** Uniform in 0 to n - 1; n > 0. */
static inline uint64_t bench_random_below(uint64_t *state, uint64_t n) {
    uint64_t limit = UINT64_MAX - UINT64_MAX % n, value;
    do value = bench_random_next(state);
    while (value >= limit);
    return value % n;
}

#endif
