/* SPDX-License-Identifier: Apache-2.0 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "multirank/stalls.h"

#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "base/clock.h"
#include "check.h"

#define TICK_US    5000u
#define LATE_NS    20000000u /* a shorter delay is a tick's own */
#define SETTLE_US  300000u   /* a stop that is just over is noted by then */
#define CPUS_WATCH 16

static _Atomic uint64_t *stalled_ns; /* shared by all processes of the test */

static void watch(pid_t parent, int cpu) {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET((size_t)cpu, &one);
    (void)sched_setaffinity(0, sizeof one, &one);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (uint64_t begun = tpc_clock_ns(); getppid() == parent;) {
        usleep(TICK_US);
        uint64_t now = tpc_clock_ns();
        if (now - begun > TICK_US * 1000u + LATE_NS) atomic_fetch_add(stalled_ns, now - begun);
        begun = now;
    }
    _Exit(0);
}

void stalls_watch(void) {
    cpu_set_t all;
    CHECK(stalled_ns == NULL);
    stalled_ns = mmap(NULL, sizeof *stalled_ns, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(stalled_ns != MAP_FAILED);
    if (sched_getaffinity(0, sizeof all, &all) != 0) CPU_ZERO(&all);
    fflush(NULL);
    pid_t me = getpid();
    for (int cpu = 0, watched = 0; cpu < CPU_SETSIZE && watched < CPUS_WATCH; cpu++) {
        if (!CPU_ISSET((size_t)cpu, &all)) continue;
        pid_t pid = fork();
        CHECK(pid >= 0);
        if (pid == 0) watch(me, cpu);
        watched++;
    }
}

moment_t moment_now(void) {
    return (moment_t){.wall_ns = tpc_clock_ns(), .stalled_ns = atomic_load(stalled_ns)};
}

bool moment_is_past(moment_t since, uint64_t ms) {
    uint64_t passed = tpc_clock_ns() - since.wall_ns, most = ms * 1000000u;
    if (passed <= most) return false;
    usleep(SETTLE_US);
    uint64_t stalled = atomic_load(stalled_ns) - since.stalled_ns;
    fprintf(stderr, "after %llu ms, with the machine stopped for %llu of them\n",
            (unsigned long long)(passed / 1000000u), (unsigned long long)(stalled / 1000000u));
    return passed > most + stalled;
}
