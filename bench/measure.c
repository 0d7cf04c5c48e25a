/* SPDX-License-Identifier: Apache-2.0 */
#include "measure.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench.h"
#include "lane.h"
#include "stats_math.h"

enum { FEWEST_SAMPLES = 20, MOST_SAMPLES = 1000, STRETCH = 4 };
/* Batches on the stream at a time: a full queue would block this thread inside the driver, where it keeps out other
 * ranks of the process. */
enum { AHEAD = 3 };
/* What is checked after every round; more only after the first and the last. */
static const uint64_t CHECKED_EVERY_ROUND_BYTES = UINT64_C(32) << 20;

/** One variant in the middle of a measurement. */
typedef struct {
    bench_act_t act;
    bench_graph_t *graph;
    bench_measured_t *result;
    uint64_t samples; /* of one round */
    double expected_us;
    double host_ns; /* in the timed calls, this rank's */
    uint64_t host_calls;
    double wait_ns, skew_ns; /* likewise, by the library's counters */
    uint64_t counted_calls;
} course_t;

typedef struct {
    bench_lane_t *lane;
    const bench_measuring_t *how;
    course_t course[BENCH_VARIANTS_MAX];
    size_t count;
} measurement_t;

/* ---------------------------------------------------------------- all ranks */

tpcomm_status_t bench_gather_max(tpcomm_t *comm, double *values, size_t count) {
    tpcomm_info_t info = {.struct_size = sizeof info};
    tpcomm_status_t status = tpcomm_comm_info(comm, &info);
    if (status != TPCOMM_OK || count == 0) return status;
    double *all = malloc(count * (size_t)info.size * sizeof *all);
    if (!all) return tpc_error(TPCOMM_ERR_NO_MEMORY, "no memory to gather times");
    status = tpcomm_host_all_gather(comm, values, all, count * sizeof *all, 0);
    for (size_t i = 0; i < count && status == TPCOMM_OK; i++)
        for (int32_t r = 0; r < info.size; r++)
            if (all[(size_t)r * count + i] > values[i]) values[i] = all[(size_t)r * count + i];
    free(all);
    return status;
}

tpcomm_status_t bench_gather_sum(tpcomm_t *comm, uint64_t *values, size_t count) {
    tpcomm_info_t info = {.struct_size = sizeof info};
    tpcomm_status_t status = tpcomm_comm_info(comm, &info);
    if (status != TPCOMM_OK || count == 0) return status;
    uint64_t *all = malloc(count * (size_t)info.size * sizeof *all);
    if (!all) return tpc_error(TPCOMM_ERR_NO_MEMORY, "no memory to gather counts");
    status = tpcomm_host_all_gather(comm, values, all, count * sizeof *all, 0);
    if (status == TPCOMM_OK) memset(values, 0, count * sizeof *values);
    for (size_t i = 0; i < count && status == TPCOMM_OK; i++)
        for (int32_t r = 0; r < info.size; r++) values[i] += all[(size_t)r * count + i];
    free(all);
    return status;
}

tpcomm_status_t bench_agree(tpcomm_t *comm, tpcomm_status_t mine) {
    char text[TPC_ERROR_BYTES] = "";
    double failed = mine != TPCOMM_OK;
    if (mine != TPCOMM_OK) snprintf(text, sizeof text, "%s", tpcomm_last_error());
    tpcomm_status_t status = bench_gather_max(comm, &failed, 1);
    if (mine != TPCOMM_OK) return tpc_error(mine, "%s", text);
    if (status == TPCOMM_OK && failed > 0)
        return tpc_error(TPCOMM_ERR_PEER_FAILED, "another rank could not go on, and says why");
    return status;
}

/* ---------------------------------------------------------------- which variants can run */

static bool path_is(tpcomm_path_t path, const char *name) {
    return strcmp(tpcomm_path_name(path), name) == 0;
}

