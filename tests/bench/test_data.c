/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Check that the bench's own reference rounds and reduces as written (against double arithmetic, over all 16-bit
 * patterns), and that its check sees one wrong element anywhere.
 */
#include <math.h>

#include "check.h"
#include "data.h"
#include "reference.h"
#include "rotation.h"

/** Nearest 16-bit value by looking at the neighbours, in double, ties to even. */
static void check_rounding(tpcomm_dtype_t dtype, uint32_t infinity) {
    for (uint32_t bits = 0; bits < infinity; bits++) {
        double low = bench_decode(dtype, bits), high = bench_decode(dtype, bits + 1);
        if (bits + 1 == infinity) high = 2 * low - bench_decode(dtype, bits - 1); /* as if the exponents went on */
        float middle = (float)((low + high) / 2);
        CHECK_EQ(bench_encode(dtype, (float)low), bits);
        CHECK_EQ(bench_encode(dtype, -(float)low), bits | 0x8000);
        if (!isinf(middle)) CHECK_EQ(bench_encode(dtype, middle), bits % 2 == 0 ? bits : bits + 1);
        if (!isinf(middle)) CHECK_EQ(bench_encode(dtype, nextafterf(middle, 0)), bits);
        if (!isinf(middle)) CHECK_EQ(bench_encode(dtype, nextafterf(middle, INFINITY)), bits + 1);
    }
    CHECK_EQ(bench_encode(dtype, INFINITY), infinity);
    CHECK(isnan(bench_decode(dtype, infinity + 1)));
    uint32_t nan = bench_encode(dtype, NAN);
    CHECK(isnan(bench_decode(dtype, nan)));
}

static uint64_t sum(tpcomm_dtype_t dtype, const uint64_t *bits, int32_t ranks) {
    return bench_reduce(dtype, TPCOMM_SUM, bits, ranks);
}

static void check_sums(void) {
    /* bf16: 1, 2^-8 (half a unit in the last place), 2^-8: fp32 keeps what bf16 would lose, and rounds once. */
    const uint64_t bf16[3] = {0x3F80, 0x3B80, 0x3B80};
    CHECK_EQ(sum(TPCOMM_BF16, bf16, 2), 0x3F80); /* a tie: to even */
    CHECK_EQ(sum(TPCOMM_BF16, bf16, 3), 0x3F81);
    CHECK_EQ(sum(TPCOMM_BF16, bf16, 1), 0x3F80);
    /* f32: order matters. 1 + 2^-24 + 2^-24 stays 1. */
    const uint64_t f32[3] = {0x3F800000, 0x33800000, 0x33800000};
    CHECK_EQ(sum(TPCOMM_F32, f32, 3), 0x3F800000);
    const uint64_t turned[3] = {0x33800000, 0x33800000, 0x3F800000};
    CHECK_EQ(sum(TPCOMM_F32, turned, 3), 0x3F800001);
    /* inf - inf, and a NaN with payload: the canonical one; of a single rank the bits as they are. */
    const uint64_t infinities[2] = {0x7F80, 0xFF80};
    CHECK_EQ(sum(TPCOMM_BF16, infinities, 2), 0x7FFF);
    const uint64_t payload[2] = {0xFF81, 0};
    CHECK_EQ(sum(TPCOMM_BF16, payload, 2), 0x7FFF);
    CHECK_EQ(sum(TPCOMM_BF16, payload, 1), 0xFF81);
    const uint64_t zeros[2] = {0x8000, 0x8000};
    CHECK_EQ(sum(TPCOMM_F16, zeros, 2), 0x8000);
}

