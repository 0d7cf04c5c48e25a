/* SPDX-License-Identifier: Apache-2.0 */
/** The iterations of a replay as CUDA graphs: one a size, as an engine keeps them. All are made before the timed part.
 */
#include <stdlib.h>

#include "bench.h"
#include "measure.h"
#include "replay_run.h"

static tpcomm_status_t capture_one(bench_run_t *run, uint32_t tokens, tpcomm_path_t path, bench_graph_t **graph_p) {
    char text[TPC_ERROR_BYTES];
    tpcomm_status_t status = bench_gpu_capture_begin(run->device->gpu);
    if (status != TPCOMM_OK) return status;
    for (uint64_t i = 0; i < run->replay->calls && status == TPCOMM_OK; i++)
        status = bench_run_call_number(run, tokens, i, 0, path);
    snprintf(text, sizeof text, "%s", tpcomm_last_error());
    tpcomm_status_t ended = bench_gpu_capture_end(run->device->gpu, graph_p);
    return status == TPCOMM_OK ? ended : tpc_error(status, "%s", text);
}

static tpcomm_status_t capture_size(bench_run_t *run, size_t s) {
    bench_captured_t *captured = &run->captured[s];
    uint32_t tokens = run->result->sizes[s].tokens;
    bench_counters_t before, after;
    tpcomm_status_t status = bench_run_counters(run, &before);
    if (status == TPCOMM_OK) status = capture_one(run, tokens, run->replay->path, &captured->graph);
    if (status == TPCOMM_OK) status = bench_run_counters(run, &after);
    for (int32_t i = 0; i < run->stats_count && status == TPCOMM_OK; i++) {
        const tpcomm_stats_t *a = &before.stats[i], *b = &after.stats[i];
        if (b->path >= 0 && b->path < TPC_PATH_END) captured->path_calls[b->path] += b->calls - a->calls;
        captured->wire_bytes += b->wire_bytes - a->wire_bytes;
    }
    if (status == TPCOMM_OK && run->result->beside)
        status = capture_one(run, tokens, run->result->beside, &captured->beside);
    return status;
}

tpcomm_status_t bench_run_capture(bench_run_t *run) {
    run->captured = calloc(run->result->size_count, sizeof *run->captured);
    tpcomm_status_t status = run->captured ? bench_run_settle(run) : tpc_error(TPCOMM_ERR_NO_MEMORY, "no memory");
    for (size_t s = 0; s < run->result->size_count && status == TPCOMM_OK; s++) status = capture_size(run, s);
    return bench_agree(run->comm, status);
}

void bench_run_captured_free(bench_run_t *run) {
    for (size_t s = 0; run->captured && s < run->result->size_count; s++) {
        bench_graph_free(run->captured[s].graph);
        bench_graph_free(run->captured[s].beside);
    }
    free(run->captured);
    run->captured = NULL;
}
