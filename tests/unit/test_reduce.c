/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Check that every reduction kernel of every instruction set gives the reference's bits: every dtype and op, 2 to 32
 * ranks, counts that end anywhere in a vector, every misalignment, out of place and in place of each rank, and that it
 * writes nothing outside its output and changes no input.
 */
#include <stdlib.h>

#include "base/hook.h"
#include "check.h"
#include "cpu_backend/reduce.h"
#include "reduce_reference.h"

#define COUNT_MAX 4097
#define GUARD     64
#define SHIFT_MAX 32
#define ROOM      (COUNT_MAX * 8 + 2 * GUARD + SHIFT_MAX)
#define SHIFTS    6

static const char *const isa_names[] = {"generic", "avx2", "avx512"};

/* One rank's data: as made, and where kernels see it. The last one is the output's. */
static unsigned char pristine[TPCOMM_MAX_RANKS][COUNT_MAX * 8];
static _Alignas(64) unsigned char arena[TPCOMM_MAX_RANKS + 1][ROOM];
static unsigned char expected[COUNT_MAX * 8];

static uint64_t random_state = 20240607;

/* A third any bits at all, a third small numbers of like size (sums that round, ties, zeros), a third ends of the
 * range. */
static uint64_t make_element(tpcomm_dtype_t dtype) {
    static const uint64_t ends[] = {0,      1,      0x8000, 0x8001, 0x7C00, 0x7BFF,
                                    0x7F80, 0x7F7F, 0xFC00, 0xFF80, 0x03FF, 0x007F};
    uint64_t bits = reference_random(&random_state), kind = bits % 3;
    size_t width = tpcomm_dtype_size(dtype) * 8;
    bits = reference_random(&random_state);
    if (kind == 0) return bits;
    if (kind == 1) {
        int64_t small = (int64_t)(bits % 4096) - 2048;
        if (!tpc_dtype_is_float(dtype)) return (uint64_t)small;
        double value = (double)small / (bits & 0x10000 ? 64 : 1024);
        uint64_t as_f64;
        memcpy(&as_f64, &value, sizeof(as_f64));
        return dtype == TPCOMM_F64 ? as_f64 : reference_encode(reference_format(dtype), value);
    }
    uint64_t end = ends[bits % (sizeof(ends) / sizeof(ends[0]))];
    return width > 16 ? end << (width - 16) | (bits >> 62) : end;
}

static unsigned char *place(int slot, size_t shift) {
    return arena[slot] + GUARD + shift;
}

static void guard_fill(int slot) {
    memset(arena[slot], 0xA5, ROOM);
}

static void guard_check(const char *isa, int slot, size_t shift, size_t bytes) {
    const unsigned char *start = place(slot, shift);
    for (size_t i = 1; i <= GUARD; i++)
        if (start[-(ptrdiff_t)i] != 0xA5) FAIL("%s: wrote %zu bytes in front of the output", isa, i);
    for (size_t i = 0; i < GUARD; i++)
        if (start[bytes + i] != 0xA5) FAIL("%s: wrote %zu bytes behind the output", isa, i);
}

static size_t next_count(size_t count) {
    if (count < 70) return count + 1;
    if (count == 70) return 1021;
    return count == 1021 ? COUNT_MAX : COUNT_MAX + 1;
}

/* Ranks lie differently to one another, as the buffers of callers do. */
static size_t shift_of(size_t variant, int slot, size_t element_bytes) {
    switch (variant) {
    case 4:
        return 1;
    case 5:
        return (size_t)(slot * 3 + 1) % SHIFT_MAX;
    default:
        return (variant + (size_t)slot % 2) * element_bytes;
    }
}

static void check_counts(tpc_reduce_isa_t isa, tpcomm_dtype_t dtype, tpcomm_op_t op, int n, size_t variant) {
    size_t element_bytes = tpcomm_dtype_size(dtype);
    size_t shifts[TPCOMM_MAX_RANKS + 1];
    const void *in[TPCOMM_MAX_RANKS], *made[TPCOMM_MAX_RANKS];
    const char *name = isa_names[isa];
    tpc_reduce_fn_t reduce = tpc_reduce_find_isa(isa, dtype, op);

    for (int slot = 0; slot <= n; slot++) {
        shifts[slot] = shift_of(variant, slot, element_bytes);
        guard_fill(slot);
        if (slot == n) break;
        in[slot] = memcpy(place(slot, shifts[slot]), pristine[slot], COUNT_MAX * element_bytes);
        made[slot] = pristine[slot];
    }
    for (size_t count = 0; count <= COUNT_MAX; count = next_count(count)) {
        size_t bytes = count * element_bytes;
        unsigned char *out = place(n, shifts[n]);
        reduce(out, in, n, count);
        reference_check(name, dtype, op, out, expected, made, n, count);
        guard_check(name, n, shifts[n], bytes);
        memset(out, 0xA5, bytes);
    }
    for (int r = 0; r < n; r++)
        if (memcmp(in[r], pristine[r], COUNT_MAX * element_bytes)) FAIL("%s: input of rank %d was changed", name, r);

    /* In place: the output is rank r's input, whose own bytes behind count must stay. */
    for (int r = (int)variant % 3; r < n; r += 3) {
        unsigned char *out = place(r, shifts[r]);
        for (size_t count = 0; count <= COUNT_MAX; count = next_count(count)) {
            size_t bytes = count * element_bytes, behind = COUNT_MAX * element_bytes - bytes;
            if (behind > GUARD) behind = GUARD;
            reduce(out, in, n, count);
            reference_check(name, dtype, op, out, expected, made, n, count);
            if (memcmp(out + bytes, pristine[r] + bytes, behind)) FAIL("%s: in place, wrote behind the output", name);
            memcpy(out, pristine[r], bytes);
        }
        guard_check(name, r, shifts[r], COUNT_MAX * element_bytes);
    }
}

