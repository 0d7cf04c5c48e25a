/* SPDX-License-Identifier: Apache-2.0 */
/** The report of a replay as text: header, a line a size, time per iteration, what to keep in mind. docs/replay.md
 * explains it. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "replay_summary.h"
#include "text.h"

enum { REASONS_MAX = 26 };

/* ---------------------------------------------------------------- header */

static void print_warmup(FILE *file, const bench_result_t *result) {
    char text[512] = "";
    uint64_t calls = 0;
    size_t used = 0;
    for (size_t i = 0; i < result->warmup_count; i++) {
        const bench_warmup_t *w = &result->warmup[i];
        calls += w->calls;
        int wrote =
            snprintf(text + used, sizeof text - used, "%sT %u x %" PRIu64 " (first %.0f us, median %.0f us)",
                     i ? ", " : "", w->tokens, w->calls, (double)w->first_ns / 1000, (double)w->median_ns / 1000);
        if (wrote > 0 && used + (size_t)wrote < sizeof text) used += (size_t)wrote;
    }
    bench_text_line(file, "warm-up", "%" PRIu64 " calls, not counted: %s", calls, text);
}

static void print_source(FILE *file, const bench_replay_t *replay) {
    const bench_source_t *source = &replay->histogram.source;
    bench_text_line(file, "histogram", "%s, hash %016" PRIx64 ", %" PRIu64 " iterations, mean decode batch %.1f",
                    replay->histogram_path, replay->histogram.hash,
                    replay->histogram.decode_only.total + replay->histogram.mixed.total,
                    replay->histogram.mean_decode_batch);
    if (source->trace[0])
        bench_text_line(file, "", "of trace %s%s%s", source->trace, source->sha256[0] ? ", sha256 " : "",
                        source->sha256);
    if (source->credit[0]) bench_text_field(file, "", source->credit);
}

static void print_header(FILE *file, const bench_replay_t *replay, const bench_result_t *result) {
    const bench_model_t *model = &replay->model;
    bench_manifest_print(file, "replay", &result->manifest, replay->path);
    if (result->manifest.ranks[0].has_gpu)
        bench_text_line(file, "sample",
                        "an iteration's %" PRIu64
                        " calls %s, from its launch to the last call's end by events, and their mean",
                        replay->calls, replay->graph ? "as one CUDA graph" : "one after the other");
    print_source(file, replay);
    bench_text_line(file, "model",
                    "%s: hidden %" PRIu64 ", %" PRIu64 " layers x %" PRIu64 " + %" PRIu64 " = %" PRIu64
                    " %s per iteration, %s",
                    model->name[0] ? model->name : "given", model->hidden, model->layers, model->calls_per_layer,
                    model->extra_calls, replay->calls, replay->fused ? "AllReduce + residual + RMSNorm" : "AllReduces",
                    tpcomm_dtype_name(replay->dtype));
    bench_text_line(file, "drawn", "%" PRIu64 " iterations%s, phase %s, padding %s, seed %" PRIu64 ", gap %g us",
                    result->done, replay->iterations ? "" : " (as many as fit the budget)",
                    bench_phase_names[replay->phase], replay->pad_text, replay->seed, replay->gap_us);
    print_warmup(file, result);
}

/* ---------------------------------------------------------------- sizes */

/** Reasons named by letters in the table and told below it. */
typedef struct {
    const tpcomm_decision_t *reason[REASONS_MAX];
    size_t count;
    bool more;
} reasons_t;

static bool same_reason(const tpcomm_decision_t *a, const tpcomm_decision_t *b) {
    return a->path == b->path && a->bytes_min == b->bytes_min && a->bytes_max == b->bytes_max &&
           strcmp(a->reason, b->reason) == 0;
}

static char reason_letter(reasons_t *reasons, const tpcomm_decision_t *decision) {
    for (size_t i = 0; i < reasons->count; i++)
        if (same_reason(reasons->reason[i], decision)) return (char)('a' + i);
    if (reasons->count == REASONS_MAX) {
        reasons->more = true;
        return '?';
    }
    reasons->reason[reasons->count] = decision;
    return (char)('a' + reasons->count++);
}

static void row_reasons(const bench_result_t *result, const bench_row_t *row, reasons_t *reasons, char letters_p[8]) {
    size_t used = 0;
    for (size_t s = row->from; s <= row->to; s++) {
        char letter = reason_letter(reasons, &result->sizes[s].decision);
        if (memchr(letters_p, letter, used)) continue;
        if (used == 6)
            letters_p[used - 1] = '+';
        else
            letters_p[used++] = letter;
    }
    letters_p[used] = '\0';
}

