/* SPDX-License-Identifier: Apache-2.0 */
/** A rank's buffers and test data, and one call in them: what the files of a measurement share (measure.h). */
#ifndef BENCH_LANE_H
#define BENCH_LANE_H

#include "measure.h"
#include "peer_nccl.h"

/** Inputs and outputs, and what the inputs hold. */
typedef struct {
    unsigned char *in, *out;
    const bench_data_t *filled;
    uint64_t filled_count;
} bench_regions_t;

struct bench_lane {
    const char *name;
    tpcomm_t *world, *comm; /* world: of all ranks of the lane */
    bench_device_t *device;
    const bench_fault_t *fault;
    int32_t rank, ranks; /* of comm */
    bool same_host;      /* clocks of comm's ranks can be compared */
    int32_t stats_count; /* paths that tpcomm_stats of comm tells of */
    bench_lane_spec_t spec;
    bench_regions_t own, window;                      /* window: allocated and registered by NCCL */
    unsigned char *residual, *residual_from, *weight; /* with a norm: as calls leave them, fresh ones */
    unsigned char *made, *seen; /* in a chain: what is written before a call, and what is read behind it */
    unsigned char *flush;       /* cold: what empties the cache when it is written */
    uint64_t region_bytes, flush_bytes, flushes; /* of in and out each; of flush; how often */
    bench_nccl_t *nccl;                          /* NULL: not asked for, or nccl_missing */
    char nccl_missing[256], window_missing[256];
    /* Data by the contract, exact data; of what work, for which group. */
    bench_data_t *data[2];
    bench_data_spec_t data_of;
    tpcomm_coll_t data_coll;
    uint64_t calls_begun, measurements, wrong_shown;
};

/** Where a call's buffers are. */
typedef struct {
    uint64_t in_bytes, out_bytes, stride; /* a pair's distance to the next */
    uint32_t pairs;
} bench_layout_t;

/** A variant of a piece of work, in its buffers. */
typedef struct {
    bench_lane_t *lane;
    const bench_work_t *work;
    bench_variant_t variant;
    bench_layout_t layout;
    bench_data_t *data;
    uint64_t calls; /* made, on this rank */
} bench_act_t;

/** What a kernel that gave up has left: the group's sticky failure. */
tpcomm_status_t bench_lane_status(const bench_lane_t *lane);
/** Everything on the device done, everybody here. */
tpcomm_status_t bench_lane_settle(bench_lane_t *lane);
/** Cold: empty the device's cache, on the stream. */
tpcomm_status_t bench_lane_cool(bench_lane_t *lane);

/** Whether what a call gives depends on the calls before it. */
bool bench_act_accumulates(const bench_act_t *act);

bench_layout_t bench_lane_layout(const bench_lane_t *lane, const bench_work_t *work);

/** The data of a piece of work, exact or by the contract; made if need be. Fails: NO_MEMORY. */
tpcomm_status_t bench_lane_data(bench_lane_t *lane, const bench_work_t *work, uint64_t seed, bool exact,
                                bench_data_t **data_p);

/** See to it that the inputs hold the act's data. */
tpcomm_status_t bench_act_fill(bench_act_t *act);
/** Poison the outputs; in place: put fresh inputs there. */
tpcomm_status_t bench_act_reset(bench_act_t *act);
/** Call number `call` of a batch. */
tpcomm_status_t bench_act_call(bench_act_t *act, uint64_t call);
/** Make ready to check `calls` calls in place. Fails: NO_MEMORY. */
tpcomm_status_t bench_act_prepare_check(bench_act_t *act, uint64_t calls);
/** Compare all that a batch of `calls` calls, or several of them, have written; adds to checked_p and wrong_p. */
tpcomm_status_t bench_act_check(bench_act_t *act, uint64_t calls, uint64_t *checked_p, uint64_t *wrong_p);
/** Plant the fault "wrong" in what the last call wrote. */
tpcomm_status_t bench_act_spoil(bench_act_t *act, uint64_t calls, uint64_t element);

#endif
