/* SPDX-License-Identifier: Apache-2.0 */
/**
 * tpcomm-bench host: what a call takes of the calling thread, against a bare kernel launch and an ncclAllReduce of one
 * rank, which are the least that a call on a GPU can take. On one GPU, which the ranks may share: the ranks take turns,
 * so that no two threads are inside the driver at once; the others' calls are enqueued before and wait.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "lane.h"
#include "lists.h"
#include "manifest.h"
#include "options.h"
#include "ranks.h"
#include "session.h"
#include "sweep.h"
#include "text.h"

#define HOST_SCHEMA "tpcomm-host/1"

/* Rows take turns, some samples of each a round: clocks drift, and what is compared must drift alike. */
enum { SIZES_MAX = 8, ROWS_MAX = 1 + 2 * SIZES_MAX, WARMUP = 5, ROUNDS = 10 };

typedef enum { NOTHING, NCCL_ALONE, CALL } what_t;

static const char *const what_names[] = {[NOTHING] = "launch", [NCCL_ALONE] = "nccl_alone", [CALL] = "all_reduce"};
static const char *const what_texts[] = {
    [NOTHING] = "a kernel that does nothing", [NCCL_ALONE] = "ncclAllReduce, one rank", [CALL] = "all_reduce"};

typedef struct {
    const char *sizes, *path, *json;
    bench_where_t where;
    uint64_t samples, burst;
} settings_t;

static const bench_option_t options[] = {
    BENCH_TEXT("bytes", false, settings_t, sizes, "LIST", "messages: 8K,1M; K, M and G are powers of 1024"),
    BENCH_TEXT("path", false, settings_t, path, "PATH", "forced path; auto: the library's choice"),
    BENCH_U64("samples", 0, settings_t, samples, "N", 20, 100000, "of each row"),
    BENCH_U64("burst", 0, settings_t, burst, "B", 1, 200, "calls of a sample, one right after the other"),
    BENCH_WHERE_OPTIONS(settings_t, where, 1),
    BENCH_TEXT("json", false, settings_t, json, "FILE", "write everything to FILE too (tpcomm-host/1)"),
};

static const settings_t defaults = {
    .sizes = "8K,1M", .path = "auto", .where = {.ranks = 2}, .samples = 200, .burst = 50};

static const bench_options_t table = {
    .command = "host",
    .about =
        "Measure what an eager all_reduce (bf16, sum) takes of the calling thread, against a bare kernel launch and "
        "an\n"
        "ncclAllReduce of one rank, and check the results. docs/sweep.md says how. On the cpu device a call is its\n"
        "whole time. Exit code: 0 ok, 1 an element was wrong or nothing was checked, 2 usage or input, 3 the\n"
        "communicator failed. Where a launcher started the ranks, rank 0 prints and gives the verdict.",
    .options = options,
    .count = sizeof options / sizeof options[0],
    .defaults = &defaults,
    .settings_bytes = sizeof defaults,
};

typedef struct {
    const settings_t *settings;
    uint64_t sizes[SIZES_MAX];
    size_t size_count;
    tpcomm_path_t path;
    bench_fault_t fault;
    int argc;
    char **argv;
} job_t;

typedef struct {
    what_t what;
    uint64_t bytes;
    bench_summary_t us; /* n 0: not measured */
    tpcomm_path_t path;
    char why[256];
    double *samples_us; /* while it is measured */
    size_t count;
} row_t;

typedef struct {
    bench_manifest_t manifest;
    row_t rows[ROWS_MAX];
    size_t count;
    uint64_t checked, wrong;
    char nccl[320];
} result_t;

/** One rank at work. */
typedef struct {
    const job_t *job;
    bench_lane_t *lane;
    bench_nccl_t *nccl; /* of this rank alone; NULL: there is none */
    bench_act_t act;
    bench_work_t work;
} worker_t;

/* ---------------------------------------------------------------- one sample */

