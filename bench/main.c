/* SPDX-License-Identifier: Apache-2.0 */
/** tpcomm-bench: one program, a subcommand a file; the table below is the only place that names them. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "bench.h"
#include "number.h"

typedef struct {
    const char *name, *help;
    int (*main)(int argc, char **argv);
} command_t;

/* clang-format off */
static const command_t commands[] = {
    {"trace", "turn a serving trace into a histogram of tokens per iteration", bench_trace_main},
    {"replay", "run the AllReduces of real decode traffic: what they cost, which path, why", bench_replay_main},
    {"sweep", "one collective over a range of sizes, in nccl-tests' habits", bench_sweep_main},
    {"pairs", "latency and bandwidth of every pair of ranks", bench_pairs_main},
    {"host", "what a call takes of the calling thread", bench_host_main},
    {"tune", "measure each path and write a tuning file", bench_tune_main},
    {"soak", "random calls for a long time: exact, and nothing grows", bench_soak_main},
    {"run", "start the ranks of a program on this host", bench_run_main},
    {"top", "watch a running job by its ranks' status sockets", bench_top_main},
};
/* clang-format on */

#define COMMAND_COUNT (sizeof commands / sizeof commands[0])

static void print_help(FILE *file) {
    fputs("Usage: tpcomm-bench COMMAND [options]\n\nCommands:\n", file);
    for (size_t i = 0; i < COMMAND_COUNT; i++) fprintf(file, "  %-8s %s\n", commands[i].name, commands[i].help);
    fputs("\n  --help, -h     print this; tpcomm-bench COMMAND --help prints a command's options\n"
          "  --version      print the version\n\n"
          "Exit code: 0 ok, 1 a result was wrong, 2 usage or input, 3 the communicator failed, 77 nothing to run\n",
          file);
}

static const char *command_name(const void *arg, size_t i) {
    (void)arg;
    return i < COMMAND_COUNT ? commands[i].name : NULL;
}

static int run_command(int argc, char **argv) {
    if (argc < 2) {
        print_help(stderr);
        return BENCH_EXIT_USAGE;
    }
    const char *name = argv[1];
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0) {
        print_help(stdout);
        return BENCH_EXIT_OK;
    }
    if (strcmp(name, "--version") == 0) {
        int32_t version = tpcomm_version();
        printf("tpcomm-bench %d.%d.%d\n", version / 10000, version / 100 % 100, version % 100);
        return BENCH_EXIT_OK;
    }
    for (size_t i = 0; i < COMMAND_COUNT; i++) {
        if (strcmp(commands[i].name, name) == 0) return commands[i].main(argc - 1, argv + 1);
    }
    const char *nearest = bench_nearest(name, command_name, NULL);
    fprintf(stderr, "tpcomm-bench: unknown command \"%s\"%s%s; --help lists all\n", name,
            nearest ? ", the nearest is " : "", nearest ? nearest : "");
    return BENCH_EXIT_USAGE;
}

int main(int argc, char **argv) {
    int code = run_command(argc, argv);
    /* What was printed is the result: a full disk or a closed pipe must not pass for success. */
    if ((fflush(stdout) != 0 || ferror(stdout)) && code == BENCH_EXIT_OK) {
        fprintf(stderr, "tpcomm-bench: cannot write to standard output: %s\n", strerror(errno));
        code = BENCH_EXIT_USAGE;
    }
    return code;
}
