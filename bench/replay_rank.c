/* SPDX-License-Identifier: Apache-2.0 */
/** One rank's run of a replay: what it needs before the timed part, and what all ranks bring together after it. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "lists.h"
#include "measure.h"
#include "random.h"
#include "replay_run.h"

void bench_result_free(bench_result_t *result) {
    free(result->draws);
    free(result->iterations);
    free(result->call_ns);
    free(result->sizes);
    memset(result, 0, sizeof *result);
}

/* ---------------------------------------------------------------- before the timed part */

static uint64_t mix(uint64_t hash, uint64_t value) {
    return bench_random_mix(hash * UINT64_C(0x9e3779b97f4a7c15) + value + 1);
}

/** All that decides what the ranks will run, in 64 bits. */
static uint64_t settings_hash(const bench_replay_t *replay) {
    const uint64_t parts[] = {replay->histogram.hash,
                              replay->model.hidden,
                              replay->calls,
                              (uint64_t)replay->dtype,
                              (uint64_t)replay->path,
                              (uint64_t)replay->phase,
                              replay->iterations,
                              replay->seed,
                              replay->warmup_calls,
                              replay->lump,
                              replay->padding.count,
                              replay->graph,
                              replay->fused,
                              (uint64_t)replay->beside,
                              (uint64_t)replay->beside_path};
    uint64_t hash = 0;
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) hash = mix(hash, parts[i]);
    for (size_t i = 0; i < replay->padding.count; i++) hash = mix(hash, replay->padding.sizes[i]);
    return hash;
}

static tpcomm_status_t agree_on_settings(const bench_run_t *run) {
    const bench_manifest_t *manifest = &run->result->manifest;
    return bench_agree_on_options(run->comm, settings_hash(run->replay), manifest->argc, manifest->argv);
}

static tpcomm_status_t read_facts(bench_run_t *run) {
    bench_result_t *result = run->result;
    run->rank = result->manifest.info.rank;
    run->ranks = result->manifest.info.size;
    result->samples = run->device->gpu ? 1 : run->replay->calls;
    if (run->replay->graph && !run->device->gpu)
        return tpc_error(TPCOMM_ERR_UNSUPPORTED, "--mode graph: the ranks compute on the cpu device");
    if (run->replay->gap_us > 0 && run->device->gpu)
        return tpc_error(TPCOMM_ERR_UNSUPPORTED, "--gap-us: on a GPU there is no compute to put between two calls");
    for (tpcomm_stats_t stats = {.struct_size = sizeof stats}; run->stats_count < TPC_PATH_END; run->stats_count++)
        if (tpcomm_stats(run->comm, run->stats_count, &stats) != TPCOMM_OK) break; /* past the last */
    return TPCOMM_OK;
}

/** Whether a path carries messages of every size of the range. */
static bool can_carry(const bench_run_t *run, tpcomm_path_t path, const uint32_t range[BENCH_WARMUP_SIZES]) {
    for (size_t i = 0; i < BENCH_WARMUP_SIZES; i++) {
        tpcomm_call_t call = bench_run_describe(run->replay, bench_replay_elements(run->replay, range[i]), path);
        if (run->replay->graph) call.flags = TPCOMM_CALL_CAPTURED;
        tpcomm_decision_t decision = {.struct_size = sizeof decision};
        if (tpcomm_explain(run->comm, &call, &decision) != TPCOMM_OK) return false;
    }
    return true;
}

/** The path to run every iteration by too; the same on every rank. */
static tpcomm_status_t choose_beside(bench_run_t *run, const uint32_t range[BENCH_WARMUP_SIZES]) {
    const bench_replay_t *replay = run->replay;
    const bench_manifest_t *manifest = &run->result->manifest;
    tpcomm_path_t nccl = 0;
    if (replay->beside == BENCH_BESIDE_PATH) {
        if (!can_carry(run, replay->beside_path, range)) return tpc_error_prefix(TPCOMM_ERR_UNSUPPORTED, "--beside");
        run->result->beside = replay->beside_path;
    } else if (replay->beside == BENCH_BESIDE_AUTO && manifest->ranks[0].has_gpu && !manifest->shares_gpu &&
               run->ranks > 1 && tpc_path_parse("nccl", &nccl) && replay->path != nccl && can_carry(run, nccl, range)) {
        run->result->beside = nccl;
    }
    return TPCOMM_OK;
}

