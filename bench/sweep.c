/* SPDX-License-Identifier: Apache-2.0 */
/** tpcomm-bench sweep: one collective over a range of sizes, in the habits of nccl-tests. */
#include "sweep.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench.h"
#include "lane.h"
#include "lists.h"
#include "options.h"
#include "ranks.h"
#include "session.h"

#define SEED_MAX ((UINT64_C(1) << 53) - 1) /* exact in JSON */

#define COLL_WORDS "all_reduce|broadcast|all_gather|reduce_scatter|barrier|all_reduce_rms_norm"
static const tpcomm_coll_t coll_values[] = {TPCOMM_ALL_REDUCE,     TPCOMM_BROADCAST, TPCOMM_ALL_GATHER,
                                            TPCOMM_REDUCE_SCATTER, TPCOMM_BARRIER,   TPCOMM_ALL_REDUCE_RMS_NORM};

typedef struct {
    const char *min_bytes, *max_bytes, *step_bytes, *dtype, *redop, *path, *json;
    bench_where_t where;
    uint64_t factor, iters, warmup, root, hidden, calls, seed, cycles;
    double row_ms;
    int32_t op, mode, place;
    bool verify_path, cold, chain, footprint, arrivals, nccl_evidence;
} settings_t;

enum { PLACE_BOTH, PLACE_OUT, PLACE_IN };

static const bench_option_t options[] = {
    BENCH_LETTER_TEXT("minbytes", 'b', settings_t, min_bytes, "SIZE",
                      "smallest message; K, M and G are powers of 1024"),
    BENCH_LETTER_TEXT("maxbytes", 'e', settings_t, max_bytes, "SIZE", "greatest message"),
    BENCH_U64("stepfactor", 'f', settings_t, factor, "F", 2, 1024, "every size is the one before times F"),
    BENCH_LETTER_TEXT("stepbytes", 'i', settings_t, step_bytes, "SIZE",
                      "every size is the one before plus SIZE, in place of -f"),
    BENCH_U64("iters", 'n', settings_t, iters, "N", 1, 1000000,
              "samples of every measurement, rounded up to tens; as many as fit --row-ms, 20 to 1000, unless given"),
    BENCH_U64("warmup", 'w', settings_t, warmup, "W", 2, 100000, "calls before every measurement, not counted"),
    BENCH_WORD("op", settings_t, op, COLL_WORDS, "the collective"),
    BENCH_LETTER_TEXT("dtype", 'd', settings_t, dtype, "LIST", "types of an element: bf16,f16,f32,..."),
    BENCH_LETTER_TEXT("redop", 'o', settings_t, redop, "LIST", "reductions: sum,avg,max,min,prod"),
    BENCH_U64("root", 'r', settings_t, root, "R", 0, TPCOMM_MAX_RANKS - 1, "of a broadcast"),
    BENCH_U64("hidden", 0, settings_t, hidden, "H", 8, 16384, "elements of a row, with all_reduce_rms_norm"),
    BENCH_TEXT("path", false, settings_t, path, "LIST",
               "paths, measured by turns in one run: oneshot,nccl,...; auto: the library's choice; nccl_direct: NCCL\n"
               "called without this library, nccl_window: likewise, in its symmetric windows"),
    BENCH_WHERE_OPTIONS(settings_t, where, 1),
    BENCH_WORD("mode", settings_t, mode, "eager|graph", "one call after the other, or a CUDA graph of --calls calls"),
    BENCH_U64("calls", 0, settings_t, calls, "C", 1, 10000, "dependent calls of one sample on a GPU"),
    BENCH_WORD("place", settings_t, place, "both|out|in", "out of place, in place, or both"),
    BENCH_FLAG("cold", settings_t, cold, "buffers that are in no cache when a call begins"),
    BENCH_FLAG("chain", settings_t, chain,
               "also: what a call adds between something that writes its input and something that reads its output"),
    BENCH_FLAG("footprint", settings_t, footprint,
               "also: blocks and threads of a call's kernels, and how much they slow a matrix product beside them"),
    BENCH_FLAG("arrivals", settings_t, arrivals,
               "also: by the GPUs' clocks, how far apart the ranks come to a call, and how long each waits"),
    BENCH_FLAG("nccl-evidence", settings_t, nccl_evidence,
               "also: algorithm, protocol, channels and transport that NCCL chose, out of its own log"),
    BENCH_DOUBLE("row-ms", settings_t, row_ms, "MS", 1.0, 3.6e6, "time for the samples of one measurement without -n"),
    BENCH_U64("seed", 0, settings_t, seed, "S", 0, SEED_MAX, "decides the data"),
    BENCH_FLAG("verify-path", settings_t, verify_path,
               "fail where the library's counters name another path than tpcomm_explain did"),
    BENCH_U64("cycles", 0, settings_t, cycles, "K", 1, 1000,
              "run it in K fresh processes, one after the other, and bring "
              "their medians together"),
    BENCH_TEXT("json", false, settings_t, json, "FILE", "write everything to FILE too (tpcomm-sweep/1)"),
};

