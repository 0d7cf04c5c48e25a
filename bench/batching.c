/* SPDX-License-Identifier: Apache-2.0 */
#include "batching.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"

#define TARGET_TOLERANCE 0.01
/** The bracket [1e-4, 1e4] is then narrower than a double can tell apart. */
#define SEARCH_STEPS 64

/** The state of one engine, and what it counted. Memory is kept from run to run of a search. */
typedef struct {
    const bench_trace_t *trace;
    bench_params_t params;
    double scale;
    double now_s;
    uint64_t iteration;                  /**< the one being made up; at the end their number */
    size_t head;                         /**< next request of the trace; those before it have been taken */
    uint64_t decoding;                   /**< D */
    uint64_t *last;                      /**< heap, smallest first, of the last iteration of each decoding sequence */
    size_t last_count;                   /**< decoding, and those that begin to decode after this iteration */
    uint64_t prompt_left, prompt_output; /**< the prompt half done: its tokens left, its output; 0: none */
    uint64_t *decode_only, *mixed, *decode_part; /**< counts by tokens, counts_size each */
    size_t counts_size;
} engine_t;

static void heap_push(engine_t *engine, uint64_t last) {
    size_t at = engine->last_count++;
    for (size_t up; at > 0 && engine->last[up = (at - 1) / 2] > last; at = up) engine->last[at] = engine->last[up];
    engine->last[at] = last;
}

static void heap_pop(engine_t *engine) {
    uint64_t moved = engine->last[--engine->last_count];
    size_t at = 0;
    for (size_t child; (child = 2 * at + 1) < engine->last_count; at = child) {
        if (child + 1 < engine->last_count && engine->last[child + 1] < engine->last[child]) child++;
        if (engine->last[child] >= moved) break;
        engine->last[at] = engine->last[child];
    }
    engine->last[at] = moved;
}

static bool any_left(const engine_t *engine) {
    return engine->head < engine->trace->count;
}

/** When the request at the head arrives; there must be one. */
static double head_arrival(const engine_t *engine) {
    const bench_request_t *requests = engine->trace->requests;
    return (requests[engine->head].arrival_s - requests[0].arrival_s) * engine->scale;
}

static bool any_waiting(const engine_t *engine) {
    return any_left(engine) && head_arrival(engine) <= engine->now_s;
}

static double iteration_s(const engine_t *engine, uint64_t tokens) {
    return (engine->params.iteration_ms + engine->params.token_ms * (double)tokens) / 1000.0;
}

/** Sequences that gave their last token in the iteration before this one leave. */
static void leave(engine_t *engine) {
    while (engine->last_count > 0 && engine->last[0] < engine->iteration) {
        heap_pop(engine);
        engine->decoding--;
    }
}

/** Take requests whose prompts another engine has worked on: they decode in this iteration already. */
static void join_decoding(engine_t *engine) {
    while (engine->decoding < engine->params.max_num_seqs && any_waiting(engine)) {
        uint32_t output = engine->trace->requests[engine->head++].output_tokens;
        if (output < 2) continue;
        engine->decoding++;
        heap_push(engine, engine->iteration + output - 2);
    }
}

/** Schedule prompt tokens into the room beside the decoding sequences; *finished_p begin to decode in the next
 * iteration. */
static uint64_t schedule_prompts(engine_t *engine, uint64_t *starting_p) {
    uint64_t scheduled = 0, finished = 0, starting = 0;
    uint64_t room = engine->params.token_budget > engine->decoding ? engine->params.token_budget - engine->decoding : 0;
    while (room > 0) {
        if (engine->prompt_left == 0) {
            if (engine->decoding + finished >= engine->params.max_num_seqs || !any_waiting(engine)) break;
            const bench_request_t *request = &engine->trace->requests[engine->head++];
            engine->prompt_left = request->prompt_tokens;
            engine->prompt_output = request->output_tokens;
        }
        uint64_t chunk = engine->prompt_left < room ? engine->prompt_left : room;
        engine->prompt_left -= chunk;
        room -= chunk;
        scheduled += chunk;
        if (engine->prompt_left > 0) break;
        finished++;
        if (engine->prompt_output < 2) continue;
        starting++;
        heap_push(engine, engine->iteration + engine->prompt_output - 1);
    }
    *starting_p = starting;
    return scheduled;
}

/**
 * Iterations that only decode, all alike until a sequence ends or a request arrives: most of a run, so they are counted
 * together (time still goes forward one addition an iteration, as the model says).
 */
