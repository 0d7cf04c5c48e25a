/* SPDX-License-Identifier: Apache-2.0 */
/** A sweep as text, in nccl-tests' columns. docs/sweep.md explains them. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "sweep.h"
#include "text.h"

enum { PATH_WIDTH = 13, ASKED_WIDTH = 13 };

static const char *const place_names[] = {"out-of-place", "in-place"};

/** The path, and where there are several the one that was asked for. */
static void print_asked(FILE *file, const bench_sweep_t *sweep, const char *asked, const char *path) {
    if (sweep->path_count > 1) fprintf(file, " %-*s", ASKED_WIDTH, asked);
    fprintf(file, " %-*s", PATH_WIDTH, path);
}

static bool reduces(const bench_sweep_t *sweep) {
    return tpc_coll_reduces(sweep->coll);
}

void bench_sweep_print_head(FILE *file, const bench_sweep_t *sweep, const bench_manifest_t *manifest) {
    bench_manifest_print(file, "sweep", manifest, sweep->path_count == 1 ? sweep->paths[0] : TPCOMM_PATH_AUTO);
    bool gpu = manifest->ranks[0].has_gpu != 0;
    char sample[96] = "one call";
    if (gpu)
        snprintf(sample, sizeof sample, "%s of %u calls, by events, divided by %u",
                 sweep->how.graph ? "a replay of a graph" : "a train", sweep->how.calls, sweep->how.calls);
    bench_text_line(file, "sample", "%s; the slowest rank's; warm-up %" PRIu64 " calls; seed %" PRIu64, sample,
                    sweep->how.warmup_calls, sweep->how.seed);
    fprintf(file, "\n%s, %s%s", tpcomm_coll_name(sweep->coll), sweep->how.graph ? "graph" : "eager",
            sweep->cold ? ", cold buffers" : "");
    if (sweep->hidden) fprintf(file, ", rows of %u, with a residual", sweep->hidden);
    fputc('\n', file);
    fprintf(file, "#%11s %11s %5s %5s %5s", "", "", "", "", "");
    print_asked(file, sweep, "", "");
    for (int place = 0; place < BENCH_PLACES; place++)
        if (sweep->place[place]) fprintf(file, "  %31s", place_names[place]);
    fputc('\n', file);
    fprintf(file, "#%11s %11s %5s %5s %5s", "size", "count", "type", "redop", "root");
    print_asked(file, sweep, "asked", "path");
    for (int place = 0; place < BENCH_PLACES; place++)
        if (sweep->place[place]) fprintf(file, "  %8s %7s %7s %6s", "time", "algbw", "busbw", "#wrong");
    fprintf(file, "  %8s %8s %8s %5s %6s %8s\n", "p50", "p95", "p99", "cv%", "host",
            sweep->path_count > 1 ? "ratio" : "");
    fprintf(file, "#%11s %11s %5s %5s %5s", "(B)", "(elements)", "", "", "");
    print_asked(file, sweep, "", "");
    for (int place = 0; place < BENCH_PLACES; place++)
        if (sweep->place[place]) fprintf(file, "  %8s %7s %7s %6s", "(us)", "(GB/s)", "(GB/s)", "");
    fprintf(file, "  %8s %8s %8s %5s %6s\n", "(us)", "(us)", "(us)", "", "(us)");
}

/** The place whose percentiles stand in the table. */
static int told_place(const bench_sweep_t *sweep) {
    return sweep->place[BENCH_OUT_OF_PLACE] ? BENCH_OUT_OF_PLACE : BENCH_IN_PLACE;
}

static void print_place(FILE *file, const bench_sweep_row_t *row, size_t path, int place, int32_t ranks) {
    const bench_measured_t *measured = &row->measured[path][place];
    double algbw = bench_algbw(row->bytes, row->us[path][place].mean);
    if (measured->refused) {
        fprintf(file, "  %8s %7s %7s %6s", "n/a", "n/a", "n/a", "n/a");
        return;
    }
    fputc(' ', file);
    bench_text_number(file, 8, row->us[path][place].mean);
    bench_text_number(file, 7, row->bytes ? algbw : NAN);
    if (ranks == 1)
        fprintf(file, " %7s", "n/a");
    else
        bench_text_number(file, 7, row->bytes ? algbw * bench_bus_factor(row->work.coll, ranks) : NAN);
    fprintf(file, " %6" PRIu64, measured->wrong);
}

