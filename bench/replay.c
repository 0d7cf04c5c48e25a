/* SPDX-License-Identifier: Apache-2.0 */
/**
 * tpcomm-bench replay: the AllReduces of real decode traffic. This file reads the options and sees to it that there are
 * ranks: those of a launcher where one started this process, else threads, else processes that are copies of this one.
 */
#include "replay.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "options.h"
#include "ranks.h"
#include "replay_summary.h"

#define SEED_MAX ((UINT64_C(1) << 53) - 1) /* exact in JSON */

/* The words of --path are the library's own, in the order of path_values. */
#define PATH_WORD(path, name)  "|" name
#define PATH_VALUE(path, name) path,
static const char path_words[] = TPC_PATH_LIST(PATH_WORD);
static const tpcomm_path_t path_values[] = {TPC_PATH_LIST(PATH_VALUE)};

static const tpcomm_dtype_t dtype_values[] = {TPCOMM_F32, TPCOMM_F16, TPCOMM_BF16};

typedef struct {
    const char *histogram, *model, *pad, *json, *devices, *beside;
    uint64_t hidden, layers, calls_per_layer, extra_calls, ranks, iterations, seed, warmup;
    double gap_us, budget_s;
    int32_t dtype, device, phase, path, mode;
    bool threads, processes, lump, fused;
} settings_t;

enum { MODE_EAGER, MODE_GRAPH };

static const bench_option_t options[] = {
    BENCH_TEXT("histogram", true, settings_t, histogram, "FILE",
               "tokens per iteration, as tpcomm-bench trace writes them"),
    BENCH_TEXT("model", false, settings_t, model, "NAME|FILE",
               "llama-3.1-8b, llama-3.1-70b, qwen3-32b, or a .json file (tpcomm-model/1)"),
    BENCH_U64("hidden", 0, settings_t, hidden, "H", 1, BENCH_MODEL_HIDDEN_MAX,
              "elements of one token, in place of --model"),
    BENCH_U64("layers", 0, settings_t, layers, "L", 1, BENCH_MODEL_LAYERS_MAX, "layers, in place of --model"),
    BENCH_U64("calls-per-layer", 0, settings_t, calls_per_layer, "C", 0, BENCH_MODEL_CALLS_MAX,
              "AllReduces of a layer; a model file's own number unless given"),
    BENCH_U64("extra-calls", 0, settings_t, extra_calls, "C", 0, BENCH_MODEL_CALLS_MAX,
              "AllReduces of an iteration beside those of the layers: the vocab-parallel embedding"),
    BENCH_WORD("dtype", settings_t, dtype, "f32|f16|bf16", "type of an element"),
    BENCH_U64("ranks", 'n', settings_t, ranks, "N", 1, TPCOMM_MAX_RANKS,
              "ranks to start on this host; under a launcher, its number"),
    BENCH_FLAG("threads", settings_t, threads, "the ranks are threads of this process, not processes of their own"),
    BENCH_FLAG(
        "processes", settings_t, processes,
        "the ranks are processes of their own; without either they are, but threads where they would share a GPU"),
    BENCH_WORD("device", settings_t, device, BENCH_DEVICE_WORDS, "where the ranks compute"),
    BENCH_TEXT("devices", false, settings_t, devices, "LIST",
               "GPU of rank 0, 1, ...: 0,0 shares one; again from the start where there are more ranks"),
    BENCH_WORD("phase", settings_t, phase, "all|decode|mixed",
               "which iterations are drawn: all by their counts, those without or those with prompt tokens"),
    BENCH_TEXT("pad", false, settings_t, pad, "none|vllm|LIST",
               "round T up to the next of these sizes, as an engine does that replays graphs:\n"
               "vllm is 1, 2, 4, by 8 to 256, by 16 to 512; LIST is 8,16,64; above the last T stays as it is"),
    BENCH_DOUBLE("gap-us", settings_t, gap_us, "G", 0.0, 1e6, "busy time between two calls, in place of compute"),
    BENCH_WORD("path", settings_t, path, path_words + 1, "path of every call; auto: the library chooses"),
    BENCH_TEXT("beside", false, settings_t, beside, "auto|none|PATH",
               "run every iteration by this path too; auto: nccl, where each rank has a GPU of its own"),
    BENCH_WORD("mode", settings_t, mode, "eager|graph",
               "one call after the other, or an iteration as a CUDA graph, one for each size"),
    BENCH_U64("iterations", 0, settings_t, iterations, "K", 1, 100000,
              "iterations to draw; as many as fit --budget-s unless given"),
    BENCH_DOUBLE("budget-s", settings_t, budget_s, "S", 0.01, 86400.0,
                 "time for the timed part where --iterations is not given"),
    BENCH_U64("warmup", 0, settings_t, warmup, "W", 1, 100000,
              "calls of the smallest, the middle and the greatest size before; fewer where they take over\n"
              "a tenth of the budget each"),
    BENCH_U64("seed", 0, settings_t, seed, "S", 0, SEED_MAX, "decides draws and data"),
    BENCH_FLAG("fused", settings_t, fused,
               "every call is all_reduce + residual + RMSNorm (tpcomm_all_reduce_rms_norm); --beside unfused compares"),
    BENCH_FLAG("lump", settings_t, lump, "also send each iteration's bytes as one message, up to 256 MiB"),
    BENCH_TEXT("json", false, settings_t, json, "FILE", "write everything to FILE too (tpcomm-replay/1)"),
};

