/* SPDX-License-Identifier: Apache-2.0 */
/** Percentiles and spread of measured times, and how many samples each needs before it means anything. */
#ifndef BENCH_STATS_MATH_H
#define BENCH_STATS_MATH_H

#include <stddef.h>
#include <stdint.h>

/** With fewer samples a percentile is not given: the 95th of 100 has five samples above it, the 99th of 1000 ten. */
#define BENCH_P50_MIN_SAMPLES 100u
#define BENCH_P95_MIN_SAMPLES 100u
#define BENCH_P99_MIN_SAMPLES 1000u

/** What n samples say; NaN: not known. In the samples' unit, cv_percent aside. */
typedef struct {
    uint64_t n;
    double mean, min, max; /**< NaN only for n == 0 */
    double p50, p95, p99;  /**< NaN below the numbers above */
    double
        cv_percent; /**< spread of the medians of ten consecutive tenths: standard deviation by mean; NaN for n < 100 */
} bench_summary_t;

/**
 * The smallest sample that at least permille / 1000 of all samples do not exceed (nearest rank). sorted ascending, n >
 * 0, permille 1 to 1000.
 */
double bench_percentile(const double *sorted, size_t n, uint32_t permille);

/** Summary of samples in the order in which they were taken; sorts them. */
bench_summary_t bench_summarise(double *samples, size_t n);

#endif
