/* SPDX-License-Identifier: Apache-2.0 */
#include "ranks.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench.h"
#include "launch.h"
#include "launch_env.h"
#include "nccl_log.h"
#include "number.h"

bool bench_is_given(int argc, char **argv, const char *name, char letter) {
    size_t length = strlen(name);
    for (int i = 1; i < argc; i++) {
        if (letter && argv[i][0] == '-' && argv[i][1] == letter && argv[i][2] == '\0') return true;
        if (strncmp(argv[i], "--", 2) == 0 && strncmp(argv[i] + 2, name, length) == 0 &&
            (argv[i][2 + length] == '\0' || argv[i][2 + length] == '='))
            return true;
    }
    return false;
}

int bench_rank_failed(const char *command, int32_t rank, tpcomm_t *comm, tpcomm_status_t status) {
    fprintf(stderr, "tpcomm-bench %s: rank %d: %s: %s\n", command, rank, tpcomm_status_name(status),
            tpcomm_last_error());
    tpcomm_abort(comm, tpcomm_last_error());
    return bench_exit_code(status);
}

/* ---------------------------------------------------------------- devices */

/** Number `index` of the list "0,1", again from the start past its end. False: it is no such list. */
static bool device_of(const char *list, int32_t index, int32_t *device_p, int32_t *count_p) {
    int32_t device[TPCOMM_MAX_RANKS], count = 0;
    for (const char *at = list;; at++) {
        size_t length = strcspn(at, ",");
        uint64_t value;
        if (count == TPCOMM_MAX_RANKS || !bench_number_u64(at, length, &value) || value > 1023) return false;
        device[count++] = (int32_t)value;
        at += length;
        if (*at == '\0') break;
    }
    *device_p = device[index % count];
    *count_p = count;
    return true;
}

bench_ranks_t bench_ranks_of(const char *command, int argc, char **argv, const bench_where_t *where, bench_rank_fn fn,
                             void *arg) {
    return (bench_ranks_t){.command = command,
                           .argc = argc,
                           .argv = argv,
                           .ranks = (int32_t)where->ranks,
                           .ranks_given = bench_is_given(argc, argv, "ranks", 0),
                           .threads = where->threads,
                           .processes = where->processes,
                           .device = (bench_device_kind_t)where->device,
                           .devices = where->devices,
                           .fn = fn,
                           .arg = arg};
}

tpcomm_status_t bench_ranks_check(const bench_ranks_t *ranks, bool graph) {
    int32_t device, count;
    if (ranks->threads && ranks->processes)
        return tpc_error(TPCOMM_ERR_INVALID_ARG, "--threads and --processes contradict");
    if (ranks->device == BENCH_DEVICE_CUDA && !BENCH_CUDA)
        return tpc_error(TPCOMM_ERR_UNSUPPORTED, "--device cuda: this build has no CUDA device; --device cpu works");
    if (graph && (!BENCH_CUDA || ranks->device == BENCH_DEVICE_CPU))
        return tpc_error(TPCOMM_ERR_UNSUPPORTED, "--mode graph: a CUDA graph needs a CUDA device, and %s",
                         BENCH_CUDA ? "--device cpu has none" : "this build has none");
    if (ranks->devices && !device_of(ranks->devices, 0, &device, &count))
        return tpc_error(TPCOMM_ERR_INVALID_ARG, "--devices %s: allowed are up to %d numbers of GPUs, as in 0,1",
                         ranks->devices, TPCOMM_MAX_RANKS);
    if (ranks->devices && (!BENCH_CUDA || ranks->device == BENCH_DEVICE_CPU))
        return tpc_error(TPCOMM_ERR_INVALID_ARG, "--devices %s: %s", ranks->devices,
                         BENCH_CUDA ? "ranks on --device cpu have no GPU" : "this build has no CUDA device");
    return TPCOMM_OK;
}

/** GPUs that this process sees; 0 where the ranks are to compute on the cpu device anyway. */
static tpcomm_status_t count_gpus(const bench_ranks_t *ranks, int32_t *count_p) {
    *count_p = 0;
    if (!BENCH_CUDA || ranks->device == BENCH_DEVICE_CPU) return TPCOMM_OK;
    bench_gpu_environment();
    tpcomm_status_t status = bench_gpu_count(count_p);
    if (status == TPCOMM_OK && *count_p == 0 && ranks->device == BENCH_DEVICE_CUDA)
        return tpc_error(TPCOMM_ERR_UNSUPPORTED, "--device cuda: this process sees no GPU");
    if (ranks->devices && *count_p == 0)
        return tpc_error(TPCOMM_ERR_UNSUPPORTED, "--devices %s: this process sees no GPU", ranks->devices);
    return ranks->device == BENCH_DEVICE_CUDA ? status : TPCOMM_OK;
}

