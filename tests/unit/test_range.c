/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Check what counts as memory that a call can use (device/range.h): on the host every page is looked at, to the last
 * byte and not one further; on a device, by what CUDA would tell of each address: whose it is, whether it can be
 * reached, where its allocation ends, and that pieces mapped side by side are one. The text has both ranges.
 */
#include <sys/mman.h>

#include "check.h"
#include "device/range.h"

#define PAGE 4096u

/* ------------------------------------------------------------------ host */

static void host(const void *base, uint64_t bytes, bool written, const char *why) {
    tpc_range_t range = {.name = "in", .base = base, .bytes = bytes, .written = written};
    CHECK_STATUS(tpc_cpu_check_range(&range), why == NULL ? TPCOMM_OK : TPCOMM_ERR_INVALID_ARG);
    if (why != NULL) CHECK_ERROR_HAS(why);
}

static void pages(void) {
    /* rw- r-- --- rw- and a hole, a page each */
    char *base = mmap(NULL, 5 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), text[96];
    CHECK(base != MAP_FAILED);
    CHECK_EQ(mprotect(base + PAGE, PAGE, PROT_READ), 0);
    CHECK_EQ(mprotect(base + 2 * PAGE, PAGE, PROT_NONE), 0);
    CHECK_EQ(munmap(base + 4 * PAGE, PAGE), 0);
    host(base, PAGE, true, NULL);
    host(base + 1, PAGE - 1, true, NULL);
    host(base, 0, true, NULL);
    host(base + 2 * PAGE, 0, true, NULL);
    snprintf(text, sizeof text, "in [%p, +4097): this process may not write it at %p (mapped r--)", (void *)base,
             (void *)(base + PAGE));
    host(base, PAGE + 1, true, text);
    host(base, 2 * PAGE, false, NULL);
    snprintf(text, sizeof text, "may not read it at %p (mapped ---)", (void *)(base + 2 * PAGE));
    host(base, 2 * PAGE + 1, false, text);
    host(base + 3 * PAGE, PAGE, true, NULL);
    snprintf(text, sizeof text, "nothing is mapped at %p", (void *)(base + 4 * PAGE));
    host(base + 3 * PAGE, PAGE + 1, true, text);
    host(base + 4 * PAGE, 1, false, text);
    host((const void *)(uintptr_t)16, 4, false, "nothing is mapped at 0x10");
    host((const void *)(UINTPTR_MAX - 64), 64, true, "in [");
    CHECK_EQ(munmap(base, 4 * PAGE), 0);
    static char zeros[64];
    static const char constant[64] = "constant";
    volatile char stack[64] = {0};
    host(zeros, sizeof zeros, true, NULL);
    host(constant, sizeof constant, false, NULL);
    host((const void *)(uintptr_t)stack, sizeof stack, true, NULL);
    host((const void *)((uintptr_t)stack - (1u << 20)), 1u << 20, true, NULL); /* not used so far */
}

/* ------------------------------------------------------------------ devices */

typedef struct {
    tpc_memory_t pieces[4];
    int count, looks;
} map_t;

static tpcomm_status_t look(void *arg, uint64_t address, tpc_memory_t *memory_p) {
    map_t *map = arg;
    map->looks++;
    *memory_p = (tpc_memory_t){.kind = TPC_MEMORY_UNKNOWN};
    for (int i = 0; i < map->count; i++)
        if (address >= map->pieces[i].start && address - map->pieces[i].start < map->pieces[i].bytes)
            *memory_p = map->pieces[i];
    return TPCOMM_OK;
}

static void device(map_t map, uint64_t base, uint64_t bytes, const char *why) {
    tpc_range_t range = {.name = "out", .base = (void *)(uintptr_t)base, .bytes = bytes, .written = true};
    map.looks = 0;
    CHECK_STATUS(tpc_range_judge(&range, 1, "0000:0f:00.0", look, &map),
                 why == NULL ? TPCOMM_OK : TPCOMM_ERR_INVALID_ARG);
    if (why != NULL) CHECK_ERROR_HAS(why);
    CHECK(map.looks <= map.count + 1);
}

static void devices(void) {
    const tpc_memory_t own = {TPC_MEMORY_DEVICE, 1, true, true, 0x1000, 0x1000};
    tpc_memory_t other = own, pinned = own, pageable = own, managed = own;
    other.ordinal = 0;
    other.reachable = false;
    pinned.kind = pageable.kind = TPC_MEMORY_HOST;
    pageable.reachable = false;
    managed.kind = TPC_MEMORY_MANAGED;
    device((map_t){{own}, 1, 0}, 0x1000, 0x1000, NULL);
    device((map_t){{own}, 1, 0}, 0x1fff, 1, NULL);
    device((map_t){{own}, 1, 0}, 0x1010, 0x1000, "out [0x1010, +4096) goes past the end of its memory [0x1000, +4096)");
    device((map_t){{own}, 1, 0}, 0x2000, 1,
           "CUDA knows of no memory at 0x2000 (the host's own?); this rank computes on "
           "device 1 (0000:0f:00.0)");
    device((map_t){{other}, 1, 0}, 0x1000, 16, "out [0x1000, +16): memory of device 0; this rank computes on device 1");
    other.reachable = true;
    device((map_t){{other}, 1, 0}, 0x1000, 16, NULL);
    device((map_t){{pinned}, 1, 0}, 0x1000, 16, NULL);
    device((map_t){{managed}, 1, 0}, 0x1000, 16, NULL);
    device((map_t){{pageable}, 1, 0}, 0x1000, 16, "host memory that device 1 (0000:0f:00.0) cannot reach");

    /* A neighbour's allocation is not one's own; pieces of one reservation are. */
    tpc_memory_t next = own, piece = own, behind = own;
    next.start = 0x2000;
    device((map_t){{own, next}, 2, 0}, 0x1800, 0x1000, "goes past the end of its memory [0x1000, +4096)");
    piece.whole = behind.whole = false;
    behind.start = 0x2000;
    device((map_t){{piece, behind}, 2, 0}, 0x1800, 0x1800, NULL);
    device((map_t){{piece, behind}, 2, 0}, 0x1800, 0x1801, "goes past the end of its memory [0x2000, +4096)");
    behind.ordinal = 0;
    behind.reachable = false;
    device((map_t){{piece, behind}, 2, 0}, 0x1800, 0x1000, "memory of device 0");
}

int main(void) {
    pages();
    devices();
    return 0;
}
