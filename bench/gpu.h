/* SPDX-License-Identifier: Apache-2.0 */
/**
 * A rank's use of a GPU, by the CUDA driver alone (libcuda.so.1, loaded at run time): memory, copies, a stream, graphs
 * and events. Nothing else of the bench knows CUDA. Every function is called by the thread that opened the GPU. Fails:
 * UNSUPPORTED (no driver, no such device), NO_MEMORY, DEVICE; the text has the driver's own name and words.
 *
 * Ranks that share a GPU: nobody allocates or frees while another rank's kernel may wait, copies use pinned memory, and
 * nothing ever touches the legacy stream.
 */
#ifndef BENCH_GPU_H
#define BENCH_GPU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tpcomm.h"

/** Marks on the stream that one GPU has: events by number. */
#define BENCH_GPU_MARKS 64

typedef struct bench_gpu bench_gpu_t;
typedef struct bench_graph bench_graph_t;

/** What driver and NVML say of a device. */
typedef struct {
    char name[96], bus_id[24];
    int32_t ordinal;
    int32_t driver_version; /**< 1000 * major + 10 * minor of the CUDA version it serves */
    int32_t sms;            /**< multiprocessors */
    uint64_t memory_bytes, l2_bytes;
} bench_gpu_facts_t;

/** Clocks at one moment; false where NVML is not there. */
typedef struct {
    bool known;
    uint32_t sm_mhz, sm_max_mhz, memory_mhz, temperature_c;
    uint64_t throttle_reasons; /**< NVML's bits */
} bench_gpu_clocks_t;

/** What CUDA must find in the environment before it starts where ranks share a GPU; what is set already stays. */
void bench_gpu_environment(void);

/** Devices that this process sees; starts the driver. Fails: UNSUPPORTED. */
tpcomm_status_t bench_gpu_count(int32_t *count_p);

/** Take the device's primary context for this thread and make a stream. */
tpcomm_status_t bench_gpu_open(int32_t ordinal, bench_gpu_t **gpu_p);
void bench_gpu_close(bench_gpu_t *gpu);

const bench_gpu_facts_t *bench_gpu_facts(const bench_gpu_t *gpu);
void bench_gpu_clocks(const bench_gpu_t *gpu, bench_gpu_clocks_t *clocks_p);
tpcomm_stream_t bench_gpu_stream(const bench_gpu_t *gpu);

tpcomm_status_t bench_gpu_alloc(bench_gpu_t *gpu, uint64_t bytes, void **memory_p);
void bench_gpu_free(bench_gpu_t *gpu, void *memory);
/** Of the whole device, by whomever. */
tpcomm_status_t bench_gpu_free_bytes(const bench_gpu_t *gpu, uint64_t *bytes_p);
/** Pinned host memory. */
tpcomm_status_t bench_gpu_alloc_host(bench_gpu_t *gpu, uint64_t bytes, void **memory_p);
void bench_gpu_free_host(bench_gpu_t *gpu, void *memory);

/* On the stream; host memory must be pinned. */
tpcomm_status_t bench_gpu_put(bench_gpu_t *gpu, void *to_device, const void *from_host, uint64_t bytes);
tpcomm_status_t bench_gpu_get(bench_gpu_t *gpu, void *to_host, const void *from_device, uint64_t bytes);
tpcomm_status_t bench_gpu_copy(bench_gpu_t *gpu, void *to_device, const void *from_device, uint64_t bytes);
tpcomm_status_t bench_gpu_fill(bench_gpu_t *gpu, void *device, uint8_t value, uint64_t bytes);
/** Wait for all of it. */
tpcomm_status_t bench_gpu_sync(bench_gpu_t *gpu);

/*
 * The bench's own kernels (kernels.h), on the stream. Fails also: UNSUPPORTED in a build without CUDA.
 */
/** Load them all; no rank that shares the GPU may be waiting for another. Before any of those below. */
tpcomm_status_t bench_gpu_load_kernels(bench_gpu_t *gpu);
tpcomm_status_t bench_gpu_nothing(bench_gpu_t *gpu);
/** What stands before and behind a call: copy; and 0xFF into spoil, which may be NULL. */
tpcomm_status_t bench_gpu_pass(bench_gpu_t *gpu, void *to, const void *from, uint64_t bytes, void *spoil,
                               uint64_t spoil_bytes);
/** The GPU's clock into memory of the device. */
tpcomm_status_t bench_gpu_stamp(bench_gpu_t *gpu, uint64_t *slot);
/** What to add to a stamp for the host's clock (tpc_clock_ns); waits. error_ns_p: by how much it may be wrong. */
tpcomm_status_t bench_gpu_clock_offset(bench_gpu_t *gpu, int64_t *add_ns_p, double *error_ns_p);

/** Record mark number `mark` (below BENCH_GPU_MARKS) on the stream; wait for it; microseconds between two that are
 * over. */
tpcomm_status_t bench_gpu_mark(bench_gpu_t *gpu, uint32_t mark);
tpcomm_status_t bench_gpu_wait(bench_gpu_t *gpu, uint32_t mark);
tpcomm_status_t bench_gpu_between(bench_gpu_t *gpu, uint32_t from, uint32_t to, double *us_p);

/*
 * A second stream, for work beside the first.
 */
/** A matrix product of bf16, as often as said. */
typedef struct bench_gemm bench_gemm_t;
/** side: 0 for one that fills the GPU for about a millisecond. text_p: what computes it; static. Waits. */
tpcomm_status_t bench_gemm_new(bench_gpu_t *gpu, int32_t side, bench_gemm_t **gemm_p, const char **text_p);
void bench_gemm_free(bench_gemm_t *gemm);
tpcomm_status_t bench_gemm_run(bench_gemm_t *gemm, uint32_t times);
tpcomm_status_t bench_gpu_mark_side(bench_gpu_t *gpu, uint32_t mark);
tpcomm_status_t bench_gpu_sync_side(bench_gpu_t *gpu);

/** What this thread enqueues on the stream becomes a graph. */
tpcomm_status_t bench_gpu_capture_begin(bench_gpu_t *gpu);
/** The graph, ready to be launched. After a failed capture: call it too, it cleans up. */
tpcomm_status_t bench_gpu_capture_end(bench_gpu_t *gpu, bench_graph_t **graph_p);
tpcomm_status_t bench_gpu_launch(bench_gpu_t *gpu, const bench_graph_t *graph);
/** What the kernels of a graph take; of the one with most blocks, where there are several. */
typedef struct {
    uint32_t kernels, others; /**< kernel nodes; copies and fills */
    uint32_t blocks, threads, registers, shared_bytes;
    uint32_t blocks_per_sm; /**< that fit; 0: not known */
    char name[96];          /**< "": this driver does not say */
} bench_footprint_t;
/** Fails: UNSUPPORTED where the driver cannot tell. */
tpcomm_status_t bench_graph_footprint(const bench_graph_t *graph, bench_footprint_t *footprint_p);
/** NULL is allowed. The graph must not be running. */
void bench_graph_free(bench_graph_t *graph);

#endif
