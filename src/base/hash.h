/* SPDX-License-Identifier: Apache-2.0 */
/** FNV-1a, 64 bits: to compare what ranks hold equal, not against an adversary. (Fowler, Noll, Vo; RFC 9923) */
#ifndef TPC_BASE_HASH_H
#define TPC_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

#define TPC_HASH_START 0xcbf29ce484222325u

static inline uint64_t tpc_hash(uint64_t hash, const void *bytes, size_t count) {
    const unsigned char *byte = (const unsigned char *)bytes;
    for (size_t i = 0; i < count; i++) hash = (hash ^ byte[i]) * 0x100000001b3u;
    return hash;
}

#endif
