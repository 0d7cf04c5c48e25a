/* SPDX-License-Identifier: Apache-2.0 */
/**
 * tpcomm-bench pairs: an all_reduce of every pair of ranks, small for the latency and large for the bandwidth, one pair
 * at a time. A link that is slower than its like shows as a row and a column.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench.h"
#include "lists.h"
#include "manifest.h"
#include "measure.h"
#include "options.h"
#include "ranks.h"
#include "session.h"
#include "sweep.h"
#include "text.h"

#define PAIRS_SCHEMA "tpcomm-pairs/1"

enum { LATENCY, BANDWIDTH, KINDS };

typedef struct {
    const char *small, *large, *json;
    bench_where_t where;
    uint64_t iters, warmup, calls;
    double row_ms;
    int32_t mode;
} settings_t;

static const bench_option_t options[] = {
    BENCH_TEXT("small", false, settings_t, small, "SIZE", "message whose time is the latency"),
    BENCH_TEXT("large", false, settings_t, large, "SIZE", "message whose speed is the bandwidth"),
    BENCH_U64("iters", 'n', settings_t, iters, "N", 1, 1000000,
              "samples of every measurement, rounded up to tens; as many as fit --row-ms, 20 to 1000, unless given"),
    BENCH_U64("warmup", 'w', settings_t, warmup, "W", 2, 100000, "calls before every measurement, not counted"),
    BENCH_DOUBLE("row-ms", settings_t, row_ms, "MS", 1.0, 3.6e6, "time for the samples of one measurement without -n"),
    BENCH_WHERE_OPTIONS(settings_t, where, 2),
    BENCH_WORD("mode", settings_t, mode, "eager|graph", "one call after the other, or a CUDA graph of --calls calls"),
    BENCH_U64("calls", 0, settings_t, calls, "C", 1, 10000, "dependent calls of one sample on a GPU"),
    BENCH_TEXT("json", false, settings_t, json, "FILE", "write everything to FILE too (tpcomm-pairs/1)"),
};

static const settings_t defaults = {
    .small = "1K", .large = "16M", .warmup = 5, .row_ms = 100, .where = {.ranks = 2}, .calls = 50};

static const bench_options_t table = {
    .command = "pairs",
    .about =
        "Measure an all_reduce (bf16, sum) of every pair of ranks, one pair after the other: the latency of a small\n"
        "message and the bandwidth of a large one, as two matrices. docs/sweep.md says how it is measured.\n"
        "Exit code: 0 ok, 1 an element was wrong or nothing was checked, 2 usage or input, 3 the communicator\n"
        "failed. Where a launcher started the ranks, rank 0 prints and gives the verdict.",
    .options = options,
    .count = sizeof options / sizeof options[0],
    .defaults = &defaults,
    .settings_bytes = sizeof defaults,
};

/** What one pair's group found; sent to rank 0 as it is. */
typedef struct {
    int32_t ranks[2];
    int32_t measured; /* 0: this rank is not of the pair */
    uint64_t checked, wrong;
    tpcomm_path_t path[KINDS];
    bench_summary_t us[KINDS];
    char topology[32];
} pair_t;

typedef struct {
    const settings_t *settings;
    bench_measuring_t how;
    bench_fault_t fault;
    uint64_t bytes[KINDS];
    int argc;
    char **argv;
} job_t;

typedef struct {
    bench_manifest_t manifest;
    pair_t pairs[TPCOMM_MAX_RANKS * (TPCOMM_MAX_RANKS - 1) / 2];
    size_t count;
    uint64_t checked, wrong;
} result_t;

/* ---------------------------------------------------------------- one pair */

