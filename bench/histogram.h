/* SPDX-License-Identifier: Apache-2.0 */
/**
 * tpcomm-histogram/1: how many iterations of an engine worked on how many tokens (docs/schema/histogram.json,
 * docs/trace.md). An iteration of T tokens makes AllReduces of T x hidden elements.
 */
#ifndef BENCH_HISTOGRAM_H
#define BENCH_HISTOGRAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tpcomm.h"

#define BENCH_HISTOGRAM_SCHEMA "tpcomm-histogram/1"

/** Greatest T that a file may hold; and greatest sum of counts (the greatest that JSON carries exactly). */
#define BENCH_HISTOGRAM_TOKENS_MAX 2147483647u
#define BENCH_HISTOGRAM_COUNT_MAX  ((UINT64_C(1) << 53) - 1)

/** count iterations of so many tokens (or sequences); count > 0. */
typedef struct {
    uint64_t count;
    uint32_t tokens;
} bench_bin_t;

/** Bins in ascending order of tokens. */
typedef struct {
    bench_bin_t *bins;
    size_t size;
    uint64_t total; /**< sum of the counts */
} bench_bins_t;

/** Where a histogram comes from: what is not known is "" or 0. */
typedef struct {
    char trace[128]; /**< the trace's file name, without its folder */
    char sha256[65]; /**< of the trace, hexadecimal */
    char format[16];
    char credit[512]; /**< whom to credit, and the licence */
    uint64_t bytes, rows, requests, dropped_rows;
} bench_source_t;

/** The simulated engine (batching.h). */
typedef struct {
    uint64_t max_num_seqs; /**< most sequences decoding at once */
    uint64_t token_budget; /**< most tokens of one iteration */
    double iteration_ms;   /**< an iteration of T tokens takes iteration_ms + token_ms x T */
    double token_ms;
    bool prefill_elsewhere; /**< another engine works on the prompts */
} bench_params_t;

typedef struct {
    bench_source_t source;
    bool has_params; /**< false: a file of somebody else's making; then params, scale and target mean nothing */
    bench_params_t params;
    double scale;        /**< the arrival times were multiplied by this */
    double target_batch; /**< NaN: no target was set */
    bool reached;        /**< whether mean_decode_batch is within 1 % of the target; true without a target */
    uint64_t iterations;
    double mean_decode_batch;        /**< over iterations that decode at all; NaN if none does */
    bench_bins_t decode_only, mixed; /**< T of iterations without and with prompt tokens */
    bench_bins_t decode_part;        /**< decoding sequences of any iteration that has some */
    uint64_t hash; /**< of decode_only and mixed: equal for equal histograms, whatever else a file says */
} bench_histogram_t;

/**
 * Read and check a file. The bins must be there; the rest may be missing (then "", 0, NaN), but is checked where it is
 * there: iterations must be the sum of the counts. Fails: IO, PARSE, NO_MEMORY, UNSUPPORTED (no cJSON).
 */
tpcomm_status_t bench_histogram_read(const char *path, bench_histogram_t *histogram_p);

/** Write to path, whole or not at all. Fails: IO, NO_MEMORY, UNSUPPORTED (no cJSON). */
tpcomm_status_t bench_histogram_write(const bench_histogram_t *histogram, const char *path);

/** Free the bins; the struct may be all zero. */
void bench_histogram_free(bench_histogram_t *histogram);

/** Bins from counts[0 .. size - 1] by tokens. Fails: NO_MEMORY. */
tpcomm_status_t bench_bins_from_counts(const uint64_t *counts, size_t size, bench_bins_t *bins_p);

/** Sum of tokens x count; at most 2^31 x 2^53, so a double. */
double bench_bins_tokens(const bench_bins_t *bins);

/** Tokens of the smallest bin below or at which lie at least permille / 1000 of the iterations; 0 if there are none. */
uint32_t bench_bins_quantile(const bench_bins_t *bins, uint32_t permille);

/** Set hash from the bins. */
void bench_histogram_rehash(bench_histogram_t *histogram);

#endif
