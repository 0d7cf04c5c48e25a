/* SPDX-License-Identifier: Apache-2.0 */
/**
 * A stretch: random calls of one collective, dtype and op in one group (the world, halves of it, or a group that is
 * made and left again), or host messages. What it does follows from the seed and the stretch's number, so that a
 * stretch can be run again by itself; all ranks draw the same.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "lists.h"
#include "random.h"
#include "soak.h"

enum { STEPS_MIN = 20, STEPS_MORE = 41, HOST_MESSAGES = 20, HOST_BYTES_MAX = 5000, REPLAYS_MAX = 3, PAIRS = 2 };

/** What the steps of a stretch have in common. */
typedef struct {
    tpcomm_coll_t coll;
    tpcomm_dtype_t dtype;
    tpcomm_op_t op;
    uint32_t hidden;
    uint64_t seed; /**< of the data */
} subject_t;

/** What is one step's own. */
typedef struct {
    bench_work_t work;
    bench_variant_t variant;
    uint32_t calls, replays; /**< replays 0: eager */
    uint64_t shift_in, shift_out;
} step_t;

tpcomm_status_t bench_soak_settle(const bench_soak_run_t *run, tpcomm_t *comm) {
    tpcomm_error_t error = {.struct_size = sizeof error};
    tpcomm_status_t status = bench_device_sync(run->device);
    if (status != TPCOMM_OK) return status;
    status = tpcomm_async_status(comm, &error);
    return status == TPCOMM_OK ? tpcomm_host_barrier(comm, 0) : tpc_error(status, "%s", error.text);
}

/* ---------------------------------------------------------------- what to do */

static bool has_reduction(tpcomm_dtype_t dtype, tpcomm_op_t op) {
    if (dtype == TPCOMM_F8_E4M3 || dtype == TPCOMM_F8_E5M2) return false;
    return op != TPCOMM_AVG || tpc_dtype_is_float(dtype);
}

static subject_t draw_subject(uint64_t *random) {
    static const tpcomm_coll_t colls[] = {TPCOMM_ALL_REDUCE, TPCOMM_ALL_REDUCE,         TPCOMM_ALL_REDUCE,
                                          TPCOMM_BROADCAST,  TPCOMM_REDUCE_SCATTER,     TPCOMM_ALL_GATHER,
                                          TPCOMM_BARRIER,    TPCOMM_ALL_REDUCE_RMS_NORM};
    static const tpcomm_dtype_t small_floats[] = {TPCOMM_BF16, TPCOMM_F16, TPCOMM_F32};
    static const uint32_t rows[] = {64, 256, 1024, 4096, 8192};
    subject_t subject = {.coll = colls[bench_random_below(random, 8)], .op = TPCOMM_SUM};
    bool reduces = tpc_coll_reduces(subject.coll), norms = tpc_coll_norms(subject.coll);
    if (norms || (reduces && bench_random_below(random, 2) == 0))
        subject.dtype = small_floats[bench_random_below(random, 3)];
    else
        subject.dtype = (tpcomm_dtype_t)(TPCOMM_F32 + (int32_t)bench_random_below(random, 12));
    while (reduces && !has_reduction(subject.dtype, subject.op))
        subject.dtype = (tpcomm_dtype_t)(TPCOMM_F32 + (int32_t)bench_random_below(random, 12));
    if (reduces && !norms && bench_random_below(random, 2) == 0) {
        do subject.op = (tpcomm_op_t)(TPCOMM_SUM + (int32_t)bench_random_below(random, 5));
        while (!has_reduction(subject.dtype, subject.op));
    }
    if (norms) subject.hidden = rows[bench_random_below(random, 5)];
    subject.seed = bench_random_next(random) >> 11;
    return subject;
}

/** Most messages are small, some are empty, a few as large as may be. */
static uint64_t draw_bytes(const bench_soak_run_t *run, uint64_t *random) {
    static const uint64_t limits[] = {64, 2048, 16384, 16384, 16384, 262144, 262144, UINT64_MAX};
    uint64_t limit = limits[bench_random_below(random, 8)], most = run->soak->max_bytes;
    return bench_random_below(random, (limit < most ? limit : most) + 1);
}

