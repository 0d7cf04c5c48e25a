/* SPDX-License-Identifier: Apache-2.0 */
#include "replay_summary.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"

const char *const bench_split_names[BENCH_SPLIT_KINDS] = {"custom", "fallback", "overall"};
const char *const bench_phase_names[3] = {"all", "decode", "mixed"};

/** The iterations in order of size, then of time: sizes' samples are found without looking through all. */
typedef struct {
    uint64_t *number; /* of iterations, grouped by size */
    size_t *start;    /* where a size's begin; size_count + 1 of them */
} order_t;

static tpcomm_status_t order_new(const bench_result_t *result, order_t *order_p) {
    order_t order = {malloc((size_t)result->done * sizeof *order.number + 1),
                     calloc(result->size_count + 2, sizeof *order.start)};
    if (!order.number || !order.start) {
        free(order.number);
        free(order.start);
        return tpc_error(TPCOMM_ERR_NO_MEMORY, "no memory for the report");
    }
    /* Counting sort: start[s + 1] moves from the beginning of size s to its end while it is filled. */
    for (uint64_t i = 0; i < result->done; i++) order.start[result->iterations[i].size + 2]++;
    for (size_t s = 2; s < result->size_count + 2; s++) order.start[s] += order.start[s - 1];
    for (uint64_t i = 0; i < result->done; i++) order.number[order.start[result->iterations[i].size + 1]++] = i;
    *order_p = order;
    return TPCOMM_OK;
}

static bool is_fallback(tpcomm_path_t path) {
    static const char *const names[] = {"nccl", "hier", "unfused"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(tpcomm_path_name(path), names[i]) == 0) return true;
    return false;
}

/** The path that took most calls of a size. */
static tpcomm_path_t main_path(const bench_size_t *size) {
    tpcomm_path_t most = 0;
    for (tpcomm_path_t path = 1; path < TPC_PATH_END; path++)
        if (size->path_calls[path] > size->path_calls[most]) most = path;
    return most;
}

static void set_paths(bench_row_t *row, const bench_result_t *result) {
    uint64_t calls[TPC_PATH_END] = {0};
    uint64_t ranks = (uint64_t)result->manifest.info.size;
    for (size_t s = row->from; s <= row->to; s++) {
        const bench_size_t *size = &result->sizes[s];
        for (int path = 0; path < TPC_PATH_END; path++) calls[path] += size->path_calls[path];
        if (size->path_calls[size->decision.path] != size->calls * ranks) row->unexpected = true;
    }
    for (tpcomm_path_t path = 1; path < TPC_PATH_END; path++) {
        if (calls[path] > 0 && row->path > 0) row->several_paths = true;
        if (calls[path] > calls[row->path]) row->path = path;
    }
}

static bench_row_t make_row(const bench_result_t *result, const order_t *order, size_t from, size_t to,
                            double *samples) {
    bench_row_t row = {.from = from, .to = to, .wire_bytes = NAN, .algbw_gbs = NAN, .busbw_gbs = NAN};
    double bytes = 0, wire = 0, ranks = result->manifest.info.size;
    size_t n = 0;
    for (size_t s = from; s <= to; s++) {
        const bench_size_t *size = &result->sizes[s];
        row.calls += size->calls;
        row.checked += size->checked;
        row.wrong += size->wrong;
        bytes += (double)size->bytes * (double)size->calls;
        wire += (double)size->wire_bytes;
    }
    /* The median call's speed; for a single size that is its bytes by its median time. */
    for (size_t s = from; s <= to; s++)
        for (size_t i = order->start[s]; i < order->start[s + 1]; i++)
            for (uint64_t call = 0; call < result->samples; call++) {
                double ns = result->call_ns[order->number[i] * result->samples + call];
                samples[n++] = (double)result->sizes[s].bytes / (ns > 0 ? ns : 1);
            }
    row.algbw_gbs = bench_summarise(samples, n).p50;
    n = 0;
    for (size_t s = from; s <= to; s++)
        for (size_t i = order->start[s]; i < order->start[s + 1]; i++)
            for (uint64_t call = 0; call < result->samples; call++)
                samples[n++] = result->call_ns[order->number[i] * result->samples + call] / 1000;
    row.us = bench_summarise(samples, n);
    if (from != to) row.us.cv_percent = NAN;
    if (ranks > 1) row.busbw_gbs = row.algbw_gbs * 2 * (ranks - 1) / ranks;
    if (row.calls > 0) {
        row.bytes = bytes / (double)row.calls;
        row.wire_bytes = wire / ((double)row.calls * ranks);
    }
    set_paths(&row, result);
    return row;
}

