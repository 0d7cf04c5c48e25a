/* SPDX-License-Identifier: Apache-2.0 */
/** The timed part of a replay. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench.h"
#include "measure.h"
#include "replay_run.h"

enum { PROGRESS_EVERY_NS = 200000000, LONG_ITERATION_NS = 1000000000, ASKED_TIMES = 16 };

/** What one iteration gives: its samples, then the sum over its calls, then from start to end; all ns. */
enum { SUM, WALL, EXTRA };

/* ---------------------------------------------------------------- counters */

tpcomm_status_t bench_run_counters(const bench_run_t *run, bench_counters_t *counters_p) {
    for (int32_t i = 0; i < run->stats_count; i++) {
        counters_p->stats[i] = (tpcomm_stats_t){.struct_size = sizeof counters_p->stats[i]};
        tpcomm_status_t status = tpcomm_stats(run->comm, i, &counters_p->stats[i]);
        if (status != TPCOMM_OK) return status;
    }
    for (int32_t rank = 0; rank < run->ranks; rank++) {
        tpcomm_rank_info_t info = {.struct_size = sizeof info};
        tpcomm_status_t status = tpcomm_rank_info(run->comm, rank, &info);
        if (status != TPCOMM_OK) return status;
        counters_p->last[rank] = info.times_last;
    }
    return TPCOMM_OK;
}

static void add_counters(bench_run_t *run, bench_size_t *size, const bench_counters_t *before,
                         const bench_counters_t *after) {
    for (int32_t i = 0; i < run->stats_count; i++) {
        const tpcomm_stats_t *a = &before->stats[i], *b = &after->stats[i];
        if (b->path >= 0 && b->path < TPC_PATH_END) size->path_calls[b->path] += b->calls - a->calls;
        size->wire_bytes += b->wire_bytes - a->wire_bytes;
        size->skew_ns += b->skew_ns - a->skew_ns;
    }
    for (int32_t rank = 0; rank < run->ranks; rank++)
        run->result->ranks[rank].last_calls += after->last[rank] - before->last[rank];
}

/* ---------------------------------------------------------------- start */

/** Meet, learn who came last and whether rank 0 wants to stop, then leave together. */
static tpcomm_status_t start_together(bench_run_t *run, bench_iteration_t *iteration, bool *stop_p) {
    const bench_fault_t *fault = &run->replay->fault;
    tpcomm_status_t status = bench_run_sync(run);
    if (status != TPCOMM_OK) return status;
    if (fault->late && fault->late_rank == (uint64_t)run->rank) bench_fault_sleep(fault->late_ms);
    uint64_t now = tpc_clock_ns(), both[3] = {now, ~now, run->rank == 0 && *stop_p};
    status = bench_run_reduce(run, both, 3, TPCOMM_MAX);
    if (status != TPCOMM_OK) return status;
    if (run->result->manifest.same_host) {
        iteration->start_skew_ns = both[0] - ~both[1];
        if (both[0] == now) run->result->ranks[run->rank].last_starts++;
    }
    *stop_p = both[2] != 0;
    return tpcomm_host_barrier(run->comm, 0);
}

/* ---------------------------------------------------------------- the calls, on the cpu device */

/** Stands for the compute between two calls. */
static void spin_until(uint64_t at_ns) {
    while (tpc_clock_ns() < at_ns) {
    }
}

/**
 * In the midst of a long iteration, ask rank 0 whether to give it up.
 */
static tpcomm_status_t ask_whether_over(bench_run_t *run, bool *stop_p) {
    uint64_t over = run->rank == 0 && bench_run_is_over_budget(run, 0);
    tpcomm_status_t status = bench_run_reduce(run, &over, 1, TPCOMM_MAX);
    *stop_p = status == TPCOMM_OK && over != 0;
    return status;
}

