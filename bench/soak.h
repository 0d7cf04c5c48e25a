/* SPDX-License-Identifier: Apache-2.0 */
/**
 * What the files of `tpcomm-bench soak` share.
 *
 *   soak.c         options, one rank's run, and the verdict
 *   soak_step.c    what a stretch of random calls does
 *   soak_watch.c   what a process holds: descriptors, threads, memory
 *   soak_json.c    the result as JSON
 */
#ifndef BENCH_SOAK_H
#define BENCH_SOAK_H

#include "lane.h"
#include "manifest.h"

#define BENCH_SOAK_SAMPLES_MAX 64
/** Resident memory may grow by so much, device memory by so much: what allocators keep in hand. */
#define BENCH_SOAK_RESIDENT_SLACK_KIB (32u << 10)
#define BENCH_SOAK_DEVICE_SLACK_BYTES (UINT64_C(4) << 20)

/** What was asked for. */
typedef struct {
    double seconds;
    uint64_t seed, first, max_bytes;
    uint64_t stretches;    /**< 0: as many as the time allows */
    const char *json_path; /**< NULL: none */
    bench_fault_t fault;
} bench_soak_t;

/** What was done; on one rank, or summed over all. Nothing but counters, which are gathered as an array. */
typedef struct {
    uint64_t calls[TPC_COLL_END]; /**< by collective, replays included */
    uint64_t paths[TPC_PATH_END]; /**< steps by the path that explain named */
    uint64_t steps, in_place, misaligned, graphs, replays, groups, host_messages;
    uint64_t checked, wrong; /**< elements, or bytes of host messages */
} bench_soak_counts_t;

/** What a process holds at a moment. */
typedef struct {
    double at_s;
    uint64_t calls; /**< of the rank so far */
    uint64_t descriptors, threads, resident_kib;
    uint64_t device_free_bytes; /**< of its GPU; 0: the cpu device */
} bench_soak_sample_t;

/** One rank in the middle of it. */
typedef struct {
    const bench_soak_t *soak;
    tpcomm_t *world, *half; /**< half: of the ranks of its own parity */
    tpcomm_t *together;     /**< of all ranks that make this stretch's calls, in one group or in halves */
    bench_device_t *device;
    bench_lane_t *lane;
    int32_t rank, ranks;
    uint64_t stretch, start_ns;
    uint64_t plan; /**< hash of all that was drawn for this rank so far */
    bool wrong_told;
    bench_soak_counts_t counts;
} bench_soak_run_t;

typedef struct {
    bench_manifest_t manifest;
    uint64_t stretches;
    double ran_s;
    uint64_t plan;                                                         /**< of rank 0 */
    bench_soak_counts_t counts;                                            /**< of all ranks */
    bench_soak_sample_t before[TPCOMM_MAX_RANKS], after[TPCOMM_MAX_RANKS]; /**< of each rank: warm, and at the end */
    bench_soak_sample_t samples[BENCH_SOAK_SAMPLES_MAX];                   /**< of rank 0 */
    size_t sample_count;
    bool flat;
} bench_soak_result_t;

/** Everything on the device done and all ranks of comm here: now memory may come and go. Fails: as the calls. */
tpcomm_status_t bench_soak_settle(const bench_soak_run_t *run, tpcomm_t *comm);

/** Stretch number `index`: what it does follows from the seed and the number alone. Collective: every rank. Fails: as
 * the calls; a wrong element is counted and told, and is no failure. */
tpcomm_status_t bench_soak_stretch(bench_soak_run_t *run, uint64_t index);

tpcomm_status_t bench_soak_sample(const bench_soak_run_t *run, bench_soak_sample_t *sample_p);

/** Whether `after` holds no more than `before`. */
bool bench_soak_is_flat(const bench_soak_sample_t *before, const bench_soak_sample_t *after);

tpcomm_status_t bench_soak_json(const bench_soak_t *soak, const bench_soak_result_t *result);

#endif
