/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "sweep.h"

double bench_bus_factor(tpcomm_coll_t coll, int32_t ranks) {
    double n = ranks;
    switch (coll) {
    case TPCOMM_ALL_REDUCE:
    case TPCOMM_ALL_REDUCE_RMS_NORM:
        return 2 * (n - 1) / n;
    case TPCOMM_ALL_GATHER:
    case TPCOMM_REDUCE_SCATTER:
        return (n - 1) / n;
    default:
        return 1;
    }
}

double bench_algbw(uint64_t bytes, double us) {
    return us > 0 ? (double)bytes / us / 1000 : NAN;
}

uint64_t bench_work_count(const bench_work_t *work, int32_t ranks, uint64_t bytes) {
    uint64_t parts = work->coll == TPCOMM_ALL_GATHER || work->coll == TPCOMM_REDUCE_SCATTER ? (uint64_t)ranks : 1;
    uint64_t count = bytes / (tpcomm_dtype_size(work->dtype) * parts);
    return work->hidden ? count / work->hidden * work->hidden : count; /* whole rows */
}

static uint64_t next_size(const bench_sweep_t *sweep, uint64_t bytes) {
    if (sweep->step_bytes) return bytes + sweep->step_bytes;
    return bytes * sweep->step_factor;
}

/** Rows; with rows NULL they are only counted. */
typedef struct {
    bench_sweep_row_t *rows;
    size_t count;
} list_t;

static void add_row(list_t *list, const bench_work_t *work, int32_t ranks) {
    if (list->rows) {
        list->rows[list->count].work = *work;
        list->rows[list->count].bytes = bench_work_message(work, ranks);
    }
    list->count++;
}

static void add_sizes(const bench_sweep_t *sweep, int32_t ranks, bench_work_t work, list_t *list) {
    uint64_t last = 0;
    for (uint64_t bytes = sweep->min_bytes; bytes <= sweep->max_bytes && list->count <= BENCH_SWEEP_ROWS_MAX;
         bytes = next_size(sweep, bytes)) {
        work.count = bench_work_count(&work, ranks, bytes);
        if (work.count == 0 || work.count == last) continue; /* below one element a rank, or the same again */
        last = work.count;
        add_row(list, &work, ranks);
    }
}

static bool has_norm(tpcomm_dtype_t dtype) {
    return dtype == TPCOMM_F32 || dtype == TPCOMM_F16 || dtype == TPCOMM_BF16;
}

static void add_all(const bench_sweep_t *sweep, int32_t ranks, list_t *list) {
    bool reduces = tpc_coll_reduces(sweep->coll);
    for (size_t d = 0; d < sweep->dtype_count; d++) {
        for (size_t o = 0; o < (reduces ? sweep->op_count : 1); o++) {
            bench_work_t work = {
                .coll = sweep->coll, .dtype = sweep->dtypes[d], .root = sweep->root, .hidden = sweep->hidden};
            if (reduces) work.op = sweep->ops[o];
            if (!tpc_coll_moves_data(sweep->coll)) {
                if (d == 0) add_row(list, &work, ranks);
                continue;
            }
            if (sweep->hidden ? has_norm(work.dtype) : !reduces || tpc_reduction_defined(work.dtype, work.op))
                add_sizes(sweep, ranks, work, list);
        }
    }
}

tpcomm_status_t bench_sweep_plan(const bench_sweep_t *sweep, int32_t ranks, bench_sweep_row_t **rows_p,
                                 size_t *count_p) {
    list_t list = {NULL, 0};
    add_all(sweep, ranks, &list);
    if (list.count > BENCH_SWEEP_ROWS_MAX)
        return tpc_error(TPCOMM_ERR_INVALID_ARG, "over %d rows: take greater steps (-f, -i)", BENCH_SWEEP_ROWS_MAX);
    if (list.count == 0)
        return tpc_error(
            TPCOMM_ERR_INVALID_ARG,
            "nothing to run: no size from %llu to %llu bytes holds %s, or no dtype and reduction go together "
            "(docs/numerics.md)",
            (unsigned long long)sweep->min_bytes, (unsigned long long)sweep->max_bytes,
            sweep->hidden ? "a row of --hidden elements" : "an element for each rank");
    list.rows = calloc(list.count, sizeof *list.rows);
    if (!list.rows) return tpc_error(TPCOMM_ERR_NO_MEMORY, "no memory");
    list.count = 0;
    add_all(sweep, ranks, &list);
    *rows_p = list.rows;
    *count_p = list.count;
    return TPCOMM_OK;
}

/* ---------------------------------------------------------------- paths and peers */

/* Values of peers among those of paths. */
enum { PEERS = 1000 };
static const char *const peer_names[] = {[BENCH_NCCL] = "nccl_direct", [BENCH_NCCL_WINDOW] = "nccl_window"};

bool bench_sweep_parse_path(const char *name, int32_t *value_p) {
    for (int doer = BENCH_NCCL; doer <= BENCH_NCCL_WINDOW; doer++) {
        if (strcmp(name, peer_names[doer]) != 0) continue;
        *value_p = PEERS + doer;
        return true;
    }
    return tpc_path_parse(name, value_p);
}

void bench_sweep_set_path(bench_sweep_t *sweep, size_t p, int32_t value) {
    sweep->doers[p] = value > PEERS ? (bench_doer_t)(value - PEERS) : BENCH_TPCOMM;
    sweep->paths[p] = value > PEERS ? TPCOMM_PATH_AUTO : value;
}

const char *bench_sweep_asked(const bench_sweep_t *sweep, size_t p) {
    return sweep->doers[p] ? peer_names[sweep->doers[p]] : tpcomm_path_name(sweep->paths[p]);
}

const char *bench_sweep_taken(const bench_sweep_t *sweep, size_t p, const bench_measured_t *measured) {
    tpcomm_path_t taken = bench_taken_path(measured);
    if (sweep->doers[p]) return measured->refused ? NULL : peer_names[sweep->doers[p]];
    return taken ? tpcomm_path_name(taken) : NULL;
}

/* ---------------------------------------------------------------- what a row says */

tpcomm_path_t bench_taken_path(const bench_measured_t *measured) {
    tpcomm_path_t taken = 0;
    for (tpcomm_path_t path = 1; path < TPC_PATH_END; path++) {
        if (measured->path_calls[path] == 0) continue;
        if (taken) return 0;
        taken = path;
    }
    return taken;
}

bool bench_as_expected(const bench_measured_t *measured) {
    if (measured->decision.path == 0) return true; /* another library's */
    return bench_taken_path(measured) == measured->decision.path &&
           measured->path_calls[measured->decision.path] == measured->calls;
}

static double typical(const bench_summary_t *us) {
    return isnan(us->p50) ? us->mean : us->p50;
}

double bench_sweep_chain_extra(const bench_sweep_row_t *row, size_t p) {
    if (row->chain[p].us.n == 0 || row->chain_alone.n == 0) return NAN;
    return typical(&row->chain[p].us) - typical(&row->chain_alone);
}

double bench_sweep_ratio(const bench_sweep_row_t *row, size_t path, int place, bool *unstable_p) {
    const bench_summary_t *first = &row->us[0][place], *this = &row->us[path][place];
    *unstable_p = first->cv_percent > BENCH_UNSTABLE_PERCENT || this->cv_percent > BENCH_UNSTABLE_PERCENT;
    return *unstable_p || first->n == 0 || this->n == 0 ? NAN : this->p50 / first->p50;
}
