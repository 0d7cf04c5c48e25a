/* SPDX-License-Identifier: Apache-2.0 */
/** The report of a replay as JSON: tpcomm-replay/1 (docs/schema/replay.json). Not measured is null. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/json.h"
#include "replay_summary.h"

#define REPLAY_SCHEMA "tpcomm-replay/1"
/** Iterations that are told one by one; the rest would make the file too long to be read as one. */
#define ITERATIONS_LISTED 10000

/* ---------------------------------------------------------------- manifest */

static void add_rank(tpc_json_writer_t *w, tpc_json_node_t *node, int32_t rank, const void *arg) {
    const bench_result_t *result = arg;
    tpc_json_add_u64(w, node, "last_calls", result->ranks[rank].last_calls);
    if (result->manifest.same_host)
        tpc_json_add_u64(w, node, "last_starts", result->ranks[rank].last_starts);
    else
        bench_json_null(w, node, "last_starts");
}

static void add_histogram(tpc_json_writer_t *w, tpc_json_node_t *parent, const bench_replay_t *replay) {
    const bench_histogram_t *histogram = &replay->histogram;
    tpc_json_node_t *node = tpc_json_add_object(w, parent, "histogram");
    tpc_json_add_string(w, node, "file", replay->histogram_path);
    bench_json_hex(w, node, "hash", histogram->hash);
    bench_json_text(w, node, "trace", histogram->source.trace);
    bench_json_text(w, node, "sha256", histogram->source.sha256);
    bench_json_text(w, node, "credit", histogram->source.credit);
    tpc_json_add_double(w, node, "mean_decode_batch", histogram->mean_decode_batch);
}

static void add_settings(tpc_json_writer_t *w, tpc_json_node_t *parent, const bench_replay_t *replay,
                         const bench_result_t *result) {
    const bench_model_t *model = &replay->model;
    tpc_json_node_t *node = tpc_json_add_object(w, parent, "settings");
    bench_json_text(w, node, "model", model->name);
    tpc_json_add_u64(w, node, "hidden", model->hidden);
    tpc_json_add_u64(w, node, "layers", model->layers);
    tpc_json_add_u64(w, node, "calls_per_layer", model->calls_per_layer);
    tpc_json_add_u64(w, node, "extra_calls", model->extra_calls);
    tpc_json_add_u64(w, node, "calls_per_iteration", replay->calls);
    tpc_json_add_string(w, node, "dtype", tpcomm_dtype_name(replay->dtype));
    tpc_json_add_string(w, node, "phase", bench_phase_names[replay->phase]);
    tpc_json_add_string(w, node, "pad", replay->pad_text);
    tpc_json_add_string(w, node, "path", tpcomm_path_name(replay->path));
    tpc_json_add_string(w, node, "mode", replay->graph ? "graph" : "eager");
    tpc_json_add_string(w, node, "beside", result->beside ? tpcomm_path_name(result->beside) : NULL);
    tpc_json_add_double(w, node, "gap_us", replay->gap_us);
    tpc_json_add_u64(w, node, "seed", replay->seed);
    tpc_json_add_u64(w, node, "iterations_planned", result->planned);
    tpc_json_add_u64(w, node, "iterations", result->done);
    tpc_json_add_bool(w, node, "iterations_by_budget", replay->iterations == 0);
    tpc_json_add_double(w, node, "budget_s", replay->budget_s);
    tpc_json_add_bool(w, node, "threads", replay->threads);
    tpc_json_add_bool(w, node, "lump", replay->lump);
    tpc_json_add_bool(w, node, "fused", replay->fused);
}

