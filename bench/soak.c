/* SPDX-License-Identifier: Apache-2.0 */
/** tpcomm-bench soak: random calls for a long time, every element checked, and nothing may grow. */
#include "soak.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "lists.h"
#include "options.h"
#include "ranks.h"
#include "text.h"

#define SEED_MAX    ((UINT64_C(1) << 53) - 1) /* exact in JSON */
#define HIDDEN_MAX  8192
#define SHIFT_BYTES 4096 /* room for buffers that begin somewhere else */

typedef struct {
    double seconds;
    bench_where_t where;
    uint64_t seed, first, stretches;
    const char *max_bytes, *json;
} settings_t;

static const bench_option_t options[] = {
    BENCH_DOUBLE("seconds", settings_t, seconds, "S", 0.1, 1e6, "how long"),
    BENCH_U64("seed", 0, settings_t, seed, "S", 0, SEED_MAX, "decides everything that is drawn"),
    BENCH_U64("first", 0, settings_t, first, "N", 0, SEED_MAX, "begin with this stretch of the seed"),
    BENCH_U64("stretches", 0, settings_t, stretches, "N", 0, SEED_MAX,
              "end after so many, whatever the time; 0: no such end"),
    BENCH_LETTER_TEXT("maxbytes", 'e', settings_t, max_bytes, "SIZE", "greatest message"),
    BENCH_WHERE_OPTIONS(settings_t, where, 1),
    BENCH_TEXT("json", false, settings_t, json, "FILE", "write everything to FILE too (tpcomm-soak/1)"),
};

static const settings_t defaults = {.seconds = 10, .where = {.ranks = 4}, .seed = 1, .max_bytes = "1M"};

static const bench_options_t table = {
    .command = "soak",
    .about =
        "Make random calls for a long time: collectives, dtypes, reductions, sizes, alignments, paths, groups that\n"
        "come and go, host messages, on a GPU also graphs. Every element of every result is checked on every rank,\n"
        "and descriptors, threads and memory must stay as they were after the first fifth of the time.\n"
        "Exit code: 0 ok, 1 an element was wrong or something grew, 2 usage or input, 3 the communicator failed.",
    .options = options,
    .count = sizeof options / sizeof options[0],
    .defaults = &defaults,
    .settings_bytes = sizeof defaults,
};

typedef struct {
    const bench_soak_t *soak;
    int argc;
    char **argv;
} job_t;

/* ---------------------------------------------------------------- one rank */

static double elapsed_s(const bench_soak_run_t *run) {
    return (double)(tpc_clock_ns() - run->start_ns) / 1e9;
}

/** Rank 0's clock decides for all: how many of the stages (warm, end) are reached. */
static tpcomm_status_t agree_on_time(const bench_soak_run_t *run, double *elapsed_p) {
    double elapsed = elapsed_s(run);
    tpcomm_status_t status = tpcomm_host_broadcast(run->world, &elapsed, sizeof elapsed, 0, 0);
    *elapsed_p = elapsed;
    return status;
}

/** What this process holds while nothing runs. One rank after the other: to look takes descriptors, which threads
 * share.
 */
static tpcomm_status_t sample(const bench_soak_run_t *run, bench_soak_sample_t *sample_p) {
    tpcomm_status_t status = bench_soak_settle(run, run->world);
    for (int32_t r = 0; r < run->ranks && status == TPCOMM_OK; r++)
        status = bench_agree(run->world, r == run->rank ? bench_soak_sample(run, sample_p) : TPCOMM_OK);
    return status;
}

static tpcomm_status_t run_stretches(bench_soak_run_t *run, bench_soak_result_t *result) {
    const bench_soak_t *soak = run->soak;
    double elapsed = 0, every = soak->seconds / (BENCH_SOAK_SAMPLES_MAX - 4), next = every;
    bench_soak_sample_t mine, warm = {.at_s = -1};
    tpcomm_status_t status = TPCOMM_OK;
    for (uint64_t index = soak->first; status == TPCOMM_OK; index++) {
        status = bench_soak_stretch(run, index);
        result->stretches++;
        if (status == TPCOMM_OK) status = agree_on_time(run, &elapsed);
        if (status != TPCOMM_OK) break;
        bool over = soak->stretches > 0 ? result->stretches == soak->stretches : elapsed >= soak->seconds;
        bool is_warm = warm.at_s < 0 && elapsed >= soak->seconds / 5;
        if (!over && !is_warm && elapsed < next) continue;
        status = sample(run, &mine);
        next = elapsed + every;
        if (is_warm || warm.at_s < 0) warm = mine;
        if (status == TPCOMM_OK && result->sample_count < BENCH_SOAK_SAMPLES_MAX)
            result->samples[result->sample_count++] = mine;
        if (over) break;
    }
    result->ran_s = elapsed;
    if (status == TPCOMM_OK) status = tpcomm_host_all_gather(run->world, &warm, result->before, sizeof warm, 0);
    return status == TPCOMM_OK ? tpcomm_host_all_gather(run->world, &mine, result->after, sizeof mine, 0) : status;
}

