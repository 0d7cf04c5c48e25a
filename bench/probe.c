/* SPDX-License-Identifier: Apache-2.0 */
#include "probe.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "lane.h"
#include "stats_math.h"

enum { REPEATS = 5, REPLAYS = 10, AHEAD = 3, BATCHES_MAX = 2000 };
/* Marks: a ring for the batches, and four of their own. */
enum { RING = 8, SIDE_FROM = 60, SIDE_TO, MAIN_FROM, MAIN_TO };
/* Products of one measurement last about so long. */
static const double gemm_us = 3000;

struct bench_prober {
    bench_lane_t *lane;
    const bench_measuring_t *how;
    bench_probing_t what;
    bench_gemm_t *gemm;
    char gemm_text[96];
    uint32_t gemm_times;
    double gemm_alone_us;
    uint64_t *stamps; /* on the GPU: two a call */
    int64_t add_ns;   /* to a stamp, for the host's clock */
    double error_ns;
};

/** The variant under way: its calls, and where it has one its graph. */
typedef struct {
    bench_prober_t *prober;
    bench_act_t act;
    bench_graph_t *graph;
    bool stamped;
} run_t;

/* ---------------------------------------------------------------- batches */

static tpcomm_status_t enqueue(run_t *run, uint64_t calls) {
    bench_gpu_t *gpu = run->prober->lane->device->gpu;
    tpcomm_status_t status = TPCOMM_OK;
    for (uint64_t i = 0; i < calls && status == TPCOMM_OK; i++) {
        if (run->stamped) status = bench_gpu_stamp(gpu, run->prober->stamps + 2 * i);
        if (status == TPCOMM_OK) status = bench_act_call(&run->act, i);
        if (status == TPCOMM_OK && run->stamped) status = bench_gpu_stamp(gpu, run->prober->stamps + 2 * i + 1);
    }
    return status;
}

/** A graph of so many calls. Nobody's kernel waits meanwhile: before and after, all ranks meet. */
static tpcomm_status_t capture(run_t *run, uint64_t calls, bench_graph_t **graph_p) {
    bench_lane_t *lane = run->prober->lane;
    bench_gpu_t *gpu = lane->device->gpu;
    tpcomm_status_t status = bench_lane_settle(lane);
    if (status == TPCOMM_OK) status = bench_gpu_capture_begin(gpu);
    if (status == TPCOMM_OK) {
        status = enqueue(run, calls);
        char text[TPC_ERROR_BYTES];
        snprintf(text, sizeof text, "%s", tpcomm_last_error());
        tpcomm_status_t ended = bench_gpu_capture_end(gpu, graph_p);
        status = status == TPCOMM_OK ? ended : tpc_error(status, "%s", text);
    }
    return bench_agree(lane->comm, status);
}

static tpcomm_status_t run_batch(run_t *run) {
    if (run->graph) return bench_gpu_launch(run->prober->lane->device->gpu, run->graph);
    return enqueue(run, run->prober->how->calls);
}

/** No graph is freed while a peer's kernel waits. */
static tpcomm_status_t drop(run_t *run, bench_graph_t *graph) {
    bench_lane_t *lane = run->prober->lane;
    tpcomm_status_t status = bench_lane_settle(lane);
    bench_graph_free(graph);
    return status == TPCOMM_OK ? tpcomm_host_barrier(lane->comm, 0) : status;
}

/* ---------------------------------------------------------------- kernels */

static tpcomm_status_t look_at_kernels(run_t *run, bench_probe_t *probe) {
    bench_graph_t *graph = NULL;
    tpcomm_status_t status = capture(run, 1, &graph);
    if (status != TPCOMM_OK) {
        bench_graph_free(graph);
        return status;
    }
    if (bench_graph_footprint(graph, &probe->footprint) != TPCOMM_OK)
        snprintf(probe->footprint_why, sizeof probe->footprint_why, "%s", tpcomm_last_error());
    return drop(run, graph);
}

/* ---------------------------------------------------------------- a matrix product beside */

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, size_t count) {
    qsort(values, count, sizeof *values, by_value);
    return count > 0 ? bench_percentile(values, count, 500) : NAN;
}

