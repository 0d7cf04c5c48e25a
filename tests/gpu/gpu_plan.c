/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/gpu_plan.h"

enum { GUARD = 64, POISON = 0xEEEE, VALUES = 61 };

static uint16_t bf16_of(unsigned value) {
    float f = (float)value;
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return (uint16_t)(bits >> 16); /* up to 256 nothing is lost */
}

static unsigned value_of(uint64_t run, int32_t rank, size_t i) {
    return (unsigned)((i * 7 + (size_t)run * 13 + (size_t)rank * 3) % VALUES);
}

void plan_make(plan_t *plan, const gpu_rank_t *rank, int calls, bool in_place) {
    static const size_t counts[] = {4096, 1, 33, 1024, 7, 8192, 250, 2048, 64, 0, 511, 16384};
    *plan = (plan_t){.calls = calls};
    CHECK(calls <= PLAN_CALLS_MAX && rank->size <= 4);
    for (int k = 0; k < calls; k++) {
        plan->count[k] = counts[(size_t)(k + k / 12) % (sizeof counts / sizeof *counts)];
        if (calls > 20 && k != 80) plan->count[k] /= 4;
        plan->at[k] = plan->total;
        plan->in_place[k] = in_place && k % 3 == 1;
        plan->total += plan->count[k] + GUARD;
    }
    CHECK(plan->total * 2 <= rank->room);
    plan->host = malloc(plan->total * 2);
    plan->results = malloc(plan->total * 4);
    CHECK(plan->host != NULL && plan->results != NULL);
}

void plan_free(plan_t *plan) {
    free(plan->host);
    free(plan->results);
}

void plan_fill(plan_t *plan, const gpu_rank_t *rank, uint64_t run) {
    uint16_t table[VALUES];
    for (unsigned v = 0; v < VALUES; v++) table[v] = bf16_of(v);
    for (size_t i = 0; i < plan->total; i++) plan->host[i] = table[value_of(run, rank->rank, i)];
    gpu_send(rank, rank->in, plan->host, plan->total * 2);
    CUDA_OK(cudaMemsetAsync(rank->out, POISON & 0xFF, plan->total * 2, rank->stream));
}

void plan_call(const plan_t *plan, const gpu_rank_t *rank, int k, cudaStream_t stream) {
    unsigned char *in = rank->in + 2 * plan->at[k];
    CHECK_OK(tpcomm_all_reduce(rank->comm, in, plan->in_place[k] ? in : rank->out + 2 * plan->at[k], plan->count[k],
                               TPCOMM_BF16, TPCOMM_SUM, stream));
}

void plan_calls(const plan_t *plan, const gpu_rank_t *rank, cudaStream_t stream) {
    for (int k = 0; k < plan->calls; k++) plan_call(plan, rank, k, stream);
}

/* in behind out. */
static void fetch_all(plan_t *plan, const gpu_rank_t *rank) {
    gpu_fetch(rank, plan->results, rank->out, plan->total * 2);
    gpu_fetch(rank, plan->results + plan->total, rank->in, plan->total * 2);
}

void plan_check(plan_t *plan, const gpu_rank_t *rank, uint64_t run, const char *what) {
    uint16_t sums[4 * VALUES];
    for (unsigned v = 0; v < 4 * VALUES; v++) sums[v] = bf16_of(v);
    fetch_all(plan, rank);
    for (int k = 0; k < plan->calls; k++)
        for (size_t i = plan->at[k]; i < plan->at[k] + plan->count[k] + GUARD; i++) {
            bool guard = i >= plan->at[k] + plan->count[k];
            unsigned sum = 0;
            for (int32_t r = 0; r < rank->size; r++) sum += value_of(run, r, i);
            uint16_t want = sums[sum], own = plan->host[i];
            uint16_t want_out = guard || plan->in_place[k] ? POISON : want;
            uint16_t want_in = !guard && plan->in_place[k] ? want : own;
            if (plan->results[i] == want_out && plan->results[plan->total + i] == want_in) continue;
            FAIL(
                "%s, rank %d of %d, run %llu, call %d of %d (count %zu), element %zu: out %04x in %04x, want %04x %04x",
                what, rank->rank, rank->size, (unsigned long long)run, k, plan->calls, plan->count[k], i - plan->at[k],
                plan->results[i], plan->results[plan->total + i], want_out, want_in);
        }
}

void plan_check_nan(plan_t *plan, const gpu_rank_t *rank) {
    fetch_all(plan, rank);
    for (int k = 0; k < plan->calls; k++)
        for (size_t i = plan->at[k]; i < plan->at[k] + plan->count[k]; i++) {
            uint16_t got = plan->results[plan->in_place[k] ? plan->total + i : i];
            if ((got & 0x7F80) != 0x7F80 || (got & 0x7F) == 0)
                FAIL("rank %d, call %d, element %zu: %04x is no NaN", rank->rank, k, i - plan->at[k], got);
        }
}

cudaGraph_t plan_capture(const plan_t *plan, const gpu_rank_t *rank) {
    cudaGraph_t graph = NULL;
    size_t nodes = 0;
    CUDA_OK(cudaStreamBeginCapture(rank->stream, cudaStreamCaptureModeThreadLocal));
    plan_calls(plan, rank, rank->stream);
    CUDA_OK(cudaStreamEndCapture(rank->stream, &graph));
    CUDA_OK(cudaGraphGetNodes(graph, NULL, &nodes));
    CHECK(nodes >= (size_t)plan->calls);
    return graph;
}