/** A path that explain grants; AUTO where the one drawn is none for this call. */
static tpcomm_path_t draw_path(const bench_soak_run_t *run, const bench_work_t *work, uint64_t *random) {
    tpcomm_path_t path = (tpcomm_path_t)bench_random_below(random, 3 * TPC_PATH_END);
    tpcomm_decision_t decision = {.struct_size = sizeof decision};
    tpcomm_call_t call = {.struct_size = sizeof call,
                          .coll = work->coll,
                          .dtype = work->dtype,
                          .op = work->op,
                          .path = path,
                          .hidden = (int32_t)work->hidden,
                          .count = work->count};
    if (path >= TPC_PATH_END || tpcomm_explain(run->lane->comm, &call, &decision) != TPCOMM_OK) return TPCOMM_PATH_AUTO;
    return path;
}

static step_t draw_step(const bench_soak_run_t *run, const subject_t *subject, uint64_t *random) {
    const bench_lane_t *lane = run->lane;
    size_t size = tpcomm_dtype_size(subject->dtype);
    step_t step = {.work = {.coll = subject->coll, .dtype = subject->dtype, .op = subject->op}};
    step.work.hidden = subject->hidden;
    step.work.root = (int32_t)bench_random_below(random, (uint64_t)lane->ranks);
    step.work.count = draw_bytes(run, random) / size;
    if (subject->coll == TPCOMM_REDUCE_SCATTER || subject->coll == TPCOMM_ALL_GATHER)
        step.work.count /= (uint64_t)lane->ranks;
    if (subject->hidden) {
        uint64_t most = run->soak->max_bytes / (subject->hidden * size), tokens = step.work.count / subject->hidden;
        step.work.count = (tokens > most ? most : tokens ? tokens : 1) * subject->hidden;
    }
    step.variant.path = draw_path(run, &step.work, random);
    step.variant.in_place = bench_random_below(random, 3) == 0 && subject->hidden == 0;
    step.calls = 1 + (uint32_t)bench_random_below(random, 4);
    if (bench_random_below(random, 3) == 0) step.replays = 1 + (uint32_t)bench_random_below(random, REPLAYS_MAX);
    if (bench_random_below(random, 4) == 0) {
        step.shift_in = bench_random_below(random, 16) * size;
        step.shift_out = bench_random_below(random, 16) * size;
    }
    if (!run->device->gpu) step.replays = 0;
    if (subject->hidden) step.shift_in = step.shift_out = 0;
    return step;
}

/** What a step is, whatever becomes of it: no padding, no addresses. */
static void plan_step(bench_soak_run_t *run, const subject_t *subject, const step_t *step) {
    uint64_t drawn[] = {run->stretch,
                        (uint64_t)run->lane->ranks,
                        (uint64_t)step->work.coll,
                        (uint64_t)step->work.dtype,
                        (uint64_t)step->work.op,
                        step->work.hidden,
                        (uint64_t)step->work.root,
                        step->work.count,
                        (uint64_t)step->variant.path,
                        step->variant.in_place,
                        step->calls,
                        step->replays,
                        step->shift_in,
                        step->shift_out,
                        subject->seed};
    run->plan = bench_hash_more(run->plan, drawn, sizeof drawn);
}

/* ---------------------------------------------------------------- doing it */

static tpcomm_status_t check(bench_soak_run_t *run, bench_act_t *act, uint32_t calls, uint64_t number) {
    const bench_fault_t *fault = &run->soak->fault;
    uint64_t wrong = run->counts.wrong;
    tpcomm_status_t status = TPCOMM_OK;
    if (fault->wrong && fault->wrong_iteration == run->stretch && fault->wrong_call == number &&
        run->rank == run->ranks - 1)
        status = bench_act_spoil(act, calls, fault->wrong_element);
    if (status == TPCOMM_OK) status = bench_act_check(act, calls, &run->counts.checked, &run->counts.wrong);
    if (run->counts.wrong > wrong && !run->wrong_told) {
        fprintf(stderr,
                "tpcomm-bench soak: rank %d: step %" PRIu64 " of stretch %" PRIu64 "; --seed %" PRIu64
                " --first %" PRIu64 " begins there\n",
                run->rank, number, run->stretch, run->soak->seed, run->stretch);
        run->wrong_told = true;
    }
    return status;
}

static tpcomm_status_t call_all(bench_act_t *act, uint32_t calls) {
    tpcomm_status_t status = TPCOMM_OK;
    for (uint32_t call = 0; call < calls && status == TPCOMM_OK; call++) status = bench_act_call(act, call);
    return status;
}

