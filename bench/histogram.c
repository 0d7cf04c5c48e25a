/* SPDX-License-Identifier: Apache-2.0 */
#include "histogram.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "bench.h"
#include "number.h"

/* ------------------------------------------------------------------ bins */

tpcomm_status_t bench_bins_from_counts(const uint64_t *counts, size_t size, bench_bins_t *bins_p) {
    bench_bins_t bins = {NULL, 0, 0};
    for (size_t i = 0; i < size; i++) bins.size += counts[i] > 0;
    if (bins.size > 0) {
        bins.bins = malloc(bins.size * sizeof *bins.bins);
        if (!bins.bins) return tpc_error(TPCOMM_ERR_NO_MEMORY, "no memory for %zu bins", bins.size);
    }
    size_t at = 0;
    for (size_t i = 0; i < size; i++) {
        if (counts[i] == 0) continue;
        bins.bins[at].tokens = (uint32_t)i;
        bins.bins[at++].count = counts[i];
        bins.total += counts[i];
    }
    *bins_p = bins;
    return TPCOMM_OK;
}

double bench_bins_tokens(const bench_bins_t *bins) {
    double sum = 0;
    for (size_t i = 0; i < bins->size; i++) sum += (double)bins->bins[i].tokens * (double)bins->bins[i].count;
    return sum;
}

uint32_t bench_bins_quantile(const bench_bins_t *bins, uint32_t permille) {
    /* total x permille / 1000, rounded up, without overflow: total is at most 2^53 */
    uint64_t rank = (bins->total * permille + 999) / 1000, below = 0;
    if (rank == 0) rank = 1;
    for (size_t i = 0; i < bins->size; i++) {
        below += bins->bins[i].count;
        if (below >= rank) return bins->bins[i].tokens;
    }
    return 0;
}

void bench_histogram_free(bench_histogram_t *histogram) {
    bench_bins_t *bins[] = {&histogram->decode_only, &histogram->mixed, &histogram->decode_part};
    for (size_t i = 0; i < 3; i++) {
        free(bins[i]->bins);
        *bins[i] = (bench_bins_t){NULL, 0, 0};
    }
}

/** FNV-1a, 64 bits, over the eight bytes of value, lowest first. */
static uint64_t hash_u64(uint64_t hash, uint64_t value) {
    for (int i = 0; i < 8; i++) hash = (hash ^ (value >> (8 * i) & 0xff)) * UINT64_C(0x100000001b3);
    return hash;
}

void bench_histogram_rehash(bench_histogram_t *histogram) {
    const bench_bins_t *all[] = {&histogram->decode_only, &histogram->mixed};
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < 2; i++) {
        hash = hash_u64(hash, all[i]->size);
        for (size_t j = 0; j < all[i]->size; j++)
            hash = hash_u64(hash_u64(hash, all[i]->bins[j].tokens), all[i]->bins[j].count);
    }
    histogram->hash = hash;
}

/* ------------------------------------------------------------------ reading */

/** Whether the object has this member, with a value. */
static bool has(tpc_json_value_t object, const char *key) {
    tpc_json_value_t value = tpc_json_get(object, key);
    return value.node && !tpc_json_is_null(value);
}

static tpcomm_status_t read_text(tpc_json_value_t object, const char *key, char *text, size_t bytes) {
    const char *value;
    if (!has(object, key)) return TPCOMM_OK;
    tpcomm_status_t status = tpc_json_string(object, key, &value);
    if (status != TPCOMM_OK) return status;
    if (strlen(value) >= bytes)
        return tpc_json_fail(tpc_json_get(object, key), "longer than the %zu bytes allowed", bytes - 1);
    memcpy(text, value, strlen(value) + 1);
    return TPCOMM_OK;
}

static tpcomm_status_t read_count(tpc_json_value_t object, const char *key, uint64_t *value_p) {
    if (!has(object, key)) return TPCOMM_OK;
    return tpc_json_u64(object, key, 0, BENCH_HISTOGRAM_COUNT_MAX, value_p);
}

