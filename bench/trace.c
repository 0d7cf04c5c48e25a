/* SPDX-License-Identifier: Apache-2.0 */
/** tpcomm-bench trace: a serving trace in, a histogram of tokens per iteration out. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/json.h"
#include "batching.h"
#include "bench.h"
#include "histogram.h"
#include "options.h"
#include "trace_read.h"

typedef struct {
    const char *input, *output, *credit;
    int32_t format; /**< bench_trace_format_t */
    uint64_t max_num_seqs, token_budget;
    double iteration_ms, token_ms, time_scale, target_batch; /**< the last two: NaN where not given */
    bool prefill_elsewhere;
} settings_t;

static const settings_t defaults = {
    .max_num_seqs = 256,
    .token_budget = 2048,
    .iteration_ms = 12,
    .token_ms = 0.02,
    .time_scale = NAN,
    .target_batch = NAN,
};

static const bench_option_t options[] = {
    BENCH_TEXT("input", true, settings_t, input, "FILE", "the trace"),
    BENCH_TEXT("output", true, settings_t, output, "FILE", "the histogram to write (tpcomm-histogram/1, JSON)"),
    BENCH_WORD("format", settings_t, format, "auto|azure|burstgpt|mooncake",
               "the trace's format; auto: by its first line"),
    BENCH_U64("max-num-seqs", 0, settings_t, max_num_seqs, "N", 1, BENCH_BATCHING_TOKENS_MAX,
              "most sequences that decode at once"),
    BENCH_U64("token-budget", 0, settings_t, token_budget, "N", 1, BENCH_BATCHING_TOKENS_MAX,
              "most tokens of one iteration; longer prompts are worked on in chunks"),
    BENCH_DOUBLE("iteration-ms", settings_t, iteration_ms, "MS", 0.0, BENCH_BATCHING_MS_MAX,
                 "time of an iteration of T tokens: iteration-ms + token-ms x T"),
    BENCH_DOUBLE("token-ms", settings_t, token_ms, "MS", 0.0, BENCH_BATCHING_MS_MAX, "the same, for each token"),
    BENCH_DOUBLE("time-scale", settings_t, time_scale, "S", BENCH_BATCHING_SCALE_MIN, BENCH_BATCHING_SCALE_MAX,
                 "multiply the arrival times by S: below 1 is more load; as published: 1, which is\n"
                 "taken where neither this nor --target-batch is given"),
    BENCH_DOUBLE("target-batch", settings_t, target_batch, "N", 1.0, BENCH_BATCHING_TOKENS_MAX,
                 "find the time scale at which N sequences decode on average, within 1 %"),
    BENCH_FLAG("prefill-elsewhere", settings_t, prefill_elsewhere,
               "another engine works on the prompts: every iteration only decodes"),
    BENCH_TEXT("credit", false, settings_t, credit, "TEXT",
               "whom to credit for the trace, and its licence; kept in the histogram"),
};

static const bench_options_t table = {
    .command = "trace",
    .about = "Turn a serving trace (arrival time, prompt and output tokens of each request) into a histogram of\n"
             "tokens per engine iteration, by simulating continuous batching. docs/trace.md has the formats and\n"
             "the model. The result is simulated from real arrivals and lengths, not measured.",
    .options = options,
    .count = sizeof options / sizeof options[0],
    .defaults = &defaults,
    .settings_bytes = sizeof defaults,
};

static const char *base_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/** Copy text that must fit. Fails: INVALID_ARG naming the option. */
static tpcomm_status_t copy_text(const char *option, const char *text, char *to, size_t bytes) {
    size_t length = strlen(text);
    if (length >= bytes)
        return tpc_error(TPCOMM_ERR_INVALID_ARG, "%s \"%.40s...\" has %zu bytes, allowed are %zu", option, text, length,
                         bytes - 1);
    memcpy(to, text, length + 1);
    return TPCOMM_OK;
}