static void check_other_ops(void) {
    const uint64_t zeros[2] = {0x8000, 0x0000}, turned[2] = {0x0000, 0x8000};
    for (int turn = 0; turn < 2; turn++) {
        CHECK_EQ(bench_reduce(TPCOMM_BF16, TPCOMM_MAX, turn ? turned : zeros, 2), 0x0000);
        CHECK_EQ(bench_reduce(TPCOMM_BF16, TPCOMM_MIN, turn ? turned : zeros, 2), 0x8000);
    }
    const uint64_t with_nan[3] = {0x3F80, 0xFFC1, 0x4000};
    CHECK_EQ(bench_reduce(TPCOMM_BF16, TPCOMM_MAX, with_nan, 3), 0x7FFF);
    CHECK_EQ(bench_reduce(TPCOMM_BF16, TPCOMM_MIN, with_nan, 3), 0x7FFF);
    const uint64_t ones[3] = {0x3F800000, 0x3F800000, 0x40000000}; /* (1 + 1 + 2) / 3 */
    CHECK_EQ(bench_reduce(TPCOMM_F32, TPCOMM_AVG, ones, 3), 0x3FAAAAAB);
    CHECK_EQ(bench_reduce(TPCOMM_F32, TPCOMM_PROD, ones, 3), 0x40000000);
    const uint64_t f64[2] = {UINT64_C(0x3FF0000000000000), UINT64_C(0x3CA0000000000000)}; /* 1 + 2^-53: a tie */
    CHECK_EQ(bench_reduce(TPCOMM_F64, TPCOMM_SUM, f64, 2), UINT64_C(0x3FF0000000000000));
    const uint64_t f64_nan[2] = {UINT64_C(0xFFF8000000000001), 0};
    CHECK_EQ(bench_reduce(TPCOMM_F64, TPCOMM_SUM, f64_nan, 2), UINT64_C(0x7FFFFFFFFFFFFFFF));
    const uint64_t bytes[2] = {0xFF, 0x02}; /* -1 and 2; 255 and 2 */
    CHECK_EQ(bench_reduce(TPCOMM_I8, TPCOMM_SUM, bytes, 2), 1);
    CHECK_EQ(bench_reduce(TPCOMM_I8, TPCOMM_MAX, bytes, 2), 2);
    CHECK_EQ(bench_reduce(TPCOMM_U8, TPCOMM_MAX, bytes, 2), 0xFF);
    CHECK_EQ(bench_reduce(TPCOMM_I8, TPCOMM_MIN, bytes, 2), 0xFF);
    CHECK_EQ(bench_reduce(TPCOMM_U8, TPCOMM_PROD, bytes, 2), 0xFE);
    const uint64_t words[2] = {UINT64_C(1) << 63, 1};
    CHECK_EQ(bench_reduce(TPCOMM_I64, TPCOMM_MAX, words, 2), 1);
    CHECK_EQ(bench_reduce(TPCOMM_U64, TPCOMM_MAX, words, 2), UINT64_C(1) << 63);
}

/** An all_reduce by the reference alone, then single errors. */
static void check_check(tpcomm_dtype_t dtype, bool exact) {
    enum { COUNT = 200000, RANKS = 3 };
    size_t size = tpcomm_dtype_size(dtype);
    unsigned char *in[RANKS], *out = malloc(COUNT * size);
    bench_data_t *data[RANKS];
    CHECK(out != NULL);
    for (int32_t rank = 0; rank < RANKS; rank++) {
        bench_data_spec_t spec = {dtype, TPCOMM_SUM, rank, RANKS, 42, exact, 0};
        in[rank] = malloc(COUNT * size);
        CHECK(in[rank] != NULL);
        CHECK_OK(bench_data_new(&spec, &data[rank]));
    }
    for (uint32_t buffer = 0; buffer < 4; buffer++) {
        bench_expect_t expect = {.buffer = buffer, .of_rank = -1}, next = {.buffer = buffer + 2, .of_rank = -1};
        bench_expect_t later = {.buffer = buffer, .of_rank = -1, .from = 777};
        uint64_t first = 0, differ = 0;
        for (int32_t rank = 0; rank < RANKS; rank++)
            bench_data_fill(data[rank], BENCH_INPUT, buffer, 0, in[rank], COUNT);
        for (uint64_t i = 0; i < COUNT; i++) {
            uint64_t bits[RANKS] = {0, 0, 0};
            for (int32_t rank = 0; rank < RANKS; rank++) memcpy(&bits[rank], in[rank] + i * size, size);
            uint64_t result = sum(dtype, bits, RANKS);
            memcpy(out + i * size, &result, size);
            differ += result != bits[0];
            if (buffer == 0 && !exact) CHECK_EQ(bits[1], bench_whole(dtype, (uint32_t)((7 * i + 3) % 13)));
            if (exact) CHECK(bits[1] == 0 || bits[1] == bench_whole(dtype, 1));
        }
        CHECK(differ > COUNT / 2);
        for (int32_t rank = 0; rank < RANKS; rank++)
            CHECK_EQ(bench_data_check(data[rank], &expect, out, COUNT, &first), 0);
        CHECK_EQ(bench_data_check(data[0], &later, out + 777 * size, COUNT - 777, &first), 0);
        static const uint64_t places[] = {0, 1, 65519, 65520, 65521, 131041, 131042, COUNT - 1};
        for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
            out[places[i] * size] ^= 1;
            CHECK_EQ(bench_data_check(data[1], &expect, out, COUNT, &first), 1);
            CHECK_EQ(first, places[i]);
            out[places[i] * size] ^= 1;
        }
        /* Another buffer's result, one shifted by an element, and nothing at all. */
        CHECK(bench_data_check(data[0], &next, out, COUNT, &first) > COUNT / 3);
        CHECK(bench_data_check(data[0], &expect, out + size, COUNT - 1, &first) > COUNT / 3);
        memset(out, BENCH_POISON, COUNT * size);
        CHECK(bench_data_check(data[0], &expect, out, COUNT, &first) > COUNT - COUNT / 100);
    }
    for (int32_t rank = 0; rank < RANKS; rank++) {
        free(in[rank]);
        bench_data_free(data[rank]);
    }
    free(out);
}