static tpcomm_status_t do_one(worker_t *worker, const row_t *row, uint64_t number) {
    bench_lane_t *lane = worker->lane;
    if (row->what == NOTHING) return bench_gpu_nothing(lane->device->gpu);
    if (row->what == CALL) return bench_act_call(&worker->act, number);
    tpcomm_call_t call = {.struct_size = sizeof call,
                          .coll = TPCOMM_ALL_REDUCE,
                          .dtype = TPCOMM_BF16,
                          .op = TPCOMM_SUM,
                          .in = lane->own.in,
                          .out = lane->own.out,
                          .count = worker->work.count};
    return bench_nccl_call(worker->nccl, &call, bench_device_stream(lane->device));
}

static tpcomm_status_t burst(worker_t *worker, const row_t *row, double *us_p) {
    uint64_t calls = worker->job->settings->burst, start = tpc_clock_ns();
    tpcomm_status_t status = TPCOMM_OK;
    for (uint64_t i = 0; i < calls && status == TPCOMM_OK; i++) status = do_one(worker, row, i);
    *us_p = (double)(tpc_clock_ns() - start) / 1000 / (double)calls;
    return status;
}

/** On a GPU every rank has its turn; those that are not timed enqueue theirs before. */
static tpcomm_status_t sample(worker_t *worker, const row_t *row, double *us_p) {
    bench_lane_t *lane = worker->lane;
    double ignored;
    tpcomm_status_t status = TPCOMM_OK;
    *us_p = 0;
    if (!lane->device->gpu) {
        status = bench_lane_settle(lane);
        return status == TPCOMM_OK ? burst(worker, row, us_p) : status;
    }
    for (int32_t turn = 0; turn < lane->ranks && status == TPCOMM_OK; turn++) {
        if ((status = bench_lane_settle(lane)) != TPCOMM_OK) return status;
        if (turn != lane->rank && row->what == CALL) status = burst(worker, row, &ignored);
        if (status == TPCOMM_OK) status = tpcomm_host_barrier(lane->comm, 0);
        if (status == TPCOMM_OK && turn == lane->rank) status = burst(worker, row, us_p);
    }
    return status;
}

/** A round of a row: its inputs, some samples, its results. */
static tpcomm_status_t measure(worker_t *worker, row_t *row, size_t samples, result_t *result) {
    bench_lane_t *lane = worker->lane;
    double ignored;
    tpcomm_status_t status = TPCOMM_OK;
    if (row->what == CALL) {
        bench_data_t *data = NULL;
        tpcomm_call_t call = {.struct_size = sizeof call,
                              .coll = TPCOMM_ALL_REDUCE,
                              .dtype = TPCOMM_BF16,
                              .op = TPCOMM_SUM,
                              .path = worker->job->path,
                              .count = worker->work.count};
        bool exact = !bench_call_is_exact(lane->comm, &call);
        worker->act = (bench_act_t){.lane = lane, .work = &worker->work, .variant = {.path = worker->job->path}};
        worker->act.layout = bench_lane_layout(lane, &worker->work);
        status = bench_agree(lane->comm, bench_lane_data(lane, &worker->work, 1, exact, &data));
        worker->act.data = data;
        if (status == TPCOMM_OK) status = bench_act_fill(&worker->act);
        if (status == TPCOMM_OK) status = bench_act_reset(&worker->act);
    }
    for (size_t s = 0; s < samples + WARMUP && status == TPCOMM_OK; s++)
        status = sample(worker, row, s < WARMUP ? &ignored : &row->samples_us[row->count++]);
    if (status == TPCOMM_OK) status = bench_lane_settle(lane);
    if (status == TPCOMM_OK && row->what == CALL)
        status = bench_act_check(&worker->act, worker->job->settings->burst, &result->checked, &result->wrong);
    return status;
}

/* ---------------------------------------------------------------- all rows */