static tpcomm_status_t time_gemm_alone(bench_prober_t *prober) {
    bench_gpu_t *gpu = prober->lane->device->gpu;
    double us[REPEATS];
    tpcomm_status_t status = TPCOMM_OK;
    for (int i = 0; i < REPEATS && status == TPCOMM_OK; i++) {
        status = bench_lane_settle(prober->lane);
        if (status == TPCOMM_OK) status = bench_gpu_mark_side(gpu, SIDE_FROM);
        if (status == TPCOMM_OK) status = bench_gemm_run(prober->gemm, prober->gemm_times);
        if (status == TPCOMM_OK) status = bench_gpu_mark_side(gpu, SIDE_TO);
        if (status == TPCOMM_OK) status = bench_gpu_sync_side(gpu);
        if (status == TPCOMM_OK) status = bench_gpu_between(gpu, SIDE_FROM, SIDE_TO, &us[i]);
    }
    if (status == TPCOMM_OK) {
        prober->gemm_alone_us = median(us, REPEATS) / prober->gemm_times;
        status = bench_gather_max(prober->lane->comm, &prober->gemm_alone_us, 1);
    }
    return status;
}

/** What one run beside products showed, in us. */
typedef struct {
    double gemm, call; /* all products; one call while they ran */
    bool covered;
} beside_t;

/** Of calls that ended before the products, or of the first batch where none did. */
static double call_of(const double *ends, uint64_t batches, double gemm_end, uint32_t calls) {
    uint64_t within = 0;
    while (within < batches && ends[within] <= gemm_end) within++;
    if (within == 0) within = 1;
    return ends[within - 1] / (double)within / calls;
}

/** Products on one stream, batches of calls on the other, as many as were agreed. ends: room for them. */
static tpcomm_status_t run_beside(run_t *run, uint64_t batches, double *ends, beside_t *beside_p) {
    bench_prober_t *prober = run->prober;
    bench_gpu_t *gpu = prober->lane->device->gpu;
    double gemm_end = 0;
    tpcomm_status_t status = bench_lane_settle(prober->lane);
    if (status == TPCOMM_OK) status = bench_gpu_mark(gpu, MAIN_FROM);
    for (uint64_t b = 0; b < batches + AHEAD && status == TPCOMM_OK; b++) {
        if (b < batches) status = run_batch(run);
        if (status == TPCOMM_OK && b < batches) status = bench_gpu_mark(gpu, (uint32_t)(b % RING));
        if (status == TPCOMM_OK && b == 0) {
            status = bench_gpu_mark_side(gpu, SIDE_FROM);
            if (status == TPCOMM_OK) status = bench_gemm_run(prober->gemm, prober->gemm_times);
            if (status == TPCOMM_OK) status = bench_gpu_mark_side(gpu, SIDE_TO);
        }
        if (b < AHEAD || status != TPCOMM_OK) continue;
        uint32_t mark = (uint32_t)((b - AHEAD) % RING);
        status = bench_gpu_wait(gpu, mark);
        if (status == TPCOMM_OK) status = bench_gpu_between(gpu, MAIN_FROM, mark, &ends[b - AHEAD]);
    }
    if (status == TPCOMM_OK) status = bench_gpu_sync_side(gpu);
    if (status == TPCOMM_OK) status = bench_gpu_between(gpu, SIDE_FROM, SIDE_TO, &beside_p->gemm);
    if (status == TPCOMM_OK) status = bench_gpu_between(gpu, MAIN_FROM, SIDE_TO, &gemm_end);
    if (status != TPCOMM_OK) return status;
    beside_p->call = call_of(ends, batches, gemm_end, prober->how->calls);
    beside_p->covered = ends[batches - 1] >= gemm_end;
    return TPCOMM_OK;
}

