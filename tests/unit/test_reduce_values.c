/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Check that the reduction kernels give the one result that docs/numerics.md defines where arithmetic is delicate: NaN
 * of every payload and sign, infinities, signed zeros, subnormals, ties, overflow. All 65536 values of f16 and bf16
 * against some 200 partners, all triples of special f32 and f64 values, and random bits; on every instruction set.
 */
#include <stdlib.h>

#include "check.h"
#include "cpu_backend/reduce.h"
#include "reduce_reference.h"

static const char *const isa_names[] = {"generic", "avx2", "avx512"};
static const tpcomm_op_t ops[] = {TPCOMM_SUM, TPCOMM_AVG, TPCOMM_MAX, TPCOMM_MIN, TPCOMM_PROD};
#define OPS (sizeof(ops) / sizeof(ops[0]))

static void *allocate(size_t bytes) {
    void *memory = malloc(bytes);
    CHECK(memory);
    return memory;
}

/* Every usable instruction set gives what is expected. */
static void check_all(tpcomm_dtype_t dtype, tpcomm_op_t op, const void *const *in, int n, size_t count,
                      const void *expected, void *out) {
    for (int isa = 0; isa < TPC_REDUCE_ISA_COUNT; isa++) {
        if (!tpc_reduce_isa_usable((tpc_reduce_isa_t)isa)) continue;
        tpc_reduce_find_isa((tpc_reduce_isa_t)isa, dtype, op)(out, in, n, count);
        reference_check(isa_names[isa], dtype, op, out, expected, in, n, count);
    }
}

/* ---------------------------------------------------------------- named cases */

#define CASE(dtype, op, want, ...)                                                                                     \
    do {                                                                                                               \
        const uint64_t case_values[] = {__VA_ARGS__};                                                                  \
        check_case((dtype), (op), (want), case_values, (int)(sizeof(case_values) / sizeof(case_values[0])));           \
    } while (0)

/* One result, known by hand, at every place of a vector and behind its end; the reference must know it too. */
static void check_case(tpcomm_dtype_t dtype, tpcomm_op_t op, uint64_t want, const uint64_t *values, int n) {
    enum { COUNT = 4096 + 3 };
    static unsigned char rows[TPCOMM_MAX_RANKS][COUNT * 8], expected[COUNT * 8], out[COUNT * 8];
    const void *in[TPCOMM_MAX_RANKS];
    size_t element_bytes = tpcomm_dtype_size(dtype);
    for (int r = 0; r < n; r++) {
        for (size_t i = 0; i < COUNT; i++) reference_write(rows[r], i, element_bytes, values[r]);
        in[r] = rows[r];
    }
    for (size_t i = 0; i < COUNT; i++) reference_write(expected, i, element_bytes, want);
    reference_reduce(dtype, op, out, in, n, 1);
    reference_check("reference", dtype, op, out, expected, in, n, 1);
    check_all(dtype, op, in, n, COUNT, expected, out);
}

