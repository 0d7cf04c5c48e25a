/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Check that the replay's own reference rounds and sums as written (against double arithmetic, over all 16-bit
 * patterns), and that its check sees one wrong element anywhere.
 */
#include <math.h>

#include "check.h"
#include "replay_buffers.h"
#include "replay_data.h"

/** Nearest 16-bit value by looking at the neighbours, in double, ties to even. */
static void check_rounding(tpcomm_dtype_t dtype, uint32_t infinity) {
    for (uint32_t bits = 0; bits < infinity; bits++) {
        double low = bench_data_decode(dtype, bits), high = bench_data_decode(dtype, bits + 1);
        if (bits + 1 == infinity) high = 2 * low - bench_data_decode(dtype, bits - 1); /* as if the exponents went on */
        float middle = (float)((low + high) / 2);
        CHECK_EQ(bench_data_encode(dtype, (float)low), bits);
        CHECK_EQ(bench_data_encode(dtype, -(float)low), bits | 0x8000);
        if (!isinf(middle)) CHECK_EQ(bench_data_encode(dtype, middle), bits % 2 == 0 ? bits : bits + 1);
        if (!isinf(middle)) CHECK_EQ(bench_data_encode(dtype, nextafterf(middle, 0)), bits);
        if (!isinf(middle)) CHECK_EQ(bench_data_encode(dtype, nextafterf(middle, INFINITY)), bits + 1);
    }
    CHECK_EQ(bench_data_encode(dtype, INFINITY), infinity);
    CHECK(isnan(bench_data_decode(dtype, infinity + 1)));
    uint32_t nan = bench_data_encode(dtype, NAN);
    CHECK(isnan(bench_data_decode(dtype, nan)));
}

static void check_sums(void) {
    /* bf16: 1, 2^-8 (half a unit in the last place), 2^-8: fp32 keeps what bf16 would lose, and rounds once. */
    const uint32_t bf16[3] = {0x3F80, 0x3B80, 0x3B80};
    CHECK_EQ(bench_data_sum(TPCOMM_BF16, bf16, 2), 0x3F80); /* a tie: to even */
    CHECK_EQ(bench_data_sum(TPCOMM_BF16, bf16, 3), 0x3F81);
    CHECK_EQ(bench_data_sum(TPCOMM_BF16, bf16, 1), 0x3F80);
    /* f32: order matters. 1 + 2^-24 + 2^-24 stays 1. */
    const uint32_t f32[3] = {0x3F800000, 0x33800000, 0x33800000};
    CHECK_EQ(bench_data_sum(TPCOMM_F32, f32, 3), 0x3F800000);
    const uint32_t turned[3] = {0x33800000, 0x33800000, 0x3F800000};
    CHECK_EQ(bench_data_sum(TPCOMM_F32, turned, 3), 0x3F800001);
    /* inf - inf, and a NaN with payload: the canonical one; of a single rank the bits as they are. */
    const uint32_t infinities[2] = {0x7F80, 0xFF80};
    CHECK_EQ(bench_data_sum(TPCOMM_BF16, infinities, 2), 0x7FFF);
    const uint32_t payload[2] = {0xFF81, 0};
    CHECK_EQ(bench_data_sum(TPCOMM_BF16, payload, 2), 0x7FFF);
    CHECK_EQ(bench_data_sum(TPCOMM_BF16, payload, 1), 0xFF81);
    const uint32_t zeros[2] = {0x8000, 0x8000};
    CHECK_EQ(bench_data_sum(TPCOMM_F16, zeros, 2), 0x8000);
}

/** An all_reduce by the reference alone, then single errors. */
static void check_check(tpcomm_dtype_t dtype) {
    enum { COUNT = 200000, RANKS = 3 };
    size_t size = tpcomm_dtype_size(dtype);
    unsigned char *in[RANKS], *out = malloc(COUNT * size);
    bench_data_t *data[RANKS];
    CHECK(out != NULL);
    for (int32_t rank = 0; rank < RANKS; rank++) {
        in[rank] = malloc(COUNT * size);
        CHECK(in[rank] != NULL);
        CHECK_OK(bench_data_new(dtype, rank, RANKS, 42, &data[rank]));
    }
    for (uint32_t buffer = 0; buffer < 4; buffer++) {
        uint64_t first = 0, differ = 0;
        for (int32_t rank = 0; rank < RANKS; rank++) bench_data_fill(data[rank], buffer, in[rank], COUNT);
        for (uint64_t i = 0; i < COUNT; i++) {
            uint32_t bits[RANKS] = {0, 0, 0};
            for (int32_t rank = 0; rank < RANKS; rank++) memcpy(&bits[rank], in[rank] + i * size, size);
            uint32_t sum = bench_data_sum(dtype, bits, RANKS);
            memcpy(out + i * size, &sum, size);
            differ += sum != bits[0];
            if (buffer == 0) CHECK(bench_data_decode(dtype, bits[1]) == (float)((7 * i + 3) % 13));
        }
        CHECK(differ > COUNT / 2);
        for (int32_t rank = 0; rank < RANKS; rank++)
            CHECK_EQ(bench_data_check(data[rank], buffer, out, COUNT, &first), 0);
        static const uint64_t places[] = {0, 1, 65519, 65520, 65521, 131041, 131042, COUNT - 1};
        for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
            out[places[i] * size] ^= 1;
            CHECK_EQ(bench_data_check(data[1], buffer, out, COUNT, &first), 1);
            CHECK_EQ(first, places[i]);
            out[places[i] * size] ^= 1;
        }
        /* Another buffer's result, one shifted by an element, and nothing at all. */
        CHECK(bench_data_check(data[0], buffer + 2, out, COUNT, &first) > COUNT / 2);
        CHECK(bench_data_check(data[0], buffer, out + size, COUNT - 1, &first) > COUNT / 2);
        memset(out, BENCH_POISON, COUNT * size);
        CHECK_EQ(bench_data_check(data[0], buffer, out, COUNT, &first), COUNT);
    }
    for (int32_t rank = 0; rank < RANKS; rank++) {
        free(in[rank]);
        bench_data_free(data[rank]);
    }
    free(out);
}

/** Every output is checked against the input that its last writer read, and each time round it meets another one. */
static void check_rotation(void) {
    CHECK_EQ(bench_buffers_pairs(1024), BENCH_ROTATION_MAX);
    CHECK_EQ(bench_buffers_pairs(BENCH_HOT_BYTES / 6), 3);
    CHECK_EQ(bench_buffers_pairs(BENCH_HOT_BYTES), 2);
    for (uint32_t pairs = 2; pairs <= BENCH_ROTATION_MAX; pairs++) {
        for (uint64_t calls = 1; calls < 200; calls++) {
            uint64_t last[BENCH_ROTATION_MAX];
            for (uint32_t out = 0; out < pairs; out++) last[out] = UINT64_MAX;
            for (uint64_t call = 0; call < calls; call++) {
                uint64_t *writer = &last[bench_buffers_out(pairs, call)];
                if (*writer != UINT64_MAX) CHECK(bench_buffers_in(pairs, call) != bench_buffers_in(pairs, *writer));
                *writer = call;
            }
            for (uint32_t out = 0; out < pairs; out++) CHECK(bench_buffers_last_call(pairs, calls, out) == last[out]);
        }
    }
}

int main(void) {
    check_rounding(TPCOMM_BF16, 0x7F80);
    check_rounding(TPCOMM_F16, 0x7C00);
    check_sums();
    check_check(TPCOMM_F32);
    check_check(TPCOMM_F16);
    check_check(TPCOMM_BF16);
    check_rotation();
    return 0;
}
