/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Check that every wait ends: when ready, at its deadline, or when the caller's function asks; also under signals; and
 * that time for which the process was stopped counts against none, and once.
 */
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "bootstrap/link.h"
#include "check.h"

static int32_t after_calls(void *arg) {
    int *left = arg;
    return --*left <= 0;
}

static int32_t never(void *arg) {
    ++*(int *)arg;
    return 0;
}

/** Takes its time to answer, and does not for ever. */
static int32_t slowly(void *arg) {
    usleep(2200000);
    return ++*(int *)arg == 3;
}

/** Ends the wait that asks twice within 150 ms, which a wait that asks every 100 ms does once nothing stops it. */
static int32_t asked_soon(void *arg) {
    uint64_t *last_ns = arg, now = tpc_clock_ns(), gap_ns = now - *last_ns;
    *last_ns = now;
    return gap_ns < 150000000;
}

static volatile sig_atomic_t alarms;
static int alarm_fd = -1;

/** The fifth signal makes the descriptor ready. */
static void on_alarm(int number) {
    (void)number;
    if (++alarms == 5 && alarm_fd >= 0 && write(alarm_fd, "x", 1) != 1) _exit(1);
}

static void check_arithmetic(void) {
    uint64_t before = tpc_clock_ns();
    tpc_deadline_t deadline = tpc_deadline_in(1000000, NULL, NULL);
    uint64_t after = tpc_clock_ns();
    CHECK(before <= deadline.start_ns && deadline.start_ns <= after);
    CHECK_EQ(deadline.at_ns - deadline.start_ns, 1000000000000);
    CHECK(tpc_deadline_left_ms(&deadline) <= 1000000);

    deadline = tpc_deadline_in(UINT64_MAX, NULL, NULL);
    CHECK(deadline.at_ns > UINT64_MAX - 1000001);
    CHECK(tpc_deadline_left_ms(&deadline) > 0);

    deadline = tpc_deadline_in(0, NULL, NULL);
    CHECK_EQ(tpc_deadline_left_ms(&deadline), 0);

    /* What is left is rounded up: a wait of the time left never ends early. */
    deadline = tpc_deadline_in(0, NULL, NULL);
    before = tpc_clock_ns();
    deadline.at_ns = before + 3600 * UINT64_C(1000000000) + 1;
    uint64_t left_ms = tpc_deadline_left_ms(&deadline), least_ns = deadline.at_ns - tpc_clock_ns();
    CHECK(left_ms <= 3600001 && left_ms * 1000000 >= least_ns);
    deadline.start_ns = tpc_clock_ns() - 5000000;
    CHECK(tpc_deadline_elapsed_ms(&deadline) >= 5);
    deadline.start_ns = UINT64_MAX;
    CHECK_EQ(tpc_deadline_elapsed_ms(&deadline), 0);
}

