/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The norm's kernels, compiled once per instruction set: plain C that spells every operation, without branches on
 * values, for the compiler to vectorise. Everything goes by groups of 256 elements, through arrays of its own, so that
 * out may be the row that is read and nothing needs to be aligned.
 */
#ifndef TPC_CPU_BACKEND_NORM_KERNELS_H
#define TPC_CPU_BACKEND_NORM_KERNELS_H

#include <math.h>
#include <string.h>

#include "cpu_backend/norm.h"
#include "cpu_backend/reduce_tables.h"

#define NORM_INLINE static inline __attribute__((always_inline, unused))

#define NORM_GROUP  256 /* elements of a group: 32 vectors of 8 */
#define NORM_GROUPS 64  /* at most in a row: hidden <= 16384 */

NORM_INLINE uint32_t norm_bits(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}
NORM_INLINE float norm_float(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}
/* yes where condition, else no, without a branch. */
NORM_INLINE uint32_t norm_select(int condition, uint32_t yes, uint32_t no) {
    uint32_t mask = 0u - (uint32_t)(condition != 0);
    return (yes & mask) | (no & ~mask);
}

/* ---------------------------------------------------------------- to and from fp32 */

NORM_INLINE float norm_f32_get(uint32_t bits) {
    return norm_float(bits);
}
NORM_INLINE uint32_t norm_f32_put(float x) {
    return norm_select(x != x, 0x7FFFFFFFu, norm_bits(x));
}