static tpcomm_status_t look_beside(run_t *run, double call_us, bench_probe_t *probe) {
    bench_prober_t *prober = run->prober;
    double us[REPEATS], calls_us[REPEATS], batch_us = call_us * prober->how->calls;
    double whole_us = prober->gemm_alone_us * prober->gemm_times, uncovered = 0;
    tpcomm_status_t status = bench_gather_max(prober->lane->comm, &batch_us, 1);
    uint64_t batches = batch_us > 0 ? (uint64_t)(2 * whole_us / batch_us) + 4 : 4;
    if (batches > BATCHES_MAX) batches = BATCHES_MAX;
    double *ends = calloc(batches, sizeof *ends);
    tpcomm_status_t have = ends ? TPCOMM_OK : tpc_error(TPCOMM_ERR_NO_MEMORY, "no memory for the times");
    if (status == TPCOMM_OK) status = bench_agree(prober->lane->comm, have);
    for (int i = 0; i < REPEATS && status == TPCOMM_OK; i++) {
        beside_t beside = {0, 0, false};
        status = run_beside(run, batches, ends, &beside);
        us[i] = beside.gemm;
        calls_us[i] = beside.call;
        if (!beside.covered) uncovered = 1;
    }
    free(ends);
    if (status != TPCOMM_OK) return status;
    double told[3] = {median(us, REPEATS) / prober->gemm_times, median(calls_us, REPEATS), uncovered};
    status = bench_gather_max(prober->lane->comm, told, 3);
    probe->gemm_alone_us = prober->gemm_alone_us;
    probe->gemm_beside_us = told[0];
    probe->call_beside_us = told[1];
    probe->gemm_covered = told[2] == 0;
    return status;
}

/* ---------------------------------------------------------------- arrivals */

/** All ranks' stamps of one batch, by the host's clock, in ns: [rank][2 * call + (0 before, 1 behind)]. */
static tpcomm_status_t gather_stamps(run_t *run, double *mine, double *all) {
    bench_prober_t *prober = run->prober;
    bench_lane_t *lane = prober->lane;
    uint64_t bytes = 2 * (uint64_t)prober->how->calls * sizeof(uint64_t);
    const void *data = NULL;
    tpcomm_status_t status = bench_device_get(lane->device, prober->stamps, bytes, &data);
    if (status != TPCOMM_OK) return status;
    for (uint64_t i = 0; i < bytes / sizeof(uint64_t); i++) {
        uint64_t stamp;
        memcpy(&stamp, (const char *)data + i * sizeof stamp, sizeof stamp);
        mine[i] = (double)((int64_t)stamp + prober->add_ns); /* since the host's start: exact in a double */
    }
    return tpcomm_host_all_gather(lane->comm, mine, all, bytes, 0);
}

typedef struct {
    double *skews, *spans;
    size_t count;
    double wait_ns[TPCOMM_MAX_RANKS], last[TPCOMM_MAX_RANKS];
} arrivals_t;

/** The first call is left out: ranks come to it as their launches do. */
static void add_arrivals(const double *all, uint32_t calls, int32_t ranks, arrivals_t *arrivals) {
    size_t stride = 2 * (size_t)calls;
    for (uint32_t call = 1; call < calls; call++) {
        double first = INFINITY, last = -INFINITY, end = -INFINITY;
        int32_t last_rank = 0;
        for (int32_t r = 0; r < ranks; r++) {
            double at = all[(size_t)r * stride + 2 * call], behind = all[(size_t)r * stride + 2 * call + 1];
            if (at < first) first = at;
            if (at > last) last = at, last_rank = r;
            if (behind > end) end = behind;
        }
        for (int32_t r = 0; r < ranks; r++) arrivals->wait_ns[r] += last - all[(size_t)r * stride + 2 * call];
        arrivals->last[last_rank]++;
        arrivals->skews[arrivals->count] = (last - first) / 1000;
        arrivals->spans[arrivals->count++] = (end - last) / 1000;
    }
}

static void tell_arrivals(const bench_prober_t *prober, arrivals_t *arrivals, bench_probe_t *probe) {
    double sum = 0, n = (double)arrivals->count;
    if (arrivals->count == 0) return;
    for (size_t i = 0; i < arrivals->count; i++) sum += arrivals->skews[i];
    probe->skew_us = sum / n;
    qsort(arrivals->skews, arrivals->count, sizeof *arrivals->skews, by_value);
    probe->skew_p95_us = bench_percentile(arrivals->skews, arrivals->count, 950);
    probe->from_last_us = median(arrivals->spans, arrivals->count);
    probe->clock_error_us = prober->error_ns / 1000;
    for (int32_t r = 0; r < prober->lane->ranks; r++) {
        probe->wait_us[r] = arrivals->wait_ns[r] / 1000 / n;
        probe->last_percent[r] = 100 * arrivals->last[r] / n;
    }
}