static tpcomm_status_t measure_pair(const job_t *job, bench_lane_t *lane, tpcomm_t *group, pair_t *pair) {
    tpcomm_info_t info = {.struct_size = sizeof info};
    tpcomm_status_t status = tpcomm_comm_info(group, &info);
    snprintf(pair->topology, sizeof pair->topology, "%s", info.topology);
    bench_lane_use(lane, group);
    for (int kind = 0; kind < KINDS && status == TPCOMM_OK; kind++) {
        bench_work_t work = {.coll = TPCOMM_ALL_REDUCE, .dtype = TPCOMM_BF16, .op = TPCOMM_SUM};
        bench_variant_t variant = {.path = TPCOMM_PATH_AUTO};
        bench_measured_t measured;
        work.count = job->bytes[kind] / tpcomm_dtype_size(work.dtype);
        memset(&measured, 0, sizeof measured);
        status = bench_measure(lane, &job->how, &work, &variant, 1, &measured);
        if (status == TPCOMM_OK && measured.refused) status = tpc_error(TPCOMM_ERR_UNSUPPORTED, "%s", measured.why);
        if (status == TPCOMM_OK) pair->us[kind] = bench_summarise(measured.us, measured.samples);
        pair->path[kind] = bench_taken_path(&measured);
        pair->checked += measured.checked;
        pair->wrong += measured.wrong;
        bench_measured_free(&measured, 1);
    }
    bench_lane_use(lane, NULL);
    pair->measured = 1;
    return status;
}

/** Make the pair's group, measure, and bring what it found to every rank; those not of the pair wait there. */
static tpcomm_status_t run_pair(const job_t *job, tpcomm_t *world, bench_lane_t *lane, int32_t rank, int32_t ranks,
                                pair_t *pair) {
    pair_t all[TPCOMM_MAX_RANKS];
    tpcomm_t *group = NULL;
    tpcomm_status_t status = TPCOMM_OK;
    if (rank == pair->ranks[0] || rank == pair->ranks[1]) {
        status = tpcomm_group_create(world, pair->ranks, 2, "pair", &group);
        if (status == TPCOMM_OK) status = measure_pair(job, lane, group, pair);
        if (status == TPCOMM_OK) status = tpcomm_finalize(group);
    }
    status = bench_agree(world, status);
    tpcomm_destroy(group);
    if (status == TPCOMM_OK) status = tpcomm_host_all_gather(world, pair, all, sizeof *pair, 0);
    for (int32_t r = 0; r < ranks && status == TPCOMM_OK; r++)
        if (all[r].measured && r == pair->ranks[0]) *pair = all[r];
    return status;
}

static tpcomm_status_t run_pairs(void *arg, tpcomm_t *world, bench_device_t *device, void *result_arg) {
    const job_t *job = arg;
    result_t *result = result_arg;
    bench_lane_t *lane = NULL;
    int32_t rank = result->manifest.info.rank, ranks = result->manifest.info.size;
    uint64_t most = job->bytes[job->bytes[LATENCY] > job->bytes[BANDWIDTH] ? LATENCY : BANDWIDTH];
    tpcomm_status_t status = TPCOMM_OK;
    if (ranks < 2) status = tpc_error(TPCOMM_ERR_INVALID_ARG, "a world of one has no pairs");
    if (job->how.graph && !device->gpu)
        status = tpc_error(TPCOMM_ERR_UNSUPPORTED, "--mode graph: the ranks compute on the cpu device");
    if ((status = bench_agree(world, status)) != TPCOMM_OK) return status;
    status = bench_lane_new("pairs", world, device,
                            &(bench_lane_spec_t){.message_bytes = most, .calls = job->how.calls}, &job->fault, &lane);
    for (int32_t a = 0; a < ranks && status == TPCOMM_OK; a++) {
        for (int32_t b = a + 1; b < ranks && status == TPCOMM_OK; b++) {
            pair_t *pair = &result->pairs[result->count++];
            *pair = (pair_t){.ranks = {a, b}};
            if (rank == 0 && isatty(STDERR_FILENO)) fprintf(stderr, "\r\033[Kpairs: %d and %d", a, b);
            status = run_pair(job, world, lane, rank, ranks, pair);
            result->checked += pair->checked;
            result->wrong += pair->wrong;
        }
    }
    if (rank == 0 && isatty(STDERR_FILENO)) fputs("\r\033[K", stderr);
    if (status != TPCOMM_OK) {
        char text[TPC_ERROR_BYTES];
        snprintf(text, sizeof text, "%s", tpcomm_last_error());
        tpcomm_abort(world, text);
        bench_lane_free(lane);
        return tpc_error(status, "%s", text);
    }
    bench_lane_free(lane);
    return TPCOMM_OK;
}

