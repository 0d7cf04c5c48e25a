/* SPDX-License-Identifier: Apache-2.0 */
#include "data.h"

#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "bench.h"
#include "random.h"
#include "reference.h"

enum { PLAIN, RANDOM, EXACT, KINDS };
enum { PERIOD = 65521 };    /* prime */
enum { RAW_EVERY = 64 };    /* one random value in so many is raw bits */
enum { REPEATS_KEPT = 16 }; /* numbers of repeats that are asked for at a time */
enum { ROWS = 7 };          /* of a table with a norm; prime to the number of buffers */

typedef struct {
    uint64_t repeats;
    unsigned char *expected[KINDS], *residual[KINDS];
} repeated_t;

struct bench_data {
    bench_data_spec_t spec;
    size_t element_bytes;
    uint64_t period[KINDS];
    unsigned char *in[KINDS][TPCOMM_MAX_RANKS]; /* period[kind] elements each; NULL: not needed */
    unsigned char *residual[KINDS], *weight;    /* with a norm */
    repeated_t once, repeated[REPEATS_KEPT];
    size_t next_repeated;
};

/* The plain pattern repeats after 13 elements, so its table is a whole number of thirteens. */
static const uint64_t plain_period[KINDS] = {13 * 5040, PERIOD, PERIOD};

/* Ranks of the values that are the same on every rank. */
enum { RESIDUAL_RANK = TPCOMM_MAX_RANKS, WEIGHT_RANK };

/* ---------------------------------------------------------------- values */

static bool is_16_or_32_bit_float(tpcomm_dtype_t dtype) {
    return dtype == TPCOMM_F32 || dtype == TPCOMM_F16 || dtype == TPCOMM_BF16;
}

static uint64_t random_bits(const bench_data_spec_t *spec, int32_t rank, uint64_t i) {
    tpcomm_dtype_t dtype = spec->dtype;
    uint64_t stride = spec->hidden ? WEIGHT_RANK + 1 : TPCOMM_MAX_RANKS;
    uint64_t random = bench_random_mix(spec->seed + UINT64_C(0x9e3779b97f4a7c15) * (i * stride + (uint64_t)rank + 1));
    uint32_t low = (uint32_t)random, high = (uint32_t)(random >> 32);
    uint64_t exponent = (low >> 8) % 7; /* 2^-3 to 2^3: the order of additions shows in the last bits */
    bool raw = low % RAW_EVERY == 0 && spec->hidden == 0;
    if (is_16_or_32_bit_float(dtype)) {
        if (raw) return dtype == TPCOMM_F32 ? high : high & 0xFFFF;
        uint32_t bits = (high & 0x807FFFFF) | (uint32_t)(127 - 3 + exponent) << 23;
        float value;
        memcpy(&value, &bits, sizeof value);
        return bench_encode(dtype, value);
    }
    if (dtype == TPCOMM_F64 && !raw)
        return (bench_random_mix(random) & UINT64_C(0x800FFFFFFFFFFFFF)) | (1023 - 3 + exponent) << 52;
    return bench_random_mix(random);
}

static uint64_t value_bits(const bench_data_spec_t *spec, uint32_t kind, int32_t rank, uint64_t i) {
    if (kind == RANDOM) return random_bits(spec, rank, i);
    if (kind == PLAIN) return bench_whole(spec->dtype, (uint32_t)((7 * i + 3 * (uint64_t)rank) % 13));
    uint64_t random = bench_random_mix(spec->seed + (i * TPCOMM_MAX_RANKS + (uint64_t)rank) * 0x9e3779b97f4a7c15u);
    return bench_whole(spec->dtype, (uint32_t)(random & 1) + (spec->op == TPCOMM_PROD));
}

static void put(unsigned char *table, size_t bytes, uint64_t i, uint64_t bits) {
    memcpy(table + i * bytes, &bits, bytes); /* little-endian: the low bytes */
}

static uint64_t get(const unsigned char *table, size_t bytes, uint64_t i) {
    uint64_t bits = 0;
    memcpy(&bits, table + i * bytes, bytes);
    return bits;
}

/* ---------------------------------------------------------------- tables */

static bool uses(const bench_data_spec_t *spec, uint32_t kind) {
    return (kind == EXACT) == spec->exact;
}

/** What element i of a kind is after so many reductions in place. */
static uint64_t reduce_again(const bench_data_spec_t *spec, uint32_t kind, uint64_t i, uint64_t repeats,
                             bool own_block) {
    uint64_t bits[TPCOMM_MAX_RANKS], result = 0;
    for (int32_t r = 0; r < spec->ranks; r++) bits[r] = value_bits(spec, kind, r, i);
    for (uint64_t k = 0; k < repeats; k++) {
        result = bench_reduce(spec->dtype, spec->op, bits, spec->ranks);
        if (own_block) {
            bits[spec->rank] = result;
            continue;
        }
        for (int32_t r = 0; r < spec->ranks; r++) bits[r] = result;
    }
    return result;
}

