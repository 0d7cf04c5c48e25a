/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two processes. The one the user knows only waits and passes signals on; a child of it, the supervisor, starts the
 * ranks, carries their output and ends them. So a launcher killed by SIGKILL still leaves nothing: the supervisor gets
 * SIGTERM from the kernel (PR_SET_PDEATHSIG) and cleans up as usual, and were it killed too, the ranks get SIGKILL the
 * same way. Every rank leads a process group, and the supervisor is a subreaper: what a rank starts is found in its
 * group, or comes to the supervisor when its parent ends.
 */
#include "launch.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "launch_env.h"
#include "launch_output.h"
#include "launch_tree.h"

/* A limit is over by the clock and by as many looks as belong to it: what stops this process stops the ranks, too. */
enum { TICK_MS = 50, LAST_OUTPUT_MS = 1000, STDIN_BYTES = 4096, PIPE_MOST_BYTES = 1 << 20 };
static const int passed_signals[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};

typedef enum { RUNNING, STOPPING, KILLED } phase_t;

typedef struct {
    const bench_launch_t *launch;
    bench_output_t *output;
    struct pollfd *fds;
    sigset_t old_mask;
    int signal_fd;
    char job_id[BENCH_JOB_ID_BYTES];
    pid_t pid[BENCH_LAUNCH_MAX_RANKS]; /* also the number of the rank's process group; reaped only at the end, so that
                                          it stays ours */
    bool ended[BENCH_LAUNCH_MAX_RANKS];
    int32_t started, alive;
    int result; /* exit code, from the first failure on */
    bool failed;
    int passed; /* signal that was passed on to the ranks; 0: none */
    phase_t phase;
    uint64_t start_ns, kill_ns;
    int looks; /* since the ranks were told to stop */
    /* A terminal on stdin is relayed: ranks are in groups of their own, where reading it would stop them. */
    int relay_fd; /* -1: no relay, or over */
    size_t relay_used;
    char relay[STDIN_BYTES];
} supervisor_t;

/* ---------------------------------------------------------------- starting */

static void child_exec(const supervisor_t *s, const int fds[3], int report_fd, pid_t parent, char **env) {
    const bench_launch_t *launch = s->launch;
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(BENCH_EXIT_LAUNCHER);
    signal(SIGPIPE, SIG_DFL);
    int error = 0;
    for (int i = 0; i < 3 && !error; i++)
        if (fds[i] >= 0 && dup2(fds[i], i) < 0) error = errno;
    if (!error) {
        sigprocmask(SIG_SETMASK, &s->old_mask, NULL);

        execvpe(launch->program, launch->argv, env);
        error = errno;
    }
    ssize_t ignored = write(report_fd, &error, sizeof error);
    (void)ignored;
    _exit(BENCH_EXIT_LAUNCHER);
}

/** Pipe whose ends are never 0, 1 or 2, so that the child's dup2 cannot overwrite one it still needs. Returns 0, or
 * errno. */
static int make_pipe(int ends_p[2]) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) return errno;
    for (int i = 0; i < 2; i++) {
        int high = fcntl(ends[i], F_DUPFD_CLOEXEC, 3);
        int error = errno;
        close(ends[i]);
        if (high < 0) {
            close(ends[1 - i]);
            return error;
        }
        ends[i] = high;
    }
    memcpy(ends_p, ends, sizeof ends);
    return 0;
}

static void close_pair(int pair[2]) {
    for (int i = 0; i < 2; i++)
        if (pair[i] >= 0) close(pair[i]);
    pair[0] = pair[1] = -1;
}

static int fail_start(supervisor_t *s, int code, const char *what, int error) {
    bench_output_say(s->output, "%s: %s: %s", s->launch->tool, what, strerror(error));
    s->result = code;
    s->failed = true;
    return -1;
}