bool bench_call_is_exact(const tpcomm_t *comm, const tpcomm_call_t *call) {
    tpcomm_decision_t decision = {.struct_size = sizeof decision};
    if (tpcomm_explain(comm, call, &decision) != TPCOMM_OK) return true;
    const tpcomm_path_t paths[] = {decision.path, decision.other_path}; /* eager and captured calls share one table */
    bool composed = false;
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++) {
        if (path_is(paths[i], "nccl") || path_is(paths[i], "hier")) return false;
        composed = composed || path_is(paths[i], "unfused");
    }
    if (!composed) return true;
    tpcomm_call_t inside = *call;
    inside.coll = TPCOMM_ALL_REDUCE;
    inside.op = TPCOMM_SUM;
    inside.path = TPCOMM_PATH_AUTO;
    inside.hidden = 0;
    return bench_call_is_exact(comm, &inside);
}

static bool is_power_of_two(uint64_t n) {
    return n > 0 && (n & (n - 1)) == 0;
}

/* The greatest whole number up to which bf16, with the fewest bits, has all. */
enum { EXACT_MAX = 256 };

/**
 * Exact data stays exact however it is added up: sums of 0 and 1 over N ranks are whole numbers up to N, and in place
 * those of a power of two of ranks only grow by that power. Why a variant would not stay exact; NULL: it does.
 */
static const char *why_not_checkable(const bench_work_t *work, int32_t ranks, bool in_place, uint64_t repeats) {
    bool adds = tpc_coll_reduces(work->coll) && (work->op == TPCOMM_SUM || work->op == TPCOMM_AVG);
    uint64_t n = (uint64_t)ranks;
    if (!adds) return NULL;
    if (work->op == TPCOMM_AVG && !is_power_of_two(n))
        return "this path divides by N in its own way: only powers of two can be compared bit for bit";
    if (!in_place) return NULL;
    if (work->coll == TPCOMM_REDUCE_SCATTER)
        return work->op == TPCOMM_SUM && n * (repeats + 1) <= EXACT_MAX
                   ? NULL
                   : "repeated in place, this path's sums cannot be compared bit for bit";
    return is_power_of_two(n) && n * n <= EXACT_MAX
               ? NULL
               : "repeated in place, this path's sums can be compared for N = 2, 4, 8, 16 alone";
}

static tpcomm_call_t describe(const bench_work_t *work, tpcomm_path_t path) {
    return (tpcomm_call_t){.struct_size = sizeof(tpcomm_call_t),
                           .coll = work->coll,
                           .dtype = work->dtype,
                           .op = work->op,
                           .path = path,
                           .root = work->root,
                           .hidden = (int32_t)work->hidden,
                           .count = tpc_coll_moves_data(work->coll) ? work->count : 0};
}

/** Number of the first call that is timed; on a GPU the ranks meet in call 0 once their caches are cold. */
static uint64_t first_call(const measurement_t *m) {
    return m->lane->device->gpu && m->lane->spec.cold ? 1 : 0;
}

/** Calls of a sample on a GPU, with the one by which the ranks meet. */
static uint64_t batch_calls(const measurement_t *m) {
    return first_call(m) + m->how->calls;
}

/** Calls of the batch that a check looks at. */
static uint64_t check_calls(const measurement_t *m, const course_t *course) {
    return course->graph || m->how->graph ? batch_calls(m) : 2 * (uint64_t)course->act.layout.pairs;
}

static void refuse(bench_measured_t *result, const char *why) {
    result->refused = true;
    snprintf(result->why, sizeof result->why, "%s", why);
}

/** NCCL called directly: why this cannot be measured; NULL: it can. */
static const char *why_not_by_nccl(const bench_lane_t *lane, const bench_work_t *work, bench_doer_t doer) {
    if (lane->nccl_missing[0]) return lane->nccl_missing;
    if (doer == BENCH_NCCL_WINDOW && lane->window_missing[0]) return lane->window_missing;
    if (lane->comm != lane->world) return "NCCL's communicator is the world's, not this group's";
    return bench_nccl_why_not(work->coll, work->dtype);
}

