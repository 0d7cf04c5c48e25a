/* SPDX-License-Identifier: Apache-2.0 */
#include "manifest.h"

#include <errno.h>
#include <inttypes.h>
#include <libgen.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "bench.h"
#include "text.h"

/* ---------------------------------------------------------------- gathering */

static int64_t wall_clock_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

/** What every rank knows of itself alone. */
typedef struct {
    uint64_t cpus;
    int32_t has_gpu;
    bench_gpu_facts_t gpu;
    bench_gpu_clocks_t clocks;
} mine_t;

static tpcomm_status_t gather(tpcomm_t *comm, const bench_device_t *device, int32_t ranks, mine_t *all) {
    mine_t mine;
    cpu_set_t set;
    memset(&mine, 0, sizeof mine);
    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof set, &set) == 0) mine.cpus = (uint64_t)CPU_COUNT(&set);
    if (device->gpu) {
        mine.has_gpu = 1;
        mine.gpu = *bench_gpu_facts(device->gpu);
        bench_gpu_clocks(device->gpu, &mine.clocks);
    }
    memset(all, 0, (size_t)ranks * sizeof *all);
    return tpcomm_host_all_gather(comm, &mine, all, sizeof mine, 0);
}

tpcomm_status_t bench_manifest_begin(tpcomm_t *comm, const bench_device_t *device, int argc, char **argv,
                                     bench_manifest_t *manifest_p) {
    mine_t all[TPCOMM_MAX_RANKS];
    bench_manifest_t *m = manifest_p;
    memset(m, 0, sizeof *m);
    m->argc = argc;
    m->argv = argv;
    m->start_us = wall_clock_us();
    m->info = (tpcomm_info_t){.struct_size = sizeof m->info};
    tpcomm_status_t status = tpcomm_comm_info(comm, &m->info);
    if (status == TPCOMM_OK) status = gather(comm, device, m->info.size, all);
    if (status != TPCOMM_OK) return status;
    m->same_host = true;
    for (int32_t rank = 0; rank < m->info.size; rank++) {
        bench_manifest_rank_t *r = &m->ranks[rank];
        r->info = (tpcomm_rank_info_t){.struct_size = sizeof r->info};
        if ((status = tpcomm_rank_info(comm, rank, &r->info)) != TPCOMM_OK) return status;
        r->cpus = all[rank].cpus;
        r->has_gpu = all[rank].has_gpu;
        r->gpu = all[rank].gpu;
        r->before = all[rank].clocks;
        if (strcmp(r->info.host, m->ranks[0].info.host) != 0) m->same_host = false;
        for (int32_t other = 0; other < rank; other++)
            if (r->has_gpu && m->ranks[other].has_gpu && strcmp(r->gpu.bus_id, m->ranks[other].gpu.bus_id) == 0 &&
                strcmp(r->info.host, m->ranks[other].info.host) == 0)
                m->shares_gpu = true;
    }
    return TPCOMM_OK;
}

tpcomm_status_t bench_manifest_end(tpcomm_t *comm, const bench_device_t *device, bench_manifest_t *manifest) {
    mine_t all[TPCOMM_MAX_RANKS];
    tpcomm_status_t status = gather(comm, device, manifest->info.size, all);
    for (int32_t rank = 0; rank < manifest->info.size && status == TPCOMM_OK; rank++)
        manifest->ranks[rank].after = all[rank].clocks;
    manifest->end_us = wall_clock_us();
    return status;
}

/* ---------------------------------------------------------------- for people */

static const char *device_name(const bench_manifest_t *manifest) {
    return manifest->info.device_kind == TPCOMM_DEVICE_CPU ? "cpu" : "cuda";
}

static bool are_threads(const bench_manifest_t *manifest) {
    return manifest->info.size == 1 || manifest->ranks[1].info.same_process;
}