static tpcomm_status_t run_calls_cpu(bench_run_t *run, const bench_size_t *size, uint64_t number, tpcomm_path_t path,
                                     uint64_t *times, bool *stop_p) {
    const bench_replay_t *replay = run->replay;
    uint64_t calls = replay->calls, gap_ns = (uint64_t)(replay->gap_us * 1000), sum = 0;
    bool asks = replay->iterations == 0 && bench_run_expected_ns(run, size->tokens) > LONG_ITERATION_NS;
    uint64_t start_ns = tpc_clock_ns(), stride = calls / ASKED_TIMES + 1;
    for (uint64_t i = 0; i < calls; i++) {
        uint64_t call_ns = tpc_clock_ns();
        tpcomm_status_t status = bench_run_call_number(run, size->tokens, i, number, path);
        times[i] = tpc_clock_ns() - call_ns;
        if (status != TPCOMM_OK) return status;
        sum += times[i];
        if (gap_ns) spin_until(tpc_clock_ns() + gap_ns);
        if (!asks || i % stride != stride - 1) continue;
        status = ask_whether_over(run, stop_p);
        if (status != TPCOMM_OK || *stop_p) return status;
    }
    times[calls + SUM] = sum;
    times[calls + WALL] = tpc_clock_ns() - start_ns;
    return TPCOMM_OK;
}

/* ---------------------------------------------------------------- the calls, on a GPU */

/** All calls of the iteration between two events; the sample is their mean. */
static tpcomm_status_t run_calls_gpu(bench_run_t *run, const bench_size_t *size, uint64_t number, tpcomm_path_t path,
                                     const bench_graph_t *graph, uint64_t *times) {
    bench_gpu_t *gpu = run->device->gpu;
    uint64_t calls = run->replay->calls, start_ns = tpc_clock_ns();
    double us = 0;
    tpcomm_status_t status = bench_gpu_mark(gpu, 0);
    if (status == TPCOMM_OK && graph) status = bench_gpu_launch(gpu, graph);
    for (uint64_t i = 0; i < calls && status == TPCOMM_OK && !graph; i++)
        status = bench_run_call_number(run, size->tokens, i, number, path);
    if (status == TPCOMM_OK) status = bench_gpu_mark(gpu, 1);
    if (status == TPCOMM_OK) status = bench_run_sync(run);
    if (status == TPCOMM_OK) status = bench_gpu_between(gpu, 0, 1, &us);
    times[0] = (uint64_t)(us * 1000 / (double)calls + 0.5);
    times[1 + SUM] = (uint64_t)(us * 1000 + 0.5);
    times[1 + WALL] = tpc_clock_ns() - start_ns;
    return status;
}

static tpcomm_status_t run_calls(bench_run_t *run, const bench_iteration_t *iteration, uint64_t number, bool beside,
                                 uint64_t *times, bool *stop_p) {
    const bench_size_t *size = &run->result->sizes[iteration->size];
    tpcomm_path_t path = beside ? run->result->beside : run->replay->path;
    if (!run->device->gpu) return run_calls_cpu(run, size, number, path, times, stop_p);
    const bench_captured_t *captured = run->captured ? &run->captured[iteration->size] : NULL;
    const bench_graph_t *graph = captured ? beside ? captured->beside : captured->graph : NULL;
    return run_calls_gpu(run, size, number, path, graph, times);
}

/* ---------------------------------------------------------------- one iteration */

static tpcomm_status_t plant_wrong(bench_run_t *run, const bench_size_t *size, uint64_t number) {
    const bench_fault_t *fault = &run->replay->fault;
    uint64_t elements = bench_replay_elements(run->replay, size->tokens);
    if (!fault->wrong || fault->wrong_iteration != number || fault->wrong_call >= run->replay->calls ||
        run->rank != run->ranks - 1 || fault->wrong_element >= elements)
        return TPCOMM_OK;
    size_t bytes = tpcomm_dtype_size(run->replay->dtype);
    uint32_t pair = bench_rotation_out(bench_rotation_pairs(size->bytes), fault->wrong_call);
    unsigned char *out = (unsigned char *)run->buffers.out[pair] + fault->wrong_element * bytes;
    return bench_device_fill(run->device, out, 0x55, bytes);
}