static const settings_t defaults = {.pad = "none",
                                    .beside = "auto",
                                    .calls_per_layer = 2,
                                    .extra_calls = 1,
                                    .dtype = 2,
                                    .ranks = 2,
                                    .phase = BENCH_PHASE_ALL,
                                    .budget_s = 10,
                                    .warmup = 20,
                                    .seed = 1};

static const bench_options_t table = {
    .command = "replay",
    .about =
        "Draw iterations of an engine from a histogram of tokens per iteration, run their AllReduces of T x hidden\n"
        "elements on N ranks, check every element on every rank, and print what they cost, which path each size\n"
        "took and why. The columns are explained in docs/replay.md.\n"
        "Exit code: 0 ok, 1 an element was wrong or nothing was checked, 2 usage or input, 3 the communicator\n"
        "failed. Where a launcher started the ranks, rank 0 prints and gives the verdict.",
    .options = options,
    .count = sizeof options / sizeof options[0],
    .defaults = &defaults,
    .settings_bytes = sizeof defaults,
};

/* ---------------------------------------------------------------- settings */

static tpcomm_status_t set_model(const settings_t *settings, int argc, char **argv, bench_model_t *model_p) {
    bench_model_t model = {"", settings->hidden, settings->layers, settings->calls_per_layer, settings->extra_calls};
    bool given = settings->hidden || settings->layers;
    if (settings->model && given)
        return tpc_error(TPCOMM_ERR_INVALID_ARG, "--model and --hidden, --layers contradict: a model says both");
    if (!settings->model && !(settings->hidden && settings->layers))
        return tpc_error(TPCOMM_ERR_INVALID_ARG, "--model NAME, or both --hidden H and --layers L, are needed");
    if (settings->model) {
        tpcomm_status_t status = bench_model_find(settings->model, &model);
        if (status != TPCOMM_OK) return status;
        if (bench_is_given(argc, argv, "calls-per-layer", 0)) model.calls_per_layer = settings->calls_per_layer;
        if (bench_is_given(argc, argv, "extra-calls", 0)) model.extra_calls = settings->extra_calls;
    }
    if (model.calls_per_layer + model.extra_calls == 0)
        return tpc_error(TPCOMM_ERR_INVALID_ARG,
                         "--calls-per-layer 0 --extra-calls 0: an iteration would make no call");
    *model_p = model;
    return TPCOMM_OK;
}

static tpcomm_status_t check_histogram(const bench_replay_t *replay) {
    static const char *const bins[] = {"decode_only and mixed hold", "decode_only holds", "mixed holds"};
    uint32_t range[3];
    if (bench_plan_population(&replay->histogram, replay->phase) == 0)
        return tpc_error(TPCOMM_ERR_INVALID_ARG, "%s: %s no iterations: nothing to draw for --phase %s",
                         replay->histogram_path, bins[replay->phase], bench_phase_names[replay->phase]);
    bench_plan_range(&replay->histogram, replay->phase, &replay->padding, range);
    if (bench_replay_bytes(replay, range[2]) > UINT64_C(1) << 40)
        return tpc_error(TPCOMM_ERR_INVALID_ARG, "%s: T = %u at hidden %llu makes messages of over 1 TiB",
                         replay->histogram_path, range[2], (unsigned long long)replay->model.hidden);
    return TPCOMM_OK;
}

static tpcomm_status_t set_beside(const char *text, bench_replay_t *replay) {
    replay->beside = strcmp(text, "auto") == 0   ? BENCH_BESIDE_AUTO
                     : strcmp(text, "none") == 0 ? BENCH_BESIDE_NONE
                                                 : BENCH_BESIDE_PATH;
    if (replay->beside != BENCH_BESIDE_PATH) return TPCOMM_OK;
    if (tpc_path_parse(text, &replay->beside_path)) return TPCOMM_OK;
    return tpc_error(TPCOMM_ERR_INVALID_ARG, "--beside %s: allowed are auto, none and %s", text, path_words + 1);
}

