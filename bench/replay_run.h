/* SPDX-License-Identifier: Apache-2.0 */
/** One rank in the middle of a replay: what its parts share. */
#ifndef BENCH_REPLAY_RUN_H
#define BENCH_REPLAY_RUN_H

#include "replay.h"
#include "replay_buffers.h"

/** The calls of an iteration of one size as CUDA graphs. */
typedef struct {
    bench_graph_t *graph, *beside;
    uint64_t path_calls[TPC_PATH_END],
        wire_bytes; /**< of the graph's calls, by the library's counters while captured */
} bench_captured_t;

typedef struct {
    const bench_replay_t *replay;
    tpcomm_t *comm;
    bench_device_t *device;
    bench_result_t *result;
    int32_t rank, ranks;
    int32_t stats_count; /**< paths that tpcomm_stats tells of */
    bench_data_t *data;
    bench_buffers_t buffers;
    bench_captured_t *captured; /**< one a size; NULL: eager */
    uint64_t calls_begun;       /**< of all_reduce on test data, from the warm-up on */
    uint64_t wrong_shown;
    uint64_t start_ns;       /**< when the timed part began */
    double expected_ns;      /**< what its iterations so far were expected to take */
    uint64_t checked, wrong; /**< elements, by this rank */
} bench_run_t;

/* replay_call.c */

/** Combine values of all ranks, in place: how the ranks agree and how samples come together. Never timed. */
tpcomm_status_t bench_run_reduce(bench_run_t *run, uint64_t *values, size_t count, tpcomm_op_t op);
/** What the device has been given is done; a failure that a kernel left is the group's. */
tpcomm_status_t bench_run_sync(bench_run_t *run);
/** The same, and every rank is here: nobody's kernel waits. */
tpcomm_status_t bench_run_settle(bench_run_t *run);

/** The call that sends so many elements by a path, without its buffers. */
tpcomm_call_t bench_run_describe(const bench_replay_t *replay, uint64_t elements, tpcomm_path_t path);
/** One call on test data, to its end on the cpu device, enqueued on a GPU. residual NULL: an all_reduce. */
tpcomm_status_t bench_run_call(bench_run_t *run, const void *in, void *out, void *residual, uint64_t elements,
                               uint64_t tag, tpcomm_path_t path);
/** Whether the library's choice for messages of so many tokens, or path, gives the contract's bits. */
bool bench_run_is_exact(const bench_run_t *run, uint32_t tokens, tpcomm_path_t path);
/** Call number i of an iteration of messages of so many tokens. */
tpcomm_status_t bench_run_call_number(bench_run_t *run, uint32_t tokens, uint64_t i, uint64_t tag, tpcomm_path_t path);

/** Poison the outputs that calls of this size will write. */
tpcomm_status_t bench_run_poison(bench_run_t *run, uint32_t tokens, uint64_t calls);
/**
 * Compare every element of every output that `calls` calls of this size wrote; adds to checked and wrong, and the wrong
 * ones to *wrong_p. exact false: only the outputs whose sums no order of additions changes.
 */
tpcomm_status_t bench_run_check(bench_run_t *run, uint32_t tokens, uint64_t calls, bool exact, const char *where,
                                uint64_t *wrong_p);
/** The same for one output with test data `buffer`. */
tpcomm_status_t bench_run_check_one(bench_run_t *run, const void *out, uint32_t buffer, uint64_t elements,
                                    const char *where, uint64_t *wrong_p);

/* replay_warmup.c */

/** Run the sizes of the warm-up; fills result->warmup. */
tpcomm_status_t bench_run_warmup(bench_run_t *run, const uint32_t tokens[BENCH_WARMUP_SIZES]);
/** What an iteration of so many tokens is likely to take, by the warm-up. */
double bench_run_expected_ns(const bench_run_t *run, uint32_t tokens);
/** Whether a run that chose its own length would get far beyond its budget if it went on for so long. Only rank 0's
 * answer counts. */
bool bench_run_is_over_budget(const bench_run_t *run, double more_ns);
/** How many iterations to run: those asked for, or what fits the budget; equal on every rank. */
tpcomm_status_t bench_run_plan_length(bench_run_t *run, uint64_t *iterations_p);

/* replay_graph.c */

/** Capture an iteration of each size, by the library's choice and by the other path. Collective. */
tpcomm_status_t bench_run_capture(bench_run_t *run);
void bench_run_captured_free(bench_run_t *run);

/* replay_iterate.c */

/** Run the planned iterations. */
tpcomm_status_t bench_run_iterations(bench_run_t *run);

/** Where the library's counters stood at one moment. */
typedef struct {
    tpcomm_stats_t stats[TPC_PATH_END];
    uint64_t last[TPCOMM_MAX_RANKS];
} bench_counters_t;
tpcomm_status_t bench_run_counters(const bench_run_t *run, bench_counters_t *counters_p);

#endif
