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
#ifndef TPC_FUSED_ONESHOT_CUH
#define TPC_FUSED_ONESHOT_CUH

#include "rows.cuh"

/** Row i of the launch, as the rank k places after this one has it: its row of in; none where that is past the end. */
TPC_DEVICE bool row_for(const tpc_ar_params_t &p, const tpc_norm_params_t &n, int k, uint64_t i, uint64_t *row_p) {
    *row_p = n.first + i + n.per_rank * (uint64_t)rank_after(p.rank, k, p.size);
    return *row_p < n.tokens;
}

/** all_reduce: push all of the block's rows to every peer. own: the first one, as it stands in this rank's in. */
template <typename T, int N, int V, bool A>
TPC_DEVICE void push_to_all(const tpc_ar_params_t &p, const tpc_norm_params_t &n, slots_t slots, const team_t<A> &team,
                            octets_t<T, V> &own) {
    constexpr int LOADS = loads_t<T, V>::COUNT;
    const uint32_t hidden = (uint32_t)n.hidden, rows = (uint32_t)n.rows, grid = gridDim.x;
#pragma unroll 1
    for (uint32_t first = blockIdx.x; first < rows; first += LOADS * grid) {
        octets_t<T, V> x[LOADS];
#pragma unroll
        for (int l = 0; l < LOADS; l++)
            if (first + l * grid < rows) load_row(row_of_in(n, n.first + (first + l * grid)), hidden, team, x[l]);
#pragma unroll
        for (int l = 0; l < LOADS; l++) {
            if (first + l * grid >= rows) continue;
            make_sentinels(x[l]);
            push_row_to_all<T, N>(p, slots, (first + l * grid) * hidden * (uint32_t)sizeof(T), hidden, team, x[l]);
        }
        own = x[0];
    }
}

/** reduce_scatter: push row i of the launch to each of its owners. */
template <typename T, int V, bool A>
TPC_DEVICE void push_to_owners(const tpc_ar_params_t &p, const tpc_norm_params_t &n, slots_t slots, uint32_t i,
                               const team_t<A> &team) {
    const uint32_t hidden = (uint32_t)n.hidden;
#pragma unroll 1
    for (int k = 1; k < p.size; k++) {
        octets_t<T, V> theirs;
        uint64_t row;
        if (!row_for(p, n, k, i, &row)) continue;
        load_row(row_of_in(n, row), hidden, team, theirs);
        make_sentinels(theirs);
        push_row(slot_after(p, slots, k, i * hidden * (uint32_t)sizeof(T)), hidden, team, theirs);
    }
}

/** N: ranks, at most, of aligned rows; 0: any number, any rows. V: octets of a thread. EARLY: of dependent launches. */
template <typename T, int N, int V, bool EARLY>
__global__ void __launch_bounds__(bound<T, N, V>(), 1)
    fused_oneshot(const __grid_constant__ tpc_ar_params_t p, const __grid_constant__ tpc_norm_params_t n) {
    TPC_SHARED(float, groups, 2 * TPC_NORM_GROUPS);
    TPC_SHARED(uint32_t, greatest, 2 * 32);
    const unsigned workers = (unsigned)p.work_threads;
    auto team = make_team<N != 0>(workers, groups, greatest);
    if (EARLY && threadIdx.x < workers) prefetch_beside<T, V>(n, n.per_rank * (uint64_t)p.rank, blockIdx.x, team);
    begun_t begun = begin_call<EARLY>(p);
    const bool works = threadIdx.x < workers;
    const uint32_t hidden = (uint32_t)n.hidden, rows = (uint32_t)n.rows, epoch = begun.epoch;
    announced_t said;
    slots_t slots;
    octets_t<T, V> own;
    constexpr bool BESIDE = (N == 2 || N == 4) && V * octet_packets<T>::COUNT == 1;
    beside_t<T, V, BESIDE> beside;
    if (works) {
        clear_team(team);
        slots = slots_of(p, epoch, p.slot_bytes);
        if (n.per_rank == 0) {
            push_to_all<T, N>(p, n, slots, team, own);
        } else {
#pragma unroll 1
            for (uint32_t i = blockIdx.x; i < rows; i += gridDim.x) push_to_owners<T, V>(p, n, slots, i, team);
        }
        load_weights(n, team, beside);
    } else {
        said = announce(p, begun, threadIdx.x - workers);
    }
    waiter_t w = all_have_begun(begun);
    if (works) {
        unsigned turn = 0;
#pragma unroll 1
        for (uint32_t i = blockIdx.x; i < rows; i += gridDim.x) {
            uint64_t row, index = n.first + i;
            if (!row_for(p, n, 0, i, &row)) continue;
            if (V > 2 || n.per_rank != 0 || rows > gridDim.x) /* else it is the one row that was pushed */
                load_row(row_of_in(n, row), hidden, team, own);
            load_residual(n, index, team, beside);
            sum_row<T, N, N == 2 ? V : 1>(p, epoch, slots, i * hidden * (uint32_t)sizeof(T), hidden, team, own, w);
            norm_row(n, index, turn++, team, own, beside);
        }
    } else {
        accompany(p, begun, threadIdx.x - workers, said, w);
    }
    end_call<EARLY>(p);
}

/** For instances.cuh. */
struct oneshot_t {
    static constexpr bool OF_TWO = true;
    template <typename T, int N, int V, bool EARLY> static auto get() { return fused_oneshot<T, N, V, EARLY>; }
};

#endif
