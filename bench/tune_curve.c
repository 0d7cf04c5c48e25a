/* SPDX-License-Identifier: Apache-2.0 */
/** One curve of each path: which sizes are measured in the budget, and what they say. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "bench.h"
#include "tune.h"

enum { POINTS_MAX = 512 };
/* Shorter measurements than this tell nothing. */
static const double least_row_ms = 2;
/* Below it a call's time hardly depends on its message. */
static const double proportional_bytes = 262144;

/** The paths of a group that are for such calls: those that the library counts calls of. */
static void list_paths(const tpcomm_t *comm, bench_tune_curve_t *curve) {
    tpcomm_stats_t stats = {.struct_size = sizeof stats};
    for (int32_t i = 0; tpcomm_stats(comm, i, &stats) == TPCOMM_OK && curve->path_count < BENCH_TUNE_PATHS_MAX; i++)
        if (tpc_path_norms(stats.path) == tpc_coll_norms(curve->coll)) curve->paths[curve->path_count++] = stats.path;
}

/* ---------------------------------------------------------------- one size */

static bench_work_t work_of(const bench_tune_curve_t *curve, uint64_t bytes) {
    bench_work_t work = {.coll = curve->coll, .dtype = curve->dtype, .hidden = curve->hidden};
    if (tpc_coll_reduces(curve->coll)) work.op = TPCOMM_SUM;
    work.count = bench_work_count(&work, curve->ranks, bytes);
    return work;
}

/** Measure one message size, each path for row_ms. */
static tpcomm_status_t measure_point(const bench_tune_sizes_t *plan, bench_lane_t *lane, bench_tune_result_t *result,
                                     const bench_tune_curve_t *curve, const bench_work_t *work, double row_ms,
                                     bench_tune_point_t *point) {
    uint64_t begun_ns = tpc_clock_ns();
    bench_variant_t variants[BENCH_TUNE_PATHS_MAX];
    bench_measured_t measured[BENCH_TUNE_PATHS_MAX];
    bench_measuring_t how = plan->how;
    how.graph = curve->graph;
    how.budget_ms = row_ms;
    memset(measured, 0, sizeof measured);
    for (size_t p = 0; p < curve->path_count; p++) variants[p] = (bench_variant_t){.path = curve->paths[p]};
    tpcomm_status_t status = bench_measure(lane, &how, work, variants, curve->path_count, measured);
    point->bytes = bench_work_message(work, curve->ranks);
    for (size_t p = 0; p < curve->path_count; p++) {
        point->us[p] = point->cv_percent[p] = NAN;
        if (status != TPCOMM_OK || measured[p].refused) continue;
        bench_summary_t us = bench_summarise(measured[p].us, measured[p].samples);
        point->us[p] = isnan(us.p50) ? us.mean : us.p50;
        point->cv_percent[p] = us.cv_percent;
        point->samples = us.n;
        result->checked += measured[p].checked;
        result->wrong += measured[p].wrong;
    }
    bench_measured_free(measured, curve->path_count);
    result->row_ms = row_ms;
    result->last_ms = (double)(tpc_clock_ns() - begun_ns) / 1e6;
    return status;
}

/* ---------------------------------------------------------------- the budget */

static double left_ms(const bench_tune_result_t *result) {
    return result->budget_s * 1000 - (double)(tpc_clock_ns() - result->begun_ns) / 1e6;
}

/**
 * The next of `sizes` message sizes of a curve that has ms left: what each path's samples are given; 0: it is left out.
 * The size before tells what one takes. Rank 0 decides.
 */
static double row_ms_of(const bench_tune_sizes_t *plan, const bench_tune_result_t *result,
                        const bench_tune_curve_t *curve, double ms, uint64_t bytes, uint64_t sizes) {
    double share = ms / (double)sizes, most = plan->how.budget_ms;
    if (share <= 0) return 0;
    if (result->last_ms <= 0) return fmax(least_row_ms, fmin(most, share / 2 / (double)(curve->path_count + 1)));
    /* The next size takes about as long; a great one beyond a gap in the sizes takes longer in proportion. */
    const bench_tune_point_t *last = &curve->points[curve->point_count - 1];
    double last_ms = result->last_ms * fmax(1, (double)bytes / fmax(2 * (double)last->bytes, proportional_bytes));
    double row_ms = fmax(least_row_ms, fmin(most, result->row_ms * share / last_ms));
    double least_ms = plan->how.samples > 0 ? last_ms : last_ms * fmin(1, least_row_ms / result->row_ms);
    return least_ms > share ? 0 : row_ms;
}