static tpcomm_status_t begin_course(measurement_t *m, const bench_work_t *work, const bench_variant_t *variant,
                                    bench_measured_t *result) {
    bench_lane_t *lane = m->lane;
    course_t *course = &m->course[m->count];
    memset(course, 0, sizeof *course);
    result->host_us = result->first_us = result->wait_us = result->skew_us = NAN;
    course->result = result;
    course->act = (bench_act_t){.lane = lane, .work = work, .variant = *variant};
    course->act.layout = bench_lane_layout(lane, work);
    tpcomm_call_t call = describe(work, variant->path);
    if (m->how->graph) call.flags = TPCOMM_CALL_CAPTURED; /* what is explained, not what is called */
    result->decision = (tpcomm_decision_t){.struct_size = sizeof result->decision};
    tpcomm_status_t status = TPCOMM_OK;
    bool exact = variant->doer != BENCH_TPCOMM;
    const char *why = exact ? why_not_by_nccl(lane, work, variant->doer) : NULL;
    if (!exact && (status = tpcomm_explain(lane->comm, &call, &result->decision)) != TPCOMM_OK)
        why = tpcomm_last_error(); /* the same answer on every rank: a choice looks at nothing else */
    if (!exact && !why) exact = !bench_call_is_exact(lane->comm, &call);
    if (exact && !why)
        why = why_not_checkable(work, lane->ranks, variant->in_place,
                                check_calls(m, course) / course->act.layout.pairs + 1);
    if (why) {
        refuse(result, why);
        return TPCOMM_OK;
    }
    m->count++;
    if (!tpc_coll_moves_data(work->coll)) return TPCOMM_OK;
    status = bench_lane_data(lane, work, m->how->seed, exact, &course->act.data);
    return status == TPCOMM_OK ? bench_act_prepare_check(&course->act, check_calls(m, course)) : status;
}

/* ---------------------------------------------------------------- counters */

typedef struct {
    uint64_t calls[TPC_PATH_END];
    uint64_t waits, wait_ns, skew_ns; /* waits: calls that the other two are of */
} counters_t;

static tpcomm_status_t read_counters(const bench_lane_t *lane, counters_t *counters_p) {
    memset(counters_p, 0, sizeof *counters_p);
    for (int32_t i = 0; i < lane->stats_count; i++) {
        tpcomm_stats_t stats = {.struct_size = sizeof stats};
        tpcomm_status_t status = tpcomm_stats(lane->comm, i, &stats);
        if (status != TPCOMM_OK) return status;
        if (stats.path >= 0 && stats.path < TPC_PATH_END) counters_p->calls[stats.path] = stats.calls;
        counters_p->waits += stats.waits;
        counters_p->wait_ns += stats.wait_ns;
        counters_p->skew_ns += stats.skew_ns;
    }
    return TPCOMM_OK;
}

static tpcomm_status_t add_counters(course_t *course, const counters_t *before) {
    counters_t after;
    tpcomm_status_t status = read_counters(course->act.lane, &after);
    for (int path = 0; path < TPC_PATH_END && status == TPCOMM_OK; path++)
        course->result->path_calls[path] += after.calls[path] - before->calls[path];
    return status;
}

/* ---------------------------------------------------------------- batches */

/** An eager call before captured ones: by the path that these will take. */
static tpcomm_status_t call_before(const measurement_t *m, course_t *course, uint64_t number) {
    tpcomm_path_t asked = course->act.variant.path;
    if (m->how->graph) course->act.variant.path = course->result->decision.path;
    tpcomm_status_t status = bench_act_call(&course->act, number);
    course->act.variant.path = asked;
    return status;
}

/** The calls of one sample on a GPU. */
static tpcomm_status_t run_batch(const measurement_t *m, course_t *course) {
    if (course->graph) return bench_gpu_launch(m->lane->device->gpu, course->graph);
    tpcomm_status_t status = TPCOMM_OK;
    for (uint64_t i = first_call(m); i < batch_calls(m) && status == TPCOMM_OK; i++)
        status = bench_act_call(&course->act, i);
    return status;
}

