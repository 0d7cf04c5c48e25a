/* SPDX-License-Identifier: Apache-2.0 */
/** tpcomm-bench run: start the ranks of a program on this host. */
#include <stdio.h>

#include "bench.h"
#include "launch.h"
#include "options.h"

typedef struct {
    uint64_t ranks, timeout_s;
    bool no_prefix;
} settings_t;

static const bench_option_t options[] = {
    BENCH_U64("ranks", 'n', settings_t, ranks, "N", 1, BENCH_LAUNCH_MAX_RANKS, "how many ranks to start"),
    BENCH_U64("timeout-s", 0, settings_t, timeout_s, "S", 0, 31536000,
              "end the ranks after S seconds (exit code 124); 0: no limit"),
    BENCH_FLAG("no-prefix", settings_t, no_prefix,
               "let the ranks write straight to stdout and stderr, without \"[rank] \" in front of their lines"),
};

static const settings_t defaults = {.ranks = 2, .timeout_s = 0, .no_prefix = false};

static const bench_options_t table = {
    .command = "run",
    .rest = "PROGRAM [ARGUMENT ...]",
    .about = "Start N ranks of a program on this host. Each finds TPCOMM_RANK, TPCOMM_SIZE, TPCOMM_LOCAL_RANK,\n"
             "TPCOMM_LOCAL_SIZE and TPCOMM_JOB_ID in its environment, which tpcomm_init_env reads. Rank 0 gets\n"
             "standard input. When a rank fails, the others get SIGTERM and 2 s later SIGKILL, and so does whatever\n"
             "the ranks left behind. SIGINT, SIGTERM, SIGHUP and SIGQUIT are passed on to the ranks.\n"
             "Exit code: that of the first rank that failed (128 + signal for a signal), 0 if none did; 2 usage,\n"
             "124 time limit, 125 the launcher failed, 126 the program cannot be run, 127 there is no such program.",
    .options = options,
    .count = sizeof options / sizeof options[0],
    .defaults = &defaults,
    .settings_bytes = sizeof defaults,
};

int bench_run_main(int argc, char **argv) {
    settings_t settings;
    bench_options_rest_t rest;
    int code;
    if (!bench_options_read(&table, argc, argv, &settings, &rest, &code)) return code;
    if (rest.rest_count == 0)
        return bench_report("run",
                            tpc_error(TPCOMM_ERR_INVALID_ARG,
                                      "no program: write it after \"--\", as in: tpcomm-bench run -n 2 -- ./program"));
    return bench_launch(&(bench_launch_t){.tool = "tpcomm-bench run",
                                          .ranks = (int32_t)settings.ranks,
                                          .timeout_s = (uint32_t)settings.timeout_s,
                                          .prefix = !settings.no_prefix,
                                          .share_stdin = true,
                                          .program = rest.rest[0],
                                          .argv = rest.rest});
}
