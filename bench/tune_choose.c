/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "tune.h"

/** With too few samples for a spread, this is taken for it. */
static const double UNKNOWN_CV_PERCENT = 10;

static double cv_of(const bench_tune_point_t *point, size_t path) {
    return isnan(point->cv_percent[path]) ? UNKNOWN_CV_PERCENT : point->cv_percent[path];
}

static double noise_percent(const bench_tune_point_t *point, size_t a, size_t b) {
    return fmax(BENCH_TUNE_NOISE_PERCENT, fmax(cv_of(point, a), cv_of(point, b)));
}

/** The path with the least time; path_count: none was measured. */
static size_t fastest(const bench_tune_point_t *point, size_t path_count) {
    size_t best = path_count;
    for (size_t path = 0; path < path_count; path++)
        if (!isnan(point->us[path]) && (best == path_count || point->us[path] < point->us[best])) best = path;
    return best;
}

/** Whether path is faster than now by more than noise. */
static bool beats(const bench_tune_point_t *point, size_t path, size_t now) {
    double gain = 100 * (point->us[now] - point->us[path]) / point->us[now];
    return gain > noise_percent(point, now, path);
}

/** Where the straight lines between two sizes cross: the first byte count at which `next` is ahead. */
static uint64_t crossing(const bench_tune_point_t *before, const bench_tune_point_t *after, size_t now, size_t next) {
    double behind = before->us[next] - before->us[now], ahead = after->us[now] - after->us[next];
    /* Not crossed between them: it was ahead before, but not above noise. Or not measured there. */
    if (isnan(behind) || behind <= 0) return after->bytes;
    double at = (double)before->bytes + (double)(after->bytes - before->bytes) * behind / (behind + ahead);
    uint64_t bytes = (uint64_t)ceil(at);
    return bytes <= before->bytes ? before->bytes + 1 : bytes > after->bytes ? after->bytes : bytes;
}

/** Expected time by least squares of the relative error over the sizes of a range. */
static void fit(const bench_tune_point_t *points, size_t count, bench_tune_range_t *range) {
    double w = 0, wx = 0, wy = 0, wxx = 0, wxy = 0;
    size_t n = 0;
    for (size_t i = 0; i < count; i++) {
        double x = (double)points[i].bytes / 1048576, y = points[i].us[range->path];
        if (points[i].bytes < range->bytes_min || points[i].bytes > range->bytes_max || isnan(y) || y <= 0) continue;
        double weight = 1 / (y * y);
        n++;
        w += weight;
        wx += weight * x;
        wy += weight * y;
        wxx += weight * x * x;
        wxy += weight * x * y;
    }
    double determinant = w * wxx - wx * wx;
    range->base_us = n > 0 ? wy / w : 0;
    range->per_mib_us = 0;
    if (n < 2 || determinant <= 0) return;
    double slope = (w * wxy - wx * wy) / determinant, base = (wy - slope * wx) / w;
    if (slope < 0) return; /* flat */
    if (base < 0) {
        base = 0;
        slope = wxy / wxx;
    }
    range->base_us = base;
    range->per_mib_us = slope;
}

size_t bench_tune_choose(const bench_tune_point_t *points, size_t count, size_t path_count, size_t preferred,
                         bench_tune_range_t *ranges) {
    size_t used = 0;
    if (count == 0) return 0;
    size_t now = fastest(&points[0], path_count);
    if (now == path_count) return 0;
    if (preferred < path_count && !isnan(points[0].us[preferred]) && !beats(&points[0], now, preferred))
        now = preferred;
    bench_tune_range_t range = {.path = now, .gain_percent = NAN};
    for (size_t i = 1; i < count; i++) {
        size_t next = fastest(&points[i], path_count);
        if (next == path_count || next == now) continue;
        bool ended = isnan(points[i].us[now]); /* this path cannot carry the size */
        bool lasts = i + 1 == count || isnan(points[i + 1].us[now]) || points[i + 1].us[next] < points[i + 1].us[now];
        if (!ended && !(beats(&points[i], next, now) && lasts)) continue;
        uint64_t from = ended ? points[i - 1].bytes + 1 : crossing(&points[i - 1], &points[i], now, next);
        range.bytes_max = from - 1;
        ranges[used++] = range;
        double gain = ended ? NAN : 100 * (points[i].us[now] - points[i].us[next]) / points[i].us[now];
        range = (bench_tune_range_t){.bytes_min = from, .path = next, .gain_percent = gain};
        now = next;
    }
    range.bytes_max = UINT64_MAX;
    ranges[used++] = range;
    for (size_t r = 0; r < used; r++) fit(points, count, &ranges[r]);
    return used;
}