static const settings_t defaults = {.min_bytes = "1K",
                                    .max_bytes = "16M",
                                    .step_bytes = "0",
                                    .factor = 2,
                                    .warmup = 5,
                                    .dtype = "bf16",
                                    .redop = "sum",
                                    .path = "auto",
                                    .hidden = 8192,
                                    .where = {.ranks = 2},
                                    .calls = 50,
                                    .row_ms = 200,
                                    .seed = 1,
                                    .cycles = 1};

static const bench_foreign_letter_t nccl_tests_letters[] = {
    {'g', "nccl-tests' GPUs of a thread; here --ranks N is how many ranks there are, --devices LIST their GPUs"},
    {'t', "nccl-tests' threads; here --ranks N, with --threads for ranks of one process"},
    {'c', "nccl-tests' check; here every element is checked, always"},
    {'m', "nccl-tests' calls of a batch; here --calls C"},
    {'G', "nccl-tests' graph launches; here --mode graph, with --calls C"},
    {'N', "nccl-tests' run cycles; here --cycles K"},
    {'a', "nccl-tests' average over ranks; here a time is always the slowest rank's"},
    {'z', "nccl-tests' blocking; here eager calls never wait on the host"},
    {'T', "nccl-tests' timeout; here TPCOMM_OP_TIMEOUT_MS"},
    {'R', "nccl-tests' registration; here --path nccl_window"},
    {0, NULL}};

static const bench_options_t table = {
    .command = "sweep",
    .foreign = nccl_tests_letters,
    .about =
        "Measure a collective over a range of message sizes on N ranks and check every element on every rank. The\n"
        "columns are nccl-tests', and more; docs/sweep.md explains them.\n"
        "Exit code: 0 ok, 1 an element was wrong or nothing was checked, 2 usage or input, 3 the communicator\n"
        "failed. Where a launcher started the ranks, rank 0 prints and gives the verdict.",
    .options = options,
    .count = sizeof options / sizeof options[0],
    .defaults = &defaults,
    .settings_bytes = sizeof defaults,
};

/* ---------------------------------------------------------------- settings */

