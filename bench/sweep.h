/* SPDX-License-Identifier: Apache-2.0 */
/**
 * What the files of `tpcomm-bench sweep` share.
 *
 *   sweep.c        options, and one rank's run over the rows
 *   sweep_plan.c   which rows: sizes, dtypes, reductions
 *   sweep_table.c, sweep_json.c  the two ways to tell it
 *   sweep_cycles.c the same in several fresh processes, brought together
 */
#ifndef BENCH_SWEEP_H
#define BENCH_SWEEP_H

#include "manifest.h"
#include "measure.h"

#define BENCH_SWEEP_PATHS_MAX  8
#define BENCH_SWEEP_DTYPES_MAX 12
#define BENCH_SWEEP_OPS_MAX    5
#define BENCH_SWEEP_ROWS_MAX   4096

/** Which of the two ways of giving buffers. */
enum { BENCH_OUT_OF_PLACE, BENCH_IN_PLACE, BENCH_PLACES };

/** What was asked for; the same on every rank. */
typedef struct {
    tpcomm_coll_t coll;
    uint64_t min_bytes, max_bytes, step_bytes, step_factor; /**< step_bytes 0: by factor */
    tpcomm_dtype_t dtypes[BENCH_SWEEP_DTYPES_MAX];
    size_t dtype_count;
    tpcomm_op_t ops[BENCH_SWEEP_OPS_MAX];
    size_t op_count;
    tpcomm_path_t paths[BENCH_SWEEP_PATHS_MAX];
    size_t path_count;
    bool place[BENCH_PLACES];
    int32_t root;
    uint32_t hidden; /**< of a collective with a norm; else 0 */
    bench_measuring_t how;
    bool verify_path;
    const char *json_path; /**< NULL: none */
    bench_fault_t fault;
} bench_sweep_t;

/** One size, dtype and reduction, by all paths and places. */
typedef struct {
    bench_work_t work;
    uint64_t bytes; /**< of the message */
    bench_measured_t measured[BENCH_SWEEP_PATHS_MAX][BENCH_PLACES];
    bench_summary_t us[BENCH_SWEEP_PATHS_MAX][BENCH_PLACES];
} bench_sweep_row_t;

typedef struct {
    bench_manifest_t manifest;
    bench_sweep_row_t *rows;
    size_t row_count;
    uint64_t checked, wrong;
    size_t refused, unexpected, unstable; /**< of the measured and refused ones: path by place */
} bench_sweep_result_t;

/** The work of every row, in order. rows_p: freed by the caller. Fails: INVALID_ARG (no rows, too many), NO_MEMORY. */
tpcomm_status_t bench_sweep_plan(const bench_sweep_t *sweep, int32_t ranks, bench_sweep_row_t **rows_p,
                                 size_t *count_p);
/** bytes by the factor that makes the bandwidths of collectives comparable (nccl-tests' bus bandwidth). */
double bench_bus_factor(tpcomm_coll_t coll, int32_t ranks);
/** GB/s, 1e9 bytes/s; NaN where not measured. */
double bench_algbw(uint64_t bytes, double us);

/** Path that the library's counters name; 0: none, or several. */
tpcomm_path_t bench_taken_path(const bench_measured_t *measured);
/** Whether all calls took the path that explain named. */
bool bench_as_expected(const bench_measured_t *measured);
/** Median against that of the first path; NaN: not measured, or unstable_p. */
double bench_sweep_ratio(const bench_sweep_row_t *row, size_t path, int place, bool *unstable_p);

/** Column heads; a row; the footer. Rows are printed as they come. */
void bench_sweep_print_head(FILE *file, const bench_sweep_t *sweep, const bench_manifest_t *manifest);
void bench_sweep_print_row(FILE *file, const bench_sweep_t *sweep, const bench_sweep_row_t *row, int32_t ranks);
void bench_sweep_print_foot(FILE *file, const bench_sweep_t *sweep, const bench_sweep_result_t *result);

/** Write the JSON file. Fails: IO, NO_MEMORY, UNSUPPORTED (no cJSON). */
tpcomm_status_t bench_sweep_json(const bench_sweep_t *sweep, const bench_sweep_result_t *result);

/** Run the sweep in so many fresh processes and bring their figures together; an exit code. */
int bench_sweep_cycles(uint64_t cycles, const char *json_path, int argc, char **argv);

#endif