/** Cold: nothing of the buffers in the cache, all ranks' devices in step. */
static tpcomm_status_t cool(const measurement_t *m, course_t *course) {
    tpcomm_status_t status = bench_lane_cool(m->lane);
    return status == TPCOMM_OK ? call_before(m, course, 0) : status;
}

static tpcomm_status_t timed_batch(const measurement_t *m, course_t *course) {
    uint64_t start = tpc_clock_ns();
    tpcomm_status_t status = run_batch(m, course);
    course->host_ns += (double)(tpc_clock_ns() - start);
    course->host_calls += m->how->calls;
    return status;
}

/** Sample s lies between two marks: where it is hot those of neighbours are one. */
static tpcomm_status_t timed_gpu(const measurement_t *m, course_t *course, uint64_t samples, double *us) {
    bench_gpu_t *gpu = m->lane->device->gpu;
    bool cold = m->lane->spec.cold;
    uint64_t apart = cold ? 2 : 1;
    tpcomm_status_t status = cold ? TPCOMM_OK : run_batch(m, course); /* it puts the launches ahead of the device */
    if (status == TPCOMM_OK && !cold) status = bench_gpu_mark(gpu, 0);
    for (uint64_t s = 0; s < samples + AHEAD && status == TPCOMM_OK; s++) {
        if (s < samples) {
            if (cold) status = cool(m, course);
            if (status == TPCOMM_OK && cold) status = bench_gpu_mark(gpu, (uint32_t)(s * apart % BENCH_GPU_MARKS));
            if (status == TPCOMM_OK) status = timed_batch(m, course);
            if (status == TPCOMM_OK) status = bench_gpu_mark(gpu, (uint32_t)((s * apart + 1) % BENCH_GPU_MARKS));
        }
        if (s < AHEAD || status != TPCOMM_OK) continue;
        uint32_t from = (uint32_t)((s - AHEAD) * apart % BENCH_GPU_MARKS);
        uint32_t to = (uint32_t)(((s - AHEAD) * apart + 1) % BENCH_GPU_MARKS);
        status = bench_gpu_wait(gpu, to);
        if (status == TPCOMM_OK) status = bench_gpu_between(gpu, from, to, &us[s - AHEAD]);
        us[s - AHEAD] /= m->how->calls;
    }
    return status;
}

static tpcomm_status_t timed_cpu(const measurement_t *m, course_t *course, uint64_t samples, double *us) {
    for (uint64_t s = 0; s < samples; s++) {
        tpcomm_status_t status = TPCOMM_OK;
        if (m->lane->spec.cold && s % course->act.layout.pairs == 0) {
            status = bench_lane_cool(m->lane);
            if (status == TPCOMM_OK) status = tpcomm_host_barrier(m->lane->comm, 0);
        }
        uint64_t start = tpc_clock_ns();
        if (status == TPCOMM_OK) status = bench_act_call(&course->act, s);
        us[s] = (double)(tpc_clock_ns() - start) / 1000;
        if (status != TPCOMM_OK) return status;
    }
    return TPCOMM_OK;
}

static tpcomm_status_t timed(const measurement_t *m, course_t *course, uint64_t samples, double *us) {
    return m->lane->device->gpu ? timed_gpu(m, course, samples, us) : timed_cpu(m, course, samples, us);
}

/* ---------------------------------------------------------------- before the rounds */