static void decode_alike(engine_t *engine) {
    uint64_t steps = 0, most = engine->last[0] - engine->iteration + 1;
    double now_s = engine->now_s, step_s = iteration_s(engine, engine->decoding);
    double until_s = any_left(engine) ? head_arrival(engine) : INFINITY;
    /* A request that waits already cannot get in, or it would have. */
    if (until_s <= now_s) until_s = INFINITY;
    /* The last request has just joined: with this iteration the run ends. */
    if (!any_left(engine) && engine->prompt_left == 0) most = 1;
    do {
        now_s += step_s;
        steps++;
    } while (steps < most && now_s < until_s);
    engine->now_s = now_s;
    engine->iteration += steps;
    engine->decode_only[engine->decoding] += steps;
    engine->decode_part[engine->decoding] += steps;
}

static tpcomm_status_t run(engine_t *engine) {
    for (;;) {
        uint64_t starting = 0, scheduled = 0;
        if (!any_waiting(engine) && engine->prompt_left == 0) {
            if (!any_left(engine)) return TPCOMM_OK;
            if (engine->decoding == 0) {
                engine->now_s = head_arrival(engine);
                continue;
            }
        }
        if (engine->iteration > BENCH_BATCHING_ITERATIONS_MAX)
            return tpc_error(TPCOMM_ERR_INVALID_ARG,
                             "the trace needs more than %" PRIu64 " iterations at time scale %g",
                             BENCH_BATCHING_ITERATIONS_MAX, engine->scale);
        if (engine->params.prefill_elsewhere) {
            join_decoding(engine);
            if (engine->decoding == 0) continue;
        } else {
            scheduled = schedule_prompts(engine, &starting);
        }
        if (scheduled == 0) {
            decode_alike(engine);
        } else {
            engine->mixed[engine->decoding + scheduled]++;
            if (engine->decoding > 0) engine->decode_part[engine->decoding]++;
            engine->now_s += iteration_s(engine, engine->decoding + scheduled);
            engine->iteration++;
        }
        engine->decoding += starting;
        leave(engine);
    }
}

static void engine_free(engine_t *engine) {
    free(engine->last);
    free(engine->decode_only);
    free(engine->mixed);
    free(engine->decode_part);
}

static tpcomm_status_t engine_new(const bench_trace_t *trace, const bench_params_t *params, engine_t *engine_p) {
    engine_t engine = {.trace = trace, .params = *params};
    if (params->max_num_seqs < 1 || params->max_num_seqs > BENCH_BATCHING_TOKENS_MAX)
        return tpc_error(TPCOMM_ERR_INVALID_ARG, "max_num_seqs is %" PRIu64 ", allowed are 1 to %u",
                         params->max_num_seqs, BENCH_BATCHING_TOKENS_MAX);
    if (params->token_budget < 1 || params->token_budget > BENCH_BATCHING_TOKENS_MAX)
        return tpc_error(TPCOMM_ERR_INVALID_ARG, "token_budget is %" PRIu64 ", allowed are 1 to %u",
                         params->token_budget, BENCH_BATCHING_TOKENS_MAX);
    if (!(params->iteration_ms >= 0 && params->iteration_ms <= BENCH_BATCHING_MS_MAX && params->token_ms >= 0 &&
          params->token_ms <= BENCH_BATCHING_MS_MAX && params->iteration_ms + params->token_ms > 0))
        return tpc_error(TPCOMM_ERR_INVALID_ARG,
                         "iteration_ms is %g and token_ms is %g; allowed are 0 to %g each, and not 0 both",
                         params->iteration_ms, params->token_ms, BENCH_BATCHING_MS_MAX);

    uint64_t most = params->max_num_seqs > params->token_budget ? params->max_num_seqs : params->token_budget;
    engine.counts_size = (size_t)most + 1;
    engine.last = malloc((size_t)params->max_num_seqs * sizeof *engine.last);
    engine.decode_only = malloc(engine.counts_size * sizeof *engine.decode_only);
    engine.mixed = malloc(engine.counts_size * sizeof *engine.mixed);
    engine.decode_part = malloc(engine.counts_size * sizeof *engine.decode_part);
    if (!engine.last || !engine.decode_only || !engine.mixed || !engine.decode_part) {
        engine_free(&engine);
        return tpc_error(TPCOMM_ERR_NO_MEMORY, "no memory for the counts of %zu tokens", engine.counts_size);
    }
    *engine_p = engine;
    return TPCOMM_OK;
}

