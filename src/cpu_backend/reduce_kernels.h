/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The reduction kernels, compiled once per instruction set over the operations of reduce_vector.h. Every lane goes the
 * way docs/numerics.md writes down: widen, combine in rank order, finish, narrow. Only how many lanes go together
 * differs.
 */
#ifndef TPC_CPU_BACKEND_REDUCE_KERNELS_H
#define TPC_CPU_BACKEND_REDUCE_KERNELS_H

#include "cpu_backend/reduce_tables.h"
#include "cpu_backend/reduce_vector.h"

/**
 * Define name(out, in, n, bytes, arg): an accumulator_t from load(address) or widen(words), one rank after the other by
 * combine(accumulator, accumulator), back to words by finish(accumulator, arg). A block is read whole, from every rank,
 * before it is written: out may be one of the inputs. Two vectors a block share one read of the rank's pointer and keep
 * twice as many additions in flight.
 */
#define REDUCE_BODY(name, accumulator_t, load, widen, combine, finish)                                                 \
    INLINE void name(void *out, const void *const *in, int32_t n, size_t bytes, double arg) {                          \
        unsigned char *to = (unsigned char *)out;                                                                      \
        const unsigned char *first = (const unsigned char *)in[0], *second = (const unsigned char *)in[1];             \
        size_t at = 0;                                                                                                 \
        for (; bytes - at >= (size_t)2 * VECTOR_BYTES; at += (size_t)2 * VECTOR_BYTES) {                               \
            accumulator_t a = load(first + at);                                                                        \
            accumulator_t b = load(first + at + VECTOR_BYTES);                                                         \
            a = combine(a, load(second + at));                                                                         \
            b = combine(b, load(second + at + VECTOR_BYTES));                                                          \
            for (int32_t r = 2; r < n; r++) {                                                                          \
                const unsigned char *from = (const unsigned char *)in[r] + at;                                         \
                a = combine(a, load(from));                                                                            \
                b = combine(b, load(from + VECTOR_BYTES));                                                             \
            }                                                                                                          \
            u32v a_words = finish(a, arg), b_words = finish(b, arg);                                                   \
            raw_store(to + at, a_words);                                                                               \
            raw_store(to + at + VECTOR_BYTES, b_words);                                                                \
        }                                                                                                              \
        for (; at < bytes; at += VECTOR_BYTES) {                                                                       \
            size_t part = bytes - at < VECTOR_BYTES ? bytes - at : VECTOR_BYTES;                                       \
            accumulator_t a = widen(raw_load_part(first + at, part));                                                  \
            for (int32_t r = 1; r < n; r++)                                                                            \
                a = combine(a, widen(raw_load_part((const unsigned char *)in[r] + at, part)));                         \
            raw_store_part(to + at, finish(a, arg), part);                                                             \
        }                                                                                                              \
    }

