/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Check that tune switches paths only where the gain is above noise, lasts and the curves cross; that the present
 * choice stays where it is as good; and that expected times follow the curve.
 */
#include <math.h>

#include "check.h"
#include "tune.h"

enum { A, B, C, PATHS };

static bench_tune_point_t point(uint64_t bytes, double a, double b, double c, double cv) {
    return (bench_tune_point_t){.bytes = bytes, .us = {a, b, c}, .cv_percent = {cv, cv, cv}};
}

static void crossing(void) {
    const bench_tune_point_t points[] = {point(1024, 10, 14, NAN, 1), point(2048, 12, 15, NAN, 1),
                                         point(4096, 20, 17, NAN, 1), point(8192, 36, 20, NAN, 1)};
    bench_tune_range_t ranges[4];
    CHECK_EQ(bench_tune_choose(points, 4, PATHS, SIZE_MAX, ranges), 2);
    CHECK_EQ(ranges[0].path, A);
    CHECK_EQ(ranges[0].bytes_min, 0);
    CHECK_EQ(ranges[0].bytes_max, 3071); /* 3 us behind at 2048, 3 ahead at 4096: they cross at 3072 */
    CHECK_EQ(ranges[1].path, B);
    CHECK_EQ(ranges[1].bytes_min, 3072);
    CHECK_EQ(ranges[1].bytes_max, UINT64_MAX);
    CHECK(isnan(ranges[0].gain_percent) && fabs(ranges[1].gain_percent - 15) < 1e-9);
}

static void noise(void) {
    bench_tune_range_t ranges[4];
    /* Ahead, but by less than 3 %, or by less than the spread, or not known how steady. */
    const bench_tune_point_t near[] = {point(1024, 10, 14, NAN, 1), point(2048, 20, 19.5, NAN, 1),
                                       point(4096, 40, 39, NAN, 1)};
    CHECK_EQ(bench_tune_choose(near, 3, PATHS, SIZE_MAX, ranges), 1);
    const bench_tune_point_t unsteady[] = {point(1024, 10, 14, NAN, 30), point(2048, 20, 16, NAN, 30)};
    CHECK_EQ(bench_tune_choose(unsteady, 2, PATHS, SIZE_MAX, ranges), 1);
    const bench_tune_point_t unknown[] = {point(1024, 10, 14, NAN, NAN), point(2048, 20, 18.5, NAN, NAN)};
    CHECK_EQ(bench_tune_choose(unknown, 2, PATHS, SIZE_MAX, ranges), 1);
    /* One size alone is an accident. */
    const bench_tune_point_t spike[] = {point(1024, 10, 14, NAN, 1), point(2048, 30, 15, NAN, 1),
                                        point(4096, 16, 17, NAN, 1)};
    CHECK_EQ(bench_tune_choose(spike, 3, PATHS, SIZE_MAX, ranges), 1);
    CHECK_EQ(ranges[0].path, A);
    /* Ahead within noise for a while: the switch is where the gain is sure. */
    const bench_tune_point_t slow[] = {point(1024, 10, 10.1, NAN, 1), point(2048, 12, 11.9, NAN, 1),
                                       point(4096, 20, 18, NAN, 1), point(8192, 40, 30, NAN, 1)};
    CHECK_EQ(bench_tune_choose(slow, 4, PATHS, SIZE_MAX, ranges), 2);
    CHECK_EQ(ranges[1].bytes_min, 4096);
}

static void preferred(void) {
    bench_tune_range_t ranges[2];
    const bench_tune_point_t even[] = {point(1024, 10, 10.2, 12, 1)};
    CHECK_EQ(bench_tune_choose(even, 1, PATHS, B, ranges), 1);
    CHECK_EQ(ranges[0].path, B);
    CHECK_EQ(bench_tune_choose(even, 1, PATHS, C, ranges), 1);
    CHECK_EQ(ranges[0].path, A); /* C is slower by more than noise */
}

static void missing(void) {
    bench_tune_range_t ranges[3];
    const bench_tune_point_t none[] = {point(1024, NAN, NAN, NAN, 1)};
    CHECK_EQ(bench_tune_choose(none, 1, PATHS, A, ranges), 0);
    CHECK_EQ(bench_tune_choose(none, 0, PATHS, A, ranges), 0);
    /* A path that ends: the next takes over right after the last size that it carried. */
    const bench_tune_point_t ends[] = {point(1024, 10, 14, NAN, 1), point(2048, NAN, 16, NAN, 1),
                                       point(4096, NAN, 20, NAN, 1)};
    CHECK_EQ(bench_tune_choose(ends, 3, PATHS, SIZE_MAX, ranges), 2);
    CHECK_EQ(ranges[0].bytes_max, 1024);
    CHECK_EQ(ranges[1].path, B);
    /* One that begins late and is faster at once. */
    const bench_tune_point_t begins[] = {point(1024, 10, NAN, NAN, 1), point(2048, 20, 10, NAN, 1),
                                         point(4096, 40, 12, NAN, 1)};
    CHECK_EQ(bench_tune_choose(begins, 3, PATHS, SIZE_MAX, ranges), 2);
    CHECK_EQ(ranges[1].bytes_min, 2048);
}

static void expected(void) {
    bench_tune_point_t points[6];
    bench_tune_range_t ranges[6];
    for (size_t i = 0; i < 6; i++) {
        uint64_t bytes = UINT64_C(65536) << i;
        points[i] = point(bytes, 2 + 100 * (double)bytes / 1048576, 1000, NAN, 1);
    }
    CHECK_EQ(bench_tune_choose(points, 6, PATHS, SIZE_MAX, ranges), 1);
    CHECK(fabs(ranges[0].base_us - 2) < 1e-6 && fabs(ranges[0].per_mib_us - 100) < 1e-6);
    const bench_tune_point_t flat[] = {point(1024, 10, NAN, NAN, 1), point(1 << 20, 9, NAN, NAN, 1)};
    CHECK_EQ(bench_tune_choose(flat, 2, PATHS, SIZE_MAX, ranges), 1);
    CHECK(ranges[0].per_mib_us == 0 && ranges[0].base_us > 9 && ranges[0].base_us < 10);
    const bench_tune_point_t steep[] = {point(1024, 1, NAN, NAN, 1), point(2048, 4, NAN, NAN, 1)};
    CHECK_EQ(bench_tune_choose(steep, 2, PATHS, SIZE_MAX, ranges), 1);
    CHECK(ranges[0].base_us == 0 && ranges[0].per_mib_us > 0);
}

int main(void) {
    crossing();
    noise();
    preferred();
    missing();
    expected();
    return 0;
}
