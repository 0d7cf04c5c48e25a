/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Check that tpcomm_rms_norm on the cpu device gives the bits of docs/numerics.md, as a second implementation has them:
 * rows of every length from 8 to 512 and many up to 16384, every dtype, weight, bias, residual and quantisation,
 * strides, misalignment, in place; every instruction set; whatever float environment the caller has. All 256 codes of
 * the 8-bit float and all 16-bit values go through the quantiser. Prints how far from an fp64 norm the results are.
 */
#include "unit/norm_reference.h"

#include <fenv.h>

#if defined(__SSE2__)
#include <immintrin.h>
#endif

#include "base/hook.h"
#include "cpu_backend/reduce.h"

#define ROWS 3

static struct {
    _Alignas(64) unsigned char in[ROWS * 70000], residual[ROWS * 70000], weight[70000], out[ROWS * 70000],
        quantized[ROWS * 20000];
    float scale[ROWS];
} buffers;
static norm_expected_t expected;

static void use_isa(int isa) {
    char hooks[32];
    snprintf(hooks, sizeof hooks, "set@reduce_isa:%d", isa);
    CHECK_EQ(setenv("TPCOMM_TEST_HOOKS", hooks, 1), 0);
    tpc_hook_reload();
}

static const char *quant_name(tpcomm_quant_t quant) {
    return quant == TPCOMM_QUANT_NONE ? "no quantisation" : quant == TPCOMM_QUANT_F8_TENSOR ? "f8_tensor" : "f8_token";
}

/* One call of some rows, all of it compared. */
static void one(const norm_case_t *proto, int kind, uint64_t seed) {
    norm_case_t c = *proto;
    size_t element = tpcomm_dtype_size(c.dtype), hidden = (size_t)c.hidden;
    size_t gap = seed % 3 * 8, misalign = seed % 5 == 0 ? 1 : 0, rows = 1 + seed % ROWS;
    bool in_place = seed % 2 == 0, without_out = c.quant != TPCOMM_QUANT_NONE && seed % 4 == 1;
    unsigned char *in = buffers.in + misalign, *residual = buffers.residual + 2 * misalign,
                  *weight = buffers.weight + misalign, *out = in_place ? in : buffers.out + misalign,
                  *quantized = buffers.quantized + misalign;
    norm_fill(kind, c.weight_dtype, seed + 1, hidden, weight);
    for (size_t t = 0; t < rows; t++) {
        norm_fill(kind, c.dtype, seed + 2 + t, hidden, in + t * (hidden + gap) * element);
        norm_fill(kind, c.dtype, seed + 100 + t, hidden, residual + t * hidden * element);
    }
    static unsigned char in_before[sizeof buffers.in], residual_before[sizeof buffers.residual];
    memcpy(in_before, buffers.in, sizeof in_before);
    memcpy(residual_before, buffers.residual, sizeof residual_before);
    memset(buffers.out, 0xEE, sizeof buffers.out);
    memset(buffers.quantized, 0xEE, sizeof buffers.quantized);
    buffers.scale[0] = c.scale;
    tpcomm_rms_norm_t norm = {.struct_size = sizeof norm,
                              .dtype = c.dtype,
                              .weight_dtype = c.weight_dtype,
                              .quant = c.quant,
                              .hidden = c.hidden,
                              .tokens = rows,
                              .eps = (float)c.eps,
                              .weight_bias = (float)c.bias,
                              .in = in,
                              .weight = weight,
                              .residual = c.residual != NULL ? residual : NULL,
                              .out = without_out ? NULL : out,
                              .quantized = c.quant != TPCOMM_QUANT_NONE ? quantized : NULL,
                              .scale = c.quant != TPCOMM_QUANT_NONE ? buffers.scale : NULL,
                              .in_stride = hidden + gap,
                              .out_stride = hidden + gap};
    CHECK_OK(tpcomm_rms_norm(TPCOMM_DEVICE_CPU, &norm, NULL));
    c.weight = weight;
    for (size_t t = 0; t < rows; t++) {
        size_t at = 0, in_at = t * (hidden + gap) * element, row_at = t * hidden * element;
        const void *row = in_before + (in - buffers.in) + in_at;
        if (c.residual != NULL) c.residual = residual_before + (residual - buffers.residual) + row_at;
        norm_reference(&c, &row, 1, &expected);
        const char *wrong = NULL;
        if (c.residual != NULL && !norm_same(c.dtype, residual + row_at, expected.x, hidden, &at)) wrong = "residual";
        if (norm.out != NULL && !norm_same(c.dtype, out + in_at, expected.y, hidden, &at)) wrong = "out";
        if (norm.quantized != NULL && memcmp(quantized + t * hidden, expected.quantized, hidden) != 0)
            wrong = "quantized";
        if (c.quant == TPCOMM_QUANT_F8_TOKEN && memcmp(&buffers.scale[t], &expected.scale, sizeof(float)) != 0)
            wrong = "scale";
        if (wrong != NULL)
            FAIL("%s %s, weight %s, hidden %d, bias %g, %s, %s residual, values %d, seed %llu: %s of row %zu differs, "
                 "element %zu",
                 tpc_reduce_isa(), tpcomm_dtype_name(c.dtype), tpcomm_dtype_name(c.weight_dtype), c.hidden, c.bias,
                 quant_name(c.quant), c.residual != NULL ? "with" : "without", kind, (unsigned long long)seed, wrong, t,
                 at);
        if (in_place && !without_out) continue;
        CHECK(memcmp(in + in_at, row, hidden * element) == 0);
    }
    /* Nothing beside the rows was written. */
    if (norm.out != NULL)
        for (size_t t = 0; t + 1 < rows; t++)
            for (size_t i = hidden * element; i < (hidden + gap) * element; i++) {
                size_t at = t * (hidden + gap) * element + i;
                CHECK_EQ(out[at], in_place ? in_before[(size_t)(in - buffers.in) + at] : 0xEE);
            }
    if (norm.quantized != NULL) CHECK_EQ(quantized[rows * hidden], 0xEE);
}