/** First T above the table row that T is in: ever wider ranges, in the steps in which engines pad. */
static uint32_t range_end(uint32_t tokens) {
    static const uint32_t ends[] = {1,  2,  4,   8,   16,  24,  32,  40,  48,   56,   64,
                                    80, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048};
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++)
        if (tokens <= ends[i]) return ends[i];
    return tokens <= 16384 ? 16384 : UINT32_MAX;
}

/** Group sizes for the table. */
static void group_sizes(const bench_result_t *result, bench_report_t *report) {
    bool single = result->size_count <= BENCH_TABLE_ROWS_MAX;
    for (size_t s = 0; s < result->size_count; s++) {
        bench_row_t *last = report->row_count > 0 ? &report->rows[report->row_count - 1] : NULL;
        if (!single && last && range_end(result->sizes[last->from].tokens) == range_end(result->sizes[s].tokens))
            last->to = s;
        else
            report->rows[report->row_count++] = (bench_row_t){.from = s, .to = s};
    }
}

static void set_shares(bench_row_t *row, double calls, double bytes) {
    row->call_share = calls > 0 ? (double)row->calls / calls : 0;
    row->byte_share = bytes > 0 ? fmin(row->bytes * (double)row->calls / bytes, 1) : 0; /* rounding */
}

static tpcomm_status_t fill_rows(const bench_result_t *result, bench_report_t *report, double *samples) {
    order_t order;
    double calls = 0, bytes = 0;
    tpcomm_status_t status = order_new(result, &order);
    if (status != TPCOMM_OK) return status;
    for (size_t s = 0; s < result->size_count; s++) {
        report->sizes[s] = make_row(result, &order, s, s, samples);
        calls += (double)report->sizes[s].calls;
        bytes += report->sizes[s].bytes * (double)report->sizes[s].calls;
    }
    report->size_count = result->size_count;
    group_sizes(result, report);
    for (size_t r = 0; r < report->row_count; r++)
        report->rows[r] = make_row(result, &order, report->rows[r].from, report->rows[r].to, samples);
    for (size_t s = 0; s < report->size_count; s++) set_shares(&report->sizes[s], calls, bytes);
    for (size_t r = 0; r < report->row_count; r++) set_shares(&report->rows[r], calls, bytes);
    free(order.number);
    free(order.start);
    return TPCOMM_OK;
}

static bool belongs(const bench_result_t *result, const bench_iteration_t *iteration, int phase, int kind) {
    bool fallback = is_fallback(main_path(&result->sizes[iteration->size]));
    if (phase != BENCH_PHASE_ALL && iteration->draw.mixed != (phase == BENCH_PHASE_MIXED)) return false;
    return kind == BENCH_SPLIT_OVERALL || fallback == (kind == BENCH_SPLIT_FALLBACK);
}

static void fill_split(const bench_replay_t *replay, const bench_result_t *result, bench_report_t *report,
                       double *samples) {
    for (int phase = 0; phase < 3; phase++) {
        for (int kind = 0; kind < BENCH_SPLIT_KINDS; kind++) {
            bench_share_t *share = &report->split[phase][kind];
            size_t n = 0;
            for (uint64_t i = 0; i < result->done; i++) {
                const bench_iteration_t *iteration = &result->iterations[i];
                if (!belongs(result, iteration, phase, kind)) continue;
                samples[n++] = (double)iteration->comm_ns / 1000;
                share->bytes += (double)(result->sizes[iteration->size].bytes * replay->calls);
            }
            share->iterations = n;
            share->calls = n * replay->calls;
            share->us = bench_summarise(samples, n);
        }
    }
}