static void check_poll(void) {
    int pair[2], asked = 0;
    uint64_t asked_ns = 0;
    CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    tpc_deadline_t over = tpc_deadline_in(0, NULL, NULL), soon = tpc_deadline_in(20, NULL, NULL);

    /* Nothing to read: the deadline ends it, and not before. No text: the caller knows who was waited for. */
    tpc_error(TPCOMM_ERR_IO, "kept");
    CHECK_STATUS(tpc_deadline_poll(&over, pair[0], POLLIN), TPCOMM_ERR_TIMEOUT);
    CHECK_STATUS(tpc_deadline_poll(&soon, pair[0], POLLIN), TPCOMM_ERR_TIMEOUT);
    CHECK(tpc_clock_ns() >= soon.at_ns);
    CHECK_ERROR_HAS("kept");

    CHECK_OK(tpc_deadline_poll(&over, pair[0], POLLOUT));
    CHECK_EQ(write(pair[1], "x", 1), 1);
    CHECK_OK(tpc_deadline_poll(&over, pair[0], POLLIN));

    /* The caller's function: asked at once and at least every 100 ms; it also ends a wait that is ready. */
    int left = 1;
    tpc_deadline_t long_wait = tpc_deadline_in(3600000, after_calls, &left);
    CHECK_STATUS(tpc_deadline_poll(&long_wait, pair[0], POLLIN), TPCOMM_ERR_INTERRUPTED);
    CHECK_ERROR_HAS("interrupted");
    char byte;
    CHECK_EQ(read(pair[0], &byte, 1), 1);
    left = 3;
    long_wait = tpc_deadline_in(3600000, after_calls, &left);
    CHECK_STATUS(tpc_deadline_poll(&long_wait, pair[0], POLLIN), TPCOMM_ERR_INTERRUPTED);
    CHECK_EQ(left, 0);
    tpc_deadline_t asking = tpc_deadline_in(250, never, &asked);
    CHECK_STATUS(tpc_deadline_poll(&asking, pair[0], POLLIN), TPCOMM_ERR_TIMEOUT);
    CHECK(asked >= 1);
    long_wait = tpc_deadline_in(3600000, asked_soon, &asked_ns);
    CHECK_STATUS(tpc_deadline_poll(&long_wait, pair[0], POLLIN), TPCOMM_ERR_INTERRUPTED);

    /* Hang-up and a bad descriptor are ready: the read or write that follows tells. */
    close(pair[1]);
    long_wait = tpc_deadline_in(3600000, NULL, NULL);
    CHECK_OK(tpc_deadline_poll(&long_wait, pair[0], POLLIN));
    close(pair[0]);
    CHECK_OK(tpc_deadline_poll(&long_wait, pair[0], POLLIN));
}

static void check_signals(void) {
    int pair[2];
    CHECK_EQ(pipe(pair), 0);
    struct sigaction action = {.sa_handler = on_alarm};
    struct itimerval each_ms = {{0, 1000}, {0, 1000}}, off = {{0, 0}, {0, 0}};
    CHECK_EQ(sigaction(SIGALRM, &action, NULL), 0);

    alarm_fd = pair[1];
    setitimer(ITIMER_REAL, &each_ms, NULL);
    tpc_deadline_t long_wait = tpc_deadline_in(3600000, NULL, NULL);
    CHECK_OK(tpc_deadline_poll(&long_wait, pair[0], POLLIN));
    CHECK(alarms >= 5);

    /* Interrupted again and again, a wait still takes its time, and ends. */
    char byte;
    CHECK_EQ(read(pair[0], &byte, 1), 1);
    tpc_deadline_t soon = tpc_deadline_in(30, NULL, NULL);
    CHECK_STATUS(tpc_deadline_poll(&soon, pair[0], POLLIN), TPCOMM_ERR_TIMEOUT);
    CHECK(tpc_clock_ns() >= soon.at_ns);
    uint64_t before = tpc_clock_ns();
    CHECK_OK(tpc_deadline_sleep(&long_wait, 30));
    CHECK(tpc_clock_ns() - before >= 30000000);
    setitimer(ITIMER_REAL, &off, NULL);
    close(pair[0]);
    close(pair[1]);
}

static void check_sleep(void) {
    int left = 3, asked = 0;
    uint64_t asked_ns = 0;
    tpc_deadline_t long_wait = tpc_deadline_in(3600000, NULL, NULL), soon = tpc_deadline_in(10, NULL, NULL);
    uint64_t before = tpc_clock_ns();
    CHECK_OK(tpc_deadline_sleep(&long_wait, 0));
    CHECK_OK(tpc_deadline_sleep(&long_wait, 5));
    CHECK(tpc_clock_ns() - before >= 5000000);
    CHECK_STATUS(tpc_deadline_sleep(&soon, UINT32_MAX), TPCOMM_ERR_TIMEOUT);
    CHECK(tpc_clock_ns() >= soon.at_ns);
    CHECK_STATUS(tpc_deadline_sleep(&soon, 1), TPCOMM_ERR_TIMEOUT);
    tpc_deadline_t asking = tpc_deadline_in(3600000, after_calls, &left);
    CHECK_STATUS(tpc_deadline_sleep(&asking, 3600000), TPCOMM_ERR_INTERRUPTED);
    CHECK_EQ(left, 0);
    asking = tpc_deadline_in(3600000, never, &asked);
    CHECK_OK(tpc_deadline_sleep(&asking, 250));
    CHECK(asked >= 1);
    asking = tpc_deadline_in(3600000, asked_soon, &asked_ns);
    CHECK_STATUS(tpc_deadline_sleep(&asking, 3600000), TPCOMM_ERR_INTERRUPTED);
}

