/* SPDX-License-Identifier: Apache-2.0 */
#include "reference.h"

#include <math.h>
#include <string.h>

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

static uint64_t double_bits(double value) {
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static double bits_double(uint64_t bits) {
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* ---------------------------------------------------------------- 16-bit floats */

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

uint32_t bench_encode(tpcomm_dtype_t dtype, float value) {
    if (dtype == TPCOMM_BF16) return encode_bf16(value);
    return dtype == TPCOMM_F16 ? encode_f16(value) : float_bits(value);
}

float bench_decode(tpcomm_dtype_t dtype, uint32_t bits) {
    if (dtype == TPCOMM_BF16) return bits_float(bits << 16);
    return dtype == TPCOMM_F16 ? decode_f16(bits) : bits_float(bits);
}

/* ---------------------------------------------------------------- the three kinds of arithmetic */

static uint64_t reduce_f64(tpcomm_op_t op, const uint64_t *bits, int32_t ranks) {
    double sum = bits_double(bits[0]);
    for (int32_t rank = 1; rank < ranks; rank++) {
        double next = bits_double(bits[rank]);
        if (op == TPCOMM_SUM || op == TPCOMM_AVG)
            sum += next;
        else if (op == TPCOMM_PROD)
            sum *= next;
        else if (isnan(next) || isnan(sum))
            sum = NAN;
        else if (next == sum) /* zeros of both signs */
            sum = (op == TPCOMM_MAX) == (signbit(sum) != 0) ? next : sum;
        else
            sum = (op == TPCOMM_MAX) == (next > sum) ? next : sum;
    }
    if (op == TPCOMM_AVG) sum /= (double)ranks;
    return isnan(sum) ? UINT64_C(0x7FFFFFFFFFFFFFFF) : double_bits(sum);
}

static uint64_t reduce_float(tpcomm_dtype_t dtype, tpcomm_op_t op, const uint64_t *bits, int32_t ranks) {
    float sum = bench_decode(dtype, (uint32_t)bits[0]);
    for (int32_t rank = 1; rank < ranks; rank++) {
        float next = bench_decode(dtype, (uint32_t)bits[rank]);
        if (op == TPCOMM_SUM || op == TPCOMM_AVG)
            sum += next;
        else if (op == TPCOMM_PROD)
            sum *= next;
        else if (isnan(next) || isnan(sum))
            sum = NAN;
        else if (next == sum)
            sum = (op == TPCOMM_MAX) == (signbit(sum) != 0) ? next : sum;
        else
            sum = (op == TPCOMM_MAX) == (next > sum) ? next : sum;
    }
    if (op == TPCOMM_AVG) sum /= (float)ranks;
    if (isnan(sum)) return dtype == TPCOMM_F32 ? 0x7FFFFFFF : 0x7FFF;
    return bench_encode(dtype, sum);
}

/** Two's complement of so many bytes, as 64 bits. */
static uint64_t extend(uint64_t bits, size_t bytes, int is_signed) {
    unsigned shift = 64 - 8 * (unsigned)bytes;
    uint64_t top = bits << shift;
    if (!is_signed || !(top >> 63)) return top >> shift;
    return shift == 0 ? top : top >> shift | ~UINT64_C(0) << (64 - shift);
}

static uint64_t reduce_whole(tpcomm_dtype_t dtype, tpcomm_op_t op, const uint64_t *bits, int32_t ranks) {
    size_t bytes = tpcomm_dtype_size(dtype);
    int is_signed = dtype == TPCOMM_I8 || dtype == TPCOMM_I32 || dtype == TPCOMM_I64;
    uint64_t bias = is_signed ? UINT64_C(1) << 63 : 0; /* makes signed order the unsigned one */
    uint64_t sum = extend(bits[0], bytes, is_signed);
    for (int32_t rank = 1; rank < ranks; rank++) {
        uint64_t next = extend(bits[rank], bytes, is_signed);
        if (op == TPCOMM_SUM)
            sum += next;
        else if (op == TPCOMM_PROD)
            sum *= next;
        else
            sum = (op == TPCOMM_MAX) == ((next ^ bias) > (sum ^ bias)) ? next : sum;
    }
    return extend(sum, bytes, 0);
}

uint64_t bench_reduce(tpcomm_dtype_t dtype, tpcomm_op_t op, const uint64_t *bits, int32_t ranks) {
    if (ranks == 1) return bits[0]; /* a copy */
    if (dtype == TPCOMM_F64) return reduce_f64(op, bits, ranks);
    if (dtype == TPCOMM_F32 || dtype == TPCOMM_F16 || dtype == TPCOMM_BF16) return reduce_float(dtype, op, bits, ranks);
    return reduce_whole(dtype, op, bits, ranks);
}

/** Sums of value[0 .. 2 strides - 1] by halving strides, into value[0]. */
static float tree(float *value, size_t stride) {
    for (; stride > 0; stride /= 2)
        for (size_t i = 0; i < stride; i++) value[i] += value[i + stride];
    return value[0];
}

/** The one order in which squares are added: eight in a row, then 32 such by a tree, then up to 64 of these by another.
 */
static float sum_of_squares(const float *x, size_t hidden) {
    enum { VECTOR = 8, VECTORS = 32, GROUPS = 64 };
    float groups[GROUPS] = {0};
    for (size_t g = 0; g * VECTOR * VECTORS < hidden; g++) {
        float vectors[VECTORS] = {0};
        for (size_t v = 0; v < VECTORS && (g * VECTORS + v) * VECTOR < hidden; v++) {
            const float *at = x + (g * VECTORS + v) * VECTOR;
            vectors[v] = at[0] * at[0];
            for (size_t i = 1; i < VECTOR; i++) vectors[v] += at[i] * at[i];
        }
        groups[g] = tree(vectors, VECTORS / 2);
    }
    return tree(groups, GROUPS / 2);
}

void bench_norm_row(tpcomm_dtype_t dtype, size_t hidden, float eps, const uint64_t *sum, const uint64_t *weight,
                    uint64_t *residual, uint64_t *out) {
    float x[BENCH_HIDDEN_MAX];
    for (size_t i = 0; i < hidden; i++) {
        float added = bench_decode(dtype, (uint32_t)sum[i]) + bench_decode(dtype, (uint32_t)residual[i]);
        residual[i] = bench_encode(dtype, added);
        x[i] = bench_decode(dtype, (uint32_t)residual[i]);
    }
    float mean = sum_of_squares(x, hidden) / (float)hidden;
    float inverse = (float)(1.0 / sqrt((double)(mean + eps)));
    for (size_t i = 0; i < hidden; i++) {
        float scaled = x[i] * inverse;
        out[i] = bench_encode(dtype, scaled * bench_decode(dtype, (uint32_t)weight[i]));
    }
}

uint64_t bench_whole(tpcomm_dtype_t dtype, uint32_t value) {
    if (dtype == TPCOMM_F64) return double_bits(value);
    if (dtype == TPCOMM_F32 || dtype == TPCOMM_F16 || dtype == TPCOMM_BF16) return bench_encode(dtype, (float)value);
    return value;
}