static tpcomm_status_t prepare(const settings_t *settings, bench_sweep_t *sweep) {
    tpcomm_status_t status = bench_parse_size("minbytes", settings->min_bytes, &sweep->min_bytes);
    if (status == TPCOMM_OK) status = bench_parse_size("maxbytes", settings->max_bytes, &sweep->max_bytes);
    if (status == TPCOMM_OK) status = bench_parse_size("stepbytes", settings->step_bytes, &sweep->step_bytes);
    if (status == TPCOMM_OK && sweep->min_bytes == 0)
        status = tpc_error(TPCOMM_ERR_INVALID_ARG, "--minbytes 0: a message of no bytes says nothing");
    if (status == TPCOMM_OK && sweep->max_bytes < sweep->min_bytes)
        status = tpc_error(TPCOMM_ERR_INVALID_ARG, "--maxbytes %s is below --minbytes %s", settings->max_bytes,
                           settings->min_bytes);
    if (status == TPCOMM_OK)
        status = bench_parse_list("dtype", settings->dtype, tpc_dtype_parse, bench_dtype_names, sweep->dtypes,
                                  BENCH_SWEEP_DTYPES_MAX, &sweep->dtype_count);
    if (status == TPCOMM_OK)
        status = bench_parse_list("redop", settings->redop, tpc_op_parse, bench_op_names, sweep->ops,
                                  BENCH_SWEEP_OPS_MAX, &sweep->op_count);
    int32_t paths[BENCH_SWEEP_PATHS_MAX];
    if (status == TPCOMM_OK)
        status = bench_parse_list("path", settings->path, bench_sweep_parse_path, bench_path_names, paths,
                                  BENCH_SWEEP_PATHS_MAX, &sweep->path_count);
    for (size_t p = 0; p < sweep->path_count && status == TPCOMM_OK; p++) bench_sweep_set_path(sweep, p, paths[p]);
    if (status == TPCOMM_OK) status = bench_fault_read(&sweep->fault);
    if (status == TPCOMM_OK) status = bench_check_writable("--json", settings->json);
    if (status != TPCOMM_OK) return status;
    sweep->step_factor = settings->factor;
    sweep->coll = coll_values[settings->op];
    sweep->root = (int32_t)settings->root;
    sweep->place[BENCH_OUT_OF_PLACE] = settings->place != PLACE_IN;
    sweep->place[BENCH_IN_PLACE] = settings->place != PLACE_OUT;
    if (!tpc_coll_moves_data(sweep->coll)) { /* nothing to be in place */
        sweep->place[BENCH_OUT_OF_PLACE] = true;
        sweep->place[BENCH_IN_PLACE] = false;
    }
    if (sweep->coll == TPCOMM_ALL_REDUCE_RMS_NORM) {
        if (settings->hidden % 8 != 0)
            return tpc_error(TPCOMM_ERR_INVALID_ARG, "--hidden %llu: a row is a multiple of 8 elements",
                             (unsigned long long)settings->hidden);
        if (sweep->op_count != 1 || sweep->ops[0] != TPCOMM_SUM)
            return tpc_error(TPCOMM_ERR_INVALID_ARG, "--redop %s: all_reduce_rms_norm is a sum", settings->redop);
        if (settings->place == PLACE_IN)
            return tpc_error(TPCOMM_ERR_INVALID_ARG, "--place in: all_reduce_rms_norm is measured out of place");
        sweep->hidden = (uint32_t)settings->hidden;
        sweep->place[BENCH_OUT_OF_PLACE] = true;
        sweep->place[BENCH_IN_PLACE] = false;
    }
    if (settings->chain && (!tpc_coll_moves_data(sweep->coll) || !sweep->place[BENCH_OUT_OF_PLACE]))
        return tpc_error(TPCOMM_ERR_INVALID_ARG, "--chain: a call with data, out of place");
    sweep->cold = settings->cold;
    sweep->chain = settings->chain;
    sweep->nccl_evidence = settings->nccl_evidence;
    sweep->probing = (bench_probing_t){settings->footprint, settings->arrivals};
    sweep->verify_path = settings->verify_path;
    sweep->json_path = settings->json;
    sweep->how = (bench_measuring_t){.graph = settings->mode == 1,
                                     .calls = (uint32_t)settings->calls,
                                     .samples = settings->iters,
                                     .warmup_calls = settings->warmup,
                                     .budget_ms = settings->row_ms,
                                     .seed = settings->seed};
    return TPCOMM_OK;
}

/** Options that were given, but change nothing of what was asked for. */
static void note_idle(const settings_t *settings, const bench_options_rest_t *rest, bench_sweep_t *sweep) {
    bool moves = tpc_coll_moves_data(sweep->coll);
    const struct {
        const char *name;
        bool idle;
    } all[] = {{"stepfactor", sweep->step_bytes > 0},
               {"stepbytes", sweep->step_bytes == 0},
               {"row-ms", settings->iters > 0},
               {"dtype", !moves},
               {"place", !moves && settings->place != PLACE_BOTH},
               {"redop", !tpc_coll_reduces(sweep->coll)},
               {"root", sweep->coll != TPCOMM_BROADCAST},
               {"hidden", sweep->hidden == 0},
               {"calls", settings->where.device == BENCH_DEVICE_CPU || !BENCH_CUDA}};
    size_t used = 0;
    for (size_t i = 0; i < sizeof all / sizeof all[0] && used < sizeof sweep->idle; i++)
        if (all[i].idle && bench_options_given(&table, rest, all[i].name))
            used += (size_t)snprintf(sweep->idle + used, sizeof sweep->idle - used, "%s--%s", used > 0 ? ", " : "",
                                     all[i].name);
}

/* ---------------------------------------------------------------- one rank */