/** Which path carries a row's calls, or why none does: the same on all ranks. */
static void choose_path(const worker_t *worker, row_t *row) {
    tpcomm_decision_t decision = {.struct_size = sizeof decision};
    tpcomm_call_t call = {.struct_size = sizeof call,
                          .coll = TPCOMM_ALL_REDUCE,
                          .dtype = TPCOMM_BF16,
                          .op = TPCOMM_SUM,
                          .path = worker->job->path,
                          .count = row->bytes / tpcomm_dtype_size(TPCOMM_BF16)};
    if (tpcomm_explain(worker->lane->comm, &call, &decision) == TPCOMM_OK)
        row->path = decision.path;
    else
        snprintf(row->why, sizeof row->why, "%s", tpcomm_last_error());
}

static tpcomm_status_t run_round(worker_t *worker, size_t samples, result_t *result) {
    tpcomm_status_t status = TPCOMM_OK;
    for (size_t r = 0; r < result->count && status == TPCOMM_OK; r++) {
        row_t *row = &result->rows[r];
        worker->work = (bench_work_t){.coll = TPCOMM_ALL_REDUCE,
                                      .dtype = TPCOMM_BF16,
                                      .op = TPCOMM_SUM,
                                      .count = row->bytes / tpcomm_dtype_size(TPCOMM_BF16)};
        if (!row->why[0]) status = measure(worker, row, samples, result);
    }
    return status;
}

static tpcomm_status_t run_rows(worker_t *worker, result_t *result) {
    bench_lane_t *lane = worker->lane;
    size_t samples = (size_t)worker->job->settings->samples;
    tpcomm_status_t status = TPCOMM_OK;
    for (size_t r = 0; r < result->count; r++) {
        row_t *row = &result->rows[r];
        if (row->what == CALL) choose_path(worker, row);
        row->samples_us = calloc(samples, sizeof *row->samples_us);
        if (!row->samples_us) status = tpc_error(TPCOMM_ERR_NO_MEMORY, "no memory");
    }
    status = bench_agree(lane->comm, status);
    for (size_t round = 0; round < ROUNDS && status == TPCOMM_OK; round++)
        status = run_round(worker, samples * (round + 1) / ROUNDS - samples * round / ROUNDS, result);
    for (size_t r = 0; r < result->count; r++) {
        row_t *row = &result->rows[r];
        if (status == TPCOMM_OK && row->count > 0) {
            status = bench_gather_max(lane->comm, row->samples_us, row->count);
            row->us = bench_summarise(row->samples_us, row->count);
        }
        free(row->samples_us);
        row->samples_us = NULL;
    }
    uint64_t counts[2] = {result->checked, result->wrong};
    if (status == TPCOMM_OK) status = bench_gather_sum(lane->comm, counts, 2);
    result->checked = counts[0];
    result->wrong = counts[1];
    return status;
}

static void list_rows(const job_t *job, const worker_t *worker, const char *missing, result_t *result) {
    bool gpu = worker->lane->device->gpu != NULL;
    row_t *row = &result->rows[result->count++];
    row->what = NOTHING;
    if (!gpu) snprintf(row->why, sizeof row->why, "the cpu device launches no kernels");
    for (size_t s = 0; s < job->size_count; s++) {
        row = &result->rows[result->count++];
        *row = (row_t){.what = NCCL_ALONE, .bytes = job->sizes[s]};
        snprintf(row->why, sizeof row->why, "%s", missing);
        result->rows[result->count++] = (row_t){.what = CALL, .bytes = job->sizes[s]};
    }
}

