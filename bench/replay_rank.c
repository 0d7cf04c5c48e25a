/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "bench.h"
#include "random.h"
#include "replay_run.h"

enum { PATHS_MAX = TPC_PATH_END, WRONG_SHOWN_MAX = 3, PROGRESS_EVERY_NS = 200000000 };
enum { LONG_ITERATION_NS = 1000000000, ASKED_TIMES = 16 };

/** Where the library's counters stood at one moment. */
typedef struct {
    tpcomm_stats_t stats[PATHS_MAX];
    uint64_t last[TPCOMM_MAX_RANKS];
} counters_t;

void bench_result_free(bench_result_t *result) {
    free(result->draws);
    free(result->iterations);
    free(result->call_ns);
    free(result->sizes);
    memset(result, 0, sizeof *result);
}

/* ---------------------------------------------------------------- parts of a call */

tpcomm_status_t bench_run_reduce(bench_run_t *run, uint64_t *values, size_t count, tpcomm_op_t op) {
    return tpcomm_all_reduce(run->comm, values, values, count, TPCOMM_U64, op, NULL);
}

static tpcomm_call_t describe_call(const bench_replay_t *replay, uint64_t elements) {
    return (tpcomm_call_t){.struct_size = sizeof(tpcomm_call_t),
                           .coll = TPCOMM_ALL_REDUCE,
                           .dtype = replay->dtype,
                           .op = TPCOMM_SUM,
                           .path = replay->path,
                           .count = elements};
}

tpcomm_status_t bench_run_call(bench_run_t *run, const void *in, void *out, uint64_t elements, uint64_t tag,
                               uint64_t *ns_p) {
    const bench_fault_t *fault = &run->replay->fault;
    tpcomm_call_t call = describe_call(run->replay, elements);
    call.in = in;
    call.out = out;
    call.tag = tag;
    uint64_t start_ns = tpc_clock_ns();
    if (fault->slow && run->calls_begun == fault->slow_call && run->rank == run->ranks - 1)
        bench_fault_sleep(fault->slow_ms);
    run->calls_begun++;
    tpcomm_status_t status = tpcomm_call(run->comm, &call, NULL);
    *ns_p = tpc_clock_ns() - start_ns;
    return status;
}

void bench_run_poison(bench_run_t *run, uint32_t tokens, uint64_t calls) {
    uint64_t bytes = bench_replay_bytes(run->replay, tokens);
    uint32_t pairs = bench_rotation_pairs(bytes);
    for (uint32_t pair = 0; pair < pairs; pair++)
        if (bench_rotation_last(pairs, calls, pair) != UINT64_MAX) memset(run->buffers.out[pair], BENCH_POISON, bytes);
}

static void show_wrong(bench_run_t *run, const void *out, uint32_t buffer, uint64_t wrong, uint64_t first,
                       const char *where) {
    size_t size = tpcomm_dtype_size(run->replay->dtype);
    uint32_t got = 0;
    uint16_t half = 0;
    if (run->wrong_shown++ >= WRONG_SHOWN_MAX) return;
    if (size == 4)
        memcpy(&got, (const unsigned char *)out + first * 4, 4);
    else
        memcpy(&half, (const unsigned char *)out + first * 2, 2);
    fprintf(stderr,
            "tpcomm-bench replay: rank %d: %s: %" PRIu64 " wrong elements, the first is element %" PRIu64
            ": 0x%0*x, want 0x%0*x\n",
            run->rank, where, wrong, first, (int)(2 * size), size == 4 ? got : half, (int)(2 * size),
            (uint32_t)bench_data_expected(run->data, &(bench_expect_t){.buffer = buffer, .of_rank = -1}, first));
}

uint64_t bench_run_check_one(bench_run_t *run, const void *out, uint32_t buffer, uint64_t elements, const char *where) {
    bench_expect_t expect = {.buffer = buffer, .of_rank = -1};
    uint64_t first = 0, wrong = bench_data_check(run->data, &expect, out, elements, &first);
    if (wrong) show_wrong(run, out, buffer, wrong, first, where);
    run->checked += elements;
    run->wrong += wrong;
    return wrong;
}