/** The ranks of a launcher may have been started with different options. */
static uint64_t hash_settings(const bench_sweep_t *sweep) {
    uint64_t hash = BENCH_HASH_START;
    const uint64_t numbers[] = {(uint64_t)sweep->coll,
                                sweep->min_bytes,
                                sweep->max_bytes,
                                sweep->step_bytes,
                                sweep->step_factor,
                                (uint64_t)sweep->root,
                                sweep->place[0],
                                sweep->place[1],
                                sweep->how.graph,
                                sweep->how.calls,
                                sweep->how.samples,
                                sweep->how.warmup_calls,
                                sweep->how.seed,
                                (uint64_t)sweep->path_count,
                                (uint64_t)sweep->dtype_count,
                                (uint64_t)sweep->op_count,
                                sweep->hidden,
                                sweep->cold,
                                sweep->chain,
                                sweep->probing.footprint,
                                sweep->probing.arrivals,
                                sweep->verify_path};
    hash = bench_hash_more(hash, numbers, sizeof numbers);
    hash = bench_hash_more(hash, sweep->dtypes, sweep->dtype_count * sizeof sweep->dtypes[0]);
    hash = bench_hash_more(hash, sweep->ops, sweep->op_count * sizeof sweep->ops[0]);
    hash = bench_hash_more(hash, sweep->paths, sweep->path_count * sizeof sweep->paths[0]);
    hash = bench_hash_more(hash, sweep->doers, sweep->path_count * sizeof sweep->doers[0]);
    return bench_hash_more(hash, &sweep->how.budget_ms, sizeof sweep->how.budget_ms);
}

static void show_progress(const bench_sweep_result_t *result, size_t row) {
    if (result->manifest.info.rank != 0 || !isatty(STDERR_FILENO) || isatty(STDOUT_FILENO)) return;
    if (row == result->row_count)
        fputs("\r\033[K", stderr);
    else
        fprintf(stderr, "\r\033[Ksweep: row %zu of %zu, %" PRIu64 " bytes", row + 1, result->row_count,
                result->rows[row].bytes);
}

static void sum_up(const bench_sweep_t *sweep, bench_sweep_row_t *row, bench_sweep_result_t *result) {
    for (size_t p = 0; p < sweep->path_count; p++)
        for (int place = 0; place < BENCH_PLACES; place++) {
            bench_measured_t *measured = &row->measured[p][place];
            if (!sweep->place[place]) continue;
            row->us[p][place] = bench_summarise(measured->us, measured->samples);
            result->checked += measured->checked;
            result->wrong += measured->wrong;
            if (measured->refused) {
                result->refused++;
                continue;
            }
            if (!bench_as_expected(measured)) result->unexpected++;
            if (row->us[p][place].cv_percent > BENCH_UNSTABLE_PERCENT) result->unstable++;
            free(measured->us); /* the samples have said what they had to say */
            measured->us = NULL;
        }
}

/** The variants of a row, and where the results of each go; chains behind the rest, the chain alone last. */
static size_t list_variants(const bench_sweep_t *sweep, bench_variant_t *variants) {
    size_t count = 0;
    for (size_t p = 0; p < sweep->path_count; p++)
        for (int place = 0; place < BENCH_PLACES; place++)
            if (sweep->place[place])
                variants[count++] =
                    (bench_variant_t){sweep->paths[p], place == BENCH_IN_PLACE, sweep->doers[p], BENCH_BARE};
    for (size_t p = 0; p < sweep->path_count && sweep->chain; p++)
        if (sweep->doers[p] != BENCH_NCCL_WINDOW) /* whose windows are others than the chain's buffers */
            variants[count++] = (bench_variant_t){sweep->paths[p], false, sweep->doers[p], BENCH_CHAINED};
    if (sweep->chain) variants[count++] = (bench_variant_t){.setting = BENCH_CHAIN_ALONE};
    return count;
}

static void take_results(const bench_sweep_t *sweep, bench_measured_t *measured, bench_sweep_row_t *row,
                         bench_sweep_result_t *result) {
    size_t at = 0;
    for (size_t p = 0; p < sweep->path_count; p++)
        for (int place = 0; place < BENCH_PLACES; place++)
            if (sweep->place[place]) row->measured[p][place] = measured[at++];
    for (size_t p = 0; p < sweep->path_count && sweep->chain; p++) {
        if (sweep->doers[p] == BENCH_NCCL_WINDOW) continue;
        bench_measured_t *one = &measured[at++];
        row->chain[p] = (bench_sweep_chain_t){bench_summarise(one->us, one->samples), one->checked, one->wrong};
        result->checked += one->checked;
        result->wrong += one->wrong;
        bench_measured_free(one, 1);
    }
    if (!sweep->chain) return;
    row->chain_alone = bench_summarise(measured[at].us, measured[at].samples);
    bench_measured_free(&measured[at], 1);
}

