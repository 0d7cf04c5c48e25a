/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"

#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <stddef.h>
#include <time.h>

#define NS_PER_MS UINT64_C(1000000)
#define NS_PER_S  UINT64_C(1000000000)
#define SLICE_MS  100 /* no wait is longer without a look at the clock, and a question to the caller */

uint64_t tpc_clock_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec;
}

/*
 * Stops that were found, in one word: until when they have been counted (high bits) and how long they were in all (low
 * bits), both in units of 67 ms.
 */
#define UNIT_BITS    26
#define STOPPED_BITS 26
#define STOPPED_MOST ((UINT64_C(1) << STOPPED_BITS) - 1) /* 52 days */
static _Atomic uint64_t stops;

uint64_t tpc_clock_awake_at(uint64_t now_ns) {
    return now_ns - ((atomic_load(&stops) & STOPPED_MOST) << UNIT_BITS);
}

uint64_t tpc_clock_awake_ns(void) {
    return tpc_clock_awake_at(tpc_clock_ns());
}

uint64_t tpc_clock_awake_since(uint64_t then_ns) {
    uint64_t now = tpc_clock_awake_ns();
    return now > then_ns ? now - then_ns : 0;
}

void tpc_clock_waited_until(uint64_t begun_ns, uint64_t most_ms, uint64_t now_ns) {
    uint64_t most_ns = most_ms * NS_PER_MS;
    if (now_ns - begun_ns <= most_ns + TPC_STOPPED_GAP_NS) return;
    uint64_t from = (begun_ns + most_ns) >> UNIT_BITS, until = now_ns >> UNIT_BITS, seen = atomic_load(&stops), next;
    do {
        uint64_t counted = seen >> STOPPED_BITS, stopped = seen & STOPPED_MOST;
        if (counted > from) from = counted;
        if (from >= until) return;
        stopped = until - from < STOPPED_MOST - stopped ? stopped + (until - from) : STOPPED_MOST;
        next = until << STOPPED_BITS | stopped;
    } while (!atomic_compare_exchange_weak(&stops, &seen, next));
}

void tpc_clock_waited(uint64_t begun_ns, uint64_t most_ms) {
    tpc_clock_waited_until(begun_ns, most_ms, tpc_clock_ns());
}

tpc_deadline_t tpc_deadline_in(uint64_t timeout_ms, int32_t (*interrupted)(void *), void *arg) {
    uint64_t now = tpc_clock_awake_ns();
    uint64_t most_ms = (UINT64_MAX - now) / NS_PER_MS;
    return (tpc_deadline_t){
        .at_ns = now + (timeout_ms < most_ms ? timeout_ms : most_ms) * NS_PER_MS,
        .start_ns = now,
        .interrupted = interrupted,
        .interrupted_arg = arg,
    };
}

uint64_t tpc_deadline_left_ms(const tpc_deadline_t *deadline) {
    uint64_t now = tpc_clock_awake_ns();
    if (now >= deadline->at_ns) return 0;
    uint64_t left_ns = deadline->at_ns - now;
    return left_ns / NS_PER_MS + (left_ns % NS_PER_MS != 0);
}

uint64_t tpc_deadline_elapsed_ms(const tpc_deadline_t *deadline) {
    return tpc_clock_awake_since(deadline->start_ns) / NS_PER_MS;
}

static tpcomm_status_t ask(const tpc_deadline_t *deadline) {
    if (!deadline->interrupted || deadline->interrupted(deadline->interrupted_arg) == 0) return TPCOMM_OK;
    return tpc_error(TPCOMM_ERR_INTERRUPTED, "the caller's interrupted function ended the wait after %llu ms",
                     (unsigned long long)tpc_deadline_elapsed_ms(deadline));
}

tpcomm_status_t tpc_deadline_poll(const tpc_deadline_t *deadline, int fd, short events) {
    struct pollfd waited = {.fd = fd, .events = events};
    for (;;) {
        /* Asked before each slice, also the first: a peer that trickles bytes must not keep a caller from being asked.
         */
        tpcomm_status_t status = ask(deadline);
        if (status != TPCOMM_OK) return status;
        uint64_t begun_ns = tpc_clock_ns(); /* what the caller took to answer is no stop */
        uint64_t left_ms = tpc_deadline_left_ms(deadline);
        int slice_ms = left_ms < SLICE_MS ? (int)left_ms : SLICE_MS;
        int ready = poll(&waited, 1, slice_ms);
        tpc_clock_waited(begun_ns, (uint64_t)slice_ms);
        if (ready > 0) return TPCOMM_OK;
        if (ready < 0 && errno != EINTR) return tpc_error_errno(TPCOMM_ERR_IO, errno, "poll of descriptor %d", fd);
        if (left_ms == 0 && tpc_deadline_left_ms(deadline) == 0) return TPCOMM_ERR_TIMEOUT;
    }
}

tpcomm_status_t tpc_deadline_sleep(const tpc_deadline_t *deadline, uint32_t ms) {
    uint64_t wake_ns = tpc_clock_awake_ns() + ms * NS_PER_MS;
    uint64_t end_ns = wake_ns < deadline->at_ns ? wake_ns : deadline->at_ns;
    for (;;) {
        tpcomm_status_t status = ask(deadline);
        if (status != TPCOMM_OK) return status;
        uint64_t begun_ns = tpc_clock_ns(); /* what the caller took to answer is no stop */
        uint64_t now = tpc_clock_awake_ns();
        if (now >= end_ns) tpc_clock_waited(begun_ns, 0); /* stopped since then? */
        if (now >= end_ns) now = tpc_clock_awake_ns();
        if (now >= end_ns) return end_ns == wake_ns ? TPCOMM_OK : TPCOMM_ERR_TIMEOUT;
        uint64_t left_ns = end_ns - now;
        if (left_ns > SLICE_MS * NS_PER_MS) left_ns = SLICE_MS * NS_PER_MS;
        struct timespec slice = {.tv_sec = (time_t)(left_ns / NS_PER_S), .tv_nsec = (long)(left_ns % NS_PER_S)};
        nanosleep(&slice, NULL);
        tpc_clock_waited(begun_ns, SLICE_MS);
    }
}