/** The same on all ranks of the curve. */
static tpcomm_status_t pace(const bench_tune_sizes_t *plan, tpcomm_t *comm, const bench_tune_result_t *result,
                            const bench_tune_curve_t *curve, double curve_end_ms, uint64_t bytes, uint64_t sizes,
                            double *row_ms_p) {
    *row_ms_p = plan->how.budget_ms;
    if (result->budget_s <= 0) return TPCOMM_OK;
    *row_ms_p = row_ms_of(plan, result, curve, left_ms(result) - curve_end_ms, bytes, sizes);
    return tpcomm_host_broadcast(comm, row_ms_p, sizeof *row_ms_p, 0, 0);
}

/** What the library has chosen so far for the smallest size. */
static tpcomm_status_t prefer(tpcomm_t *comm, const bench_work_t *work, bench_tune_curve_t *curve) {
    tpcomm_call_t call = {.struct_size = sizeof call,
                          .coll = work->coll,
                          .dtype = work->dtype,
                          .op = work->op,
                          .flags = curve->graph ? TPCOMM_CALL_CAPTURED : 0,
                          .hidden = (int32_t)work->hidden,
                          .count = work->count};
    tpcomm_decision_t decision = {.struct_size = sizeof decision};
    tpcomm_status_t status = tpcomm_explain(comm, &call, &decision);
    curve->preferred = decision.path;
    return status;
}

static void show_progress(const bench_tune_result_t *result, const bench_tune_curve_t *curve, uint64_t bytes) {
    if (result->manifest.info.rank != 0 || !isatty(STDERR_FILENO)) return;
    if (curve)
        fprintf(stderr, "\r\033[Ktune: %s, %d ranks, %s, %s, %" PRIu64 " bytes", tpcomm_coll_name(curve->coll),
                curve->ranks, tpcomm_dtype_name(curve->dtype), curve->graph ? "graph" : "eager", bytes);
    else
        fputs("\r\033[K", stderr);
}

/** Message sizes that differ. */
static uint64_t count_sizes(const bench_tune_sizes_t *plan, const bench_tune_curve_t *curve) {
    uint64_t sizes = 0, last = 0;
    for (uint64_t bytes = plan->min_bytes; bytes <= plan->max_bytes; bytes *= plan->factor) {
        bench_work_t work = work_of(curve, bytes);
        if (work.count == 0 || work.count == last) continue;
        last = work.count;
        sizes++;
    }
    return sizes;
}

tpcomm_status_t bench_tune_curve(const bench_tune_sizes_t *plan, tpcomm_t *comm, bench_lane_t *lane,
                                 bench_tune_result_t *result, bench_tune_curve_t *curve) {
    tpcomm_info_t info = {.struct_size = sizeof info};
    tpcomm_status_t status = tpcomm_comm_info(comm, &info);
    snprintf(curve->topology, sizeof curve->topology, "%s", info.topology);
    curve->points = calloc(POINTS_MAX, sizeof *curve->points);
    curve->ranges = calloc(POINTS_MAX, sizeof *curve->ranges);
    curve->left_out = calloc(POINTS_MAX, sizeof *curve->left_out);
    if (status == TPCOMM_OK && (!curve->points || !curve->ranges || !curve->left_out))
        status = tpc_error(TPCOMM_ERR_NO_MEMORY, "no memory");
    if ((status = bench_agree(comm, status)) != TPCOMM_OK) return status;
    list_paths(comm, curve);
    uint64_t sizes = count_sizes(plan, curve), last = 0;
    result->last_ms = 0; /* of another curve's greatest message: it says nothing of this one's first */
    size_t after = result->curves_planned - result->curve_count; /* curves, which get as much time each as this one */
    double end_ms = left_ms(result) * (double)after / (double)(after + 1);
    for (uint64_t bytes = plan->min_bytes; bytes <= plan->max_bytes && status == TPCOMM_OK; bytes *= plan->factor) {
        bench_work_t work = work_of(curve, bytes);
        double row_ms = 0;
        if (work.count == 0 || work.count == last) continue; /* less than a row, or the same rows again */
        last = work.count;
        show_progress(result, curve, bytes);
        if (curve->point_count == 0) status = prefer(comm, &work, curve);
        if (status == TPCOMM_OK) status = pace(plan, comm, result, curve, end_ms, bytes, sizes--, &row_ms);
        if (status != TPCOMM_OK) break;
        if (row_ms > 0)
            status = measure_point(plan, lane, result, curve, &work, row_ms, &curve->points[curve->point_count++]);
        else
            curve->left_out[curve->left_out_count++] = bench_work_message(&work, curve->ranks);
    }
    show_progress(result, NULL, 0);
    size_t preferred = SIZE_MAX;
    for (size_t p = 0; p < curve->path_count; p++)
        if (curve->paths[p] == curve->preferred) preferred = p;
    if (status == TPCOMM_OK)
        curve->range_count =
            bench_tune_choose(curve->points, curve->point_count, curve->path_count, preferred, curve->ranges);
    return status;
}