static void print_ranks(FILE *file, const bench_manifest_t *manifest) {
    for (int32_t rank = 0; rank < manifest->info.size; rank++) {
        const bench_manifest_rank_t *r = &manifest->ranks[rank];
        bool tell_host = !manifest->same_host || rank == 0;
        char label[24], gpu[256] = "";
        snprintf(label, sizeof label, "rank %d", rank);
        if (r->has_gpu) {
            int used = snprintf(gpu, sizeof gpu, ", GPU %d %s %s", r->gpu.ordinal, r->gpu.name, r->gpu.bus_id);
            if (r->before.known && used > 0 && used < (int)sizeof gpu)
                snprintf(gpu + used, sizeof gpu - (size_t)used, ", %u of %u MHz, throttle reasons 0x%" PRIx64,
                         r->before.sm_mhz, r->before.sm_max_mhz, r->before.throttle_reasons);
        }
        bench_text_line(file, label, "pid %d%s, %" PRIu64 " cpus%s%s%s", r->info.pid,
                        r->info.same_process && rank > 0 ? " (thread)" : "", r->cpus, gpu, tell_host ? ", host " : "",
                        tell_host ? r->info.host : "");
    }
}

void bench_manifest_print(FILE *file, const char *command, const bench_manifest_t *manifest, tpcomm_path_t path) {
    const tpcomm_info_t *info = &manifest->info;
    bench_host_t host;
    int32_t version = tpcomm_version();
    bench_host_read(&host);
    fprintf(file, "tpcomm-bench %s: tpcomm %d.%d.%d, %d rank%s (%s), device %s, topology %s\n", command,
            version / 10000, version / 100 % 100, version % 100, info->size, info->size > 1 ? "s" : "",
            are_threads(manifest) ? "threads" : "processes", device_name(manifest), info->topology);
    if (manifest->shares_gpu)
        bench_text_field(file, "mind", "ranks share one GPU: no NVLink, not a performance figure");
    print_ranks(file, manifest);
    bench_text_field(file, "launcher", info->launcher);
    bench_text_line(file, "machine", "%s, Linux %s, %s", host.cpu[0] ? host.cpu : host.machine, host.kernel, host.host);
    if (manifest->ranks[0].has_gpu) {
        int32_t driver = manifest->ranks[0].gpu.driver_version;
        bench_text_line(file, "driver", "CUDA %d.%d", driver / 1000, driver % 1000 / 10);
    }
    bench_text_line(file, manifest->ranks[0].has_gpu ? "kernels" : "cpu kernels", "%s", info->cpu_kernels);
    bench_text_field(file, "paths", info->paths);
    bench_text_line(file, "tuning", "%s; path %s, deterministic %s", info->tuning, tpcomm_path_name(path),
                    info->deterministic == TPCOMM_ON ? "on" : "off");
    bench_text_variables(file);
}

const char *bench_manifest_caveat(const bench_manifest_t *manifest, size_t i, char *text, size_t bytes) {
    const char *fault = getenv("TPCOMM_BENCH_FAULT");
    uint64_t ranks = (uint64_t)manifest->info.size, cpus = manifest->ranks[0].cpus;
    if (fault && fault[0] && i-- == 0) {
        snprintf(text, bytes, "faults are planted: TPCOMM_BENCH_FAULT=%s", fault);
        return text;
    }
    if (ranks == 1 && i-- == 0) return "a world of one measures nothing between ranks: its calls are copies";
    if (manifest->shares_gpu && i-- == 0) return "ranks share one GPU: no NVLink, not a performance figure";
    if (manifest->info.device_kind == TPCOMM_DEVICE_CPU && i-- == 0)
        return "cpu device: ranks share memory and cores; says nothing about a GPU";
    if (manifest->same_host && ranks > cpus && cpus > 0 && i-- == 0) {
        snprintf(text, bytes, "%" PRIu64 " ranks share %" PRIu64 " cpus: times include waiting for a turn", ranks,
                 cpus);
        return text;
    }
    if (are_threads(manifest) && ranks > 1 && i-- == 0) return "ranks are threads of one process";
    return NULL;
}

void bench_manifest_print_caveats(FILE *file, const bench_manifest_t *manifest) {
    char text[512];
    const char *caveat;
    for (size_t i = 0; (caveat = bench_manifest_caveat(manifest, i, text, sizeof text)) != NULL; i++)
        bench_text_field(file, "mind", caveat);
}

