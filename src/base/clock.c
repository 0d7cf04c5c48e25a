/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stddef.h>
#include <time.h>

#define NS_PER_MS   UINT64_C(1000000)
#define NS_PER_S    UINT64_C(1000000000)
#define ASK_EACH_MS 100

uint64_t tpc_clock_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec;
}

tpc_deadline_t tpc_deadline_in(uint64_t timeout_ms, int32_t (*interrupted)(void *), void *arg) {
    uint64_t now = tpc_clock_ns();
    uint64_t most_ms = (UINT64_MAX - now) / NS_PER_MS;
    return (tpc_deadline_t){
        .at_ns = now + (timeout_ms < most_ms ? timeout_ms : most_ms) * NS_PER_MS,
        .start_ns = now,
        .interrupted = interrupted,
        .interrupted_arg = arg,
    };
}

uint64_t tpc_deadline_left_ms(const tpc_deadline_t *deadline) {
    uint64_t now = tpc_clock_ns();
    if (now >= deadline->at_ns) return 0;
    uint64_t left_ns = deadline->at_ns - now;
    return left_ns / NS_PER_MS + (left_ns % NS_PER_MS != 0);
}

uint64_t tpc_deadline_elapsed_ms(const tpc_deadline_t *deadline) {
    uint64_t now = tpc_clock_ns();
    return now > deadline->start_ns ? (now - deadline->start_ns) / NS_PER_MS : 0;
}

static tpcomm_status_t ask(const tpc_deadline_t *deadline) {
    if (!deadline->interrupted || deadline->interrupted(deadline->interrupted_arg) == 0) return TPCOMM_OK;
    return tpc_error(TPCOMM_ERR_INTERRUPTED, "the caller's interrupted function ended the wait after %llu ms",
                     (unsigned long long)tpc_deadline_elapsed_ms(deadline));
}

/** Milliseconds of the next slice of a wait that has left_ms to go. */
static int slice_ms(const tpc_deadline_t *deadline, uint64_t left_ms) {
    uint64_t most_ms = deadline->interrupted ? ASK_EACH_MS : INT_MAX;
    return (int)(left_ms < most_ms ? left_ms : most_ms);
}

tpcomm_status_t tpc_deadline_poll(const tpc_deadline_t *deadline, int fd, short events) {
    struct pollfd waited = {.fd = fd, .events = events};
    for (;;) {
        /* Asked before each slice, also the first: a peer that trickles bytes must not keep a caller from being asked.
         */
        tpcomm_status_t status = ask(deadline);
        if (status != TPCOMM_OK) return status;
        uint64_t left_ms = tpc_deadline_left_ms(deadline);
        int ready = poll(&waited, 1, slice_ms(deadline, left_ms));
        if (ready > 0) return TPCOMM_OK;
        if (ready < 0 && errno != EINTR) return tpc_error_errno(TPCOMM_ERR_IO, errno, "poll of descriptor %d", fd);
        if (left_ms == 0) return TPCOMM_ERR_TIMEOUT;
    }
}

tpcomm_status_t tpc_deadline_sleep(const tpc_deadline_t *deadline, uint32_t ms) {
    uint64_t wake_ns = tpc_clock_ns() + ms * NS_PER_MS;
    uint64_t end_ns = wake_ns < deadline->at_ns ? wake_ns : deadline->at_ns;
    for (;;) {
        tpcomm_status_t status = ask(deadline);
        if (status != TPCOMM_OK) return status;
        uint64_t now = tpc_clock_ns();
        if (now >= end_ns) return end_ns == wake_ns ? TPCOMM_OK : TPCOMM_ERR_TIMEOUT;
        uint64_t left_ns = end_ns - now;
        if (deadline->interrupted && left_ns > ASK_EACH_MS * NS_PER_MS) left_ns = ASK_EACH_MS * NS_PER_MS;
        struct timespec slice = {.tv_sec = (time_t)(left_ns / NS_PER_S), .tv_nsec = (long)(left_ns % NS_PER_S)};
        nanosleep(&slice, NULL);
    }
}
