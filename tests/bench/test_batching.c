/* SPDX-License-Identifier: Apache-2.0 */
/* Check that the simulated engine does what docs/trace.md says: two runs worked out by hand, many against a
 * step-by-step reference. */
#include <math.h>
#include <stdbool.h>

#include "batching.h"
#include "check.h"

#define MAX_REQUESTS 60
#define MAX_TOKENS   64

/* ------------------------------------------------------------------ reference */

/** Counts by tokens, as a plain reading of the model's steps gives them. */
typedef struct {
    uint64_t decode_only[MAX_TOKENS], mixed[MAX_TOKENS], decode_part[MAX_TOKENS], iterations;
} counts_t;

/** One request on its way: how many prompt tokens and how many tokens to decode it has before it. */
typedef struct {
    double arrival_s;
    uint64_t prompt_left, decode_left;
    bool waiting, decoding, joined_now;
} sequence_t;

static void reference_run(const bench_trace_t *trace, const bench_params_t *params, double scale, counts_t *counts_p) {
    sequence_t all[MAX_REQUESTS];
    size_t n = trace->count, arrived = 0;
    sequence_t *half = NULL;
    double now_s = 0;
    counts_t counts;
    memset(&counts, 0, sizeof counts);
    for (size_t i = 0; i < n; i++) {
        all[i] = (sequence_t){(trace->requests[i].arrival_s - trace->requests[0].arrival_s) * scale,
                              trace->requests[i].prompt_tokens,
                              trace->requests[i].output_tokens - 1,
                              false,
                              false,
                              false};
    }
    for (;;) {
        uint64_t decoding = 0, prompt_tokens = 0, finished = 0;
        bool any_waiting = false;
        while (arrived < n && all[arrived].arrival_s <= now_s) all[arrived++].waiting = true;
        for (size_t i = 0; i < n; i++) {
            any_waiting |= all[i].waiting;
            decoding += all[i].decoding;
            all[i].joined_now = false;
        }
        if (!any_waiting && !half) {
            if (arrived == n) break;
            if (decoding == 0) {
                now_s = all[arrived].arrival_s;
                continue;
            }
        }
        if (params->prefill_elsewhere) {
            for (size_t i = 0; i < n && decoding < params->max_num_seqs; i++) {
                if (!all[i].waiting) continue;
                all[i].waiting = false;
                all[i].decoding = all[i].decode_left > 0;
                decoding += all[i].decoding;
            }
            if (decoding == 0) continue;
        }
        int64_t room = (int64_t)params->token_budget - (int64_t)decoding;
        while (!params->prefill_elsewhere && room > 0) {
            for (size_t i = 0; i < n && !half && decoding + finished < params->max_num_seqs; i++) {
                if (all[i].waiting) half = &all[i];
            }
            if (!half) break;
            half->waiting = false;
            int64_t chunk = room < (int64_t)half->prompt_left ? room : (int64_t)half->prompt_left;
            half->prompt_left -= (uint64_t)chunk;
            prompt_tokens += (uint64_t)chunk;
            room -= chunk;
            if (half->prompt_left > 0) continue;
            finished++;
            half->joined_now = half->decode_left > 0;
            half = NULL;
        }
        uint64_t tokens = decoding + prompt_tokens;
        CHECK(tokens > 0 && tokens < MAX_TOKENS);
        (prompt_tokens ? counts.mixed : counts.decode_only)[tokens]++;
        if (decoding) counts.decode_part[decoding]++;
        counts.iterations++;
        now_s += (params->iteration_ms + params->token_ms * (double)tokens) / 1000.0;
        for (size_t i = 0; i < n; i++) {
            if (all[i].decoding && --all[i].decode_left == 0) all[i].decoding = false;
            if (all[i].joined_now) all[i].decoding = true;
        }
    }
    *counts_p = counts;
}

/* ------------------------------------------------------------------ comparing */

static void check_bins(const char *name, const bench_bins_t *bins, const uint64_t *counts, size_t size) {
    uint64_t total = 0;
    size_t at = 0;
    for (size_t i = 0; i < size; i++) {
        if (counts[i] == 0) continue;
        total += counts[i];
        if (at == bins->size || bins->bins[at].tokens != i || bins->bins[at].count != counts[i])
            FAIL("%s: %" PRIu64 " iterations of %zu tokens are not there", name, counts[i], i);
        at++;
    }
    CHECK_EQ(bins->size, at);
    CHECK_EQ(bins->total, total);
}