static tpcomm_status_t soak_on(bench_soak_run_t *run, bench_soak_result_t *result) {
    bench_lane_spec_t spec = {.message_bytes = run->soak->max_bytes + 2 * SHIFT_BYTES, .hidden = HIDDEN_MAX};
    tpcomm_status_t status = bench_lane_new("soak", run->world, run->device, &spec, &run->soak->fault, &run->lane);
    if (status != TPCOMM_OK) return status;
    status = bench_soak_settle(run, run->world);
    if (status == TPCOMM_OK) status = tpcomm_group_split(run->world, run->rank % 2, 0, "half", &run->half);
    if (status == TPCOMM_OK) status = bench_soak_settle(run, run->world);
    run->start_ns = tpc_clock_ns();
    if (status == TPCOMM_OK) status = run_stretches(run, result);
    bench_lane_use(run->lane, NULL);
    if (status == TPCOMM_OK) status = tpcomm_finalize(run->half);
    if (status != TPCOMM_OK) { /* wakes the others, before memory is freed that their kernels may still write */
        char text[TPC_ERROR_BYTES];
        snprintf(text, sizeof text, "%s", tpcomm_last_error());
        fprintf(stderr, "tpcomm-bench soak: rank %d: in stretch %" PRIu64 " of seed %" PRIu64 "\n", run->rank,
                run->stretch, run->soak->seed);
        tpcomm_abort(run->world, text);
        tpcomm_destroy(run->half);
        bench_lane_free(run->lane);
        return tpc_error(status, "%s", text);
    }
    status = tpcomm_destroy(run->half);
    bench_lane_free(run->lane);
    result->counts = run->counts;
    result->plan = run->plan;
    return status == TPCOMM_OK ? bench_gather_sum(run->world, (uint64_t *)(void *)&result->counts,
                                                  sizeof result->counts / sizeof(uint64_t))
                               : status;
}

/* ---------------------------------------------------------------- telling it */

static void print_rank(const bench_soak_result_t *result, int32_t rank) {
    const bench_soak_sample_t *before = &result->before[rank], *after = &result->after[rank];
    char label[24];
    snprintf(label, sizeof label, "rank %d", rank);
    bench_text_line(stdout, label,
                    "descriptors %" PRIu64 " -> %" PRIu64 ", threads %" PRIu64 " -> %" PRIu64 ", resident %" PRIu64
                    " -> %" PRIu64 " KiB%s",
                    before->descriptors, after->descriptors, before->threads, after->threads, before->resident_kib,
                    after->resident_kib, bench_soak_is_flat(before, after) ? "" : "  GROWN");
    if (result->manifest.ranks[rank].has_gpu)
        bench_text_line(stdout, "", "device memory free %" PRIu64 " -> %" PRIu64 " bytes", before->device_free_bytes,
                        after->device_free_bytes);
}

static void print_result(const bench_soak_t *soak, const bench_soak_result_t *result) {
    const bench_soak_counts_t *counts = &result->counts;
    bench_manifest_print(stdout, "soak", &result->manifest, TPCOMM_PATH_AUTO);
    bench_text_line(stdout, "soak", "seed %" PRIu64 ", stretches %" PRIu64 " to %" PRIu64 ", %.1f s", soak->seed,
                    soak->first, soak->first + result->stretches - 1, result->ran_s);
    for (tpcomm_coll_t coll = 1; coll < TPC_COLL_END; coll++)
        if (counts->calls[coll] > 0)
            bench_text_line(stdout, coll == TPCOMM_ALL_REDUCE ? "calls" : "", "%-20s %12" PRIu64,
                            tpcomm_coll_name(coll), counts->calls[coll]);
    for (tpcomm_path_t path = 1, shown = 0; path < TPC_PATH_END; path++)
        if (counts->paths[path] > 0)
            bench_text_line(stdout, shown++ == 0 ? "by path" : "", "%-20s %12" PRIu64, tpcomm_path_name(path),
                            counts->paths[path]);
    bench_text_line(stdout, "of these",
                    "%" PRIu64 " in place, %" PRIu64 " misaligned, %" PRIu64 " graphs (%" PRIu64 " replays)",
                    counts->in_place, counts->misaligned, counts->graphs, counts->replays);
    bench_text_line(stdout, "beside", "%" PRIu64 " memberships of groups that came and went, %" PRIu64 " host messages",
                    counts->groups, counts->host_messages);
    for (int32_t r = 0; r < result->manifest.info.size; r++) print_rank(result, r);
    bench_text_line(stdout, "checked", "%" PRIu64 " elements bit for bit: %" PRIu64 " wrong", counts->checked,
                    counts->wrong);
    bench_manifest_print_caveats(stdout, &result->manifest);
}

