/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Check that a caller's float environment (rounding mode, flush to zero, subnormals as zero, unmasked exceptions,
 * raised flags) neither changes a reduction between tpc_float_env_enter and tpc_float_env_leave nor is changed by it.
 */
#include <fenv.h>

#include "check.h"
#include "cpu_backend/reduce.h"
#include "reduce_reference.h"

#if defined(__SSE2__)
#include <immintrin.h>
#endif

#define COUNT 1027
#define RANKS 3

static const tpcomm_dtype_t dtypes[] = {TPCOMM_F32, TPCOMM_F16, TPCOMM_BF16, TPCOMM_F64};
#define DTYPES (sizeof(dtypes) / sizeof(dtypes[0]))

static unsigned char rows[RANKS][COUNT * 8];
static unsigned char expected[DTYPES][TPCOMM_PROD + 1][COUNT * 8];

/* Random bits, a quarter of them subnormal, some infinite or NaN: every exception is raised on the way. */
static void make_rows(void) {
    uint64_t state = 77;
    for (int r = 0; r < RANKS; r++) {
        for (size_t i = 0; i < COUNT * 4; i++) {
            uint64_t bits = reference_random(&state);
            if (bits % 4 == 0) bits &= 0x807F807F807F807Fu;
            if (bits % 16 == 1) bits |= 0x7C007C007C007C00u;
            if (i < COUNT) reference_write(rows[r], i, 8, bits);
        }
    }
}

/* Every reduction of every instruction set, in the environment that the calling thread has now. */
static void check_reductions(const char *environment) {
    static unsigned char out[COUNT * 8];
    const void *in[RANKS] = {rows[0], rows[1], rows[2]};
    for (size_t d = 0; d < DTYPES; d++) {
        for (tpcomm_op_t op = TPCOMM_SUM; op <= TPCOMM_PROD; op++) {
            for (int isa = 0; isa < TPC_REDUCE_ISA_COUNT; isa++) {
                tpc_reduce_fn_t reduce = tpc_reduce_find_isa((tpc_reduce_isa_t)isa, dtypes[d], op);
                if (!reduce) continue;
                tpc_float_env_t env;
                tpc_float_env_enter(&env);
                reduce(out, in, RANKS, COUNT);
                tpc_float_env_leave(&env);
                reference_check(environment, dtypes[d], op, out, expected[d][op], in, RANKS, COUNT);
            }
        }
    }
}

static void check_rounding(int mode, const char *name) {
    fenv_t before;
    fegetenv(&before);
    CHECK(!fesetround(mode));
    feclearexcept(FE_ALL_EXCEPT);
    feraiseexcept(FE_DIVBYZERO);
    check_reductions(name);
    CHECK_EQ(fegetround(), mode);
    CHECK_EQ(fetestexcept(FE_ALL_EXCEPT), FE_DIVBYZERO);
    fesetenv(&before);
}

#if defined(__SSE2__)
static void check_mxcsr(uint32_t mxcsr, const char *name) {
    uint32_t before = _mm_getcsr();
    _mm_setcsr(mxcsr);
    check_reductions(name);
    uint32_t after = _mm_getcsr();
    _mm_setcsr(before);
    if (after != mxcsr) FAIL("%s: MXCSR was 0x%x, now 0x%x", name, mxcsr, after);
}
#endif

int main(void) {
    const void *in[RANKS] = {rows[0], rows[1], rows[2]};
    make_rows();
    for (size_t d = 0; d < DTYPES; d++)
        for (tpcomm_op_t op = TPCOMM_SUM; op <= TPCOMM_PROD; op++)
            reference_reduce(dtypes[d], op, expected[d][op], in, RANKS, COUNT);

    check_reductions("default");
    check_rounding(FE_TONEAREST, "to nearest");
    check_rounding(FE_UPWARD, "upward");
    check_rounding(FE_DOWNWARD, "downward");
    check_rounding(FE_TOWARDZERO, "toward zero");
#if defined(__SSE2__)
    check_mxcsr(0x9F80, "flush to zero");
    check_mxcsr(0x1FC0, "subnormals are zeros");
    check_mxcsr(0x9FC0, "both");
    check_mxcsr(0xFFC0, "both, toward zero");
    check_mxcsr(0x1FBF, "all flags raised");
    check_mxcsr(0x0000, "no exception masked");
    check_mxcsr(0xE040, "no exception masked, both, toward zero");
#endif
#if defined(__GLIBC__)
    const int traps = FE_INVALID | FE_DIVBYZERO | FE_OVERFLOW | FE_UNDERFLOW;
    if (feenableexcept(traps) >= 0) {
        check_reductions("exceptions trap");
        CHECK_EQ(fegetexcept(), traps);
    }
#endif
    return 0;
}