/** Everything that can be refused without a communicator; the same answer on every rank. */
static tpcomm_status_t prepare(const settings_t *settings, int argc, char **argv, bench_replay_t *replay) {
    tpcomm_status_t status;
    replay->histogram_path = settings->histogram;
    replay->pad_text = settings->pad;
    replay->json_path = settings->json;
    replay->phase = (bench_phase_t)settings->phase;
    replay->dtype = dtype_values[settings->dtype];
    replay->path = path_values[settings->path];
    replay->iterations = settings->iterations;
    replay->seed = settings->seed;
    replay->warmup_calls = settings->warmup;
    replay->budget_s = settings->budget_s;
    replay->gap_us = settings->gap_us;
    replay->threads = settings->threads;
    replay->lump = settings->lump;
    replay->graph = settings->mode == MODE_GRAPH;
    replay->fused = settings->fused;
    if (replay->fused && replay->lump)
        return tpc_error(TPCOMM_ERR_INVALID_ARG, "--fused and --lump contradict: a lump has no rows");
    if ((status = set_beside(settings->beside, replay)) != TPCOMM_OK) return status;
    replay->argc = argc;
    replay->argv = argv;
    if ((status = bench_fault_read(&replay->fault)) != TPCOMM_OK) return status;
    if ((status = set_model(settings, argc, argv, &replay->model)) != TPCOMM_OK) return status;
    if (replay->fused && (replay->model.hidden % 8 != 0 || replay->model.hidden > 16384))
        return tpc_error(TPCOMM_ERR_INVALID_ARG,
                         "--fused: rows of %llu elements; a norm wants a multiple of 8, up to 16384",
                         (unsigned long long)replay->model.hidden);
    replay->calls = replay->model.layers * replay->model.calls_per_layer + replay->model.extra_calls;
    if (replay->iterations > BENCH_REPLAY_CALLS_MAX / replay->calls)
        return tpc_error(TPCOMM_ERR_INVALID_ARG, "--iterations %llu of %llu calls: over the limit of %llu calls",
                         (unsigned long long)replay->iterations, (unsigned long long)replay->calls,
                         (unsigned long long)BENCH_REPLAY_CALLS_MAX);
    if ((status = bench_padding_parse(settings->pad, &replay->padding)) != TPCOMM_OK) return status;
    if ((status = bench_check_writable("--json", settings->json)) != TPCOMM_OK) return status;
    if ((status = bench_histogram_read(settings->histogram, &replay->histogram)) != TPCOMM_OK) return status;
    return check_histogram(replay);
}

/* ---------------------------------------------------------------- one rank */

static int fail(int32_t rank, tpcomm_status_t status) {
    fprintf(stderr, "tpcomm-bench replay: rank %d: %s: %s\n", rank, tpcomm_status_name(status), tpcomm_last_error());
    /* A forced path that cannot carry a size is a wrong option, though the communicator says so. */
    return status == TPCOMM_ERR_TOO_SMALL ? BENCH_EXIT_USAGE : bench_exit_code(status);
}

/** Rank 0's last act: tell, and judge. */
static int report(const bench_replay_t *replay, const bench_result_t *result) {
    bench_report_t report;
    tpcomm_status_t status = bench_report_new(replay, result, &report);
    if (status != TPCOMM_OK) return fail(0, status);
    bench_table_print(stdout, replay, result, &report);
    if (replay->json_path) status = bench_json_write(replay, result, &report);
    bench_report_free(&report);
    return bench_verdict("replay", status, result->wrong, result->checked);
}

static int run_rank(void *arg, tpcomm_t *comm, bench_device_t *device) {
    const bench_replay_t *replay = arg;
    bench_result_t result;
    int code = BENCH_EXIT_OK;
    memset(&result, 0, sizeof result);
    tpcomm_status_t status = bench_replay_rank(replay, comm, device, &result);
    /* The others leave before rank 0 prints: a reader that takes its time must not keep them. */
    if (status == TPCOMM_OK) status = tpcomm_finalize(comm);
    if (status != TPCOMM_OK) {
        code = fail(result.manifest.info.rank, status);
        tpcomm_abort(comm, tpcomm_last_error());
    } else if (result.manifest.info.rank == 0) {
        code = report(replay, &result);
    }
    bench_result_free(&result);
    return code;
}

int bench_replay_main(int argc, char **argv) {
    settings_t settings;
    bench_options_rest_t rest;
    bench_replay_t replay;
    int code;
    if (!bench_options_read(&table, argc, argv, &settings, &rest, &code)) return code;
    memset(&replay, 0, sizeof replay);
    bench_ranks_t ranks = {.command = "replay",
                           .argc = argc,
                           .argv = argv,
                           .ranks = (int32_t)settings.ranks,
                           .ranks_given = bench_is_given(argc, argv, "ranks", 'n'),
                           .threads = settings.threads,
                           .processes = settings.processes,
                           .devices = settings.devices,
                           .device = (bench_device_kind_t)settings.device,
                           .fn = run_rank,
                           .arg = &replay};
    tpcomm_status_t status = bench_ranks_check(&ranks, settings.mode == MODE_GRAPH);
    if (status == TPCOMM_OK) status = prepare(&settings, argc, argv, &replay);
    code = status == TPCOMM_OK ? bench_ranks_run(&ranks) : bench_report("replay", status);
    bench_histogram_free(&replay.histogram);
    return code;
}
