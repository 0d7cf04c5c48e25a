/* SPDX-License-Identifier: Apache-2.0 */
/**
 * What the files of tpcomm-bench share: exit codes and the subcommands. Functions of the bench fail as the library's
 * do: they return a status and record its text once with tpc_error() (which comes with base/clock.h); the subcommand
 * prints it.
 */
#ifndef BENCH_BENCH_H
#define BENCH_BENCH_H

#include "base/clock.h"
#include "tpcomm.h"

/** What the program answers to its caller. */
enum {
    BENCH_EXIT_OK = 0,
    BENCH_EXIT_WRONG = 1,   /**< a result was wrong, or nothing was checked */
    BENCH_EXIT_USAGE = 2,   /**< an option or an input file is not what it should be, or the output cannot be written */
    BENCH_EXIT_COMM = 3,    /**< the communicator failed */
    BENCH_EXIT_NOTHING = 77 /**< nothing to run here */
};

/** The exit code that tells of a failure with this status. */
int bench_exit_code(tpcomm_status_t status);

/** Print "tpcomm-bench COMMAND: " and this thread's last error on stderr; returns bench_exit_code(status). */
int bench_report(const char *command, tpcomm_status_t status);

/**
 * The exit code of a run whose results are told and written with this status: wrong elements, or that none was checked,
 * come first. Says on stderr what there is to say.
 */
int bench_verdict(const char *command, tpcomm_status_t status, uint64_t wrong, uint64_t checked);

/* Subcommands: argv[0] is the subcommand's name. Each returns an exit code. main.c lists them. */
int bench_trace_main(int argc, char **argv);
int bench_run_main(int argc, char **argv);
int bench_replay_main(int argc, char **argv);
int bench_sweep_main(int argc, char **argv);
int bench_top_main(int argc, char **argv);
int bench_pairs_main(int argc, char **argv);
int bench_soak_main(int argc, char **argv);
int bench_tune_main(int argc, char **argv);
int bench_host_main(int argc, char **argv);

#endif
