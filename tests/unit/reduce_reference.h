/* SPDX-License-Identifier: Apache-2.0 */
/**
 * One element of a reduction, written from docs/numerics.md alone: every number as an exact double, every rounding
 * spelled out. Shares no code with src/cpu_backend. The float environment must be the default one.
 */
#ifndef TPC_TESTS_REDUCE_REFERENCE_H
#define TPC_TESTS_REDUCE_REFERENCE_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "base/status.h"
#include "check.h"

/** Floats of up to 32 bits, each a subset of double. */
typedef struct {
    int digits;     /* of the significand, with the leading one */
    int least_unit; /* the smallest subnormal is 2^least_unit */
    uint32_t infinity, sign, nan;
} reference_format_t;

static inline reference_format_t reference_format(tpcomm_dtype_t dtype) {
    if (dtype == TPCOMM_F16) return (reference_format_t){11, -24, 0x7C00, 0x8000, 0x7FFF};
    if (dtype == TPCOMM_BF16) return (reference_format_t){8, -133, 0x7F80, 0x8000, 0x7FFF};
    return (reference_format_t){24, -149, 0x7F800000, 0x80000000, 0x7FFFFFFF};
}

static inline double reference_decode(reference_format_t format, uint32_t bits) {
    uint32_t magnitude = bits & ~format.sign, hidden = (uint32_t)1 << (format.digits - 1);
    double value;
    if (magnitude > format.infinity) {
        value = NAN;
    } else if (magnitude == format.infinity) {
        value = INFINITY;
    } else if (magnitude < hidden) {
        value = ldexp(magnitude, format.least_unit);
    } else {
        int exponent = (int)(magnitude >> (format.digits - 1));
        value = ldexp(hidden | (magnitude & (hidden - 1)), format.least_unit + exponent - 1);
    }
    return bits & format.sign ? -value : value;
}

/** Round to the nearest number of the format, ties to the even one. */
static inline uint32_t reference_encode(reference_format_t format, double value) {
    if (isnan(value)) return format.nan;
    uint32_t sign = signbit(value) ? format.sign : 0;
    double magnitude = fabs(value);
    if (magnitude == 0) return sign;
    if (isinf(magnitude)) return sign | format.infinity;
    int exponent;
    frexp(magnitude, &exponent);
    int unit = exponent - format.digits;
    if (unit < format.least_unit) unit = format.least_unit;
    double units = rint(ldexp(magnitude, -unit)); /* an integer of at most digits bits, or the next power of two */
    uint64_t bits = ((uint64_t)(unit - format.least_unit) << (format.digits - 1)) + (uint64_t)units;
    return sign | (bits > format.infinity ? format.infinity : (uint32_t)bits);
}

/** An fp32 operation: two fp32 numbers in double give a result whose rounding to fp32 is that of the exact one. */
static inline double reference_f32(double value) {
    return (double)(float)value;
}

static inline double reference_max(double a, double b) {
    if (isnan(a) || isnan(b)) return NAN;
    if (a == 0 && b == 0) return signbit(a) && signbit(b) ? -0.0 : 0.0;
    return a > b ? a : b;
}

static inline double reference_min(double a, double b) {
    if (isnan(a) || isnan(b)) return NAN;
    if (a == 0 && b == 0) return signbit(a) || signbit(b) ? -0.0 : 0.0;
    return a < b ? a : b;
}

static inline double reference_combine(tpcomm_op_t op, double a, double b) {
    switch (op) {
    case TPCOMM_MAX:
        return reference_max(a, b);
    case TPCOMM_MIN:
        return reference_min(a, b);
    case TPCOMM_PROD:
        return a * b;
    default:
        return a + b;
    }
}

/** values: rank 0's first. Returns the bits of the result. */
static inline uint32_t reference_float(tpcomm_dtype_t dtype, tpcomm_op_t op, const double *values, int n) {
    double result = values[0];
    for (int r = 1; r < n; r++) result = reference_f32(reference_combine(op, result, values[r]));
    if (op == TPCOMM_AVG) result = reference_f32(result / n);
    return reference_encode(reference_format(dtype), result);
}

static inline uint64_t reference_f64(tpcomm_op_t op, const double *values, int n) {
    double result = values[0];
    for (int r = 1; r < n; r++) result = reference_combine(op, result, values[r]);
    if (op == TPCOMM_AVG) result /= n;
    uint64_t bits;
    memcpy(&bits, &result, sizeof(bits));
    return isnan(result) ? 0x7FFFFFFFFFFFFFFFu : bits;
}