static const tpcomm_dtype_t dtypes[] = {TPCOMM_F32, TPCOMM_F16, TPCOMM_BF16};

static void options(int hidden, int kind, uint64_t *seed) {
    for (int d = 0; d < 3; d++)
        for (int wide = 0; wide < 2; wide++)
            for (int quant = TPCOMM_QUANT_NONE; quant <= TPCOMM_QUANT_F8_TOKEN; quant++)
                for (int flags = 0; flags < 4; flags++) {
                    if (wide && dtypes[d] == TPCOMM_F32) continue;
                    norm_case_t c = {.dtype = dtypes[d],
                                     .weight_dtype = wide ? TPCOMM_F32 : dtypes[d],
                                     .hidden = hidden,
                                     .eps = (double)1e-5f,
                                     .bias = flags & 1,
                                     .quant = quant,
                                     .scale = 0.0123f,
                                     .residual = flags & 2 ? &c : NULL};
                    one(&c, kind, ++*seed);
                }
}

static void lengths(bool thorough) {
    static const int long_ones[] = {1024, 2048, 2568, 4096, 7168, 8192, 16376, 16384};
    uint64_t seed = 0;
    for (int hidden = 8; hidden <= 512; hidden += thorough ? 8 : 120) options(hidden, hidden / 8 % NORM_KINDS, &seed);
    for (size_t i = 0; i < sizeof long_ones / sizeof *long_ones; i++)
        if (thorough || i % 3 == 0) options(long_ones[i], (int)i % NORM_KINDS, &seed);
}

