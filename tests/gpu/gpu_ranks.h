/* SPDX-License-Identifier: Apache-2.0 */
/** Ranks on GPUs: as threads of this process or as processes, all on device 0 (sharing it) or one a device where there
 * are enough. */
#ifndef TPC_TESTS_GPU_RANKS_H
#define TPC_TESTS_GPU_RANKS_H

#include <cuda_runtime_api.h>

#include "multirank/ranks.h"

#define CUDA_OK(call)                                                                                                  \
    do {                                                                                                               \
        cudaError_t cuda_error = (call);                                                                               \
        if (cuda_error != cudaSuccess)                                                                                 \
            FAIL("%s: %s (%s)", #call, cudaGetErrorName(cuda_error), cudaGetErrorString(cuda_error));                  \
    } while (0)

typedef struct {
    tpcomm_t *comm;
    int32_t rank, size;
    cudaStream_t stream;
    unsigned char *in, *out; /**< device memory, room bytes and 256 more each */
    size_t room;
    void *arg;
} gpu_rank_t;

typedef void (*gpu_fn)(gpu_rank_t *rank);

/** Skip the test where there is no GPU. Called first in main: it also sets what CUDA must find in the environment
 * before it starts. */
void gpu_need(void);
int gpu_count(void);

/** A config for GPU tests: sharing on, short limits. */
tpcomm_config_t gpu_config(void);

/** Make size ranks, give each a stream and buffers, run fn, finalize where healthy, destroy. one_each: a device a rank.
 */
void gpu_run(int kind, int32_t size, bool one_each, const tpcomm_config_t *config, size_t room, gpu_fn fn, void *arg);

#endif