/** Start one rank and wait until its exec has worked. Returns 0, or -1 with the reason said and the result set. */
static int start_rank(supervisor_t *s, int32_t rank) {
    const bench_launch_t *launch = s->launch;
    int report[2] = {-1, -1}, pipes[3][2] = {{-1, -1}, {-1, -1}, {-1, -1}}, fds[3] = {-1, -1, -1};
    int result = -1, null_fd = -1, error = 0;
    char **env = bench_rank_env_new(rank, launch->ranks, s->job_id);
    if (!env) {
        fail_start(s, BENCH_EXIT_LAUNCHER, "environment of a rank", ENOMEM);
        goto out;
    }
    bool relay = launch->share_stdin && rank == 0 && isatty(STDIN_FILENO);
    error = make_pipe(report);
    for (int i = launch->prefix ? 1 : 3; i < 3 && !error; i++) error = make_pipe(pipes[i]);
    if (relay && !error) error = make_pipe(pipes[0]);
    if (!error && !relay && !(launch->share_stdin && rank == 0)) {
        null_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
        if (null_fd < 0) error = errno;
    }
    if (error) {
        fail_start(s, BENCH_EXIT_LAUNCHER, "pipes of a rank", error);
        goto out;
    }
    fds[0] = relay ? pipes[0][0] : null_fd;
    fds[1] = pipes[1][1];
    fds[2] = pipes[2][1];

    pid_t parent = getpid(), pid = fork();
    if (pid < 0) {
        fail_start(s, BENCH_EXIT_LAUNCHER, "fork", errno);
        goto out;
    }
    if (pid == 0) child_exec(s, fds, report[1], parent, env);
    setpgid(pid, pid); /* also done by the child; whichever comes first. Fails harmlessly after its exec. */
    s->pid[rank] = pid;
    s->started++;
    s->alive++;
    close(report[1]);
    report[1] = -1;
    ssize_t got;
    do got = read(report[0], &error, sizeof error);
    while (got < 0 && errno == EINTR);
    if (got == (ssize_t)sizeof error) {
        fail_start(s, error == ENOENT ? BENCH_EXIT_NOT_FOUND : BENCH_EXIT_CANNOT_RUN, launch->program, error);
        goto out;
    }
    for (int i = 1; i < 3 && launch->prefix; i++) {
        int fd = pipes[i][0];
        pipes[i][0] = -1;
        if (!bench_output_add(s->output, rank, i, fd)) {
            fail_start(s, BENCH_EXIT_LAUNCHER, "output of a rank", ENOMEM);
            goto out;
        }
    }
    if (relay) {
        s->relay_fd = pipes[0][1];
        pipes[0][1] = -1;
        fcntl(s->relay_fd, F_SETFL, O_NONBLOCK);
    }
    result = 0;
out:
    bench_rank_env_free(env);
    close_pair(report);
    for (int i = 0; i < 3; i++) close_pair(pipes[i]);
    if (null_fd >= 0) close(null_fd);
    return result;
}

/* ---------------------------------------------------------------- ending */

static void signal_groups(supervisor_t *s, int signal) {
    for (int32_t rank = 0; rank < s->started; rank++) kill(-s->pid[rank], signal);
}

/** SIGTERM now, SIGKILL after the grace period. */
static void stop(supervisor_t *s, int signal) {
    if (s->phase != RUNNING) return;
    s->phase = STOPPING;
    s->kill_ns = tpc_clock_ns() + BENCH_LAUNCH_GRACE_MS * UINT64_C(1000000);
    s->looks = 0;
    signal_groups(s, signal);
    signal_groups(s, SIGCONT); /* a stopped process would not see it */
}

static void pass_signal(supervisor_t *s, int signal) {
    if (s->phase != RUNNING) return;
    s->passed = signal;
    stop(s, signal);
}