/** A run that has to end in time begins with what is sure to get done. */
static void put_short_one_first(bench_result_t *result, uint32_t middle) {
    for (uint64_t i = 0; i < result->planned; i++) {
        bench_draw_t first = result->draws[i];
        if (first.tokens > middle) continue;
        result->draws[i] = result->draws[0];
        result->draws[0] = first;
        return;
    }
}

static int compare_tokens(const void *a, const void *b) {
    const bench_size_t *x = a, *y = b;
    return (x->tokens > y->tokens) - (x->tokens < y->tokens);
}

static tpcomm_status_t explain(const bench_run_t *run, uint32_t tokens, tpcomm_decision_t *decision_p) {
    tpcomm_call_t call = bench_run_describe(run->replay, bench_replay_elements(run->replay, tokens), run->replay->path);
    if (run->replay->graph) call.flags = TPCOMM_CALL_CAPTURED;
    *decision_p = (tpcomm_decision_t){.struct_size = sizeof *decision_p};
    return tpcomm_explain(run->comm, &call, decision_p);
}

/** What a rank needs before its first call: data, buffers, and a path for the sizes. */
static tpcomm_status_t make_ready(bench_run_t *run, const uint32_t range[BENCH_WARMUP_SIZES]) {
    const bench_replay_t *replay = run->replay;
    tpcomm_status_t status =
        bench_data_new(&(bench_data_spec_t){.dtype = replay->dtype,
                                            .op = TPCOMM_SUM,
                                            .rank = run->rank,
                                            .ranks = run->ranks,
                                            .seed = replay->seed,
                                            .hidden = replay->fused ? (uint32_t)replay->model.hidden : 0},
                       &run->data);
    for (size_t i = 0; i < BENCH_WARMUP_SIZES && status == TPCOMM_OK; i++) {
        tpcomm_decision_t decision;
        status = explain(run, range[i], &decision);
    }
    return status == TPCOMM_OK ? bench_buffers_new(replay, run->device, run->data, range[2], &run->buffers) : status;
}

/** The distinct sizes of the plan, ascending, with what the library says of each; and of each iteration which it is. */
static tpcomm_status_t plan_sizes(bench_run_t *run) {
    const bench_replay_t *replay = run->replay;
    bench_result_t *result = run->result;
    result->sizes = calloc((size_t)result->planned, sizeof *result->sizes);
    result->iterations = calloc((size_t)result->planned, sizeof *result->iterations);
    /* Every rank's samples come together on rank 0. */
    if (run->rank == 0) result->call_ns = malloc((size_t)(result->planned * result->samples) * sizeof *result->call_ns);
    if (!result->sizes || !result->iterations || (run->rank == 0 && !result->call_ns))
        return tpc_error(TPCOMM_ERR_NO_MEMORY, "no memory for the times of %" PRIu64 " iterations of %" PRIu64 " calls",
                         result->planned, replay->calls);
    for (uint64_t i = 0; i < result->planned; i++) result->sizes[i].tokens = result->draws[i].tokens;
    qsort(result->sizes, (size_t)result->planned, sizeof *result->sizes, compare_tokens);
    for (uint64_t i = 0; i < result->planned; i++)
        if (i == 0 || result->sizes[i].tokens != result->sizes[result->size_count - 1].tokens)
            result->sizes[result->size_count++] = result->sizes[i];
    for (uint64_t i = 0; i < result->planned; i++) {
        bench_size_t key = {.tokens = result->draws[i].tokens};
        const bench_size_t *size = bsearch(&key, result->sizes, result->size_count, sizeof key, compare_tokens);
        result->iterations[i].draw = result->draws[i];
        result->iterations[i].size = (size_t)(size - result->sizes);
    }
    for (size_t i = 0; i < result->size_count; i++) {
        bench_size_t *size = &result->sizes[i];
        size->bytes = bench_replay_bytes(replay, size->tokens);
        tpcomm_status_t status = explain(run, size->tokens, &size->decision);
        if (status != TPCOMM_OK) return status;
    }
    return TPCOMM_OK;
}

/* ---------------------------------------------------------------- after it */

/** Forget the sizes that a run which stopped early never came to. */
static void drop_unused_sizes(bench_result_t *result) {
    size_t kept = 0;
    for (size_t s = 0; s < result->size_count; s++) {
        if (result->sizes[s].calls == 0) continue;
        for (uint64_t i = 0; i < result->done; i++)
            if (result->iterations[i].size == s) result->iterations[i].size = kept;
        result->sizes[kept++] = result->sizes[s];
    }
    result->size_count = kept;
}

