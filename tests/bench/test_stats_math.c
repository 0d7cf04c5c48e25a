/* SPDX-License-Identifier: Apache-2.0 */
/* Check that percentiles are nearest-rank, that each is given only from enough samples, and that one slow call moves
 * none of them. */
#include <math.h>

#include "check.h"
#include "stats_math.h"

static double samples[4000];

/** 1 to n in an order that is neither up nor down. */
static void fill(size_t n) {
    for (size_t i = 0; i < n; i++) samples[i] = (double)(i * 7919 % n + 1);
}

static void check_percentiles(void) {
    static const double sorted[] = {10, 20, 30, 40};
    CHECK_EQ(bench_percentile(sorted, 4, 500), 20); /* half of the samples are <= 20 */
    CHECK_EQ(bench_percentile(sorted, 4, 501), 30);
    CHECK_EQ(bench_percentile(sorted, 4, 750), 30);
    CHECK_EQ(bench_percentile(sorted, 4, 1), 10);
    CHECK_EQ(bench_percentile(sorted, 4, 1000), 40);
    CHECK_EQ(bench_percentile(sorted, 1, 500), 10);
    fill(2000);
    bench_summary_t s = bench_summarise(samples, 2000);
    CHECK_EQ(s.n, 2000);
    CHECK_EQ(s.min, 1);
    CHECK_EQ(s.max, 2000);
    CHECK_EQ(s.p50, 1000);
    CHECK_EQ(s.p95, 1900);
    CHECK_EQ(s.p99, 1980);
    CHECK(s.mean == 1000.5);
}

static void check_smallest_numbers(void) {
    fill(99);
    bench_summary_t s = bench_summarise(samples, 99);
    CHECK(isnan(s.p50) && isnan(s.p95) && isnan(s.p99) && isnan(s.cv_percent));
    CHECK_EQ(s.mean, 50);
    fill(100);
    s = bench_summarise(samples, 100);
    CHECK_EQ(s.p50, 50);
    CHECK_EQ(s.p95, 95);
    CHECK(isnan(s.p99));
    fill(999);
    CHECK(isnan(bench_summarise(samples, 999).p99));
    fill(1000);
    CHECK_EQ(bench_summarise(samples, 1000).p99, 990);
    s = bench_summarise(samples, 0);
    CHECK_EQ(s.n, 0);
    CHECK(isnan(s.mean) && isnan(s.min) && isnan(s.p50));
}

static void check_spread(void) {
    for (size_t i = 0; i < 1000; i++) samples[i] = 10;
    samples[500] = 200000; /* one call was slow */
    bench_summary_t s = bench_summarise(samples, 1000);
    CHECK_EQ(s.p50, 10);
    CHECK_EQ(s.p99, 10);
    CHECK(s.cv_percent == 0);
    for (size_t i = 0; i < 1000; i++) samples[i] = i < 500 ? 10 : 20; /* the machine changed its pace */
    s = bench_summarise(samples, 1000);
    /* Block medians are five tens and five twenties: mean 15, deviation sqrt(10 * 25 / 9). */
    CHECK(fabs(s.cv_percent - 100 * sqrt(250.0 / 9) / 15) < 1e-9);
}

int main(void) {
    check_percentiles();
    check_smallest_numbers();
    check_spread();
    return 0;
}