static int judge(const bench_soak_t *soak, bench_soak_result_t *result) {
    result->flat = true;
    for (int32_t r = 0; r < result->manifest.info.size; r++)
        result->flat = result->flat && bench_soak_is_flat(&result->before[r], &result->after[r]);
    print_result(soak, result);
    tpcomm_status_t status = soak->json_path ? bench_soak_json(soak, result) : TPCOMM_OK;
    int code = bench_verdict("soak", status, result->counts.wrong, result->counts.checked);
    if (code != BENCH_EXIT_OK) return code;
    if (!result->flat) {
        fprintf(stderr, "tpcomm-bench soak: descriptors, threads or memory have grown\n");
        return BENCH_EXIT_WRONG;
    }
    return BENCH_EXIT_OK;
}

static int run_rank(void *arg, tpcomm_t *comm, bench_device_t *device) {
    const job_t *job = arg;
    bench_soak_result_t *result = calloc(1, sizeof *result);
    bench_soak_run_t run = {.soak = job->soak, .world = comm, .device = device, .plan = BENCH_HASH_START};
    tpcomm_status_t status = result ? TPCOMM_OK : tpc_error(TPCOMM_ERR_NO_MEMORY, "no memory");
    int code = BENCH_EXIT_OK;
    status = bench_agree(comm, status);
    if (status == TPCOMM_OK) {
        uint64_t numbers[] = {job->soak->seed, job->soak->first, job->soak->stretches, job->soak->max_bytes};
        status = bench_agree_on_options(comm, bench_hash_more(BENCH_HASH_START, numbers, sizeof numbers), job->argc,
                                        job->argv);
    }
    if (status == TPCOMM_OK) status = bench_manifest_begin(comm, device, job->argc, job->argv, &result->manifest);
    if (status == TPCOMM_OK) {
        run.rank = result->manifest.info.rank;
        run.ranks = result->manifest.info.size;
        status = soak_on(&run, result);
    }
    if (status == TPCOMM_OK) status = bench_manifest_end(comm, device, &result->manifest);
    if (status == TPCOMM_OK) status = tpcomm_finalize(comm);
    if (status != TPCOMM_OK)
        code = bench_rank_failed("soak", run.rank, comm, status);
    else if (run.rank == 0)
        code = judge(job->soak, result);
    free(result);
    return code;
}

static tpcomm_status_t prepare(const settings_t *settings, bench_soak_t *soak) {
    tpcomm_status_t status = bench_parse_size("maxbytes", settings->max_bytes, &soak->max_bytes);
    if (status == TPCOMM_OK && soak->max_bytes < 4 * HIDDEN_MAX)
        status = tpc_error(TPCOMM_ERR_INVALID_ARG, "--maxbytes %s: a row of %d floats must fit", settings->max_bytes,
                           HIDDEN_MAX);
    if (status == TPCOMM_OK) status = bench_fault_read(&soak->fault);
    if (status == TPCOMM_OK) status = bench_check_writable("--json", settings->json);
    soak->seconds = settings->seconds;
    soak->seed = settings->seed;
    soak->first = settings->first;
    soak->stretches = settings->stretches;
    soak->json_path = settings->json;
    return status;
}

int bench_soak_main(int argc, char **argv) {
    settings_t settings;
    bench_options_rest_t rest;
    bench_soak_t soak;
    memset(&soak, 0, sizeof soak);
    int code;
    if (!bench_options_read(&table, argc, argv, &settings, &rest, &code)) return code;
    job_t job = {&soak, argc, argv};
    bench_ranks_t ranks = bench_ranks_of("soak", argc, argv, &settings.where, run_rank, &job);
    tpcomm_status_t status = prepare(&settings, &soak);
    if (status == TPCOMM_OK) status = bench_ranks_check(&ranks, false);
    return status == TPCOMM_OK ? bench_ranks_run(&ranks) : bench_report("soak", status);
}