uint64_t bench_run_check(bench_run_t *run, uint32_t tokens, uint64_t calls, const char *where) {
    uint32_t pairs = bench_rotation_pairs(bench_replay_bytes(run->replay, tokens));
    uint64_t wrong = 0, elements = bench_replay_elements(run->replay, tokens);
    for (uint32_t pair = 0; pair < pairs; pair++) {
        uint64_t call = bench_rotation_last(pairs, calls, pair);
        char place[96];
        if (call == UINT64_MAX) continue;
        snprintf(place, sizeof place, "%s, T %u, call %" PRIu64, where, tokens, call);
        wrong += bench_run_check_one(run, run->buffers.out[pair], bench_rotation_in(pairs, call), elements, place);
    }
    return wrong;
}

/* ---------------------------------------------------------------- before the timed part */

/**
 * Go on only if every rank can. A rank that failed keeps its own status and text, whatever the others do meanwhile; the
 * rest learn of it here, not in the midst of a call.
 */
static tpcomm_status_t agree(bench_run_t *run, tpcomm_status_t mine) {
    char text[512] = "";
    uint64_t failed = mine != TPCOMM_OK;
    if (mine != TPCOMM_OK) snprintf(text, sizeof text, "%s", tpcomm_last_error());
    tpcomm_status_t status = bench_run_reduce(run, &failed, 1, TPCOMM_MAX);
    if (mine != TPCOMM_OK) return tpc_error(mine, "%s", text);
    if (status == TPCOMM_OK && failed)
        return tpc_error(TPCOMM_ERR_PEER_FAILED, "another rank could not go on, and says why");
    return status;
}

static uint64_t mix(uint64_t hash, uint64_t value) {
    return bench_random_mix(hash * UINT64_C(0x9e3779b97f4a7c15) + value + 1);
}

/** All that decides what the ranks will run, in 64 bits. */
static uint64_t settings_hash(const bench_replay_t *replay) {
    const uint64_t parts[] = {
        replay->histogram.hash,  replay->model.hidden, replay->calls, (uint64_t)replay->dtype, (uint64_t)replay->path,
        (uint64_t)replay->phase, replay->iterations,   replay->seed,  replay->warmup_calls,    replay->lump,
        replay->padding.count};
    uint64_t hash = 0;
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) hash = mix(hash, parts[i]);
    for (size_t i = 0; i < replay->padding.count; i++) hash = mix(hash, replay->padding.sizes[i]);
    return hash;
}

static tpcomm_status_t agree_on_settings(bench_run_t *run) {
    uint64_t mine = settings_hash(run->replay), both[2] = {mine, ~mine};
    tpcomm_status_t status = bench_run_reduce(run, both, 2, TPCOMM_MAX);
    if (status != TPCOMM_OK || both[0] == ~both[1]) return status;
    return tpc_error(TPCOMM_ERR_CONFIG_MISMATCH,
                     "the ranks were started with different options, or read different histograms");
}

static tpcomm_status_t read_facts(bench_run_t *run) {
    bench_result_t *result = run->result;
    uint64_t cpus[TPCOMM_MAX_RANKS] = {0};
    cpu_set_t set;
    result->info = (tpcomm_info_t){.struct_size = sizeof result->info};
    tpcomm_status_t status = tpcomm_comm_info(run->comm, &result->info);
    if (status != TPCOMM_OK) return status;
    run->rank = result->info.rank;
    run->ranks = result->info.size;
    if (result->info.device_kind != TPCOMM_DEVICE_CPU)
        return tpc_error(TPCOMM_ERR_UNSUPPORTED,
                         "this tpcomm-bench replays on the cpu device alone; give --device cpu");
    result->same_host = true;
    for (int32_t rank = 0; rank < run->ranks; rank++) {
        tpcomm_rank_info_t *info = &result->ranks[rank].info;
        *info = (tpcomm_rank_info_t){.struct_size = sizeof *info};
        if ((status = tpcomm_rank_info(run->comm, rank, info)) != TPCOMM_OK) return status;
        if (strcmp(info->host, result->ranks[0].info.host) != 0) result->same_host = false;
    }
    for (tpcomm_stats_t stats = {.struct_size = sizeof stats}; run->stats_count < PATHS_MAX; run->stats_count++)
        if (tpcomm_stats(run->comm, run->stats_count, &stats) != TPCOMM_OK) break; /* past the last */
    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof set, &set) == 0) cpus[run->rank] = (uint64_t)CPU_COUNT(&set);
    status = bench_run_reduce(run, cpus, (size_t)run->ranks, TPCOMM_SUM);
    for (int32_t rank = 0; rank < run->ranks; rank++) result->ranks[rank].cpus = cpus[rank];
    return status;
}