/** GPU of a rank, by its number on this host; -1 where there is none. */
static int32_t gpu_of(const bench_ranks_t *ranks, int32_t gpus, int32_t local) {
    int32_t device = -1, listed;
    if (gpus == 0) return -1;
    if (ranks->devices && device_of(ranks->devices, local, &device, &listed)) return device;
    return local % gpus;
}

/** Whether ranks of this host would share a GPU. Asked in a child: a process that has started CUDA cannot start ranks.
 */
static bool would_share_gpu(const bench_ranks_t *ranks) {
    int32_t count = 0;
    int status = 0;
    if (!BENCH_CUDA || ranks->device == BENCH_DEVICE_CPU) return false;
    pid_t pid = fork();
    if (pid == 0) _exit(bench_gpu_count(&count) == TPCOMM_OK ? count : 0);
    if (pid < 0) return false;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    count = WIFEXITED(status) ? WEXITSTATUS(status) : 0;
    for (int32_t a = 0; a < ranks->ranks && count > 0; a++)
        for (int32_t b = 0; b < a; b++)
            if (gpu_of(ranks, count, a) == gpu_of(ranks, count, b)) return true;
    return false;
}

static tpcomm_config_t make_config(const bench_ranks_t *ranks, int32_t gpus, int32_t size, int32_t local) {
    static const tpcomm_device_kind_t kinds[] = {TPCOMM_DEVICE_AUTO, TPCOMM_DEVICE_CPU, TPCOMM_DEVICE_CUDA};
    tpcomm_config_t config = {.struct_size = sizeof config, .device_kind = kinds[ranks->device]};
    config.tuning_file = ranks->tuning_file;
    config.device = gpu_of(ranks, gpus, local) + 1;
    for (int32_t a = 0; a < size && gpus > 0; a++)
        for (int32_t b = 0; b < a; b++)
            if (gpu_of(ranks, gpus, a) == gpu_of(ranks, gpus, b)) config.share_device = TPCOMM_ON;
    return config;
}

/* ---------------------------------------------------------------- one rank */

static int run_one(const bench_ranks_t *ranks, tpcomm_t *comm, int32_t gpu) {
    tpcomm_info_t info = {.struct_size = sizeof info};
    bench_device_t device;
    tpcomm_status_t status = tpcomm_comm_info(comm, &info);
    if (status == TPCOMM_OK) status = bench_device_open(info.device_kind == TPCOMM_DEVICE_CUDA ? gpu : -1, &device);
    if (status != TPCOMM_OK) {
        int code = bench_report(ranks->command, status);
        tpcomm_abort(comm, tpcomm_last_error());
        tpcomm_destroy(comm);
        return code;
    }
    int code = ranks->fn(ranks->arg, comm, &device);
    tpcomm_destroy(comm);
    bench_device_close(&device);
    return code;
}

typedef struct {
    const bench_ranks_t *ranks;
    tpcomm_t *comm;
    int32_t gpu;
    int code;
} thread_rank_t;

static void *thread_main(void *arg) {
    thread_rank_t *rank = arg;
    rank->code = run_one(rank->ranks, rank->comm, rank->gpu);
    return NULL;
}

static int run_threads(const bench_ranks_t *ranks, int32_t gpus) {
    tpcomm_t *comms[TPCOMM_MAX_RANKS];
    thread_rank_t rank[TPCOMM_MAX_RANKS];
    pthread_t thread[TPCOMM_MAX_RANKS];
    int32_t devices[TPCOMM_MAX_RANKS], n = ranks->ranks, started = 1;
    tpcomm_config_t config = make_config(ranks, gpus, n, 0);
    for (int32_t r = 0; r < n; r++) devices[r] = gpu_of(ranks, gpus, r);
    config.device = 0;
    tpcomm_status_t status = tpcomm_init_local(n, gpus > 0 ? devices : NULL, &config, comms);
    if (status != TPCOMM_OK) return bench_report(ranks->command, status);
    for (int32_t r = 0; r < n; r++) rank[r] = (thread_rank_t){ranks, comms[r], devices[r], BENCH_EXIT_COMM};
    for (; started < n; started++) {
        int error = pthread_create(&thread[started], NULL, thread_main, &rank[started]);
        if (!error) continue;
        fprintf(stderr, "tpcomm-bench %s: no thread for rank %d: %s\n", ranks->command, started, strerror(error));
        for (int32_t r = started; r < n; r++) tpcomm_destroy(comms[r]);
        break;
    }
    thread_main(&rank[0]);
    int code = rank[0].code;
    for (int32_t r = 1; r < started; r++) {
        pthread_join(thread[r], NULL);
        if (code == BENCH_EXIT_OK) code = rank[r].code;
    }
    return code;
}

