/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu_kernels.h"

#include "custom_ar/ar_abi.h"

#ifdef __CUDACC__

static __device__ unsigned long long now_ns() {
    unsigned long long now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    return now;
}

static __device__ void await_predecessor() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

static __device__ void release_successor() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;");
#endif
}

#else /* tests/cuda_on_host */

#include <cuda_runtime.h>

using hostrun::await_predecessor;
using hostrun::release_successor;

static unsigned long long now_ns() {
    hostrun::pause(); /* others go on */
    return hostrun::clock_ns();
}

#endif

static __global__ void wait_kernel(unsigned ms) {
    const unsigned long long end = now_ns() + ms * 1000000ull;
    while (now_ns() < end) {
    }
}

static __global__ void late_copy_kernel(unsigned *to, const unsigned *from, size_t words, unsigned us) {
    const unsigned long long end = now_ns() + us * 1000ull;
    release_successor();
    while (now_ns() < end) {
    }
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < words; i += (size_t)gridDim.x * blockDim.x)
        to[i] = from[i];
}

static __global__ void differ_kernel(const unsigned *a, const unsigned *b, size_t words, unsigned *count) {
    unsigned mine = 0;
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < words; i += (size_t)gridDim.x * blockDim.x)
        mine += a[i] != b[i];
    if (mine != 0) atomicAdd(count, mine);
}

static __global__ void occupy_dependent_kernel(unsigned ms) {
    await_predecessor();
    const unsigned long long end = now_ns() + ms * 1000000ull;
    while (now_ns() < end) {
    }
}

static __global__ void differ_dependent_kernel(const unsigned *a, const unsigned *b, size_t words, unsigned *count) {
    unsigned mine = 0;
    await_predecessor();
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < words; i += (size_t)gridDim.x * blockDim.x)
        mine += a[i] != b[i];
    if (mine != 0) atomicAdd(count, mine);
}

static __global__ void set_kernel(float *out, size_t count, float value) {
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < count; i += (size_t)gridDim.x * blockDim.x)
        out[i] = value;
}

static __global__ void expect_kernel(const float *in, size_t count, float value, unsigned *total) {
    unsigned mine = 0;
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < count; i += (size_t)gridDim.x * blockDim.x)
        mine += in[i] != value;
    if (mine != 0) atomicAdd(total, mine);
}

static __global__ void words_kernel(unsigned *to, size_t words, unsigned value) {
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < words; i += (size_t)gridDim.x * blockDim.x)
        to[i] = value;
}

static __global__ void none_of_kernel(const unsigned *from, size_t words, unsigned a, unsigned b, unsigned c,
                                      unsigned *total) {
    unsigned mine = 0;
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < words; i += (size_t)gridDim.x * blockDim.x) {
        unsigned word = *(const volatile unsigned *)&from[i]; /* others may write it at this moment */
        mine += word != a && word != b && word != c;
    }
    if (mine != 0) atomicAdd(total, mine);
}

static __global__ void ring_flags_kernel(const gpu_ring_flags_t flags, unsigned *total) {
    unsigned block = threadIdx.x / (TPC_AR_RING_LINE / 4), word = threadIdx.x % (TPC_AR_RING_LINE / 4);
    unsigned kind = word / TPC_AR_MAX_RANKS;
    int source = (int)(word % TPC_AR_MAX_RANKS);
    bool own = source == flags.rank, written = source < flags.size && (kind == 0 || (flags.size > 2 && !own));
    unsigned count = *(const volatile unsigned *)&flags.lines[threadIdx.x];
    bool right = written ? count - flags.least[block] <= flags.span[block] : count == 0xFFFFFFFFu;
    if (!right) atomicAdd(total, 1u);
}

/* Not by <<<>>>: what nvcc makes of that keeps the kernel's handle in a static of the function, and without thread-safe
 * statics (cmake/tpcomm-build.cmake) two threads may both make it. The library launches in this way, too. */
template <typename... Parameters, typename... Arguments>
static int launch(void (*kernel)(Parameters...), unsigned blocks, unsigned threads, cudaStream_t stream,
                  Arguments... arguments) {
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(blocks);
    config.blockDim = dim3(threads);
    config.stream = stream;
    return (int)cudaLaunchKernelEx(&config, kernel, arguments...);
}