static void check_named_cases(void) {
    /* Accumulation is wider than the 16-bit types: neither overflow nor loss on the way. */
    CASE(TPCOMM_F16, TPCOMM_SUM, 0x0000, 0x78E2, 0x78E2, 0xF8E2, 0xF8E2);  /* 40000 + 40000 - 40000 - 40000 */
    CASE(TPCOMM_BF16, TPCOMM_SUM, 0x4000, 0x4380, 0x3F80, 0x3F80, 0xC380); /* 256 + 1 + 1 - 256 = 2 */
    CASE(TPCOMM_F16, TPCOMM_SUM, 0x7C00, 0x7B53, 0x7B53);                  /* 60000 + 60000 = infinity */
    CASE(TPCOMM_F16, TPCOMM_AVG, 0x7B53, 0x7B53, 0x7B53);                  /* the average of them is 60000 */
    CASE(TPCOMM_F16, TPCOMM_SUM, 0x7BFF, 0x7BFF, 0x4BFF);                  /* 65504 + 15.99 rounds down ... */
    CASE(TPCOMM_F16, TPCOMM_SUM, 0x7C00, 0x7BFF, 0x4C00);                  /* ... + 16 is a tie and goes to infinity */
    CASE(TPCOMM_BF16, TPCOMM_SUM, 0x7F80, 0x7F7F, 0x7F7F);
    CASE(TPCOMM_BF16, TPCOMM_SUM, 0x3F80, 0x3F80, 0x3B80); /* 1 + 2^-8: tie, to even, down */
    CASE(TPCOMM_BF16, TPCOMM_SUM, 0x3F82, 0x3F81, 0x3B80); /* 1 + 2^-7 + 2^-8: tie, to even, up */
    CASE(TPCOMM_BF16, TPCOMM_SUM, 0x3F81, 0x3F80, 0x3B81); /* a little over the tie */

    /* Subnormals are neither flushed nor read as zero. */
    CASE(TPCOMM_F32, TPCOMM_SUM, 0x80000002, 0x80000001, 0x80000001);
    CASE(TPCOMM_F32, TPCOMM_SUM, 0x00FFFFFE, 0x007FFFFF, 0x007FFFFF);
    CASE(TPCOMM_F32, TPCOMM_AVG, 0x00000000, 0x00000001, 0x00000000); /* half of the least: tie, to even */
    CASE(TPCOMM_F32, TPCOMM_AVG, 0x00000002, 0x00000002, 0x00000001); /* 1.5 of it */
    CASE(TPCOMM_BF16, TPCOMM_SUM, 0x8002, 0x8001, 0x8001);
    CASE(TPCOMM_F16, TPCOMM_SUM, 0x8002, 0x8001, 0x8001);
    CASE(TPCOMM_F16, TPCOMM_PROD, 0x0004, 0x1000, 0x1000); /* 2^-11 * 2^-11 = 2^-22 */
    CASE(TPCOMM_F16, TPCOMM_PROD, 0x0000, 0x0C00, 0x0800); /* 2^-12 * 2^-13 = 2^-25: tie, to even */
    CASE(TPCOMM_F16, TPCOMM_PROD, 0x0001, 0x0C00, 0x0801); /* a little over it */
    CASE(TPCOMM_F64, TPCOMM_SUM, 2, 1, 1);

    /* Signed zeros: as IEEE for sums, +0 the greater one for max and min. */
    const uint64_t zeros[][2] = {
        {TPCOMM_F32, 0x80000000}, {TPCOMM_F16, 0x8000}, {TPCOMM_BF16, 0x8000}, {TPCOMM_F64, 0x8000000000000000}};
    for (size_t i = 0; i < 4; i++) {
        tpcomm_dtype_t dtype = (tpcomm_dtype_t)zeros[i][0];
        uint64_t minus = zeros[i][1];
        CASE(dtype, TPCOMM_SUM, minus, minus, minus);
        CASE(dtype, TPCOMM_SUM, 0, minus, 0);
        CASE(dtype, TPCOMM_SUM, 0, 0, minus);
        CASE(dtype, TPCOMM_MAX, 0, minus, 0);
        CASE(dtype, TPCOMM_MAX, 0, 0, minus);
        CASE(dtype, TPCOMM_MAX, minus, minus, minus);
        CASE(dtype, TPCOMM_MIN, minus, minus, 0);
        CASE(dtype, TPCOMM_MIN, minus, 0, minus);
        CASE(dtype, TPCOMM_MIN, 0, 0, 0);
    }

    /* The one NaN, from whatever makes one; max and min do not lose it. */
    const uint64_t words[][5] = {
        /* dtype, infinity, minus infinity, a signalling NaN, the canonical one */
        {TPCOMM_F32, 0x7F800000, 0xFF800000, 0xFF800001, 0x7FFFFFFF},
        {TPCOMM_F16, 0x7C00, 0xFC00, 0xFC01, 0x7FFF},
        {TPCOMM_BF16, 0x7F80, 0xFF80, 0xFF81, 0x7FFF},
        {TPCOMM_F64, 0x7FF0000000000000, 0xFFF0000000000000, 0xFFF0000000000001, 0x7FFFFFFFFFFFFFFF}};
    for (size_t i = 0; i < 4; i++) {
        tpcomm_dtype_t dtype = (tpcomm_dtype_t)words[i][0];
        uint64_t infinity = words[i][1], minus = words[i][2], nan = words[i][3], canonical = words[i][4];
        CASE(dtype, TPCOMM_SUM, infinity, infinity, infinity);
        CASE(dtype, TPCOMM_SUM, canonical, infinity, minus);
        CASE(dtype, TPCOMM_SUM, canonical, minus, infinity, infinity);
        CASE(dtype, TPCOMM_PROD, canonical, infinity, 0);
        for (size_t o = 0; o < OPS; o++) {
            CASE(dtype, ops[o], canonical, nan, 0);
            CASE(dtype, ops[o], canonical, 0, nan);
            CASE(dtype, ops[o], canonical, nan, nan);
            CASE(dtype, ops[o], canonical, infinity, nan, minus);
            CASE(dtype, ops[o], canonical, ~(uint64_t)0, 0, 0);
        }
    }

    /* Integers wrap. */
    CASE(TPCOMM_I8, TPCOMM_SUM, 0x80, 0x7F, 0x01);
    CASE(TPCOMM_U8, TPCOMM_PROD, 0x04, 0x82, 0x82);
    CASE(TPCOMM_I32, TPCOMM_SUM, 0x80000000, 0x7FFFFFFF, 1);
    CASE(TPCOMM_I64, TPCOMM_PROD, 1, ~(uint64_t)0, ~(uint64_t)0);
    CASE(TPCOMM_I32, TPCOMM_MAX, 1, 0xFFFFFFFF, 1);
    CASE(TPCOMM_U32, TPCOMM_MAX, 0xFFFFFFFF, 0xFFFFFFFF, 1);
}