/** A few calls, each to its end: what the first of all takes, and a guess of what one takes. */
static tpcomm_status_t warm_up(const measurement_t *m, course_t *course) {
    bench_lane_t *lane = m->lane;
    counters_t before;
    tpcomm_status_t status = bench_act_fill(&course->act);
    if (status == TPCOMM_OK) status = bench_act_reset(&course->act);
    if (status == TPCOMM_OK) status = bench_lane_settle(lane);
    if (status == TPCOMM_OK) status = read_counters(lane, &before);
    uint64_t logged = bench_nccl_log_size();
    uint64_t start = tpc_clock_ns(), calls = m->how->warmup_calls > 2 ? m->how->warmup_calls : 2, first = 0;
    for (uint64_t i = 0; i < calls && status == TPCOMM_OK; i++) {
        status = call_before(m, course, i);
        if (i > 0 || status != TPCOMM_OK) continue;
        status = bench_device_sync(lane->device);
        first = tpc_clock_ns() - start;
        start = tpc_clock_ns();
    }
    if (status == TPCOMM_OK) status = bench_device_sync(lane->device);
    course->result->first_us = (double)first / 1000;
    course->expected_us = (double)(tpc_clock_ns() - start) / 1000 / (double)(calls - 1);
    if (status == TPCOMM_OK) status = bench_lane_status(lane);
    bench_nccl_log_read(logged, &course->result->nccl);
    return status == TPCOMM_OK ? add_counters(course, &before) : status;
}

/** The graph of a sample. Nobody's kernel waits meanwhile: before and after, all ranks meet. */
static tpcomm_status_t capture(const measurement_t *m, course_t *course) {
    bench_lane_t *lane = m->lane;
    bench_gpu_t *gpu = lane->device->gpu;
    counters_t before;
    tpcomm_status_t status = bench_lane_settle(lane);
    if (status == TPCOMM_OK) status = read_counters(lane, &before);
    if (status == TPCOMM_OK) status = bench_gpu_capture_begin(gpu);
    if (status == TPCOMM_OK) {
        for (uint64_t i = first_call(m); i < batch_calls(m) && status == TPCOMM_OK; i++)
            status = bench_act_call(&course->act, i);
        char text[TPC_ERROR_BYTES];
        snprintf(text, sizeof text, "%s", tpcomm_last_error());
        tpcomm_status_t ended = bench_gpu_capture_end(gpu, &course->graph);
        status = status == TPCOMM_OK ? ended : tpc_error(status, "%s", text);
    }
    if (status == TPCOMM_OK) status = add_counters(course, &before);
    return bench_agree(lane->comm, status);
}

/** What one sample takes, now that everything is warm. */
static tpcomm_status_t estimate(const measurement_t *m, course_t *course) {
    double us = course->expected_us;
    tpcomm_status_t status = TPCOMM_OK;
    if (m->lane->device->gpu) {
        counters_t before;
        status = bench_lane_settle(m->lane);
        if (status == TPCOMM_OK) status = read_counters(m->lane, &before);
        if (status == TPCOMM_OK) status = timed_gpu(m, course, 1, &us);
        if (status == TPCOMM_OK) status = bench_lane_settle(m->lane);
        if (status == TPCOMM_OK) status = add_counters(course, &before);
        us *= m->how->calls;
        course->host_ns = 0;
        course->host_calls = 0;
    }
    double both[2] = {us, course->result->first_us};
    if (status == TPCOMM_OK) status = bench_gather_max(m->lane->comm, both, 2);
    course->expected_us = both[0];
    course->result->first_us = both[1];
    return status;
}

static tpcomm_status_t plan_samples(const measurement_t *m, course_t *course) {
    uint64_t samples = m->how->samples;
    if (samples == 0) {
        double fit = course->expected_us > 0 ? m->how->budget_ms * 1000 / course->expected_us : MOST_SAMPLES;
        /* A median wants a hundred: rather a few times the budget than none. */
        if (fit < BENCH_P50_MIN_SAMPLES && fit * STRETCH >= BENCH_P50_MIN_SAMPLES) fit = BENCH_P50_MIN_SAMPLES;
        samples = fit > MOST_SAMPLES ? MOST_SAMPLES : fit < FEWEST_SAMPLES ? FEWEST_SAMPLES : (uint64_t)fit;
    }
    course->samples = (samples + BENCH_ROUNDS - 1) / BENCH_ROUNDS;
    course->result->samples = (size_t)(course->samples * BENCH_ROUNDS);
    course->result->us = calloc(course->result->samples, sizeof *course->result->us);
    return course->result->us ? TPCOMM_OK : tpc_error(TPCOMM_ERR_NO_MEMORY, "no memory for the times");
}