/* A wait that is over while its caller's function answers ends with that: the process was not stopped. */
static void check_slow_answer(void) {
    int pair[2], asked = 0;
    tpc_deadline_t deadline = tpc_deadline_in(100, slowly, &asked);
    CHECK_STATUS(tpc_deadline_sleep(&deadline, 3600000), TPCOMM_ERR_TIMEOUT);
    CHECK_EQ(pipe(pair), 0);
    asked = 0;
    deadline = tpc_deadline_in(100, slowly, &asked);
    CHECK_STATUS(tpc_deadline_poll(&deadline, pair[0], POLLIN), TPCOMM_ERR_TIMEOUT);
    close(pair[0]);
    close(pair[1]);

    /* The same of waits by turns, which also look for stops between them. */
    tpcomm_status_t status = TPCOMM_OK;
    asked = 0;
    deadline = tpc_deadline_in(100, slowly, &asked);
    tpc_turns_begin();
    while (status == TPCOMM_OK) status = tpc_poll_turn(&deadline, NULL, 0, 10);
    CHECK_STATUS(status, TPCOMM_ERR_TIMEOUT);
}

/* In a process that no stop has been found of, so that the clocks are one at first. False: it was itself stopped on the
 * way, and what was read says nothing. */
static bool stops_are_left_out(void) {
    const uint64_t second = 1000000000, slack = second / 5; /* a stop is kept in units of 67 ms */
    tpc_deadline_t deadline = tpc_deadline_in(10000, NULL, NULL);
    uint64_t now = tpc_clock_ns(), awake = tpc_clock_awake_ns();
    tpc_clock_waited(now - 2 * second, 100); /* late, as on a loaded machine */
    uint64_t late = tpc_clock_awake_ns();
    tpc_clock_waited(now - 5 * second, 1000); /* was to take one second, took five */
    uint64_t left_ms = tpc_deadline_left_ms(&deadline), since = tpc_clock_awake_since(awake);
    uint64_t stopped = tpc_clock_ns() - tpc_clock_awake_ns();
    tpc_clock_waited(now - 4 * second, 0); /* what others have seen of the same */
    tpc_clock_waited(now - 5 * second, 1000);
    uint64_t again = tpc_clock_ns() - tpc_clock_awake_ns();
    tpc_clock_waited(now - 7 * second, 0); /* counted is what was not before its end */
    uint64_t longer = tpc_clock_ns() - tpc_clock_awake_ns();
    if (tpc_clock_ns() - deadline.start_ns > second / 20) return false;
    CHECK(awake >= now);
    CHECK(late >= awake);
    CHECK(left_ms >= 13800 && left_ms < 14200);
    CHECK_EQ(since, 0); /* it has gone back */
    CHECK(stopped > 4 * second - slack);
    CHECK(again < 4 * second + slack);
    CHECK(longer < 4 * second + slack);
    return true;
}

/* Before all others, whose waits may find stops. */
static void check_stops(void) {
    for (bool good = false; !good;) {
        int how = 0;
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) _Exit(stops_are_left_out() ? 0 : 2);
        CHECK_EQ(waitpid(child, &how, 0), child);
        CHECK(WIFEXITED(how) && WEXITSTATUS(how) != 1);
        good = WEXITSTATUS(how) == 0;
    }
}

int main(void) {
    check_stops();
    check_arithmetic();
    check_poll();
    check_signals();
    check_sleep();
    check_slow_answer();
    return 0;
}