/** values: sign-extended or zero-extended to 64 bits. The result's lower bits count. */
static inline uint64_t reference_integer(bool is_signed, tpcomm_op_t op, const uint64_t *values, int n) {
    uint64_t result = values[0];
    for (int r = 1; r < n; r++) {
        uint64_t other = values[r];
        bool less = is_signed ? (int64_t)result < (int64_t)other : result < other;
        if (op == TPCOMM_SUM) result += other;
        if (op == TPCOMM_PROD) result *= other;
        if (op == TPCOMM_MAX) result = less ? other : result;
        if (op == TPCOMM_MIN) result = less ? result : other;
    }
    return result;
}

static inline uint64_t reference_read(const void *from, size_t index, size_t element_bytes, bool is_signed) {
    const unsigned char *at = (const unsigned char *)from + index * element_bytes;
    uint8_t u8;
    uint16_t u16;
    uint32_t u32;
    uint64_t u64;
    switch (element_bytes) {
    case 1:
        memcpy(&u8, at, 1);
        return is_signed ? (uint64_t)(int8_t)u8 : u8;
    case 2:
        memcpy(&u16, at, 2);
        return is_signed ? (uint64_t)(int16_t)u16 : u16;
    case 4:
        memcpy(&u32, at, 4);
        return is_signed ? (uint64_t)(int32_t)u32 : u32;
    default:
        memcpy(&u64, at, 8);
        return u64;
    }
}

static inline void reference_write(void *to, size_t index, size_t element_bytes, uint64_t bits) {
    unsigned char *at = (unsigned char *)to + index * element_bytes;
    uint8_t u8 = (uint8_t)bits;
    uint16_t u16 = (uint16_t)bits;
    uint32_t u32 = (uint32_t)bits;
    if (element_bytes == 1) memcpy(at, &u8, 1);
    if (element_bytes == 2) memcpy(at, &u16, 2);
    if (element_bytes == 4) memcpy(at, &u32, 4);
    if (element_bytes == 8) memcpy(at, &bits, 8);
}

/** out[i] = op over r of in[r][i]; out is none of the inputs. */
static inline void reference_reduce(tpcomm_dtype_t dtype, tpcomm_op_t op, void *out, const void *const *in, int n,
                                    size_t count) {
    size_t element_bytes = tpcomm_dtype_size(dtype);
    bool is_float = tpc_dtype_is_float(dtype);
    bool is_signed = dtype == TPCOMM_I8 || dtype == TPCOMM_I32 || dtype == TPCOMM_I64;
    double values[TPCOMM_MAX_RANKS] = {0};
    uint64_t integers[TPCOMM_MAX_RANKS] = {0};
    for (size_t i = 0; i < count; i++) {
        for (int r = 0; r < n; r++) {
            integers[r] = reference_read(in[r], i, element_bytes, is_signed);
            if (dtype == TPCOMM_F64) {
                memcpy(&values[r], &integers[r], sizeof(double));
            } else if (is_float) {
                values[r] = reference_decode(reference_format(dtype), (uint32_t)integers[r]);
            }
        }
        uint64_t result;
        if (dtype == TPCOMM_F64) {
            result = reference_f64(op, values, n);
        } else if (is_float) {
            result = reference_float(dtype, op, values, n);
        } else {
            result = reference_integer(is_signed, op, integers, n);
        }
        reference_write(out, i, element_bytes, result);
    }
}

/** Fails with the first element that differs. */
static inline void reference_check(const char *what, tpcomm_dtype_t dtype, tpcomm_op_t op, const void *got,
                                   const void *want, const void *const *in, int n, size_t count) {
    size_t element_bytes = tpcomm_dtype_size(dtype);
    if (!memcmp(got, want, count * element_bytes)) return;
    size_t i = 0;
    while (reference_read(got, i, element_bytes, false) == reference_read(want, i, element_bytes, false)) i++;
    fprintf(stderr, "%s %s %s, %d ranks, %zu elements: element %zu is 0x%" PRIx64 ", want 0x%" PRIx64 "; in:", what,
            tpcomm_dtype_name(dtype), tpcomm_op_name(op), n, count, i, reference_read(got, i, element_bytes, false),
            reference_read(want, i, element_bytes, false));
    for (int r = 0; r < n; r++) fprintf(stderr, " 0x%" PRIx64, reference_read(in[r], i, element_bytes, false));
    fputc('\n', stderr);
    FAIL("wrong result");
}

/** The test's own pseudo-random numbers (splitmix64). */
static inline uint64_t reference_random(uint64_t *state) {
    uint64_t z = *state += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

#endif