static void fill_rest(const bench_replay_t *replay, const bench_result_t *result, bench_report_t *report,
                      double *samples) {
    double padded = 0, drawn = 0, skew_ns = 0, calls = 0;
    size_t n = 0;
    for (uint64_t i = 0; i < result->done; i++) {
        samples[i] = (double)result->iterations[i].wall_ns / 1000;
        padded += result->iterations[i].draw.tokens;
        drawn += result->iterations[i].draw.drawn;
    }
    report->wall_us = bench_summarise(samples, (size_t)result->done);
    for (uint64_t i = 0; i < result->done; i++) samples[i] = (double)result->iterations[i].start_skew_ns / 1000;
    report->start_skew_us = bench_summarise(samples, result->manifest.same_host ? (size_t)result->done : 0);
    for (uint64_t i = 0; i < result->done; i++)
        if (result->iterations[i].lump_ns) samples[n++] = (double)result->iterations[i].lump_ns / 1000;
    report->lump_us = bench_summarise(samples, n);
    n = 0;
    double ours = 0, theirs = 0;
    for (uint64_t i = 0; i < result->done; i++) {
        if (!result->iterations[i].beside_ns) continue;
        samples[n++] = (double)result->iterations[i].beside_ns / 1000;
        ours += (double)result->iterations[i].comm_ns;
        theirs += (double)result->iterations[i].beside_ns;
    }
    report->beside_us = bench_summarise(samples, n);
    report->beside_ratio = theirs > 0 ? ours / theirs : NAN;
    n = 0;
    for (uint64_t i = 0; i < result->done; i++)
        if (result->iterations[i].lump_ns) samples[n++] = (double)result->iterations[i].comm_ns / 1000;
    report->lumped_us = bench_summarise(samples, n);
    for (size_t s = 0; s < result->size_count; s++) {
        skew_ns += (double)result->sizes[s].skew_ns;
        calls += (double)result->sizes[s].calls;
    }
    report->call_skew_us = calls > 0 && !result->manifest.ranks[0].has_gpu ? skew_ns / calls / 1000 : NAN;
    report->padding_share = replay->padding.count > 0 && drawn > 0 ? padded / drawn - 1 : 0;
}

__attribute__((format(printf, 2, 3))) static void add_caveat(bench_report_t *report, const char *format, ...) {
    va_list arguments;
    if (report->caveat_count == BENCH_CAVEATS_MAX) return;
    va_start(arguments, format);
    vsnprintf(report->caveats[report->caveat_count++], sizeof report->caveats[0], format, arguments);
    va_end(arguments);
}

static void fill_caveats(const bench_replay_t *replay, const bench_result_t *result, bench_report_t *report) {
    uint64_t unstable = 0, known = 0, unexpected = 0;
    for (size_t s = 0; s < report->size_count; s++) {
        if (!isnan(report->sizes[s].us.cv_percent)) known++;
        if (report->sizes[s].us.cv_percent > BENCH_UNSTABLE_PERCENT) unstable++;
        if (report->sizes[s].unexpected) unexpected++;
    }
    char text[512];
    const char *caveat;
    for (size_t i = 0; (caveat = bench_manifest_caveat(&result->manifest, i, text, sizeof text)) != NULL; i++)
        add_caveat(report, "%s", caveat);
    if (unexpected)
        add_caveat(report, "%" PRIu64 " of %zu sizes took other paths than explain said (!)", unexpected,
                   report->size_count);
    if (replay->gap_us <= 0) add_caveat(report, "no compute between calls (--gap-us): a chain of AllReduces flatters");
    if (result->stopped)
        add_caveat(report,
                   "stopped after %" PRIu64 " of %" PRIu64
                   " iterations, half over the budget of %g s: long ones are missing",
                   result->done, result->planned, replay->budget_s);
    if (result->done < BENCH_P50_MIN_SAMPLES)
        add_caveat(report,
                   "%" PRIu64 " iterations: p50 and p95 of the time per iteration want %u (--iterations, --budget-s)",
                   result->done, BENCH_P50_MIN_SAMPLES);
    if (unstable)
        add_caveat(report, "unstable: %" PRIu64 " of %" PRIu64 " sizes vary by more than %g %% over the run (cv)",
                   unstable, known, BENCH_UNSTABLE_PERCENT);
    if (!result->manifest.same_host)
        add_caveat(report, "ranks on several hosts: skew at the start of iterations is not measured");
}

tpcomm_status_t bench_report_new(const bench_replay_t *replay, const bench_result_t *result, bench_report_t *report_p) {
    /* The longest list of samples: all calls. */
    size_t most = (size_t)(result->done * result->samples) + 1;
    double *samples = malloc(most * sizeof *samples);
    memset(report_p, 0, sizeof *report_p);
    report_p->sizes = calloc(result->size_count + 1, sizeof *report_p->sizes);
    tpcomm_status_t status = samples && report_p->sizes ? fill_rows(result, report_p, samples)
                                                        : tpc_error(TPCOMM_ERR_NO_MEMORY, "no memory for the report");
    if (status == TPCOMM_OK) {
        fill_split(replay, result, report_p, samples);
        fill_rest(replay, result, report_p, samples);
        fill_caveats(replay, result, report_p);
    } else {
        bench_report_free(report_p);
    }
    free(samples);
    return status;
}

void bench_report_free(bench_report_t *report) {
    free(report->sizes);
    memset(report, 0, sizeof *report);
}