/** Reductions repeated in place, by the reference step by step. */
static void check_repeats(bool own_block) {
    enum { COUNT = 1000, RANKS = 2, REPEATS = 3 };
    bench_data_t *data[RANKS];
    uint16_t now[RANKS][COUNT];
    for (int32_t rank = 0; rank < RANKS; rank++) {
        bench_data_spec_t spec = {TPCOMM_BF16, TPCOMM_SUM, rank, RANKS, 42, false, 0};
        CHECK_OK(bench_data_new(&spec, &data[rank]));
        CHECK_OK(bench_data_repeat(data[rank], REPEATS, own_block));
        bench_data_fill(data[rank], BENCH_INPUT, 1, 0, now[rank], COUNT);
    }
    for (int k = 0; k < REPEATS; k++)
        for (size_t i = 0; i < COUNT; i++) {
            uint64_t bits[RANKS] = {now[0][i], now[1][i]};
            now[0][i] = (uint16_t)sum(TPCOMM_BF16, bits, RANKS);
            if (!own_block) now[1][i] = now[0][i];
        }
    bench_expect_t expect = {.buffer = 1, .of_rank = -1, .repeats = REPEATS}, once = {.buffer = 1, .of_rank = -1};
    uint64_t first = 0;
    CHECK_EQ(bench_data_check(data[0], &expect, now[0], COUNT, &first), 0);
    CHECK(bench_data_check(data[0], &once, now[0], COUNT, &first) > COUNT / 2);
    for (int32_t rank = 0; rank < RANKS; rank++) bench_data_free(data[rank]);
}

/** The norm of a row whose parts are known: all ones but one, and squares whose sum tells the order they were added in.
 */
static void check_norm(void) {
    enum { HIDDEN = 512, COUNT = 3 * HIDDEN };
    uint64_t values[HIDDEN], weight[HIDDEN], residual[HIDDEN], out[HIDDEN];
    for (size_t i = 0; i < HIDDEN; i++) {
        values[i] = bench_encode(TPCOMM_F32, 1.5f);
        residual[i] = bench_encode(TPCOMM_F32, 0.5f);
        weight[i] = bench_encode(TPCOMM_F32, (float)i);
    }
    bench_norm_row(TPCOMM_F32, HIDDEN, 0.0f, values, weight, residual, out);
    for (size_t i = 0; i < HIDDEN; i++) {
        CHECK_EQ(residual[i], bench_encode(TPCOMM_F32, 2));
        CHECK_EQ(out[i], bench_encode(TPCOMM_F32, (float)i)); /* 2 / sqrt(4) */
    }
    /* 1 + 2^-24 stays 1 if added one by one, but two of 2^-24 make 2^-23 first where they are in one vector. */
    memset(residual, 0, sizeof residual);
    memset(values, 0, sizeof values);
    values[0] = bench_encode(TPCOMM_F32, 1);
    values[8] = values[9] = bench_encode(TPCOMM_F32, 0x1p-12f);
    bench_norm_row(TPCOMM_F32, HIDDEN, 0.0f, values, weight, residual, out);
    float inverse = (float)(1.0 / sqrt((double)((1 + 0x1p-23f) / HIDDEN)));
    weight[0] = bench_encode(TPCOMM_F32, 1);
    memset(residual, 0, sizeof residual);
    bench_norm_row(TPCOMM_F32, HIDDEN, 0.0f, values, weight, residual, out);
    CHECK_EQ(out[0], bench_encode(TPCOMM_F32, inverse));

    /* By the data's own tables: two calls with one residual. */
    bench_data_spec_t spec = {TPCOMM_BF16, TPCOMM_SUM, 0, 1, 42, false, HIDDEN};
    bench_data_t *data;
    uint16_t in[COUNT], kept[COUNT], scale[HIDDEN], made[COUNT];
    uint64_t first = 0;
    CHECK_OK(bench_data_new(&spec, &data));
    CHECK_OK(bench_data_repeat(data, 2, false));
    bench_data_fill(data, BENCH_INPUT, 3, 0, in, COUNT);
    bench_data_fill(data, BENCH_RESIDUAL, 3, 0, kept, COUNT);
    bench_data_fill(data, BENCH_WEIGHT, 3, 0, scale, HIDDEN);
    for (size_t row = 0; row < 3; row++)
        for (int call = 0; call < 2; call++) {
            for (size_t i = 0; i < HIDDEN; i++) {
                values[i] = in[row * HIDDEN + i];
                residual[i] = kept[row * HIDDEN + i];
                weight[i] = scale[i];
            }
            bench_norm_row(TPCOMM_BF16, HIDDEN, BENCH_NORM_EPS, values, weight, residual, out);
            for (size_t i = 0; i < HIDDEN; i++) {
                kept[row * HIDDEN + i] = (uint16_t)residual[i];
                made[row * HIDDEN + i] = (uint16_t)out[i];
            }
        }
    bench_expect_t expect = {.buffer = 3, .of_rank = -1, .repeats = 2},
                   after = {.buffer = 3, .of_rank = -2, .repeats = 2};
    bench_expect_t once = {.buffer = 3, .of_rank = -1};
    CHECK_EQ(bench_data_check(data, &expect, made, COUNT, &first), 0);
    CHECK_EQ(bench_data_check(data, &after, kept, COUNT, &first), 0);
    CHECK(bench_data_check(data, &once, made, COUNT, &first) > COUNT / 2);
    bench_data_free(data);
}