/** A kernel of its own for two ranks, the most frequent group, and one for any number. */
#define REDUCE_KERNEL(name, element_t, accumulator_t, load, widen, combine, finish, arg)                               \
    REDUCE_BODY(name##_body, accumulator_t, load, widen, combine, finish)                                              \
    static void name(void *out, const void *const *in, int32_t n, size_t count) {                                      \
        if (n == 2) {                                                                                                  \
            name##_body(out, in, 2, count * sizeof(element_t), (arg));                                                 \
        } else {                                                                                                       \
            name##_body(out, in, n, count * sizeof(element_t), (arg));                                                 \
        }                                                                                                              \
    }

/** The same where two ranks gain nothing from a kernel of their own. */
#define REDUCE_KERNEL_PLAIN(name, element_t, accumulator_t, load, widen, combine, finish)                              \
    REDUCE_BODY(name##_body, accumulator_t, load, widen, combine, finish)                                              \
    static void name(void *out, const void *const *in, int32_t n, size_t count) {                                      \
        name##_body(out, in, n, count * sizeof(element_t), 0);                                                         \
    }

/* ---------------------------------------------------------------- sum, avg, prod of floats */

INLINE f32v f32_widen(u32v words) {
    return (f32v)words;
}
INLINE f64v f64_widen(u32v words) {
    return (f64v)words;
}
INLINE f32v f32_load(const void *from) {
    return (f32v)raw_load(from);
}
INLINE f64v f64_load(const void *from) {
    return (f64v)raw_load(from);
}
INLINE f32x2v bf16_load(const void *from) {
    return bf16_widen(raw_load(from));
}
INLINE u32v f32_narrow(f32v x) {
    return (u32v)f32_nan_to(x, NAN_F32);
}
INLINE u32v f64_narrow(f64v x) {
    return (u32v)f64_nan_to(x, NAN_F64);
}

INLINE f32v f32_add(f32v a, f32v b) {
    return a + b;
}
INLINE f32v f32_mul(f32v a, f32v b) {
    return a * b;
}
INLINE f64v f64_add(f64v a, f64v b) {
    return a + b;
}
INLINE f64v f64_mul(f64v a, f64v b) {
    return a * b;
}
INLINE f32x2v f32x2_add(f32x2v a, f32x2v b) {
    return (f32x2v){.upper = a.upper + b.upper, .lower = a.lower + b.lower};
}
INLINE f32x2v f32x2_mul(f32x2v a, f32x2v b) {
    return (f32x2v){.upper = a.upper * b.upper, .lower = a.lower * b.lower};
}

/* arg is a small integer or a power of two: exact as a float. */
INLINE f32v f32_scaled(f32v x, double arg) {
    return x * (float)arg;
}
INLINE f32v f32_divided(f32v x, double arg) {
    return x / (float)arg;
}
INLINE f64v f64_scaled(f64v x, double arg) {
    return x * arg;
}
INLINE f64v f64_divided(f64v x, double arg) {
    return x / arg;
}
INLINE f32x2v f32x2_scaled(f32x2v x, double arg) {
    return (f32x2v){.upper = x.upper * (float)arg, .lower = x.lower * (float)arg};
}
INLINE f32x2v f32x2_divided(f32x2v x, double arg) {
    return (f32x2v){.upper = x.upper / (float)arg, .lower = x.lower / (float)arg};
}

/** Dividing by a power of two is multiplying by its inverse, to the last bit, and several times faster. */
#define REDUCE_FLOAT(dtype, element_t, accumulator, accumulator_t)                                                     \
    INLINE u32v dtype##_finish(accumulator_t x, double arg) {                                                          \
        (void)arg;                                                                                                     \
        return dtype##_narrow(x);                                                                                      \
    }                                                                                                                  \
    INLINE u32v dtype##_finish_scaled(accumulator_t x, double arg) {                                                   \
        return dtype##_narrow(accumulator##_scaled(x, arg));                                                           \
    }                                                                                                                  \
    INLINE u32v dtype##_finish_divided(accumulator_t x, double arg) {                                                  \
        return dtype##_narrow(accumulator##_divided(x, arg));                                                          \
    }                                                                                                                  \
    REDUCE_KERNEL(dtype##_sum, element_t, accumulator_t, dtype##_load, dtype##_widen, accumulator##_add,               \
                  dtype##_finish, 0)                                                                                   \
    REDUCE_KERNEL(dtype##_prod, element_t, accumulator_t, dtype##_load, dtype##_widen, accumulator##_mul,              \
                  dtype##_finish, 0)                                                                                   \
    REDUCE_KERNEL(dtype##_avg_scaled, element_t, accumulator_t, dtype##_load, dtype##_widen, accumulator##_add,        \
                  dtype##_finish_scaled, 1.0 / n)                                                                      \
    REDUCE_KERNEL(dtype##_avg_divided, element_t, accumulator_t, dtype##_load, dtype##_widen, accumulator##_add,       \
                  dtype##_finish_divided, n)                                                                           \
    static void dtype##_avg(void *out, const void *const *in, int32_t n, size_t count) {                               \
        if (n & (n - 1)) {                                                                                             \
            dtype##_avg_divided(out, in, n, count);                                                                    \
        } else {                                                                                                       \
            dtype##_avg_scaled(out, in, n, count);                                                                     \
        }                                                                                                              \
    }

REDUCE_FLOAT(f32, float, f32, f32v)
REDUCE_FLOAT(f16, uint16_t, f32x2, f32x2v)
REDUCE_FLOAT(bf16, uint16_t, f32x2, f32x2v)
REDUCE_FLOAT(f64, double, f64, f64v)

/* ---------------------------------------------------------------- integers */

#define REDUCE_FINISH_BITS(element)                                                                                    \
    INLINE u32v element##_bits(element##v x, double arg) {                                                             \
        (void)arg;                                                                                                     \
        return (u32v)x;                                                                                                \
    }                                                                                                                  \
    INLINE element##v element##_widen(u32v words) {                                                                    \
        return (element##v)words;                                                                                      \
    }                                                                                                                  \
    INLINE element##v element##_load(const void *from) {                                                               \
        return (element##v)raw_load(from);                                                                             \
    }
REDUCE_FINISH_BITS(u8)
REDUCE_FINISH_BITS(i8)
REDUCE_FINISH_BITS(u32)
REDUCE_FINISH_BITS(i32)
REDUCE_FINISH_BITS(u64)
REDUCE_FINISH_BITS(i64)

/** Modulo 2^bits, sum and product of signed and of unsigned numbers are the same bits; in C only unsigned ones wrap. */
#define REDUCE_WRAP(element, element_t)                                                                                \
    INLINE element##v element##_add(element##v a, element##v b) {                                                      \
        return a + b;                                                                                                  \
    }                                                                                                                  \
    INLINE element##v element##_mul(element##v a, element##v b) {                                                      \
        return a * b;                                                                                                  \
    }                                                                                                                  \
    REDUCE_KERNEL_PLAIN(element##_sum, element_t, element##v, element##_load, element##_widen, element##_add,          \
                        element##_bits)                                                                                \
    REDUCE_KERNEL_PLAIN(element##_prod, element_t, element##v, element##_load, element##_widen, element##_mul,         \
                        element##_bits)
REDUCE_WRAP(u8, uint8_t)
REDUCE_WRAP(u32, uint32_t)
REDUCE_WRAP(u64, uint64_t)

#define REDUCE_MAX_MIN(element)                                                                                        \
    INLINE element##v element##_greater(element##v a, element##v b) {                                                  \
        return SELECT(element##v, a > b, a, b);                                                                        \
    }                                                                                                                  \
    INLINE element##v element##_lesser(element##v a, element##v b) {                                                   \
        return SELECT(element##v, a < b, a, b);                                                                        \
    }
REDUCE_MAX_MIN(u8)
REDUCE_MAX_MIN(i8)
REDUCE_MAX_MIN(i16)
REDUCE_MAX_MIN(u32)
REDUCE_MAX_MIN(i32)
REDUCE_MAX_MIN(u64)
REDUCE_MAX_MIN(i64)

#define REDUCE_INTEGER(element, element_t)                                                                             \
    REDUCE_KERNEL_PLAIN(element##_max, element_t, element##v, element##_load, element##_widen, element##_greater,      \
                        element##_bits)                                                                                \
    REDUCE_KERNEL_PLAIN(element##_min, element_t, element##v, element##_load, element##_widen, element##_lesser,       \
                        element##_bits)
REDUCE_INTEGER(u8, uint8_t)
REDUCE_INTEGER(i8, int8_t)
REDUCE_INTEGER(u32, uint32_t)
REDUCE_INTEGER(i32, int32_t)
REDUCE_INTEGER(u64, uint64_t)
REDUCE_INTEGER(i64, int64_t)

/* ---------------------------------------------------------------- max, min of floats */

/**
 * Floats as signed integers in the floats' order, -0 below +0: the magnitude of negative ones is inverted. NaN becomes
 * the greatest of all for max, the least for min, so it wins. The greatest integer is the canonical NaN's own, the
 * least is not.
 */
#define REDUCE_ORDERED(dtype, element_t, element, infinity, greatest)                                                  \
    INLINE element##v dtype##_turn(element##v bits) {                                                                  \
        return bits ^ ((bits < 0) & (greatest));                                                                       \
    }                                                                                                                  \
    INLINE element##v dtype##_key_max(u32v words) {                                                                    \
        element##v bits = (element##v)words;                                                                           \
        element##v is_nan = (bits & (greatest)) > (infinity);                                                          \
        return (dtype##_turn(bits) & ~is_nan) | (is_nan & (greatest));                                                 \
    }                                                                                                                  \
    INLINE element##v dtype##_key_min(u32v words) {                                                                    \
        element##v bits = (element##v)words;                                                                           \
        element##v is_nan = (bits & (greatest)) > (infinity);                                                          \
        return (dtype##_turn(bits) & ~is_nan) | (is_nan & ~(greatest));                                                \
    }                                                                                                                  \
    INLINE element##v dtype##_load_max(const void *from) {                                                             \
        return dtype##_key_max(raw_load(from));                                                                        \
    }                                                                                                                  \
    INLINE element##v dtype##_load_min(const void *from) {                                                             \
        return dtype##_key_min(raw_load(from));                                                                        \
    }                                                                                                                  \
    INLINE u32v dtype##_unkey_max(element##v key, double arg) {                                                        \
        (void)arg;                                                                                                     \
        return (u32v)dtype##_turn(key);                                                                                \
    }                                                                                                                  \
    INLINE u32v dtype##_unkey_min(element##v key, double arg) {                                                        \
        (void)arg;                                                                                                     \
        element##v is_nan = key == ~(greatest);                                                                        \
        return (u32v)((dtype##_turn(key) & ~is_nan) | (is_nan & (greatest)));                                          \
    }                                                                                                                  \
    REDUCE_KERNEL_PLAIN(dtype##_max, element_t, element##v, dtype##_load_max, dtype##_key_max, element##_greater,      \
                        dtype##_unkey_max)                                                                             \
    REDUCE_KERNEL_PLAIN(dtype##_min, element_t, element##v, dtype##_load_min, dtype##_key_min, element##_lesser,       \
                        dtype##_unkey_min)

REDUCE_ORDERED(f16, uint16_t, i16, (int16_t)0x7C00, (int16_t)0x7FFF)
REDUCE_ORDERED(bf16, uint16_t, i16, (int16_t)0x7F80, (int16_t)0x7FFF)
REDUCE_ORDERED(f32, float, i32, 0x7F800000, 0x7FFFFFFF)
REDUCE_ORDERED(f64, double, i64, INT64_C(0x7FF0000000000000), INT64_C(0x7FFFFFFFFFFFFFFF))

/* ---------------------------------------------------------------- table */

#define REDUCE_ROW_FLOAT(dtype)                                                                                        \
    { dtype##_sum, dtype##_avg, dtype##_max, dtype##_min, dtype##_prod }
#define REDUCE_ROW_INTEGER(element, wrap)                                                                              \
    { wrap##_sum, NULL, element##_max, element##_min, wrap##_prod }

static tpc_reduce_fn_t reduce_find(tpcomm_dtype_t dtype, tpcomm_op_t op) {
    static const tpc_reduce_fn_t kernels[][TPCOMM_PROD] = {
        [TPCOMM_F32] = REDUCE_ROW_FLOAT(f32),        [TPCOMM_F16] = REDUCE_ROW_FLOAT(f16),
        [TPCOMM_BF16] = REDUCE_ROW_FLOAT(bf16),      [TPCOMM_F64] = REDUCE_ROW_FLOAT(f64),
        [TPCOMM_I8] = REDUCE_ROW_INTEGER(i8, u8),    [TPCOMM_U8] = REDUCE_ROW_INTEGER(u8, u8),
        [TPCOMM_I32] = REDUCE_ROW_INTEGER(i32, u32), [TPCOMM_U32] = REDUCE_ROW_INTEGER(u32, u32),
        [TPCOMM_I64] = REDUCE_ROW_INTEGER(i64, u64), [TPCOMM_U64] = REDUCE_ROW_INTEGER(u64, u64),
    };
    if (dtype < 0 || (size_t)dtype >= sizeof(kernels) / sizeof(kernels[0])) return NULL;
    if (op < TPCOMM_SUM || op > TPCOMM_PROD) return NULL;
    return kernels[dtype][op - TPCOMM_SUM];
}

#endif