static tpcomm_status_t look_at_arrivals(run_t *run, bench_probe_t *probe) {
    bench_prober_t *prober = run->prober;
    bench_lane_t *lane = prober->lane;
    uint32_t calls = prober->how->calls;
    size_t words = 2 * (size_t)calls;
    bench_graph_t *plain = run->graph;
    arrivals_t arrivals = {.skews = calloc(REPLAYS * (size_t)calls, sizeof(double)),
                           .spans = calloc(REPLAYS * (size_t)calls, sizeof(double))};
    double *mine = calloc(words, sizeof *mine), *all = calloc(words * (size_t)lane->ranks, sizeof *all);
    tpcomm_status_t status = arrivals.skews && arrivals.spans && mine && all
                                 ? TPCOMM_OK
                                 : tpc_error(TPCOMM_ERR_NO_MEMORY, "no memory for the arrivals");
    status = bench_agree(lane->comm, status);
    run->graph = NULL;
    run->stamped = true;
    if (status == TPCOMM_OK && prober->how->graph) status = capture(run, calls, &run->graph);
    for (int replay = 0; replay <= REPLAYS && status == TPCOMM_OK; replay++) {
        status = bench_lane_settle(lane);
        if (status == TPCOMM_OK) status = run_batch(run);
        if (status == TPCOMM_OK) status = gather_stamps(run, mine, all);
        if (status == TPCOMM_OK && replay > 0) add_arrivals(all, calls, lane->ranks, &arrivals);
    }
    if (status == TPCOMM_OK) tell_arrivals(prober, &arrivals, probe);
    if (status == TPCOMM_OK && run->graph) status = drop(run, run->graph);
    run->graph = plain;
    run->stamped = false;
    free(arrivals.skews);
    free(arrivals.spans);
    free(mine);
    free(all);
    return status;
}

/** What this rank's kernels have noted so far, over all paths. */
typedef struct {
    uint64_t waits, wait_ns, last[TPCOMM_MAX_RANKS];
} noted_t;

static tpcomm_status_t read_noted(const bench_lane_t *lane, noted_t *noted_p) {
    tpcomm_stats_t stats = {.struct_size = sizeof stats};
    tpcomm_rank_info_t info = {.struct_size = sizeof info};
    tpcomm_status_t status = TPCOMM_OK;
    memset(noted_p, 0, sizeof *noted_p);
    for (int32_t i = 0; i < lane->stats_count && status == TPCOMM_OK; i++) {
        status = tpcomm_stats(lane->comm, i, &stats);
        noted_p->waits += stats.waits;
        noted_p->wait_ns += stats.wait_ns;
    }
    for (int32_t r = 0; r < lane->ranks && status == TPCOMM_OK; r++) {
        status = tpcomm_rank_info(lane->comm, r, &info);
        noted_p->last[r] = info.times_last;
    }
    return status;
}

static tpcomm_status_t tell_noted(const bench_lane_t *lane, const noted_t *before, const noted_t *after,
                                  bench_probe_t *probe) {
    enum { WIDTH = 2 + TPCOMM_MAX_RANKS };
    double mine[WIDTH] = {(double)(after->waits - before->waits), (double)(after->wait_ns - before->wait_ns)};
    double all[TPCOMM_MAX_RANKS * WIDTH], calls = 0, last[TPCOMM_MAX_RANKS] = {0};
    for (int32_t r = 0; r < lane->ranks; r++) mine[2 + r] = (double)(after->last[r] - before->last[r]);
    tpcomm_status_t status = tpcomm_host_all_gather(lane->comm, mine, all, sizeof mine, 0);
    if (status != TPCOMM_OK) return status;
    for (int32_t r = 0; r < lane->ranks; r++) {
        const double *its = all + (size_t)r * WIDTH;
        if (its[0] > 0) probe->noted_wait_us[r] = its[1] / 1000 / its[0];
        calls += its[0];
        for (int32_t k = 0; k < lane->ranks; k++) last[k] += its[2 + k];
    }
    for (int32_t r = 0; r < lane->ranks && calls > 0; r++) probe->noted_last_percent[r] = 100 * last[r] / calls;
    return TPCOMM_OK;
}