static tpcomm_status_t run_all(void *arg, tpcomm_t *comm, bench_device_t *device, void *result_arg) {
    const job_t *job = arg;
    result_t *result = result_arg;
    worker_t worker = {.job = job};
    bench_lane_spec_t spec = {.calls = (uint32_t)job->settings->burst};
    char missing[256] = "";
    for (size_t s = 0; s < job->size_count; s++)
        if (job->sizes[s] > spec.message_bytes) spec.message_bytes = job->sizes[s];
    tpcomm_status_t status = bench_lane_new("host", comm, device, &spec, &job->fault, &worker.lane);
    if (status != TPCOMM_OK) return status;
    if (device->gpu) status = bench_gpu_load_kernels(device->gpu);
    if ((status = bench_agree(comm, status)) == TPCOMM_OK) {
        bench_nccl_open_alone(device, missing, sizeof missing, &worker.nccl);
        double absent = worker.nccl == NULL;
        status = bench_gather_max(comm, &absent, 1);
        if (absent > 0 && !missing[0]) snprintf(missing, sizeof missing, "another rank has none");
        snprintf(result->nccl, sizeof result->nccl, "%s", missing[0] ? missing : bench_nccl_text(worker.nccl));
    }
    list_rows(job, &worker, missing, result);
    if (status == TPCOMM_OK) status = run_rows(&worker, result);
    char text[TPC_ERROR_BYTES];
    snprintf(text, sizeof text, "%s", tpcomm_last_error());
    if (status != TPCOMM_OK) tpcomm_abort(comm, text);
    bench_nccl_close(worker.nccl);
    bench_lane_free(worker.lane);
    return status == TPCOMM_OK ? TPCOMM_OK : tpc_error(status, "%s", text);
}

/* ---------------------------------------------------------------- telling it */

/** What a row takes beyond a bare launch; NaN: not known. */
static double over_launch(const result_t *result, const row_t *row) {
    const bench_summary_t *launch = &result->rows[0].us;
    return row->what == NOTHING || row->us.n == 0 || launch->n == 0 ? NAN : row->us.p50 - launch->p50;
}

static void print_result(const job_t *job, const result_t *result) {
    bench_manifest_print(stdout, "host", &result->manifest, job->path);
    bench_text_line(stdout, "sample",
                    "%" PRIu64 " calls one after the other, by the clock of the thread; the slowest "
                    "rank's; %s; rows by turns",
                    job->settings->burst, result->manifest.ranks[0].has_gpu ? "ranks by turns" : "all ranks at once");
    bench_text_line(stdout, "nccl", "%s", result->nccl);
    printf("\nhost time of one call, us\n#%11s  %-27s %-13s %8s %8s %8s %5s %9s\n", "size", "what", "path", "p50",
           "p95", "p99", "cv%", "- launch");
    for (size_t r = 0; r < result->count; r++) {
        const row_t *row = &result->rows[r];
        printf("%12" PRIu64 "  %-27s %-13s", row->bytes, what_texts[row->what],
               row->path ? tpcomm_path_name(row->path) : "-");
        if (row->us.n == 0) {
            printf("  %s\n", row->why);
            continue;
        }
        bench_text_number(stdout, 8, row->us.p50);
        bench_text_number(stdout, 8, row->us.p95);
        bench_text_number(stdout, 8, row->us.p99);
        bench_text_number(stdout, 5, row->us.cv_percent);
        bench_text_number(stdout, 9, over_launch(result, row));
        putchar('\n');
    }
    putchar('\n');
    bench_text_line(stdout, "checked", "%" PRIu64 " elements bit for bit: %" PRIu64 " wrong", result->checked,
                    result->wrong);
    bench_manifest_print_caveats(stdout, &result->manifest);
}