static tpcomm_status_t probe_row(const bench_sweep_t *sweep, bench_prober_t *prober, bench_sweep_row_t *row) {
    int place = sweep->place[BENCH_OUT_OF_PLACE] ? BENCH_OUT_OF_PLACE : BENCH_IN_PLACE;
    tpcomm_status_t status = TPCOMM_OK;
    row->probes = calloc(sweep->path_count, sizeof *row->probes);
    if (!row->probes) return tpc_error(TPCOMM_ERR_NO_MEMORY, "no memory");
    for (size_t p = 0; p < sweep->path_count && status == TPCOMM_OK; p++) {
        bench_variant_t variant = {sweep->paths[p], place == BENCH_IN_PLACE, sweep->doers[p], BENCH_BARE};
        if (!row->measured[p][place].refused)
            status = bench_probe(prober, &row->work, &variant, row->us[p][place].mean, &row->probes[p]);
    }
    return status;
}

static tpcomm_status_t run_row(const bench_sweep_t *sweep, bench_lane_t *lane, bench_prober_t *prober,
                               bench_sweep_row_t *row, bench_sweep_result_t *result) {
    bench_variant_t variants[BENCH_VARIANTS_MAX];
    bench_measured_t measured[BENCH_VARIANTS_MAX];
    memset(measured, 0, sizeof measured);
    size_t count = list_variants(sweep, variants);
    tpcomm_status_t status = bench_measure(lane, &sweep->how, &row->work, variants, count, measured);
    if (status != TPCOMM_OK) {
        bench_measured_free(measured, count);
        return status;
    }
    take_results(sweep, measured, row, result);
    sum_up(sweep, row, result);
    return prober ? probe_row(sweep, prober, row) : TPCOMM_OK;
}

static bool asks_for(const bench_sweep_t *sweep, bench_doer_t doer) {
    for (size_t p = 0; p < sweep->path_count; p++)
        if (sweep->doers[p] == doer) return true;
    return false;
}

static tpcomm_status_t make_lane(const bench_sweep_t *sweep, tpcomm_t *comm, bench_device_t *device,
                                 bench_sweep_result_t *result, bench_lane_t **lane_p, bench_prober_t **prober_p) {
    bench_lane_spec_t spec = {.hidden = sweep->hidden,
                              .cold = sweep->cold,
                              .calls = sweep->how.calls,
                              .chain = sweep->chain,
                              .nccl = asks_for(sweep, BENCH_NCCL),
                              .window = asks_for(sweep, BENCH_NCCL_WINDOW)};
    for (size_t r = 0; r < result->row_count; r++)
        if (result->rows[r].bytes > spec.message_bytes) spec.message_bytes = result->rows[r].bytes;
    tpcomm_status_t status = bench_lane_new("sweep", comm, device, &spec, &sweep->fault, lane_p);
    if (status != TPCOMM_OK) return status;
    if (spec.nccl || spec.window)
        snprintf(result->nccl, sizeof result->nccl, "%s",
                 (*lane_p)->nccl ? bench_nccl_text((*lane_p)->nccl) : (*lane_p)->nccl_missing);
    if (!sweep->probing.footprint && !sweep->probing.arrivals) return TPCOMM_OK;
    status = bench_prober_new(*lane_p, &sweep->how, &sweep->probing, prober_p);
    if (status == TPCOMM_OK) snprintf(result->gemm, sizeof result->gemm, "%s", bench_prober_gemm_text(*prober_p));
    return status;
}