/* ---------------------------------------------------------------- for programs */

void bench_manifest_add_caveats(tpc_json_writer_t *w, tpc_json_node_t *root, const bench_manifest_t *manifest) {
    char text[512];
    const char *caveat;
    tpc_json_node_t *caveats = tpc_json_add_array(w, root, "caveats");
    for (size_t i = 0; (caveat = bench_manifest_caveat(manifest, i, text, sizeof text)) != NULL; i++)
        tpc_json_add_string(w, caveats, NULL, caveat);
}

void bench_json_checked(tpc_json_writer_t *w, tpc_json_node_t *root, uint64_t elements, uint64_t wrong) {
    tpc_json_node_t *checked = tpc_json_add_object(w, root, "checked");
    tpc_json_add_u64(w, checked, "elements", elements);
    tpc_json_add_u64(w, checked, "wrong", wrong);
}

void bench_json_hex(tpc_json_writer_t *w, tpc_json_node_t *node, const char *key, uint64_t value) {
    char text[20];
    snprintf(text, sizeof text, "%016" PRIx64, value);
    tpc_json_add_string(w, node, key, text);
}

void bench_json_text(tpc_json_writer_t *w, tpc_json_node_t *node, const char *key, const char *text) {
    tpc_json_add_string(w, node, key, text && text[0] ? text : NULL);
}

void bench_json_null(tpc_json_writer_t *w, tpc_json_node_t *node, const char *key) {
    tpc_json_add_string(w, node, key, NULL);
}

void bench_json_summary(tpc_json_writer_t *w, tpc_json_node_t *parent, const char *key, const bench_summary_t *s) {
    tpc_json_node_t *node = tpc_json_add_object(w, parent, key);
    tpc_json_add_u64(w, node, "n", s->n);
    tpc_json_add_double(w, node, "mean_us", s->mean);
    tpc_json_add_double(w, node, "min_us", s->min);
    tpc_json_add_double(w, node, "max_us", s->max);
    tpc_json_add_double(w, node, "p50_us", s->p50);
    tpc_json_add_double(w, node, "p95_us", s->p95);
    tpc_json_add_double(w, node, "p99_us", s->p99);
    tpc_json_add_double(w, node, "cv_percent", s->cv_percent);
}

static void add_library(tpc_json_writer_t *w, tpc_json_node_t *parent, const bench_manifest_t *manifest) {
    const tpcomm_info_t *info = &manifest->info;
    tpc_json_node_t *node = tpc_json_add_object(w, parent, "library");
    char version[32];
    int32_t number = tpcomm_version();
    snprintf(version, sizeof version, "%d.%d.%d", number / 10000, number / 100 % 100, number % 100);
    tpc_json_add_string(w, node, "version", version);
    tpc_json_add_string(w, node, "compiler", __VERSION__);
    tpc_json_add_string(w, node, "device", device_name(manifest));
    tpc_json_add_string(w, node, "topology", info->topology);
    tpc_json_add_string(w, node, "launcher", info->launcher);
    tpc_json_add_string(w, node, "paths", info->paths);
    tpc_json_add_string(w, node, "tuning", info->tuning);
    tpc_json_add_string(w, node, "cpu_kernels", info->cpu_kernels);
    tpc_json_add_bool(w, node, "deterministic", info->deterministic == TPCOMM_ON);
    tpc_json_add_u64(w, node, "workspace_bytes", info->workspace_bytes);
    tpc_json_add_u64(w, node, "init_us", info->init_us);
}

static void add_host(tpc_json_writer_t *w, tpc_json_node_t *parent) {
    bench_host_t host;
    bench_host_read(&host);
    tpc_json_node_t *node = tpc_json_add_object(w, parent, "host");
    bench_json_text(w, node, "name", host.host);
    bench_json_text(w, node, "kernel", host.kernel);
    bench_json_text(w, node, "machine", host.machine);
    bench_json_text(w, node, "cpu", host.cpu);
    tpc_json_add_u64(w, node, "memory_bytes", host.memory_bytes);
    tpc_json_add_u64(w, node, "page_bytes", host.page_bytes);
}

