/* SPDX-License-Identifier: Apache-2.0 */
/** Ranks on GPUs: as threads of this process or as processes, all on device 0 (sharing it) or one a device where there
 * are enough. */
#ifndef TPC_TESTS_GPU_RANKS_H
#define TPC_TESTS_GPU_RANKS_H

#include <cuda_runtime_api.h>

#include "gpu/gpu_kernels.h"
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

/**
 * TPCOMM_TEST_DRY is set: ranks, memory and calls are the cpu device's, and whatever is CUDA's alone is left out. Tries
 * a test's own logic on a machine without a GPU; proves nothing of one.
 */
bool gpu_dry(void);

/**
 * So many rounds, a message of so many elements that fills the device, and how much of it a group takes; where this
 * machine plays it (tests/cuda_on_host), what it has the time for, and what fills it.
 */
#ifdef CUDA_ON_HOST
static inline int gpu_rounds(int rounds) {
    return rounds <= 2 ? rounds : rounds < 200 ? 2 : rounds / 100;
}
#define GPU_FILLING(count)  ((count) / 16)
#define GPU_WORKSPACE_BYTES (8 << 20) /* it is filled page by page for each group */
#else
static inline int gpu_rounds(int rounds) {
    return rounds;
}
#define GPU_FILLING(count)  (count)
#define GPU_WORKSPACE_BYTES 0 /* the library's choice */
#endif

/** Seconds of a clock that only goes forward. */
double gpu_now_s(void);
/**
 * No more than most_s since start (gpu_now_s), or where this machine plays the GPU beside all that it has to do, 15 s
 * more: there it shows only that nothing waited for a limit of the library, which the test makes longer than that.
 */
void gpu_check_soon(double start, double most_s, const char *what);

/** A config for GPU tests: sharing on, short limits. */
tpcomm_config_t gpu_config(void);

/**
 * Make a stream and run a kernel on it. Where ranks are threads that share a GPU, all of them must have come here
 * before any makes a call: the first kernel of a stream may be kept back until the kernels that run have ended, and
 * these wait for it (seen on an H200: 46 of 80 first calls; none of 38 on streams that had run a kernel).
 */
void gpu_stream_new(cudaStream_t *stream_p);

/** What gpu_run does before init and behind destroy, for tests that make their groups themselves. */
void gpu_set_up(gpu_rank_t *rank, int device);
void gpu_free(gpu_rank_t *rank);

/** Make size ranks, give each a stream and buffers, run fn, finalize where healthy, destroy. one_each: a device a rank.
 */
void gpu_run(int kind, int32_t size, bool one_each, const tpcomm_config_t *config, size_t room, gpu_fn fn, void *arg);

/** Run one process of its own, free of what the others have done with CUDA; it must exit 0. */
void gpu_process(void (*fn)(void *arg), void *arg);

/**
 * Between host and device, in the order of the rank's stream. fetch waits for the kernels first: a copy to pageable
 * memory would do so inside the driver, where it keeps the peers of this process out.
 */
void gpu_fetch(const gpu_rank_t *rank, void *to, const void *from, size_t bytes);
void gpu_send(const gpu_rank_t *rank, void *to, const void *from, size_t bytes);

/** Fill in with this rank's pattern of seed; all_reduce (sum) to out; compare out with the numbers contract. */
void gpu_pattern_in(const gpu_rank_t *rank, void *in, tpcomm_dtype_t dtype, uint64_t seed, size_t count);
void gpu_pattern_check(const gpu_rank_t *rank, const void *out, tpcomm_dtype_t dtype, uint64_t seed, size_t count,
                       const char *what);
void gpu_all_reduce(const gpu_rank_t *rank, void *in, void *out, tpcomm_dtype_t dtype, uint64_t seed, size_t count,
                    const char *what);

/** Wait for the rank's stream. */
void gpu_sync(const gpu_rank_t *rank);

/** What comes behind it on the rank's stream is ms late. */
void gpu_late(const gpu_rank_t *rank, unsigned ms);

/** Enqueue an all_reduce (f32, sum) from in to out: OK, or the failure in force. */
tpcomm_status_t gpu_enqueue(const gpu_rank_t *rank, size_t count);

/**
 * Wait for the stream and until the group is broken: in this way, with these pieces in its text (NULL: none), and later
 * calls fail alike.
 */
void gpu_await_failure(const gpu_rank_t *rank, tpcomm_status_t want, const char *piece, const char *another);

/**
 * One all_reduce or reduce_scatter by call's path, dtype, op and count, in and out being the rank's buffers, misaligned
 * by so many elements; out compared with the numbers contract, and what lies behind it.
 */
void gpu_reduce_check(const gpu_rank_t *rank, tpcomm_call_t call, bool in_place, size_t misalign, uint64_t seed);

/**
 * Three all_reduces (bf16, sum) of so many elements, at most a MiB each, by these paths in one graph; it is replayed so
 * often with fresh data, all of it compared. between (NULL: nothing) is called behind each replay with its number.
 */
void gpu_three_in_a_graph(gpu_rank_t *rank, const tpcomm_path_t paths[3], const size_t counts[3], uint64_t replays,
                          void (*between)(gpu_rank_t *rank, uint64_t replay));

/** All ranks' streams are idle and all ranks are here: memory may be allocated and freed until the next call. */
void gpu_together(const gpu_rank_t *rank);

#endif
