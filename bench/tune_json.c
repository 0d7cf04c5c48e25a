/* SPDX-License-Identifier: Apache-2.0 */
/** The tuning file: rows that the library reads, and a manifest that says where they come from. */
#include <math.h>
#include <string.h>

#include "tune.h"

#define TUNING_SCHEMA "tpcomm-tuning/1"

static void add_point(tpc_json_writer_t *w, tpc_json_node_t *list, const bench_tune_curve_t *curve,
                      const bench_tune_point_t *point) {
    tpc_json_node_t *node = tpc_json_add_object(w, list, NULL);
    tpc_json_add_u64(w, node, "bytes", point->bytes);
    tpc_json_add_u64(w, node, "samples", point->samples);
    tpc_json_node_t *us = tpc_json_add_object(w, node, "p50_us"), *cv = tpc_json_add_object(w, node, "cv_percent");
    for (size_t p = 0; p < curve->path_count; p++) {
        if (isnan(point->us[p])) continue;
        tpc_json_add_double(w, us, tpcomm_path_name(curve->paths[p]), point->us[p]);
        tpc_json_add_double(w, cv, tpcomm_path_name(curve->paths[p]), point->cv_percent[p]);
    }
}

static void add_curve(tpc_json_writer_t *w, tpc_json_node_t *list, const bench_tune_curve_t *curve) {
    tpc_json_node_t *node = tpc_json_add_object(w, list, NULL);
    tpc_json_add_string(w, node, "coll", tpcomm_coll_name(curve->coll));
    if (curve->hidden) tpc_json_add_u64(w, node, "hidden", curve->hidden);
    tpc_json_add_i64(w, node, "ranks", curve->ranks);
    tpc_json_add_string(w, node, "topology", curve->topology);
    tpc_json_add_string(w, node, "dtype", tpcomm_dtype_name(curve->dtype));
    tpc_json_add_string(w, node, "mode", curve->graph ? "graph" : "eager");
    tpc_json_node_t *points = tpc_json_add_array(w, node, "points");
    for (size_t i = 0; i < curve->point_count; i++) add_point(w, points, curve, &curve->points[i]);
    tpc_json_node_t *left_out = tpc_json_add_array(w, node, "left_out");
    for (size_t i = 0; i < curve->left_out_count; i++) tpc_json_add_u64(w, left_out, NULL, curve->left_out[i]);
    tpc_json_node_t *switches = tpc_json_add_array(w, node, "switches");
    for (size_t r = 1; r < curve->range_count; r++) {
        const bench_tune_range_t *range = &curve->ranges[r];
        tpc_json_node_t *member = tpc_json_add_object(w, switches, NULL);
        tpc_json_add_string(w, member, "from", tpcomm_path_name(curve->paths[curve->ranges[r - 1].path]));
        tpc_json_add_string(w, member, "to", tpcomm_path_name(curve->paths[range->path]));
        tpc_json_add_u64(w, member, "bytes", range->bytes_min);
        tpc_json_add_double(w, member, "gain_percent", range->gain_percent);
    }
}

static void add_rows(tpc_json_writer_t *w, tpc_json_node_t *list, const bench_tune_result_t *result,
                     const bench_tune_curve_t *curve) {
    for (size_t r = 0; r < curve->range_count; r++) {
        const bench_tune_range_t *range = &curve->ranges[r];
        tpc_json_node_t *row = tpc_json_add_object(w, list, NULL);
        tpc_json_add_string(w, row, "coll", tpcomm_coll_name(curve->coll));
        tpc_json_add_string(w, row, "topology", curve->topology);
        tpc_json_add_i64(w, row, "ranks", curve->ranks);
        tpc_json_add_string(w, row, "dtype", tpcomm_dtype_name(curve->dtype));
        if (result->by_mode) tpc_json_add_bool(w, row, "capturing", curve->graph);
        if (curve->hidden_min) tpc_json_add_u64(w, row, "hidden_min", curve->hidden_min);
        if (curve->hidden_max) tpc_json_add_u64(w, row, "hidden_max", curve->hidden_max);
        tpc_json_add_u64(w, row, "bytes_min", range->bytes_min);
        if (range->bytes_max != UINT64_MAX) tpc_json_add_u64(w, row, "bytes_max", range->bytes_max);
        tpc_json_add_string(w, row, "path", tpcomm_path_name(curve->paths[range->path]));
        tpc_json_add_string(w, row, "source", "measured");
        tpc_json_add_double(w, row, "base_us", range->base_us);
        tpc_json_add_double(w, row, "per_mib_us", range->per_mib_us);
    }
}

/** The version in comm_info's "NCCL 2.28.9 (/path)"; false: there is none in use, and the text says why. */
static bool nccl_version(const char *text, char version_p[32]) {
    if (strncmp(text, "NCCL ", 5) != 0 || text[5] < '0' || text[5] > '9') return false;
    size_t length = strcspn(text + 5, " ");
    if (length >= 32) return false;
    memcpy(version_p, text + 5, length);
    version_p[length] = '\0';
    return true;
}

tpcomm_status_t bench_tune_write(const bench_tune_result_t *result, const char *path) {
    tpc_json_writer_t *w;
    char version[32];
    const bench_manifest_t *manifest = &result->manifest;
    tpcomm_status_t status = tpc_json_load_library(NULL);
    if (status == TPCOMM_OK) status = tpc_json_writer_new(TUNING_SCHEMA, &w);
    if (status != TPCOMM_OK) return status;
    int32_t number = tpcomm_version();
    snprintf(version, sizeof version, "%d.%d.%d", number / 10000, number / 100 % 100, number % 100);
    tpc_json_node_t *root = tpc_json_writer_root(w);
    tpc_json_add_string(w, root, "device", manifest->ranks[0].has_gpu ? manifest->ranks[0].gpu.name : "cpu");
    tpc_json_add_string(w, root, "library_version", version);
    tpc_json_add_i64(w, root, "world_size", manifest->info.size);
    tpc_json_add_string(w, root, "topology", manifest->info.topology);
    char nccl[32];
    if (nccl_version(manifest->info.nccl, nccl)) tpc_json_add_string(w, root, "nccl_version", nccl);
    tpc_json_node_t *node = tpc_json_add_object(w, root, "manifest");
    bench_manifest_add(w, node, manifest, NULL, NULL);
    tpc_json_add_double(w, node, "noise_percent", BENCH_TUNE_NOISE_PERCENT);
    tpc_json_add_double(w, node, "elapsed_s", result->elapsed_s);
    if (result->budget_s > 0) tpc_json_add_double(w, node, "budget_s", result->budget_s);
    tpc_json_node_t *curves = tpc_json_add_array(w, node, "curves");
    for (size_t c = 0; c < result->curve_count; c++) add_curve(w, curves, &result->curves[c]);
    tpc_json_node_t *rows = tpc_json_add_array(w, root, "rows");
    for (size_t c = 0; c < result->curve_count; c++) add_rows(w, rows, result, &result->curves[c]);
    status = tpc_json_write_file(w, path);
    tpc_json_writer_free(w);
    return status;
}