/* ---------------------------------------------------------------- telling it */

static const pair_t *find(const result_t *result, int32_t a, int32_t b) {
    for (size_t i = 0; i < result->count; i++) {
        const pair_t *pair = &result->pairs[i];
        if ((pair->ranks[0] == a && pair->ranks[1] == b) || (pair->ranks[0] == b && pair->ranks[1] == a)) return pair;
    }
    return NULL;
}

/** The median; the mean where there are too few samples for it. */
static double typical(const bench_summary_t *us) {
    return isnan(us->p50) ? us->mean : us->p50;
}

static void print_matrix(const job_t *job, const result_t *result, int kind) {
    int32_t ranks = result->manifest.info.size;
    printf("\n%s of %" PRIu64 " bytes, %s\n      ", kind == LATENCY ? "latency" : "bandwidth", job->bytes[kind],
           kind == LATENCY ? "us a call" : "GB/s (bytes by time of a call)");
    for (int32_t b = 0; b < ranks; b++) printf(" %8d", b);
    putchar('\n');
    for (int32_t a = 0; a < ranks; a++) {
        printf("  %4d", a);
        for (int32_t b = 0; b < ranks; b++) {
            const pair_t *pair = find(result, a, b);
            double us = pair ? typical(&pair->us[kind]) : NAN;
            bench_text_number(stdout, 8, kind == LATENCY ? us : bench_algbw(job->bytes[kind], us));
        }
        putchar('\n');
    }
}

static void print_result(const job_t *job, const result_t *result) {
    bench_manifest_print(stdout, "pairs", &result->manifest, TPCOMM_PATH_AUTO);
    for (int kind = 0; kind < KINDS; kind++) print_matrix(job, result, kind);
    putchar('\n');
    for (size_t i = 0; i < result->count; i++) {
        const pair_t *pair = &result->pairs[i];
        char label[24];
        snprintf(label, sizeof label, "%d and %d", pair->ranks[0], pair->ranks[1]);
        bench_text_line(stdout, label, "%s, %s small, %s large", pair->topology, tpcomm_path_name(pair->path[LATENCY]),
                        tpcomm_path_name(pair->path[BANDWIDTH]));
    }
    bench_text_line(stdout, "checked", "%" PRIu64 " elements bit for bit: %" PRIu64 " wrong", result->checked,
                    result->wrong);
    bench_manifest_print_caveats(stdout, &result->manifest);
}

static tpcomm_status_t write_result(const job_t *job, const result_t *result) {
    static const char *const keys[] = {"latency", "bandwidth"};
    tpc_json_writer_t *w;
    tpcomm_status_t status = tpc_json_load_library(NULL);
    if (status == TPCOMM_OK) status = tpc_json_writer_new(PAIRS_SCHEMA, &w);
    if (status != TPCOMM_OK) return status;
    tpc_json_node_t *root = tpc_json_writer_root(w), *manifest = tpc_json_add_object(w, root, "manifest");
    bench_manifest_add(w, manifest, &result->manifest, NULL, NULL);
    tpc_json_add_string(w, manifest, "mode", job->how.graph ? "graph" : "eager");
    tpc_json_node_t *pairs = tpc_json_add_array(w, root, "pairs");
    for (size_t i = 0; i < result->count; i++) {
        const pair_t *pair = &result->pairs[i];
        tpc_json_node_t *node = tpc_json_add_object(w, pairs, NULL), *ranks = tpc_json_add_array(w, node, "ranks");
        for (int r = 0; r < 2; r++) tpc_json_add_i64(w, ranks, NULL, pair->ranks[r]);
        tpc_json_add_string(w, node, "topology", pair->topology);
        for (int kind = 0; kind < KINDS; kind++) {
            tpc_json_node_t *member = tpc_json_add_object(w, node, keys[kind]);
            tpc_json_add_u64(w, member, "bytes", job->bytes[kind]);
            tpc_json_add_string(w, member, "path", pair->path[kind] ? tpcomm_path_name(pair->path[kind]) : NULL);
            bench_json_summary(w, member, "us", &pair->us[kind]);
            tpc_json_add_double(w, member, "gbs", bench_algbw(job->bytes[kind], typical(&pair->us[kind])));
        }
    }
    bench_json_checked(w, root, result->checked, result->wrong);
    bench_manifest_add_caveats(w, root, &result->manifest);
    status = tpc_json_write_file(w, job->settings->json);
    tpc_json_writer_free(w);
    return status;
}

