/* SPDX-License-Identifier: Apache-2.0 */
/** tpcomm-bench tune: measure every path of an all_reduce and write down which sizes each should get. */
#include "tune.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench.h"
#include "lists.h"
#include "number.h"
#include "options.h"
#include "ranks.h"
#include "text.h"

enum { MODE_BOTH, MODE_EAGER, MODE_GRAPH };
enum { DTYPES_MAX = 12, POINTS_MAX = 512 };

typedef struct {
    const char *output, *min_bytes, *max_bytes, *dtype, *groups, *devices;
    uint64_t factor, ranks, iters, warmup, calls;
    double row_ms;
    int32_t device, mode;
    bool threads, processes;
} settings_t;

static const bench_option_t options[] = {
    BENCH_TEXT("output", true, settings_t, output, "FILE", "the tuning file to write (docs/tuning.md)"),
    BENCH_LETTER_TEXT("minbytes", 'b', settings_t, min_bytes, "SIZE",
                      "smallest message; K, M and G are powers of 1024"),
    BENCH_LETTER_TEXT("maxbytes", 'e', settings_t, max_bytes, "SIZE", "greatest message"),
    BENCH_U64("stepfactor", 'f', settings_t, factor, "F", 2, 1024, "every size is the one before times F"),
    BENCH_LETTER_TEXT("dtype", 'd', settings_t, dtype, "LIST", "types of an element, each with rows of its own"),
    BENCH_TEXT("groups", false, settings_t, groups, "LIST",
               "group sizes, each with rows of its own: 2,4,8; of the first so many ranks; all ranks unless given"),
    BENCH_U64("iters", 'n', settings_t, iters, "N", 100, 1000000,
              "samples of every measurement; as many as fit --row-ms, 100 to 1000, unless given"),
    BENCH_U64("warmup", 'w', settings_t, warmup, "W", 2, 100000, "calls before every measurement, not counted"),
    BENCH_DOUBLE("row-ms", settings_t, row_ms, "MS", 1.0, 3.6e6, "time for the samples of one measurement without -n"),
    BENCH_U64("ranks", 0, settings_t, ranks, "N", 2, TPCOMM_MAX_RANKS,
              "ranks to start on this host; under a launcher, its number"),
    BENCH_FLAG("threads", settings_t, threads, "the ranks are threads of this process"),
    BENCH_FLAG(
        "processes", settings_t, processes,
        "the ranks are processes of their own; without either they are, but threads where they would share a GPU"),
    BENCH_WORD("device", settings_t, device, BENCH_DEVICE_WORDS, "where the ranks compute"),
    BENCH_TEXT("devices", false, settings_t, devices, "LIST",
               "GPU of rank 0, 1, ...: 0,0 shares one; again from the start where there are more ranks"),
    BENCH_WORD("mode", settings_t, mode, "both|eager|graph",
               "on a GPU: rows for eager calls, for those in graphs, or both; the cpu device has eager ones alone"),
    BENCH_U64("calls", 0, settings_t, calls, "C", 1, 10000, "dependent calls of one sample on a GPU"),
};

static const settings_t defaults = {.min_bytes = "1K",
                                    .max_bytes = "16M",
                                    .factor = 2,
                                    .dtype = "bf16",
                                    .warmup = 5,
                                    .row_ms = 200,
                                    .ranks = 2,
                                    .calls = 50};

static const bench_options_t table = {
    .command = "tune",
    .about =
        "Measure an all_reduce (sum) by every path that the groups have, by turns over message sizes, and write a\n"
        "tuning file: ranges of sizes, with a switch only where the gain is above noise and the curves cross.\n"
        "Use it by TPCOMM_TUNING_FILE=FILE. Exit code: 0 ok, 1 an element was wrong or nothing was checked,\n"
        "2 usage or input, 3 the communicator failed. Rank 0 decides for all, and writes.",
    .options = options,
    .count = sizeof options / sizeof options[0],
    .defaults = &defaults,
    .settings_bytes = sizeof defaults,
};

typedef struct {
    const settings_t *settings;
    bench_measuring_t how;
    bench_fault_t fault;
    uint64_t min_bytes, max_bytes;
    tpcomm_dtype_t dtypes[DTYPES_MAX];
    size_t dtype_count;
    int32_t groups[TPCOMM_MAX_RANKS];
    size_t group_count; /* 0: all ranks */
    int argc;
    char **argv;
} job_t;