static void add_manifest(tpc_json_writer_t *w, const bench_replay_t *replay, const bench_result_t *result) {
    tpc_json_node_t *node = tpc_json_add_object(w, tpc_json_writer_root(w), "manifest");
    bench_manifest_add(w, node, &result->manifest, add_rank, result);
    add_histogram(w, node, replay);
    add_settings(w, node, replay, result);
    tpc_json_node_t *warmup = tpc_json_add_array(w, node, "warmup");
    for (size_t i = 0; i < result->warmup_count; i++) {
        const bench_warmup_t *size = &result->warmup[i];
        tpc_json_node_t *row = tpc_json_add_object(w, warmup, NULL);
        tpc_json_add_u64(w, row, "tokens", size->tokens);
        tpc_json_add_u64(w, row, "calls", size->calls);
        tpc_json_add_double(w, row, "first_us", (double)size->first_ns / 1000);
        tpc_json_add_double(w, row, "median_us", (double)size->median_ns / 1000);
    }
}

/* ---------------------------------------------------------------- results */

static void add_size(tpc_json_writer_t *w, tpc_json_node_t *list, const bench_size_t *size, const bench_row_t *row) {
    static const char *const sources[] = {"none", "measured", "estimated"};
    const tpcomm_decision_t *decision = &size->decision;
    tpc_json_node_t *node = tpc_json_add_object(w, list, NULL);
    tpc_json_add_u64(w, node, "tokens", size->tokens);
    tpc_json_add_u64(w, node, "bytes", size->bytes);
    tpc_json_add_u64(w, node, "iterations", size->iterations);
    tpc_json_add_u64(w, node, "calls", size->calls);
    tpc_json_add_double(w, node, "calls_share", row->call_share);
    tpc_json_add_double(w, node, "bytes_share", row->byte_share);
    tpc_json_add_string(w, node, "path", row->path ? tpcomm_path_name(row->path) : NULL);
    tpc_json_node_t *paths = tpc_json_add_object(w, node, "path_calls");
    for (tpcomm_path_t path = 1; path < TPC_PATH_END; path++)
        if (size->path_calls[path] > 0) tpc_json_add_u64(w, paths, tpcomm_path_name(path), size->path_calls[path]);
    tpc_json_add_string(w, node, "path_expected", tpcomm_path_name(decision->path));
    tpc_json_add_bool(w, node, "as_expected", !row->unexpected);
    tpc_json_add_string(w, node, "reason", decision->reason);
    tpc_json_add_string(w, node, "source",
                        decision->source >= 0 && decision->source < 3 ? sources[decision->source] : "none");
    tpc_json_add_double(w, node, "expected_us",
                        decision->expected_ns >= 0 ? (double)decision->expected_ns / 1000 : NAN);
    tpc_json_node_t *rejected = tpc_json_add_array(w, node, "rejected");
    for (int32_t i = 0; i < decision->rejected_count; i++) {
        tpc_json_node_t *path = tpc_json_add_object(w, rejected, NULL);
        tpc_json_add_string(w, path, "path", tpcomm_path_name(decision->rejected[i].path));
        tpc_json_add_string(w, path, "why_not", decision->rejected[i].why_not);
    }
    bench_json_summary(w, node, "call_us", &row->us);
    tpc_json_add_double(w, node, "algbw_gbs", row->algbw_gbs);
    tpc_json_add_double(w, node, "busbw_gbs", row->busbw_gbs);
    tpc_json_add_double(w, node, "wire_bytes_per_rank", row->wire_bytes);
    tpc_json_add_u64(w, node, "checked", size->checked);
    tpc_json_add_u64(w, node, "wrong", size->wrong);
}