/** A run that has to end in time begins with what is sure to get done. */
static void put_short_one_first(bench_result_t *result, uint32_t middle) {
    for (uint64_t i = 0; i < result->planned; i++) {
        bench_draw_t first = result->draws[i];
        if (first.tokens > middle) continue;
        result->draws[i] = result->draws[0];
        result->draws[0] = first;
        return;
    }
}

static int compare_tokens(const void *a, const void *b) {
    const bench_size_t *x = a, *y = b;
    return (x->tokens > y->tokens) - (x->tokens < y->tokens);
}

static tpcomm_status_t explain(const bench_run_t *run, uint32_t tokens, tpcomm_decision_t *decision_p) {
    tpcomm_call_t call = describe_call(run->replay, bench_replay_elements(run->replay, tokens));
    *decision_p = (tpcomm_decision_t){.struct_size = sizeof *decision_p};
    return tpcomm_explain(run->comm, &call, decision_p);
}

/** What a rank needs before its first call: data, buffers, and a path for the sizes. */
static tpcomm_status_t make_ready(bench_run_t *run, const uint32_t range[BENCH_WARMUP_SIZES]) {
    const bench_replay_t *replay = run->replay;
    tpcomm_status_t status = bench_data_new(
        &(bench_data_spec_t){
            .dtype = replay->dtype, .op = TPCOMM_SUM, .rank = run->rank, .ranks = run->ranks, .seed = replay->seed},
        &run->data);
    for (size_t i = 0; i < BENCH_WARMUP_SIZES && status == TPCOMM_OK; i++) {
        tpcomm_decision_t decision;
        status = explain(run, range[i], &decision);
    }
    return status == TPCOMM_OK ? bench_buffers_new(replay, run->data, range[2], &run->buffers) : status;
}

/** The distinct sizes of the plan, ascending, with what the library says of each; and of each iteration which it is. */
static tpcomm_status_t plan_sizes(bench_run_t *run) {
    const bench_replay_t *replay = run->replay;
    bench_result_t *result = run->result;
    result->sizes = calloc((size_t)result->planned, sizeof *result->sizes);
    result->iterations = calloc((size_t)result->planned, sizeof *result->iterations);
    /* Every rank's samples come together on rank 0. */
    if (run->rank == 0) result->call_ns = malloc((size_t)(result->planned * replay->calls) * sizeof *result->call_ns);
    if (!result->sizes || !result->iterations || (run->rank == 0 && !result->call_ns))
        return tpc_error(TPCOMM_ERR_NO_MEMORY, "no memory for the times of %" PRIu64 " iterations of %" PRIu64 " calls",
                         result->planned, replay->calls);
    for (uint64_t i = 0; i < result->planned; i++) result->sizes[i].tokens = result->draws[i].tokens;
    qsort(result->sizes, (size_t)result->planned, sizeof *result->sizes, compare_tokens);
    for (uint64_t i = 0; i < result->planned; i++)
        if (i == 0 || result->sizes[i].tokens != result->sizes[result->size_count - 1].tokens)
            result->sizes[result->size_count++] = result->sizes[i];
    for (uint64_t i = 0; i < result->planned; i++) {
        bench_size_t key = {.tokens = result->draws[i].tokens};
        const bench_size_t *size = bsearch(&key, result->sizes, result->size_count, sizeof key, compare_tokens);
        result->iterations[i].draw = result->draws[i];
        result->iterations[i].size = (size_t)(size - result->sizes);
    }
    for (size_t i = 0; i < result->size_count; i++) {
        bench_size_t *size = &result->sizes[i];
        size->bytes = bench_replay_bytes(replay, size->tokens);
        tpcomm_status_t status = explain(run, size->tokens, &size->decision);
        if (status != TPCOMM_OK) return status;
    }
    return TPCOMM_OK;
}