static void print_row(FILE *file, const bench_result_t *result, const bench_row_t *row, reasons_t *reasons) {
    char tokens[32], letters[8], path[40];
    uint32_t from = result->sizes[row->from].tokens, to = result->sizes[row->to].tokens;
    if (from == to)
        snprintf(tokens, sizeof tokens, "%u", from);
    else
        snprintf(tokens, sizeof tokens, "%u-%u", from, to);
    row_reasons(result, row, reasons, letters);
    snprintf(path, sizeof path, "%s%s%s", row->path ? tpcomm_path_name(row->path) : "none",
             row->several_paths ? "*" : "", row->unexpected ? "!" : "");
    fprintf(file, "%11s %10.0f %8" PRIu64 " %6.2f %6.2f  %-13s %-3s", tokens, row->bytes, row->calls,
            100 * row->call_share, 100 * row->byte_share, path, letters);
    bench_text_number(file, 8, row->us.p50);
    bench_text_number(file, 8, row->us.p95);
    bench_text_number(file, 8, row->us.p99);
    bench_text_number(file, 5, row->us.cv_percent);
    bench_text_number(file, 6, row->algbw_gbs);
    if (result->manifest.info.size == 1)
        fprintf(file, " %6s", "n/a");
    else
        bench_text_number(file, 6, row->busbw_gbs);
    fprintf(file, " %10.0f %6" PRIu64 "\n", row->wire_bytes, row->wrong);
}

static void print_reasons(FILE *file, const reasons_t *reasons) {
    for (size_t i = 0; i < reasons->count; i++) {
        const tpcomm_decision_t *d = reasons->reason[i];
        char text[1024], label[8] = {(char)('a' + i), '\0'};
        size_t used = (size_t)snprintf(text, sizeof text, "%s: %s", tpcomm_path_name(d->path), d->reason);
        for (int32_t r = 0; r < d->rejected_count && used < sizeof text; r++) {
            int wrote = snprintf(text + used, sizeof text - used, "%s%s (%s)", r ? ", " : "; not ",
                                 tpcomm_path_name(d->rejected[r].path), d->rejected[r].why_not);
            if (wrote > 0) used += (size_t)wrote;
        }
        bench_text_field(file, label, text);
    }
    if (reasons->more) bench_text_field(file, "?", "further reasons: see --json");
}

static void print_sizes(FILE *file, const bench_result_t *result, const bench_report_t *report) {
    reasons_t reasons = {.count = 0};
    bool ranges = report->row_count < report->size_count;
    fprintf(file, "\nAllReduce by size%s: time of one call in us, the slowest rank's; n = calls; GB/s = 1e9 bytes/s\n",
            ranges ? " (a range of T in a row: bytes are means; --json has every size)" : "");
    fprintf(file, "%11s %10s %8s %6s %6s  %-13s %-3s %8s %8s %8s %5s %6s %6s %10s %6s\n", "T", "bytes", "calls",
            "%calls", "%bytes", "path", "why", "p50", "p95", "p99", "cv%", "algbw", "busbw", "wire/rank", "wrong");
    for (size_t r = 0; r < report->row_count; r++) print_row(file, result, &report->rows[r], &reasons);
    fputs("why\n", file);
    print_reasons(file, &reasons);
}

/* ---------------------------------------------------------------- footer */

static void print_split(FILE *file, const bench_replay_t *replay, const bench_report_t *report) {
    fputs("\nCommunication time per iteration in us, the slowest rank's sum over its calls\n", file);
    fprintf(file, "%-8s %-9s %6s %9s %10s %10s %10s %10s %10s %10s\n", "phase", "paths", "n", "calls", "MB/iter",
            "mean", "p50", "p95", "min", "max");
    /* "all" is last, and left out where it would repeat the only phase. */
    for (int i = 0; i < 3; i++) {
        static const bench_phase_t order[] = {BENCH_PHASE_DECODE, BENCH_PHASE_MIXED, BENCH_PHASE_ALL};
        bench_phase_t phase = order[i];
        if (replay->phase != BENCH_PHASE_ALL && phase != replay->phase) continue;
        for (int kind = 0; kind < BENCH_SPLIT_KINDS; kind++) {
            const bench_share_t *share = &report->split[phase][kind];
            double n = (double)share->iterations;
            if (kind != BENCH_SPLIT_OVERALL && report->split[phase][BENCH_SPLIT_OVERALL].iterations == 0) continue;
            fprintf(file, "%-8s %-9s %6" PRIu64 " %9" PRIu64, bench_phase_names[phase], bench_split_names[kind],
                    share->iterations, share->calls);
            bench_text_number(file, 10, n > 0 ? share->bytes / n / 1e6 : NAN);
            bench_text_number(file, 10, share->us.mean);
            bench_text_number(file, 10, share->us.p50);
            bench_text_number(file, 10, share->us.p95);
            bench_text_number(file, 10, share->us.min);
            bench_text_number(file, 10, share->us.max);
            fputc('\n', file);
        }
    }
}

