/* SPDX-License-Identifier: Apache-2.0 */
/** tpcomm-bench tune: measure every path of a collective and write down which sizes each should get. */
#include "tune.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "bench.h"
#include "lists.h"
#include "number.h"
#include "options.h"
#include "ranks.h"
#include "session.h"
#include "text.h"

enum { MODE_BOTH, MODE_EAGER, MODE_GRAPH };
enum { DTYPES_MAX = 12, OPS_MAX = 8, HIDDENS_MAX = 8 };

#define OP_NAMES "all_reduce, broadcast, all_gather, reduce_scatter, all_reduce_rms_norm"

typedef struct {
    const char *output, *op, *hidden, *min_bytes, *max_bytes, *dtype, *groups;
    bench_where_t where;
    uint64_t factor, iters, warmup, calls;
    double row_ms, budget_s;
    int32_t mode;
} settings_t;

static const bench_option_t options[] = {
    BENCH_TEXT("output", true, settings_t, output, "FILE", "the tuning file to write (docs/tuning.md)"),
    BENCH_TEXT("op", false, settings_t, op, "LIST", "collectives, each with rows of its own: " OP_NAMES),
    BENCH_TEXT("hidden", false, settings_t, hidden, "LIST",
               "elements of a row of all_reduce_rms_norm, 8 to 16384: 4096,8192; each with rows of its own, for what "
               "is nearest to it"),
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
    BENCH_DOUBLE("budget-s", settings_t, budget_s, "S", 0.1, 86400.0,
                 "time for all measurements: spread over them, by fewer samples and then by fewer sizes, and told"),
    BENCH_WHERE_OPTIONS(settings_t, where, 2),
    BENCH_WORD("mode", settings_t, mode, "both|eager|graph",
               "on a GPU: rows for eager calls, for those in graphs, or both; the cpu device has eager ones alone"),
    BENCH_U64("calls", 0, settings_t, calls, "C", 1, 10000, "dependent calls of one sample on a GPU"),
};

static const settings_t defaults = {.op = "all_reduce",
                                    .hidden = "8192",
                                    .min_bytes = "1K",
                                    .max_bytes = "16M",
                                    .factor = 2,
                                    .dtype = "bf16",
                                    .warmup = 5,
                                    .row_ms = 200,
                                    .where = {.ranks = 2},
                                    .calls = 50};

static const bench_options_t table = {
    .command = "tune",
    .about =
        "Measure an all_reduce (sum), or other collectives, by every path that the groups have, by turns over message\n"
        "sizes, and write a tuning file: ranges of sizes, with a switch only where the gain is above noise and the "
        "curves cross.\n"
        "Use it by TPCOMM_TUNING_FILE=FILE. Exit code: 0 ok, 1 an element was wrong or nothing was checked,\n"
        "2 usage or input, 3 the communicator failed. Rank 0 decides for all, and writes.",
    .options = options,
    .count = sizeof options / sizeof options[0],
    .defaults = &defaults,
    .settings_bytes = sizeof defaults,
};