/* Rows of ones and an eps that vanishes beside 1: y is the weight, so every value can be sent to the quantiser. */
static void quantise_all(tpcomm_dtype_t dtype) {
    size_t element = tpcomm_dtype_size(dtype), hidden = NORM_HIDDEN_MOST;
    uint32_t one_bits = reference_encode(reference_format(dtype), 1);
    for (uint32_t from = 0; from < 65536; from += (uint32_t)hidden) {
        for (uint32_t i = 0; i < hidden; i++) {
            uint32_t bits = from + i;
            if (dtype == TPCOMM_F32) bits = bits << 16 | bits; /* near and at bf16's values */
            reference_write(buffers.in, i, element, one_bits);
            reference_write(buffers.weight, i, element, bits);
        }
        buffers.scale[0] = 1;
        tpcomm_rms_norm_t norm = {.struct_size = sizeof norm,
                                  .dtype = dtype,
                                  .quant = TPCOMM_QUANT_F8_TENSOR,
                                  .hidden = (int32_t)hidden,
                                  .tokens = 1,
                                  .eps = 1e-30f,
                                  .in = buffers.in,
                                  .weight = buffers.weight,
                                  .quantized = buffers.quantized,
                                  .scale = buffers.scale};
        CHECK_OK(tpcomm_rms_norm(TPCOMM_DEVICE_CPU, &norm, NULL));
        for (size_t i = 0; i < hidden; i++) {
            double value = norm_value(dtype, buffers.weight, i);
            if (value == 0) value = 0; /* a weight of -0, plus a bias of +0 */
            if (buffers.quantized[i] != norm_f8_encode(value))
                FAIL("%s %a is code %02x, want %02x", tpcomm_dtype_name(dtype), value, buffers.quantized[i],
                     norm_f8_encode(value));
        }
    }
}

/* Every code's value is encoded to that code; of the two NaNs, to the one. */
static void all_codes(void) {
    float *weight = (void *)buffers.weight, *in = (void *)buffers.in;
    for (unsigned code = 0; code < 256; code++) {
        double magnitude = (code & 0x7F) == 0x7F ? NAN : norm_f8_decode(code & 0x7F);
        weight[code] = (float)(code & 0x80 ? -magnitude : magnitude);
        in[code] = 1;
    }
    buffers.scale[0] = 1;
    tpcomm_rms_norm_t norm = {.struct_size = sizeof norm,
                              .dtype = TPCOMM_F32,
                              .quant = TPCOMM_QUANT_F8_TENSOR,
                              .hidden = 256,
                              .tokens = 1,
                              .eps = 1e-30f,
                              .in = in,
                              .weight = weight,
                              .quantized = buffers.quantized,
                              .scale = buffers.scale};
    CHECK_OK(tpcomm_rms_norm(TPCOMM_DEVICE_CPU, &norm, NULL));
    for (unsigned code = 0; code < 256; code++)
        CHECK_EQ(buffers.quantized[code], (code & 0x7F) == 0x7F ? 0x7F : code == 0x80 ? 0 : code);
}

/* A row of zeros, one of the smallest numbers, one with an infinity, one with a NaN. */
static void edges_of_scales(void) {
    static const struct {
        uint32_t weight, want_scale;
        uint8_t want;
    } rows[] = {{0, 0x3F800000, 0},
                {1, 0x3F800000, 0},
                {0x00800000, 0x3F800000, 0},
                {0x7F800000, 0x7F800000, 0x7F},
                {0x7FC00000, 0x7FFFFFFF, 0x7F},
                {0x43E00000, 0x3F800000, 0x7E},  /* 448 */
                {0x40000000, 0x3B924925, 0x7E}}; /* 2 / 448 */
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        float in[8] = {1, 1, 1, 1, 1, 1, 1, 1}, scale = -1;
        uint32_t weight[8] = {0}, scale_bits;
        uint8_t quantized[8];
        weight[3] = rows[i].weight;
        tpcomm_rms_norm_t norm = {.struct_size = sizeof norm,
                                  .dtype = TPCOMM_F32,
                                  .quant = TPCOMM_QUANT_F8_TOKEN,
                                  .hidden = 8,
                                  .tokens = 1,
                                  .eps = 1e-30f,
                                  .in = in,
                                  .weight = weight,
                                  .quantized = quantized,
                                  .scale = &scale};
        CHECK_OK(tpcomm_rms_norm(TPCOMM_DEVICE_CPU, &norm, NULL));
        memcpy(&scale_bits, &scale, sizeof scale_bits);
        CHECK_EQ(scale_bits, rows[i].want_scale);
        CHECK_EQ(quantized[3], rows[i].want);
        if (rows[i].weight < 0x7F800000) CHECK_EQ(quantized[0], 0);
    }
}