static void add_clocks(tpc_json_writer_t *w, tpc_json_node_t *parent, const char *key,
                       const bench_gpu_clocks_t *clocks) {
    if (!clocks->known) {
        bench_json_null(w, parent, key);
        return;
    }
    tpc_json_node_t *node = tpc_json_add_object(w, parent, key);
    tpc_json_add_u64(w, node, "sm_mhz", clocks->sm_mhz);
    tpc_json_add_u64(w, node, "sm_max_mhz", clocks->sm_max_mhz);
    tpc_json_add_u64(w, node, "memory_mhz", clocks->memory_mhz);
    tpc_json_add_u64(w, node, "temperature_c", clocks->temperature_c);
    bench_json_hex(w, node, "throttle_reasons", clocks->throttle_reasons);
}

static void add_gpu(tpc_json_writer_t *w, tpc_json_node_t *parent, const bench_manifest_rank_t *rank) {
    if (!rank->has_gpu) {
        bench_json_null(w, parent, "gpu");
        return;
    }
    tpc_json_node_t *node = tpc_json_add_object(w, parent, "gpu");
    tpc_json_add_i64(w, node, "ordinal", rank->gpu.ordinal);
    tpc_json_add_string(w, node, "name", rank->gpu.name);
    tpc_json_add_string(w, node, "bus_id", rank->gpu.bus_id);
    tpc_json_add_u64(w, node, "memory_bytes", rank->gpu.memory_bytes);
    tpc_json_add_i64(w, node, "driver_version", rank->gpu.driver_version);
    add_clocks(w, node, "clocks_before", &rank->before);
    add_clocks(w, node, "clocks_after", &rank->after);
}

void bench_manifest_add(tpc_json_writer_t *w, tpc_json_node_t *node, const bench_manifest_t *manifest,
                        void (*add_rank)(tpc_json_writer_t *w, tpc_json_node_t *node, int32_t rank, const void *arg),
                        const void *arg) {
    tpc_json_add_i64(w, node, "start_us", manifest->start_us);
    tpc_json_add_i64(w, node, "end_us", manifest->end_us);
    tpc_json_node_t *command = tpc_json_add_array(w, node, "command");
    for (int i = 0; i < manifest->argc; i++) tpc_json_add_string(w, command, NULL, manifest->argv[i]);
    tpc_json_node_t *variables = tpc_json_add_array(w, node, "variables");
    for (size_t i = 0; bench_variable(i); i++) tpc_json_add_string(w, variables, NULL, bench_variable(i));
    add_library(w, node, manifest);
    add_host(w, node);
    tpc_json_node_t *list = tpc_json_add_array(w, node, "ranks");
    for (int32_t rank = 0; rank < manifest->info.size; rank++) {
        const bench_manifest_rank_t *r = &manifest->ranks[rank];
        tpc_json_node_t *member = tpc_json_add_object(w, list, NULL);
        tpc_json_add_i64(w, member, "rank", rank);
        tpc_json_add_i64(w, member, "pid", r->info.pid);
        tpc_json_add_bool(w, member, "same_process", r->info.same_process != 0);
        bench_json_text(w, member, "host", r->info.host);
        tpc_json_add_u64(w, member, "cpus", r->cpus);
        add_gpu(w, member, r);
        if (add_rank) add_rank(w, member, rank, arg);
    }
}

tpcomm_status_t bench_check_writable(const char *option, const char *path) {
    struct stat there;
    char *copy = path ? strdup(path) : NULL;
    if (!path) return TPCOMM_OK;
    if (!copy) return tpc_error(TPCOMM_ERR_NO_MEMORY, "no memory");
    const char *folder = dirname(copy);
    int error = stat(folder, &there) != 0 ? errno : !S_ISDIR(there.st_mode) ? ENOTDIR : 0;
    if (!error && access(folder, W_OK) != 0) error = errno;
    if (!error && stat(path, &there) == 0 && S_ISDIR(there.st_mode)) error = EISDIR;
    free(copy);
    if (!error) return TPCOMM_OK;
    return tpc_error(TPCOMM_ERR_IO, "%s %s: cannot write there: %s", option, path, strerror(error));
}