static tpcomm_status_t run_lump(bench_run_t *run, const bench_size_t *size, bench_iteration_t *iteration,
                                uint64_t number) {
    uint64_t elements = bench_replay_lump_elements(run->replay, size->tokens), ns = 0, wrong = 0;
    char where[64];
    double us = 0;
    tpcomm_status_t status = bench_device_fill(run->device, run->buffers.lump_out, BENCH_POISON,
                                               bench_replay_lump_bytes(run->replay, size->tokens));
    if (status == TPCOMM_OK) status = bench_run_settle(run);
    if (status != TPCOMM_OK) return status;
    uint64_t start_ns = tpc_clock_ns();
    if (run->device->gpu) status = bench_gpu_mark(run->device->gpu, 0);
    if (status == TPCOMM_OK)
        status =
            bench_run_call(run, run->buffers.lump_in, run->buffers.lump_out, NULL, elements, number, run->replay->path);
    ns = tpc_clock_ns() - start_ns;
    if (run->device->gpu) {
        if (status == TPCOMM_OK) status = bench_gpu_mark(run->device->gpu, 1);
        if (status == TPCOMM_OK) status = bench_run_sync(run);
        if (status == TPCOMM_OK) status = bench_gpu_between(run->device->gpu, 0, 1, &us);
        ns = (uint64_t)(us * 1000 + 0.5);
    }
    if (status == TPCOMM_OK) status = bench_run_reduce(run, &ns, 1, TPCOMM_MAX);
    if (status != TPCOMM_OK) return status;
    iteration->lump_ns = ns;
    snprintf(where, sizeof where, "iteration %" PRIu64 ", lump of T %u", number, size->tokens);
    return bench_run_check_one(run, run->buffers.lump_out, 1, elements, where, &wrong);
}

/** The same calls by the other path, with a start and a check of their own. */
static tpcomm_status_t run_beside(bench_run_t *run, bench_iteration_t *iteration, uint64_t number, uint64_t *times) {
    const bench_size_t *size = &run->result->sizes[iteration->size];
    bool stop = false;
    char where[64];
    uint64_t wrong = 0;
    tpcomm_status_t status = bench_run_poison(run, size->tokens, run->replay->calls);
    if (status == TPCOMM_OK) status = bench_run_settle(run);
    if (status == TPCOMM_OK) status = run_calls(run, iteration, number, true, times, &stop);
    if (status == TPCOMM_OK && !stop) status = bench_run_reduce(run, &times[run->result->samples + SUM], 1, TPCOMM_MAX);
    if (status != TPCOMM_OK || stop) return status;
    iteration->beside_ns = times[run->result->samples + SUM];
    snprintf(where, sizeof where, "iteration %" PRIu64 " by %s", number, tpcomm_path_name(run->result->beside));
    return bench_run_check(run, size->tokens, run->replay->calls,
                           bench_run_is_exact(run, size->tokens, run->result->beside), where, &wrong);
}

/** Times, counters and check of an iteration that was run to its end. */
static tpcomm_status_t keep_iteration(bench_run_t *run, uint64_t number, uint64_t *times,
                                      const bench_counters_t *before) {
    const bench_replay_t *replay = run->replay;
    bench_result_t *result = run->result;
    bench_iteration_t *iteration = &result->iterations[number];
    bench_size_t *size = &result->sizes[iteration->size];
    bench_counters_t after;
    char where[48];
    uint64_t samples = result->samples, checked = run->checked;
    tpcomm_status_t status = bench_run_counters(run, &after);
    if (status != TPCOMM_OK) return status;
    add_counters(run, size, before, &after);
    if (run->captured) { /* the library counted the graph's calls when it was captured */
        const bench_captured_t *captured = &run->captured[iteration->size];
        for (int path = 0; path < TPC_PATH_END; path++) size->path_calls[path] += captured->path_calls[path];
        size->wire_bytes += captured->wire_bytes;
    }
    if ((status = plant_wrong(run, size, number)) != TPCOMM_OK) return status;
    if ((status = bench_run_reduce(run, times, (size_t)samples + EXTRA, TPCOMM_MAX)) != TPCOMM_OK) return status;
    iteration->comm_ns = times[samples + SUM];
    iteration->wall_ns = times[samples + WALL];
    for (uint64_t i = 0; i < samples && result->call_ns; i++) result->call_ns[number * samples + i] = (double)times[i];
    if (run->device->gpu && result->call_ns) /* a mean has fractions */
        result->call_ns[number] = (double)iteration->comm_ns / (double)replay->calls;
    size->iterations++;
    size->calls += replay->calls;
    snprintf(where, sizeof where, "iteration %" PRIu64, number);
    status = bench_run_check(run, size->tokens, replay->calls, bench_run_is_exact(run, size->tokens, replay->path),
                             where, &size->wrong);
    size->checked += run->checked - checked;
    return status;
}

