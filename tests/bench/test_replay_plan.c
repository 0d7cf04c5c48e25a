/* SPDX-License-Identifier: Apache-2.0 */
/* Check that padding rounds up as said, and that draws follow the counts, come out the same for the same seed, and keep
 * the phases apart. */
#include "check.h"
#include "replay_plan.h"

static bench_bin_t decode_bins[] = {{30, 1}, {50, 7}, {20, 9}};
static bench_bin_t mixed_bins[] = {{60, 7}, {40, 513}};
static const bench_histogram_t both = {.decode_only = {decode_bins, 3, 100}, .mixed = {mixed_bins, 2, 100}};
static const bench_padding_t no_padding = {.count = 0};

static void check_padding(void) {
    static const uint32_t want[][2] = {{1, 1},     {2, 2},     {3, 4},     {4, 4},     {5, 8},
                                       {8, 8},     {9, 16},    {248, 248}, {249, 256}, {256, 256},
                                       {257, 272}, {272, 272}, {273, 288}, {512, 512}, {513, 513}};
    static const char *const refused[] = {"",   "8,",  ",8",   "8,8",   "16,8",        "0",
                                          "-1", "1.5", "vLLM", "8, 16", "8,4294967296"};
    bench_padding_t padding;
    CHECK_OK(bench_padding_parse("vllm", &padding));
    CHECK_EQ(padding.count, 51);
    for (size_t i = 0; i < sizeof want / sizeof want[0]; i++)
        CHECK_EQ(bench_padding_apply(&padding, want[i][0]), want[i][1]);
    CHECK_OK(bench_padding_parse("8,64", &padding));
    CHECK_EQ(bench_padding_apply(&padding, 1), 8);
    CHECK_EQ(bench_padding_apply(&padding, 9), 64);
    CHECK_EQ(bench_padding_apply(&padding, 65), 65);
    CHECK_OK(bench_padding_parse("none", &padding));
    CHECK_EQ(bench_padding_apply(&padding, 3), 3);
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++)
        CHECK_STATUS(bench_padding_parse(refused[i], &padding), TPCOMM_ERR_INVALID_ARG);
}

static uint64_t count(const bench_draw_t *draws, uint64_t n, uint32_t tokens, bool mixed) {
    uint64_t found = 0;
    for (uint64_t i = 0; i < n; i++) found += draws[i].drawn == tokens && draws[i].mixed == mixed;
    return found;
}

static void check_counts(void) {
    for (uint64_t seed = 0; seed < 50; seed++) {
        bench_draw_t *draws;
        CHECK_OK(bench_plan_draw(&both, BENCH_PHASE_ALL, &no_padding, seed, 20, &draws));
        /* One draw for every ten iterations, give or take the start. */
        CHECK_EQ(count(draws, 20, 1, false), 3);
        CHECK_EQ(count(draws, 20, 7, false), 5);
        CHECK_EQ(count(draws, 20, 9, false), 2);
        CHECK_EQ(count(draws, 20, 7, true), 6);
        CHECK_EQ(count(draws, 20, 513, true), 4);
        free(draws);
        /* Far more draws than iterations, and a number that divides nothing. */
        CHECK_OK(bench_plan_draw(&both, BENCH_PHASE_ALL, &no_padding, seed, 100003, &draws));
        uint64_t found = count(draws, 100003, 1, false);
        CHECK(found >= 15000 && found <= 15001);
        free(draws);
    }
    /* A single draw is any of them, by its count. */
    uint64_t mixed = 0;
    for (uint64_t seed = 0; seed < 2000; seed++) {
        bench_draw_t *draws;
        CHECK_OK(bench_plan_draw(&both, BENCH_PHASE_ALL, &no_padding, seed, 1, &draws));
        mixed += draws[0].mixed;
        free(draws);
    }
    CHECK(mixed > 900 && mixed < 1100);
}

static void check_phases(void) {
    bench_draw_t *draws, *again;
    bench_padding_t padding;
    CHECK_OK(bench_padding_parse("8", &padding));
    CHECK_OK(bench_plan_draw(&both, BENCH_PHASE_DECODE, &padding, 5, 100, &draws));
    CHECK_EQ(count(draws, 100, 1, false) + count(draws, 100, 7, false) + count(draws, 100, 9, false), 100);
    for (int i = 0; i < 100; i++) CHECK_EQ(draws[i].tokens, draws[i].drawn <= 8 ? 8 : 9);
    CHECK_OK(bench_plan_draw(&both, BENCH_PHASE_DECODE, &padding, 5, 100, &again));
    for (int i = 0; i < 100; i++) CHECK_EQ(draws[i].drawn, again[i].drawn);
    free(again);
    CHECK_OK(bench_plan_draw(&both, BENCH_PHASE_DECODE, &padding, 6, 100, &again));
    int same = 0;
    for (int i = 0; i < 100; i++) same += draws[i].drawn == again[i].drawn;
    CHECK(same < 100); /* another order */
    free(again);
    free(draws);
    CHECK_OK(bench_plan_draw(&both, BENCH_PHASE_MIXED, &no_padding, 5, 10, &draws));
    CHECK_EQ(count(draws, 10, 7, true), 6);
    CHECK_EQ(count(draws, 10, 513, true), 4);
    free(draws);
}

static double tokens_cost(const void *arg, uint32_t tokens) {
    (void)arg;
    return tokens;
}

static void check_population(void) {
    static const bench_histogram_t none = {.hash = 0};
    uint32_t range[3];
    CHECK_EQ(bench_plan_population(&both, BENCH_PHASE_ALL), 200);
    CHECK_EQ(bench_plan_population(&both, BENCH_PHASE_MIXED), 100);
    CHECK_EQ(bench_plan_population(&none, BENCH_PHASE_ALL), 0);
    bench_plan_range(&both, BENCH_PHASE_ALL, &no_padding, range);
    CHECK_EQ(range[0], 1);
    CHECK_EQ(range[1], 7); /* 30 of 1, then 110 of 7 in both phases together */
    CHECK_EQ(range[2], 513);
    bench_plan_range(&both, BENCH_PHASE_DECODE, &no_padding, range);
    CHECK_EQ(range[2], 9);
    double mean = bench_plan_mean_cost(&both, BENCH_PHASE_DECODE, &no_padding, tokens_cost, NULL);
    CHECK(mean == (30.0 * 1 + 50.0 * 7 + 20.0 * 9) / 100);
}

int main(void) {
    check_padding();
    check_counts();
    check_phases();
    check_population();
    return 0;
}
