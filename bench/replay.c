/* SPDX-License-Identifier: Apache-2.0 */
/**
 * tpcomm-bench replay: the AllReduces of real decode traffic. This file reads the options and sees to it that there are
 * ranks: those of a launcher where one started this process, else threads, else processes that are copies of this one.
 */
#include "replay.h"

#include <errno.h>
#include <libgen.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench.h"
#include "launch.h"
#include "launch_env.h"
#include "options.h"
#include "replay_summary.h"

#define SEED_MAX ((UINT64_C(1) << 53) - 1) /* exact in JSON */

/* The words of --path are the library's own, in the order of path_values. */
#define PATH_WORD(path, name)  "|" name
#define PATH_VALUE(path, name) path,
static const char path_words[] = TPC_PATH_LIST(PATH_WORD);
static const tpcomm_path_t path_values[] = {TPC_PATH_LIST(PATH_VALUE)};

static const tpcomm_dtype_t dtype_values[] = {TPCOMM_F32, TPCOMM_F16, TPCOMM_BF16};

typedef struct {
    const char *histogram, *model, *pad, *json;
    uint64_t hidden, layers, calls_per_layer, extra_calls, ranks, iterations, seed, warmup;
    double gap_us, budget_s;
    int32_t dtype, device, phase, path, mode;
    bool threads, lump;
} settings_t;

enum { DEVICE_AUTO, DEVICE_CPU, DEVICE_CUDA };
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
    BENCH_WORD("device", settings_t, device, "auto|cpu|cuda", "where the ranks compute"),
    BENCH_WORD("phase", settings_t, phase, "all|decode|mixed",
               "which iterations are drawn: all by their counts, those without or those with prompt tokens"),
    BENCH_TEXT("pad", false, settings_t, pad, "none|vllm|LIST",
               "round T up to the next of these sizes, as an engine does that replays graphs:\n"
               "vllm is 1, 2, 4, by 8 to 256, by 16 to 512; LIST is 8,16,64; above the last T stays as it is"),
    BENCH_DOUBLE("gap-us", settings_t, gap_us, "G", 0.0, 1e6, "busy time between two calls, in place of compute"),
    BENCH_WORD("path", settings_t, path, path_words + 1, "path of every call; auto: the library chooses"),
    BENCH_WORD("mode", settings_t, mode, "eager|graph", "one call after the other, or as a CUDA graph"),
    BENCH_U64("iterations", 0, settings_t, iterations, "K", 1, 100000,
              "iterations to draw; as many as fit --budget-s unless given"),
    BENCH_DOUBLE("budget-s", settings_t, budget_s, "S", 0.01, 86400.0,
                 "time for the timed part where --iterations is not given"),
    BENCH_U64("warmup", 0, settings_t, warmup, "W", 1, 100000,
              "calls of the smallest, the middle and the greatest size before; fewer where they take over\n"
              "a tenth of the budget each"),
    BENCH_U64("seed", 0, settings_t, seed, "S", 0, SEED_MAX, "decides draws and data"),
    BENCH_FLAG("lump", settings_t, lump, "also send each iteration's bytes as one message, up to 256 MiB"),
    BENCH_TEXT("json", false, settings_t, json, "FILE", "write everything to FILE too (tpcomm-replay/1)"),
};

