/* SPDX-License-Identifier: Apache-2.0 */
#include "replay_data.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "random.h"

enum { RANDOM = 1, KINDS = 2 }; /* kind 0 is the plain pattern */
enum { PERIOD = 65521 };        /* prime */
enum { RAW_EVERY = 64 };        /* one random value in so many is raw bits */

struct bench_data {
    tpcomm_dtype_t dtype;
    size_t element_bytes;
    unsigned char *in[KINDS], *expected[KINDS]; /* period[kind] elements each */
};

/* The plain pattern repeats after 13 elements, so its table is a whole number of thirteens. */
static const uint64_t period[KINDS] = {13 * 5040, PERIOD};

/* ---------------------------------------------------------------- number formats */

static uint32_t float_bits(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static float bits_float(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static uint32_t encode_bf16(float value) {
    uint32_t bits = float_bits(value);
    if (isnan(value)) return (bits >> 16) | 0x40; /* keep it a NaN */
    return (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16;
}

static uint32_t encode_f16(float value) {
    uint32_t bits = float_bits(value), sign = (bits >> 16) & 0x8000, magnitude = bits & 0x7FFFFFFF;
    if (magnitude > 0x7F800000) return sign | 0x7E00;
    if (magnitude >= 0x477FF000) return sign | 0x7C00; /* 65520 and above round to infinity */
    if (magnitude < 0x38800000) {                      /* below 2^-14: a multiple of 2^-24 */
        /* Adding 0.5 leaves the result's bits, rounded to nearest even, at the low end of the sum. */
        uint32_t rounded = float_bits(bits_float(magnitude) + 0.5f) - float_bits(0.5f);
        return sign | rounded;
    }
    magnitude += 0xFFF + ((magnitude >> 13) & 1);
    return sign | ((magnitude >> 13) - (112u << 10));
}

static float decode_f16(uint32_t bits) {
    uint32_t sign = (bits & 0x8000) << 16, exponent = (bits >> 10) & 0x1F, mantissa = bits & 0x3FF;
    if (exponent == 0x1F) return bits_float(sign | 0x7F800000 | (mantissa << 13));
    if (exponent == 0) return (sign ? -1.0f : 1.0f) * (float)mantissa * 0x1p-24f;
    return bits_float(sign | ((exponent + 112) << 23) | (mantissa << 13));
}

uint32_t bench_data_encode(tpcomm_dtype_t dtype, float value) {
    if (dtype == TPCOMM_BF16) return encode_bf16(value);
    return dtype == TPCOMM_F16 ? encode_f16(value) : float_bits(value);
}

float bench_data_decode(tpcomm_dtype_t dtype, uint32_t bits) {
    if (dtype == TPCOMM_BF16) return bits_float(bits << 16);
    return dtype == TPCOMM_F16 ? decode_f16(bits) : bits_float(bits);
}

static uint32_t canonical_nan(tpcomm_dtype_t dtype) {
    return dtype == TPCOMM_F32 ? 0x7FFFFFFF : 0x7FFF;
}

uint32_t bench_data_sum(tpcomm_dtype_t dtype, const uint32_t *bits, int32_t ranks) {
    if (ranks == 1) return bits[0]; /* a copy */
    float sum = bench_data_decode(dtype, bits[0]);
    for (int32_t rank = 1; rank < ranks; rank++) sum += bench_data_decode(dtype, bits[rank]);
    return isnan(sum) ? canonical_nan(dtype) : bench_data_encode(dtype, sum);
}

/* ---------------------------------------------------------------- values */

static uint32_t random_bits(tpcomm_dtype_t dtype, int32_t rank, uint64_t seed, uint64_t i) {
    uint64_t random =
        bench_random_mix(seed + UINT64_C(0x9e3779b97f4a7c15) * (i * TPCOMM_MAX_RANKS + (uint64_t)rank + 1));
    uint32_t low = (uint32_t)random, high = (uint32_t)(random >> 32);
    if (low % RAW_EVERY == 0) return dtype == TPCOMM_F32 ? high : high & 0xFFFF;
    uint32_t exponent = 127 - 3 + (low >> 8) % 7; /* 2^-3 to 2^3: the order of additions shows in the last bits */
    return bench_data_encode(dtype, bits_float((high & 0x807FFFFF) | exponent << 23));
}

static uint32_t value_bits(tpcomm_dtype_t dtype, uint32_t kind, int32_t rank, uint64_t seed, uint64_t i) {
    if (kind == RANDOM) return random_bits(dtype, rank, seed, i);
    return bench_data_encode(dtype, (float)((7 * i + 3 * (uint64_t)rank) % 13));
}

static void put(unsigned char *table, size_t element_bytes, uint64_t i, uint32_t bits) {
    uint16_t half = (uint16_t)bits;
    memcpy(table + i * element_bytes, element_bytes == 2 ? (const void *)&half : (const void *)&bits, element_bytes);
}

tpcomm_status_t bench_data_new(tpcomm_dtype_t dtype, int32_t rank, int32_t ranks, uint64_t seed,
                               bench_data_t **data_p) {
    bench_data_t *data = calloc(1, sizeof *data);
    if (!data) goto no_memory;
    data->dtype = dtype;
    data->element_bytes = tpcomm_dtype_size(dtype);
    for (uint32_t kind = 0; kind < KINDS; kind++) {
        data->in[kind] = malloc(period[kind] * data->element_bytes);
        data->expected[kind] = malloc(period[kind] * data->element_bytes);
        if (!data->in[kind] || !data->expected[kind]) goto no_memory;
        for (uint64_t i = 0; i < period[kind]; i++) {
            uint32_t bits[TPCOMM_MAX_RANKS];
            for (int32_t r = 0; r < ranks; r++) bits[r] = value_bits(dtype, kind, r, seed, i);
            put(data->in[kind], data->element_bytes, i, bits[rank]);
            put(data->expected[kind], data->element_bytes, i, bench_data_sum(dtype, bits, ranks));
        }
    }
    *data_p = data;
    return TPCOMM_OK;
no_memory:
    bench_data_free(data);
    return tpc_error(TPCOMM_ERR_NO_MEMORY, "no memory for the tables of test data");
}

void bench_data_free(bench_data_t *data) {
    if (!data) return;
    for (uint32_t kind = 0; kind < KINDS; kind++) {
        free(data->in[kind]);
        free(data->expected[kind]);
    }
    free(data);
}

/** Where in its table a buffer begins: every buffer somewhere else, so that one taken for another shows. */
static uint64_t table_start(uint32_t buffer) {
    return buffer / KINDS * 5u + (buffer % KINDS == RANDOM ? buffer * 1009u : 0);
}

void bench_data_fill(const bench_data_t *data, uint32_t buffer, void *in, uint64_t count) {
    uint32_t kind = buffer % KINDS;
    uint64_t at = table_start(buffer) % period[kind];
    for (uint64_t done = 0; done < count;) {
        uint64_t run = count - done < period[kind] - at ? count - done : period[kind] - at;
        memcpy((unsigned char *)in + done * data->element_bytes, data->in[kind] + at * data->element_bytes,
               run * data->element_bytes);
        done += run;
        at = 0;
    }
}

uint64_t bench_data_check(const bench_data_t *data, uint32_t buffer, const void *out, uint64_t count,
                          uint64_t *first_p) {
    uint32_t kind = buffer % KINDS;
    uint64_t at = table_start(buffer) % period[kind], wrong = 0;
    size_t size = data->element_bytes;
    for (uint64_t done = 0; done < count;) {
        uint64_t run = count - done < period[kind] - at ? count - done : period[kind] - at;
        const unsigned char *got = (const unsigned char *)out + done * size, *want = data->expected[kind] + at * size;
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

uint64_t bench_data_expected(const bench_data_t *data, uint32_t buffer, uint64_t i) {
    uint32_t kind = buffer % KINDS, bits = 0;
    uint64_t at = (table_start(buffer) + i) % period[kind];
    uint16_t half;
    if (data->element_bytes == 4)
        memcpy(&bits, data->expected[kind] + at * 4, 4);
    else {
        memcpy(&half, data->expected[kind] + at * 2, 2);
        bits = half;
    }
    return bits;
}
