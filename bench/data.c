/* SPDX-License-Identifier: Apache-2.0 */
#include "data.h"

#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "bench.h"
#include "random.h"
#include "reference.h"

enum { PLAIN, RANDOM, EXACT, KINDS };
enum { PERIOD = 65521 };   /* prime */
enum { RAW_EVERY = 64 };   /* one random value in so many is raw bits */
enum { REPEATS_KEPT = 4 }; /* numbers of repeats that are asked for at a time */

typedef struct {
    uint64_t repeats;
    unsigned char *expected[KINDS];
} repeated_t;

struct bench_data {
    bench_data_spec_t spec;
    size_t element_bytes;
    unsigned char *in[KINDS][TPCOMM_MAX_RANKS]; /* period[kind] elements each; NULL: not needed */
    unsigned char *expected[KINDS];
    repeated_t repeated[REPEATS_KEPT];
    size_t next_repeated;
};

/* The plain pattern repeats after 13 elements, so its table is a whole number of thirteens. */
static const uint64_t period[KINDS] = {13 * 5040, PERIOD, PERIOD};

/* ---------------------------------------------------------------- values */

static bool is_16_or_32_bit_float(tpcomm_dtype_t dtype) {
    return dtype == TPCOMM_F32 || dtype == TPCOMM_F16 || dtype == TPCOMM_BF16;
}

static uint64_t random_bits(tpcomm_dtype_t dtype, int32_t rank, uint64_t seed, uint64_t i) {
    uint64_t random =
        bench_random_mix(seed + UINT64_C(0x9e3779b97f4a7c15) * (i * TPCOMM_MAX_RANKS + (uint64_t)rank + 1));
    uint32_t low = (uint32_t)random, high = (uint32_t)(random >> 32);
    uint64_t exponent = (low >> 8) % 7; /* 2^-3 to 2^3: the order of additions shows in the last bits */
    bool raw = low % RAW_EVERY == 0;
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
    if (kind == RANDOM) return random_bits(spec->dtype, rank, spec->seed, i);
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

static tpcomm_status_t fill_expected(const bench_data_t *data, uint64_t repeats, bool own_block,
                                     unsigned char *tables[KINDS]) {
    for (uint32_t kind = 0; kind < KINDS; kind++) {
        if (!uses(&data->spec, kind)) continue;
        tables[kind] = malloc(period[kind] * data->element_bytes);
        if (!tables[kind]) return tpc_error(TPCOMM_ERR_NO_MEMORY, "no memory for the tables of test data");
        for (uint64_t i = 0; i < period[kind]; i++)
            put(tables[kind], data->element_bytes, i, reduce_again(&data->spec, kind, i, repeats, own_block));
    }
    return TPCOMM_OK;
}

tpcomm_status_t bench_data_new(const bench_data_spec_t *spec, bench_data_t **data_p) {
    bench_data_t *data = calloc(1, sizeof *data);
    tpcomm_status_t status = TPCOMM_OK;
    if (!data) return tpc_error(TPCOMM_ERR_NO_MEMORY, "no memory for the tables of test data");
    data->spec = *spec;
    data->element_bytes = tpcomm_dtype_size(spec->dtype);
    for (uint32_t kind = 0; kind < KINDS && status == TPCOMM_OK; kind++) {
        if (!uses(spec, kind)) continue;
        for (int32_t r = 0; r < spec->ranks; r++) {
            if (spec->op != 0 && r != spec->rank) continue;
            data->in[kind][r] = malloc(period[kind] * data->element_bytes);
            if (!data->in[kind][r]) {
                status = tpc_error(TPCOMM_ERR_NO_MEMORY, "no memory for the tables of test data");
                break;
            }
            for (uint64_t i = 0; i < period[kind]; i++)
                put(data->in[kind][r], data->element_bytes, i, value_bits(spec, kind, r, i));
        }
    }
    if (status == TPCOMM_OK && spec->op != 0) status = fill_expected(data, 1, false, data->expected);
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
    free_tables(data->expected);
    for (size_t k = 0; k < REPEATS_KEPT; k++) free_tables(data->repeated[k].expected);
    free(data);
}

size_t bench_data_element_bytes(const bench_data_t *data) {
    return data->element_bytes;
}

static const repeated_t *find_repeated(const bench_data_t *data, uint64_t repeats) {
    for (size_t k = 0; k < REPEATS_KEPT; k++)
        if (data->repeated[k].repeats == repeats) return &data->repeated[k];
    return NULL;
}

tpcomm_status_t bench_data_repeat(bench_data_t *data, uint64_t repeats, bool own_block) {
    if (repeats < 2 || data->spec.op == 0 || find_repeated(data, repeats)) return TPCOMM_OK;
    repeated_t *kept = &data->repeated[data->next_repeated++ % REPEATS_KEPT];
    free_tables(kept->expected);
    kept->repeats = 0;
    tpcomm_status_t status = fill_expected(data, repeats, own_block, kept->expected);
    if (status == TPCOMM_OK) kept->repeats = repeats;
    return status;
}

/* ---------------------------------------------------------------- buffers */

static uint32_t kind_of(const bench_data_t *data, uint32_t buffer) {
    return data->spec.exact ? EXACT : buffer % 2 ? RANDOM : PLAIN;
}

static uint64_t table_start(const bench_data_t *data, uint32_t buffer, uint64_t from) {
    uint32_t kind = kind_of(data, buffer);
    uint64_t start = kind == PLAIN ? buffer / 2 * 5u : buffer * UINT64_C(1009);
    return (start + from) % period[kind];
}

static const unsigned char *expected_table(const bench_data_t *data, const bench_expect_t *expect) {
    uint32_t kind = kind_of(data, expect->buffer);
    if (expect->of_rank >= 0) return data->in[kind][expect->of_rank];
    return expect->repeats < 2 ? data->expected[kind] : find_repeated(data, expect->repeats)->expected[kind];
}

void bench_data_fill(const bench_data_t *data, uint32_t buffer, uint64_t from, void *in, uint64_t count) {
    uint32_t kind = kind_of(data, buffer);
    const unsigned char *table = data->in[kind][data->spec.rank];
    uint64_t at = table_start(data, buffer, from);
    for (uint64_t done = 0; done < count;) {
        uint64_t run = count - done < period[kind] - at ? count - done : period[kind] - at;
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
        uint64_t run = count - done < period[kind] - at ? count - done : period[kind] - at;
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
    uint64_t at = (table_start(data, expect->buffer, expect->from) + i) % period[kind];
    return get(expected_table(data, expect), data->element_bytes, at);
}