static const settings_t defaults = {.pad = "none",
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

static bool is_given(int argc, char **argv, const char *name) {
    size_t length = strlen(name);
    for (int i = 1; i < argc; i++)
        if (strncmp(argv[i], "--", 2) == 0 && strncmp(argv[i] + 2, name, length) == 0 &&
            (argv[i][2 + length] == '\0' || argv[i][2 + length] == '='))
            return true;
    return false;
}

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
        if (is_given(argc, argv, "calls-per-layer")) model.calls_per_layer = settings->calls_per_layer;
        if (is_given(argc, argv, "extra-calls")) model.extra_calls = settings->extra_calls;
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

/** See before the run, not after it, that the JSON file can be written. */
static tpcomm_status_t check_json_path(const char *path) {
    char *copy = path ? strdup(path) : NULL;
    if (!path) return TPCOMM_OK;
    if (!copy) return tpc_error(TPCOMM_ERR_NO_MEMORY, "no memory");
    bool writable = access(dirname(copy), W_OK) == 0;
    int error = errno;
    free(copy);
    if (writable) return TPCOMM_OK;
    return tpc_error(TPCOMM_ERR_IO, "--json %s: cannot write there: %s", path, strerror(error));
}

/** Everything that can be refused without a communicator; the same answer on every rank. */
static tpcomm_status_t prepare(const settings_t *settings, int argc, char **argv, bench_replay_t *replay) {
    tpcomm_status_t status;
    if (settings->device == DEVICE_CUDA)
        return tpc_error(TPCOMM_ERR_UNSUPPORTED, "--device cuda: this build has no CUDA device; --device cpu works");
    if (settings->mode == MODE_GRAPH)
        return tpc_error(TPCOMM_ERR_UNSUPPORTED,
                         "--mode graph: a CUDA graph needs a CUDA device, and this build has none");
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
    replay->argc = argc;
    replay->argv = argv;
    if ((status = bench_fault_read(&replay->fault)) != TPCOMM_OK) return status;
    if ((status = set_model(settings, argc, argv, &replay->model)) != TPCOMM_OK) return status;
    replay->calls = replay->model.layers * replay->model.calls_per_layer + replay->model.extra_calls;
    if (replay->iterations > BENCH_REPLAY_CALLS_MAX / replay->calls)
        return tpc_error(TPCOMM_ERR_INVALID_ARG, "--iterations %llu of %llu calls: over the limit of %llu calls",
                         (unsigned long long)replay->iterations, (unsigned long long)replay->calls,
                         (unsigned long long)BENCH_REPLAY_CALLS_MAX);
    if ((status = bench_padding_parse(settings->pad, &replay->padding)) != TPCOMM_OK) return status;
    if ((status = check_json_path(settings->json)) != TPCOMM_OK) return status;
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
    if (result->wrong > 0 || result->checked == 0) {
        fprintf(stderr, "tpcomm-bench replay: %llu of %llu elements are wrong\n", (unsigned long long)result->wrong,
                (unsigned long long)result->checked);
        return BENCH_EXIT_WRONG;
    }
    return status == TPCOMM_OK ? BENCH_EXIT_OK : fail(0, status);
}

static int run_rank(const bench_replay_t *replay, tpcomm_t *comm) {
    bench_result_t result;
    int code = BENCH_EXIT_OK;
    memset(&result, 0, sizeof result);
    tpcomm_status_t status = bench_replay_rank(replay, comm, &result);
    /* The others leave before rank 0 prints: a reader that takes its time must not keep them. */
    if (status == TPCOMM_OK) status = tpcomm_finalize(comm);
    if (status != TPCOMM_OK) {
        code = fail(result.info.rank, status);
        tpcomm_abort(comm, tpcomm_last_error());
    } else if (result.info.rank == 0) {
        code = report(replay, &result);
    }
    tpcomm_destroy(comm);
    bench_result_free(&result);
    return code;
}

/* ---------------------------------------------------------------- all ranks */

typedef struct {
    const bench_replay_t *replay;
    tpcomm_t *comm;
    int code;
} thread_rank_t;

static void *thread_main(void *arg) {
    thread_rank_t *rank = arg;
    rank->code = run_rank(rank->replay, rank->comm);
    return NULL;
}

static int run_threads(const bench_replay_t *replay, int32_t ranks, const tpcomm_config_t *config) {
    tpcomm_t *comms[TPCOMM_MAX_RANKS];
    thread_rank_t rank[TPCOMM_MAX_RANKS];
    pthread_t thread[TPCOMM_MAX_RANKS];
    tpcomm_status_t status = tpcomm_init_local(ranks, NULL, config, comms);
    if (status != TPCOMM_OK) return fail(0, status);
    int32_t started = 1;
    int error = 0;
    for (int32_t r = 0; r < ranks; r++) rank[r] = (thread_rank_t){replay, comms[r], BENCH_EXIT_COMM};
    for (; started < ranks && !error; started++) {
        error = pthread_create(&thread[started], NULL, thread_main, &rank[started]);
        if (error) break;
    }
    if (error) {
        fprintf(stderr, "tpcomm-bench replay: no thread for rank %d: %s\n", started, strerror(error));
        for (int32_t r = started; r < ranks; r++) tpcomm_destroy(comms[r]);
    }
    thread_main(&rank[0]);
    int code = rank[0].code;
    for (int32_t r = 1; r < started; r++) {
        pthread_join(thread[r], NULL);
        if (code == BENCH_EXIT_OK) code = rank[r].code;
    }
    return code;
}

static int run_under_launcher(const bench_replay_t *replay, const tpcomm_config_t *config) {
    tpcomm_t *comm;
    tpcomm_status_t status = tpcomm_init_env(config, &comm);
    if (status != TPCOMM_OK) return bench_report("replay", status);
    return run_rank(replay, comm);
}

/** Start copies of this program, each of which finds itself under a launcher. */
static int run_processes(int32_t ranks, int argc, char **argv) {
    char **copy = calloc((size_t)argc + 2, sizeof *copy);
    if (!copy) return bench_report("replay", tpc_error(TPCOMM_ERR_NO_MEMORY, "no memory"));
    copy[0] = (char *)(uintptr_t) "tpcomm-bench";
    memcpy(copy + 1, argv, (size_t)argc * sizeof *copy);
    int code = bench_launch(
        &(bench_launch_t){.tool = "tpcomm-bench replay", .ranks = ranks, .program = "/proc/self/exe", .argv = copy});
    free(copy);
    return code;
}

static int run(const settings_t *settings, const bench_replay_t *replay, int argc, char **argv) {
    tpcomm_config_t config = {.struct_size = sizeof config,
                              .device_kind = settings->device == DEVICE_CPU ? TPCOMM_DEVICE_CPU : TPCOMM_DEVICE_AUTO};
    const char *variable = "TPCOMM_RANK";
    int64_t launched = bench_launcher_size(&variable);
    /* Two ranks or more, or our own variables: somebody launched this process, and the library says whether it is
     * right. */
    if (launched >= 2 || getenv("TPCOMM_RANK") || getenv("TPCOMM_SIZE")) {
        if (settings->threads)
            return bench_report("replay", tpc_error(TPCOMM_ERR_INVALID_ARG,
                                                    "--threads: this process is one of a launcher's ranks (%s is set)",
                                                    variable));
        if ((is_given(argc, argv, "ranks") || settings->ranks != defaults.ranks) &&
            (int64_t)settings->ranks != launched && launched > 0)
            return bench_report("replay",
                                tpc_error(TPCOMM_ERR_INVALID_ARG,
                                          "--ranks %llu contradicts the launcher: %s=%lld; leave it out",
                                          (unsigned long long)settings->ranks, variable, (long long)launched));
        return run_under_launcher(replay, &config);
    }
    if (settings->threads || settings->ranks == 1) return run_threads(replay, (int32_t)settings->ranks, &config);
    return run_processes((int32_t)settings->ranks, argc, argv);
}

int bench_replay_main(int argc, char **argv) {
    settings_t settings;
    bench_options_rest_t rest;
    bench_replay_t replay;
    tpcomm_status_t status = bench_options_parse(&table, argc, argv, &settings, &rest);
    if (status != TPCOMM_OK) return bench_report("replay", status);
    if (rest.help) {
        bench_options_help(&table, stdout);
        return BENCH_EXIT_OK;
    }
    memset(&replay, 0, sizeof replay);
    status = prepare(&settings, argc, argv, &replay);
    int code = status == TPCOMM_OK ? run(&settings, &replay, argc, argv) : bench_report("replay", status);
    bench_histogram_free(&replay.histogram);
    return code;
}