static void check_run(const bench_trace_t *trace, const bench_params_t *params, double scale, const counts_t *want) {
    bench_histogram_t histogram;
    memset(&histogram, 0, sizeof histogram);
    CHECK_OK(bench_batching_run(trace, params, scale, &histogram));
    check_bins("decode_only", &histogram.decode_only, want->decode_only, MAX_TOKENS);
    check_bins("mixed", &histogram.mixed, want->mixed, MAX_TOKENS);
    check_bins("decode_part", &histogram.decode_part, want->decode_part, MAX_TOKENS);
    CHECK_EQ(histogram.iterations, want->iterations);
    CHECK_EQ(histogram.decode_only.total + histogram.mixed.total, want->iterations);
    if (histogram.decode_part.total == 0)
        CHECK(isnan(histogram.mean_decode_batch));
    else
        CHECK(histogram.mean_decode_batch ==
              bench_bins_tokens(&histogram.decode_part) / (double)histogram.decode_part.total);
    CHECK(histogram.scale == scale && histogram.reached && isnan(histogram.target_batch));
    bench_histogram_free(&histogram);
}

/* ------------------------------------------------------------------ tests */

/**
 * At most 2 sequences, 4 tokens, 1 s an iteration. A(0 s, 6 prompt, 3 output), B(0 s, 1, 1), C(0.5 s, 1, 2), D(10 s, 1,
 * 1): 0 s  4 of A's prompt                                       mixed 4 1 s  A's other 2; B, which is done by that; no
 * place for C   mixed 3 2 s  A decodes; C's prompt                                  mixed 2, 1 decodes 3 s  A and C
 * decode for the last time                       decode 2, 2 decode 10 s  D, which is done by that mixed 1 With the
 * prompts elsewhere: 0 s A decodes; 1 s A and C decode; B and D have nothing to decode.
 */
static void check_by_hand(void) {
    bench_request_t requests[] = {{100, 6, 3}, {100, 1, 1}, {100.5, 1, 2}, {110, 1, 1}};
    bench_trace_t trace = {.requests = requests, .count = 4};
    bench_params_t params = {.max_num_seqs = 2, .token_budget = 4, .iteration_ms = 1000, .token_ms = 0};
    counts_t want = {.decode_only = {[2] = 1},
                     .mixed = {[1] = 1, [2] = 1, [3] = 1, [4] = 1},
                     .decode_part = {[1] = 1, [2] = 1},
                     .iterations = 5};
    check_run(&trace, &params, 1.0, &want);
    params.prefill_elsewhere = true;
    want = (counts_t){.decode_only = {[1] = 1, [2] = 1}, .decode_part = {[1] = 1, [2] = 1}, .iterations = 2};
    check_run(&trace, &params, 1.0, &want);

    /* The drain is not counted: the last request joins, decodes once, and the run ends, however much it has left. */
    bench_request_t last[] = {{0, 1, 50}};
    bench_trace_t one = {.requests = last, .count = 1};
    want = (counts_t){.decode_only = {[1] = 1}, .decode_part = {[1] = 1}, .iterations = 1};
    check_run(&one, &params, 1.0, &want);
    params.prefill_elsewhere = false;
    want = (counts_t){.mixed = {[1] = 1}, .iterations = 1};
    check_run(&one, &params, 1.0, &want);

    /* Nothing to decode at all. */
    last[0].output_tokens = 1;
    params.prefill_elsewhere = true;
    want = (counts_t){.iterations = 0};
    check_run(&one, &params, 1.0, &want);
}

static uint64_t random_state = 88172645463325252u;

/** 0 to below - 1 (xorshift64). */
static uint32_t draw(uint32_t below) {
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (uint32_t)(random_state >> 32) % below;
}

static void check_against_reference(void) {
    static const double scales[] = {1e-4, 0.01, 0.3, 1, 7, 1e4};
    for (int round = 0; round < 3000; round++) {
        bench_request_t requests[MAX_REQUESTS];
        bench_trace_t trace = {.requests = requests, .count = 1 + draw(MAX_REQUESTS)};
        bench_params_t params = {
            .max_num_seqs = 1 + draw(8),
            .token_budget = 1 + draw(20),
            .iteration_ms = draw(20),
            .token_ms = 0.25 * (1 + draw(8)),
            .prefill_elsewhere = draw(2),
        };
        uint32_t longest = 1 + draw(40), most_output = 1 + draw(30);
        double arrival_s = 1.7e9;
        for (size_t i = 0; i < trace.count; i++) {
            requests[i] = (bench_request_t){arrival_s, 1 + draw(longest), 1 + draw(most_output)};
            arrival_s += draw(3) * 0.01 * draw(30);
        }
        counts_t want;
        double scale = scales[draw(6)];
        if (round % 2) {
            /* Quarters of a second all through, which add up exactly: arrivals fall on the very end of an iteration. */
            params.iteration_ms = 250 * draw(3);
            params.token_ms = 250;
            scale = 1;
            for (size_t i = 0; i < trace.count; i++)
                requests[i].arrival_s = floor(requests[i].arrival_s * 40 - 1.7e9 * 40) / 4;
        }
        reference_run(&trace, &params, scale, &want);
        check_run(&trace, &params, scale, &want);
    }
}