/* ---------------------------------------------------------------- rounds */

/** In place or with a residual: fresh inputs, and a batch that is checked instead of timed. */
static tpcomm_status_t run_for_check(const measurement_t *m, course_t *course, uint64_t calls) {
    tpcomm_status_t status = bench_act_reset(&course->act);
    if (status == TPCOMM_OK) status = bench_lane_settle(m->lane);
    if (status != TPCOMM_OK) return status;
    if (course->graph) {
        if (first_call(m) > 0) status = call_before(m, course, 0);
        return status == TPCOMM_OK ? run_batch(m, course) : status;
    }
    for (uint64_t i = 0; i < calls && status == TPCOMM_OK; i++) status = bench_act_call(&course->act, i);
    return status;
}

static tpcomm_status_t check_round(const measurement_t *m, course_t *course, size_t variant, uint64_t round) {
    bench_lane_t *lane = m->lane;
    const bench_fault_t *fault = lane->fault;
    bench_measured_t *result = course->result;
    uint64_t calls = lane->device->gpu ? batch_calls(m) : course->samples;
    tpcomm_status_t status = TPCOMM_OK;
    if (bench_act_accumulates(&course->act)) {
        calls = check_calls(m, course);
        status = run_for_check(m, course, calls);
    }
    if (status == TPCOMM_OK) status = bench_device_sync(lane->device);
    if (status == TPCOMM_OK) status = bench_lane_status(lane);
    if (status == TPCOMM_OK && round == 0 && fault->wrong && fault->wrong_iteration == lane->measurements &&
        fault->wrong_call == variant && lane->rank == lane->ranks - 1)
        status = bench_act_spoil(&course->act, calls, fault->wrong_element);
    return status == TPCOMM_OK ? bench_act_check(&course->act, calls, &result->checked, &result->wrong) : status;
}

static tpcomm_status_t run_round(const measurement_t *m, course_t *course, size_t variant, uint64_t round) {
    bench_lane_t *lane = m->lane;
    const bench_fault_t *fault = lane->fault;
    const bench_layout_t *layout = &course->act.layout;
    bool check =
        round == 0 || round == BENCH_ROUNDS - 1 || layout->pairs * layout->out_bytes <= CHECKED_EVERY_ROUND_BYTES;
    counters_t before, after;
    if (fault->late && fault->late_rank == (uint64_t)lane->rank) bench_fault_sleep(fault->late_ms);
    tpcomm_status_t status = bench_act_fill(&course->act);
    if (status == TPCOMM_OK) status = bench_act_reset(&course->act);
    if (status == TPCOMM_OK) status = bench_lane_settle(lane);
    if (status == TPCOMM_OK) status = read_counters(lane, &before);
    if (status == TPCOMM_OK) status = timed(m, course, course->samples, course->result->us + round * course->samples);
    if (status == TPCOMM_OK) status = bench_device_sync(lane->device);
    if (status == TPCOMM_OK) status = bench_lane_status(lane);
    if (status == TPCOMM_OK) status = read_counters(lane, &after);
    if (status == TPCOMM_OK) {
        course->wait_ns += (double)(after.wait_ns - before.wait_ns);
        course->skew_ns += (double)(after.skew_ns - before.skew_ns);
        course->counted_calls += after.waits - before.waits;
    }
    if (status == TPCOMM_OK && check) status = check_round(m, course, variant, round);
    return status == TPCOMM_OK ? add_counters(course, &before) : status;
}

/* ---------------------------------------------------------------- the whole */