/* ---------------------------------------------------------------- all 16-bit values */

/* Magnitudes at and beside every border of a 16-bit float, both signs, filled up with random ones. */
static size_t make_partners(tpcomm_dtype_t dtype, uint16_t partners[200]) {
    reference_format_t format = reference_format(dtype);
    uint32_t hidden = (uint32_t)1 << (format.digits - 1), one = reference_encode(format, 1.0);
    const uint32_t magnitudes[] = {0,
                                   1,
                                   2,
                                   3,
                                   hidden - 1,
                                   hidden,
                                   hidden + 1,
                                   2 * hidden,
                                   one - hidden,
                                   one - 1,
                                   one,
                                   one + 1,
                                   one + hidden / 2,
                                   one + hidden,
                                   reference_encode(format, 3.0),
                                   reference_encode(format, 1.0 / 3.0),
                                   reference_encode(format, ldexp(1, -format.digits)),
                                   reference_encode(format, ldexp(1, 1 - format.digits)),
                                   reference_encode(format, ldexp(1, format.digits)),
                                   format.infinity - hidden,
                                   format.infinity - 2,
                                   format.infinity - 1,
                                   format.infinity,
                                   format.infinity + 1,
                                   format.infinity + hidden / 2,
                                   0x7FFF};
    size_t count = 0;
    for (size_t i = 0; i < sizeof(magnitudes) / sizeof(magnitudes[0]); i++) {
        partners[count++] = (uint16_t)magnitudes[i];
        partners[count++] = (uint16_t)(magnitudes[i] | 0x8000);
    }
    uint64_t state = 16;
    while (count < 200) partners[count++] = (uint16_t)reference_random(&state);
    return count;
}

static void check_all_16_bit_values(tpcomm_dtype_t dtype) {
    enum { ALL = 65536 };
    static uint16_t every[ALL], constant[ALL], expected[ALL], out[ALL];
    static double decoded[ALL];
    uint16_t partners[200];
    size_t partner_count = make_partners(dtype, partners);
    for (uint32_t i = 0; i < ALL; i++) {
        every[i] = (uint16_t)i;
        decoded[i] = reference_decode(reference_format(dtype), i);
    }
    for (size_t p = 0; p < partner_count; p++) {
        for (uint32_t i = 0; i < ALL; i++) constant[i] = partners[p];
        for (size_t o = 0; o < OPS; o++) {
            for (uint32_t i = 0; i < ALL; i++) {
                const double pair[2] = {decoded[i], decoded[partners[p]]};
                expected[i] = (uint16_t)reference_float(dtype, ops[o], pair, 2);
            }
            check_all(dtype, ops[o], (const void *const[]){every, constant}, 2, ALL, expected, out);
            check_all(dtype, ops[o], (const void *const[]){constant, every}, 2, ALL, expected, out);
        }
    }
}

/* ---------------------------------------------------------------- special f32 and f64 values, random bits */