/* ---------------------------------------------------------------- the timed part */

static tpcomm_status_t read_counters(const bench_run_t *run, counters_t *counters_p) {
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

static void add_counters(bench_run_t *run, bench_size_t *size, const counters_t *before, const counters_t *after) {
    for (int32_t i = 0; i < run->stats_count; i++) {
        const tpcomm_stats_t *a = &before->stats[i], *b = &after->stats[i];
        if (b->path >= 0 && b->path < TPC_PATH_END) size->path_calls[b->path] += b->calls - a->calls;
        size->wire_bytes += b->wire_bytes - a->wire_bytes;
        size->skew_ns += b->skew_ns - a->skew_ns;
    }
    for (int32_t rank = 0; rank < run->ranks; rank++)
        run->result->ranks[rank].last_calls += after->last[rank] - before->last[rank];
}

/** Meet, learn who came last and whether rank 0 wants to stop, then leave together. */
static tpcomm_status_t start_together(bench_run_t *run, bench_iteration_t *iteration, bool *stop_p) {
    const bench_fault_t *fault = &run->replay->fault;
    if (fault->late && fault->late_rank == (uint64_t)run->rank) bench_fault_sleep(fault->late_ms);
    uint64_t now = tpc_clock_ns(), both[3] = {now, ~now, run->rank == 0 && *stop_p};
    tpcomm_status_t status = bench_run_reduce(run, both, 3, TPCOMM_MAX);
    if (status != TPCOMM_OK) return status;
    if (run->result->same_host) {
        iteration->start_skew_ns = both[0] - ~both[1];
        if (both[0] == now) run->result->ranks[run->rank].last_starts++;
    }
    *stop_p = both[2] != 0;
    return tpcomm_barrier(run->comm, NULL);
}

/** Stands for the compute between two calls. */
static void spin_until(uint64_t at_ns) {
    while (tpc_clock_ns() < at_ns) {
    }
}

/**
 * In the midst of a long iteration, ask rank 0 whether to give it up. What this call itself moves the counters by is
 * taken out.
 */
static tpcomm_status_t ask_whether_over(bench_run_t *run, bench_size_t *size, counters_t *before, bool *stop_p) {
    counters_t now;
    tpcomm_status_t status = read_counters(run, &now);
    if (status != TPCOMM_OK) return status;
    add_counters(run, size, before, &now);
    uint64_t over = run->rank == 0 && bench_run_is_over_budget(run, 0);
    if ((status = bench_run_reduce(run, &over, 1, TPCOMM_MAX)) != TPCOMM_OK) return status;
    *stop_p = over != 0;
    return read_counters(run, before);
}

/** The calls themselves: times[0 .. calls - 1], then their sum, then from start to end. */
static tpcomm_status_t run_calls(bench_run_t *run, bench_size_t *size, uint64_t number, uint64_t *times,
                                 counters_t *before, bool *stop_p) {
    const bench_replay_t *replay = run->replay;
    const bench_fault_t *fault = &replay->fault;
    uint64_t calls = replay->calls, elements = bench_replay_elements(replay, size->tokens);
    uint64_t gap_ns = (uint64_t)(replay->gap_us * 1000), sum = 0;
    uint32_t pairs = bench_rotation_pairs(size->bytes);
    bool asks = replay->iterations == 0 && bench_run_expected_ns(run, size->tokens) > LONG_ITERATION_NS;
    uint64_t start_ns = tpc_clock_ns(), stride = calls / ASKED_TIMES + 1;
    for (uint64_t i = 0; i < calls; i++) {
        void *out = run->buffers.out[bench_rotation_out(pairs, i)];
        tpcomm_status_t status =
            bench_run_call(run, run->buffers.in[bench_rotation_in(pairs, i)], out, elements, number, &times[i]);
        if (status != TPCOMM_OK) return status;
        sum += times[i];
        if (gap_ns) spin_until(tpc_clock_ns() + gap_ns);
        if (fault->wrong && fault->wrong_iteration == number && fault->wrong_call == i && run->rank == run->ranks - 1 &&
            fault->wrong_element < elements)
            ((unsigned char *)out)[fault->wrong_element * tpcomm_dtype_size(replay->dtype)] ^= 0x55;
        if (!asks || i % stride != stride - 1) continue;
        status = ask_whether_over(run, size, before, stop_p);
        if (status != TPCOMM_OK || *stop_p) return status;
    }
    times[calls] = sum;
    times[calls + 1] = tpc_clock_ns() - start_ns;
    return TPCOMM_OK;
}

static tpcomm_status_t run_lump(bench_run_t *run, bench_size_t *size, bench_iteration_t *iteration, uint64_t number) {
    uint64_t elements = bench_replay_lump_elements(run->replay, size->tokens), ns;
    char where[64];
    memset(run->buffers.lump_out, BENCH_POISON, bench_replay_lump_bytes(run->replay, size->tokens));
    tpcomm_status_t status = tpcomm_barrier(run->comm, NULL);
    if (status != TPCOMM_OK) return status;
    status = bench_run_call(run, run->buffers.lump_in, run->buffers.lump_out, elements, number, &ns);
    if (status != TPCOMM_OK) return status;
    if ((status = bench_run_reduce(run, &ns, 1, TPCOMM_MAX)) != TPCOMM_OK) return status;
    iteration->lump_ns = ns;
    snprintf(where, sizeof where, "iteration %" PRIu64 ", lump of T %u", number, size->tokens);
    bench_run_check_one(run, run->buffers.lump_out, 1, elements, where);
    return TPCOMM_OK;
}

static tpcomm_status_t run_iteration(bench_run_t *run, uint64_t number, uint64_t *times, bool *stop_p) {
    const bench_replay_t *replay = run->replay;
    bench_result_t *result = run->result;
    bench_iteration_t *iteration = &result->iterations[number];
    bench_size_t *size = &result->sizes[iteration->size], kept_size = *size;
    bench_rank_t kept_ranks[TPCOMM_MAX_RANKS];
    counters_t before, after;
    char where[48];
    if (replay->fault.die && replay->fault.die_rank == (uint64_t)run->rank && replay->fault.die_iteration == number)
        _exit(9);

    bench_run_poison(run, size->tokens, replay->calls);
    memcpy(kept_ranks, result->ranks, sizeof kept_ranks);
    tpcomm_status_t status = start_together(run, iteration, stop_p);
    if (status == TPCOMM_OK && !*stop_p) status = read_counters(run, &before);
    if (status == TPCOMM_OK && !*stop_p) status = run_calls(run, size, number, times, &before, stop_p);
    if (status == TPCOMM_OK && *stop_p) { /* given up: it counts nowhere */
        *size = kept_size;
        memcpy(result->ranks, kept_ranks, sizeof kept_ranks);
    }
    if (status != TPCOMM_OK || *stop_p) return status;
    if ((status = read_counters(run, &after)) != TPCOMM_OK) return status;
    add_counters(run, size, &before, &after);

    if ((status = bench_run_reduce(run, times, (size_t)replay->calls + 2, TPCOMM_MAX)) != TPCOMM_OK) return status;
    iteration->comm_ns = times[replay->calls];
    iteration->wall_ns = times[replay->calls + 1];
    if (result->call_ns) memcpy(result->call_ns + number * replay->calls, times, (size_t)replay->calls * sizeof *times);
    size->iterations++;
    size->calls += replay->calls;

    uint64_t checked = run->checked;
    snprintf(where, sizeof where, "iteration %" PRIu64, number);
    size->wrong += bench_run_check(run, size->tokens, replay->calls, where);
    size->checked += run->checked - checked;
    if (replay->lump && bench_replay_lump_bytes(replay, size->tokens) > 0)
        return run_lump(run, size, iteration, number);
    return TPCOMM_OK;
}

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

static tpcomm_status_t run_iterations(bench_run_t *run) {
    bench_result_t *result = run->result;
    uint64_t progress_ns = 0;
    tpcomm_status_t status = TPCOMM_OK;
    uint64_t *times = malloc((size_t)(run->replay->calls + 2) * sizeof *times);
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

/** Forget the sizes that a run which stopped early never came to. */
static void drop_unused_sizes(bench_result_t *result) {
    size_t kept = 0;
    for (size_t s = 0; s < result->size_count; s++) {
        if (result->sizes[s].calls == 0) continue;
        for (uint64_t i = 0; i < result->done; i++)
            if (result->iterations[i].size == s) result->iterations[i].size = kept;
        result->sizes[kept++] = result->sizes[s];
    }
    result->size_count = kept;
}

/** Add up what each rank counted for itself. */
static tpcomm_status_t gather_counts(bench_run_t *run) {
    enum { PER_SIZE = TPC_PATH_END + 3 };
    bench_result_t *result = run->result;
    size_t count = result->size_count * PER_SIZE + TPCOMM_MAX_RANKS + 2, at = 0;
    uint64_t *values = calloc(count, sizeof *values);
    if (!values) return tpc_error(TPCOMM_ERR_NO_MEMORY, "no memory to gather counts");
    for (int pass = 0; pass < 2; pass++, at = 0) {
#define EXCHANGE(field)                                                                                                \
    do {                                                                                                               \
        if (pass == 0)                                                                                                 \
            values[at++] = (field);                                                                                    \
        else                                                                                                           \
            (field) = values[at++];                                                                                    \
    } while (0)
        for (size_t i = 0; i < result->size_count; i++) {
            bench_size_t *size = &result->sizes[i];
            for (int path = 0; path < TPC_PATH_END; path++) EXCHANGE(size->path_calls[path]);
            EXCHANGE(size->wire_bytes);
            EXCHANGE(size->checked);
            EXCHANGE(size->wrong);
        }
        for (int32_t rank = 0; rank < TPCOMM_MAX_RANKS; rank++) EXCHANGE(result->ranks[rank].last_starts);
        EXCHANGE(run->checked);
        EXCHANGE(run->wrong);
#undef EXCHANGE
        tpcomm_status_t status = pass == 0 ? bench_run_reduce(run, values, count, TPCOMM_SUM) : TPCOMM_OK;
        if (status == TPCOMM_OK) continue;
        free(values);
        return status;
    }
    result->checked = run->checked;
    result->wrong = run->wrong;
    free(values);
    return TPCOMM_OK;
}

static int64_t wall_clock_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

tpcomm_status_t bench_replay_rank(const bench_replay_t *replay, tpcomm_t *comm, bench_result_t *result) {
    bench_run_t run;
    uint32_t range[BENCH_WARMUP_SIZES];
    tpcomm_status_t status;
    memset(&run, 0, sizeof run);
    run.replay = replay;
    run.comm = comm;
    run.result = result;
    result->start_us = wall_clock_us();
    if ((status = read_facts(&run)) != TPCOMM_OK) return status;
    if ((status = agree_on_settings(&run)) != TPCOMM_OK) return status;

    bench_plan_range(&replay->histogram, replay->phase, &replay->padding, range);
    if ((status = agree(&run, make_ready(&run, range))) != TPCOMM_OK) goto out;
    if ((status = bench_run_warmup(&run, range)) != TPCOMM_OK) goto out;
    if ((status = bench_run_plan_length(&run, &result->planned)) != TPCOMM_OK) goto out;
    status = bench_plan_draw(&replay->histogram, replay->phase, &replay->padding, replay->seed, result->planned,
                             &result->draws);
    if (status == TPCOMM_OK && replay->iterations == 0) put_short_one_first(result, range[1]);
    if (status == TPCOMM_OK) status = plan_sizes(&run);
    if ((status = agree(&run, status)) != TPCOMM_OK) goto out;
    if ((status = run_iterations(&run)) != TPCOMM_OK) goto out;
    if (result->stopped) drop_unused_sizes(result);
    status = gather_counts(&run);
    result->end_us = wall_clock_us();
out:
    bench_buffers_free(&run.buffers);
    bench_data_free(run.data);
    return status;
}
