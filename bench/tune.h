/* SPDX-License-Identifier: Apache-2.0 */
/**
 * What the files of `tpcomm-bench tune` share.
 *
 *   tune.c         options, and one rank's run over group sizes, modes and dtypes
 *   tune_curve.c   one curve of each path over message sizes, in the budget
 *   tune_choose.c  from the paths' curves to ranges of message sizes
 *   tune_json.c    the tuning file (docs/tuning.md)
 */
#ifndef BENCH_TUNE_H
#define BENCH_TUNE_H

#include "manifest.h"
#include "measure.h"

#define BENCH_TUNE_PATHS_MAX TPC_PATH_END
/** A gain is above noise from so many percent on, or from the spread of either curve, if that is more. */
#define BENCH_TUNE_NOISE_PERCENT 3.0

/** All paths at one message size; NaN: this path was not measured. */
typedef struct {
    uint64_t bytes;
    uint64_t samples;
    double us[BENCH_TUNE_PATHS_MAX]; /**< median of one call */
    double cv_percent[BENCH_TUNE_PATHS_MAX];
} bench_tune_point_t;

/** Messages of bytes_min to bytes_max take a path. */
typedef struct {
    uint64_t bytes_min, bytes_max; /**< both included; UINT64_MAX: no end */
    size_t path;                   /**< index of the points' arrays */
    double base_us, per_mib_us;    /**< expected time: base + bytes / 2^20 x per_mib */
    double gain_percent;           /**< over the range before, where this one begins; NaN: the first */
} bench_tune_range_t;

/**
 * The ranges of points in ascending order of bytes. The first takes the fastest path at the smallest size, or
 * `preferred` where that is within noise of it. A switch is made only where the other path's gain is above noise, stays
 * ahead at the next size too, and the two curves cross: at their crossing.
 * @param preferred  index of a path; SIZE_MAX: none.
 * @param ranges  room for count of them. @return how many there are; 0: no path was measured at the smallest size.
 */
size_t bench_tune_choose(const bench_tune_point_t *points, size_t count, size_t path_count, size_t preferred,
                         bench_tune_range_t *ranges);

/** One curve of each path: a collective, group size, dtype and mode. */
typedef struct {
    tpcomm_coll_t coll;
    uint32_t hidden;                 /**< with a norm: elements of a row; else 0 */
    uint32_t hidden_min, hidden_max; /**< rows that its ranges are for; 0: no limit */
    int32_t ranks;
    char topology[32];
    tpcomm_dtype_t dtype;
    bool graph;
    tpcomm_path_t paths[BENCH_TUNE_PATHS_MAX]; /**< that such calls can be asked to take, as the library lists them */
    size_t path_count;
    tpcomm_path_t preferred; /**< the library's choice at the smallest size before */
    bench_tune_point_t *points;
    size_t point_count;
    uint64_t *left_out; /**< message sizes that found no time in the budget */
    size_t left_out_count;
    bench_tune_range_t *ranges;
    size_t range_count;
} bench_tune_curve_t;

typedef struct {
    bench_manifest_t manifest;
    bench_tune_curve_t *curves;
    size_t curve_count, curves_planned;
    uint64_t begun_ns;          /**< by rank 0's clock, as is: */
    double budget_s, elapsed_s; /**< budget 0: none */
    double row_ms, last_ms;     /**< of the last measurement: what its samples of a path were given; what all took */
    uint64_t checked, wrong;
    bool by_mode; /**< rows say whether they are for captured calls */
} bench_tune_result_t;

/** Which message sizes, and how each is measured. */
typedef struct {
    bench_measuring_t how;
    uint64_t min_bytes, max_bytes, factor; /**< each size is the one before times factor */
} bench_tune_sizes_t;

/** Measure a curve, of which coll to graph are set, and choose its ranges. Collective: all ranks of comm. */
tpcomm_status_t bench_tune_curve(const bench_tune_sizes_t *plan, tpcomm_t *comm, bench_lane_t *lane,
                                 bench_tune_result_t *result, bench_tune_curve_t *curve);

/** Write the tuning file. Fails: IO, NO_MEMORY, UNSUPPORTED (no cJSON). */
tpcomm_status_t bench_tune_write(const bench_tune_result_t *result, const char *path);

#endif