static tpcomm_status_t write_result(const job_t *job, const result_t *result) {
    tpc_json_writer_t *w;
    tpcomm_status_t status = tpc_json_load_library(NULL);
    if (status == TPCOMM_OK) status = tpc_json_writer_new(HOST_SCHEMA, &w);
    if (status != TPCOMM_OK) return status;
    tpc_json_node_t *root = tpc_json_writer_root(w), *manifest = tpc_json_add_object(w, root, "manifest");
    bench_manifest_add(w, manifest, &result->manifest, NULL, NULL);
    tpc_json_add_u64(w, manifest, "burst", job->settings->burst);
    bench_json_text(w, manifest, "nccl_alone", result->nccl);
    tpc_json_node_t *rows = tpc_json_add_array(w, root, "rows");
    for (size_t r = 0; r < result->count; r++) {
        const row_t *row = &result->rows[r];
        tpc_json_node_t *node = tpc_json_add_object(w, rows, NULL);
        tpc_json_add_string(w, node, "what", what_names[row->what]);
        tpc_json_add_u64(w, node, "bytes", row->bytes);
        tpc_json_add_string(w, node, "path", row->path ? tpcomm_path_name(row->path) : NULL);
        bench_json_text(w, node, "refused", row->why);
        bench_json_summary(w, node, "us", &row->us);
        tpc_json_add_double(w, node, "over_launch_us", over_launch(result, row));
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
    return bench_verdict("host", status, result->wrong, result->checked);
}

/* ---------------------------------------------------------------- one rank */

static int run_rank(void *arg, tpcomm_t *comm, bench_device_t *device) {
    job_t *job = arg;
    uint64_t numbers[] = {job->size_count, job->settings->samples, job->settings->burst, (uint64_t)job->path};
    uint64_t hash = bench_hash_more(BENCH_HASH_START, job->sizes, job->size_count * sizeof job->sizes[0]);
    bench_session_t session = {.command = "host",
                               .argc = job->argc,
                               .argv = job->argv,
                               .result_bytes = sizeof(result_t),
                               .hash = bench_hash_more(hash, numbers, sizeof numbers),
                               .job = job,
                               .run = run_all,
                               .judge = judge};
    return bench_session(&session, comm, device);
}

static tpcomm_status_t parse_sizes(const char *text, job_t *job) {
    char one[32];
    for (const char *at = text;; at++) {
        size_t length = strcspn(at, ",");
        if (length == 0 || length >= sizeof one || job->size_count == SIZES_MAX)
            return tpc_error(TPCOMM_ERR_INVALID_ARG, "--bytes %s: allowed are up to %d sizes, as in 8K,1M", text,
                             SIZES_MAX);
        memcpy(one, at, length);
        one[length] = '\0';
        uint64_t *size = &job->sizes[job->size_count++];
        tpcomm_status_t status = bench_parse_size("bytes", one, size);
        if (status != TPCOMM_OK) return status;
        *size -= *size % 2;
        if (*size == 0) return tpc_error(TPCOMM_ERR_INVALID_ARG, "--bytes %s: an element has 2 bytes", text);
        at += length;
        if (*at == '\0') return TPCOMM_OK;
    }
}

static tpcomm_status_t prepare(const settings_t *settings, job_t *job) {
    int32_t path = 0;
    size_t paths = 0;
    tpcomm_status_t status = parse_sizes(settings->sizes, job);
    if (status == TPCOMM_OK)
        status = bench_parse_list("path", settings->path, tpc_path_parse, bench_path_names, &path, 1, &paths);
    if (status == TPCOMM_OK) status = bench_fault_read(&job->fault);
    if (status == TPCOMM_OK) status = bench_check_writable("--json", settings->json);
    job->path = path;
    return status;
}

int bench_host_main(int argc, char **argv) {
    settings_t settings;
    bench_options_rest_t rest;
    job_t job = {.settings = &settings, .argc = argc, .argv = argv};
    int code;
    if (!bench_options_read(&table, argc, argv, &settings, &rest, &code)) return code;
    bench_ranks_t ranks = bench_ranks_of("host", argc, argv, &settings.where, run_rank, &job);
    tpcomm_status_t status = prepare(&settings, &job);
    if (status == TPCOMM_OK) status = bench_ranks_check(&ranks, false);
    return status == TPCOMM_OK ? bench_ranks_run(&ranks) : bench_report("host", status);
}
