/* SPDX-License-Identifier: Apache-2.0 */
#include "stats_math.h"

#include <math.h>
#include <stdlib.h>

enum { BLOCKS = 10 };

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double bench_percentile(const double *sorted, size_t n, uint32_t permille) {
    /* ceil(n * permille / 1000) - 1 without overflow: n is split at the thousands. */
    size_t index = n / 1000 * permille + (n % 1000 * permille + 999) / 1000;
    return sorted[index > 0 ? index - 1 : 0];
}

/** Medians of consecutive blocks: one slow call moves none of them, a machine that changes its pace moves them all. */
static double block_cv_percent(double *samples, size_t n) {
    double medians[BLOCKS], mean = 0, squares = 0;
    for (size_t i = 0; i < BLOCKS; i++) {
        size_t from = n / BLOCKS * i, count = n / BLOCKS;
        qsort(samples + from, count, sizeof *samples, compare);
        medians[i] = bench_percentile(samples + from, count, 500);
        mean += medians[i] / BLOCKS;
    }
    for (size_t i = 0; i < BLOCKS; i++) squares += (medians[i] - mean) * (medians[i] - mean);
    return mean > 0 ? 100 * sqrt(squares / (BLOCKS - 1)) / mean : NAN;
}

bench_summary_t bench_summarise(double *samples, size_t n) {
    bench_summary_t s = {n, NAN, NAN, NAN, NAN, NAN, NAN, NAN};
    double sum = 0;
    if (n == 0) return s;
    for (size_t i = 0; i < n; i++) sum += samples[i];
    if (n >= BENCH_P50_MIN_SAMPLES) s.cv_percent = block_cv_percent(samples, n);
    qsort(samples, n, sizeof *samples, compare);
    s.mean = sum / (double)n;
    s.min = samples[0];
    s.max = samples[n - 1];
    if (n >= BENCH_P50_MIN_SAMPLES) s.p50 = bench_percentile(samples, n, 500);
    if (n >= BENCH_P95_MIN_SAMPLES) s.p95 = bench_percentile(samples, n, 950);
    if (n >= BENCH_P99_MIN_SAMPLES) s.p99 = bench_percentile(samples, n, 990);
    return s;
}