/* All triples of the values; in third place also the dtype's own least and greatest, so that sums cancel and round. */
static void check_triples(tpcomm_dtype_t dtype, const uint64_t *values, size_t count) {
    size_t element_bytes = tpcomm_dtype_size(dtype), total = count * count * count;
    void *row[3], *expected = allocate(total * element_bytes), *out = allocate(total * element_bytes);
    for (int r = 0; r < 3; r++) row[r] = allocate(total * element_bytes);
    for (size_t i = 0; i < total; i++) {
        reference_write(row[0], i, element_bytes, values[i % count]);
        reference_write(row[1], i, element_bytes, values[i / count % count]);
        reference_write(row[2], i, element_bytes, values[i / count / count]);
    }
    const void *const in[] = {row[0], row[1], row[2]};
    for (size_t o = 0; o < OPS; o++) {
        reference_reduce(dtype, ops[o], expected, in, 3, total);
        check_all(dtype, ops[o], in, 3, total, expected, out);
        reference_reduce(dtype, ops[o], expected, in, 2, total);
        check_all(dtype, ops[o], in, 2, total, expected, out);
    }
    for (int r = 0; r < 3; r++) free(row[r]);
    free(expected);
    free(out);
}

static void check_special_values(void) {
    static const uint32_t f32[] = {0x00000000, 0x00000001, 0x00000002, 0x00000003, 0x003FFFFF, 0x00400000, 0x007FFFFF,
                                   0x00800000, 0x00800001, 0x00FFFFFF, 0x01000000, 0x33800000, 0x33800001, 0x34000000,
                                   0x3F000000, 0x3F7FFFFF, 0x3F800000, 0x3F800001, 0x3F800002, 0x3EAAAAAB, 0x40490FDB,
                                   0x4B7FFFFF, 0x4B800000, 0x4B800001, 0x7E800000, 0x7F000000, 0x7F7FFFFE, 0x7F7FFFFF,
                                   0x7F800000, 0x7F800001, 0x7FBFFFFF, 0x7FC00000, 0x7FC12345, 0x7FFFFFFF};
    enum { COUNT = sizeof(f32) / sizeof(f32[0]) };
    uint64_t values[2 * COUNT];
    for (size_t i = 0; i < COUNT; i++) {
        values[2 * i] = f32[i];
        values[2 * i + 1] = f32[i] | 0x80000000u;
    }
    check_triples(TPCOMM_F32, values, 2 * COUNT);

    /* The same places of f64's range: exponent and mantissa moved over, the mantissa's last bits kept last. */
    for (size_t i = 0; i < COUNT; i++) {
        uint64_t exponent = f32[i] >> 23, mantissa = f32[i] & 0x7FFFFF;
        if (exponent == 255) exponent = 2047;
        if (exponent > 63 && exponent < 255) exponent += exponent < 192 ? 896 : 1792;
        uint64_t bits = exponent << 52 | (mantissa >> 20) << 49 | (mantissa & 0xFFFFF);
        if (mantissa == 0x7FFFFF) bits |= 0xFFFFFFFFFFFFF;
        values[2 * i] = bits;
        values[2 * i + 1] = bits | (uint64_t)1 << 63;
    }
    check_triples(TPCOMM_F64, values, 2 * COUNT);
}

static void check_random_bits(void) {
    enum { COUNT = 250007 };
    static const tpcomm_dtype_t dtypes[] = {TPCOMM_F32, TPCOMM_F16, TPCOMM_BF16, TPCOMM_F64};
    static const int ranks[] = {2, 3, 8};
    void *row[8], *expected = allocate(COUNT * 8), *out = allocate(COUNT * 8);
    const void *in[8];
    uint64_t state = 1;
    for (int r = 0; r < 8; r++) {
        in[r] = row[r] = allocate(COUNT * 8);
        for (size_t i = 0; i < COUNT; i++) reference_write(row[r], i, 8, reference_random(&state));
    }
    for (size_t d = 0; d < sizeof(dtypes) / sizeof(dtypes[0]); d++) {
        for (size_t o = 0; o < OPS; o++) {
            size_t count = COUNT * 8 / tpcomm_dtype_size(dtypes[d]); /* 1e6 of the 16-bit values */
            if (ops[o] != TPCOMM_SUM) count /= 8;
            for (size_t i = 0; i < sizeof(ranks) / sizeof(ranks[0]); i++) {
                reference_reduce(dtypes[d], ops[o], expected, in, ranks[i], count);
                check_all(dtypes[d], ops[o], in, ranks[i], count, expected, out);
            }
        }
    }
    for (int r = 0; r < 8; r++) free(row[r]);
    free(expected);
    free(out);
}

int main(void) {
    check_named_cases();
    check_special_values();
    check_random_bits();
    check_all_16_bit_values(TPCOMM_F16);
    check_all_16_bit_values(TPCOMM_BF16);
    return 0;
}
