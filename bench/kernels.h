/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The bench's own kernels (kernels.cu): what stands around a call, beside it, or in its place. Every function enqueues
 * on a stream and returns a cudaError_t as int. Only builds with CUDA have them; gpu.c is their only user.
 */
#ifndef BENCH_KERNELS_H
#define BENCH_KERNELS_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Sides of the matrices of bench_kernel_gemm are multiples of this. */
#define BENCH_GEMM_TILE 64

/** Load all kernels: on a GPU that ranks share none may be loaded while another waits for a peer. */
int bench_kernel_load(void);

/** Nothing at all: what any launch costs. */
int bench_kernel_nothing(void *stream);

/** Copy, and fill `spoil` (may be NULL) with 0xFF. Addresses and lengths may be any; multiples of 16 are fast. */
int bench_kernel_copy(void *to, const void *from, uint64_t bytes, void *spoil, uint64_t spoil_bytes, void *stream);

/** The GPU's clock (globaltimer), in nanoseconds, into *slot. */
int bench_kernel_stamp(uint64_t *slot, void *stream);

/**
 * Answer the host: words[0] counts up in pinned memory; for each count seen the clock goes to words[1] and the count to
 * words[2]. Ends after `rounds`, or when nothing has come for limit_ns.
 */
int bench_kernel_answer(uint64_t *words, uint32_t rounds, uint64_t limit_ns, void *stream);

/** C = A x B, bf16 by rows, side x side each, fp32 inside. Plain, but by tensor cores. */
int bench_kernel_gemm(const void *a, const void *b, void *c, int32_t side, void *stream);

#ifdef __cplusplus
}
#endif
#endif
