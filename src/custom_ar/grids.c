/* SPDX-License-Identifier: Apache-2.0 */
/* Grids: how many blocks and threads a launch has, and how many it may have. */
#include <cuda_runtime_api.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/hook.h"
#include "custom_ar/share.h"
#include "custom_ar/state.h"

/*
 * Groups that may run at the same time on one GPU. Kernels that wait for each other must be resident together, whatever
 * their kinds: all of them have no more blocks than the GPU has SMs, so that a block always finds an SM of its own. (As
 * many as occupancy allows of each kind do not fit when kinds are mixed: on an H200, one-shot, two-shot and the ring of
 * two groups of 4 ranks kept each other out in 2 of 5 runs of gpu_order.) A dependent launch does not count twice: its
 * predecessor's blocks have all had their last wait when it begins (end_call), so that they end by themselves.
 */
#define CONCURRENT_GROUPS 2

/* Working threads of a block. */
static const int32_t threads_of[TPC_AR_THREADS_COUNT] = {64, 128, 256, 512};

/* ------------------------------------------------------------------ limits */

/* The first that a kernel is asked for: a build for other GPUs shows here, and not at the first call. */
static tpcomm_status_t no_image(const tpc_cuda_facts_t *mine, int error) {
    char text[TPC_ERROR_BYTES];
    (void)tpc_cuda_error(error, "the kernels cannot be loaded");
    snprintf(text, sizeof text, "%s", tpcomm_last_error());
    return tpc_error(TPCOMM_ERR_NO_TRANSPORT, "%s (%s) is sm_%d, the kernels of this library are built for %s: %.400s",
                     mine->name, mine->bus_id, mine->arch, TPC_CUDA_ARCHITECTURES, text);
}

tpcomm_status_t tpc_ar_grid_limit(const void *opaque, const void *kernel, int32_t threads, int32_t *blocks_p) {
    const tpc_ar_state_t *state = opaque;
    const tpc_cuda_facts_t *mine = &state->group.devices[state->group.rank];
    struct cudaFuncAttributes attributes;
    int blocks = 0;
    cudaError_t error = cudaFuncGetAttributes(&attributes, kernel);
    if (error == cudaSuccess)
        error = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, threads + TPC_AR_HEADER_THREADS, 0);
    if (tpc_hook_value("no_kernel_image", UINT64_MAX) == (uint64_t)state->group.rank)
        error = cudaErrorNoKernelImageForDevice;
    if (error != cudaSuccess) return no_image(mine, (int)error);
    int most = mine->sms / state->parts;
    if (blocks < 1 || most < 1)
        return tpc_error(TPCOMM_ERR_DEVICE, "%d kernels at once leave no room for each other on one device",
                         state->parts);
    *blocks_p = most < TPC_AR_MAX_BLOCKS ? most : TPC_AR_MAX_BLOCKS;
    return TPCOMM_OK;
}

/* Of a kind, the fewest that any of its kernels may have. */
static tpcomm_status_t size_grid(const tpc_ar_state_t *state, tpc_ar_kind_t kind, int32_t threads, int32_t *blocks_p) {
    const void *kernels[TPC_AR_KERNELS_MAX];
    size_t n = tpc_ar_kernels(kind, state->group.agreed.size, kernels);
    int32_t fewest = TPC_AR_MAX_BLOCKS;
    for (size_t i = 0; i < n; i++) {
        int32_t blocks = 0;
        tpcomm_status_t status = tpc_ar_grid_limit(state, kernels[i], threads, &blocks);
        if (status != TPCOMM_OK) return status;
        if (blocks < fewest) fewest = blocks;
    }
    *blocks_p = fewest;
    return TPCOMM_OK;
}

