/* SPDX-License-Identifier: Apache-2.0 */
/** What ran where: gathered from all ranks, printed as a header and written into JSON as a manifest. */
#ifndef BENCH_MANIFEST_H
#define BENCH_MANIFEST_H

#include <stdio.h>

#include "base/json.h"
#include "device.h"
#include "stats_math.h"

/** Medians that vary by more than this over a run are called unstable. */
#define BENCH_UNSTABLE_PERCENT 5.0

/** What the kernel says of this machine; "" or 0 where it does not. */
typedef struct {
    char host[65], kernel[65], machine[65], cpu[128];
    uint64_t memory_bytes, page_bytes;
} bench_host_t;
void bench_host_read(bench_host_t *host_p);

/** The TPCOMM_, CUDA_ and NCCL_ variables that are set, but for secrets: entry i as "NAME=value", NULL after the last.
 */
const char *bench_variable(size_t i);

/** One rank. */
typedef struct {
    tpcomm_rank_info_t info;
    uint64_t cpus; /**< that its process may run on */
    int32_t has_gpu;
    bench_gpu_facts_t gpu;
    bench_gpu_clocks_t before, after; /**< the measurements */
} bench_manifest_rank_t;

typedef struct {
    int argc; /**< of the subcommand */
    char **argv;
    tpcomm_info_t info;
    bench_manifest_rank_t ranks[TPCOMM_MAX_RANKS];
    bool same_host;
    bool shares_gpu;          /**< two ranks compute on one GPU */
    int64_t start_us, end_us; /**< CLOCK_REALTIME */
} bench_manifest_t;

/** Before and after the measurements. Collective. Fails: as tpcomm_host_all_gather. */
tpcomm_status_t bench_manifest_begin(tpcomm_t *comm, const bench_device_t *device, int argc, char **argv,
                                     bench_manifest_t *manifest_p);
tpcomm_status_t bench_manifest_end(tpcomm_t *comm, const bench_device_t *device, bench_manifest_t *manifest);

/** The first lines of a report: library, ranks, machine, paths, tuning, variables. */
void bench_manifest_print(FILE *file, const char *command, const bench_manifest_t *manifest, tpcomm_path_t path);

/** start_us to ranks of a manifest object; each rank's object gets more from its own command by add_rank (may be NULL).
 */
void bench_manifest_add(tpc_json_writer_t *w, tpc_json_node_t *node, const bench_manifest_t *manifest,
                        void (*add_rank)(tpc_json_writer_t *w, tpc_json_node_t *node, int32_t rank, const void *arg),
                        const void *arg);

/** Members of reports: a text or null where it is NULL or "", 16 hex digits, null, a summary's percentiles. */
void bench_json_text(tpc_json_writer_t *w, tpc_json_node_t *node, const char *key, const char *text);
void bench_json_hex(tpc_json_writer_t *w, tpc_json_node_t *node, const char *key, uint64_t value);
void bench_json_null(tpc_json_writer_t *w, tpc_json_node_t *node, const char *key);
void bench_json_summary(tpc_json_writer_t *w, tpc_json_node_t *parent, const char *key, const bench_summary_t *s);
/** Member "checked" of a result. */
void bench_json_checked(tpc_json_writer_t *w, tpc_json_node_t *root, uint64_t elements, uint64_t wrong);

/** See before a run, not after it, that a file can be written. option: "--json". path NULL: nothing to see. Fails: IO.
 */
tpcomm_status_t bench_check_writable(const char *option, const char *path);

/** What to keep in mind about figures of these ranks, one text each in turn; NULL after the last. */
const char *bench_manifest_caveat(const bench_manifest_t *manifest, size_t i, char *text, size_t bytes);
/** All of them: a line "mind" each; member "caveats" of a result. */
void bench_manifest_print_caveats(FILE *file, const bench_manifest_t *manifest);
void bench_manifest_add_caveats(tpc_json_writer_t *w, tpc_json_node_t *root, const bench_manifest_t *manifest);

#endif
