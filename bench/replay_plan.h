/* SPDX-License-Identifier: Apache-2.0 */
/** Which iterations a replay runs: drawn from a histogram, padded as an engine pads. Equal on every rank for equal
 * settings. */
#ifndef BENCH_REPLAY_PLAN_H
#define BENCH_REPLAY_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "histogram.h"
#include "tpcomm.h"

typedef enum { BENCH_PHASE_ALL, BENCH_PHASE_DECODE, BENCH_PHASE_MIXED } bench_phase_t;

#define BENCH_PADDING_MAX 1024

/** Sizes that an engine has captured graphs for: T is rounded up to the next of them; above the last it stays as it is.
 */
typedef struct {
    uint32_t sizes[BENCH_PADDING_MAX]; /**< ascending */
    size_t count;                      /**< 0: no padding */
} bench_padding_t;

/**
 * "none", "vllm" (its default graph sizes: 1, 2, 4, then by 8 to 256, then by 16 to 512) or "8,16,64". Fails:
 * INVALID_ARG.
 */
tpcomm_status_t bench_padding_parse(const char *text, bench_padding_t *padding_p);
uint32_t bench_padding_apply(const bench_padding_t *padding, uint32_t tokens);

/** One iteration. */
typedef struct {
    uint32_t drawn;  /**< T of the histogram */
    uint32_t tokens; /**< T after padding */
    bool mixed;      /**< holds prompt tokens */
} bench_draw_t;

/** Iterations that a phase can draw from; 0: the histogram has none. */
uint64_t bench_plan_population(const bench_histogram_t *histogram, bench_phase_t phase);

/**
 * Draw iterations, systematically: every (population / iterations)-th of all iterations laid out by phase and T, from a
 * random start, then shuffled. Every iteration is as likely as its count says, as with independent draws, but few draws
 * already have the shape of the whole. The caller frees *draws_p. Fails: NO_MEMORY. The population must not be empty.
 */
tpcomm_status_t bench_plan_draw(const bench_histogram_t *histogram, bench_phase_t phase, const bench_padding_t *padding,
                                uint64_t seed, uint64_t iterations, bench_draw_t **draws_p);

/** Padded T of the smallest, the middle and the greatest iteration that may be drawn. */
void bench_plan_range(const bench_histogram_t *histogram, bench_phase_t phase, const bench_padding_t *padding,
                      uint32_t tokens_p[3]);

/** Mean of cost(arg, padded T) over the population. */
double bench_plan_mean_cost(const bench_histogram_t *histogram, bench_phase_t phase, const bench_padding_t *padding,
                            double (*cost)(const void *arg, uint32_t tokens), const void *arg);

#endif