static tpcomm_status_t run_eager(bench_soak_run_t *run, bench_act_t *act, const step_t *step, uint64_t number) {
    tpcomm_status_t status = bench_act_reset(act);
    if (status == TPCOMM_OK) status = call_all(act, step->calls);
    run->counts.calls[step->work.coll] += step->calls;
    return status == TPCOMM_OK ? check(run, act, step->calls, number) : status;
}

/** Graphs are instantiated and destroyed while no rank's kernel waits. */
static tpcomm_status_t run_graph(bench_soak_run_t *run, bench_act_t *act, const step_t *step, uint64_t number) {
    bench_graph_t *graph = NULL;
    tpcomm_status_t status = bench_soak_settle(run, run->together);
    if (status == TPCOMM_OK) status = bench_gpu_capture_begin(run->device->gpu);
    if (status == TPCOMM_OK) status = call_all(act, step->calls);
    if (status == TPCOMM_OK) status = bench_gpu_capture_end(run->device->gpu, &graph);
    if (status == TPCOMM_OK) status = bench_soak_settle(run, run->together);
    for (uint32_t replay = 0; replay < step->replays && status == TPCOMM_OK; replay++) {
        status = bench_act_reset(act);
        if (status == TPCOMM_OK) status = bench_gpu_launch(run->device->gpu, graph);
        if (status == TPCOMM_OK) status = check(run, act, step->calls, number);
        run->counts.calls[step->work.coll] += step->calls;
        run->counts.replays++;
    }
    run->counts.graphs++;
    if (status == TPCOMM_OK) status = bench_soak_settle(run, run->together);
    bench_graph_free(graph);
    return status == TPCOMM_OK ? bench_soak_settle(run, run->together) : status;
}

/** Whether results can be compared bit for bit; exact_p: with exact data alone, for the path adds in its own order. */
static bool is_checkable(const bench_soak_run_t *run, step_t *step, bool *exact_p) {
    const bench_work_t *work = &step->work;
    tpcomm_call_t call = {.struct_size = sizeof call,
                          .coll = work->coll,
                          .dtype = work->dtype,
                          .op = work->op,
                          .path = step->variant.path,
                          .hidden = (int32_t)work->hidden,
                          .count = work->count};
    *exact_p = tpc_coll_reduces(work->coll) && !bench_call_is_exact(run->lane->comm, &call);
    if (!*exact_p) return true;
    step->variant.in_place = false;
    return work->hidden == 0 && work->op != TPCOMM_AVG;
}

static void count_step(bench_soak_run_t *run, const step_t *step) {
    tpcomm_decision_t decision = {.struct_size = sizeof decision};
    tpcomm_call_t call = {.struct_size = sizeof call,
                          .coll = step->work.coll,
                          .dtype = step->work.dtype,
                          .op = step->work.op,
                          .path = step->variant.path,
                          .hidden = (int32_t)step->work.hidden,
                          .count = step->work.count};
    run->counts.steps++;
    run->counts.in_place += step->variant.in_place;
    run->counts.misaligned += step->shift_in % 16 != 0 || step->shift_out % 16 != 0;
    if (tpcomm_explain(run->lane->comm, &call, &decision) == TPCOMM_OK) run->counts.paths[decision.path]++;
}

static tpcomm_status_t run_step(bench_soak_run_t *run, const subject_t *subject, step_t step, uint64_t number) {
    bench_lane_t *lane = run->lane;
    unsigned char *in = lane->own.in, *out = lane->own.out;
    bench_act_t act = {.lane = lane, .work = &step.work};
    bool exact = false;
    if (!is_checkable(run, &step, &exact)) return TPCOMM_OK;
    count_step(run, &step);
    act.variant = step.variant;
    act.layout = bench_lane_layout(lane, &step.work);
    act.layout.pairs = PAIRS;
    if (!tpc_coll_moves_data(step.work.coll)) {
        run->counts.calls[step.work.coll]++;
        return check(run, &act, 1, number);
    }
    lane->own.in += step.shift_in;
    lane->own.out += step.shift_out;
    lane->own.filled = NULL;
    tpcomm_status_t status = bench_lane_data(lane, &step.work, subject->seed, exact, &act.data);
    if (status == TPCOMM_OK) status = bench_act_fill(&act);
    if (status == TPCOMM_OK) status = bench_act_prepare_check(&act, step.calls);
    if (status == TPCOMM_OK)
        status = step.replays > 0 ? run_graph(run, &act, &step, number) : run_eager(run, &act, &step, number);
    lane->own.in = in;
    lane->own.out = out;
    return status;
}

