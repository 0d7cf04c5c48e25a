/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The warm-up: the smallest, the middle and the greatest message, a few times each. First calls touch memory and caches
 * for the first time and are never among the samples. What the calls took here also says how many iterations fit a
 * budget.
 */
#include <stdlib.h>

#include "bench.h"
#include "replay_run.h"
#include "stats_math.h"

enum { FEWEST_CALLS = 3, FEWEST_ITERATIONS = 8, MOST_ITERATIONS = 100000 };

static int compare(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/** Median of all samples but the first, which is the one that a warm-up is there for. */
static uint64_t median(uint64_t *samples, uint64_t count) {
    if (count == 1) return samples[0];
    qsort(samples + 1, (size_t)count - 1, sizeof *samples, compare);
    return samples[1 + (count - 1) / 2];
}

/** One call from before it to when its result is there. */
static tpcomm_status_t timed_call(bench_run_t *run, uint32_t tokens, uint64_t i, uint64_t *ns_p) {
    uint64_t start_ns = tpc_clock_ns();
    tpcomm_status_t status = bench_run_call_number(run, tokens, i, 0, run->replay->path);
    if (status == TPCOMM_OK) status = bench_run_sync(run);
    *ns_p = tpc_clock_ns() - start_ns;
    return status;
}

/** On a GPU a call to its end is mostly the launch; how long one of many takes. */
static tpcomm_status_t time_of_many(bench_run_t *run, uint32_t tokens, uint64_t calls, uint64_t *ns_p) {
    bench_gpu_t *gpu = run->device->gpu;
    double us = 0;
    tpcomm_status_t status = bench_run_settle(run);
    if (status == TPCOMM_OK) status = bench_gpu_mark(gpu, 0);
    for (uint64_t i = 0; i < calls && status == TPCOMM_OK; i++)
        status = bench_run_call_number(run, tokens, i, 0, run->replay->path);
    if (status == TPCOMM_OK) status = bench_gpu_mark(gpu, 1);
    if (status == TPCOMM_OK) status = bench_run_sync(run);
    if (status == TPCOMM_OK) status = bench_gpu_between(gpu, 0, 1, &us);
    *ns_p = (uint64_t)(us * 1000 / (double)calls);
    return status;
}

static tpcomm_status_t warm_size(bench_run_t *run, uint32_t tokens, uint64_t *samples) {
    const bench_replay_t *replay = run->replay;
    bench_warmup_t *warmup = &run->result->warmup[run->result->warmup_count];
    uint64_t calls = 0, wrong = 0, start_ns = tpc_clock_ns(), limit_ns = (uint64_t)(replay->budget_s * 1e9 / 10);
    uint64_t poison_ns = tpc_clock_ns();
    tpcomm_status_t status = bench_run_poison(run, tokens, replay->warmup_calls);
    if (status == TPCOMM_OK) status = bench_run_settle(run);
    if (status != TPCOMM_OK) return status;
    poison_ns = tpc_clock_ns() - poison_ns;
    for (uint64_t over = 0; calls < replay->warmup_calls && !over; calls++) {
        if ((status = timed_call(run, tokens, calls, &samples[calls])) != TPCOMM_OK) return status;
        over = run->rank == 0 && calls + 1 >= FEWEST_CALLS && tpc_clock_ns() - start_ns > limit_ns;
        if ((status = bench_run_reduce(run, &over, 1, TPCOMM_MAX)) != TPCOMM_OK) return status;
    }
    uint64_t check_ns = tpc_clock_ns();
    status = bench_run_check(run, tokens, calls, bench_run_is_exact(run, tokens, replay->path), "warm-up", &wrong);
    if (status != TPCOMM_OK) return status;
    check_ns = tpc_clock_ns() - check_ns;
    uint64_t facts[3] = {samples[0], median(samples, calls), poison_ns + check_ns};
    if (run->device->gpu && (status = time_of_many(run, tokens, calls, &facts[1])) != TPCOMM_OK) return status;
    if ((status = bench_run_reduce(run, facts, 3, TPCOMM_MAX)) != TPCOMM_OK) return status;
    *warmup = (bench_warmup_t){tokens, calls, facts[0], facts[1], facts[2]};
    run->result->warmup_count++;
    return TPCOMM_OK;
}

tpcomm_status_t bench_run_warmup(bench_run_t *run, const uint32_t tokens[BENCH_WARMUP_SIZES]) {
    uint64_t *samples = malloc((size_t)run->replay->warmup_calls * sizeof *samples);
    tpcomm_status_t status = TPCOMM_OK;
    if (!samples) return tpc_error(TPCOMM_ERR_NO_MEMORY, "no memory for the times of the warm-up");
    for (size_t i = 0; i < BENCH_WARMUP_SIZES && status == TPCOMM_OK; i++)
        if (i == 0 || tokens[i] != tokens[i - 1]) status = warm_size(run, tokens[i], samples);
    free(samples);
    return status;
}

/** Straight lines between the sizes that were run; flat below the smallest, in proportion above the greatest. */
static double interpolate(const bench_run_t *run, double tokens, double (*value)(const bench_warmup_t *)) {
    const bench_warmup_t *points = run->result->warmup;
    size_t count = run->result->warmup_count;
    if (tokens <= points[0].tokens) return value(&points[0]);
    for (size_t i = 1; i < count; i++) {
        if (tokens > points[i].tokens) continue;
        double width = (double)points[i].tokens - points[i - 1].tokens, at = (tokens - points[i - 1].tokens) / width;
        return value(&points[i - 1]) * (1 - at) + value(&points[i]) * at;
    }
    return value(&points[count - 1]) * tokens / points[count - 1].tokens;
}

static double call_ns(const bench_warmup_t *warmup) {
    return (double)warmup->median_ns;
}

static double check_ns(const bench_warmup_t *warmup) {
    return (double)warmup->check_ns;
}

double bench_run_expected_ns(const bench_run_t *run, uint32_t tokens) {
    const bench_replay_t *replay = run->replay;
    double calls = (double)replay->calls;
    double ns =
        calls * (interpolate(run, tokens, call_ns) + 1000 * replay->gap_us) + interpolate(run, tokens, check_ns);
    if (replay->lump && bench_replay_lump_bytes(replay, tokens) > 0)
        ns += 2 * interpolate(run, calls * tokens, call_ns);
    return ns;
}

static double expected_ns(const void *arg, uint32_t tokens) {
    return bench_run_expected_ns(arg, tokens);
}

bool bench_run_is_over_budget(const bench_run_t *run, double more_ns) {
    if (run->replay->iterations != 0 || run->result->done == 0) return false;
    double elapsed_ns = (double)(tpc_clock_ns() - run->start_ns);
    return elapsed_ns + more_ns > 1.5e9 * run->replay->budget_s;
}

tpcomm_status_t bench_run_plan_length(bench_run_t *run, uint64_t *iterations_p) {
    const bench_replay_t *replay = run->replay;
    uint64_t most = BENCH_REPLAY_CALLS_MAX / replay->calls, iterations = replay->iterations;
    if (most > MOST_ITERATIONS) most = MOST_ITERATIONS;
    if (iterations == 0) {
        double mean_ns = bench_plan_mean_cost(&replay->histogram, replay->phase, &replay->padding, expected_ns, run);
        double fit = mean_ns > 0 ? replay->budget_s * 1e9 / mean_ns : (double)most;
        iterations = fit >= (double)most ? most : (uint64_t)fit;
        if (iterations < FEWEST_ITERATIONS) iterations = FEWEST_ITERATIONS;
    }
    tpcomm_status_t status = bench_run_reduce(run, &iterations, 1, TPCOMM_MIN);
    if (status == TPCOMM_OK) *iterations_p = iterations;
    return status;
}
