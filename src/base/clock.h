/* SPDX-License-Identifier: Apache-2.0 */
/** Monotonic time, and the deadline that every wait carries. */
#ifndef TPC_BASE_CLOCK_H
#define TPC_BASE_CLOCK_H

#include <stdint.h>

#include "base/error.h"

/** Nanoseconds of CLOCK_MONOTONIC: comparable between the processes of one host. */
uint64_t tpc_clock_ns(void);

/* A longer silence than this, of somebody who looks at the clock more often: stopped (by a signal, a debugger, a
 * machine that is paused). */
#define TPC_STOPPED_GAP_NS 2000000000u

/**
 * The same less the time for which this process was found to have been stopped, which is nobody's delay. All deadlines
 * are of this clock. It goes back when a stop is found.
 */
uint64_t tpc_clock_awake_ns(void);
/** Since then_ns of that clock; 0 where it has gone back behind it. */
uint64_t tpc_clock_awake_since(uint64_t then_ns);

/**
 * A wait that began at begun_ns (tpc_clock_ns) and was to take most_ms at most is over: where it has taken much longer,
 * the process was stopped meanwhile. Any thread: what several have seen of one stop counts once.
 */
void tpc_clock_waited(uint64_t begun_ns, uint64_t most_ms);
/** The same of one look at the clock: who looks once for each turn of a wait misses no stop between two looks. */
void tpc_clock_waited_until(uint64_t begun_ns, uint64_t most_ms, uint64_t now_ns);
/** What tpc_clock_awake_ns was when tpc_clock_ns was this. */
uint64_t tpc_clock_awake_at(uint64_t now_ns);

/** When a wait must end, and who may end it sooner. */
typedef struct {
    uint64_t at_ns;                    /**< by tpc_clock_awake_ns */
    uint64_t start_ns;                 /**< when the deadline was made: for "after N ms" in texts */
    int32_t (*interrupted)(void *arg); /**< may be NULL; asked at least every 100 ms by the waiting thread */
    void *interrupted_arg;
} tpc_deadline_t;

/** A deadline timeout_ms from now. */
tpc_deadline_t tpc_deadline_in(uint64_t timeout_ms, int32_t (*interrupted)(void *), void *arg);

/** Milliseconds left, rounded up; 0 when over. */
uint64_t tpc_deadline_left_ms(const tpc_deadline_t *deadline);

/** Milliseconds since the deadline was made, without those for which the process was stopped. */
uint64_t tpc_deadline_elapsed_ms(const tpc_deadline_t *deadline);

/**
 * Wait until fd has one of the poll(2) events (or an error or hang-up, which also counts as ready). EINTR goes on with
 * what is left. Returns OK when ready, TIMEOUT (no text recorded: the caller knows who was waited for), INTERRUPTED
 * (text recorded).
 */
tpcomm_status_t tpc_deadline_poll(const tpc_deadline_t *deadline, int fd, short events);

/** Sleep for ms or to the deadline, in slices that ask interrupted. OK when slept, else as tpc_deadline_poll. */
tpcomm_status_t tpc_deadline_sleep(const tpc_deadline_t *deadline, uint32_t ms);

#endif