/** A hundred requests a second, each alone for 0.1 s at first: more load means a greater batch, up to max_num_seqs. */
static void check_search(void) {
    static bench_request_t requests[20000];
    bench_trace_t trace = {.requests = requests, .count = 20000};
    bench_params_t params = {
        .max_num_seqs = 64, .token_budget = 512, .iteration_ms = 10, .token_ms = 0.01, .prefill_elsewhere = true};
    bench_histogram_t histogram, again;
    for (size_t i = 0; i < trace.count; i++)
        requests[i] = (bench_request_t){(double)i * 0.01 + 0.001 * draw(9), 5, 2 + draw(20)};

    static const double targets[] = {2, 10, 33.3, 60};
    for (size_t i = 0; i < 4; i++) {
        memset(&histogram, 0, sizeof histogram);
        memset(&again, 0, sizeof again);
        CHECK_OK(bench_batching_find(&trace, &params, targets[i], &histogram));
        CHECK(histogram.reached && histogram.target_batch == targets[i]);
        CHECK(fabs(histogram.mean_decode_batch - targets[i]) <= 0.01 * targets[i]);
        CHECK(histogram.scale >= 1e-4 && histogram.scale <= 1e4);
        /* What is handed out is the run of that scale. */
        CHECK_OK(bench_batching_run(&trace, &params, histogram.scale, &again));
        CHECK(again.hash == histogram.hash && again.iterations == histogram.iterations);
        bench_histogram_free(&histogram);
        bench_histogram_free(&again);
    }

    /* More than the engine can hold: the saturated run, and it says so. */
    memset(&histogram, 0, sizeof histogram);
    CHECK_OK(bench_batching_find(&trace, &params, 70, &histogram));
    CHECK(!histogram.reached && histogram.scale == 1e-4 && histogram.mean_decode_batch <= 64 &&
          histogram.target_batch == 70);
    bench_histogram_free(&histogram);

    /* All at once: no scale thins that out, so a low target is missed from above. */
    for (size_t i = 0; i < trace.count; i++) requests[i].arrival_s = 5;
    memset(&histogram, 0, sizeof histogram);
    CHECK_OK(bench_batching_find(&trace, &params, 3, &histogram));
    CHECK(!histogram.reached && histogram.mean_decode_batch > 3.03 && histogram.iterations > 0);
    bench_histogram_free(&histogram);
}

static void check_refusals(void) {
    bench_request_t requests[] = {{0, 1, 2}};
    bench_trace_t trace = {.requests = requests, .count = 1};
    static const struct {
        bench_params_t params;
        double scale;
        const char *piece;
    } bad[] = {
        {{0, 1, 1, 1, false}, 1, "max_num_seqs is 0"},
        {{262145, 1, 1, 1, false}, 1, "max_num_seqs is 262145"},
        {{1, 0, 1, 1, false}, 1, "token_budget is 0"},
        {{1, 262145, 1, 1, false}, 1, "token_budget is 262145"},
        {{1, 1, 0, 0, false}, 1, "not 0 both"},
        {{1, 1, -1, 2, false}, 1, "iteration_ms is -1"},
        {{1, 1, NAN, 1, false}, 1, "iteration_ms is"},
        {{1, 1, 1, 1, false}, 0, "time scale is 0"},
        {{1, 1, 1, 1, false}, 1e7, "time scale is 1e+07"},
        {{1, 1, 1, 1, false}, NAN, "time scale is"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        bench_histogram_t histogram;
        memset(&histogram, 0, sizeof histogram);
        CHECK_STATUS(bench_batching_run(&trace, &bad[i].params, bad[i].scale, &histogram), TPCOMM_ERR_INVALID_ARG);
        CHECK_ERROR_HAS(bad[i].piece);
    }
}

int main(void) {
    check_by_hand();
    check_against_reference();
    check_search();
    check_refusals();
    return 0;
}