tpcomm_status_t tpc_ar_size_grids(tpc_ar_state_t *state, const tpc_cuda_facts_t *facts) {
    int32_t sharing = 0;
    for (int32_t r = 0; r < state->group.agreed.size; r++)
        sharing += memcmp(facts[r].uuid, facts[state->group.rank].uuid, sizeof facts[r].uuid) == 0;
    state->shares_device = sharing > 1;
    state->early = sharing == 1 && facts[state->group.rank].arch >= 90;
    state->params.early = state->early;
    state->parts = sharing * CONCURRENT_GROUPS;
    for (int kind = 0; kind < TPC_AR_RING_FAST; kind++)
        for (int which = 0; which < TPC_AR_THREADS_COUNT; which++) {
            tpcomm_status_t status =
                size_grid(state, (tpc_ar_kind_t)kind, threads_of[which], &state->blocks_max[kind][which]);
            if (status != TPCOMM_OK) return status;
        }
    state->ring_blocks = (int32_t)state->params.ring_blocks;
    for (int kind = TPC_AR_RING_FAST; kind < TPC_AR_KINDS && state->ring_blocks > 0; kind++) {
        int32_t blocks = 0;
        tpcomm_status_t status =
            size_grid(state, (tpc_ar_kind_t)kind, TPC_AR_RING_MOVERS + TPC_AR_RING_SIGNALLERS, &blocks);
        if (status != TPCOMM_OK) return status;
        if (blocks < state->ring_blocks) state->ring_blocks = blocks;
    }
    return TPCOMM_OK;
}

/* ------------------------------------------------------------------ shapes */

/* Small blocks for small messages, and a vector a thread: what measured fastest on an H200 (docs/performance.md). Where
 * that does not fit the grid, the largest blocks, and as many turns as it must, all of the same length. */
static tpc_ar_shape_t shape_for(const tpc_ar_state_t *state, tpc_ar_form_t form, const tpc_ar_params_t *params,
                                uint64_t bytes) {
    int32_t vectors = (int32_t)tpc_hook_value("ar_vectors", 1);
    tpc_ar_kind_t kind = tpc_ar_kind(form, params, vectors);
    uint64_t packet = tpc_ar_packet_payload(form, params->dtype), owners = form.twoshot ? (uint64_t)params->size : 1;
    if (tpc_ar_is_fast(kind) && owners == 1) bytes -= bytes % packet; /* the tail has a thread of its own */
    uint64_t packets = ((bytes + packet - 1) / packet + owners - 1) / owners;
    int which = (int)tpc_hook_value("ar_threads", packets <= 256 ? 0 : packets <= 4096 ? 1 : 2);
    uint64_t of_thread = kind == TPC_AR_ONESHOT_2 ? 2 : 1, each = (uint64_t)threads_of[which] * of_thread;
    uint64_t blocks = (packets + each - 1) / each, most = (uint64_t)state->blocks_max[kind][which];
    if (blocks > most) {
        which = (int)tpc_hook_value("ar_threads", TPC_AR_THREADS_COUNT - 1);
        each = (uint64_t)threads_of[which] * of_thread;
        blocks = (packets + each - 1) / each;
        most = (uint64_t)state->blocks_max[kind][which];
    }
    if (tpc_hook_value("ar_blocks", most) < most) most = tpc_hook_value("ar_blocks", most);
    if (blocks > most) {
        uint64_t turns = (blocks + most - 1) / most;
        blocks = (blocks + turns - 1) / turns;
    }
    return (tpc_ar_shape_t){
        .blocks = blocks > 0 ? (int32_t)blocks : 1, .threads = threads_of[which], .vectors = vectors};
}

/* Equal on all ranks. */
static tpc_ar_shape_t ring_shape(const tpc_ar_state_t *state, uint64_t bytes) {
    uint64_t part =
        state->params.size == 2 ? bytes : (bytes + (uint64_t)state->params.size - 1) / (uint64_t)state->params.size;
    uint64_t blocks = (part + state->params.ring_piece - 1) / state->params.ring_piece;
    uint64_t most = tpc_hook_value("ar_blocks", (uint64_t)state->ring_blocks);
    if (most > (uint64_t)state->ring_blocks) most = (uint64_t)state->ring_blocks;
    if (blocks > most) blocks = most;
    return (tpc_ar_shape_t){.blocks = blocks > 0 ? (int32_t)blocks : 1, .threads = TPC_AR_RING_MOVERS, .vectors = 1};
}

tpc_ar_shape_t tpc_ar_shape(const tpc_ar_state_t *state, tpc_ar_form_t form, const tpc_ar_params_t *params,
                            uint64_t bytes) {
    return form.ring ? ring_shape(state, bytes) : shape_for(state, form, params, bytes);
}