/* ---------------------------------------------------------------- settings */

static bool parse_group(const char *name, int32_t *value_p) {
    uint64_t value;
    if (!bench_number_u64(name, strlen(name), &value) || value < 2 || value > TPCOMM_MAX_RANKS) return false;
    *value_p = (int32_t)value;
    return true;
}

static tpcomm_status_t prepare(const settings_t *settings, job_t *job) {
    tpcomm_status_t status = bench_parse_size("minbytes", settings->min_bytes, &job->min_bytes);
    if (status == TPCOMM_OK) status = bench_parse_size("maxbytes", settings->max_bytes, &job->max_bytes);
    if (status == TPCOMM_OK && (job->min_bytes < 8 || job->max_bytes < job->min_bytes))
        status = tpc_error(TPCOMM_ERR_INVALID_ARG, "--minbytes %s --maxbytes %s: from 8 bytes up, and in this order",
                           settings->min_bytes, settings->max_bytes);
    if (status == TPCOMM_OK)
        status =
            bench_parse_list("dtype", settings->dtype, tpc_dtype_parse, job->dtypes, DTYPES_MAX, &job->dtype_count);
    for (size_t d = 0; d < job->dtype_count && status == TPCOMM_OK; d++)
        if (!tpc_reduction_defined(job->dtypes[d], TPCOMM_SUM))
            status = tpc_error(TPCOMM_ERR_INVALID_ARG, "--dtype %s: %s has no sum", settings->dtype,
                               tpcomm_dtype_name(job->dtypes[d]));
    if (status == TPCOMM_OK && settings->groups)
        status =
            bench_parse_list("groups", settings->groups, parse_group, job->groups, TPCOMM_MAX_RANKS, &job->group_count);
    if (status == TPCOMM_OK && settings->threads && settings->processes)
        status = tpc_error(TPCOMM_ERR_INVALID_ARG, "--threads and --processes contradict");
    if (status == TPCOMM_OK) status = bench_fault_read(&job->fault);
    if (status == TPCOMM_OK) status = bench_check_writable("--output", settings->output);
    job->how = (bench_measuring_t){.calls = (uint32_t)settings->calls,
                                   .samples = settings->iters,
                                   .warmup_calls = settings->warmup,
                                   .budget_ms = settings->row_ms,
                                   .seed = 1};
    return status;
}

/** The paths that an all_reduce may be sent by. */
static void list_paths(bench_tune_result_t *result) {
#define PATH_VALUE(path, name) path,
    static const tpcomm_path_t all[] = {TPC_PATH_LIST(PATH_VALUE)};
#undef PATH_VALUE
    static const char *const others[] = {"auto", "local", "unfused", "fused_oneshot", "fused_twoshot"};
    for (size_t i = 0; i < sizeof all / sizeof all[0] && result->path_count < BENCH_TUNE_PATHS_MAX; i++) {
        bool other = false;
        for (size_t k = 0; k < sizeof others / sizeof others[0]; k++)
            if (strcmp(tpcomm_path_name(all[i]), others[k]) == 0) other = true;
        if (!other) result->paths[result->path_count++] = all[i];
    }
}

/* ---------------------------------------------------------------- one curve */

static tpcomm_status_t measure_point(const job_t *job, bench_lane_t *lane, bench_tune_result_t *result,
                                     const bench_tune_curve_t *curve, uint64_t bytes, bench_tune_point_t *point) {
    bench_variant_t variants[BENCH_TUNE_PATHS_MAX];
    bench_measured_t measured[BENCH_TUNE_PATHS_MAX];
    bench_measuring_t how = job->how;
    bench_work_t work = {.coll = TPCOMM_ALL_REDUCE, .dtype = curve->dtype, .op = TPCOMM_SUM};
    work.count = bytes / tpcomm_dtype_size(curve->dtype);
    how.graph = curve->graph;
    memset(measured, 0, sizeof measured);
    for (size_t p = 0; p < result->path_count; p++) variants[p] = (bench_variant_t){result->paths[p], false};
    tpcomm_status_t status = bench_measure(lane, &how, &work, variants, result->path_count, measured);
    point->bytes = bytes;
    for (size_t p = 0; p < result->path_count; p++) {
        point->us[p] = point->cv_percent[p] = NAN;
        if (status != TPCOMM_OK || measured[p].refused) continue;
        bench_summary_t us = bench_summarise(measured[p].us, measured[p].samples);
        point->us[p] = isnan(us.p50) ? us.mean : us.p50;
        point->cv_percent[p] = us.cv_percent;
        point->samples = us.n;
        result->checked += measured[p].checked;
        result->wrong += measured[p].wrong;
    }
    bench_measured_free(measured, result->path_count);
    return status;
}