static tpcomm_status_t read_source(tpc_json_value_t root, bench_source_t *source) {
    tpc_json_value_t object;
    tpcomm_status_t status;
    if (!has(root, "source")) return TPCOMM_OK;
    if ((status = tpc_json_object(root, "source", &object)) != TPCOMM_OK) return status;
    if ((status = read_text(object, "trace", source->trace, sizeof source->trace)) != TPCOMM_OK) return status;
    if ((status = read_text(object, "sha256", source->sha256, sizeof source->sha256)) != TPCOMM_OK) return status;
    if ((status = read_text(object, "format", source->format, sizeof source->format)) != TPCOMM_OK) return status;
    if ((status = read_text(object, "credit", source->credit, sizeof source->credit)) != TPCOMM_OK) return status;
    if ((status = read_count(object, "bytes", &source->bytes)) != TPCOMM_OK) return status;
    if ((status = read_count(object, "rows", &source->rows)) != TPCOMM_OK) return status;
    if ((status = read_count(object, "requests", &source->requests)) != TPCOMM_OK) return status;
    return read_count(object, "dropped_rows", &source->dropped_rows);
}

static tpcomm_status_t read_params(tpc_json_value_t root, bench_histogram_t *histogram) {
    bench_params_t *params = &histogram->params;
    tpc_json_value_t object;
    tpcomm_status_t status;
    histogram->target_batch = NAN;
    histogram->reached = true;
    if (!has(root, "params")) return TPCOMM_OK;
    if ((status = tpc_json_object(root, "params", &object)) != TPCOMM_OK) return status;
    status = tpc_json_u64(object, "max_num_seqs", 1, BENCH_HISTOGRAM_TOKENS_MAX, &params->max_num_seqs);
    if (status != TPCOMM_OK) return status;
    status = tpc_json_u64(object, "token_budget", 1, BENCH_HISTOGRAM_TOKENS_MAX, &params->token_budget);
    if (status != TPCOMM_OK) return status;
    if ((status = tpc_json_double(object, "iteration_ms", 0, 1e9, &params->iteration_ms)) != TPCOMM_OK) return status;
    if ((status = tpc_json_double(object, "token_ms", 0, 1e9, &params->token_ms)) != TPCOMM_OK) return status;
    if ((status = tpc_json_bool(object, "prefill_elsewhere", &params->prefill_elsewhere)) != TPCOMM_OK) return status;
    if ((status = tpc_json_double(root, "scale", 0, 1e9, &histogram->scale)) != TPCOMM_OK) return status;
    histogram->has_params = true;
    if (!has(object, "target_batch")) return TPCOMM_OK;
    status = tpc_json_double(object, "target_batch", 0, BENCH_HISTOGRAM_TOKENS_MAX, &histogram->target_batch);
    if (status != TPCOMM_OK) return status;
    return tpc_json_bool(root, "reached", &histogram->reached);
}

static int by_tokens(const void *a, const void *b) {
    uint32_t x = ((const bench_bin_t *)a)->tokens, y = ((const bench_bin_t *)b)->tokens;
    return (x > y) - (x < y);
}

/** {"T": count}: the keys are whole numbers without leading zeros; a count of 0 says nothing and is left out. */
static tpcomm_status_t read_bins(tpc_json_value_t object, bench_bins_t *bins_p) {
    bench_bins_t bins = {NULL, 0, 0};
    size_t members = tpc_json_count(object);
    tpcomm_status_t status = TPCOMM_OK;

    if (members > 0 && !(bins.bins = malloc(members * sizeof *bins.bins)))
        return tpc_error(TPCOMM_ERR_NO_MEMORY, "no memory for %zu bins", members);
    for (tpc_json_value_t value = tpc_json_first(object); value.node; value = tpc_json_next(value)) {
        const char *key = tpc_json_key(value);
        uint64_t tokens, count;
        if (!bench_number_u64(key, strlen(key), &tokens) || key[0] == '0' || tokens > BENCH_HISTOGRAM_TOKENS_MAX) {
            status = tpc_json_fail(value, "the key must be a whole number from 1 to %u", BENCH_HISTOGRAM_TOKENS_MAX);
            goto free_bins;
        }
        if ((status = tpc_json_as_u64(value, 0, BENCH_HISTOGRAM_COUNT_MAX, &count)) != TPCOMM_OK) goto free_bins;
        if (count > BENCH_HISTOGRAM_COUNT_MAX - bins.total) {
            status = tpc_json_fail(value, "the counts sum up to more than %" PRIu64, BENCH_HISTOGRAM_COUNT_MAX);
            goto free_bins;
        }
        if (count == 0) continue;
        bins.bins[bins.size].tokens = (uint32_t)tokens;
        bins.bins[bins.size++].count = count;
        bins.total += count;
    }
    if (bins.size > 0) qsort(bins.bins, bins.size, sizeof *bins.bins, by_tokens);
    *bins_p = bins;
    return TPCOMM_OK;

free_bins:
    free(bins.bins);
    return status;
}