static void check_reduction(tpcomm_dtype_t dtype, tpcomm_op_t op) {
    size_t element_bytes = tpcomm_dtype_size(dtype);
    const void *made[TPCOMM_MAX_RANKS];
    for (int r = 0; r < TPCOMM_MAX_RANKS; r++) {
        for (size_t i = 0; i < COUNT_MAX; i++) reference_write(pristine[r], i, element_bytes, make_element(dtype));
        made[r] = pristine[r];
    }
    for (int n = 2; n <= TPCOMM_MAX_RANKS; n++) {
        /* A sanitizer makes it ten times as long, and has seen all when it has seen every kind of loop. */
        if (TEST_SANITIZED && n > 9 && n % 8 > 1) continue;
        reference_reduce(dtype, op, expected, made, n, COUNT_MAX);
        for (int isa = 0; isa < TPC_REDUCE_ISA_COUNT; isa++) {
            if (!tpc_reduce_isa_usable((tpc_reduce_isa_t)isa)) continue;
            for (size_t variant = 0; variant < SHIFTS; variant++)
                check_counts((tpc_reduce_isa_t)isa, dtype, op, n, variant);
        }
    }
}

/* A kernel exists exactly where the reduction is defined, whatever numbers a caller makes up. */
static void check_find(void) {
    for (int32_t dtype = -2; dtype < 20; dtype++) {
        for (int32_t op = -2; op < 10; op++) {
            bool defined = tpc_reduction_defined(dtype, op);
            CHECK_EQ(tpc_reduce_find(dtype, op) != NULL, defined);
            for (int isa = 0; isa < TPC_REDUCE_ISA_COUNT; isa++)
                CHECK_EQ(tpc_reduce_find_isa((tpc_reduce_isa_t)isa, dtype, op) != NULL,
                         defined && tpc_reduce_isa_usable((tpc_reduce_isa_t)isa));
        }
    }
    CHECK(!tpc_reduce_find_isa(TPC_REDUCE_ISA_COUNT, TPCOMM_F32, TPCOMM_SUM));
}

/* The choice is the best usable set; the hook takes another one. */
static void check_isa(void) {
    int best = TPC_REDUCE_ISA_COUNT - 1;
    while (!tpc_reduce_isa_usable((tpc_reduce_isa_t)best)) best--;
    unsetenv("TPCOMM_TEST_HOOKS");
    tpc_hook_reload();
    CHECK(!strcmp(tpc_reduce_isa(), isa_names[best]));
    CHECK(tpc_reduce_isa_usable(TPC_REDUCE_GENERIC));
    for (int isa = 0; isa <= TPC_REDUCE_ISA_COUNT; isa++) {
        char hook[64];
        snprintf(hook, sizeof(hook), "set@reduce_isa:%d", isa);
        setenv("TPCOMM_TEST_HOOKS", hook, 1);
        tpc_hook_reload();
        int want = tpc_reduce_isa_usable((tpc_reduce_isa_t)isa) ? isa : best;
        CHECK(!strcmp(tpc_reduce_isa(), isa_names[want]));
        CHECK(tpc_reduce_find(TPCOMM_BF16, TPCOMM_SUM) ==
              tpc_reduce_find_isa((tpc_reduce_isa_t)want, TPCOMM_BF16, TPCOMM_SUM));
    }
    unsetenv("TPCOMM_TEST_HOOKS");
    tpc_hook_reload();
}

int main(void) {
    check_find();
    check_isa();
    for (tpcomm_dtype_t dtype = TPCOMM_F32; dtype <= TPCOMM_F8_E5M2; dtype++)
        for (tpcomm_op_t op = TPCOMM_SUM; op <= TPCOMM_PROD; op++)
            if (tpc_reduction_defined(dtype, op)) check_reduction(dtype, op);
    return 0;
}
