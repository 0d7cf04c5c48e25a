/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kernels of the bench. None waits for a peer; the one that waits for the host has a limit. They are what an engine has
 * around a collective in the simplest form: something that writes its input, something that reads its output, and a
 * matrix product beside it.
 */
#include <cuda_bf16.h>
#include <mma.h>

#include "kernels.h"

namespace {

enum { THREADS = 256, BLOCKS_MAX = 1024 };

__device__ uint64_t clock_ns() {
    uint64_t ns;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(ns)::"memory");
    return ns;
}

__global__ void nothing_kernel() {}

__global__ void __launch_bounds__(THREADS) copy_kernel(unsigned char *to, const unsigned char *from, uint64_t bytes,
                                                       unsigned char *spoil, uint64_t spoil_bytes) {
    uint64_t first = blockIdx.x * (uint64_t)THREADS + threadIdx.x, step = gridDim.x * (uint64_t)THREADS;
    bool wide = ((uintptr_t)to | (uintptr_t)from) % 16 == 0;
    uint64_t vectors = wide ? bytes / 16 : 0;
    for (uint64_t i = first; i < vectors; i += step) ((uint4 *)to)[i] = ((const uint4 *)from)[i];
    for (uint64_t i = vectors * 16 + first; i < bytes; i += step) to[i] = from[i];
    vectors = (uintptr_t)spoil % 16 == 0 ? spoil_bytes / 16 : 0;
    for (uint64_t i = first; i < vectors; i += step)
        ((uint4 *)spoil)[i] = make_uint4(0xFFFFFFFFu, 0xFFFFFFFFu, 0xFFFFFFFFu, 0xFFFFFFFFu);
    for (uint64_t i = vectors * 16 + first; i < spoil_bytes; i += step) spoil[i] = 0xFF;
}

__global__ void stamp_kernel(uint64_t *slot) {
    *slot = clock_ns();
}

__global__ void answer_kernel(volatile uint64_t *words, uint32_t rounds, uint64_t limit_ns) {
    uint64_t since = clock_ns();
    for (uint64_t round = 1; round <= rounds;) {
        uint64_t now = clock_ns();
        if (words[0] < round) {
            if (now - since > limit_ns) return;
            continue;
        }
        words[1] = clock_ns();
        __threadfence_system();
        words[2] = round++;
        since = now;
    }
}

/* A block makes a tile of 64 x 64, a warp of its four 32 x 32 of it, in steps of 32 along the inner side. */
__global__ void __launch_bounds__(128)
    gemm_kernel(const __nv_bfloat16 *a, const __nv_bfloat16 *b, __nv_bfloat16 *c, int32_t side) {
    using namespace nvcuda;
    enum { TILE = BENCH_GEMM_TILE, STEP = 32, PAD = 8 };
    __shared__ __align__(32) __nv_bfloat16 left[TILE][STEP + PAD], right[STEP][TILE + PAD];
    __shared__ __align__(32) float sums[TILE][TILE + PAD];
    int row = (int)blockIdx.y * TILE, column = (int)blockIdx.x * TILE, warp = (int)threadIdx.x / 32;
    int down = warp / 2 * 32, across = warp % 2 * 32;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> acc[2][2];
    for (int i = 0; i < 2; i++)
        for (int j = 0; j < 2; j++) wmma::fill_fragment(acc[i][j], 0.0f);
    for (int k = 0; k < side; k += STEP) {
        for (int v = (int)threadIdx.x; v < TILE * STEP / 8; v += 128) {
            int r = v / (STEP / 8), at = v % (STEP / 8) * 8;
            *(uint4 *)&left[r][at] = *(const uint4 *)&a[(int64_t)(row + r) * side + k + at];
            r = v / (TILE / 8), at = v % (TILE / 8) * 8;
            *(uint4 *)&right[r][at] = *(const uint4 *)&b[(int64_t)(k + r) * side + column + at];
        }
        __syncthreads();
        for (int inner = 0; inner < STEP; inner += 16) {
            wmma::fragment<wmma::matrix_a, 16, 16, 16, __nv_bfloat16, wmma::row_major> x[2];
            wmma::fragment<wmma::matrix_b, 16, 16, 16, __nv_bfloat16, wmma::row_major> y[2];
            for (int i = 0; i < 2; i++) {
                wmma::load_matrix_sync(x[i], &left[down + i * 16][inner], STEP + PAD);
                wmma::load_matrix_sync(y[i], &right[inner][across + i * 16], TILE + PAD);
            }
            for (int i = 0; i < 2; i++)
                for (int j = 0; j < 2; j++) wmma::mma_sync(acc[i][j], x[i], y[j], acc[i][j]);
        }
        __syncthreads();
    }
    for (int i = 0; i < 2; i++)
        for (int j = 0; j < 2; j++)
            wmma::store_matrix_sync(&sums[down + i * 16][across + j * 16], acc[i][j], TILE + PAD, wmma::mem_row_major);
    __syncthreads();
    for (int v = (int)threadIdx.x; v < TILE * TILE; v += 128)
        c[(int64_t)(row + v / TILE) * side + column + v % TILE] = __float2bfloat16(sums[v / TILE][v % TILE]);
}