static void add_splits(tpc_json_writer_t *w, tpc_json_node_t *root, const bench_report_t *report) {
    tpc_json_node_t *times = tpc_json_add_object(w, root, "iteration_us");
    for (int phase = 0; phase < 3; phase++)
        bench_json_summary(w, times, bench_phase_names[phase], &report->split[phase][BENCH_SPLIT_OVERALL].us);
    tpc_json_node_t *split = tpc_json_add_object(w, root, "split");
    for (int phase = 0; phase < 3; phase++) {
        tpc_json_node_t *node = tpc_json_add_object(w, split, bench_phase_names[phase]);
        for (int kind = 0; kind < BENCH_SPLIT_KINDS; kind++) {
            const bench_share_t *share = &report->split[phase][kind];
            tpc_json_node_t *part = tpc_json_add_object(w, node, bench_split_names[kind]);
            tpc_json_add_u64(w, part, "iterations", share->iterations);
            tpc_json_add_u64(w, part, "calls", share->calls);
            tpc_json_add_double(w, part, "bytes", share->bytes);
            bench_json_summary(w, part, "comm_us", &share->us);
        }
    }
}

static void add_iterations(tpc_json_writer_t *w, tpc_json_node_t *root, const bench_result_t *result) {
    tpc_json_node_t *list = tpc_json_add_array(w, root, "iterations");
    for (uint64_t i = 0; i < result->done && i < ITERATIONS_LISTED; i++) {
        const bench_iteration_t *iteration = &result->iterations[i];
        tpc_json_node_t *node = tpc_json_add_object(w, list, NULL);
        tpc_json_add_u64(w, node, "drawn", iteration->draw.drawn);
        tpc_json_add_u64(w, node, "tokens", iteration->draw.tokens);
        tpc_json_add_bool(w, node, "mixed", iteration->draw.mixed);
        tpc_json_add_double(w, node, "comm_us", (double)iteration->comm_ns / 1000);
        tpc_json_add_double(w, node, "wall_us", (double)iteration->wall_ns / 1000);
        tpc_json_add_double(w, node, "start_skew_us",
                            result->manifest.same_host ? (double)iteration->start_skew_ns / 1000 : NAN);
        tpc_json_add_double(w, node, "beside_us", iteration->beside_ns ? (double)iteration->beside_ns / 1000 : NAN);
        tpc_json_add_double(w, node, "lump_us", iteration->lump_ns ? (double)iteration->lump_ns / 1000 : NAN);
    }
}

static void add_skew(tpc_json_writer_t *w, tpc_json_node_t *root, const bench_report_t *report) {
    tpc_json_node_t *node = tpc_json_add_object(w, root, "skew");
    tpc_json_add_double(w, node, "call_mean_us", report->call_skew_us);
    bench_json_summary(w, node, "start_us", &report->start_skew_us);
}

tpcomm_status_t bench_json_write(const bench_replay_t *replay, const bench_result_t *result,
                                 const bench_report_t *report) {
    tpc_json_writer_t *w;
    tpcomm_status_t status = tpc_json_load_library(NULL);
    if (status != TPCOMM_OK) return status;
    if ((status = tpc_json_writer_new(REPLAY_SCHEMA, &w)) != TPCOMM_OK) return status;
    tpc_json_node_t *root = tpc_json_writer_root(w);
    add_manifest(w, replay, result);
    tpc_json_node_t *sizes = tpc_json_add_array(w, root, "sizes");
    for (size_t s = 0; s < result->size_count; s++) add_size(w, sizes, &result->sizes[s], &report->sizes[s]);
    add_splits(w, root, report);
    bench_json_summary(w, root, "wall_us", &report->wall_us);
    add_iterations(w, root, result);
    add_skew(w, root, report);
    if (result->beside)
        bench_json_summary(w, root, "beside_us", &report->beside_us);
    else
        bench_json_null(w, root, "beside_us");
    if (replay->lump)
        bench_json_summary(w, root, "lump_us", &report->lump_us);
    else
        bench_json_null(w, root, "lump_us");
    bench_json_checked(w, root, result->checked, result->wrong);
    tpc_json_node_t *caveats = tpc_json_add_array(w, root, "caveats");
    for (size_t i = 0; i < report->caveat_count; i++) tpc_json_add_string(w, caveats, NULL, report->caveats[i]);
    status = tpc_json_write_file(w, replay->json_path);
    tpc_json_writer_free(w);
    return status;
}
