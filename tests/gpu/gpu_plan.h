/* SPDX-License-Identifier: Apache-2.0 */
/**
 * A sequence of all_reduce calls of mixed sizes with fresh data on every run, cheap enough for thousands of runs: bf16
 * small integers, whose sums over up to 4 ranks are exact.
 */
#ifndef TPC_TESTS_GPU_PLAN_H
#define TPC_TESTS_GPU_PLAN_H

#include "gpu/gpu_ranks.h"

enum { PLAN_CALLS_MAX = 161 };

typedef struct {
    int calls;
    size_t count[PLAN_CALLS_MAX], at[PLAN_CALLS_MAX]; /**< elements; element where each begins, in in and in out */
    bool in_place[PLAN_CALLS_MAX];
    size_t total;             /**< elements, guards between calls included */
    uint16_t *host, *results; /**< of the last fill; what came back */
} plan_t;

/** The same on all ranks. in_place: every third call works in rank->in alone. */
void plan_make(plan_t *plan, const gpu_rank_t *rank, int calls, bool in_place);
void plan_free(plan_t *plan);

/** Enqueue fresh inputs of run, and outputs poisoned. */
void plan_fill(plan_t *plan, const gpu_rank_t *rank, uint64_t run);
/** One of the calls, or all. */
void plan_call(const plan_t *plan, const gpu_rank_t *rank, int k, cudaStream_t stream);
void plan_calls(const plan_t *plan, const gpu_rank_t *rank, cudaStream_t stream);
/** Wait for the stream and check every element of every call and every guard, bit for bit. */
void plan_check(plan_t *plan, const gpu_rank_t *rank, uint64_t run, const char *what);
/** Wait for the stream and check that every call's result is NaN, as a call of a broken group leaves it. */
void plan_check_nan(plan_t *plan, const gpu_rank_t *rank);

/** Capture all calls on the rank's stream. */
cudaGraph_t plan_capture(const plan_t *plan, const gpu_rank_t *rank);

#endif