static tpcomm_status_t read_all_bins(tpc_json_value_t root, bench_histogram_t *histogram) {
    tpc_json_value_t object;
    tpcomm_status_t status;
    if ((status = tpc_json_object(root, "decode_only", &object)) != TPCOMM_OK) return status;
    if ((status = read_bins(object, &histogram->decode_only)) != TPCOMM_OK) return status;
    if ((status = tpc_json_object(root, "mixed", &object)) != TPCOMM_OK) return status;
    if ((status = read_bins(object, &histogram->mixed)) != TPCOMM_OK) return status;
    if (!has(root, "decode_part")) return TPCOMM_OK;
    if ((status = tpc_json_object(root, "decode_part", &object)) != TPCOMM_OK) return status;
    return read_bins(object, &histogram->decode_part);
}

/** What the file says of its bins must be what they are: a hand-edited file is found out here. */
static tpcomm_status_t check_sums(tpc_json_value_t root, bench_histogram_t *histogram) {
    uint64_t iterations = histogram->decode_only.total + histogram->mixed.total;
    tpcomm_status_t status;
    if (iterations == 0) return tpc_json_fail(tpc_json_get(root, "decode_only"), "no iteration here nor under mixed");
    if (iterations > BENCH_HISTOGRAM_COUNT_MAX)
        return tpc_json_fail(tpc_json_get(root, "mixed"), "the counts sum up to more than %" PRIu64,
                             BENCH_HISTOGRAM_COUNT_MAX);
    histogram->iterations = iterations;
    if (has(root, "iterations")) {
        uint64_t said;
        status = tpc_json_u64(root, "iterations", 0, BENCH_HISTOGRAM_COUNT_MAX, &said);
        if (status != TPCOMM_OK) return status;
        if (said != iterations)
            return tpc_json_fail(tpc_json_get(root, "iterations"),
                                 "the counts of decode_only and mixed sum up to %" PRIu64, iterations);
    }
    if (histogram->decode_part.total > iterations)
        return tpc_json_fail(tpc_json_get(root, "decode_part"),
                             "its counts sum up to %" PRIu64 ", more than the %" PRIu64 " iterations",
                             histogram->decode_part.total, iterations);

    histogram->mean_decode_batch = NAN;
    if (histogram->decode_part.total > 0)
        histogram->mean_decode_batch =
            bench_bins_tokens(&histogram->decode_part) / (double)histogram->decode_part.total;
    if (has(root, "mean_decode_batch")) {
        double said;
        status = tpc_json_double(root, "mean_decode_batch", 0, BENCH_HISTOGRAM_TOKENS_MAX, &said);
        if (status != TPCOMM_OK) return status;
        if (isnan(histogram->mean_decode_batch)) histogram->mean_decode_batch = said;
        if (fabs(said - histogram->mean_decode_batch) > 1e-9 * said)
            return tpc_json_fail(tpc_json_get(root, "mean_decode_batch"), "the mean of decode_part is %.17g",
                                 histogram->mean_decode_batch);
    }
    return TPCOMM_OK;
}

static tpcomm_status_t read_values(const tpc_json_t *doc, bench_histogram_t *histogram) {
    tpc_json_value_t root = tpc_json_root(doc);
    tpcomm_status_t status;
    if ((status = tpc_json_check_schema(doc, BENCH_HISTOGRAM_SCHEMA)) != TPCOMM_OK) return status;
    if ((status = read_source(root, &histogram->source)) != TPCOMM_OK) return status;
    if ((status = read_params(root, histogram)) != TPCOMM_OK) return status;
    if ((status = read_all_bins(root, histogram)) != TPCOMM_OK) return status;
    return check_sums(root, histogram);
}

