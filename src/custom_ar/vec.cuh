/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Vectors of 16 bytes: loading and storing them at any alignment, and the arithmetic of docs/numerics.md on them. The
 * wire layout depends on the message alone: vector i is bytes 16 i to 16 i + 15 of it, padded with zeros.
 */
#ifndef TPC_CUSTOM_AR_VEC_CUH
#define TPC_CUSTOM_AR_VEC_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <string.h>

#include "signal.cuh"
#include "tpcomm.h"

struct vec_t {
    uint32_t word[4];
};

/* ------------------------------------------------------------------ memory of the caller */

/** bytes of the message from byte `at` on, one by one: the last vector, where 16 would go past the end. */
TPC_DEVICE vec_t load_partial(const unsigned char *in, uint64_t at, uint64_t end) {
    vec_t v;
#pragma unroll
    for (int w = 0; w < 4; w++) {
        uint32_t word = 0;
#pragma unroll
        for (int b = 0; b < 4; b++) {
            uint64_t byte = at + 4 * w + b;
            if (byte < end) word |= (uint32_t)in[byte] << (8 * b);
        }
        v.word[w] = word;
    }
    return v;
}

/** 16 bytes at `at`, of a message of `end` bytes. A misaligned message is read by aligned words and shifted. */
TPC_DEVICE vec_t load_vec(const unsigned char *in, uint64_t at, uint64_t end) {
    const unsigned char *from = in + at;
    unsigned shift = (unsigned)((uintptr_t)from & 3u);
    vec_t v;
    if (at + 16 + (shift != 0 ? 4 : 0) > end) return load_partial(in, at, end);
    if (((uintptr_t)from & 15u) == 0) {
        uint4 q = *(const uint4 *)from;
        v.word[0] = q.x, v.word[1] = q.y, v.word[2] = q.z, v.word[3] = q.w;
        return v;
    }
    const uint32_t *words = (const uint32_t *)(from - shift);
    uint32_t low = edge_load(words, shift, 4);
#pragma unroll
    for (int w = 0; w < 3; w++) {
        uint32_t high = words[w + 1];
        v.word[w] = __funnelshift_r(low, high, 8 * shift);
        low = high;
    }
    v.word[3] = __funnelshift_r(low, shift != 0 ? edge_load(words + 4, 0, shift) : 0, 8 * shift);
    return v;
}

/** The tail of a message of T: less than 16 bytes, of an aligned vector. By words, and at last half of one. */
template <typename T> TPC_DEVICE vec_t load_tail(const unsigned char *from, uint32_t bytes) {
    vec_t v;
#pragma unroll
    for (uint32_t w = 0; w < 4; w++) {
        v.word[w] = 0;
        if (4 * w + 4 <= bytes)
            v.word[w] = ((const uint32_t *)from)[w];
        else if (sizeof(T) == 2 && 4 * w < bytes)
            v.word[w] = ((const uint16_t *)from)[2 * w];
    }
    return v;
}

template <typename T> TPC_DEVICE void store_tail(unsigned char *to, uint32_t bytes, const vec_t &v) {
    if (TPC_FAULT(tail_stored_whole)) bytes = 16;
#pragma unroll
    for (uint32_t w = 0; w < 4; w++) {
        if (4 * w + 4 <= bytes)
            ((uint32_t *)to)[w] = v.word[w];
        else if (sizeof(T) == 2 && 4 * w < bytes)
            ((uint16_t *)to)[2 * w] = (uint16_t)v.word[w];
    }
}

TPC_DEVICE void store_vec(unsigned char *out, uint64_t at, uint64_t end, vec_t v) {
    unsigned char *to = out + at;
    unsigned misalign = (unsigned)((uintptr_t)to & 15u);
    if (at + 16 > end && !TPC_FAULT(tail_stored_whole)) {
#pragma unroll
        for (int b = 0; b < 16; b++)
            if (at + b < end) to[b] = (unsigned char)(v.word[b / 4] >> (8 * (b % 4)));
    } else if (misalign == 0) {
        *(uint4 *)to = make_uint4(v.word[0], v.word[1], v.word[2], v.word[3]);
    } else if (misalign % 4 == 0) {
#pragma unroll
        for (int w = 0; w < 4; w++) ((uint32_t *)to)[w] = v.word[w];
    } else if (misalign % 2 == 0) {
#pragma unroll
        for (int h = 0; h < 8; h++) ((uint16_t *)to)[h] = (uint16_t)(v.word[h / 2] >> (16 * (h % 2)));
    } else {
#pragma unroll
        for (int b = 0; b < 16; b++) to[b] = (unsigned char)(v.word[b / 4] >> (8 * (b % 4)));
    }
}

/* ------------------------------------------------------------------ floats: fp32 accumulation */

#define TPC_CANONICAL_F32 0x7FFFFFFFu
#define TPC_CANONICAL_F64 0x7FFFFFFFFFFFFFFFull

/** How an element type lies in a vector: elements, and to and from fp32. COSTLY: by a conversion, not by moving bits.
 */
template <typename T> struct element_t;

template <> struct element_t<float> {
    enum { PER_VEC = 4, COSTLY = 0 };
    static TPC_DEVICE float get(const vec_t &v, int i) { return __uint_as_float(v.word[i]); }
    static TPC_DEVICE void put(vec_t &v, int i, float x) {
        v.word[i] = isnan(x) ? TPC_CANONICAL_F32 : __float_as_uint(x);
    }
    static constexpr uint32_t NAN_WORD = TPC_CANONICAL_F32;
};