NORM_INLINE float norm_bf16_get(uint16_t bits) {
    return norm_float((uint32_t)bits << 16);
}
NORM_INLINE uint16_t norm_bf16_put(float x) {
    uint32_t bits = norm_bits(x);
    uint32_t rounded = (bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16;
    return (uint16_t)norm_select(x != x, 0x7FFFu, rounded);
}

/* Exponent and mantissa move to f32's place, then the bias is mended; a subnormal is the mantissa of a number in
 * [2^-14, 2^-13), less 2^-14. */
NORM_INLINE float norm_f16_get(uint16_t half) {
    const uint32_t exponent_mask = 0x1Fu << 23;
    uint32_t magnitude = ((uint32_t)half & 0x7FFFu) << 13, exponent = magnitude & exponent_mask;
    uint32_t subnormal = norm_bits(norm_float(magnitude + (113u << 23)) - 0x1p-14f);
    uint32_t bits = norm_select(exponent == exponent_mask, magnitude + (224u << 23), magnitude + (112u << 23));
    bits = norm_select(exponent == 0, subnormal, bits);
    return norm_float(bits | ((uint32_t)half & 0x8000u) << 16);
}
/* Below 2^-14: next to 0.5 a unit of f32 is a subnormal unit of f16, so an addition does the rounding. */
NORM_INLINE uint16_t norm_f16_put(float x) {
    uint32_t bits = norm_bits(x), magnitude = bits & 0x7FFFFFFFu;
    uint32_t normal = (magnitude - (112u << 23) + 0xFFFu + ((magnitude >> 13) & 1u)) >> 13;
    uint32_t subnormal = norm_bits(norm_float(magnitude) + 0.5f) - 0x3F000000u;
    uint32_t half = norm_select(magnitude < 113u << 23, subnormal, normal);
    half = norm_select(magnitude >= 143u << 23, 0x7C00u, half); /* 2^16 and more */
    half |= (bits >> 16) & 0x8000u;
    return (uint16_t)norm_select(magnitude > 0x7F800000u, 0x7FFFu, half);
}

/* E4M3, saturating. A code is a float of 4 exponent bits whose bias is 120 less; below 2^-6, units of 2^-9, which is a
 * unit of f32 next to 2^14. */
NORM_INLINE uint8_t norm_f8_put(float x) {
    uint32_t bits = norm_bits(x), magnitude = bits & 0x7FFFFFFFu;
    uint32_t most = norm_bits(448.0f);
    uint32_t kept = norm_select(magnitude > most, most, magnitude);
    uint32_t normal = (kept - (120u << 23) + 0x7FFFFu + ((kept >> 20) & 1u)) >> 20;
    uint32_t subnormal = norm_bits(norm_float(kept) + 0x1p14f) - norm_bits(0x1p14f);
    uint32_t code = norm_select(kept < 121u << 23, subnormal, normal) | ((bits >> 24) & 0x80u);
    return (uint8_t)norm_select(magnitude > 0x7F800000u, 0x7Fu, code);
}

/* ---------------------------------------------------------------- sums of squares, in the one order */

/* x: a group, zeros behind what the row has. */
NORM_INLINE float norm_group_sum(const float *x) {
    float sum[32];
    for (int v = 0; v < 32; v++) {
        const float *a = x + 8 * v;
        float s = a[0] * a[0];
        for (int k = 1; k < 8; k++) s = s + a[k] * a[k];
        sum[v] = s;
    }
    for (int stride = 16; stride > 0; stride /= 2)
        for (int v = 0; v < stride; v++) sum[v] = sum[v] + sum[v + stride];
    return sum[0];
}

/* groups: zeros behind those that the row has. */
NORM_INLINE float norm_inverse(float *groups, size_t hidden, float eps) {
    for (int stride = NORM_GROUPS / 2; stride > 0; stride /= 2)
        for (int g = 0; g < stride; g++) groups[g] = groups[g] + groups[g + stride];
    float mean = groups[0] / (float)hidden;
    return (float)(1.0 / sqrt((double)(mean + eps))); /* correctly rounded for every input */
}

/* ---------------------------------------------------------------- kernels */

/**
 * Define name(row): element_t of dtype, weight_t of wtype. Three passes: x and its squares, x kept in residual (or, as
 * it is, in sum); y; and, where the scale needs all of y first, quantising y, read from out or made again.
 */
#define NORM_KERNEL(name, element_t, dtype, weight_t, wtype)                                                           \
    NORM_INLINE void name##_y(const tpc_norm_row_t *row, const element_t *from, const weight_t *weight, size_t n,      \
                              float inv, element_t *y) {                                                               \
        float bias = row->weight_bias;                                                                                 \
        for (size_t i = 0; i < n; i++)                                                                                 \
            y[i] = norm_##dtype##_put((norm_##dtype##_get(from[i]) * inv) * (norm_##wtype##_get(weight[i]) + bias));   \
    }                                                                                                                  \
    NORM_INLINE uint32_t name##_greatest(const element_t *y, size_t n, uint32_t greatest) {                            \
        for (size_t i = 0; i < n; i++) {                                                                               \
            uint32_t magnitude = norm_bits(norm_##dtype##_get(y[i])) & 0x7FFFFFFFu; /* a NaN is above all */           \
            greatest = magnitude > greatest ? magnitude : greatest;                                                    \
        }                                                                                                              \
        return greatest;                                                                                               \
    }                                                                                                                  \
    NORM_INLINE void name##_quantize(const element_t *y, size_t n, float inv_scale, uint8_t *to) {                     \
        uint8_t codes[NORM_GROUP];                                                                                     \
        for (size_t i = 0; i < n; i++) codes[i] = norm_f8_put(norm_##dtype##_get(y[i]) * inv_scale);                   \
        memcpy(to, codes, n);                                                                                          \
    }                                                                                                                  \
    static void name(const tpc_norm_row_t *row) {                                                                      \
        const size_t size = sizeof(element_t);                                                                         \
        const unsigned char *sum = (const unsigned char *)row->sum, *weight = (const unsigned char *)row->weight;      \
        unsigned char *residual = (unsigned char *)row->residual, *out = (unsigned char *)row->out;                    \
        uint8_t *quantized = (uint8_t *)row->quantized;                                                                \
        float groups[NORM_GROUPS] = {0};                                                                               \
        element_t a[NORM_GROUP], b[NORM_GROUP];                                                                        \
        weight_t w[NORM_GROUP];                                                                                        \
        for (size_t at = 0, g = 0; at < row->hidden; at += NORM_GROUP, g++) {                                          \
            size_t n = row->hidden - at < NORM_GROUP ? row->hidden - at : NORM_GROUP;                                  \
            float x[NORM_GROUP];                                                                                       \
            for (size_t i = n; i < NORM_GROUP; i++) x[i] = 0;                                                          \
            memcpy(a, sum + at * size, n * size);                                                                      \
            if (residual != NULL) {                                                                                    \
                memcpy(b, residual + at * size, n * size);                                                             \
                for (size_t i = 0; i < n; i++)                                                                         \
                    a[i] = norm_##dtype##_put(norm_##dtype##_get(a[i]) + norm_##dtype##_get(b[i]));                    \
                memcpy(residual + at * size, a, n * size);                                                             \
            }                                                                                                          \
            for (size_t i = 0; i < n; i++) x[i] = norm_##dtype##_get(a[i]);                                            \
            groups[g] = norm_group_sum(x);                                                                             \
        }                                                                                                              \
        float inv = norm_inverse(groups, row->hidden, row->eps);                                                       \
        const unsigned char *kept = residual != NULL ? residual : sum;                                                 \
        float inv_scale = row->quant == TPCOMM_QUANT_F8_TENSOR ? 1.0f / *row->scale : 1.0f;                            \
        uint32_t greatest = 0;                                                                                         \
        for (size_t at = 0; at < row->hidden; at += NORM_GROUP) {                                                      \
            size_t n = row->hidden - at < NORM_GROUP ? row->hidden - at : NORM_GROUP;                                  \
            memcpy(a, kept + at * size, n * size);                                                                     \
            memcpy(w, weight + at * sizeof *w, n * sizeof *w);                                                         \
            name##_y(row, a, w, n, inv, b);                                                                            \
            if (row->quant == TPCOMM_QUANT_F8_TENSOR) name##_quantize(b, n, inv_scale, quantized + at);                \
            if (row->quant == TPCOMM_QUANT_F8_TOKEN) greatest = name##_greatest(b, n, greatest);                       \
            if (out != NULL) memcpy(out + at * size, b, n * size);                                                     \
        }                                                                                                              \
        if (row->quant != TPCOMM_QUANT_F8_TOKEN) return;                                                               \
        *row->scale = norm_scale(norm_float(greatest));                                                                \
        inv_scale = 1.0f / *row->scale;                                                                                \
        for (size_t at = 0; at < row->hidden; at += NORM_GROUP) {                                                      \
            size_t n = row->hidden - at < NORM_GROUP ? row->hidden - at : NORM_GROUP;                                  \
            memcpy(a, (out != NULL ? out : kept) + at * size, n * size);                                               \
            if (out == NULL) {                                                                                         \
                memcpy(w, weight + at * sizeof *w, n * sizeof *w);                                                     \
                name##_y(row, a, w, n, inv, b);                                                                        \
            }                                                                                                          \
            name##_quantize(out != NULL ? a : b, n, inv_scale, quantized + at);                                        \
        }                                                                                                              \
    }

/* Of a row's greatest magnitude; 1 where that would be zero or subnormal, whose inverse may be infinite. */
NORM_INLINE float norm_scale(float greatest) {
    float scale = greatest / 448.0f;
    if (scale != scale) return norm_float(0x7FFFFFFFu);
    return scale < 0x1p-126f ? 1.0f : scale;
}

NORM_KERNEL(norm_f32, uint32_t, f32, uint32_t, f32)
NORM_KERNEL(norm_f16, uint16_t, f16, uint16_t, f16)
NORM_KERNEL(norm_f16_f32, uint16_t, f16, uint32_t, f32)
NORM_KERNEL(norm_bf16, uint16_t, bf16, uint16_t, bf16)
NORM_KERNEL(norm_bf16_f32, uint16_t, bf16, uint32_t, f32)

NORM_INLINE tpc_norm_fn_t norm_find(tpcomm_dtype_t dtype, tpcomm_dtype_t weight_dtype) {
    if (dtype == TPCOMM_F32) return norm_f32;
    if (dtype == TPCOMM_F16) return weight_dtype == TPCOMM_F32 ? norm_f16_f32 : norm_f16;
    return weight_dtype == TPCOMM_F32 ? norm_bf16_f32 : norm_bf16;
}

#endif
