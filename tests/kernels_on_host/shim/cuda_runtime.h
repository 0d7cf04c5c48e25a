/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Stands in for the toolkit's <cuda_runtime.h> where a host compiler builds kernel sources: what the kernels and their
 * launchers use of it, and no more. A kernel that needs more does not compile, which is a good moment to think about
 * how the harness should play it.
 */
#ifndef TPC_KERNELS_ON_HOST_CUDA_RUNTIME_H
#define TPC_KERNELS_ON_HOST_CUDA_RUNTIME_H

#include <math.h>
#include <string.h>

#include <tuple>
#include <utility>

#ifdef HOSTRUN_LIVE
#include <cuda_runtime_api.h> /* of which tests/cuda_on_host has the functions */
#endif
#include <driver_types.h>
#include <vector_functions.h>

#include "../device_side.h"

#undef __global__
#undef __device__
#undef __host__
#undef __noinline__
#undef __forceinline__
#undef __launch_bounds__
#undef __grid_constant__
#define __global__
#define __device__
#define __host__
#define __noinline__    __attribute__((noinline))
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __grid_constant__

/* Set at each switch. (Not macros: cudaLaunchConfig_t has members of these names.) */
extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;

static inline void __syncthreads() {
    hostrun::barrier();
}

/* Arithmetic. Each operation rounds once: these sources are compiled with -ffp-contract=off. */
static inline float __fadd_rn(float a, float b) {
    return a + b;
}
static inline float __fmul_rn(float a, float b) {
    return a * b;
}
static inline float __fdiv_rn(float a, float b) {
    return a / b;
}
static inline float __frsqrt_rn(float x) {
    return (float)(1.0 / sqrt((double)x));
}
static inline double __dadd_rn(double a, double b) {
    return a + b;
}
static inline double __dmul_rn(double a, double b) {
    return a * b;
}
static inline double __ddiv_rn(double a, double b) {
    return a / b;
}

template <typename To, typename From> static inline To hostrun_bits(From from) {
    static_assert(sizeof(To) == sizeof(From), "as many bits");
    To to;
    memcpy(&to, &from, sizeof(to));
    return to;
}
static inline unsigned __float_as_uint(float x) {
    return hostrun_bits<unsigned>(x);
}
static inline float __uint_as_float(unsigned x) {
    return hostrun_bits<float>(x);
}
static inline long long __double_as_longlong(double x) {
    return hostrun_bits<long long>(x);
}
static inline double __longlong_as_double(long long x) {
    return hostrun_bits<double>(x);
}
static inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) {
    return (unsigned)(((unsigned long long)high << 32 | low) >> (shift & 31u));
}
static inline int __ffs(int x) {
    return __builtin_ffs(x);
}
template <typename T> static inline bool isnan(T x) {
    return __builtin_isnan(x);
}
static inline unsigned atomicAdd(unsigned *word, unsigned number) {
    return hostrun::strong_add(word, number);
}

template <typename... Parameters, typename... Arguments>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t *config, void (*kernel)(Parameters...),
                               Arguments &&...arguments) {
    hostrun::launch_t launch;
    launch.grid = config->gridDim;
    launch.block = config->blockDim;
    for (unsigned i = 0; i < config->numAttrs; i++)
        if (config->attrs[i].id == cudaLaunchAttributeProgrammaticStreamSerialization)
            launch.early = config->attrs[i].val.programmaticStreamSerializationAllowed != 0;
    std::tuple<Parameters...> values(std::forward<Arguments>(arguments)...);
    launch.thread = [kernel, values] { std::apply(kernel, values); };
    return hostrun::launch_on(config->stream, std::move(launch));
}

#ifdef HOSTRUN_LIVE
template <typename... Parameters>
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks_p, void (*kernel)(Parameters...), int threads,
                                                          size_t shared) {
    return cudaOccupancyMaxActiveBlocksPerMultiprocessor(blocks_p, (const void *)kernel, threads, shared);
}
#endif

#endif
