/* SPDX-License-Identifier: Apache-2.0 */
/**
 * What the files of `tpcomm-bench replay` share.
 *
 *   replay.c          options
 *   replay_plan.c     which iterations are run
 *   replay_rank.c     one rank's run; its parts: replay_warmup.c, replay_iterate.c (timed calls), replay_call.c (calls,
 * checks), replay_graph.c (CUDA graphs) replay_summary.c  what the samples say replay_table.c, replay_json.c  the two
 * ways to tell it
 */
#ifndef BENCH_REPLAY_H
#define BENCH_REPLAY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "fault.h"
#include "histogram.h"
#include "manifest.h"
#include "model.h"
#include "replay_plan.h"
#include "tpcomm.h"

/** Most calls whose times one replay keeps: 512 MiB of them. */
#define BENCH_REPLAY_CALLS_MAX (UINT64_C(1) << 26)
/** Greatest message that --lump sends. */
#define BENCH_LUMP_MAX_BYTES (UINT64_C(256) << 20)
/** Sizes that the warm-up runs: the smallest, the middle and the greatest. */
#define BENCH_WARMUP_SIZES 3

/** Another path that every iteration is run by too. */
typedef enum {
    BENCH_BESIDE_AUTO, /**< nccl, where ranks have a GPU each and the library offers it */
    BENCH_BESIDE_NONE,
    BENCH_BESIDE_PATH
} bench_beside_t;

/** What was asked for; the same on every rank. */
typedef struct {
    const char *histogram_path, *pad_text, *json_path; /**< json_path NULL: none */
    bench_histogram_t histogram;
    bench_model_t model;
    bench_padding_t padding;
    bench_phase_t phase;
    tpcomm_dtype_t dtype;
    tpcomm_path_t path;  /**< forced; AUTO: chosen by the library */
    uint64_t iterations; /**< 0: as many as fit budget_s */
    uint64_t seed, warmup_calls;
    double budget_s, gap_us;
    bool threads, lump, graph;
    bool fused; /**< every call is all_reduce + residual + RMSNorm */
    bench_beside_t beside;
    tpcomm_path_t beside_path; /**< for BENCH_BESIDE_PATH */
    uint64_t calls;            /**< AllReduces per iteration */
    int argc;
    char **argv;
    bench_fault_t fault;
} bench_replay_t;

/** Elements and bytes of one message of so many tokens. */
uint64_t bench_replay_elements(const bench_replay_t *replay, uint32_t tokens);
uint64_t bench_replay_bytes(const bench_replay_t *replay, uint32_t tokens);
/** The same of --lump's one message; 0 bytes: too great to be sent. */
uint64_t bench_replay_lump_elements(const bench_replay_t *replay, uint32_t tokens);
uint64_t bench_replay_lump_bytes(const bench_replay_t *replay, uint32_t tokens);

/** One iteration that was run. Times are the maximum over the ranks. */
typedef struct {
    bench_draw_t draw;
    size_t size;            /**< index into sizes */
    uint64_t comm_ns;       /**< inside the calls, summed */
    uint64_t wall_ns;       /**< from the common start to the end of the last call */
    uint64_t start_skew_ns; /**< last minus first arrival at the common start */
    uint64_t lump_ns;       /**< --lump's one message; 0: none */
    uint64_t beside_ns;     /**< inside the calls by the other path; 0: none */
} bench_iteration_t;

/** All calls of one message size. */
typedef struct {
    uint32_t tokens; /**< after padding */
    uint64_t bytes, iterations, calls;
    tpcomm_decision_t decision;        /**< what the library said it would do */
    uint64_t path_calls[TPC_PATH_END]; /**< what it did, by its own counters, all ranks together */
    uint64_t wire_bytes;               /**< all ranks together */
    uint64_t skew_ns;                  /**< sum over calls, as rank 0 saw it */
    uint64_t checked, wrong;           /**< elements, all ranks together */
} bench_size_t;

typedef struct {
    uint64_t last_calls;  /**< timed calls in which it was the last to arrive, as rank 0 saw it */
    uint64_t last_starts; /**< iterations to whose start it came last */
} bench_rank_t;

typedef struct {
    uint32_t tokens;
    uint64_t calls;
    uint64_t first_ns, median_ns; /**< of the calls; maximum over the ranks */
    uint64_t check_ns;            /**< to poison and check the outputs */
} bench_warmup_t;

/** What one rank brings home; complete on rank 0 only. */
typedef struct {
    bench_manifest_t manifest;
    bench_rank_t ranks[TPCOMM_MAX_RANKS];
    bench_warmup_t warmup[BENCH_WARMUP_SIZES];
    size_t warmup_count;
    uint64_t planned, done; /**< iterations */
    bool stopped;           /**< ended early: half over the budget */
    bench_draw_t *draws;    /**< planned of them */
    bench_iteration_t *iterations;
    uint64_t samples;     /**< times of calls that an iteration gives: each one's; on a GPU one, their mean */
    double *call_ns;      /**< done * samples; maximum over the ranks */
    tpcomm_path_t beside; /**< path that every iteration was run by too; 0: none */
    bench_size_t *sizes;
    size_t size_count;
    uint64_t checked, wrong; /**< elements, all ranks together, --lump's included */
} bench_result_t;

void bench_result_free(bench_result_t *result);

/**
 * Run one rank's part. Every rank of comm calls it with equal settings (checked). result is all zero and is filled as
 * far as the run came. Fails: as the calls it makes; NO_MEMORY; CONFIG_MISMATCH where ranks replay different things.
 */
tpcomm_status_t bench_replay_rank(const bench_replay_t *replay, tpcomm_t *comm, bench_device_t *device,
                                  bench_result_t *result);

#endif