/* The float environment of others: the result is the same, and they have theirs back. */
static void hostile_environment(void) {
    uint64_t seed = 5000;
    int modes[] = {FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO};
    static unsigned char want[sizeof buffers];
    for (int kind = 0; kind < NORM_KINDS; kind++)
        for (int m = 0; m < 3; m++, seed += 10) {
            for (int hostile = 0; hostile < 2; hostile++) {
                memset(&buffers, 0, sizeof buffers);
                norm_fill(kind, TPCOMM_BF16, seed, 2568, buffers.in);
                norm_fill(kind, TPCOMM_BF16, seed + 1, 2568, buffers.residual);
                norm_fill(kind, TPCOMM_BF16, seed + 2, 2568, buffers.weight);
                tpcomm_rms_norm_t norm = {.struct_size = sizeof norm,
                                          .dtype = TPCOMM_BF16,
                                          .quant = TPCOMM_QUANT_F8_TOKEN,
                                          .hidden = 2568,
                                          .tokens = 1,
                                          .eps = 1e-6f,
                                          .in = buffers.in,
                                          .weight = buffers.weight,
                                          .residual = buffers.residual,
                                          .out = buffers.out,
                                          .quantized = buffers.quantized,
                                          .scale = buffers.scale};
                fenv_t before;
                CHECK_EQ(fegetenv(&before), 0);
                if (hostile) {
                    CHECK_EQ(fesetround(modes[m]), 0);
#if defined(__SSE2__)
                    _mm_setcsr(_mm_getcsr() | 0x8040u); /* flush to zero, subnormals are zeros */
#endif
                }
                tpcomm_status_t status = tpcomm_rms_norm(TPCOMM_DEVICE_CPU, &norm, NULL);
                int mode = fegetround();
                CHECK_EQ(fesetenv(&before), 0);
                CHECK_OK(status);
                CHECK_EQ(mode, hostile ? modes[m] : FE_TONEAREST);
                if (!hostile) memcpy(want, &buffers, sizeof want);
            }
            CHECK(memcmp(want, &buffers, sizeof want) == 0);
        }
}

static void accuracy(tpcomm_dtype_t dtype) {
    double worst = 0;
    size_t element = tpcomm_dtype_size(dtype);
    int digits = reference_format(dtype).digits;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        size_t hidden = 4096;
        norm_fill(NORM_PLAIN, dtype, seed, hidden, buffers.in);
        norm_fill(NORM_PLAIN, dtype, seed + 50, hidden, buffers.weight);
        tpcomm_rms_norm_t norm = {.struct_size = sizeof norm,
                                  .dtype = dtype,
                                  .hidden = (int32_t)hidden,
                                  .tokens = 1,
                                  .eps = 1e-6f,
                                  .in = buffers.in,
                                  .weight = buffers.weight,
                                  .out = buffers.out};
        CHECK_OK(tpcomm_rms_norm(TPCOMM_DEVICE_CPU, &norm, NULL));
        double squares = 0;
        for (size_t i = 0; i < hidden; i++) squares += pow(norm_value(dtype, buffers.in, i), 2);
        for (size_t i = 0; i < hidden; i++) {
            double exact = norm_value(dtype, buffers.in, i) / sqrt(squares / (double)hidden + (double)1e-6f) *
                           norm_value(dtype, buffers.weight, i);
            double unit = ldexp(1, exact == 0 ? 0 : ilogb(exact) - digits + 1);
            double error = fabs(reference_decode(reference_format(dtype),
                                                 (uint32_t)reference_read(buffers.out, i, element, false)) -
                                exact) /
                           unit;
            if (fabs(exact) > 1e-3 && error > worst) worst = error;
        }
    }
    printf("%s: at most %.3f units in the last place from an fp64 norm\n", tpcomm_dtype_name(dtype), worst);
    CHECK(worst < 4); /* a half for the rounding to dtype, the rest for four operations in fp32 */
}

int main(void) {
    for (int isa = 0; isa < TPC_REDUCE_ISA_COUNT; isa++) {
        if (!tpc_reduce_isa_usable((tpc_reduce_isa_t)isa)) continue;
        use_isa(isa);
        printf("%s\n", tpc_reduce_isa());
        lengths(isa == TPC_REDUCE_GENERIC);
        for (int d = 0; d < 3; d++) quantise_all(dtypes[d]);
        all_codes();
        edges_of_scales();
        hostile_environment();
    }
    for (int d = 0; d < 3; d++) accuracy(dtypes[d]);
    return 0;
}
