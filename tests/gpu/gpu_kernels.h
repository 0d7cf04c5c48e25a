/* SPDX-License-Identifier: Apache-2.0 */
/** Kernels of the GPU tests. Each launches on a stream and returns a cudaError_t as int. */
#ifndef TPC_TESTS_GPU_KERNELS_H
#define TPC_TESTS_GPU_KERNELS_H

#include <cuda_runtime_api.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Keep every SM busy with as many threads as fit, for ms milliseconds. */
int gpu_kernel_occupy(unsigned ms, cudaStream_t stream);
/** One block that waits for ms milliseconds: what comes behind it on the stream is late. */
int gpu_kernel_delay(unsigned ms, cudaStream_t stream);
/** Release the kernel that follows at once, and only us microseconds later copy bytes (a multiple of 4). */
int gpu_kernel_late_copy(void *to, const void *from, size_t bytes, unsigned us, cudaStream_t stream);
/**
 * Dependent launches, which may begin before their predecessor on the stream has ended and await it themselves: fill
 * every SM with as many threads as fit, from the beginning, and stay for ms milliseconds behind the predecessor's end;
 * and gpu_kernel_differ, by a kernel that trusts in its wait alone.
 */
int gpu_kernel_occupy_dependent(unsigned ms, cudaStream_t stream);
int gpu_kernel_differ_dependent(const void *a, const void *b, size_t bytes, unsigned *count, cudaStream_t stream);
/** Add to *count (device memory) how many of bytes (a multiple of 4) differ, by words. */
int gpu_kernel_differ(const void *a, const void *b, size_t bytes, unsigned *count, cudaStream_t stream);
/** All floats to value. */
int gpu_kernel_set(float *out, size_t count, float value, cudaStream_t stream);
/** Add to *count how many of count floats are not value. */
int gpu_kernel_expect(const float *in, size_t count, float value, unsigned *total, cudaStream_t stream);
/** All words to value. */
int gpu_kernel_words(void *to, size_t words, unsigned value, cudaStream_t stream);
/** Add to *total (device memory) how many of the words are none of three values. */
int gpu_kernel_none_of(const void *from, size_t words, const unsigned values[3], unsigned *total, cudaStream_t stream);
/** What must stand in one rank's lines of a ring's flags (custom_ar/ar_abi.h): of each block the flags of all sources
 * and the own count, [least, least + span] as counts that wrap; words that nobody writes as they were: all ones. */
enum { GPU_RING_BLOCKS = 4 };
typedef struct {
    const unsigned *lines;
    int rank, size; /**< whose memory it is */
    unsigned blocks, least[GPU_RING_BLOCKS], span[GPU_RING_BLOCKS];
} gpu_ring_flags_t;
/** Add to *total (device memory) how many words are not so. */
int gpu_kernel_ring_flags(gpu_ring_flags_t flags, unsigned *total, cudaStream_t stream);
/** Load them all, so that none is loaded while another kernel waits. */
int gpu_kernels_load(void);

#ifdef __cplusplus
}
#endif
#endif
