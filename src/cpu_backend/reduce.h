/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Reduction kernels of the cpu device: the arithmetic of docs/numerics.md, bit for bit the same on every instruction
 * set.
 *
 * A kernel computes as if the float environment were the default one, so its caller brackets a run of kernels by
 * tpc_float_env_enter and tpc_float_env_leave.
 */
#ifndef TPC_CPU_BACKEND_REDUCE_H
#define TPC_CPU_BACKEND_REDUCE_H

#include <fenv.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tpcomm.h"

/**
 * out[i] = op over r = 0 .. n-1 of in[r][i], for count elements.
 * @param out    may equal any in[r] exactly; no other overlap. Any alignment.
 * @param in     n pointers; any alignment; may equal one another.
 * @param n      2 or more.
 * @param count  elements; 0 is allowed, and nothing is then read or written.
 */
typedef void (*tpc_reduce_fn_t)(void *out, const void *const *in, int32_t n, size_t count);

/** The kernel for this machine; NULL where tpc_reduction_defined() is false. Look it up once, not per call. */
tpc_reduce_fn_t tpc_reduce_find(tpcomm_dtype_t dtype, tpcomm_op_t op);

/** Name of the instruction set whose kernels tpc_reduce_find() gives: "avx512", "avx2", "generic". */
const char *tpc_reduce_isa(void);

/** Instruction sets, best last. The test hook "set@reduce_isa:VALUE" makes tpc_reduce_find() use that one where usable.
 */
typedef enum { TPC_REDUCE_GENERIC, TPC_REDUCE_AVX2, TPC_REDUCE_AVX512, TPC_REDUCE_ISA_COUNT } tpc_reduce_isa_t;

/** The one that tpc_reduce_find() uses now. */
tpc_reduce_isa_t tpc_reduce_isa_now(void);

/** Whether this build has kernels for isa, and the processor and the operating system run them. */
bool tpc_reduce_isa_usable(tpc_reduce_isa_t isa);

/** The kernel of one instruction set; NULL where that is not usable or the reduction is not defined. */
tpc_reduce_fn_t tpc_reduce_find_isa(tpc_reduce_isa_t isa, tpcomm_dtype_t dtype, tpcomm_op_t op);

/** The caller's float environment, while the kernels use the default one. */
typedef struct {
#if defined(__SSE2__)
    uint32_t mxcsr;
#elif defined(__aarch64__)
    uint64_t fpcr, fpsr;
#else
    fenv_t fenv;
#endif
} tpc_float_env_t;

/** Save this thread's float environment; round to nearest even, keep subnormals, mask all exceptions. A few ns. */
void tpc_float_env_enter(tpc_float_env_t *env_p);

/** Put the caller's environment back, exception flags included. */
void tpc_float_env_leave(const tpc_float_env_t *env);

#endif