static void print_last(char *text, size_t bytes, const bench_result_t *result, bool starts) {
    uint64_t total = 0;
    size_t used = 0;
    text[0] = '\0';
    for (int32_t rank = 0; rank < result->manifest.info.size; rank++)
        total += starts ? result->ranks[rank].last_starts : result->ranks[rank].last_calls;
    for (int32_t rank = 0; rank < result->manifest.info.size && total > 0; rank++) {
        uint64_t count = starts ? result->ranks[rank].last_starts : result->ranks[rank].last_calls;
        int wrote = snprintf(text + used, bytes - used, "%srank %d %.0f%%", used ? ", " : "; last: ", rank,
                             100 * (double)count / (double)total);
        if (wrote > 0 && used + (size_t)wrote < bytes) used += (size_t)wrote;
    }
}

static void print_skew(FILE *file, const bench_result_t *result, const bench_report_t *report) {
    char last[512];
    if (result->manifest.info.size == 1) return;
    print_last(last, sizeof last, result, false);
    if (!result->manifest.ranks[0].has_gpu)
        bench_text_line(file, "call skew", "last arrival minus first, mean %.2f us%s", report->call_skew_us, last);
    if (!result->manifest.same_host) return;
    print_last(last, sizeof last, result, true);
    bench_text_line(file, "start skew",
                    "at the common start of an iteration, not in the times: mean %.1f us, max %.1f us%s",
                    report->start_skew_us.mean, report->start_skew_us.max, last);
}

static void print_beside(FILE *file, const bench_result_t *result, const bench_report_t *report) {
    if (!result->beside || report->beside_us.n == 0) return;
    bench_text_line(
        file, "beside",
        "the same iterations by %s: mean %.1f us; this run takes %.3f of it (all iterations' sum, n = %" PRIu64 ")",
        tpcomm_path_name(result->beside), report->beside_us.mean, report->beside_ratio, report->beside_us.n);
}

static void print_lump(FILE *file, const bench_replay_t *replay, const bench_result_t *result,
                       const bench_report_t *report) {
    const bench_summary_t *lump = &report->lump_us, *many = &report->lumped_us;
    if (!replay->lump) return;
    if (lump->n == 0) {
        bench_text_line(file, "lump", "none: one message of an iteration's bytes would be over %" PRIu64 " MiB",
                        BENCH_LUMP_MAX_BYTES >> 20);
        return;
    }
    bench_text_line(file, "lump",
                    "an iteration's bytes in one message: mean %.0f us, against %.0f us for the many (n = %" PRIu64
                    ", %.2f x%s)",
                    lump->mean, many->mean, lump->n, many->mean / lump->mean,
                    lump->n < result->done ? "; greater iterations left out" : "");
}

void bench_table_print(FILE *file, const bench_replay_t *replay, const bench_result_t *result,
                       const bench_report_t *report) {
    print_header(file, replay, result);
    print_sizes(file, result, report);
    print_split(file, replay, report);
    fputc('\n', file);
    print_beside(file, result, report);
    print_lump(file, replay, result, report);
    if (replay->padding.count > 0)
        bench_text_line(file, "padding", "adds %.1f %% to the bytes", 100 * report->padding_share);
    print_skew(file, result, report);
    bench_text_line(
        file, "checked",
        "%" PRIu64 " elements bit for bit on %d rank%s, every element of every buffer after each iteration: %" PRIu64
        " wrong",
        result->checked, result->manifest.info.size, result->manifest.info.size > 1 ? "s" : "", result->wrong);
    for (size_t i = 0; i < report->caveat_count; i++) bench_text_field(file, i ? "" : "mind", report->caveats[i]);
}