static void print_path(FILE *file, const bench_sweep_t *sweep, const bench_sweep_row_t *row, size_t p, int32_t ranks) {
    int told = told_place(sweep);
    const bench_measured_t *measured = &row->measured[p][told];
    const bench_summary_t *us = &row->us[p][told];
    bool expected = true, unstable = false;
    char path[40], root[12] = "-";
    for (int place = 0; place < BENCH_PLACES; place++)
        if (sweep->place[place] && !row->measured[p][place].refused && !bench_as_expected(&row->measured[p][place]))
            expected = false;
    const char *taken = bench_sweep_taken(sweep, p, measured);
    if (!taken) taken = measured->refused ? bench_sweep_asked(sweep, p) : tpcomm_path_name(measured->decision.path);
    snprintf(path, sizeof path, "%s%s", taken, expected ? "" : "!");
    if (row->work.coll == TPCOMM_BROADCAST) snprintf(root, sizeof root, "%d", row->work.root);
    fprintf(file, "%12" PRIu64 " %11" PRIu64 " %5s %5s %5s", row->bytes, row->work.count,
            tpc_coll_moves_data(row->work.coll) ? tpcomm_dtype_name(row->work.dtype) : "-",
            reduces(sweep) ? tpcomm_op_name(row->work.op) : "-", root);
    print_asked(file, sweep, bench_sweep_asked(sweep, p), path);
    for (int place = 0; place < BENCH_PLACES; place++)
        if (sweep->place[place]) print_place(file, row, p, place, ranks);
    if (measured->refused) {
        fprintf(file, "  %s\n", measured->why);
        return;
    }
    fputc(' ', file);
    bench_text_number(file, 8, us->p50);
    bench_text_number(file, 8, us->p95);
    bench_text_number(file, 8, us->p99);
    bench_text_number(file, 5, us->cv_percent);
    bench_text_number(file, 6, measured->host_us);
    double ratio = bench_sweep_ratio(row, p, told, &unstable);
    if (sweep->path_count > 1 && unstable)
        fprintf(file, " %8s", "unstable");
    else if (sweep->path_count > 1)
        bench_text_number(file, 8, ratio);
    else if (unstable)
        fputs(" unstable", file);
    fputc('\n', file);
}

void bench_sweep_print_row(FILE *file, const bench_sweep_t *sweep, const bench_sweep_row_t *row, int32_t ranks) {
    for (size_t p = 0; p < sweep->path_count; p++) print_path(file, sweep, row, p, ranks);
    fflush(file);
}

/** Mean of the bus bandwidths, as nccl-tests ends with it. */
static double mean_busbw(const bench_sweep_t *sweep, const bench_sweep_result_t *result) {
    double sum = 0, n = 0;
    for (size_t r = 0; r < result->row_count; r++)
        for (size_t p = 0; p < sweep->path_count; p++)
            for (int place = 0; place < BENCH_PLACES; place++) {
                const bench_sweep_row_t *row = &result->rows[r];
                if (row->us[p][place].n == 0 || row->bytes == 0) continue;
                sum += bench_algbw(row->bytes, row->us[p][place].mean) *
                       bench_bus_factor(row->work.coll, result->manifest.info.size);
                n++;
            }
    return n > 0 && result->manifest.info.size > 1 ? sum / n : NAN;
}

void bench_sweep_print_foot(FILE *file, const bench_sweep_t *sweep, const bench_sweep_result_t *result) {
    double busbw = mean_busbw(sweep, result);
    bench_sweep_print_extras(file, sweep, result);
    fputc('\n', file);
    if (!isnan(busbw)) bench_text_line(file, "avg busbw", "%.4g GB/s over all rows", busbw);
    bench_text_line(file, "checked", "%" PRIu64 " elements bit for bit on %d rank%s: %" PRIu64 " wrong",
                    result->checked, result->manifest.info.size, result->manifest.info.size > 1 ? "s" : "",
                    result->wrong);
    bench_manifest_print_caveats(file, &result->manifest);
    if (sweep->idle[0]) bench_text_line(file, "mind", "of no effect here: %s", sweep->idle);
    if (result->unexpected)
        bench_text_line(file, "mind", "%zu measurements took other paths than explain said (!)", result->unexpected);
    if (result->unstable)
        bench_text_line(file, "mind", "unstable: %zu measurements vary by more than %g %% over the run (cv)",
                        result->unstable, BENCH_UNSTABLE_PERCENT);
    if (sweep->nccl_evidence)
        bench_text_field(file, "mind", "NCCL writes a log line a call: its eager times are not for comparing");
    if (result->refused) bench_text_line(file, "mind", "%zu measurements could not be made (n/a)", result->refused);
    bench_text_field(file, "mind", "a chain of calls without compute between them flatters");
}