/** Batches as they are timed, with kernels that note their waits. */
static tpcomm_status_t look_at_noted(run_t *run, bench_probe_t *probe) {
    bench_prober_t *prober = run->prober;
    bench_lane_t *lane = prober->lane;
    noted_t before, after;
    tpcomm_status_t status = TPCOMM_OK;
    if (prober->how->graph) status = capture(run, prober->how->calls, &run->graph);
    if (status == TPCOMM_OK) status = bench_lane_settle(lane);
    if (status == TPCOMM_OK) status = run_batch(run); /* ranks come to the first batch as their launches do */
    if (status == TPCOMM_OK) status = bench_lane_settle(lane);
    if (status == TPCOMM_OK) status = read_noted(lane, &before);
    if (status == TPCOMM_OK) status = bench_agree(lane->comm, tpcomm_note_waits(lane->comm, TPCOMM_ON));
    for (int replay = 0; replay < REPLAYS && status == TPCOMM_OK; replay++) status = run_batch(run);
    if (status == TPCOMM_OK) status = bench_device_sync(lane->device);
    if (status == TPCOMM_OK) status = bench_agree(lane->comm, tpcomm_note_waits(lane->comm, TPCOMM_OFF));
    if (status == TPCOMM_OK) status = read_noted(lane, &after);
    if (status == TPCOMM_OK) status = tell_noted(lane, &before, &after, probe);
    if (status == TPCOMM_OK && run->graph) status = drop(run, run->graph);
    run->graph = NULL;
    return status;
}

/** Clocks: of one GPU there is one, whoever asks; of several, as the host sees them. */
static tpcomm_status_t compare_clocks(bench_prober_t *prober) {
    bench_lane_t *lane = prober->lane;
    tpcomm_rank_info_t a = {.struct_size = sizeof a}, b = {.struct_size = sizeof b};
    bool one_gpu = true;
    tpcomm_status_t status = tpcomm_rank_info(lane->comm, 0, &a);
    for (int32_t r = 1; r < lane->ranks && status == TPCOMM_OK; r++) {
        status = tpcomm_rank_info(lane->comm, r, &b);
        one_gpu = one_gpu && strcmp(a.bus_id, b.bus_id) == 0 && strcmp(a.host, b.host) == 0;
    }
    for (int32_t r = 0; r < lane->ranks && status == TPCOMM_OK; r++) { /* one at a time, if they share a GPU */
        if (r == lane->rank) status = bench_gpu_clock_offset(lane->device->gpu, &prober->add_ns, &prober->error_ns);
        status = bench_agree(lane->comm, status);
    }
    if (one_gpu) {
        if (status == TPCOMM_OK)
            status = tpcomm_host_broadcast(lane->comm, &prober->add_ns, sizeof prober->add_ns, 0, 0);
        prober->error_ns = 0;
    }
    if (status != TPCOMM_OK) return status;
    return bench_gather_max(lane->comm, &prober->error_ns, 1);
}

/* ---------------------------------------------------------------- the whole */

const char *bench_prober_gemm_text(const bench_prober_t *prober) {
    return prober ? prober->gemm_text : "";
}

static tpcomm_status_t prepare(bench_prober_t *prober) {
    bench_gpu_t *gpu = prober->lane->device->gpu;
    const char *text = "";
    void *memory = NULL;
    tpcomm_status_t status = bench_gpu_load_kernels(gpu);
    if (status == TPCOMM_OK && prober->what.footprint) {
        status = bench_gemm_new(gpu, 0, &prober->gemm, &text);
        snprintf(prober->gemm_text, sizeof prober->gemm_text, "%s", text);
    }
    if (status == TPCOMM_OK && prober->what.arrivals)
        status = bench_gpu_alloc(gpu, 2 * (uint64_t)prober->how->calls * sizeof *prober->stamps, &memory);
    prober->stamps = memory;
    return status;
}

