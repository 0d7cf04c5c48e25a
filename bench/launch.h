/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Starts the ranks of one host and stays until they and all they started are gone. `run` shows it to the user; `replay`
 * starts copies of itself with it.
 */
#ifndef BENCH_LAUNCH_H
#define BENCH_LAUNCH_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

/** Most ranks that one launch starts. */
#define BENCH_LAUNCH_MAX_RANKS 256
/** How long a rank has after SIGTERM before SIGKILL. */
#define BENCH_LAUNCH_GRACE_MS 2000

enum {
    BENCH_EXIT_TIMEOUT = 124,    /**< the time limit passed, as timeout(1) */
    BENCH_EXIT_LAUNCHER = 125,   /**< the launcher itself failed */
    BENCH_EXIT_CANNOT_RUN = 126, /**< the program was found and cannot be run */
    BENCH_EXIT_NOT_FOUND = 127   /**< there is no such program */
};

typedef struct {
    const char *tool;   /**< starts every message: "tpcomm-bench run" */
    int32_t ranks;      /**< 1 to BENCH_LAUNCH_MAX_RANKS */
    uint32_t timeout_s; /**< end the ranks after so many seconds; 0: no limit */
    bool prefix;      /**< "[rank] " in front of every line; false: the ranks write straight to our stdout and stderr */
    bool share_stdin; /**< rank 0 gets our stdin; the others, and without it all, get /dev/null */
    const char *program; /**< looked for in PATH if it has no slash */
    char *const *argv;   /**< its arguments from argv[0] on, NULL-terminated */
} bench_launch_t;

/**
 * Run child in a process of its own, as long as this one lives, and wait for its end; SIGINT, SIGTERM, SIGHUP and
 * SIGQUIT that this process gets are passed on to it.
 * @param child  never returns; has the signals blocked: mask is what was blocked before, waiting what is in addition.
 * @return its exit code, 128 + signal for a signal; BENCH_EXIT_LAUNCHER, told on stderr, if it could not be started.
 */
typedef void (*bench_child_fn)(const void *arg, const sigset_t *mask, const sigset_t *waiting);
int bench_launch_child(const char *tool, bench_child_fn child, const void *arg);

/**
 * Start the ranks and wait for all. On the first that fails (exit code, signal) the others get SIGTERM, 2 s later
 * SIGKILL; so does whatever the ranks left behind. SIGINT, SIGTERM, SIGHUP and SIGQUIT are passed on to the ranks.
 * Nothing survives a launcher that is killed.
 * @return the exit code of the first rank that failed, 128 + signal for a signal, 0 if none did; or a BENCH_EXIT_*.
 */
int bench_launch(const bench_launch_t *launch);

#endif