static void say_failure(supervisor_t *s, int32_t rank, const siginfo_t *info) {
    const char *tool = s->launch->tool;
    char rest[48] = "";
    if (s->alive > 0) snprintf(rest, sizeof rest, "; stopping the other %d", s->alive);
    if (info->si_code == CLD_EXITED) {
        bench_output_say(s->output, "%s: rank %d (pid %d) ended with exit code %d%s", tool, rank, (int)info->si_pid,
                         info->si_status, rest);
    } else {
        bench_output_say(s->output, "%s: rank %d (pid %d) was killed by signal %d (%s)%s%s", tool, rank,
                         (int)info->si_pid, info->si_status, strsignal(info->si_status),
                         info->si_code == CLD_DUMPED ? ", core dumped" : "", rest);
    }
}

/** See which ranks have ended. Of failures seen together a signal counts first: the exit codes are likelier to follow
 * from it. */
static void look_for_ends(supervisor_t *s) {
    siginfo_t worst;
    int32_t worst_rank = -1;
    for (int32_t rank = 0; rank < s->started; rank++) {
        siginfo_t info = {.si_pid = 0};
        if (s->ended[rank]) continue;
        if (waitid(P_PID, (id_t)s->pid[rank], &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0) continue;
        s->ended[rank] = true;
        s->alive--;
        bool bad = info.si_code != CLD_EXITED || info.si_status != 0;
        bool worse = worst_rank < 0 || (info.si_code != CLD_EXITED && worst.si_code == CLD_EXITED);
        if (!bad || !worse) continue;
        worst = info;
        worst_rank = rank;
    }
    if (worst_rank < 0 || s->failed) return;
    s->failed = true;
    s->result = worst.si_code == CLD_EXITED ? worst.si_status : 128 + worst.si_status;
    if (!s->passed) say_failure(s, worst_rank, &worst);
    stop(s, SIGTERM);
}

static void list_alive(const supervisor_t *s, char *text_p, size_t bytes) {
    size_t used = 0;
    text_p[0] = '\0';
    for (int32_t rank = 0; rank < s->started && used + 8 < bytes; rank++) {
        if (s->ended[rank]) continue;
        int wrote = snprintf(text_p + used, bytes - used, "%s%d", used ? ", " : "", rank);
        if (wrote > 0) used += (size_t)wrote;
    }
}

static void check_clocks(supervisor_t *s) {
    const bench_launch_t *launch = s->launch;
    uint64_t now = tpc_clock_ns();
    char ranks[256];
    if (s->alive == 0) return;
    if (launch->timeout_s && s->phase == RUNNING && now - s->start_ns >= launch->timeout_s * UINT64_C(1000000000)) {
        list_alive(s, ranks, sizeof ranks);
        bench_output_say(s->output, "%s: still running after %u s: rank %s; stopping", launch->tool, launch->timeout_s,
                         ranks);
        s->failed = true;
        s->result = BENCH_EXIT_TIMEOUT;
        stop(s, SIGTERM);
    }
    if (s->phase == STOPPING && ++s->looks > BENCH_LAUNCH_GRACE_MS / TICK_MS && now >= s->kill_ns) {
        list_alive(s, ranks, sizeof ranks);
        bench_output_say(s->output, "%s: did not end within %d ms: rank %s; killed", launch->tool,
                         BENCH_LAUNCH_GRACE_MS, ranks);
        if (s->passed && !s->failed) {
            s->failed = true;
            s->result = 128 + s->passed;
        }
        s->phase = KILLED;
        signal_groups(s, SIGKILL);
    }
}

/* ---------------------------------------------------------------- the loop */

static void read_signals(supervisor_t *s) {
    struct signalfd_siginfo info;
    while (read(s->signal_fd, &info, sizeof info) == (ssize_t)sizeof info)
        if (info.ssi_signo != SIGCHLD) pass_signal(s, (int)info.ssi_signo);
}

/** Whether the terminal on stdin may be read now: not from the background, where that would stop us. */
static bool may_relay(const supervisor_t *s) {
    return s->relay_fd >= 0 && s->relay_used == 0 && tcgetpgrp(STDIN_FILENO) == getpgrp();
}

static void relay_close(supervisor_t *s) {
    if (s->relay_fd >= 0) close(s->relay_fd);
    s->relay_fd = -1;
    s->relay_used = 0;
}

static void relay_read(supervisor_t *s) {
    ssize_t got = read(STDIN_FILENO, s->relay, sizeof s->relay);
    if (got > 0)
        s->relay_used = (size_t)got;
    else if (got == 0 || (errno != EINTR && errno != EAGAIN))
        relay_close(s);
}

static void relay_write(supervisor_t *s) {
    ssize_t wrote = write(s->relay_fd, s->relay, s->relay_used);
    if (wrote < 0 && (errno == EINTR || errno == EAGAIN)) return;
    if (wrote < 0) {
        relay_close(s);
        return;
    }
    s->relay_used -= (size_t)wrote;
    memmove(s->relay, s->relay + wrote, s->relay_used);
}

/** One turn: wait for a signal, output or a tick, and deal with it. */
static void turn(supervisor_t *s) {
    enum { SIGNALS, STDIN, RELAY, OUTPUT };
    bool reads_stdin = may_relay(s), writes_relay = s->relay_fd >= 0 && s->relay_used > 0;
    s->fds[SIGNALS] = (struct pollfd){.fd = s->signal_fd, .events = POLLIN};
    s->fds[STDIN] = (struct pollfd){.fd = reads_stdin ? STDIN_FILENO : -1, .events = POLLIN};
    s->fds[RELAY] = (struct pollfd){.fd = writes_relay ? s->relay_fd : -1, .events = POLLOUT};
    size_t count = bench_output_poll_set(s->output, s->fds + OUTPUT);
    /* Only deadlines need a tick; without one the launcher sleeps until something happens. */
    bool ticks = s->phase == STOPPING || s->launch->timeout_s || s->relay_fd >= 0 || s->alive == 0;
    if (poll(s->fds, (nfds_t)(OUTPUT + count), ticks ? TICK_MS : -1) < 0) return;
    if (s->fds[STDIN].revents) relay_read(s);
    if (s->fds[RELAY].revents) relay_write(s);
    bench_output_serve(s->output, s->fds + OUTPUT, count);
    read_signals(s);
}

/** End what the ranks left behind, then reap all. */
static void clear_tree(supervisor_t *s) {
    int looks = 0;
    uint64_t kill_ns = s->phase == KILLED ? 0 : tpc_clock_ns() + BENCH_LAUNCH_GRACE_MS * UINT64_C(1000000);
    int living = bench_tree_signal(s->pid, s->started, kill_ns ? SIGTERM : SIGKILL);
    if (living > 0 && !s->failed && !s->passed)
        bench_output_say(s->output, "%s: ending %d process%s that the ranks left behind", s->launch->tool, living,
                         living > 1 ? "es" : "");
    while (living > 0) {
        turn(s);
        bool over = ++looks > BENCH_LAUNCH_GRACE_MS / TICK_MS && tpc_clock_ns() >= kill_ns;
        living = bench_tree_signal(s->pid, s->started, over || kill_ns == 0 ? SIGKILL : 0);
    }
    while (waitpid(-1, NULL, WNOHANG) > 0) {
    }
}

/** What the ranks have written is in the pipes, however late this process gets to them, and however slow its reader is;
 * given up is a pipe whose end somebody still holds, when nothing comes for a while, or more than pipes hold. A signal
 * ends the wait. */
static void drain_output(supervisor_t *s) {
    uint64_t moved = bench_output_moved(s->output), quiet_ns = tpc_clock_ns();
    uint64_t most = moved + 2 * (uint64_t)s->launch->ranks * PIPE_MOST_BYTES;
    int looks = 0;
    s->phase = RUNNING;
    s->started = 0;
    while (bench_output_is_reading(s->output) && s->phase == RUNNING && moved <= most) {
        turn(s);
        uint64_t now = tpc_clock_ns();
        looks++;
        if (bench_output_moved(s->output) != moved || bench_output_is_full(s->output)) {
            moved = bench_output_moved(s->output);
            quiet_ns = now;
            looks = 0;
        }
        if (looks >= LAST_OUTPUT_MS / TICK_MS && now - quiet_ns >= LAST_OUTPUT_MS * UINT64_C(1000000)) break;
    }
    bench_output_close(s->output);
    /* What is left waits for its reader as long as that is there. */
    while (!bench_output_is_empty(s->output) && s->phase == RUNNING) turn(s);
}

static int supervise(supervisor_t *s) {
    const bench_launch_t *launch = s->launch;
    s->start_ns = tpc_clock_ns();
    for (int32_t rank = 0; rank < launch->ranks; rank++)
        if (start_rank(s, rank) != 0) break;
    if (s->failed) stop(s, SIGTERM);
    look_for_ends(s);
    while (s->alive > 0) {
        turn(s);
        look_for_ends(s);
        check_clocks(s);
    }
    relay_close(s);
    clear_tree(s);
    drain_output(s);
    return s->result;
}

/** The supervisor process; never returns. */
static void supervisor_main(const void *arg, const sigset_t *old_mask, const sigset_t *mask) {
    const bench_launch_t *launch = arg;
    static supervisor_t s;
    int result = BENCH_EXIT_LAUNCHER;
    s = (supervisor_t){.launch = launch, .old_mask = *old_mask, .signal_fd = -1, .relay_fd = -1};
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    signal(SIGPIPE, SIG_IGN);
    int error = bench_job_id_make(s.job_id);
    if (error) {
        fprintf(stderr, "%s: no random bytes for a job id: %s\n", launch->tool, strerror(error));
        _exit(result);
    }
    s.signal_fd = signalfd(-1, mask, SFD_CLOEXEC | SFD_NONBLOCK);
    s.output = bench_output_new(launch->ranks);
    s.fds = calloc(2 * (size_t)launch->ranks + 8, sizeof *s.fds);
    if (s.signal_fd < 0 || !s.output || !s.fds)
        fprintf(stderr, "%s: cannot set up: %s\n", launch->tool, strerror(errno));
    else
        result = supervise(&s);
    bench_output_free(s.output);
    free(s.fds);
    if (s.signal_fd >= 0) close(s.signal_fd);
    _exit(result);
}

/** The process the user knows: pass signals on until its child has ended. */
static int wait_for_child(pid_t child, const sigset_t *mask) {
    for (;;) {
        int status;
        pid_t pid = waitpid(child, &status, WNOHANG);
        if (pid == child) return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
        if (pid < 0 && errno != EINTR) return BENCH_EXIT_LAUNCHER;
        siginfo_t info;
        int signal = sigwaitinfo(mask, &info);
        /* A terminal's signal went to the whole process group: the child has had it. */
        if (signal > 0 && signal != SIGCHLD && info.si_code != SI_KERNEL) kill(child, signal);
    }
}

int bench_launch_child(const char *tool, bench_child_fn child, const void *arg) {
    sigset_t mask, old_mask;
    sigemptyset(&mask);
    sigaddset(&mask, SIGCHLD);
    for (size_t i = 0; i < sizeof passed_signals / sizeof passed_signals[0]; i++) sigaddset(&mask, passed_signals[i]);
    fflush(NULL);
    struct sigaction old_child, default_child = {.sa_handler = SIG_DFL};
    sigaction(SIGCHLD, &default_child, &old_child); /* were it ignored, no exit code would reach us */
    sigprocmask(SIG_BLOCK, &mask, &old_mask);
    pid_t parent = getpid(), pid = fork();
    int result = BENCH_EXIT_LAUNCHER;
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGTERM);
        if (getppid() == parent) child(arg, &old_mask, &mask);
        _exit(result);
    }
    if (pid < 0)
        fprintf(stderr, "%s: fork: %s\n", tool, strerror(errno));
    else
        result = wait_for_child(pid, &mask);
    sigprocmask(SIG_SETMASK, &old_mask, NULL);
    sigaction(SIGCHLD, &old_child, NULL);
    return result;
}

int bench_launch(const bench_launch_t *launch) {
    return bench_launch_child(launch->tool, supervisor_main, launch);
}
