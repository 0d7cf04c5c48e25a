/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Vectors of VECTOR_BYTES and the operations on them that the kernels (reduce_kernels.h) are made of, in the vector
 * extension that gcc and clang share. A file of one instruction set defines VECTOR_BYTES, includes this, replaces what
 * the instruction set does better, and includes the kernels.
 *
 * A 32-bit word of memory holds two 16-bit floats. They are widened into two vectors, one of the upper and one of the
 * lower halves of all words, so that neither direction needs a shuffle and the byte order does not matter.
 */
#ifndef TPC_CPU_BACKEND_REDUCE_VECTOR_H
#define TPC_CPU_BACKEND_REDUCE_VECTOR_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define VECTOR(element) element __attribute__((vector_size(VECTOR_BYTES)))
typedef VECTOR(uint8_t) u8v;
typedef VECTOR(int8_t) i8v;
typedef VECTOR(uint16_t) u16v;
typedef VECTOR(int16_t) i16v;
typedef VECTOR(uint32_t) u32v;
typedef VECTOR(int32_t) i32v;
typedef VECTOR(uint64_t) u64v;
typedef VECTOR(int64_t) i64v;
typedef VECTOR(float) f32v;
typedef VECTOR(double) f64v;

/** A vector of 16-bit floats, widened. */
typedef struct {
    f32v upper, lower;
} f32x2v;

/** How a vector lies in somebody's memory: of any type, at any address. */
typedef uint32_t raw_memory_t __attribute__((vector_size(VECTOR_BYTES), aligned(1), may_alias));

#define INLINE static inline __attribute__((always_inline, unused))

INLINE u32v raw_load(const void *from) {
    return (u32v)(*(const raw_memory_t *)from);
}
INLINE void raw_store(void *to, u32v v) {
    *(raw_memory_t *)to = (raw_memory_t)v;
}

/** Every lane holds x. */
INLINE u32v u32_splat(uint32_t x) {
    return x - (u32v){0};
}

/** Lanes of a where mask is ones, of b where it is zeros. */
#define SELECT(type, mask, a, b) ((type)(((u32v)(mask) & (u32v)(a)) | (~(u32v)(mask) & (u32v)(b))))

/* ---------------------------------------------------------------- NaN */

/* The one NaN. Narrowed to f16 by hardware it is 0x7FFF; bf16 has one of its own, which rounding leaves alone. */
#define NAN_F32      0x7FFFFFFFu
#define NAN_F32_BF16 0x7FFF0000u
#define NAN_F64      0x7FFFFFFFFFFFFFFFu

INLINE f32v portable_f32_nan_to(f32v x, uint32_t nan_bits) {
    return SELECT(f32v, x == x, x, u32_splat(nan_bits));
}
INLINE f64v portable_f64_nan_to(f64v x, uint64_t nan_bits) {
    return SELECT(f64v, x == x, x, nan_bits - (u64v){0});
}

/* ---------------------------------------------------------------- bf16 */

INLINE f32x2v bf16_widen(u32v words) {
    return (f32x2v){.upper = (f32v)(words & 0xFFFF0000u), .lower = (f32v)(words << 16)};
}

/* Adding just under half a unit carries into the upper 16 bits where the lower ones ask for it; the last kept bit
   decides a tie, for even. */
INLINE u32v bf16_round(f32v x) {
    u32v bits = (u32v)portable_f32_nan_to(x, NAN_F32_BF16);
    return bits + 0x7FFFu + ((bits >> 16) & 1u);
}
INLINE u32v portable_bf16_narrow(f32x2v x) {
    return (bf16_round(x.upper) & 0xFFFF0000u) | (bf16_round(x.lower) >> 16);
}

/* ---------------------------------------------------------------- f16 */

/* half: an f16 in the lower half of each word. Exponent and mantissa move to f32's place, then the bias is mended. */
INLINE f32v f16_widen_half(u32v half) {
    const uint32_t exponent_mask = 0x1Fu << 23;
    u32v magnitude = (half & 0x7FFFu) << 13;
    u32v exponent = magnitude & exponent_mask;
    u32v normal = magnitude + (112u << 23);
    u32v special = magnitude + (224u << 23); /* exponent 31, infinity and NaN, becomes 255 */
    /* A subnormal is its mantissa times 2^-24: as the mantissa of a number in [2^-14, 2^-13), less 2^-14. Exact. */
    u32v subnormal = (u32v)((f32v)(magnitude + (113u << 23)) - 0x1p-14f);
    u32v bits = SELECT(u32v, exponent == 0, subnormal, SELECT(u32v, exponent == exponent_mask, special, normal));
    return (f32v)(bits | ((half & 0x8000u) << 16));
}
INLINE f32x2v portable_f16_widen(u32v words) {
    return (f32x2v){.upper = f16_widen_half(words >> 16), .lower = f16_widen_half(words & 0xFFFFu)};
}

INLINE f32x2v portable_f16_load(const void *from) {
    return portable_f16_widen(raw_load(from));
}

INLINE u32v portable_f16_narrow_half(f32v x) {
    u32v bits = (u32v)x;
    u32v magnitude = bits & 0x7FFFFFFFu;
    i32v ordered = (i32v)magnitude; /* signed comparisons are the cheap ones */
    /* As bf16_round, mending the bias; a carry out of the mantissa raises the exponent, up to infinity. */
    u32v normal = (magnitude - (112u << 23) + 0xFFFu + ((magnitude >> 13) & 1u)) >> 13;
    /* Below 2^-14: next to 0.5 a unit of f32 is a subnormal unit of f16, so this addition does the rounding. */
    u32v subnormal = (u32v)((f32v)magnitude + 0.5f) - 0x3F000000u;
    u32v half = SELECT(u32v, ordered < 113 << 23, subnormal, normal);
    half = SELECT(u32v, ordered < 143 << 23, half, u32_splat(0x7C00u)); /* 2^16 and more */
    half |= (bits >> 16) & 0x8000u;
    return SELECT(u32v, ordered > 0x7F800000, u32_splat(0x7FFFu), half);
}
INLINE u32v portable_f16_narrow(f32x2v x) {
    return (portable_f16_narrow_half(x.upper) << 16) | portable_f16_narrow_half(x.lower);
}

/* ---------------------------------------------------------------- replaceable: #undef, then define anew */

#define raw_load_part  portable_raw_load_part
#define raw_store_part portable_raw_store_part
#define f32_nan_to     portable_f32_nan_to
#define f64_nan_to     portable_f64_nan_to
#define bf16_narrow    portable_bf16_narrow
#define f16_load       portable_f16_load
#define f16_widen      portable_f16_widen
#define f16_narrow     portable_f16_narrow

/** The first bytes of a vector, 1 to VECTOR_BYTES, zeros behind them. Touches no memory past them. */
INLINE u32v portable_raw_load_part(const void *from, size_t bytes) {
    u32v v = {0};
    memcpy(&v, from, bytes);
    return v;
}
INLINE void portable_raw_store_part(void *to, u32v v, size_t bytes) {
    memcpy(to, &v, bytes);
}

#endif
