/* SPDX-License-Identifier: Apache-2.0 */
/** A sweep as JSON: tpcomm-sweep/1 (docs/schema/sweep.json). Not measured is null. */
#include <math.h>

#include "sweep.h"

#define SWEEP_SCHEMA "tpcomm-sweep/1"

static const char *const place_keys[] = {"out_of_place", "in_place"};

static void add_settings(tpc_json_writer_t *w, tpc_json_node_t *parent, const bench_sweep_t *sweep,
                         const bench_sweep_result_t *result) {
    tpc_json_node_t *node = tpc_json_add_object(w, parent, "settings");
    tpc_json_add_string(w, node, "coll", tpcomm_coll_name(sweep->coll));
    tpc_json_add_u64(w, node, "min_bytes", sweep->min_bytes);
    tpc_json_add_u64(w, node, "max_bytes", sweep->max_bytes);
    tpc_json_add_u64(w, node, "step_bytes", sweep->step_bytes);
    tpc_json_add_u64(w, node, "step_factor", sweep->step_factor);
    tpc_json_add_string(w, node, "mode", sweep->how.graph ? "graph" : "eager");
    tpc_json_add_u64(w, node, "calls_per_sample", sweep->how.calls);
    tpc_json_add_u64(w, node, "warmup_calls", sweep->how.warmup_calls);
    tpc_json_add_double(w, node, "budget_ms", sweep->how.budget_ms);
    tpc_json_add_u64(w, node, "seed", sweep->how.seed);
    tpc_json_add_bool(w, node, "cold", sweep->cold);
    bench_json_text(w, node, "gemm", result->gemm);
    bench_json_text(w, node, "nccl_direct", result->nccl);
    bench_json_text(w, node, "nccl_transports", result->transports);
}

static void add_place(tpc_json_writer_t *w, tpc_json_node_t *parent, const bench_sweep_row_t *row, size_t p, int place,
                      int32_t ranks) {
    const bench_measured_t *measured = &row->measured[p][place];
    const bench_summary_t *us = &row->us[p][place];
    bool unstable = false;
    if (us->n == 0) {
        bench_json_null(w, parent, place_keys[place]);
        return;
    }
    tpc_json_node_t *node = tpc_json_add_object(w, parent, place_keys[place]);
    double algbw = row->bytes ? bench_algbw(row->bytes, us->mean) : NAN,
           ratio = bench_sweep_ratio(row, p, place, &unstable);
    bench_json_summary(w, node, "us", us);
    tpc_json_add_double(w, node, "algbw_gbs", algbw);
    tpc_json_add_double(w, node, "busbw_gbs", ranks > 1 ? algbw * bench_bus_factor(row->work.coll, ranks) : NAN);
    tpc_json_add_double(w, node, "host_us", measured->host_us);
    tpc_json_add_double(w, node, "first_us", measured->first_us);
    tpc_json_add_double(w, node, "wait_us", measured->wait_us);
    tpc_json_add_double(w, node, "skew_us", measured->skew_us);
    tpc_json_add_bool(w, node, "unstable", us->cv_percent > BENCH_UNSTABLE_PERCENT);
    tpc_json_add_double(w, node, "ratio_to_first", ratio);
    tpc_json_add_u64(w, node, "calls", measured->calls);
    tpc_json_node_t *paths = tpc_json_add_object(w, node, "path_calls");
    for (tpcomm_path_t path = 1; path < TPC_PATH_END; path++)
        if (measured->path_calls[path] > 0)
            tpc_json_add_u64(w, paths, tpcomm_path_name(path), measured->path_calls[path]);
    tpc_json_add_bool(w, node, "as_expected", bench_as_expected(measured));
    tpc_json_add_u64(w, node, "checked", measured->checked);
    tpc_json_add_u64(w, node, "wrong", measured->wrong);
}

static void add_row(tpc_json_writer_t *w, tpc_json_node_t *list, const bench_sweep_t *sweep,
                    const bench_sweep_row_t *row, size_t p, int32_t ranks) {
    static const char *const sources[] = {"none", "measured", "estimated"};
    const bench_work_t *work = &row->work;
    int place = sweep->place[BENCH_OUT_OF_PLACE] ? BENCH_OUT_OF_PLACE : BENCH_IN_PLACE;
    const bench_measured_t *measured = &row->measured[p][place];
    const tpcomm_decision_t *decision = &measured->decision;
    bool moves = tpc_coll_moves_data(work->coll);
    tpc_json_node_t *node = tpc_json_add_object(w, list, NULL);
    tpc_json_add_string(w, node, "coll", tpcomm_coll_name(work->coll));
    tpc_json_add_u64(w, node, "bytes", row->bytes);
    tpc_json_add_u64(w, node, "count", work->count);
    if (work->hidden)
        tpc_json_add_u64(w, node, "hidden", work->hidden);
    else
        bench_json_null(w, node, "hidden");
    tpc_json_add_string(w, node, "dtype", moves ? tpcomm_dtype_name(work->dtype) : NULL);
    tpc_json_add_string(w, node, "redop", tpc_coll_reduces(work->coll) ? tpcomm_op_name(work->op) : NULL);
    if (work->coll == TPCOMM_BROADCAST)
        tpc_json_add_i64(w, node, "root", work->root);
    else
        bench_json_null(w, node, "root");
    tpc_json_add_string(w, node, "path_asked", bench_sweep_asked(sweep, p));
    tpc_json_add_string(w, node, "path", bench_sweep_taken(sweep, p, measured));
    tpc_json_add_string(w, node, "path_expected", decision->path ? tpcomm_path_name(decision->path) : NULL);
    bench_json_text(w, node, "reason", decision->reason);
    tpc_json_add_string(w, node, "source",
                        decision->source >= 0 && decision->source < 3 ? sources[decision->source] : "none");
    tpc_json_add_double(w, node, "expected_us",
                        decision->path && decision->expected_ns >= 0 ? (double)decision->expected_ns / 1000 : NAN);
    bench_json_text(w, node, "refused", measured->refused ? measured->why : NULL);
    tpc_json_add_string(w, node, "buffers", sweep->cold || row->bytes > BENCH_HOT_BYTES / 4 ? "cold" : "hot");
    for (int k = 0; k < BENCH_PLACES; k++) add_place(w, node, row, p, k, ranks);
    bench_sweep_json_extras(w, node, sweep, row, p, ranks);
}

tpcomm_status_t bench_sweep_json(const bench_sweep_t *sweep, const bench_sweep_result_t *result) {
    tpc_json_writer_t *w;
    tpcomm_status_t status = tpc_json_load_library(NULL);
    if (status == TPCOMM_OK) status = tpc_json_writer_new(SWEEP_SCHEMA, &w);
    if (status != TPCOMM_OK) return status;
    tpc_json_node_t *root = tpc_json_writer_root(w);
    tpc_json_node_t *manifest = tpc_json_add_object(w, root, "manifest");
    bench_manifest_add(w, manifest, &result->manifest, NULL, NULL);
    add_settings(w, manifest, sweep, result);
    tpc_json_node_t *rows = tpc_json_add_array(w, root, "rows");
    for (size_t r = 0; r < result->row_count; r++)
        for (size_t p = 0; p < sweep->path_count; p++)
            add_row(w, rows, sweep, &result->rows[r], p, result->manifest.info.size);
    bench_json_checked(w, root, result->checked, result->wrong);
    bench_manifest_add_caveats(w, root, &result->manifest);
    status = tpc_json_write_file(w, sweep->json_path);
    tpc_json_writer_free(w);
    return status;
}