static tpcomm_status_t run_calls(bench_soak_run_t *run, tpcomm_t *comm, uint64_t seed) {
    uint64_t random = seed;
    bench_lane_use(run->lane, comm);
    subject_t subject = draw_subject(&random);
    uint64_t steps = STEPS_MIN + bench_random_below(&random, STEPS_MORE);
    tpcomm_status_t status = TPCOMM_OK;
    for (uint64_t number = 0; number < steps && status == TPCOMM_OK; number++) {
        step_t step = draw_step(run, &subject, &random);
        plan_step(run, &subject, &step);
        status = run_step(run, &subject, step, number);
    }
    return status;
}

/** A group of some ranks, made and left again. The others wait on the host alone. */
static tpcomm_status_t run_passing(bench_soak_run_t *run, uint64_t seed) {
    uint64_t random = seed, members = bench_random_below(&random, (UINT64_C(1) << run->ranks) - 1) + 1;
    int32_t ranks[TPCOMM_MAX_RANKS], n = 0;
    tpcomm_t *group = NULL;
    for (int32_t r = 0; r < run->ranks; r++)
        if ((members >> r & 1) != 0) ranks[n++] = r;
    tpcomm_status_t status = bench_soak_settle(run, run->world);
    if (status == TPCOMM_OK && (members >> run->rank & 1) != 0) {
        run->counts.groups++;
        status = tpcomm_group_create(run->world, ranks, n, "passing", &group);
        run->together = group;
        if (status == TPCOMM_OK) status = run_calls(run, group, bench_random_next(&random));
        if (status == TPCOMM_OK) status = bench_soak_settle(run, group);
        if (status == TPCOMM_OK) status = tpcomm_finalize(group);
        if (status == TPCOMM_OK) status = tpcomm_destroy(group);
        bench_lane_use(run->lane, NULL);
    }
    return status == TPCOMM_OK ? bench_soak_settle(run, run->world) : status;
}

static tpcomm_status_t run_host_messages(bench_soak_run_t *run, uint64_t seed) {
    unsigned char data[HOST_BYTES_MAX + 1];
    uint64_t random = seed, all[TPCOMM_MAX_RANKS];
    tpcomm_status_t status = TPCOMM_OK;
    for (int message = 0; message < HOST_MESSAGES && status == TPCOMM_OK; message++) {
        uint64_t bytes = bench_random_below(&random, HOST_BYTES_MAX + 1), key = bench_random_next(&random), wrong = 0;
        int32_t root = (int32_t)bench_random_below(&random, (uint64_t)run->ranks);
        uint64_t drawn[] = {run->stretch, bytes, key, (uint64_t)root};
        run->plan = bench_hash_more(run->plan, drawn, sizeof drawn);
        for (uint64_t i = 0; i < bytes; i++) data[i] = run->rank == root ? (unsigned char)bench_random_mix(key + i) : 0;
        status = tpcomm_host_broadcast(run->world, data, (size_t)bytes, root, 0);
        for (uint64_t i = 0; i < bytes; i++) wrong += data[i] != (unsigned char)bench_random_mix(key + i);
        uint64_t mine = bench_random_mix(key + (uint64_t)run->rank);
        if (status == TPCOMM_OK) status = tpcomm_host_all_gather(run->world, &mine, all, sizeof mine, 0);
        for (int32_t r = 0; r < run->ranks && status == TPCOMM_OK; r++)
            wrong += all[r] != bench_random_mix(key + (uint64_t)r);
        run->counts.host_messages += 2;
        run->counts.checked += bytes + (uint64_t)run->ranks;
        if (status == TPCOMM_OK) run->counts.wrong += wrong;
    }
    return status;
}

tpcomm_status_t bench_soak_stretch(bench_soak_run_t *run, uint64_t index) {
    uint64_t random = bench_random_mix(run->soak->seed) + index * UINT64_C(0xd1342543de82ef95);
    uint64_t what = bench_random_below(&random, 100), seed = bench_random_next(&random);
    /* Halves of one size make the same steps at the same time, as run_graph needs. */
    bool halves = what >= 10 && what < 35 && run->ranks % 2 == 0;
    run->stretch = index;
    run->together = run->world;
    if (what < 5) return run_host_messages(run, seed);
    if (what < 10) return run_passing(run, seed);
    return run_calls(run, halves ? run->half : run->world, seed);
}