/** All rows; rank 0 prints each as it comes. */
static tpcomm_status_t run_rows(void *arg, tpcomm_t *comm, bench_device_t *device, void *result_arg) {
    const bench_sweep_t *sweep = arg;
    bench_sweep_result_t *result = result_arg;
    bench_lane_t *lane = NULL;
    bench_prober_t *prober = NULL;
    int32_t rank = result->manifest.info.rank, ranks = result->manifest.info.size;
    tpcomm_status_t status = bench_sweep_plan(sweep, ranks, &result->rows, &result->row_count);
    if (status == TPCOMM_OK && sweep->root >= ranks)
        status = tpc_error(TPCOMM_ERR_INVALID_ARG, "--root %d: the ranks are 0 to %d", sweep->root, ranks - 1);
    if (status == TPCOMM_OK && sweep->how.graph && !device->gpu)
        status = tpc_error(TPCOMM_ERR_UNSUPPORTED, "--mode graph: the ranks compute on the cpu device");
    if ((status = bench_agree(comm, status)) != TPCOMM_OK) return status;
    status = make_lane(sweep, comm, device, result, &lane, &prober);
    if (status == TPCOMM_OK && rank == 0) bench_sweep_print_head(stdout, sweep, &result->manifest);
    for (size_t r = 0; r < result->row_count && status == TPCOMM_OK; r++) {
        show_progress(result, r);
        status = run_row(sweep, lane, prober, &result->rows[r], result);
        if (status == TPCOMM_OK && rank == 0) bench_sweep_print_row(stdout, sweep, &result->rows[r], ranks);
    }
    show_progress(result, result->row_count);
    if (status != TPCOMM_OK) { /* wakes the others, before memory is freed that their kernels may still write */
        char text[TPC_ERROR_BYTES];
        snprintf(text, sizeof text, "%s", tpcomm_last_error());
        tpcomm_abort(comm, text);
        bench_prober_free(prober);
        bench_lane_free(lane);
        return tpc_error(status, "%s", text);
    }
    bench_nccl_log_transports(result->transports, sizeof result->transports);
    bench_prober_free(prober);
    bench_lane_free(lane);
    return TPCOMM_OK;
}

static int judge(void *arg, const void *result_arg) {
    const bench_sweep_t *sweep = arg;
    const bench_sweep_result_t *result = result_arg;
    bench_sweep_print_foot(stdout, sweep, result);
    tpcomm_status_t status = sweep->json_path ? bench_sweep_json(sweep, result) : TPCOMM_OK;
    int code = bench_verdict("sweep", status, result->wrong, result->checked);
    if (code != BENCH_EXIT_OK || !sweep->verify_path || result->unexpected == 0) return code;
    fprintf(stderr, "tpcomm-bench sweep: --verify-path: %zu measurements took other paths than explain said\n",
            result->unexpected);
    return BENCH_EXIT_WRONG;
}

typedef struct {
    bench_sweep_t *sweep;
    int argc;
    char **argv;
} job_t;

static void drop_result(void *arg) {
    bench_sweep_result_t *result = arg;
    for (size_t r = 0; result->rows && r < result->row_count; r++) free(result->rows[r].probes);
    free(result->rows);
}

static int run_rank(void *arg, tpcomm_t *comm, bench_device_t *device) {
    job_t *job = arg;
    bench_session_t session = {.command = "sweep",
                               .argc = job->argc,
                               .argv = job->argv,
                               .result_bytes = sizeof(bench_sweep_result_t),
                               .hash = hash_settings(job->sweep),
                               .job = job->sweep,
                               .run = run_rows,
                               .judge = judge,
                               .drop = drop_result};
    return bench_session(&session, comm, device);
}

int bench_sweep_main(int argc, char **argv) {
    settings_t settings;
    bench_options_rest_t rest;
    bench_sweep_t sweep;
    memset(&sweep, 0, sizeof sweep);
    int code;
    if (!bench_options_read(&table, argc, argv, &settings, &rest, &code)) return code;
    job_t job = {&sweep, argc, argv};
    bench_ranks_t ranks = bench_ranks_of("sweep", argc, argv, &settings.where, run_rank, &job);
    ranks.nccl_log = settings.nccl_evidence;
    tpcomm_status_t status = prepare(&settings, &sweep);
    note_idle(&settings, &rest, &sweep);
    if (status == TPCOMM_OK) status = bench_ranks_check(&ranks, sweep.how.graph);
    if (status != TPCOMM_OK) return bench_report("sweep", status);
    const char *variable = "TPCOMM_RANK";
    if (settings.cycles > 1 && bench_ranks_launched(&variable) != 0)
        return bench_report("sweep",
                            tpc_error(TPCOMM_ERR_INVALID_ARG,
                                      "--cycles starts its ranks itself: not under a launcher (%s is set)", variable));
    return settings.cycles > 1 ? bench_sweep_cycles(settings.cycles, settings.json, argc, argv)
                               : bench_ranks_run(&ranks);
}