/** Data that is moved: every rank knows what every other sent. */
static void check_moves(void) {
    enum { COUNT = 100000, RANKS = 3 };
    unsigned char *sent = malloc(COUNT);
    bench_data_t *data[RANKS];
    uint64_t first = 0;
    CHECK(sent != NULL);
    for (int32_t rank = 0; rank < RANKS; rank++) {
        bench_data_spec_t spec = {TPCOMM_F8_E4M3, 0, rank, RANKS, 42, false, 0};
        CHECK_OK(bench_data_new(&spec, &data[rank]));
    }
    for (uint32_t buffer = 0; buffer < 2; buffer++) {
        bench_data_fill(data[1], BENCH_INPUT, buffer, 0, sent, COUNT);
        bench_expect_t expect = {.buffer = buffer, .of_rank = 1}, other = {.buffer = buffer, .of_rank = 2};
        CHECK_EQ(bench_data_check(data[0], &expect, sent, COUNT, &first), 0);
        CHECK(bench_data_check(data[0], &other, sent, COUNT, &first) > COUNT / 2);
    }
    for (int32_t rank = 0; rank < RANKS; rank++) bench_data_free(data[rank]);
    free(sent);
}

/** Every output is checked against the input that its last writer read, and each time round it meets another one. */
static void check_rotation(void) {
    CHECK_EQ(bench_rotation_pairs(1024), BENCH_ROTATION_MAX);
    CHECK_EQ(bench_rotation_pairs(BENCH_HOT_BYTES / 6), 3);
    CHECK_EQ(bench_rotation_pairs(BENCH_HOT_BYTES), 2);
    /* Cold: a pair for each call, as long as they fit; two at least. */
    CHECK_EQ(bench_rotation_cold_pairs(1024, 51, 100 << 20), 51);
    CHECK_EQ(bench_rotation_cold_pairs(8 << 20, 51, 100 << 20), 7);
    CHECK_EQ(bench_rotation_cold_pairs(UINT64_C(1) << 32, 51, 100 << 20), 2);
    CHECK_EQ(bench_rotation_cold_pairs(0, 1, 100 << 20), 2);
    for (uint32_t pairs = 2; pairs <= BENCH_ROTATION_MAX; pairs++) {
        for (uint64_t calls = 1; calls < 200; calls++) {
            uint64_t last[BENCH_ROTATION_MAX];
            for (uint32_t out = 0; out < pairs; out++) last[out] = UINT64_MAX;
            for (uint64_t call = 0; call < calls; call++) {
                uint64_t *writer = &last[bench_rotation_out(pairs, call)];
                if (*writer != UINT64_MAX) CHECK(bench_rotation_in(pairs, call) != bench_rotation_in(pairs, *writer));
                *writer = call;
            }
            for (uint32_t out = 0; out < pairs; out++) CHECK(bench_rotation_last(pairs, calls, out) == last[out]);
        }
    }
}

int main(void) {
    check_rounding(TPCOMM_BF16, 0x7F80);
    check_rounding(TPCOMM_F16, 0x7C00);
    check_sums();
    check_other_ops();
    for (int exact = 0; exact < 2; exact++) {
        check_check(TPCOMM_F32, exact);
        check_check(TPCOMM_F16, exact);
        check_check(TPCOMM_BF16, exact);
        check_check(TPCOMM_F64, exact);
        check_check(TPCOMM_I8, exact);
        check_check(TPCOMM_U64, exact);
    }
    check_repeats(false);
    check_repeats(true);
    check_moves();
    check_norm();
    check_rotation();
    return 0;
}