/** Whether two paths lead to one file that exists. */
static bool is_same_file(const char *a, const char *b) {
    struct stat x, y;
    return stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

/** What the command line says, checked as far as it can be before the trace is read. */
static tpcomm_status_t check_settings(const settings_t *settings, bench_histogram_t *histogram) {
    bench_source_t *source = &histogram->source;
    tpcomm_status_t status;
    if (!isnan(settings->time_scale) && !isnan(settings->target_batch))
        return tpc_error(TPCOMM_ERR_INVALID_ARG, "--time-scale and --target-batch: only one of them can be given");
    if (settings->iteration_ms == 0 && settings->token_ms == 0)
        return tpc_error(TPCOMM_ERR_INVALID_ARG, "--iteration-ms 0 and --token-ms 0: an iteration must take some time");
    if (is_same_file(settings->input, settings->output))
        return tpc_error(TPCOMM_ERR_INVALID_ARG, "--output %s is the trace itself", settings->output);
    status = copy_text("--input", base_name(settings->input), source->trace, sizeof source->trace);
    if (status == TPCOMM_OK && settings->credit)
        status = copy_text("--credit", settings->credit, source->credit, sizeof source->credit);
    /* Early: a missing cJSON should not be found out after minutes of work. */
    return status == TPCOMM_OK ? tpc_json_load_library(NULL) : status;
}

static void take_source(const bench_trace_t *trace, bench_source_t *source) {
    memcpy(source->sha256, trace->sha256, sizeof source->sha256);
    snprintf(source->format, sizeof source->format, "%s", bench_trace_format_name(trace->format));
    source->bytes = trace->bytes;
    source->rows = trace->rows;
    source->requests = trace->count;
    source->dropped_rows = trace->dropped;
}

static void print_bins(const char *name, const bench_bins_t *bins, uint64_t iterations) {
    static const uint32_t permille[] = {10, 100, 500, 900, 990, 1000};
    printf("  %-12s %12" PRIu64 " %9.1f%%", name, bins->total, 100.0 * (double)bins->total / (double)iterations);
    for (size_t i = 0; i < sizeof permille / sizeof permille[0]; i++) {
        if (bins->total)
            printf(" %7" PRIu32, bench_bins_quantile(bins, permille[i]));
        else
            printf(" %7s", "-");
    }
    putchar('\n');
}

static void print_summary(const settings_t *settings, const bench_trace_t *trace, const bench_histogram_t *histogram) {
    double span_s = trace->requests[trace->count - 1].arrival_s - trace->requests[0].arrival_s;
    printf("trace      %s: %s, %" PRIu64 " rows, %zu requests in %.1f s", settings->input,
           bench_trace_format_name(trace->format), trace->rows, trace->count, span_s);
    if (span_s > 0) printf(" (%.2f/s)", (double)trace->count / span_s);
    printf("\ndropped    %" PRIu64 " rows without prompt or output tokens%s\n", trace->dropped,
           trace->reordered ? "; the rest put in order of arrival" : "");
    printf("engine     at most %" PRIu64 " sequences and %" PRIu64
           " tokens an iteration of %g ms + %g ms a token; prompts %s\n",
           histogram->params.max_num_seqs, histogram->params.token_budget, histogram->params.iteration_ms,
           histogram->params.token_ms,
           histogram->params.prefill_elsewhere ? "on another engine" : "on the same engine");
    printf("load       arrival times x %.10g", histogram->scale);
    if (isnan(histogram->mean_decode_batch))
        printf("; no iteration decodes\n");
    else
        printf("; %.2f sequences decode on average\n", histogram->mean_decode_batch);
    printf("tokens     %12s %10s %7s %7s %7s %7s %7s %7s\n", "iterations", "share", "p1", "p10", "p50", "p90", "p99",
           "max");
    print_bins("decode only", &histogram->decode_only, histogram->iterations);
    print_bins("mixed", &histogram->mixed, histogram->iterations);
    printf("written    %s\n", settings->output);
}

static tpcomm_status_t simulate(const settings_t *settings, const bench_trace_t *trace, bench_histogram_t *histogram) {
    const bench_params_t params = {
        .max_num_seqs = settings->max_num_seqs,
        .token_budget = settings->token_budget,
        .iteration_ms = settings->iteration_ms,
        .token_ms = settings->token_ms,
        .prefill_elsewhere = settings->prefill_elsewhere,
    };
    double scale = isnan(settings->time_scale) ? 1.0 : settings->time_scale;
    tpcomm_status_t status = isnan(settings->target_batch)
                                 ? bench_batching_run(trace, &params, scale, histogram)
                                 : bench_batching_find(trace, &params, settings->target_batch, histogram);
    if (status != TPCOMM_OK) return status;
    if (histogram->iterations == 0)
        return tpc_error(
            TPCOMM_ERR_PARSE,
            "%s: no iteration: with the prompts elsewhere and one output token each, nothing is left to do",
            settings->input);
    return TPCOMM_OK;
}

int bench_trace_main(int argc, char **argv) {
    settings_t settings;
    bench_options_rest_t rest;
    bench_trace_t trace;
    bench_histogram_t histogram;
    tpcomm_status_t status;

    memset(&trace, 0, sizeof trace);
    memset(&histogram, 0, sizeof histogram);
    int code;
    if (!bench_options_read(&table, argc, argv, &settings, &rest, &code)) return code;
    status = check_settings(&settings, &histogram);
    if (status != TPCOMM_OK) return bench_report("trace", status);

    status = bench_trace_read(settings.input, (bench_trace_format_t)settings.format, &trace);
    if (status != TPCOMM_OK) return bench_report("trace", status);
    take_source(&trace, &histogram.source);
    status = simulate(&settings, &trace, &histogram);
    if (status == TPCOMM_OK) status = bench_histogram_write(&histogram, settings.output);
    if (status == TPCOMM_OK) {
        print_summary(&settings, &trace, &histogram);
        if (!histogram.reached)
            fprintf(stderr, "tpcomm-bench trace: a mean decode batch of %g was not reached: %.4g at time scale %g\n",
                    settings.target_batch, histogram.mean_decode_batch, histogram.scale);
    }
    bench_histogram_free(&histogram);
    bench_trace_free(&trace);
    return status == TPCOMM_OK ? BENCH_EXIT_OK : bench_report("trace", status);
}