/** The first of these variables that is a number; fallback where none is. */
static int32_t launcher_number(const char *const *names, size_t count, int32_t fallback) {
    for (size_t i = 0; i < count; i++) {
        const char *text = getenv(names[i]);
        uint64_t value;
        if (text && bench_number_u64(text, strlen(text), &value) && value < 1024) return (int32_t)value;
    }
    return fallback;
}

/** This process's number on its host, as its launcher says. */
static int32_t local_rank(void) {
    static const char *const names[] = {"TPCOMM_LOCAL_RANK", "LOCAL_RANK",    "OMPI_COMM_WORLD_LOCAL_RANK",
                                        "MPI_LOCALRANKID",   "SLURM_LOCALID", "TPCOMM_RANK"};
    return launcher_number(names, sizeof names / sizeof names[0], 0);
}

/** How many processes of the job this host has; all of them where the launcher does not say. */
static int32_t local_size(int32_t size) {
    static const char *const names[] = {"TPCOMM_LOCAL_SIZE", "LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE",
                                        "MPI_LOCALNRANKS"};
    return launcher_number(names, sizeof names / sizeof names[0], size);
}

static int run_under_launcher(const bench_ranks_t *ranks, int32_t size) {
    tpcomm_t *comm;
    int32_t gpus, local = local_rank();
    tpcomm_status_t status = count_gpus(ranks, &gpus);
    if (status != TPCOMM_OK) return bench_report(ranks->command, status);
    tpcomm_config_t config = make_config(ranks, gpus, local_size(size), local);
    if ((status = tpcomm_init_env(&config, &comm)) != TPCOMM_OK) return bench_report(ranks->command, status);
    return run_one(ranks, comm, gpu_of(ranks, gpus, local));
}

/** Start copies of this program, each of which finds itself under a launcher. */
static int run_processes(const bench_ranks_t *ranks) {
    char tool[64], **copy = calloc((size_t)ranks->argc + 2, sizeof *copy);
    if (!copy) return bench_report(ranks->command, tpc_error(TPCOMM_ERR_NO_MEMORY, "no memory"));
    copy[0] = (char *)(uintptr_t) "tpcomm-bench";
    memcpy(copy + 1, ranks->argv, (size_t)ranks->argc * sizeof *copy);
    snprintf(tool, sizeof tool, "tpcomm-bench %s", ranks->command);
    int code =
        bench_launch(&(bench_launch_t){.tool = tool, .ranks = ranks->ranks, .program = "/proc/self/exe", .argv = copy});
    free(copy);
    return code;
}

/** The ranks of this process: all of them as threads, or the launcher's one. */
static int run_here(const bench_ranks_t *ranks, bool launched, int32_t size) {
    int32_t gpus;
    tpcomm_status_t status = ranks->nccl_log ? bench_nccl_log_begin() : TPCOMM_OK;
    if (status != TPCOMM_OK) return bench_report(ranks->command, status);
    int code;
    if (launched)
        code = run_under_launcher(ranks, size);
    else if ((status = count_gpus(ranks, &gpus)) == TPCOMM_OK)
        code = run_threads(ranks, gpus);
    else
        code = bench_report(ranks->command, status);
    bench_nccl_log_end();
    return code;
}

int64_t bench_ranks_launched(const char **variable_p) {
    int64_t launched = bench_launcher_size(variable_p);
    if (launched >= 2) return launched;
    return !getenv("TPCOMM_RANK") && !getenv("TPCOMM_SIZE") ? 0 : launched > 0 ? launched : -1;
}

int bench_ranks_run(const bench_ranks_t *ranks) {
    const char *variable = "TPCOMM_RANK";
    int64_t launched = bench_ranks_launched(&variable);
    /* Somebody launched this process, and the library says whether it is right. */
    if (launched != 0) {
        if (ranks->threads)
            return bench_report(ranks->command,
                                tpc_error(TPCOMM_ERR_INVALID_ARG,
                                          "--threads: this process is one of a launcher's ranks (%s is set)",
                                          variable));
        if (ranks->ranks_given && ranks->ranks != launched && launched > 0)
            return bench_report(ranks->command, tpc_error(TPCOMM_ERR_INVALID_ARG,
                                                          "--ranks %d contradicts the launcher: %s=%lld; leave it out",
                                                          ranks->ranks, variable, (long long)launched));
        return run_here(ranks, true, launched > 0 ? (int32_t)launched : 0);
    }
    /* Processes on one GPU take turns in time slices of milliseconds; threads run side by side. */
    bool threads = ranks->threads || ranks->ranks == 1 || (!ranks->processes && would_share_gpu(ranks));
    return threads ? run_here(ranks, false, 0) : run_processes(ranks);
}