static tpcomm_status_t gather(const measurement_t *m, course_t *course) {
    bench_measured_t *result = course->result;
    tpcomm_t *comm = m->lane->comm;
    uint64_t counts[TPC_PATH_END + 3];
    memcpy(counts, result->path_calls, sizeof result->path_calls);
    counts[TPC_PATH_END] = result->checked;
    counts[TPC_PATH_END + 1] = result->wrong;
    counts[TPC_PATH_END + 2] = course->act.calls;
    tpcomm_status_t status = bench_gather_max(comm, result->us, result->samples);
    if (status == TPCOMM_OK) status = bench_gather_sum(comm, counts, TPC_PATH_END + 3);
    if (status == TPCOMM_OK && course->host_calls > 0) {
        result->host_us = course->host_ns / 1000 / (double)course->host_calls;
        status = bench_gather_max(comm, &result->host_us, 1);
    }
    double waits[2] = {course->wait_ns, course->skew_ns};
    if (status == TPCOMM_OK) status = bench_gather_max(comm, waits, 2);
    if (course->counted_calls > 0 && waits[0] > 0) { /* a path that does not count its waits has none at all */
        result->wait_us = waits[0] / 1000 / (double)course->counted_calls;
        result->skew_us = waits[1] / 1000 / (double)course->counted_calls;
    }
    if (status != TPCOMM_OK) return status;
    memcpy(result->path_calls, counts, sizeof result->path_calls);
    result->checked = counts[TPC_PATH_END];
    result->wrong = counts[TPC_PATH_END + 1];
    result->calls = counts[TPC_PATH_END + 2];
    return TPCOMM_OK;
}

static tpcomm_status_t run_courses(measurement_t *m) {
    tpcomm_status_t status = TPCOMM_OK;
    for (size_t v = 0; v < m->count && status == TPCOMM_OK; v++) status = warm_up(m, &m->course[v]);
    for (size_t v = 0; v < m->count && status == TPCOMM_OK && m->how->graph; v++) status = capture(m, &m->course[v]);
    for (size_t v = 0; v < m->count && status == TPCOMM_OK; v++) status = estimate(m, &m->course[v]);
    tpcomm_status_t planned = TPCOMM_OK;
    for (size_t v = 0; v < m->count && status == TPCOMM_OK && planned == TPCOMM_OK; v++)
        planned = plan_samples(m, &m->course[v]);
    if (status == TPCOMM_OK) status = bench_agree(m->lane->comm, planned);
    for (uint64_t round = 0; round < BENCH_ROUNDS && status == TPCOMM_OK; round++)
        for (size_t v = 0; v < m->count && status == TPCOMM_OK; v++) status = run_round(m, &m->course[v], v, round);
    for (size_t v = 0; v < m->count && status == TPCOMM_OK; v++) status = gather(m, &m->course[v]);
    return status;
}

tpcomm_status_t bench_measure(bench_lane_t *lane, const bench_measuring_t *how, const bench_work_t *work,
                              const bench_variant_t *variants, size_t count, bench_measured_t *results) {
    measurement_t m = {.lane = lane, .how = how};
    tpcomm_status_t status = TPCOMM_OK;
    if (lane->fault->die && lane->fault->die_rank == (uint64_t)lane->rank &&
        lane->fault->die_iteration == lane->measurements)
        _exit(9);
    if (bench_work_message(work, lane->ranks) > lane->spec.message_bytes)
        return tpc_error(TPCOMM_ERR_INVALID_ARG, "a message greater than the buffers");
    for (size_t v = 0; v < count && v < BENCH_VARIANTS_MAX && status == TPCOMM_OK; v++)
        status = begin_course(&m, work, &variants[v], &results[v]);
    status = bench_agree(lane->comm, status);
    if (status == TPCOMM_OK) status = run_courses(&m);
    lane->measurements++;
    if (how->graph) {
        tpcomm_status_t settled = status == TPCOMM_OK ? bench_lane_settle(lane) : TPCOMM_OK;
        for (size_t v = 0; v < m.count; v++) bench_graph_free(m.course[v].graph);
        if (status == TPCOMM_OK) status = settled == TPCOMM_OK ? tpcomm_host_barrier(lane->comm, 0) : settled;
    }
    return status;
}

void bench_measured_free(bench_measured_t *results, size_t count) {
    for (size_t i = 0; i < count; i++) {
        free(results[i].us);
        results[i].us = NULL;
    }
}