static tpcomm_status_t run_iteration(bench_run_t *run, uint64_t number, uint64_t *times, bool *stop_p) {
    const bench_replay_t *replay = run->replay;
    bench_result_t *result = run->result;
    bench_iteration_t *iteration = &result->iterations[number];
    bench_size_t *size = &result->sizes[iteration->size];
    bench_rank_t kept_ranks[TPCOMM_MAX_RANKS];
    bench_counters_t before;
    if (replay->fault.die && replay->fault.die_rank == (uint64_t)run->rank && replay->fault.die_iteration == number)
        _exit(9);

    tpcomm_status_t status = bench_run_poison(run, size->tokens, replay->calls);
    memcpy(kept_ranks, result->ranks, sizeof kept_ranks);
    if (status == TPCOMM_OK) status = start_together(run, iteration, stop_p);
    if (status == TPCOMM_OK && !*stop_p) status = bench_run_counters(run, &before);
    if (status == TPCOMM_OK && !*stop_p) status = run_calls(run, iteration, number, false, times, stop_p);
    if (status == TPCOMM_OK && *stop_p) memcpy(result->ranks, kept_ranks, sizeof kept_ranks); /* it counts nowhere */
    if (status == TPCOMM_OK && !*stop_p) status = keep_iteration(run, number, times, &before);
    if (status != TPCOMM_OK || *stop_p) return status;
    if (result->beside) status = run_beside(run, iteration, number, times);
    if (status == TPCOMM_OK && replay->lump && bench_replay_lump_bytes(replay, size->tokens) > 0)
        status = run_lump(run, size, iteration, number);
    return status;
}

/* ---------------------------------------------------------------- all of them */

static void show_progress(const bench_run_t *run, uint64_t *last_ns) {
    const bench_result_t *result = run->result;
    uint64_t now = tpc_clock_ns();
    if (run->rank != 0 || !isatty(STDERR_FILENO)) return;
    if (result->done == result->planned || result->stopped) {
        fputs("\r\033[K", stderr);
        return;
    }
    if (now - *last_ns < PROGRESS_EVERY_NS) return;
    *last_ns = now;
    fprintf(stderr, "\r\033[Kreplay: iteration %" PRIu64 " of %" PRIu64 ", %.0f s", result->done, result->planned,
            (double)(now - run->start_ns) / 1e9);
}

/** What the next iteration is likely to take, the way it has gone so far. */
static double next_ns(const bench_run_t *run, uint64_t number) {
    double expected = bench_run_expected_ns(run, run->result->draws[number].tokens);
    double elapsed = (double)(tpc_clock_ns() - run->start_ns);
    return run->expected_ns > 0 && elapsed > run->expected_ns ? expected * elapsed / run->expected_ns : expected;
}

tpcomm_status_t bench_run_iterations(bench_run_t *run) {
    bench_result_t *result = run->result;
    uint64_t progress_ns = 0;
    tpcomm_status_t status = TPCOMM_OK;
    uint64_t *times = malloc((size_t)(run->result->samples + EXTRA) * sizeof *times);
    if (!times) return tpc_error(TPCOMM_ERR_NO_MEMORY, "no memory for the times of one iteration");
    run->start_ns = tpc_clock_ns();
    while (result->done < result->planned && !result->stopped) {
        bool stop = bench_run_is_over_budget(run, next_ns(run, result->done));
        status = run_iteration(run, result->done, times, &stop);
        if (status != TPCOMM_OK) break;
        run->expected_ns += bench_run_expected_ns(run, result->draws[result->done].tokens);
        result->stopped = stop;
        if (!stop) result->done++;
        show_progress(run, &progress_ns);
    }
    free(times);
    return status;
}
