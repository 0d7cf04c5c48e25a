/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The engine between a serving trace and its AllReduces: continuous batching with chunked prefill, or with the prompts
 * worked on elsewhere (docs/trace.md has the model step by step). A model, not a measurement.
 */
#ifndef BENCH_BATCHING_H
#define BENCH_BATCHING_H

#include "histogram.h"
#include "trace_read.h"

/** Bounds of max_num_seqs and token_budget: the counts of the simulation are arrays of this length. */
#define BENCH_BATCHING_TOKENS_MAX 262144u
/** Bounds of iteration_ms and token_ms. */
#define BENCH_BATCHING_MS_MAX 3.6e6
/** Bounds of the time scale that a caller may set; a search stays inside SEARCH_MIN to SEARCH_MAX. */
#define BENCH_BATCHING_SCALE_MIN  1e-6
#define BENCH_BATCHING_SCALE_MAX  1e6
#define BENCH_BATCHING_SEARCH_MIN 1e-4
#define BENCH_BATCHING_SEARCH_MAX 1e4
/** A run of more iterations is given up: no trace of people's making needs so many. */
#define BENCH_BATCHING_ITERATIONS_MAX UINT64_C(10000000000)

/**
 * Replay the trace with its arrival times multiplied by scale. Sets params, scale, iterations, mean and bins of
 * *histogram_p; its source stays as it is, its bins must be empty. Fails: INVALID_ARG (params out of bounds, too many
 * iterations), NO_MEMORY.
 */
tpcomm_status_t bench_batching_run(const bench_trace_t *trace, const bench_params_t *params, double scale,
                                   bench_histogram_t *histogram_p);

/**
 * Find the scale at which the mean decode batch is within 1 % of target, by bisection. Where there is none, reached is
 * false and the histogram is that of the saturated run (smallest scale) if even that stays below, else of the run that
 * came nearest. Otherwise as bench_batching_run.
 */
tpcomm_status_t bench_batching_find(const bench_trace_t *trace, const bench_params_t *params, double target,
                                    bench_histogram_t *histogram_p);

#endif