tpcomm_status_t bench_prober_new(bench_lane_t *lane, const bench_measuring_t *how, const bench_probing_t *what,
                                 bench_prober_t **prober_p) {
    bench_prober_t *prober = calloc(1, sizeof *prober);
    tpcomm_status_t status = prober ? TPCOMM_OK : tpc_error(TPCOMM_ERR_NO_MEMORY, "no memory");
    if (prober) {
        *prober = (bench_prober_t){.lane = lane, .how = how, .what = *what, .gemm_times = 1};
        if (lane->device->gpu) status = prepare(prober);
    }
    status = bench_agree(lane->comm, status);
    if (status == TPCOMM_OK && prober->gemm) {
        status = time_gemm_alone(prober);
        double times = prober->gemm_alone_us > 0 ? ceil(gemm_us / prober->gemm_alone_us) : 1;
        prober->gemm_times = times > 50 ? 50 : (uint32_t)times;
        if (status == TPCOMM_OK) status = time_gemm_alone(prober);
    }
    if (status == TPCOMM_OK && prober->stamps) status = compare_clocks(prober);
    if (status != TPCOMM_OK) {
        bench_prober_free(prober);
        return status;
    }
    *prober_p = prober;
    return TPCOMM_OK;
}

void bench_prober_free(bench_prober_t *prober) {
    if (!prober) return;
    bench_gemm_free(prober->gemm);
    if (prober->stamps) bench_gpu_free(prober->lane->device->gpu, prober->stamps);
    free(prober);
}

static void nothing_known(bench_probe_t *probe) {
    memset(probe, 0, sizeof *probe);
    probe->gemm_alone_us = probe->gemm_beside_us = probe->call_beside_us = NAN;
    probe->skew_us = probe->skew_p95_us = probe->from_last_us = probe->clock_error_us = NAN;
    for (int32_t r = 0; r < TPCOMM_MAX_RANKS; r++) {
        probe->wait_us[r] = probe->last_percent[r] = NAN;
        probe->noted_wait_us[r] = probe->noted_last_percent[r] = NAN;
    }
}

tpcomm_status_t bench_probe(bench_prober_t *prober, const bench_work_t *work, const bench_variant_t *variant,
                            double call_us, bench_probe_t *probe_p) {
    bench_lane_t *lane = prober->lane;
    run_t run = {.prober = prober, .act = {.lane = lane, .work = work, .variant = *variant}};
    bench_probe_t probe;
    nothing_known(&probe);
    *probe_p = probe;
    if (!lane->device->gpu) {
        snprintf(probe_p->footprint_why, sizeof probe_p->footprint_why, "the cpu device has no kernels");
        return TPCOMM_OK;
    }
    run.act.layout = bench_lane_layout(lane, work);
    tpcomm_status_t status = TPCOMM_OK;
    bool exact = variant->doer != BENCH_TPCOMM || (lane->data[1] && lane->own.filled == lane->data[1]);
    if (tpc_coll_moves_data(work->coll)) status = bench_lane_data(lane, work, prober->how->seed, exact, &run.act.data);
    if (status == TPCOMM_OK) status = bench_agree(lane->comm, bench_act_fill(&run.act));
    if (status == TPCOMM_OK) status = bench_act_reset(&run.act);
    if (status == TPCOMM_OK && prober->what.footprint) status = look_at_kernels(&run, &probe);
    if (status == TPCOMM_OK && prober->gemm) {
        if (prober->how->graph) status = capture(&run, prober->how->calls, &run.graph);
        if (status == TPCOMM_OK) status = look_beside(&run, call_us, &probe);
        if (run.graph) {
            tpcomm_status_t dropped = drop(&run, run.graph);
            run.graph = NULL;
            if (status == TPCOMM_OK) status = dropped;
        }
    }
    if (status == TPCOMM_OK && prober->stamps) status = look_at_arrivals(&run, &probe);
    if (status == TPCOMM_OK && prober->stamps && variant->doer == BENCH_TPCOMM) status = look_at_noted(&run, &probe);
    if (status == TPCOMM_OK) *probe_p = probe;
    return status;
}