static int judge(void *arg, const void *result_arg) {
    const job_t *job = arg;
    const result_t *result = result_arg;
    print_result(job, result);
    tpcomm_status_t status = job->settings->json ? write_result(job, result) : TPCOMM_OK;
    return bench_verdict("pairs", status, result->wrong, result->checked);
}

/* ---------------------------------------------------------------- one rank */

static int run_rank(void *arg, tpcomm_t *comm, bench_device_t *device) {
    job_t *job = arg;
    uint64_t numbers[] = {job->how.graph, job->how.calls, job->how.samples, job->how.warmup_calls,
                          (uint64_t)job->how.budget_ms};
    uint64_t hash = bench_hash_more(BENCH_HASH_START, job->bytes, sizeof job->bytes);
    bench_session_t session = {.command = "pairs",
                               .argc = job->argc,
                               .argv = job->argv,
                               .result_bytes = sizeof(result_t),
                               .hash = bench_hash_more(hash, numbers, sizeof numbers),
                               .job = job,
                               .run = run_pairs,
                               .judge = judge};
    return bench_session(&session, comm, device);
}

static tpcomm_status_t prepare(const settings_t *settings, job_t *job) {
    tpcomm_status_t status = bench_parse_size("small", settings->small, &job->bytes[LATENCY]);
    if (status == TPCOMM_OK) status = bench_parse_size("large", settings->large, &job->bytes[BANDWIDTH]);
    for (int kind = 0; kind < KINDS && status == TPCOMM_OK; kind++) {
        if (job->bytes[kind] < 2)
            status = tpc_error(TPCOMM_ERR_INVALID_ARG, "--small %s --large %s: both need an element of 2 bytes",
                               settings->small, settings->large);
        job->bytes[kind] -= job->bytes[kind] % 2;
    }
    if (status == TPCOMM_OK && job->bytes[LATENCY] > job->bytes[BANDWIDTH])
        status = tpc_error(TPCOMM_ERR_INVALID_ARG, "--small %s is greater than --large %s", settings->small,
                           settings->large);
    if (status == TPCOMM_OK) status = bench_fault_read(&job->fault);
    if (status == TPCOMM_OK) status = bench_check_writable("--json", settings->json);
    job->how = (bench_measuring_t){.graph = settings->mode == 1,
                                   .calls = (uint32_t)settings->calls,
                                   .samples = settings->iters,
                                   .warmup_calls = settings->warmup,
                                   .budget_ms = settings->row_ms,
                                   .seed = 1};
    return status;
}

int bench_pairs_main(int argc, char **argv) {
    settings_t settings;
    bench_options_rest_t rest;
    job_t job = {.settings = &settings, .argc = argc, .argv = argv};
    int code;
    if (!bench_options_read(&table, argc, argv, &settings, &rest, &code)) return code;
    bench_ranks_t ranks = bench_ranks_of("pairs", argc, argv, &settings.where, run_rank, &job);
    tpcomm_status_t status = prepare(&settings, &job);
    if (status == TPCOMM_OK) status = bench_ranks_check(&ranks, job.how.graph);
    return status == TPCOMM_OK ? bench_ranks_run(&ranks) : bench_report("pairs", status);
}
