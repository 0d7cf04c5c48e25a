/* SPDX-License-Identifier: Apache-2.0 */
/**
 * One row of residual + RMSNorm + quantisation, written from docs/numerics.md alone: every number as an exact double,
 * every rounding spelled out, 8-bit floats by looking for the nearest. Shares no code with the library. The float
 * environment must be the default one.
 */
#ifndef TPC_TESTS_NORM_REFERENCE_H
#define TPC_TESTS_NORM_REFERENCE_H

#include "unit/reduce_reference.h"

#define NORM_HIDDEN_MOST 16384

typedef struct {
    tpcomm_dtype_t dtype, weight_dtype;
    int hidden;
    double eps, bias;
    tpcomm_quant_t quant;
    float scale; /* given, of F8_TENSOR */
    const void *residual, *weight;
} norm_case_t;

/** Bits of every output. */
typedef struct {
    uint32_t sum[NORM_HIDDEN_MOST], x[NORM_HIDDEN_MOST], y[NORM_HIDDEN_MOST];
    uint8_t quantized[NORM_HIDDEN_MOST];
    float scale;
} norm_expected_t;

static inline double norm_value(tpcomm_dtype_t dtype, const void *row, size_t i) {
    return reference_decode(reference_format(dtype), (uint32_t)reference_read(row, i, tpcomm_dtype_size(dtype), false));
}

/** Magnitude of the positive code 0 to 0x7E. */
static inline double norm_f8_decode(unsigned code) {
    unsigned exponent = code >> 3, mantissa = code & 7;
    return exponent == 0 ? ldexp(mantissa, -9) : ldexp(8 + mantissa, (int)exponent - 10);
}

static inline uint8_t norm_f8_encode(double value) {
    if (isnan(value)) return 0x7F;
    double magnitude = fabs(value);
    unsigned low = 0, high = 0x7E; /* the greatest code that is not above magnitude */
    while (low < high) {
        unsigned middle = (low + high + 1) / 2;
        if (norm_f8_decode(middle) <= magnitude)
            low = middle;
        else
            high = middle - 1;
    }
    if (low < 0x7E) {
        double below = magnitude - norm_f8_decode(low), above = norm_f8_decode(low + 1) - magnitude;
        if (above < below || (above == below && low % 2 == 1)) low++;
    }
    return (uint8_t)(low | (signbit(value) ? 0x80u : 0u));
}

/* Tree over n values, a power of two. */
static inline double norm_tree(double *values, int n) {
    for (int stride = n / 2; stride > 0; stride /= 2)
        for (int i = 0; i < stride; i++) values[i] = reference_f32(values[i] + values[i + stride]);
    return values[0];
}

static inline double norm_square_sum(const norm_case_t *c, const uint32_t *x) {
    double groups[64] = {0};
    for (int g = 0; 256 * g < c->hidden; g++) {
        double vectors[32] = {0};
        for (int v = 0; v < 32 && 256 * g + 8 * v < c->hidden; v++)
            for (int k = 0; k < 8; k++) {
                double a = reference_decode(reference_format(c->dtype), x[256 * g + 8 * v + k]);
                double square = reference_f32(a * a);
                vectors[v] = k == 0 ? square : reference_f32(vectors[v] + square);
            }
        groups[g] = norm_tree(vectors, 32);
    }
    return norm_tree(groups, 64);
}

/** in: a row of each of n ranks. */
static inline void norm_reference(const norm_case_t *c, const void *const *in, int n, norm_expected_t *expected) {
    reference_format_t format = reference_format(c->dtype);
    for (int i = 0; i < c->hidden; i++) {
        double values[TPCOMM_MAX_RANKS] = {0};
        for (int r = 0; r < n; r++) values[r] = norm_value(c->dtype, in[r], (size_t)i);
        expected->sum[i] = n == 1 ? (uint32_t)reference_read(in[0], (size_t)i, tpcomm_dtype_size(c->dtype), false)
                                  : reference_float(c->dtype, TPCOMM_SUM, values, n);
        expected->x[i] = expected->sum[i];
        if (c->residual == NULL) continue;
        double sum = reference_decode(format, expected->sum[i]),
               residual = norm_value(c->dtype, c->residual, (size_t)i);
        expected->x[i] = reference_encode(format, reference_f32(sum + residual));
    }
    double mean = reference_f32(norm_square_sum(c, expected->x) / c->hidden);
    long double shifted = (long double)reference_f32(mean + c->eps);
    double inverse = (double)(float)(1.0L / sqrtl(shifted));
    double greatest = 0;
    for (int i = 0; i < c->hidden; i++) {
        double normal = reference_f32(reference_decode(format, expected->x[i]) * inverse);
        double weight = reference_f32(norm_value(c->weight_dtype, c->weight, (size_t)i) + c->bias);
        expected->y[i] = reference_encode(format, reference_f32(normal * weight));
        double y = fabs(reference_decode(format, expected->y[i]));
        greatest = isnan(y) || y > greatest ? y : greatest; /* a NaN stays: nothing is greater */
    }
    expected->scale = c->scale;
    if (c->quant == TPCOMM_QUANT_F8_TOKEN) {
        uint32_t bits = reference_encode(reference_format(TPCOMM_F32), reference_f32(greatest / 448));
        memcpy(&expected->scale, &bits, sizeof bits);
        if (expected->scale < 0x1p-126f) expected->scale = 1;
    }
    if (c->quant == TPCOMM_QUANT_NONE) return;
    double inverse_scale = reference_f32(1 / (double)expected->scale);
    for (int i = 0; i < c->hidden; i++)
        expected->quantized[i] =
            norm_f8_encode(reference_f32(reference_decode(format, expected->y[i]) * inverse_scale));
}

/** Whether count elements of got are the expected bits; else where not. */
static inline bool norm_same(tpcomm_dtype_t dtype, const void *got, const uint32_t *want, size_t count, size_t *at_p) {
    for (size_t i = 0; i < count; i++) {
        if (reference_read(got, i, tpcomm_dtype_size(dtype), false) == want[i]) continue;
        *at_p = i;
        return false;
    }
    return true;
}

/** Kinds of values. */
enum { NORM_PLAIN, NORM_BITS, NORM_TINY, NORM_KINDS };

/** Seeded values of dtype: of magnitude about 1, any bits, or many zeros and subnormals. */
static inline void norm_fill(int kind, tpcomm_dtype_t dtype, uint64_t seed, size_t count, void *to) {
    uint64_t state = seed * 1000003u + 17;
    for (size_t i = 0; i < count; i++) {
        uint64_t bits = reference_random(&state);
        double value = ldexp((double)(int64_t)bits, -62); /* -2 to 2 */
        if (kind == NORM_TINY) value = bits % 3 == 0 ? 0 : ldexp(value, dtype == TPCOMM_F16 ? -20 : -130);
        uint32_t word = reference_encode(reference_format(dtype), value);
        if (kind == NORM_BITS && bits % 64 == 0) word = (uint32_t)reference_random(&state);
        reference_write(to, i, tpcomm_dtype_size(dtype), word);
    }
}

#endif