/** Add up what each rank counted for itself. */
static tpcomm_status_t gather_counts(bench_run_t *run) {
    enum { PER_SIZE = TPC_PATH_END + 3 };
    bench_result_t *result = run->result;
    size_t count = result->size_count * PER_SIZE + TPCOMM_MAX_RANKS + 2, at = 0;
    uint64_t *values = calloc(count, sizeof *values);
    if (!values) return tpc_error(TPCOMM_ERR_NO_MEMORY, "no memory to gather counts");
    for (int pass = 0; pass < 2; pass++, at = 0) {
#define EXCHANGE(field)                                                                                                \
    do {                                                                                                               \
        if (pass == 0)                                                                                                 \
            values[at++] = (field);                                                                                    \
        else                                                                                                           \
            (field) = values[at++];                                                                                    \
    } while (0)
        for (size_t i = 0; i < result->size_count; i++) {
            bench_size_t *size = &result->sizes[i];
            for (int path = 0; path < TPC_PATH_END; path++) EXCHANGE(size->path_calls[path]);
            EXCHANGE(size->wire_bytes);
            EXCHANGE(size->checked);
            EXCHANGE(size->wrong);
        }
        for (int32_t rank = 0; rank < TPCOMM_MAX_RANKS; rank++) EXCHANGE(result->ranks[rank].last_starts);
        EXCHANGE(run->checked);
        EXCHANGE(run->wrong);
#undef EXCHANGE
        tpcomm_status_t status = pass == 0 ? bench_run_reduce(run, values, count, TPCOMM_SUM) : TPCOMM_OK;
        if (status == TPCOMM_OK) continue;
        free(values);
        return status;
    }
    result->checked = run->checked;
    result->wrong = run->wrong;
    free(values);
    return TPCOMM_OK;
}

tpcomm_status_t bench_replay_rank(const bench_replay_t *replay, tpcomm_t *comm, bench_device_t *device,
                                  bench_result_t *result) {
    bench_run_t run;
    uint32_t range[BENCH_WARMUP_SIZES];
    tpcomm_status_t status;
    memset(&run, 0, sizeof run);
    run.replay = replay;
    run.comm = comm;
    run.device = device;
    run.result = result;
    if ((status = bench_manifest_begin(comm, device, replay->argc, replay->argv, &result->manifest)) != TPCOMM_OK)
        return status;
    if ((status = bench_agree(comm, read_facts(&run))) != TPCOMM_OK) return status;
    if ((status = agree_on_settings(&run)) != TPCOMM_OK) return status;

    bench_plan_range(&replay->histogram, replay->phase, &replay->padding, range);
    status = choose_beside(&run, range);
    if (status == TPCOMM_OK) status = make_ready(&run, range);
    if ((status = bench_agree(comm, status)) != TPCOMM_OK) goto out;
    if ((status = bench_run_warmup(&run, range)) != TPCOMM_OK) goto out;
    if ((status = bench_run_plan_length(&run, &result->planned)) != TPCOMM_OK) goto out;
    status = bench_plan_draw(&replay->histogram, replay->phase, &replay->padding, replay->seed, result->planned,
                             &result->draws);
    if (status == TPCOMM_OK && replay->iterations == 0) put_short_one_first(result, range[1]);
    if (status == TPCOMM_OK) status = plan_sizes(&run);
    if ((status = bench_agree(comm, status)) != TPCOMM_OK) goto out;
    if (replay->graph && (status = bench_run_capture(&run)) != TPCOMM_OK) goto out;
    if ((status = bench_run_iterations(&run)) != TPCOMM_OK) goto out;
    if ((status = bench_run_settle(&run)) != TPCOMM_OK) goto out;
    bench_run_captured_free(&run);
    if (result->stopped) drop_unused_sizes(result);
    if ((status = gather_counts(&run)) != TPCOMM_OK) goto out;
    status = bench_manifest_end(comm, device, &result->manifest);
out:
    if (status != TPCOMM_OK) { /* wakes the others, before memory is freed that their kernels may still write */
        char text[TPC_ERROR_BYTES];
        snprintf(text, sizeof text, "%s", tpcomm_last_error());
        tpcomm_abort(comm, text);
        (void)bench_device_sync(device);
        tpc_error(status, "%s", text);
    }
    bench_run_captured_free(&run);
    bench_buffers_free(device, &run.buffers);
    bench_data_free(run.data);
    return status;
}
