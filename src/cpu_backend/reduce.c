/* SPDX-License-Identifier: Apache-2.0 */
/* Which kernels this machine runs, and the float environment they run in. */
#include "cpu_backend/reduce.h"

#include <stdatomic.h>

#include "base/hook.h"
#include "base/status.h"
#include "cpu_backend/reduce_tables.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif
#if defined(__SSE2__)
#include <immintrin.h>
#endif

#if defined(__x86_64__)
/* __builtin_cpu_supports also asks whether the operating system saves the registers; not every compiler knows "f16c".
 */
static bool cpu_has_avx2(void) {
    unsigned eax, ebx, ecx, edx;
    if (!__get_cpuid(1, &eax, &ebx, &ecx, &edx) || !(ecx & bit_F16C)) return false;
    return __builtin_cpu_supports("avx2");
}

static bool cpu_has_avx512(void) {
    return cpu_has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}
#endif

bool tpc_reduce_isa_usable(tpc_reduce_isa_t isa) {
    switch (isa) {
    case TPC_REDUCE_GENERIC:
        return true;
#if defined(__x86_64__)
    case TPC_REDUCE_AVX2:
        return cpu_has_avx2();
    case TPC_REDUCE_AVX512:
        return cpu_has_avx512();
#endif
    default:
        return false;
    }
}

static tpc_reduce_isa_t isa_best(void) {
    static _Atomic int32_t known; /* isa + 1; 0 before the first call. Threads that race here store the same. */

    int32_t best = atomic_load_explicit(&known, memory_order_relaxed);
    if (!best) {
        best = TPC_REDUCE_ISA_COUNT;
        while (!tpc_reduce_isa_usable((tpc_reduce_isa_t)(best - 1))) best--;
        atomic_store_explicit(&known, best, memory_order_relaxed);
    }
    return (tpc_reduce_isa_t)(best - 1);
}

tpc_reduce_isa_t tpc_reduce_isa_now(void) {
    uint64_t forced = tpc_hook_value("reduce_isa", TPC_REDUCE_ISA_COUNT);
    if (forced < TPC_REDUCE_ISA_COUNT && tpc_reduce_isa_usable((tpc_reduce_isa_t)forced))
        return (tpc_reduce_isa_t)forced;
    return isa_best();
}

tpc_reduce_fn_t tpc_reduce_find_isa(tpc_reduce_isa_t isa, tpcomm_dtype_t dtype, tpcomm_op_t op) {
    if (!tpc_reduction_defined(dtype, op) || !tpc_reduce_isa_usable(isa)) return NULL;
    switch (isa) {
#if defined(__x86_64__)
    case TPC_REDUCE_AVX512:
        return tpc_reduce_find_avx512(dtype, op);
    case TPC_REDUCE_AVX2:
        return tpc_reduce_find_avx2(dtype, op);
#endif
    default:
        return tpc_reduce_find_generic(dtype, op);
    }
}

tpc_reduce_fn_t tpc_reduce_find(tpcomm_dtype_t dtype, tpcomm_op_t op) {
    return tpc_reduce_find_isa(tpc_reduce_isa_now(), dtype, op);
}

const char *tpc_reduce_isa(void) {
    static const char *const names[TPC_REDUCE_ISA_COUNT] = {"generic", "avx2", "avx512"};
    return names[tpc_reduce_isa_now()];
}

#if defined(__SSE2__)

/* All exceptions masked, round to nearest, no flush to zero, subnormals are not zeros; the six flags in front of them.
 */
#define MXCSR_DEFAULT 0x1F80u
#define MXCSR_FLAGS   0x003Fu

void tpc_float_env_enter(tpc_float_env_t *env_p) {
    env_p->mxcsr = _mm_getcsr();
    if ((env_p->mxcsr & ~MXCSR_FLAGS) != MXCSR_DEFAULT) _mm_setcsr(MXCSR_DEFAULT);
}

void tpc_float_env_leave(const tpc_float_env_t *env) {
    if (_mm_getcsr() != env->mxcsr) _mm_setcsr(env->mxcsr);
}

#elif defined(__aarch64__)

/* FPCR 0 is the default: round to nearest, no flush to zero, no default NaN, no traps. FPSR holds the exception flags.
 */
void tpc_float_env_enter(tpc_float_env_t *env_p) {
    __asm__ volatile("mrs %0, fpcr" : "=r"(env_p->fpcr)::"memory");
    __asm__ volatile("mrs %0, fpsr" : "=r"(env_p->fpsr)::"memory");
    if (env_p->fpcr) __asm__ volatile("msr fpcr, %0" ::"r"((uint64_t)0) : "memory");
}

void tpc_float_env_leave(const tpc_float_env_t *env) {
    if (env->fpcr) __asm__ volatile("msr fpcr, %0" ::"r"(env->fpcr) : "memory");
    __asm__ volatile("msr fpsr, %0" ::"r"(env->fpsr) : "memory");
}

#else

void tpc_float_env_enter(tpc_float_env_t *env_p) {
    fegetenv(&env_p->fenv);
    fesetenv(FE_DFL_ENV);
}

void tpc_float_env_leave(const tpc_float_env_t *env) {
    fesetenv(&env->fenv);
}

#endif