static tpcomm_status_t prefer(tpcomm_t *comm, bench_tune_curve_t *curve, uint64_t bytes) {
    tpcomm_call_t call = {.struct_size = sizeof call,
                          .coll = TPCOMM_ALL_REDUCE,
                          .dtype = curve->dtype,
                          .op = TPCOMM_SUM,
                          .count = bytes / tpcomm_dtype_size(curve->dtype)};
    tpcomm_decision_t decision = {.struct_size = sizeof decision};
    tpcomm_status_t status = tpcomm_explain(comm, &call, &decision);
    curve->preferred = decision.path;
    return status;
}

static void show_progress(const bench_tune_result_t *result, const bench_tune_curve_t *curve, uint64_t bytes) {
    if (result->manifest.info.rank != 0 || !isatty(STDERR_FILENO)) return;
    if (curve)
        fprintf(stderr, "\r\033[Ktune: %d ranks, %s, %s, %" PRIu64 " bytes", curve->ranks,
                tpcomm_dtype_name(curve->dtype), curve->graph ? "graph" : "eager", bytes);
    else
        fputs("\r\033[K", stderr);
}

static tpcomm_status_t run_curve(const job_t *job, tpcomm_t *comm, bench_lane_t *lane, bench_tune_result_t *result,
                                 bench_tune_curve_t *curve) {
    tpcomm_info_t info = {.struct_size = sizeof info};
    tpcomm_status_t status = tpcomm_comm_info(comm, &info);
    snprintf(curve->topology, sizeof curve->topology, "%s", info.topology);
    curve->points = calloc(POINTS_MAX, sizeof *curve->points);
    curve->ranges = calloc(POINTS_MAX, sizeof *curve->ranges);
    if (status == TPCOMM_OK && (!curve->points || !curve->ranges))
        status = tpc_error(TPCOMM_ERR_NO_MEMORY, "no memory");
    if ((status = bench_agree(comm, status)) != TPCOMM_OK) return status;
    status = prefer(comm, curve, job->min_bytes);
    for (uint64_t bytes = job->min_bytes; bytes <= job->max_bytes && status == TPCOMM_OK;
         bytes *= job->settings->factor) {
        show_progress(result, curve, bytes);
        status = measure_point(job, lane, result, curve, bytes, &curve->points[curve->point_count++]);
    }
    show_progress(result, NULL, 0);
    size_t preferred = SIZE_MAX;
    for (size_t p = 0; p < result->path_count; p++)
        if (result->paths[p] == curve->preferred) preferred = p;
    if (status == TPCOMM_OK)
        curve->range_count =
            bench_tune_choose(curve->points, curve->point_count, result->path_count, preferred, curve->ranges);
    return status;
}

/** Every mode and dtype of one group; those not of it only count along. */
static tpcomm_status_t run_group(const job_t *job, tpcomm_t *world, bench_device_t *device, bench_lane_t *lane,
                                 int32_t size, bench_tune_result_t *result) {
    int32_t ranks[TPCOMM_MAX_RANKS], rank = result->manifest.info.rank;
    tpcomm_t *group = NULL;
    tpcomm_status_t status = TPCOMM_OK;
    bool whole = size == result->manifest.info.size;
    for (int32_t r = 0; r < size; r++) ranks[r] = r;
    if (!whole && rank < size) status = tpcomm_group_create(world, ranks, size, "tune", &group);
    if (group) bench_lane_use(lane, group);
    for (int graph = 0; graph < 2; graph++) {
        if (graph && (!device->gpu || job->settings->mode == MODE_EAGER)) continue;
        if (!graph && device->gpu && job->settings->mode == MODE_GRAPH) continue;
        for (size_t d = 0; d < job->dtype_count; d++) {
            bench_tune_curve_t *curve = &result->curves[result->curve_count++];
            *curve = (bench_tune_curve_t){.ranks = size, .dtype = job->dtypes[d], .graph = graph != 0};
            if (status == TPCOMM_OK && rank < size) status = run_curve(job, whole ? world : group, lane, result, curve);
        }
    }
    if (group) {
        if (status == TPCOMM_OK) status = tpcomm_finalize(group);
        bench_lane_use(lane, NULL);
    }
    status = bench_agree(world, status);
    tpcomm_destroy(group);
    return status;
}

