/* SPDX-License-Identifier: Apache-2.0 */
#include "replay_plan.h"

#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "number.h"
#include "random.h"

static tpcomm_status_t parse_list(const char *text, bench_padding_t *padding_p) {
    for (const char *at = text;;) {
        size_t length = strcspn(at, ",");
        uint64_t value;
        if (!bench_number_u64(at, length, &value) || value == 0 || value > BENCH_HISTOGRAM_TOKENS_MAX)
            return tpc_error(TPCOMM_ERR_INVALID_ARG,
                             "--pad %s: \"%.*s\": allowed are none, vllm, or whole numbers from 1 to %u "
                             "separated by commas",
                             text, (int)(length < 32 ? length : 32), at, BENCH_HISTOGRAM_TOKENS_MAX);
        if (padding_p->count == BENCH_PADDING_MAX)
            return tpc_error(TPCOMM_ERR_INVALID_ARG, "--pad: more than %d sizes", BENCH_PADDING_MAX);
        if (padding_p->count > 0 && value <= padding_p->sizes[padding_p->count - 1])
            return tpc_error(TPCOMM_ERR_INVALID_ARG, "--pad: %u is followed by %u; the sizes must ascend",
                             padding_p->sizes[padding_p->count - 1], (uint32_t)value);
        padding_p->sizes[padding_p->count++] = (uint32_t)value;
        if (at[length] == '\0') return TPCOMM_OK;
        at += length + 1;
    }
}

tpcomm_status_t bench_padding_parse(const char *text, bench_padding_t *padding_p) {
    padding_p->count = 0;
    if (strcmp(text, "none") == 0) return TPCOMM_OK;
    if (strcmp(text, "vllm") != 0) return parse_list(text, padding_p);
    static const uint32_t first[] = {1, 2, 4};
    for (size_t i = 0; i < sizeof first / sizeof first[0]; i++) padding_p->sizes[padding_p->count++] = first[i];
    for (uint32_t size = 8; size <= 512; size += size < 256 ? 8 : 16) padding_p->sizes[padding_p->count++] = size;
    return TPCOMM_OK;
}

uint32_t bench_padding_apply(const bench_padding_t *padding, uint32_t tokens) {
    size_t low = 0, high = padding->count; /* first size >= tokens lies in low ... high */
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (padding->sizes[middle] < tokens)
            low = middle + 1;
        else
            high = middle;
    }
    return low < padding->count ? padding->sizes[low] : tokens;
}

/** The bins a phase draws from: part 0 is decode_only, part 1 mixed. NULL: not drawn from. */
static const bench_bins_t *part_of(const bench_histogram_t *histogram, bench_phase_t phase, int part) {
    if (part == 0) return phase == BENCH_PHASE_MIXED ? NULL : &histogram->decode_only;
    return phase == BENCH_PHASE_DECODE ? NULL : &histogram->mixed;
}

uint64_t bench_plan_population(const bench_histogram_t *histogram, bench_phase_t phase) {
    uint64_t total = 0;
    for (int part = 0; part < 2; part++) {
        const bench_bins_t *bins = part_of(histogram, phase, part);
        if (bins) total += bins->total;
    }
    return total;
}

static void shuffle(bench_draw_t *draws, uint64_t count, uint64_t *random) {
    for (uint64_t i = count; i > 1; i--) {
        uint64_t j = bench_random_below(random, i);
        bench_draw_t kept = draws[i - 1];
        draws[i - 1] = draws[j];
        draws[j] = kept;
    }
}

tpcomm_status_t bench_plan_draw(const bench_histogram_t *histogram, bench_phase_t phase, const bench_padding_t *padding,
                                uint64_t seed, uint64_t iterations, bench_draw_t **draws_p) {
    uint64_t total = bench_plan_population(histogram, phase), random = seed;
    bench_draw_t *draws = iterations <= SIZE_MAX / sizeof *draws ? malloc((size_t)iterations * sizeof *draws) : NULL;
    if (!draws) return tpc_error(TPCOMM_ERR_NO_MEMORY, "no memory for %llu iterations", (unsigned long long)iterations);

    /* Draw i is number floor((start + i * total) / iterations) of the population, kept as quotient and remainder: exact
     * in 64 bits. */
    uint64_t start = bench_random_below(&random, total);
    uint64_t position = start / iterations, remainder = start % iterations, done = 0, before = 0;
    for (int part = 0; part < 2; part++) {
        const bench_bins_t *bins = part_of(histogram, phase, part);
        for (size_t i = 0; bins && i < bins->size; i++) {
            before += bins->bins[i].count;
            while (done < iterations && position < before) {
                uint32_t tokens = bins->bins[i].tokens;
                draws[done++] = (bench_draw_t){tokens, bench_padding_apply(padding, tokens), part == 1};
                position += total / iterations;
                remainder += total % iterations;
                if (remainder >= iterations) {
                    remainder -= iterations;
                    position++;
                }
            }
        }
    }
    shuffle(draws, iterations, &random);
    *draws_p = draws;
    return TPCOMM_OK;
}

/** Padded T of iteration `number` of the population in ascending order of T. */
static uint32_t nth_tokens(const bench_histogram_t *histogram, bench_phase_t phase, const bench_padding_t *padding,
                           uint64_t number) {
    const bench_bins_t *bins[2] = {part_of(histogram, phase, 0), part_of(histogram, phase, 1)};
    size_t at[2] = {0, 0};
    uint64_t before = 0;
    for (;;) {
        int least = -1;
        for (int part = 0; part < 2; part++) {
            if (!bins[part] || at[part] == bins[part]->size) continue;
            if (least < 0 || bins[part]->bins[at[part]].tokens < bins[least]->bins[at[least]].tokens) least = part;
        }
        if (least < 0) return 0;
        const bench_bin_t *bin = &bins[least]->bins[at[least]++];
        before += bin->count;
        if (number < before) return bench_padding_apply(padding, bin->tokens);
    }
}

void bench_plan_range(const bench_histogram_t *histogram, bench_phase_t phase, const bench_padding_t *padding,
                      uint32_t tokens_p[3]) {
    uint64_t total = bench_plan_population(histogram, phase);
    tokens_p[0] = nth_tokens(histogram, phase, padding, 0);
    tokens_p[1] = nth_tokens(histogram, phase, padding, total / 2);
    tokens_p[2] = nth_tokens(histogram, phase, padding, total - 1);
}

double bench_plan_mean_cost(const bench_histogram_t *histogram, bench_phase_t phase, const bench_padding_t *padding,
                            double (*cost)(const void *arg, uint32_t tokens), const void *arg) {
    double sum = 0, total = (double)bench_plan_population(histogram, phase);
    for (int part = 0; part < 2; part++) {
        const bench_bins_t *bins = part_of(histogram, phase, part);
        for (size_t i = 0; bins && i < bins->size; i++)
            sum += (double)bins->bins[i].count * cost(arg, bench_padding_apply(padding, bins->bins[i].tokens));
    }
    return total > 0 ? sum / total : 0;
}
