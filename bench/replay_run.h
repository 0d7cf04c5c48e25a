/* SPDX-License-Identifier: Apache-2.0 */
/** One rank in the middle of a replay: what warm-up and timed part share. */
#ifndef BENCH_REPLAY_RUN_H
#define BENCH_REPLAY_RUN_H

#include "replay.h"
#include "replay_buffers.h"

typedef struct {
    const bench_replay_t *replay;
    tpcomm_t *comm;
    bench_result_t *result;
    int32_t rank, ranks;
    int32_t stats_count; /**< paths that tpcomm_stats tells of */
    bench_data_t *data;
    bench_buffers_t buffers;
    uint64_t calls_begun; /**< of all_reduce on test data, from the warm-up on */
    uint64_t wrong_shown;
    uint64_t start_ns;       /**< when the timed part began */
    double expected_ns;      /**< what its iterations so far were expected to take */
    uint64_t checked, wrong; /**< elements, by this rank */
} bench_run_t;

/** Combine values of all ranks, in place: how the ranks agree and how samples come together. Never timed. */
tpcomm_status_t bench_run_reduce(bench_run_t *run, uint64_t *values, size_t count, tpcomm_op_t op);

/** One all_reduce of test data and how long this rank was in it. */
tpcomm_status_t bench_run_call(bench_run_t *run, const void *in, void *out, uint64_t elements, uint64_t tag,
                               uint64_t *ns_p);

/** Poison the outputs that calls of this size will write. */
void bench_run_poison(bench_run_t *run, uint32_t tokens, uint64_t calls);
/** Compare every element of every output that `calls` calls of this size wrote; adds to checked and wrong, returns the
 * wrong ones. */
uint64_t bench_run_check(bench_run_t *run, uint32_t tokens, uint64_t calls, const char *where);
/** The same for one output with test data `buffer`. */
uint64_t bench_run_check_one(bench_run_t *run, const void *out, uint32_t buffer, uint64_t elements, const char *where);

/** Run the sizes of the warm-up; fills result->warmup. */
tpcomm_status_t bench_run_warmup(bench_run_t *run, const uint32_t tokens[BENCH_WARMUP_SIZES]);
/** What an iteration of so many tokens is likely to take, by the warm-up. */
double bench_run_expected_ns(const bench_run_t *run, uint32_t tokens);
/** Whether a run that chose its own length would get far beyond its budget if it went on for so long. Only rank 0's
 * answer counts. */
bool bench_run_is_over_budget(const bench_run_t *run, double more_ns);
/** How many iterations to run: those asked for, or what fits the budget; equal on every rank. */
tpcomm_status_t bench_run_plan_length(bench_run_t *run, uint64_t *iterations_p);

#endif