tpcomm_status_t bench_histogram_read(const char *path, bench_histogram_t *histogram_p) {
    bench_histogram_t histogram;
    tpc_json_t *doc;
    tpcomm_status_t status;

    memset(&histogram, 0, sizeof histogram);
    if ((status = tpc_json_load_library(NULL)) != TPCOMM_OK) return status;
    if ((status = tpc_json_read_file(path, &doc)) != TPCOMM_OK) return status;
    status = read_values(doc, &histogram);
    tpc_json_free(doc);
    if (status != TPCOMM_OK) {
        bench_histogram_free(&histogram);
        return status;
    }
    bench_histogram_rehash(&histogram);
    *histogram_p = histogram;
    return TPCOMM_OK;
}

/* ------------------------------------------------------------------ writing */

static void write_text(tpc_json_writer_t *writer, tpc_json_node_t *parent, const char *key, const char *text) {
    tpc_json_add_string(writer, parent, key, text[0] ? text : NULL);
}

static void write_bins(tpc_json_writer_t *writer, const char *key, const bench_bins_t *bins) {
    tpc_json_node_t *object = tpc_json_add_object(writer, tpc_json_writer_root(writer), key);
    for (size_t i = 0; i < bins->size; i++) {
        char tokens[16];
        snprintf(tokens, sizeof tokens, "%" PRIu32, bins->bins[i].tokens);
        tpc_json_add_u64(writer, object, tokens, bins->bins[i].count);
    }
}

static void write_values(tpc_json_writer_t *writer, const bench_histogram_t *histogram) {
    const bench_source_t *source = &histogram->source;
    const bench_params_t *params = &histogram->params;
    tpc_json_node_t *root = tpc_json_writer_root(writer);

    tpc_json_node_t *object = tpc_json_add_object(writer, root, "source");
    write_text(writer, object, "trace", source->trace);
    write_text(writer, object, "sha256", source->sha256);
    tpc_json_add_u64(writer, object, "bytes", source->bytes);
    write_text(writer, object, "format", source->format);
    tpc_json_add_u64(writer, object, "rows", source->rows);
    tpc_json_add_u64(writer, object, "requests", source->requests);
    tpc_json_add_u64(writer, object, "dropped_rows", source->dropped_rows);
    write_text(writer, object, "credit", source->credit);
    if (histogram->has_params) {
        object = tpc_json_add_object(writer, root, "params");
        tpc_json_add_u64(writer, object, "max_num_seqs", params->max_num_seqs);
        tpc_json_add_u64(writer, object, "token_budget", params->token_budget);
        tpc_json_add_double(writer, object, "iteration_ms", params->iteration_ms);
        tpc_json_add_double(writer, object, "token_ms", params->token_ms);
        tpc_json_add_bool(writer, object, "prefill_elsewhere", params->prefill_elsewhere);
        tpc_json_add_double(writer, object, "target_batch", histogram->target_batch);
        tpc_json_add_double(writer, root, "scale", histogram->scale);
        if (isnan(histogram->target_batch))
            tpc_json_add_string(writer, root, "reached", NULL);
        else
            tpc_json_add_bool(writer, root, "reached", histogram->reached);
    }
    tpc_json_add_u64(writer, root, "iterations", histogram->iterations);
    tpc_json_add_double(writer, root, "mean_decode_batch", histogram->mean_decode_batch);
    write_bins(writer, "decode_only", &histogram->decode_only);
    write_bins(writer, "mixed", &histogram->mixed);
    write_bins(writer, "decode_part", &histogram->decode_part);
}

tpcomm_status_t bench_histogram_write(const bench_histogram_t *histogram, const char *path) {
    tpc_json_writer_t *writer;
    tpcomm_status_t status;
    if ((status = tpc_json_load_library(NULL)) != TPCOMM_OK) return status;
    if ((status = tpc_json_writer_new(BENCH_HISTOGRAM_SCHEMA, &writer)) != TPCOMM_OK) return status;
    write_values(writer, histogram);
    status = tpc_json_write_file(writer, path);
    tpc_json_writer_free(writer);
    return status;
}