static unsigned char *new_table(const bench_data_t *data, uint64_t count) {
    unsigned char *table = malloc((size_t)count * data->element_bytes);
    if (!table) (void)tpc_error(TPCOMM_ERR_NO_MEMORY, "no memory for the tables of test data");
    return table;
}

/** One row after so many calls with the same residual. */
static void norm_row_again(const bench_data_t *data, uint32_t kind, uint64_t row, repeated_t *result) {
    const bench_data_spec_t *spec = &data->spec;
    static _Thread_local uint64_t sum[BENCH_HIDDEN_MAX], weight[BENCH_HIDDEN_MAX], residual[BENCH_HIDDEN_MAX],
        out[BENCH_HIDDEN_MAX];
    for (uint64_t i = 0; i < spec->hidden; i++) {
        uint64_t bits[TPCOMM_MAX_RANKS], at = row * spec->hidden + i;
        for (int32_t r = 0; r < spec->ranks; r++) bits[r] = value_bits(spec, kind, r, at);
        sum[i] = bench_reduce(spec->dtype, spec->op, bits, spec->ranks);
        weight[i] = get(data->weight, data->element_bytes, i);
        residual[i] = get(data->residual[kind], data->element_bytes, at);
    }
    for (uint64_t k = 0; k < result->repeats; k++)
        bench_norm_row(spec->dtype, spec->hidden, BENCH_NORM_EPS, sum, weight, residual, out);
    for (uint64_t i = 0; i < spec->hidden; i++) {
        put(result->expected[kind], data->element_bytes, row * spec->hidden + i, out[i]);
        put(result->residual[kind], data->element_bytes, row * spec->hidden + i, residual[i]);
    }
}

static tpcomm_status_t fill_expected(const bench_data_t *data, uint64_t repeats, bool own_block, repeated_t *result) {
    result->repeats = repeats;
    for (uint32_t kind = 0; kind < KINDS; kind++) {
        if (!uses(&data->spec, kind)) continue;
        result->expected[kind] = new_table(data, data->period[kind]);
        if (data->spec.hidden) result->residual[kind] = new_table(data, data->period[kind]);
        if (!result->expected[kind] || (data->spec.hidden && !result->residual[kind])) return TPCOMM_ERR_NO_MEMORY;
        for (uint64_t row = 0; row < ROWS && data->spec.hidden; row++) norm_row_again(data, kind, row, result);
        for (uint64_t i = 0; i < data->period[kind] && !data->spec.hidden; i++)
            put(result->expected[kind], data->element_bytes, i, reduce_again(&data->spec, kind, i, repeats, own_block));
    }
    return TPCOMM_OK;
}

static tpcomm_status_t fill_inputs(bench_data_t *data) {
    const bench_data_spec_t *spec = &data->spec;
    for (uint32_t kind = 0; kind < KINDS; kind++) {
        data->period[kind] = spec->hidden ? (uint64_t)ROWS * spec->hidden : plain_period[kind];
        for (int32_t r = 0; r < spec->ranks && uses(spec, kind); r++) {
            if (spec->op != 0 && r != spec->rank) continue;
            if (!(data->in[kind][r] = new_table(data, data->period[kind]))) return TPCOMM_ERR_NO_MEMORY;
            for (uint64_t i = 0; i < data->period[kind]; i++)
                put(data->in[kind][r], data->element_bytes, i, value_bits(spec, kind, r, i));
        }
        if (!spec->hidden || !uses(spec, kind)) continue;
        if (!(data->residual[kind] = new_table(data, data->period[kind]))) return TPCOMM_ERR_NO_MEMORY;
        for (uint64_t i = 0; i < data->period[kind]; i++)
            put(data->residual[kind], data->element_bytes, i, value_bits(spec, kind, RESIDUAL_RANK, i));
    }
    if (!spec->hidden) return TPCOMM_OK;
    if (!(data->weight = new_table(data, spec->hidden))) return TPCOMM_ERR_NO_MEMORY;
    for (uint64_t i = 0; i < spec->hidden; i++)
        put(data->weight, data->element_bytes, i, value_bits(spec, RANDOM, WEIGHT_RANK, i));
    return TPCOMM_OK;
}

tpcomm_status_t bench_data_new(const bench_data_spec_t *spec, bench_data_t **data_p) {
    if (spec->hidden > BENCH_HIDDEN_MAX || spec->hidden % 8 != 0)
        return tpc_error(TPCOMM_ERR_INVALID_ARG, "rows of %u elements cannot be normalised: a multiple of 8, up to %d",
                         spec->hidden, BENCH_HIDDEN_MAX);
    bench_data_t *data = calloc(1, sizeof *data);
    if (!data) return tpc_error(TPCOMM_ERR_NO_MEMORY, "no memory for the tables of test data");
    data->spec = *spec;
    data->element_bytes = tpcomm_dtype_size(spec->dtype);
    tpcomm_status_t status = fill_inputs(data);
    if (status == TPCOMM_OK && spec->op != 0) status = fill_expected(data, 1, false, &data->once);
    if (status != TPCOMM_OK) {
        bench_data_free(data);
        return status;
    }
    *data_p = data;
    return TPCOMM_OK;
}

