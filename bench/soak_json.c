/* SPDX-License-Identifier: Apache-2.0 */
/** A soak as JSON: tpcomm-soak/1 (docs/schema/soak.json). */
#include "soak.h"

#define SOAK_SCHEMA "tpcomm-soak/1"

static void add_sample(tpc_json_writer_t *w, tpc_json_node_t *node, const bench_soak_sample_t *sample, bool gpu) {
    tpc_json_add_double(w, node, "at_s", sample->at_s);
    tpc_json_add_u64(w, node, "calls", sample->calls);
    tpc_json_add_u64(w, node, "descriptors", sample->descriptors);
    tpc_json_add_u64(w, node, "threads", sample->threads);
    tpc_json_add_u64(w, node, "resident_kib", sample->resident_kib);
    if (gpu)
        tpc_json_add_u64(w, node, "device_free_bytes", sample->device_free_bytes);
    else
        bench_json_null(w, node, "device_free_bytes");
}

static void add_rank(tpc_json_writer_t *w, tpc_json_node_t *node, int32_t rank, const void *arg) {
    const bench_soak_result_t *result = arg;
    bool gpu = result->manifest.ranks[rank].has_gpu != 0;
    add_sample(w, tpc_json_add_object(w, node, "warm"), &result->before[rank], gpu);
    add_sample(w, tpc_json_add_object(w, node, "end"), &result->after[rank], gpu);
}

static void add_counts(tpc_json_writer_t *w, tpc_json_node_t *node, const bench_soak_counts_t *counts) {
    tpc_json_node_t *calls = tpc_json_add_object(w, node, "calls");
    for (tpcomm_coll_t coll = 1; coll < TPC_COLL_END; coll++)
        if (counts->calls[coll] > 0) tpc_json_add_u64(w, calls, tpcomm_coll_name(coll), counts->calls[coll]);
    tpc_json_node_t *paths = tpc_json_add_object(w, node, "path_steps");
    for (tpcomm_path_t path = 1; path < TPC_PATH_END; path++)
        if (counts->paths[path] > 0) tpc_json_add_u64(w, paths, tpcomm_path_name(path), counts->paths[path]);
    tpc_json_add_u64(w, node, "steps", counts->steps);
    tpc_json_add_u64(w, node, "in_place", counts->in_place);
    tpc_json_add_u64(w, node, "misaligned", counts->misaligned);
    tpc_json_add_u64(w, node, "graphs", counts->graphs);
    tpc_json_add_u64(w, node, "replays", counts->replays);
    tpc_json_add_u64(w, node, "groups", counts->groups);
    tpc_json_add_u64(w, node, "host_messages", counts->host_messages);
}

tpcomm_status_t bench_soak_json(const bench_soak_t *soak, const bench_soak_result_t *result) {
    tpc_json_writer_t *w;
    tpcomm_status_t status = tpc_json_load_library(NULL);
    if (status == TPCOMM_OK) status = tpc_json_writer_new(SOAK_SCHEMA, &w);
    if (status != TPCOMM_OK) return status;
    tpc_json_node_t *root = tpc_json_writer_root(w), *manifest = tpc_json_add_object(w, root, "manifest");
    bench_manifest_add(w, manifest, &result->manifest, add_rank, result);
    tpc_json_node_t *settings = tpc_json_add_object(w, manifest, "settings");
    tpc_json_add_double(w, settings, "seconds", soak->seconds);
    tpc_json_add_u64(w, settings, "seed", soak->seed);
    tpc_json_add_u64(w, settings, "first", soak->first);
    tpc_json_add_u64(w, settings, "stretches", soak->stretches);
    tpc_json_add_u64(w, settings, "max_bytes", soak->max_bytes);
    tpc_json_add_double(w, root, "ran_s", result->ran_s);
    tpc_json_add_u64(w, root, "stretches", result->stretches);
    bench_json_hex(w, root, "plan", result->plan);
    add_counts(w, tpc_json_add_object(w, root, "done"), &result->counts);
    bench_json_checked(w, root, result->counts.checked, result->counts.wrong);
    tpc_json_add_bool(w, root, "flat", result->flat);
    tpc_json_node_t *samples = tpc_json_add_array(w, root, "samples");
    for (size_t i = 0; i < result->sample_count; i++)
        add_sample(w, tpc_json_add_object(w, samples, NULL), &result->samples[i],
                   result->manifest.ranks[0].has_gpu != 0);
    bench_manifest_add_caveats(w, root, &result->manifest);
    status = tpc_json_write_file(w, soak->json_path);
    tpc_json_writer_free(w);
    return status;
}