/** One run from the start; *mean_p is NaN if no iteration decodes. */
static tpcomm_status_t engine_run(engine_t *engine, double scale, double *mean_p) {
    uint64_t sequences = 0, iterations = 0;
    size_t bytes = engine->counts_size * sizeof(uint64_t);
    if (!(scale >= BENCH_BATCHING_SCALE_MIN && scale <= BENCH_BATCHING_SCALE_MAX))
        return tpc_error(TPCOMM_ERR_INVALID_ARG, "time scale is %g, allowed are %g to %g", scale,
                         BENCH_BATCHING_SCALE_MIN, BENCH_BATCHING_SCALE_MAX);
    memset(engine->decode_only, 0, bytes);
    memset(engine->mixed, 0, bytes);
    memset(engine->decode_part, 0, bytes);
    engine->scale = scale;
    engine->now_s = 0;
    engine->iteration = 0;
    engine->head = 0;
    engine->decoding = 0;
    engine->last_count = 0;
    engine->prompt_left = 0;
    tpcomm_status_t status = run(engine);
    if (status != TPCOMM_OK) return status;
    for (size_t i = 1; i < engine->counts_size; i++) {
        sequences += i * engine->decode_part[i];
        iterations += engine->decode_part[i];
    }
    *mean_p = iterations ? (double)sequences / (double)iterations : NAN;
    return TPCOMM_OK;
}

/** Hand out what the last run counted. */
static tpcomm_status_t engine_result(const engine_t *engine, double mean, bench_histogram_t *histogram_p) {
    bench_histogram_t result = *histogram_p;
    tpcomm_status_t status;
    result.has_params = true;
    result.params = engine->params;
    result.scale = engine->scale;
    result.iterations = engine->iteration;
    result.mean_decode_batch = mean;
    memset(&result.decode_only, 0, sizeof result.decode_only);
    memset(&result.mixed, 0, sizeof result.mixed);
    memset(&result.decode_part, 0, sizeof result.decode_part);
    status = bench_bins_from_counts(engine->decode_only, engine->counts_size, &result.decode_only);
    if (status == TPCOMM_OK) status = bench_bins_from_counts(engine->mixed, engine->counts_size, &result.mixed);
    if (status == TPCOMM_OK)
        status = bench_bins_from_counts(engine->decode_part, engine->counts_size, &result.decode_part);
    if (status != TPCOMM_OK) {
        bench_histogram_free(&result);
        return status;
    }
    bench_histogram_rehash(&result);
    *histogram_p = result;
    return TPCOMM_OK;
}

tpcomm_status_t bench_batching_run(const bench_trace_t *trace, const bench_params_t *params, double scale,
                                   bench_histogram_t *histogram_p) {
    engine_t engine;
    double mean;
    tpcomm_status_t status = engine_new(trace, params, &engine);
    if (status != TPCOMM_OK) return status;
    status = engine_run(&engine, scale, &mean);
    if (status == TPCOMM_OK) status = engine_result(&engine, mean, histogram_p);
    if (status == TPCOMM_OK) {
        histogram_p->target_batch = NAN;
        histogram_p->reached = true;
    }
    engine_free(&engine);
    return status;
}

/** Bisect; the engine's last run is the answer. A run without decoding counts as a mean of 0. */
static tpcomm_status_t search(engine_t *engine, double target, double *mean_p, bool *reached_p) {
    double low = BENCH_BATCHING_SEARCH_MIN, high = BENCH_BATCHING_SEARCH_MAX, mean;
    double nearest = low, nearest_distance;
    tpcomm_status_t status = engine_run(engine, low, &mean);
    if (status != TPCOMM_OK) return status;
    nearest_distance = fabs((isnan(mean) ? 0 : mean) - target);
    *reached_p = nearest_distance <= TARGET_TOLERANCE * target;
    *mean_p = mean;
    if (*reached_p || !(mean > target)) return TPCOMM_OK;

    for (int step = 0; step < SEARCH_STEPS; step++) {
        double middle = sqrt(low * high);
        if (middle <= low || middle >= high) break;
        if ((status = engine_run(engine, middle, &mean)) != TPCOMM_OK) return status;
        double distance = fabs(mean - target);
        if (distance < nearest_distance) nearest = middle, nearest_distance = distance;
        *reached_p = distance <= TARGET_TOLERANCE * target;
        *mean_p = mean;
        if (*reached_p) return TPCOMM_OK;
        if (mean > target)
            low = middle;
        else
            high = middle;
    }
    return engine_run(engine, nearest, mean_p);
}

tpcomm_status_t bench_batching_find(const bench_trace_t *trace, const bench_params_t *params, double target,
                                    bench_histogram_t *histogram_p) {
    engine_t engine;
    double mean;
    bool reached;
    tpcomm_status_t status = engine_new(trace, params, &engine);
    if (status != TPCOMM_OK) return status;
    status = search(&engine, target, &mean, &reached);
    if (status == TPCOMM_OK) status = engine_result(&engine, mean, histogram_p);
    if (status == TPCOMM_OK) {
        histogram_p->target_batch = target;
        histogram_p->reached = reached;
    }
    engine_free(&engine);
    return status;
}