template <> struct element_t<__nv_bfloat16> {
    enum { PER_VEC = 8, COSTLY = 0 };
    static TPC_DEVICE float get(const vec_t &v, int i) {
        uint32_t word = v.word[i / 2];
        return __uint_as_float(i % 2 == 0 ? word << 16 : word & 0xFFFF0000u);
    }
    /* The conversion turns every NaN into 0x7FFF. */
    static TPC_DEVICE void put(vec_t &v, int i, float x) {
        uint32_t bits = __bfloat16_as_ushort(__float2bfloat16_rn(x));
        v.word[i / 2] = i % 2 == 0 ? bits : v.word[i / 2] | bits << 16;
    }
    static constexpr uint32_t NAN_WORD = 0x7FFF7FFFu;
};

template <> struct element_t<__half> {
    enum { PER_VEC = 8, COSTLY = 1 };
    static TPC_DEVICE float get(const vec_t &v, int i) {
        return __half2float(__ushort_as_half((unsigned short)(v.word[i / 2] >> (16 * (i % 2)))));
    }
    static TPC_DEVICE void put(vec_t &v, int i, float x) {
        uint32_t bits = __half_as_ushort(__float2half_rn(x));
        v.word[i / 2] = i % 2 == 0 ? bits : v.word[i / 2] | bits << 16;
    }
    static constexpr uint32_t NAN_WORD = 0x7FFF7FFFu;
};

/** Larger or smaller; NaN wins; of two zeros the positive is larger. */
TPC_DEVICE float pick(float a, float b, bool larger) {
    if (isnan(a) || isnan(b)) return __uint_as_float(TPC_CANONICAL_F32);
    if (a == b) {
        uint32_t x = __float_as_uint(a), y = __float_as_uint(b);
        return __uint_as_float(larger ? x & y : x | y); /* differ in the sign of a zero at most */
    }
    return (a > b) == larger ? a : b;
}

TPC_DEVICE float combine(float a, float b, int op) {
    if (op == TPCOMM_SUM || op == TPCOMM_AVG) return __fadd_rn(a, b);
    if (op == TPCOMM_PROD) return __fmul_rn(a, b);
    return pick(a, b, op == TPCOMM_MAX);
}

/* ------------------------------------------------------------------ vectors of floats */

template <typename T> TPC_DEVICE void add_vec(float *sum, const vec_t &v, bool first) {
#pragma unroll
    for (int e = 0; e < element_t<T>::PER_VEC; e++) {
        float x = element_t<T>::get(v, e);
        sum[e] = first ? x : __fadd_rn(sum[e], x);
    }
}

template <typename T> TPC_DEVICE void combine_vec(float *sum, const vec_t &v, bool first, int op) {
#pragma unroll
    for (int e = 0; e < element_t<T>::PER_VEC; e++) {
        float x = element_t<T>::get(v, e);
        sum[e] = first ? x : combine(sum[e], x, op);
    }
}

template <typename T> TPC_DEVICE vec_t round_vec(const float *sum) {
    vec_t v;
#pragma unroll
    for (int e = 0; e < element_t<T>::PER_VEC; e++) element_t<T>::put(v, e, sum[e]);
    return v;
}

/* ------------------------------------------------------------------ 8 bytes of integers or f64 */

TPC_DEVICE double combine_f64(double a, double b, int op) {
    if (op == TPCOMM_SUM || op == TPCOMM_AVG) return __dadd_rn(a, b);
    if (op == TPCOMM_PROD) return __dmul_rn(a, b);
    if (isnan(a) || isnan(b)) return __longlong_as_double((long long)TPC_CANONICAL_F64);
    if (a == b) {
        long long x = __double_as_longlong(a), y = __double_as_longlong(b);
        return __longlong_as_double(op == TPCOMM_MAX ? x & y : x | y);
    }
    return (a > b) == (op == TPCOMM_MAX) ? a : b;
}

/** One integer of `bits` bits, in the low bits; signed or not. Sums and products wrap and need no sign. */
TPC_DEVICE uint64_t combine_integer(uint64_t a, uint64_t b, int op, int bits, bool is_signed) {
    if (op == TPCOMM_SUM) return a + b;
    if (op == TPCOMM_PROD) return a * b;
    uint64_t x = a << (64 - bits), y = b << (64 - bits); /* compare at the top, where the sign bit is one */
    bool greater = is_signed ? (int64_t)x > (int64_t)y : x > y;
    return greater == (op == TPCOMM_MAX) ? a : b;
}

/** Eight bytes of elements of an integer dtype or f64. */
TPC_DEVICE uint64_t combine_raw(uint64_t a, uint64_t b, int dtype, int op) {
    if (dtype == TPCOMM_F64)
        return (uint64_t)__double_as_longlong(
            combine_f64(__longlong_as_double((long long)a), __longlong_as_double((long long)b), op));
    int bits = dtype == TPCOMM_I8 || dtype == TPCOMM_U8 ? 8 : dtype == TPCOMM_I32 || dtype == TPCOMM_U32 ? 32 : 64;
    bool is_signed = dtype == TPCOMM_I8 || dtype == TPCOMM_I32 || dtype == TPCOMM_I64;
    if (bits == 64) return combine_integer(a, b, op, 64, is_signed);
    uint64_t mask = (1ull << bits) - 1, result = 0;
    for (int at = 0; at < 64; at += bits)
        result |= (combine_integer(a >> at & mask, b >> at & mask, op, bits, is_signed) & mask) << at;
    return result;
}

TPC_DEVICE uint64_t finish_raw(uint64_t a, int dtype, int op, int size) {
    if (dtype != TPCOMM_F64) return a;
    double x = __longlong_as_double((long long)a);
    if (op == TPCOMM_AVG) x = __ddiv_rn(x, (double)size);
    return isnan(x) ? TPC_CANONICAL_F64 : (uint64_t)__double_as_longlong(x);
}

#endif