/* As many blocks of a kernel as fit a device. */
static cudaError_t all_blocks(void (*kernel)(unsigned), unsigned threads, unsigned *blocks_p) {
    int device = 0, sms = 0, blocks = 0;
    cudaError_t error = cudaGetDevice(&device);
    if (error == cudaSuccess) error = cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device);
    if (error == cudaSuccess) error = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, (int)threads, 0);
    *blocks_p = (unsigned)(sms * blocks);
    return error;
}

extern "C" int gpu_kernel_occupy(unsigned ms, cudaStream_t stream) {
    unsigned blocks = 0;
    cudaError_t error = all_blocks(wait_kernel, 1024, &blocks);
    if (error != cudaSuccess) return (int)error;
    return launch(wait_kernel, blocks, 1024, stream, ms);
}

template <typename... Parameters, typename... Arguments>
static int launch_dependent(void (*kernel)(Parameters...), unsigned blocks, unsigned threads, cudaStream_t stream,
                            Arguments... arguments) {
    cudaLaunchConfig_t config = {};
    cudaLaunchAttribute attribute = {};
    config.gridDim = dim3(blocks);
    config.blockDim = dim3(threads);
    config.stream = stream;
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    config.attrs = &attribute;
    config.numAttrs = 1;
    return (int)cudaLaunchKernelEx(&config, kernel, arguments...);
}

extern "C" int gpu_kernel_occupy_dependent(unsigned ms, cudaStream_t stream) {
    unsigned blocks = 0;
    cudaError_t error = all_blocks(occupy_dependent_kernel, 1024, &blocks);
    return error != cudaSuccess ? (int)error : launch_dependent(occupy_dependent_kernel, blocks, 1024, stream, ms);
}

extern "C" int gpu_kernel_differ_dependent(const void *a, const void *b, size_t bytes, unsigned *count,
                                           cudaStream_t stream) {
    return launch_dependent(differ_dependent_kernel, 16, 256, stream, (const unsigned *)a, (const unsigned *)b,
                            bytes / 4, count);
}

extern "C" int gpu_kernel_delay(unsigned ms, cudaStream_t stream) {
    return launch(wait_kernel, 1, 32, stream, ms);
}

extern "C" int gpu_kernel_late_copy(void *to, const void *from, size_t bytes, unsigned us, cudaStream_t stream) {
    return launch(late_copy_kernel, 4, 128, stream, (unsigned *)to, (const unsigned *)from, bytes / 4, us);
}

extern "C" int gpu_kernel_differ(const void *a, const void *b, size_t bytes, unsigned *count, cudaStream_t stream) {
    return launch(differ_kernel, 16, 256, stream, (const unsigned *)a, (const unsigned *)b, bytes / 4, count);
}

extern "C" int gpu_kernel_set(float *out, size_t count, float value, cudaStream_t stream) {
    return launch(set_kernel, 16, 256, stream, out, count, value);
}

extern "C" int gpu_kernel_expect(const float *in, size_t count, float value, unsigned *total, cudaStream_t stream) {
    return launch(expect_kernel, 16, 256, stream, in, count, value, total);
}

extern "C" int gpu_kernel_words(void *to, size_t words, unsigned value, cudaStream_t stream) {
    return launch(words_kernel, 16, 256, stream, (unsigned *)to, words, value);
}

extern "C" int gpu_kernel_none_of(const void *from, size_t words, const unsigned values[3], unsigned *total,
                                  cudaStream_t stream) {
    return launch(none_of_kernel, 2, 256, stream, (const unsigned *)from, words, values[0], values[1], values[2],
                  total);
}

extern "C" int gpu_kernel_ring_flags(gpu_ring_flags_t flags, unsigned *total, cudaStream_t stream) {
    return launch(ring_flags_kernel, 1, flags.blocks * (TPC_AR_RING_LINE / 4), stream, flags, total);
}

extern "C" int gpu_kernels_load(void) {
    const void *kernels[] = {
        (const void *)wait_kernel,      (const void *)differ_kernel,           (const void *)set_kernel,
        (const void *)expect_kernel,    (const void *)late_copy_kernel,        (const void *)words_kernel,
        (const void *)none_of_kernel,   (const void *)occupy_dependent_kernel, (const void *)differ_dependent_kernel,
        (const void *)ring_flags_kernel};
    for (const void *kernel : kernels) {
        cudaFuncAttributes attributes;
        cudaError_t error = cudaFuncGetAttributes(&attributes, kernel);
        if (error != cudaSuccess) return (int)error;
    }
    return 0;
}