static tpcomm_status_t run_groups(const job_t *job, tpcomm_t *world, bench_device_t *device,
                                  bench_tune_result_t *result) {
    bench_lane_t *lane = NULL;
    int32_t size = result->manifest.info.size, all[1] = {size};
    const int32_t *groups = job->group_count > 0 ? job->groups : all;
    size_t count = job->group_count > 0 ? job->group_count : 1;
    tpcomm_status_t status = TPCOMM_OK;
    for (size_t g = 0; g < count && status == TPCOMM_OK; g++)
        if (groups[g] > size || groups[g] < 2)
            status = tpc_error(TPCOMM_ERR_INVALID_ARG,
                               "a group of %d: there are %d ranks, and one alone has nothing to tune", groups[g], size);
    result->by_mode = device->gpu != NULL;
    result->curves = calloc(count * job->dtype_count * 2, sizeof *result->curves);
    if (status == TPCOMM_OK && !result->curves) status = tpc_error(TPCOMM_ERR_NO_MEMORY, "no memory");
    if (status == TPCOMM_OK && !device->gpu && job->settings->mode == MODE_GRAPH)
        status = tpc_error(TPCOMM_ERR_UNSUPPORTED, "--mode graph: the ranks compute on the cpu device");
    if ((status = bench_agree(world, status)) != TPCOMM_OK) return status;
    list_paths(result);
    status = bench_lane_new("tune", world, device, job->max_bytes, 0, &job->fault, &lane);
    for (size_t g = 0; g < count && status == TPCOMM_OK; g++)
        status = run_group(job, world, device, lane, groups[g], result);
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

static size_t range_of(const bench_tune_curve_t *curve, uint64_t bytes) {
    size_t r = 0;
    while (r + 1 < curve->range_count && bytes > curve->ranges[r].bytes_max) r++;
    return r;
}

static bool is_measured(const bench_tune_curve_t *curve, size_t path) {
    for (size_t i = 0; i < curve->point_count; i++)
        if (!isnan(curve->points[i].us[path])) return true;
    return false;
}

static void print_curve(const bench_tune_result_t *result, const bench_tune_curve_t *curve) {
    printf("\n%d ranks, %s, %s%s: p50 of a call in us, * is chosen\n#%11s", curve->ranks, curve->topology,
           tpcomm_dtype_name(curve->dtype),
           !result->by_mode ? ""
           : curve->graph   ? ", graph"
                            : ", eager",
           "size");
    for (size_t p = 0; p < result->path_count; p++)
        if (is_measured(curve, p)) printf(" %12s ", tpcomm_path_name(result->paths[p]));
    putchar('\n');
    for (size_t i = 0; i < curve->point_count; i++) {
        const bench_tune_point_t *point = &curve->points[i];
        printf("%12" PRIu64, point->bytes);
        for (size_t p = 0; p < result->path_count; p++) {
            if (!is_measured(curve, p)) continue;
            bench_text_number(stdout, 12, point->us[p]);
            bool chosen = curve->range_count > 0 && curve->ranges[range_of(curve, point->bytes)].path == p;
            putchar(chosen ? '*' : ' ');
        }
        putchar('\n');
    }
    for (size_t r = 0; r < curve->range_count; r++) {
        const bench_tune_range_t *range = &curve->ranges[r];
        char end[32] = "any size";
        if (range->bytes_max != UINT64_MAX) snprintf(end, sizeof end, "%" PRIu64, range->bytes_max);
        printf("  %" PRIu64 " to %s: %s", range->bytes_min, end, tpcomm_path_name(result->paths[range->path]));
        if (!isnan(range->gain_percent)) printf(", a gain of %.1f %%", range->gain_percent);
        putchar('\n');
    }
}

static int judge(const job_t *job, const bench_tune_result_t *result) {
    bench_manifest_print(stdout, "tune", &result->manifest, TPCOMM_PATH_AUTO);
    for (size_t c = 0; c < result->curve_count; c++) print_curve(result, &result->curves[c]);
    putchar('\n');
    bench_text_line(stdout, "checked", "%" PRIu64 " elements bit for bit: %" PRIu64 " wrong", result->checked,
                    result->wrong);
    if (result->wrong > 0 || result->checked == 0) {
        fprintf(stderr, "tpcomm-bench tune: %" PRIu64 " of %" PRIu64 " elements are wrong: nothing is written\n",
                result->wrong, result->checked);
        return BENCH_EXIT_WRONG;
    }
    tpcomm_status_t status = bench_tune_write(result, job->settings->output);
    if (status != TPCOMM_OK) return bench_report("tune", status);
    bench_text_line(stdout, "written", "%s; use it by TPCOMM_TUNING_FILE", job->settings->output);
    return BENCH_EXIT_OK;
}

/* ---------------------------------------------------------------- one rank */

static tpcomm_status_t agree_on_settings(const job_t *job, tpcomm_t *comm) {
    uint64_t hash = BENCH_HASH_START;
    const uint64_t numbers[] = {job->min_bytes,
                                job->max_bytes,
                                job->settings->factor,
                                job->how.calls,
                                job->how.samples,
                                job->how.warmup_calls,
                                job->dtype_count,
                                job->group_count,
                                (uint64_t)job->settings->mode,
                                (uint64_t)job->how.budget_ms};
    hash = bench_hash_more(hash, numbers, sizeof numbers);
    hash = bench_hash_more(hash, job->dtypes, job->dtype_count * sizeof job->dtypes[0]);
    hash = bench_hash_more(hash, job->groups, job->group_count * sizeof job->groups[0]);
    return bench_agree_on_hash(comm, hash);
}

/** Counts of wrong elements are rank 0's alone only where it was in the group: it is in all. */
static int run_rank(void *arg, tpcomm_t *comm, bench_device_t *device) {
    const job_t *job = arg;
    bench_tune_result_t *result = calloc(1, sizeof *result);
    tpcomm_status_t status = result ? TPCOMM_OK : tpc_error(TPCOMM_ERR_NO_MEMORY, "no memory");
    int code = BENCH_EXIT_OK;
    status = bench_agree(comm, status);
    if (status == TPCOMM_OK) status = agree_on_settings(job, comm);
    if (status == TPCOMM_OK) status = bench_manifest_begin(comm, device, job->argc, job->argv, &result->manifest);
    if (status == TPCOMM_OK) status = run_groups(job, comm, device, result);
    if (status == TPCOMM_OK) status = bench_manifest_end(comm, device, &result->manifest);
    if (status == TPCOMM_OK) status = tpcomm_finalize(comm);
    if (status != TPCOMM_OK) {
        code = bench_rank_failed("tune", result ? result->manifest.info.rank : 0, comm, status);
    } else if (result->manifest.info.rank == 0) {
        code = judge(job, result);
    }
    for (size_t c = 0; result && c < result->curve_count; c++) {
        free(result->curves[c].points);
        free(result->curves[c].ranges);
    }
    if (result) free(result->curves);
    free(result);
    return code;
}

int bench_tune_main(int argc, char **argv) {
    settings_t settings;
    bench_options_rest_t rest;
    job_t job = {.settings = &settings, .argc = argc, .argv = argv};
    tpcomm_status_t status = bench_options_parse(&table, argc, argv, &settings, &rest);
    if (status != TPCOMM_OK) return bench_report("tune", status);
    if (rest.help) {
        bench_options_help(&table, stdout);
        return BENCH_EXIT_OK;
    }
    bench_ranks_t ranks = {.command = "tune",
                           .argc = argc,
                           .argv = argv,
                           .ranks = (int32_t)settings.ranks,
                           .ranks_given = bench_is_given(argc, argv, "ranks", 0),
                           .threads = settings.threads,
                           .processes = settings.processes,
                           .device = (bench_device_kind_t)settings.device,
                           .devices = settings.devices,
                           .fn = run_rank,
                           .arg = &job};
    status = prepare(&settings, &job);
    if (status == TPCOMM_OK) status = bench_ranks_check(&ranks, settings.mode == MODE_GRAPH);
    return status == TPCOMM_OK ? bench_ranks_run(&ranks) : bench_report("tune", status);
}
