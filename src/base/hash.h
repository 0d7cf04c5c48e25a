/* SPDX-License-Identifier: Apache-2.0 */
/** Hashes of 64 bits: to compare what ranks hold equal, not against an adversary. */
#ifndef TPC_BASE_HASH_H
#define TPC_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

#define TPC_HASH_START 0xcbf29ce484222325u

/** FNV-1a (Fowler, Noll, Vo; RFC 9923). */
static inline uint64_t tpc_hash(uint64_t hash, const void *bytes, size_t count) {
    const unsigned char *byte = (const unsigned char *)bytes;
    for (size_t i = 0; i < count; i++) hash = (hash ^ byte[i]) * 0x100000001b3u;
    return hash;
}

/**
 * Of words, for where a call's time counts: a multiplication a word (by 2^64 over the golden ratio: Knuth, The Art of
 * Computer Programming 3, 6.4), and the high half, which every bit of the word has reached, into the low one.
 */
static inline uint64_t tpc_hash_words(uint64_t hash, const uint64_t *words, size_t count) {
    for (size_t i = 0; i < count; i++) {
        hash = (hash ^ words[i]) * 0x9e3779b97f4a7c15u;
        hash ^= hash >> 32;
    }
    return hash;
}

#endif
