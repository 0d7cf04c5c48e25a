/* SPDX-License-Identifier: Apache-2.0 */
/**
 * How the ranks of a measuring subcommand come about: those of a launcher where one started this process, else threads,
 * else processes that are copies of this one. And on which device each of them computes.
 */
#ifndef BENCH_RANKS_H
#define BENCH_RANKS_H

#include "device.h"
#include "options.h"
#include "tpcomm.h"

/** Whether this build's library has the CUDA device. */
#ifndef BENCH_CUDA
#define BENCH_CUDA 0
#endif

#define BENCH_DEVICE_WORDS "auto|cpu|cuda"
typedef enum { BENCH_DEVICE_AUTO, BENCH_DEVICE_CPU, BENCH_DEVICE_CUDA } bench_device_kind_t;

/** One rank's work: comm and device are its own; returns an exit code. Finalizes comm, but does not destroy it. */
typedef int (*bench_rank_fn)(void *arg, tpcomm_t *comm, bench_device_t *device);

typedef struct {
    const char *command; /**< "replay" */
    int argc;            /**< of the subcommand, for the copies */
    char **argv;
    int32_t ranks;
    bool ranks_given;        /**< --ranks stands on the command line */
    bool threads, processes; /**< as asked for; neither: processes, but threads where they would share a GPU */
    bench_device_kind_t device;
    const char *devices; /**< "0,1": rank r's GPU, again from the start where there are more ranks; NULL: one each */
    const char *tuning_file; /**< NULL: none but the environment's */
    bool nccl_log;           /**< keep NCCL's log (nccl_log.h) in the processes of ranks */
    bench_rank_fn fn;
    void *arg;
} bench_ranks_t;

/** The options of it that most subcommands have: a member of their settings. */
typedef struct {
    uint64_t ranks;
    bool threads, processes;
    int32_t device;
    const char *devices;
} bench_where_t;

#define BENCH_WHERE_OPTIONS(type, member, least)                                                                       \
    BENCH_U64("ranks", 0, type, member.ranks, "N", least, TPCOMM_MAX_RANKS,                                            \
              "ranks to start on this host; under a launcher, its number"),                                            \
        BENCH_FLAG("threads", type, member.threads, "the ranks are threads of this process"),                          \
        BENCH_FLAG("processes", type, member.processes,                                                                \
                   "the ranks are processes of their own; without either they are, but threads where they would "      \
                   "share a GPU"),                                                                                     \
        BENCH_WORD("device", type, member.device, BENCH_DEVICE_WORDS, "where the ranks compute"),                      \
        BENCH_TEXT("devices", false, type, member.devices, "LIST",                                                     \
                   "GPU of rank 0, 1, ...: 0,0 shares one; again from the start where there are more ranks")

bench_ranks_t bench_ranks_of(const char *command, int argc, char **argv, const bench_where_t *where, bench_rank_fn fn,
                             void *arg);

/** What can be refused without a communicator. Fails: UNSUPPORTED (a GPU with a build without), INVALID_ARG. */
tpcomm_status_t bench_ranks_check(const bench_ranks_t *ranks, bool graph);

/**
 * Ranks that a launcher says there are, and in which variable: two or more, or whatever our own variables say (-1: they
 * are incomplete); 0: nobody launched this process as one of several.
 */
int64_t bench_ranks_launched(const char **variable_p);

/** Run them all; the exit code is rank 0's, or that of the first other that failed. */
int bench_ranks_run(const bench_ranks_t *ranks);

/** A rank's work has failed: tell on stderr, and break comm for the others. Returns the exit code. */
int bench_rank_failed(const char *command, int32_t rank, tpcomm_t *comm, tpcomm_status_t status);

/** Whether the option --name stands on the command line. */
bool bench_is_given(int argc, char **argv, const char *name, char letter);

#endif