/* Not by <<<>>>: what nvcc makes of that keeps the kernel's handle in a static of the function, and without thread-safe
 * statics (cmake/tpcomm-build.cmake) two ranks that are threads may both make it. */
template <typename... Parameters, typename... Arguments>
int launch(void (*kernel)(Parameters...), dim3 grid, unsigned threads, void *stream, Arguments... arguments) {
    cudaLaunchConfig_t config = {};
    config.gridDim = grid;
    config.blockDim = dim3(threads);
    config.stream = (cudaStream_t)stream;
    return (int)cudaLaunchKernelEx(&config, kernel, arguments...);
}

} // namespace

int bench_kernel_load(void) {
    cudaFuncAttributes attributes;
    const void *kernels[] = {(const void *)nothing_kernel, (const void *)copy_kernel, (const void *)stamp_kernel,
                             (const void *)answer_kernel, (const void *)gemm_kernel};
    for (const void *kernel : kernels) {
        cudaError_t error = cudaFuncGetAttributes(&attributes, kernel);
        if (error != cudaSuccess) return (int)error;
    }
    return 0;
}

int bench_kernel_nothing(void *stream) {
    return launch(nothing_kernel, dim3(1), 32, stream);
}

int bench_kernel_copy(void *to, const void *from, uint64_t bytes, void *spoil, uint64_t spoil_bytes, void *stream) {
    uint64_t most = bytes > spoil_bytes ? bytes : spoil_bytes, blocks = (most / 16 + THREADS - 1) / THREADS;
    if (blocks == 0) blocks = 1;
    if (blocks > BLOCKS_MAX) blocks = BLOCKS_MAX;
    return launch(copy_kernel, dim3((unsigned)blocks), THREADS, stream, (unsigned char *)to,
                  (const unsigned char *)from, bytes, (unsigned char *)spoil, spoil ? spoil_bytes : 0);
}

int bench_kernel_stamp(uint64_t *slot, void *stream) {
    return launch(stamp_kernel, dim3(1), 1, stream, slot);
}

int bench_kernel_answer(uint64_t *words, uint32_t rounds, uint64_t limit_ns, void *stream) {
    return launch(answer_kernel, dim3(1), 1, stream, words, rounds, limit_ns);
}

int bench_kernel_gemm(const void *a, const void *b, void *c, int32_t side, void *stream) {
    dim3 grid((unsigned)(side / BENCH_GEMM_TILE), (unsigned)(side / BENCH_GEMM_TILE));
    return launch(gemm_kernel, grid, 128, stream, (const __nv_bfloat16 *)a, (const __nv_bfloat16 *)b,
                  (__nv_bfloat16 *)c, side);
}
