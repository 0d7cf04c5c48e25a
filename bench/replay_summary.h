/* SPDX-License-Identifier: Apache-2.0 */
/** What a replay's samples say: rows by size, time per iteration by kind of path and phase, and what to keep in mind.
 */
#ifndef BENCH_REPLAY_SUMMARY_H
#define BENCH_REPLAY_SUMMARY_H

#include <stdio.h>

#include "manifest.h"
#include "replay.h"
#include "stats_math.h"

/** Most rows of the printed table; with more distinct sizes a row stands for a range of T. */
#define BENCH_TABLE_ROWS_MAX 24
#define BENCH_CAVEATS_MAX    16

/** Calls of one size, or of neighbouring sizes. NaN: not measured. */
typedef struct {
    size_t from, to; /**< sizes[from] to sizes[to] */
    uint64_t calls;
    double bytes;      /**< of one message, mean */
    double call_share; /**< of all calls; of all bytes */
    double byte_share;
    bench_summary_t us; /**< one call, maximum over the ranks; cv_percent only for a single size */
    double algbw_gbs;   /**< message bytes by time, the median call; GB = 1e9 */
    double busbw_gbs;   /**< algbw * 2 (N - 1) / N; NaN for N = 1 */
    double wire_bytes;  /**< written for the peers, per rank and call */
    tpcomm_path_t path; /**< that took most calls, by the library's counters; 0: the counters moved for none */
    bool several_paths;
    bool unexpected; /**< a call took another path than explain said, or the counters do not add up */
    uint64_t checked, wrong;
} bench_row_t;

/** Iterations whose calls took one kind of path. */
typedef struct {
    uint64_t iterations, calls;
    double bytes;
    bench_summary_t us; /**< inside the calls of one iteration, maximum over the ranks */
} bench_share_t;

typedef enum { BENCH_SPLIT_CUSTOM, BENCH_SPLIT_FALLBACK, BENCH_SPLIT_OVERALL, BENCH_SPLIT_KINDS } bench_split_kind_t;
/** Names of the kinds and of the phases, as they stand in table and JSON. */
extern const char *const bench_split_names[BENCH_SPLIT_KINDS];
extern const char *const bench_phase_names[3];

typedef struct {
    bench_row_t *sizes; /**< one row a size */
    size_t size_count;
    bench_row_t rows[BENCH_TABLE_ROWS_MAX]; /**< for the table */
    size_t row_count;
    bench_share_t split[3][BENCH_SPLIT_KINDS]; /**< by phase (bench_phase_t) and kind */
    bench_summary_t wall_us, start_skew_us, lump_us,
        lumped_us,        /**< lumped: the many calls of those iterations that also sent a lump */
        beside_us;        /**< inside the calls of one iteration by the other path */
    double beside_ratio;  /**< all iterations' time by that of the other path */
    double call_skew_us;  /**< mean over calls */
    double padding_share; /**< bytes that padding added, of those without it */
    char caveats[BENCH_CAVEATS_MAX][192];
    size_t caveat_count;
} bench_report_t;

/** Work out the report of rank 0's result. Fails: NO_MEMORY. */
tpcomm_status_t bench_report_new(const bench_replay_t *replay, const bench_result_t *result, bench_report_t *report_p);
void bench_report_free(bench_report_t *report);

/** Print the table. */
void bench_table_print(FILE *file, const bench_replay_t *replay, const bench_result_t *result,
                       const bench_report_t *report);
/** Write the JSON file. Fails: IO, NO_MEMORY, UNSUPPORTED (no cJSON). */
tpcomm_status_t bench_json_write(const bench_replay_t *replay, const bench_result_t *result,
                                 const bench_report_t *report);

#endif