typedef struct {
    const settings_t *settings;
    bench_tune_sizes_t sizes;
    bench_fault_t fault;
    tpcomm_coll_t ops[OPS_MAX];
    size_t op_count;
    tpcomm_dtype_t dtypes[DTYPES_MAX];
    size_t dtype_count;
    int32_t groups[TPCOMM_MAX_RANKS];
    size_t group_count;           /* 0: all ranks */
    int32_t hiddens[HIDDENS_MAX]; /* ascending */
    size_t hidden_count;
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

static bool parse_hidden(const char *name, int32_t *value_p) {
    uint64_t value;
    if (!bench_number_u64(name, strlen(name), &value) || value < 8 || value > 16384) return false;
    *value_p = (int32_t)value;
    return true;
}

static int by_length(const void *a, const void *b) {
    return *(const int32_t *)a - *(const int32_t *)b;
}

static tpcomm_status_t parse_hiddens(const char *list, job_t *job) {
    tpcomm_status_t status =
        bench_parse_list("hidden", list, parse_hidden, "8 to 16384", job->hiddens, HIDDENS_MAX, &job->hidden_count);
    for (size_t i = 0; i < job->hidden_count && status == TPCOMM_OK; i++)
        if (job->hiddens[i] % 8 != 0) status = tpc_error(TPCOMM_ERR_INVALID_ARG, "--hidden %s: a multiple of 8", list);
    if (status == TPCOMM_OK) qsort(job->hiddens, job->hidden_count, sizeof *job->hiddens, by_length);
    return status;
}

/* What can be measured. */
static bool parse_op(const char *name, int32_t *value_p) {
    return tpc_coll_parse(name, value_p) && tpc_coll_moves_data(*value_p) &&
           (!tpc_coll_has_rows(*value_p) || *value_p == TPCOMM_ALL_REDUCE_RMS_NORM);
}

static tpcomm_status_t check_pair(const job_t *job, const settings_t *settings, tpcomm_coll_t op,
                                  tpcomm_dtype_t dtype) {
    bool norms = tpc_coll_norms(op);
    int32_t widest = job->hiddens[job->hidden_count - 1];
    uint64_t row = (uint64_t)widest * tpcomm_dtype_size(dtype);
    if (norms && dtype != TPCOMM_F32 && dtype != TPCOMM_F16 && dtype != TPCOMM_BF16)
        return tpc_error(TPCOMM_ERR_INVALID_ARG, "--dtype %s: %s takes f32, f16 and bf16, not %s", settings->dtype,
                         tpcomm_coll_name(op), tpcomm_dtype_name(dtype));
    if (tpc_coll_reduces(op) && !tpc_reduction_defined(dtype, TPCOMM_SUM))
        return tpc_error(TPCOMM_ERR_INVALID_ARG, "--dtype %s: %s has no sum", settings->dtype,
                         tpcomm_dtype_name(dtype));
    if (norms && row > job->sizes.max_bytes)
        return tpc_error(TPCOMM_ERR_INVALID_ARG, "--maxbytes %s: less than one row of --hidden %d %s, %llu bytes",
                         settings->max_bytes, widest, tpcomm_dtype_name(dtype), (unsigned long long)row);
    return TPCOMM_OK;
}

static tpcomm_status_t prepare(const settings_t *settings, job_t *job) {
    tpcomm_status_t status = bench_parse_size("minbytes", settings->min_bytes, &job->sizes.min_bytes);
    if (status == TPCOMM_OK) status = bench_parse_size("maxbytes", settings->max_bytes, &job->sizes.max_bytes);
    if (status == TPCOMM_OK && (job->sizes.min_bytes < 8 || job->sizes.max_bytes < job->sizes.min_bytes))
        status = tpc_error(TPCOMM_ERR_INVALID_ARG, "--minbytes %s --maxbytes %s: from 8 bytes up, and in this order",
                           settings->min_bytes, settings->max_bytes);
    if (status == TPCOMM_OK)
        status = bench_parse_list("dtype", settings->dtype, tpc_dtype_parse, bench_dtype_names, job->dtypes, DTYPES_MAX,
                                  &job->dtype_count);
    if (status == TPCOMM_OK)
        status = bench_parse_list("op", settings->op, parse_op, OP_NAMES, job->ops, OPS_MAX, &job->op_count);
    if (status == TPCOMM_OK) status = parse_hiddens(settings->hidden, job);
    for (size_t i = 0; i < job->op_count * job->dtype_count && status == TPCOMM_OK; i++)
        status = check_pair(job, settings, job->ops[i / job->dtype_count], job->dtypes[i % job->dtype_count]);
    if (status == TPCOMM_OK && settings->groups)
        status = bench_parse_list("groups", settings->groups, parse_group, "2 to 32", job->groups, TPCOMM_MAX_RANKS,
                                  &job->group_count);
    if (status == TPCOMM_OK) status = bench_fault_read(&job->fault);
    if (status == TPCOMM_OK) status = bench_check_writable("--output", settings->output);
    job->sizes.factor = settings->factor;
    job->sizes.how = (bench_measuring_t){.calls = (uint32_t)settings->calls,
                                         .samples = settings->iters,
                                         .warmup_calls = settings->warmup,
                                         .budget_ms = settings->row_ms,
                                         .seed = 1};
    return status;
}

/** Rows nearer to one of the measured lengths than to another, by their ratio, are its. */
static void set_hidden(const job_t *job, size_t h, bench_tune_curve_t *curve) {
    double length = job->hiddens[h];
    curve->hidden = (uint32_t)job->hiddens[h];
    if (h > 0) curve->hidden_min = (uint32_t)sqrt(length * job->hiddens[h - 1]) + 1;
    if (h + 1 < job->hidden_count) curve->hidden_max = (uint32_t)sqrt(length * job->hiddens[h + 1]);
}

static size_t curves_of(const job_t *job, tpcomm_coll_t coll) {
    return tpc_coll_norms(coll) ? job->hidden_count : 1;
}

/** Every mode, collective and dtype of one group; those not of it only count along. */
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
        for (size_t i = 0; i < job->op_count * job->dtype_count; i++) {
            tpcomm_coll_t coll = job->ops[i / job->dtype_count];
            for (size_t h = 0; h < curves_of(job, coll); h++) {
                bench_tune_curve_t *curve = &result->curves[result->curve_count++];
                *curve = (bench_tune_curve_t){
                    .coll = coll, .ranks = size, .dtype = job->dtypes[i % job->dtype_count], .graph = graph != 0};
                if (tpc_coll_norms(coll)) set_hidden(job, h, curve);
                if (status == TPCOMM_OK && rank < size)
                    status = bench_tune_curve(&job->sizes, whole ? world : group, lane, result, curve);
            }
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

static tpcomm_status_t run_groups(void *arg, tpcomm_t *world, bench_device_t *device, void *result_arg) {
    const job_t *job = arg;
    bench_tune_result_t *result = result_arg;
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
    int modes = device->gpu && job->settings->mode == MODE_BOTH ? 2 : 1;
    for (size_t i = 0; i < job->op_count; i++)
        result->curves_planned += curves_of(job, job->ops[i]) * job->dtype_count * count * (size_t)modes;
    result->begun_ns = tpc_clock_ns();
    result->budget_s = job->settings->budget_s;
    result->curves = calloc(result->curves_planned, sizeof *result->curves);
    if (status == TPCOMM_OK && !result->curves) status = tpc_error(TPCOMM_ERR_NO_MEMORY, "no memory");
    if (status == TPCOMM_OK && !device->gpu && job->settings->mode == MODE_GRAPH)
        status = tpc_error(TPCOMM_ERR_UNSUPPORTED, "--mode graph: the ranks compute on the cpu device");
    if ((status = bench_agree(world, status)) != TPCOMM_OK) return status;
    uint32_t hidden = 0;
    for (size_t i = 0; i < job->op_count; i++)
        if (tpc_coll_norms(job->ops[i])) hidden = (uint32_t)job->hiddens[job->hidden_count - 1];
    status = bench_lane_new(
        "tune", world, device,
        &(bench_lane_spec_t){.message_bytes = job->sizes.max_bytes, .hidden = hidden, .calls = job->sizes.how.calls},
        &job->fault, &lane);
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
    result->elapsed_s = (double)(tpc_clock_ns() - result->begun_ns) / 1e9;
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
    char rows[32] = "";
    if (curve->hidden) snprintf(rows, sizeof rows, ", rows of %u", curve->hidden);
    printf("\n%s%s, %d ranks, %s, %s%s: p50 of a call in us, * is chosen\n#%11s", tpcomm_coll_name(curve->coll), rows,
           curve->ranks, curve->topology, tpcomm_dtype_name(curve->dtype),
           !result->by_mode ? ""
           : curve->graph   ? ", graph"
                            : ", eager",
           "size");
    for (size_t p = 0; p < curve->path_count; p++)
        if (is_measured(curve, p)) printf(" %12s ", tpcomm_path_name(curve->paths[p]));
    putchar('\n');
    for (size_t i = 0; i < curve->point_count; i++) {
        const bench_tune_point_t *point = &curve->points[i];
        printf("%12" PRIu64, point->bytes);
        for (size_t p = 0; p < curve->path_count; p++) {
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
        printf("  %" PRIu64 " to %s: %s", range->bytes_min, end, tpcomm_path_name(curve->paths[range->path]));
        if (!isnan(range->gain_percent)) printf(", a gain of %.1f %%", range->gain_percent);
        putchar('\n');
    }
    if (curve->left_out_count > 0) printf("  left out, since the budget is spent:");
    for (size_t i = 0; i < curve->left_out_count; i++) printf(" %" PRIu64, curve->left_out[i]);
    if (curve->left_out_count > 0) putchar('\n');
}

static void print_time(const bench_tune_result_t *result) {
    size_t sizes = 0, left_out = 0;
    for (size_t c = 0; c < result->curve_count; c++) {
        sizes += result->curves[c].point_count + result->curves[c].left_out_count;
        left_out += result->curves[c].left_out_count;
    }
    char budget[64] = "";
    if (result->budget_s > 0) snprintf(budget, sizeof budget, ", of a budget of %.4g s", result->budget_s);
    bench_text_line(stdout, "time", "%.1f s%s: %zu sizes measured, %zu left out", result->elapsed_s, budget,
                    sizes - left_out, left_out);
}

static int judge(void *arg, const void *result_arg) {
    const job_t *job = arg;
    const bench_tune_result_t *result = result_arg;
    bench_manifest_print(stdout, "tune", &result->manifest, TPCOMM_PATH_AUTO);
    for (size_t c = 0; c < result->curve_count; c++) print_curve(result, &result->curves[c]);
    putchar('\n');
    print_time(result);
    bench_text_line(stdout, "checked", "%" PRIu64 " elements bit for bit: %" PRIu64 " wrong", result->checked,
                    result->wrong);
    if (result->wrong > 0 || result->checked == 0) {
        fputs("tpcomm-bench tune: nothing is written\n", stderr);
        return bench_verdict("tune", TPCOMM_OK, result->wrong, result->checked);
    }
    tpcomm_status_t status = bench_tune_write(result, job->settings->output);
    if (status != TPCOMM_OK) return bench_report("tune", status);
    bench_text_line(stdout, "written", "%s; use it by TPCOMM_TUNING_FILE", job->settings->output);
    return BENCH_EXIT_OK;
}

/* ---------------------------------------------------------------- one rank */

static uint64_t hash_settings(const job_t *job) {
    uint64_t hash = BENCH_HASH_START;
    const uint64_t numbers[] = {job->sizes.min_bytes,
                                job->sizes.max_bytes,
                                job->sizes.factor,
                                job->sizes.how.calls,
                                job->sizes.how.samples,
                                job->sizes.how.warmup_calls,
                                job->dtype_count,
                                job->op_count,
                                job->hidden_count,
                                job->group_count,
                                (uint64_t)job->settings->mode,
                                (uint64_t)job->sizes.how.budget_ms,
                                (uint64_t)(job->settings->budget_s * 1000)};
    hash = bench_hash_more(hash, numbers, sizeof numbers);
    hash = bench_hash_more(hash, job->dtypes, job->dtype_count * sizeof job->dtypes[0]);
    hash = bench_hash_more(hash, job->ops, job->op_count * sizeof job->ops[0]);
    hash = bench_hash_more(hash, job->hiddens, job->hidden_count * sizeof job->hiddens[0]);
    return bench_hash_more(hash, job->groups, job->group_count * sizeof job->groups[0]);
}

static void drop_result(void *arg) {
    bench_tune_result_t *result = arg;
    for (size_t c = 0; c < result->curve_count; c++) {
        free(result->curves[c].points);
        free(result->curves[c].ranges);
        free(result->curves[c].left_out);
    }
    free(result->curves);
}

/** Counts of wrong elements are rank 0's alone only where it was in the group: it is in all. */
static int run_rank(void *arg, tpcomm_t *comm, bench_device_t *device) {
    job_t *job = arg;
    bench_session_t session = {.command = "tune",
                               .argc = job->argc,
                               .argv = job->argv,
                               .result_bytes = sizeof(bench_tune_result_t),
                               .hash = hash_settings(job),
                               .job = job,
                               .run = run_groups,
                               .judge = judge,
                               .drop = drop_result};
    return bench_session(&session, comm, device);
}

int bench_tune_main(int argc, char **argv) {
    settings_t settings;
    bench_options_rest_t rest;
    job_t job = {.settings = &settings, .argc = argc, .argv = argv};
    int code;
    if (!bench_options_read(&table, argc, argv, &settings, &rest, &code)) return code;
    bench_ranks_t ranks = bench_ranks_of("tune", argc, argv, &settings.where, run_rank, &job);
    tpcomm_status_t status = prepare(&settings, &job);
    if (status == TPCOMM_OK) status = bench_ranks_check(&ranks, settings.mode == MODE_GRAPH);
    return status == TPCOMM_OK ? bench_ranks_run(&ranks) : bench_report("tune", status);
}
