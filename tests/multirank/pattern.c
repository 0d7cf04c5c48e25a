/* SPDX-License-Identifier: Apache-2.0 */
#include "multirank/pattern.h"

#include "cpu_backend/reduce.h"
#include "multirank/ranks.h"

#define GUARD_BYTES 64u
#define GUARD_VALUE 0xA5

static uint16_t small_to_f16(unsigned value) { /* 0 ... 12, exact */
    if (value == 0) return 0;
    unsigned exponent = 0;
    while (value >> (exponent + 1) != 0) exponent++;
    return (uint16_t)((exponent + 15) << 10 | (value << (10 - exponent) & 0x3FF));
}

static void put(tpcomm_dtype_t dtype, unsigned value, size_t i, unsigned char *out) {
    size_t bytes = tpcomm_dtype_size(dtype);
    float f32 = (float)value;
    double f64 = (double)value;
    uint32_t bits;
    uint64_t integer = value; /* little endian: its first bytes are the narrower integers */
    memcpy(&bits, &f32, sizeof bits);
    uint16_t bf16 = (uint16_t)(bits >> 16), f16 = small_to_f16(value);
    const void *from = &integer;
    if (dtype == TPCOMM_F32) from = &f32;
    if (dtype == TPCOMM_F64) from = &f64;
    if (dtype == TPCOMM_BF16) from = &bf16;
    if (dtype == TPCOMM_F16) from = &f16;
    memcpy(out + i * bytes, from, bytes);
}

void bytes_repeat(void *data, size_t period, size_t bytes) {
    for (size_t have = period; have < bytes; have *= 2)
        memcpy((char *)data + have, data, have < bytes - have ? have : bytes - have);
}

/* A rank's pattern, piece by piece. Every piece but the last has a multiple of 13 * 8 elements: the periods of both
 * kinds. */
enum { PIECE = 13 * 8 * 40 };

static uint64_t pattern_begin(uint64_t seed, int32_t rank) {
    return seed * 1000003u + (uint64_t)rank;
}

static void pattern_more(int kind, tpcomm_dtype_t dtype, uint64_t seed, int32_t rank, uint64_t *state, size_t count,
                         void *out) {
    unsigned char *bytes = out;
    size_t total = count * tpcomm_dtype_size(dtype), i = 0;
    if (kind == PATTERN_EXACT) {
        for (; i < count && i < 13; i++) put(dtype, (unsigned)((7 * (i + seed) + 3 * (unsigned)rank) % 13), i, out);
        bytes_repeat(out, i * tpcomm_dtype_size(dtype), total);
        return;
    }
    for (; i + 8 <= total; i += 8) {
        uint64_t bits = random_next(state);
        memcpy(bytes + i, &bits, 8);
    }
    for (; i < total; i++) bytes[i] = (unsigned char)random_next(state);
}

void pattern_fill(int kind, tpcomm_dtype_t dtype, uint64_t seed, int32_t rank, size_t count, void *out) {
    uint64_t state = pattern_begin(seed, rank);
    pattern_more(kind, dtype, seed, rank, &state, count, out);
}

void pattern_result(int kind, tpcomm_dtype_t dtype, tpcomm_op_t op, uint64_t seed, int32_t size, size_t count,
                    void *out) {
    size_t element = tpcomm_dtype_size(dtype), piece = count < PIECE ? count : PIECE;
    const void *inputs[TPCOMM_MAX_RANKS];
    uint64_t states[TPCOMM_MAX_RANKS];
    unsigned char *made = malloc((size_t)size * piece * element + 1);
    CHECK(made != NULL);
    for (int32_t r = 0; r < size; r++) {
        inputs[r] = made + (size_t)r * piece * element;
        states[r] = pattern_begin(seed, r);
    }
    for (size_t at = 0; at < count; at += piece) {
        size_t n = count - at < piece ? count - at : piece;
        unsigned char *to = (unsigned char *)out + at * element;
        for (int32_t r = 0; r < size; r++)
            pattern_more(kind, dtype, seed, r, &states[r], n, made + (size_t)r * piece * element);
        if (size == 1)
            memcpy(to, made, n * element);
        else
            tpc_reduce_find_isa(TPC_REDUCE_GENERIC, dtype, op)(to, inputs, size, n);
    }
    free(made);
}

guarded_t guarded_new(size_t bytes, size_t misalign) {
    guarded_t guarded = {.block = malloc(bytes + misalign + 3 * GUARD_BYTES + 64), .bytes = bytes};
    CHECK(guarded.block != NULL);
    uintptr_t start = ((uintptr_t)guarded.block + GUARD_BYTES + 63) / 64 * 64 + misalign;
    guarded.data = (unsigned char *)start;
    memset(guarded.data - GUARD_BYTES, GUARD_VALUE, GUARD_BYTES);
    memset(guarded.data + bytes, GUARD_VALUE, GUARD_BYTES);
    return guarded;
}

void guarded_check(const guarded_t *guarded) {
    for (size_t i = 0; i < GUARD_BYTES; i++) {
        if (guarded->data[-1 - (ptrdiff_t)i] != GUARD_VALUE) FAIL("byte %zu before the buffer was written", i + 1);
        if (guarded->data[guarded->bytes + i] != GUARD_VALUE) FAIL("byte %zu after the buffer was written", i);
    }
}

void guarded_free(guarded_t *guarded) {
    free(guarded->block);
}
