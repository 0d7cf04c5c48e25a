/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Fused one-shot: every rank pushes its rows to those who need them (all_reduce: to every peer; reduce_scatter: each
 * row to its owner), sums the rows that it needs itself, in rank order, and normalises each where it stands: in
 * registers. One launch of as many rows as a slot carries; chosen for few rows, where launches and passes over memory
 * cost more than the wire.
 *
 * A block takes rows block, block + grid, ... of the launch, in two phases as the one-shot kernels: push all; then for
 * each, wait, sum, re-arm, normalise (norm.cuh). Row i of a launch stands at i * row bytes in a source's slot, whatever
 * the strides, shapes and grids of the ranks. out may be in: a row of in is read for the last time by the thread that
 * then writes its elements of out.
 */
#ifndef TPC_FUSED_FUSED_CUH
#define TPC_FUSED_FUSED_CUH

#include "custom_ar/reduce.cuh"
#include "norm.cuh"

/** Row i of the launch, as the rank k places after this one has it: its row of in; none where that is past the end. */
TPC_DEVICE bool row_for(const tpc_ar_params_t &p, const tpc_norm_params_t &n, int k, uint64_t i, uint64_t *row_p) {
    *row_p = n.first + i + n.per_rank * (uint64_t)rank_after(p.rank, k, p.size);
    return *row_p < n.tokens;
}

template <typename T, int V>
TPC_DEVICE void push_row(const tpc_ar_params_t &p, slots_t slots, int k, uint32_t at, uint32_t hidden,
                         const team_t &team, const octets_t<T, V> &x) {
#pragma unroll
    for (int v = 0; v < V; v++) {
        uint32_t octet = octet_of(team, v);
        if (8 * octet >= hidden) continue;
#pragma unroll
        for (int i = 0; i < octet_packets<T>::COUNT; i++)
            packet_store(slot_after(p, slots, k, at + (uint32_t)(8 * sizeof(T)) * octet + 16 * i),
                         pack_sentinel(x.x[i][v], element_t<T>::NAN_WORD));
    }
}

/** Push row i of the launch to all who need it. own: the row as it stands in this rank's in, of an all_reduce. */
template <typename T, int V>
TPC_DEVICE void push_to_peers(const tpc_ar_params_t &p, const tpc_norm_params_t &n, slots_t slots, uint64_t i,
                              const team_t &team, octets_t<T, V> &own) {
    const uint32_t hidden = (uint32_t)n.hidden, at = (uint32_t)i * hidden * (uint32_t)sizeof(T);
    uint64_t row;
    if (n.per_rank == 0) {
        row_for(p, n, 0, i, &row);
        load_row<T, V>((const unsigned char *)n.in + row * n.in_stride, hidden, team, own);
        for (int k = 1; k < p.size; k++)
            if (!TPC_FAULT(norm_row_dropped) || k + 1 < p.size) push_row<T, V>(p, slots, k, at, hidden, team, own);
        return;
    }
    for (int k = 1; k < p.size; k++) {
        octets_t<T, V> theirs;
        if (!row_for(p, n, k, i, &row)) continue;
        load_row<T, V>((const unsigned char *)n.in + row * n.in_stride, hidden, team, theirs);
        push_row<T, V>(p, slots, k, at, hidden, team, theirs);
    }
}

/** x, this rank's own row, becomes the sum. */
template <typename T, int N, int V>
TPC_DEVICE void sum_row(const tpc_ar_params_t &p, uint32_t epoch, slots_t slots, uint64_t i, uint32_t hidden,
                        const team_t &team, octets_t<T, V> &x, waiter_t &w) {
    const uint32_t row_bytes = hidden * (uint32_t)sizeof(T), end = (uint32_t)(i + 1) * row_bytes;
    const uint32_t first = (uint32_t)i * row_bytes, step = 32 * team.warps * 8 * (uint32_t)sizeof(T);
#pragma unroll
    for (int j = 0; j < octet_packets<T>::COUNT; j++) {
        uint32_t at = first + (uint32_t)(8 * sizeof(T)) * octet_of(team, 0) + 16 * j;
        if constexpr (N == 2) {
            if (at < end) reduce_fast<T, 2, V>(p, epoch, slots, at, step, end, x.x[j], w);
        } else {
#pragma unroll
            for (int v = 0; v < V; v++, at += step) {
                if (at >= end) continue;
                if constexpr (N == 0)
                    x.x[j][v] = reduce_general<T>(p, epoch, slots, at, x.x[j][v], w);
                else
                    reduce_fast<T, N, 1>(p, epoch, slots, at, step, end, &x.x[j][v], w);
            }
        }
    }
}

/** N: ranks, at most; 0 for any number. V: octets of a thread. */
template <typename T, int N, int V>
__global__ void __launch_bounds__(TPC_NORM_MAX_THREADS + TPC_AR_HEADER_THREADS, 1)
    fused_oneshot(const __grid_constant__ tpc_ar_params_t p, const __grid_constant__ tpc_norm_params_t n) {
    TPC_SHARED(float, groups, 2 * TPC_NORM_GROUPS);
    TPC_SHARED(uint32_t, greatest, 2 * 32);
    begun_t begun = begin_call(p);
    unsigned workers = (unsigned)p.work_threads;
    if (threadIdx.x >= workers) {
        accompany(p, begun, threadIdx.x - workers);
        end_call(p);
        return;
    }
    team_t team = make_team(workers, groups, greatest);
    const uint32_t hidden = (uint32_t)n.hidden, epoch = begun.epoch;
    slots_t slots = slots_of(p, epoch, p.slot_bytes);
    octets_t<T, V> own;
    for (uint64_t i = blockIdx.x; i < n.rows; i += gridDim.x) push_to_peers<T, V>(p, n, slots, i, team, own);
    constexpr bool EARLY = V * octet_packets<T>::COUNT <= (N == 2 ? 2 : 1);
    beside_t<T, V, EARLY> beside;
    load_weights<T, V, EARLY>(n, team, beside);
    waiter_t w = all_have_begun(begun);
    unsigned turn = 0;
    for (uint64_t i = blockIdx.x; i < n.rows; i += gridDim.x) {
        uint64_t row, index = n.first + i;
        if (!row_for(p, n, 0, i, &row)) continue;
        if (n.per_rank != 0 || n.rows > gridDim.x) /* else it is the one row that was pushed */
            load_row<T, V>((const unsigned char *)n.in + row * n.in_stride, hidden, team, own);
        load_residual<T, V, EARLY>(n, index, team, beside);
        sum_row<T, N, V>(p, epoch, slots, i, hidden, team, own, w);
        norm_row<T, V, EARLY>(n, index, turn++, team, own, beside);
    }
    end_call(p);
}

#endif