static void free_tables(unsigned char *tables[KINDS]) {
    for (uint32_t kind = 0; kind < KINDS; kind++) {
        free(tables[kind]);
        tables[kind] = NULL;
    }
}

void bench_data_free(bench_data_t *data) {
    if (!data) return;
    for (uint32_t kind = 0; kind < KINDS; kind++)
        for (int32_t r = 0; r < TPCOMM_MAX_RANKS; r++) free(data->in[kind][r]);
    free_tables(data->residual);
    free(data->weight);
    free_tables(data->once.expected);
    free_tables(data->once.residual);
    for (size_t k = 0; k < REPEATS_KEPT; k++) {
        free_tables(data->repeated[k].expected);
        free_tables(data->repeated[k].residual);
    }
    free(data);
}

size_t bench_data_element_bytes(const bench_data_t *data) {
    return data->element_bytes;
}

static const repeated_t *find_repeated(const bench_data_t *data, uint64_t repeats) {
    if (repeats < 2) return &data->once;
    for (size_t k = 0; k < REPEATS_KEPT; k++)
        if (data->repeated[k].repeats == repeats) return &data->repeated[k];
    return NULL;
}

tpcomm_status_t bench_data_repeat(bench_data_t *data, uint64_t repeats, bool own_block) {
    if (data->spec.op == 0 || find_repeated(data, repeats)) return TPCOMM_OK;
    repeated_t *kept = &data->repeated[data->next_repeated++ % REPEATS_KEPT];
    free_tables(kept->expected);
    free_tables(kept->residual);
    tpcomm_status_t status = fill_expected(data, repeats, own_block, kept);
    if (status != TPCOMM_OK) kept->repeats = 0;
    return status;
}

/* ---------------------------------------------------------------- buffers */

static uint32_t kind_of(const bench_data_t *data, uint32_t buffer) {
    return data->spec.exact ? EXACT : buffer % 2 ? RANDOM : PLAIN;
}

static uint64_t table_start(const bench_data_t *data, uint32_t buffer, uint64_t from) {
    uint32_t kind = kind_of(data, buffer);
    uint64_t start = kind == PLAIN ? buffer / 2 * 5u : buffer * UINT64_C(1009);
    if (data->spec.hidden) start = (uint64_t)buffer * data->spec.hidden;
    return (start + from) % data->period[kind];
}

static const unsigned char *expected_table(const bench_data_t *data, const bench_expect_t *expect) {
    uint32_t kind = kind_of(data, expect->buffer);
    if (expect->of_rank >= 0) return data->in[kind][expect->of_rank];
    const repeated_t *result = find_repeated(data, expect->repeats);
    return expect->of_rank == -2 ? result->residual[kind] : result->expected[kind];
}

void bench_data_fill(const bench_data_t *data, bench_part_t part, uint32_t buffer, uint64_t from, void *in,
                     uint64_t count) {
    uint32_t kind = kind_of(data, buffer);
    const unsigned char *table = part == BENCH_INPUT ? data->in[kind][data->spec.rank] : data->residual[kind];
    uint64_t at = table_start(data, buffer, from), period = data->period[kind];
    if (part == BENCH_WEIGHT) {
        table = data->weight;
        at = from;
        period = data->spec.hidden;
    }
    for (uint64_t done = 0; done < count;) {
        uint64_t run = count - done < period - at ? count - done : period - at;
        memcpy((unsigned char *)in + done * data->element_bytes, table + at * data->element_bytes,
               run * data->element_bytes);
        done += run;
        at = 0;
    }
}

uint64_t bench_data_check(const bench_data_t *data, const bench_expect_t *expect, const void *out, uint64_t count,
                          uint64_t *first_p) {
    uint32_t kind = kind_of(data, expect->buffer);
    const unsigned char *table = expected_table(data, expect);
    uint64_t at = table_start(data, expect->buffer, expect->from), wrong = 0;
    size_t size = data->element_bytes;
    for (uint64_t done = 0; done < count;) {
        uint64_t run = count - done < data->period[kind] - at ? count - done : data->period[kind] - at;
        const unsigned char *got = (const unsigned char *)out + done * size, *want = table + at * size;
        bool same = memcmp(got, want, run * size) == 0;
        for (uint64_t i = 0; !same && i < run; i++) {
            if (memcmp(got + i * size, want + i * size, size) == 0) continue;
            if (wrong++ == 0) *first_p = done + i;
        }
        done += run;
        at = 0;
    }
    return wrong;
}

uint64_t bench_data_expected(const bench_data_t *data, const bench_expect_t *expect, uint64_t i) {
    uint32_t kind = kind_of(data, expect->buffer);
    uint64_t at = (table_start(data, expect->buffer, expect->from) + i) % data->period[kind];
    return get(expected_table(data, expect), data->element_bytes, at);
}
