/* SPDX-License-Identifier: Apache-2.0 */
/** Calls on a thread that may make no system call but for waiting: a filter of the kernel's ends the process. */
#ifndef TPC_TESTS_SILENCE_H
#define TPC_TESTS_SILENCE_H

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "multirank/ranks.h"

static void silence_broken(int signal, siginfo_t *info, void *context) {
    (void)signal, (void)context;
    char text[64];
    int length = snprintf(text, sizeof text, "a call made system call %d\n", info->si_syscall);
    if (length > 0) (void)!write(2, text, (size_t)length);
    _Exit(1);
}

/* From now on this thread may only wait, yield, and end. False: the kernel has no such filters. */
static inline bool silence_begin(void) {
    /* restart_syscall: a wait that goes on when the process was stopped. */
    static const int allowed[] = {SYS_futex,        SYS_restart_syscall, SYS_sched_yield, SYS_clock_gettime,
                                  SYS_madvise,      SYS_munmap,          SYS_exit,        SYS_exit_group,
                                  SYS_rt_sigreturn, SYS_rt_sigprocmask,  SYS_write};
    struct sock_filter filter[2 * sizeof allowed / sizeof *allowed + 2];
    unsigned short n = 0;
    filter[n++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    for (size_t i = 0; i < sizeof allowed / sizeof *allowed; i++) {
        filter[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)allowed[i], 0, 1);
        filter[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    }
    filter[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP);
    struct sock_fprog program = {.len = n, .filter = filter};
    struct sigaction action = {.sa_sigaction = silence_broken, .sa_flags = SA_SIGINFO};
    CHECK_EQ(sigaction(SIGSYS, &action, NULL), 0);
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

typedef struct {
    rank_t *rank;
    rank_fn fn;
} silence_t;

static void *silence_main(void *arg) {
    silence_t *silence = arg;
    /* Sanitizers have system calls of their own. */
    if (!TEST_SANITIZED && !silence_begin()) printf("no filter of system calls here\n");
    silence->fn(silence->rank);
    return NULL;
}

/** Run fn on a thread of its own that may only wait. Ranks must be processes. */
static inline void silence_run(rank_t *rank, rank_fn fn) {
    pthread_t thread;
    silence_t silence = {.rank = rank, .fn = fn};
    CHECK_EQ(pthread_create(&thread, NULL, silence_main, &silence), 0);
    CHECK_EQ(pthread_join(thread, NULL), 0);
}

#endif
