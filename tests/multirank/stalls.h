/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Upper bounds of time on a machine that stops processes for hundreds of milliseconds at any place. Processes that do
 * nothing but sleep for a moment, one on each processor, note how much longer that took; time that the machine took
 * from them it may have taken from the job as well, and it does not count.
 */
#ifndef TPC_TESTS_STALLS_H
#define TPC_TESTS_STALLS_H

#include <stdbool.h>
#include <stdint.h>

typedef struct {
    uint64_t wall_ns, stalled_ns;
} moment_t;

/** Begin to watch, before there are ranks. It ends with this process. */
void stalls_watch(void);

moment_t moment_now(void);

/** Whether more than ms have passed since then, without those for which the machine stood still. */
bool moment_is_past(moment_t since, uint64_t ms);

/** Fails the test where it is. */
#define CHECK_WITHIN(since, limit_ms)                                                                                  \
    do {                                                                                                               \
        if (moment_is_past(since, limit_ms)) FAIL("too late: not within %llu ms", (unsigned long long)(limit_ms));     \
    } while (0)

#endif
