/* SPDX-License-Identifier: Apache-2.0 */
/**
 * What the files of `tpcomm-bench sweep` share.
 *
 *   sweep.c        options, and one rank's run over the rows
 *   sweep_plan.c   which rows: sizes, dtypes, reductions
 *   sweep_table.c, sweep_json.c  the two ways to tell it
 *   sweep_extras.c, sweep_extras_json.c  what is told beside the times: chains, kernels, arrivals, NCCL's choices
 *   sweep_cycles.c the same in several fresh processes, brought together
 */
#ifndef BENCH_SWEEP_H
#define BENCH_SWEEP_H

#include "manifest.h"
#include "measure.h"
#include "probe.h"

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
    tpcomm_path_t paths[BENCH_SWEEP_PATHS_MAX]; /**< auto for a doer that is not this library */
    bench_doer_t doers[BENCH_SWEEP_PATHS_MAX];
    size_t path_count;
    bool place[BENCH_PLACES];
    int32_t root;
    uint32_t hidden; /**< of a collective with a norm; else 0 */
    bench_measuring_t how;
    bool verify_path, cold, chain, nccl_evidence;
    bench_probing_t probing;
    const char *json_path; /**< NULL: none */
    char idle[160];        /**< options that were given and say nothing here, for a caveat; "": none */
    bench_fault_t fault;
} bench_sweep_t;

/** A path's calls in a chain: something that writes the input, the call, something that reads the output. */
typedef struct {
    bench_summary_t us; /**< all three; n 0: not measured */
    uint64_t checked, wrong;
} bench_sweep_chain_t;

/** One size, dtype and reduction, by all paths and places. */
typedef struct {
    bench_work_t work;
    uint64_t bytes; /**< of the message */
    bench_measured_t measured[BENCH_SWEEP_PATHS_MAX][BENCH_PLACES];
    bench_summary_t us[BENCH_SWEEP_PATHS_MAX][BENCH_PLACES];
    bench_sweep_chain_t chain[BENCH_SWEEP_PATHS_MAX];
    bench_summary_t chain_alone; /**< the chain without the call */
    bench_probe_t *probes;       /**< one a path; NULL: not asked for */
} bench_sweep_row_t;

typedef struct {
    bench_manifest_t manifest;
    bench_sweep_row_t *rows;
    size_t row_count;
    uint64_t checked, wrong;
    size_t refused, unexpected, unstable; /**< of the measured and refused ones: path by place */
    char gemm[96];                        /**< what computed the matrix product beside; "": nothing */
    char nccl[320], transports[256];      /**< NCCL called directly; by its log; "": not known */
} bench_sweep_result_t;

/** The work of every row, in order. rows_p: freed by the caller. Fails: INVALID_ARG (no rows, too many), NO_MEMORY. */
tpcomm_status_t bench_sweep_plan(const bench_sweep_t *sweep, int32_t ranks, bench_sweep_row_t **rows_p,
                                 size_t *count_p);
/** bytes by the factor that makes the bandwidths of collectives comparable (nccl-tests' bus bandwidth). */
double bench_bus_factor(tpcomm_coll_t coll, int32_t ranks);
/** GB/s, 1e9 bytes/s; NaN where not measured. */
double bench_algbw(uint64_t bytes, double us);

/** A path of --path, NCCL called directly among them; its name. */
bool bench_sweep_parse_path(const char *name, int32_t *value_p);
void bench_sweep_set_path(bench_sweep_t *sweep, size_t p, int32_t value);
const char *bench_sweep_asked(const bench_sweep_t *sweep, size_t p);
/** Name of what was taken; NULL: nothing, or several paths. */
const char *bench_sweep_taken(const bench_sweep_t *sweep, size_t p, const bench_measured_t *measured);
/** By how much a path's call lengthens the chain around it; NaN: not measured. */
double bench_sweep_chain_extra(const bench_sweep_row_t *row, size_t p);

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

/** Tables of what is told beside the times; nothing where none of it was asked for. */
void bench_sweep_print_extras(FILE *file, const bench_sweep_t *sweep, const bench_sweep_result_t *result);
/** The same as members of a row of one path. */
void bench_sweep_json_extras(tpc_json_writer_t *w, tpc_json_node_t *node, const bench_sweep_t *sweep,
                             const bench_sweep_row_t *row, size_t p, int32_t ranks);

/** Write the JSON file. Fails: IO, NO_MEMORY, UNSUPPORTED (no cJSON). */
tpcomm_status_t bench_sweep_json(const bench_sweep_t *sweep, const bench_sweep_result_t *result);

/** Run the sweep in so many fresh processes and bring their figures together; an exit code. */
int bench_sweep_cycles(uint64_t cycles, const char *json_path, int argc, char **argv);

#endif
