/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Measure one collective call in several variants (paths, in place or not) by turns, and check what it writes: the core
 * of sweep, pairs and tune.
 *
 * A sample is the time of one call on the cpu device, and on a GPU the time of `calls` dependent calls, of one graph
 * replay or eager, between two events on the stream, divided by their number; always the greatest of the ranks'.
 * Samples come in rounds; in each the variants take turns. A round begins at a host barrier and, on a GPU, with a batch
 * that is not counted, so that launches are ahead of the device. Cold buffers: the device's cache is emptied before
 * each sample, and the ranks meet behind that in a call that is in no figure. Buffers take turns; outputs are poisoned
 * before a round and every element is compared after it. In place a call's input is the result before it, and with a
 * norm its residual is: the timed rounds run on what comes of that, and the check is a batch of its own on fresh
 * inputs.
 */
#ifndef BENCH_MEASURE_H
#define BENCH_MEASURE_H

#include "base/status.h"
#include "data.h"
#include "device.h"
#include "fault.h"
#include "nccl_log.h"
#include "rotation.h"

/** Rounds of one measurement; the spread (cv) is that of their medians. */
#define BENCH_ROUNDS       10
#define BENCH_VARIANTS_MAX 32

/** What one call does. */
typedef struct {
    tpcomm_coll_t coll;
    tpcomm_dtype_t dtype;
    tpcomm_op_t op;
    int32_t root;
    uint64_t count;  /**< as the named function counts; with a norm tokens x hidden */
    uint32_t hidden; /**< with a norm: elements of a row; else 0 */
} bench_work_t;

/** Who does it. */
typedef enum {
    BENCH_TPCOMM,
    BENCH_NCCL,        /**< NCCL, called directly */
    BENCH_NCCL_WINDOW, /**< likewise, in buffers registered as symmetric windows */
} bench_doer_t;

/** What stands around a call. */
typedef enum {
    BENCH_BARE,       /**< the next call */
    BENCH_CHAINED,    /**< before it something that writes its input, behind it something that reads its output */
    BENCH_CHAIN_ALONE /**< these two, without the call */
} bench_setting_t;

/** A way to do it. */
typedef struct {
    tpcomm_path_t path; /**< forced; AUTO: the library's choice */
    bool in_place;
    bench_doer_t doer;
    bench_setting_t setting; /**< in a chain: out of place alone */
} bench_variant_t;

typedef struct {
    bool graph;
    uint32_t calls;        /**< of one sample on a GPU */
    uint64_t samples;      /**< of a variant, a multiple of BENCH_ROUNDS; 0: as many as fit budget_ms, 20 to 1000 */
    uint64_t warmup_calls; /**< of each variant, not counted */
    double budget_ms;
    uint64_t seed;
} bench_measuring_t;

/** What came of a variant. Complete on rank 0 only, but for refused and decision. */
typedef struct {
    bool refused; /**< it cannot carry the call, or could not be checked; why says it */
    char why[256];
    tpcomm_decision_t decision;
    double *us; /**< samples, in the order in which they were taken */
    size_t samples;
    double host_us;  /**< of the calling thread in one call (graph: launch by calls), mean, the slowest rank's; NaN: cpu
                        device */
    double first_us; /**< the first call of all, in the warm-up */
    uint64_t calls;  /**< made, on all ranks together */
    uint64_t path_calls[TPC_PATH_END]; /**< by the library's counters, all ranks together */
    uint64_t checked, wrong;           /**< elements, all ranks together */
    double wait_us, skew_us;  /**< of a call, mean, by the library's counters: waiting for peers, the slowest rank's;
                                 last  arrival minus first; NaN: they do not tell */
    bench_nccl_choice_t nccl; /**< by NCCL's log, where one is kept: what it chose */
} bench_measured_t;

/** One rank's place: its buffers and what it has counted. */
typedef struct bench_lane bench_lane_t;

/** Bytes of a call's input and output buffer. */
void bench_work_bytes(const bench_work_t *work, int32_t ranks, uint64_t *in_p, uint64_t *out_p);
/** The greater of the two: the message, as nccl-tests and tpcomm_explain count it. */
uint64_t bench_work_message(const bench_work_t *work, int32_t ranks);
/** Elements of a call whose message has at most so many bytes; with a norm of whole rows. */
uint64_t bench_work_count(const bench_work_t *work, int32_t ranks, uint64_t bytes);

/** What buffers there must be. */
typedef struct {
    uint64_t message_bytes; /**< of the greatest message */
    uint32_t hidden;        /**< greatest row of work with a norm; 0: there is none */
    bool cold;              /**< calls find their buffers in no cache */
    uint32_t calls;         /**< of a sample on a GPU */
    bool chain;             /**< there are variants in a chain */
    bool nccl, window;      /**< there are variants by NCCL called directly */
} bench_lane_spec_t;

/**
 * Buffers for all that. Nothing may be waiting on a shared GPU.
 * @param name  of the subcommand, for what goes to stderr.
 * Collective: every rank. Fails: NO_MEMORY, on all ranks.
 */
tpcomm_status_t bench_lane_new(const char *name, tpcomm_t *comm, bench_device_t *device, const bench_lane_spec_t *spec,
                               const bench_fault_t *fault, bench_lane_t **lane_p);
/** Collective while the group is healthy. */
void bench_lane_free(bench_lane_t *lane);

/** The same lane for another group of some of its ranks; NULL: the one it was made with. */
void bench_lane_use(bench_lane_t *lane, tpcomm_t *comm);

/**
 * Measure. results: one a variant, all zero; freed by bench_measured_free. Collective: every rank, with equal
 * arguments. Fails: as the calls.
 */
tpcomm_status_t bench_measure(bench_lane_t *lane, const bench_measuring_t *how, const bench_work_t *work,
                              const bench_variant_t *variants, size_t count, bench_measured_t *results);
void bench_measured_free(bench_measured_t *results, size_t count);

/**
 * Whether the results of a call are those of the written contract on the path that it would take, eager or captured;
 * otherwise that path, or the one inside it, adds in an order of its own.
 */
bool bench_call_is_exact(const tpcomm_t *comm, const tpcomm_call_t *call);

/** Values of all ranks combined by maximum or sum, in place, by host messages. Fails: as tpcomm_host_all_gather. */
tpcomm_status_t bench_gather_max(tpcomm_t *comm, double *values, size_t count);
tpcomm_status_t bench_gather_sum(tpcomm_t *comm, uint64_t *values, size_t count);
/** Go on only if every rank can: OK if mine is OK everywhere; a rank that failed keeps its own status and text. */
tpcomm_status_t bench_agree(tpcomm_t *comm, tpcomm_status_t mine);

#endif
