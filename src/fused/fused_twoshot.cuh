/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Fused two-shot all_reduce: row i of a launch belongs to rank i mod size. Every rank pushes each row to its owner; the
 * owner sums it in rank order and pushes the sum, rounded, to everybody; and everybody, the owner too, adds its own
 * residual and normalises the row as it arrives, in registers. What goes over the wire is twice a rank's part, whatever
 * the number of ranks; pushing norms and residuals in place of sums would be more of it. Chosen for many rows of three
 * ranks or more.
 *
 * A launch's rows are a list of tasks, first the rank's own rows, then the others'; a block takes tasks block, block +
 * grid, ...: it pushes the rows of the others among them, then does them in order. An own row awaits pushes alone,
 * which no rank makes wait; the others' rows await the owners' sums, which await pushes alone. So nothing waits in a
 * circle, whatever the grids of the ranks. Row i stands at (i / size) * row bytes, in a slot of the parts on its way to
 * the owner, in one of the results on its way from there: each form's slots are half as large, and carry size times as
 * many rows.
 *
 * A sum never looks EMPTY: a NaN is the canonical one. out may be in: a task's row of in is read by the threads that
 * then write its elements of out, and before they do.
 */
#ifndef TPC_FUSED_TWOSHOT_CUH
#define TPC_FUSED_TWOSHOT_CUH

#include "custom_ar/parts.cuh"
#include "rows.cuh"

/** What a task is: row i of the launch, the place-th of its owner's. */
struct task_t {
    uint32_t i, place;
    int owner;
};

/** How many of the launch's rows are this rank's. */
TPC_DEVICE uint32_t rows_of_rank(const tpc_ar_params_t &p, uint32_t rows) {
    return rows / (uint32_t)p.size + (rows % (uint32_t)p.size > (uint32_t)p.rank);
}

TPC_DEVICE task_t task_of(const tpc_ar_params_t &p, uint32_t own, uint32_t t) {
    task_t task = {t * (uint32_t)p.size + (uint32_t)p.rank, t, p.rank};
    if (t < own) return task;
    const uint32_t others = (uint32_t)p.size - 1;
    task.place = (t - own) / others;
    task.owner = source_of(p.rank, (int)((t - own) % others));
    task.i = task.place * (uint32_t)p.size + (uint32_t)task.owner;
    return task;
}

/** The slots for rows on their way to their owner. */
TPC_DEVICE slots_t parts_of(const tpc_ar_params_t &p, uint32_t epoch) {
    return slots_of(p, epoch, p.slot_bytes / 2);
}

/** Push those of the block's rows that others own to them. x: the first one, as it stands in this rank's in. */
template <typename T, int V, bool A>
TPC_DEVICE void push_to_owners(const tpc_ar_params_t &p, const tpc_norm_params_t &n, uint32_t epoch,
                               const team_t<A> &team, octets_t<T, V> &x) {
    constexpr int LOADS = loads_t<T, V>::COUNT;
    const uint32_t hidden = (uint32_t)n.hidden, rows = (uint32_t)n.rows, grid = gridDim.x, own = rows_of_rank(p, rows);
#pragma unroll 1
    for (uint32_t first = blockIdx.x; first < rows; first += LOADS * grid) {
        octets_t<T, V> row[LOADS];
#pragma unroll
        for (int l = 0; l < LOADS; l++)
            if (first + l * grid < rows)
                load_row(row_of_in(n, n.first + task_of(p, own, first + l * grid).i), hidden, team, row[l]);
#pragma unroll
        for (int l = 0; l < LOADS; l++) {
            if (first + l * grid >= rows || first + l * grid < own) continue;
            task_t task = task_of(p, own, first + l * grid);
            int k = task.owner - p.rank + (task.owner < p.rank ? p.size : 0);
            if (TPC_FAULT(norm_owner_shifted)) k = k + 1 < p.size ? k + 1 : 1;
            make_sentinels(row[l]);
            push_row(slot_after(p, parts_of(p, epoch), k, task.place * hidden * (uint32_t)sizeof(T)), hidden, team,
                     row[l]);
        }
        x = row[0];
    }
}

/** N: ranks, at most, of aligned rows; 0: any number, any rows. V: octets of a thread. EARLY: of dependent launches. */
template <typename T, int N, int V, bool EARLY>
__global__ void __launch_bounds__(bound<T, N, V>(), 1)
    fused_twoshot(const __grid_constant__ tpc_ar_params_t p, const __grid_constant__ tpc_norm_params_t n) {
    TPC_SHARED(float, groups, 2 * TPC_NORM_GROUPS);
    TPC_SHARED(uint32_t, greatest, 2 * 32);
    const unsigned workers = (unsigned)p.work_threads;
    auto team = make_team<N != 0>(workers, groups, greatest);
    if (EARLY && threadIdx.x < workers) prefetch_beside<T, V>(n, 0, blockIdx.x, team);
    begun_t begun = begin_call<EARLY>(p);
    const bool works = V > 2 ? warp_agrees(threadIdx.x < workers) : threadIdx.x < workers;
    const uint32_t hidden = (uint32_t)n.hidden, rows = (uint32_t)n.rows;
    const uint32_t row_bytes = hidden * (uint32_t)sizeof(T);
    announced_t said;
    octets_t<T, V> x;
    constexpr bool BESIDE = N == 4 && V * octet_packets<T>::COUNT <= 1;
    beside_t<T, V, BESIDE> beside;
    if (works) {
        clear_team(team);
        push_to_owners<T, V>(p, n, begun.epoch, team, x);
        load_weights(n, team, beside);
    } else {
        said = announce(p, begun, threadIdx.x - workers);
    }
    waiter_t w = all_have_begun(begun);
    if (works) {
#pragma unroll 1
        for (uint32_t turn = 0; blockIdx.x + turn * gridDim.x < rows; turn++) {
            uint32_t t = blockIdx.x + turn * gridDim.x, epoch = begun.epoch;
            if (V > 2) compute_anew(epoch); /* and what follows from it: registers are scarce */
            task_t task = task_of(p, rows_of_rank(p, rows), t);
            uint64_t index = n.first + task.i;
            uint32_t at = task.place * row_bytes;
            slots_t results = results_of(p, parts_of(p, TPC_FAULT(norm_results_one_half) ? 0 : epoch));
            load_residual(n, index, team, beside);
            if (task.owner == p.rank) {
                if (V > 2 || rows > gridDim.x) load_row(row_of_in(n, index), hidden, team, x);
                sum_row<T, N, 1>(p, epoch, parts_of(p, epoch), at, hidden, team, x, w);
                if (!w.dead) push_row_to_all<T, N>(p, results, at, hidden, team, x);
            } else {
                take_row(p, epoch, results, task.owner, at, hidden, team, x, w);
            }
            if (V > 2) {
                compute_anew(t); /* not held while waiting */
                index = n.first + task_of(p, rows_of_rank(p, rows), t).i;
            }
            norm_row(n, index, turn, team, x, beside);
        }
    } else {
        accompany(p, begun, threadIdx.x - workers, said, w);
    }
    end_call<EARLY>(p);
}

/** For instances.cuh. */
struct twoshot_t {
    static constexpr bool OF_TWO = false;
    template <typename T, int N, int V, bool EARLY> static auto get() { return fused_twoshot<T, N, V, EARLY>; }
};

#endif
