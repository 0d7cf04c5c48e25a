/* SPDX-License-Identifier: Apache-2.0 */
#include "device/range.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"

#define RANGE_FORMAT   "%s [%p, +%llu)"
#define RANGE_OF(r)    (r)->name, (r)->base, (unsigned long long)(r)->bytes
#define POINTER_OF(at) ((const void *)(uintptr_t)(at))

/* ------------------------------------------------------------------ the process's mappings */

typedef struct {
    int fd;
    char text[4096];
    size_t have, at;
} maps_t;

typedef struct {
    uint64_t start, end;
    char may[4]; /* "rwx" or dashes */
    bool grows;  /* the main thread's stack */
} mapping_t;

/* -1 at the end. */
static int next_char(maps_t *maps) {
    if (maps->at == maps->have) {
        ssize_t got = read(maps->fd, maps->text, sizeof maps->text);
        if (got <= 0) return -1;
        maps->have = (size_t)got;
        maps->at = 0;
    }
    return (unsigned char)maps->text[maps->at++];
}

/* Returns what comes behind the digits. */
static int read_hex(maps_t *maps, uint64_t *value_p) {
    uint64_t value = 0;
    for (;;) {
        int c = next_char(maps);
        if (c >= '0' && c <= '9')
            value = value << 4 | (uint64_t)(c - '0');
        else if (c >= 'a' && c <= 'f')
            value = value << 4 | (uint64_t)(c - 'a' + 10);
        else {
            *value_p = value;
            return c;
        }
    }
}

/* "start-end rwxp offset device inode name". Mappings come in ascending order. */
static bool next_mapping(maps_t *maps, mapping_t *mapping_p) {
    static const char stack[] = "[stack]";
    mapping_t mapping = {.start = 0};
    size_t matched = 0;
    if (read_hex(maps, &mapping.start) != '-' || read_hex(maps, &mapping.end) != ' ') return false;
    for (size_t i = 0; i < 3; i++) {
        int c = next_char(maps);
        if (c < 0) return false;
        mapping.may[i] = (char)c;
    }
    for (int c = next_char(maps); c != '\n'; c = next_char(maps)) {
        if (c < 0) return false;
        matched = c == stack[matched] ? matched + 1 : 0;
        if (matched == sizeof stack - 1) {
            mapping.grows = true;
            matched = 0;
        }
    }
    *mapping_p = mapping;
    return true;
}

static tpcomm_status_t check_mappings(maps_t *maps, const tpc_range_t *range) {
    uint64_t next = (uintptr_t)range->base, end = next + range->bytes;
    mapping_t mapping;
    while (next_mapping(maps, &mapping)) {
        if (mapping.end <= next) continue;
        /* A stack is mapped as far as it has been used; the kernel adds to it. */
        if (mapping.start > next && !mapping.grows) break;
        if (mapping.may[0] != 'r' || (range->written && mapping.may[1] != 'w'))
            return tpc_error(TPCOMM_ERR_INVALID_ARG, RANGE_FORMAT ": this process may not %s it at %p (mapped %s)",
                             RANGE_OF(range), mapping.may[0] != 'r' ? "read" : "write", POINTER_OF(next), mapping.may);
        next = mapping.end;
        if (next >= end) return TPCOMM_OK;
    }
    return tpc_error(TPCOMM_ERR_INVALID_ARG, RANGE_FORMAT ": nothing is mapped at %p in this process", RANGE_OF(range),
                     POINTER_OF(next));
}

tpcomm_status_t tpc_cpu_check_range(const tpc_range_t *range) {
    maps_t maps;
    if (range->bytes == 0) return TPCOMM_OK;
    maps.fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
    maps.have = maps.at = 0;
    if (maps.fd < 0) return TPCOMM_OK; /* nobody to ask */
    tpcomm_status_t status = check_mappings(&maps, range);
    close(maps.fd);
    return status;
}

/* ------------------------------------------------------------------ device memory */

static tpcomm_status_t check_place(const tpc_range_t *range, int32_t ordinal, const char *bus_id, uint64_t address,
                                   const tpc_memory_t *memory) {
    if (memory->kind == TPC_MEMORY_UNKNOWN)
        return tpc_error(TPCOMM_ERR_INVALID_ARG,
                         RANGE_FORMAT ": CUDA knows of no memory at %p (the host's own?); this rank computes on device "
                                      "%d (%s)",
                         RANGE_OF(range), POINTER_OF(address), ordinal, bus_id);
    if (memory->kind == TPC_MEMORY_HOST && !memory->reachable)
        return tpc_error(TPCOMM_ERR_INVALID_ARG, RANGE_FORMAT ": host memory that device %d (%s) cannot reach",
                         RANGE_OF(range), ordinal, bus_id);
    if (memory->kind == TPC_MEMORY_DEVICE && memory->ordinal != ordinal && !memory->reachable)
        return tpc_error(TPCOMM_ERR_INVALID_ARG,
                         RANGE_FORMAT ": memory of device %d; this rank computes on device %d "
                                      "(%s)",
                         RANGE_OF(range), memory->ordinal, ordinal, bus_id);
    return TPCOMM_OK;
}

tpcomm_status_t tpc_range_judge(const tpc_range_t *range, int32_t ordinal, const char *bus_id,
                                tpcomm_status_t (*look)(void *arg, uint64_t address, tpc_memory_t *memory_p),
                                void *arg) {
    uint64_t next = (uintptr_t)range->base, end = next + range->bytes;
    tpc_memory_t memory, last = {.kind = TPC_MEMORY_UNKNOWN};
    while (next < end) {
        tpcomm_status_t status = look(arg, next, &memory);
        bool past = memory.kind == TPC_MEMORY_UNKNOWN && last.kind != TPC_MEMORY_UNKNOWN;
        if (status == TPCOMM_OK && !past) status = check_place(range, ordinal, bus_id, next, &memory);
        if (status != TPCOMM_OK) return status;
        if (!past && memory.bytes == 0) return TPCOMM_OK; /* of such memory no extent is told */
        if (past || (memory.whole && memory.start + memory.bytes < end)) {
            const tpc_memory_t *own = past ? &last : &memory;
            return tpc_error(TPCOMM_ERR_INVALID_ARG, RANGE_FORMAT " goes past the end of its memory [%p, +%llu)",
                             RANGE_OF(range), POINTER_OF(own->start), (unsigned long long)own->bytes);
        }
        if (memory.start + memory.bytes <= next) return TPCOMM_OK;
        next = memory.start + memory.bytes; /* pieces that were mapped side by side */
        last = memory;
    }
    return TPCOMM_OK;
}
