/* SPDX-License-Identifier: Apache-2.0 */
/** Rows as packets: how both fused forms push, sum and take them. A row stands in a slot as in memory, packed. */
#ifndef TPC_FUSED_ROWS_CUH
#define TPC_FUSED_ROWS_CUH

#include "custom_ar/reduce.cuh"
#include "norm.cuh"

/**
 * A bound on a block's threads by which the compiler takes 72 registers at most, so that three blocks of 288 threads
 * (256 that work, and the warp for call headers) fit an SM. Where packets or elements take more, it may be 96.
 */
template <typename T, int N, int V> constexpr int bound() {
    return N != 0 && N <= 4 && V * octet_packets<T>::COUNT <= 2 ? TPC_AR_72_REGISTERS
                                                                : TPC_NORM_MAX_THREADS + TPC_AR_HEADER_THREADS;
}

/** Rows that a block loads together before it pushes them: each by itself would wait for its own trip to memory. */
template <typename T, int V> struct loads_t {
    enum { PACKETS = V * octet_packets<T>::COUNT, COUNT = PACKETS < 4 ? 4 / PACKETS : 1 };
};

TPC_DEVICE const unsigned char *row_of_in(const tpc_norm_params_t &n, uint64_t row) {
    return (const unsigned char *)n.in + row * n.in_stride;
}

/**
 * Before a dependent launch awaits its predecessor: bring to the device's cache what the block's first row needs beside
 * what is on its way to others. i: of the launch; before: the rows of in before this rank's first, of a reduce_scatter.
 */
template <typename T, int V, bool A>
TPC_DEVICE void prefetch_beside(const tpc_norm_params_t &n, uint64_t before, uint32_t i, const team_t<A> &team) {
    uint64_t index = n.first + i;
    prefetch_weight<T, V, false>(n, team);
    if (i < n.rows && before + index < n.tokens) prefetch_residual<T, V, false>(n, index, team);
}

/** No word of them looks EMPTY any more. What they add up to is the same: each is a NaN. */
template <typename T, int V> TPC_DEVICE void make_sentinels(octets_t<T, V> &x) {
#pragma unroll
    for (int i = 0; i < octet_packets<T>::COUNT; i++)
#pragma unroll
        for (int v = 0; v < V; v++) x.x[i][v] = unpack_sentinel(pack_sentinel(x.x[i][v], element_t<T>::NAN_WORD));
}

/** To a place in a slot; of sentinels. */
template <typename T, int V, bool A>
TPC_DEVICE void push_row(unsigned char *place, uint32_t hidden, const team_t<A> &team, const octets_t<T, V> &x) {
#pragma unroll
    for (int v = 0; v < V; v++) {
        uint32_t octet = octet_of(team, v);
        if (8 * octet >= hidden) continue;
#pragma unroll
        for (int i = 0; i < octet_packets<T>::COUNT; i++)
            packet_store(place + (uint32_t)(8 * sizeof(T)) * octet + 16 * i, pack_words(x.x[i][v]));
    }
}

/** To every peer, at `at` of this rank's slot there: to rank + 1, rank + 2, ... N: ranks at most; 0: any number. */
template <typename T, int N, int V, bool A>
TPC_DEVICE void push_row_to_all(const tpc_ar_params_t &p, slots_t slots, uint32_t at, uint32_t hidden,
                                const team_t<A> &team, const octets_t<T, V> &x) {
    int most = TPC_FAULT(norm_row_dropped) ? p.size - 1 : p.size;
    if constexpr (N == 2) {
        if (!TPC_FAULT(norm_row_dropped)) push_row(slot_after(p, slots, 1, at), hidden, team, x);
    } else {
#pragma unroll 1 /* unrolled it takes registers for all peers' addresses at once */
        for (int k = 1; k < most; k++) push_row(slot_after(p, slots, k, at), hidden, team, x);
    }
}

/**
 * x, this rank's own row, becomes the sum with those that are at `at` of every source's slot; NaN if given up.
 * TOGETHER: how many of a thread's vectors are awaited at once; with more packets in hand registers run out.
 */
template <typename T, int N, int TOGETHER, int V, bool A>
TPC_DEVICE void sum_row(const tpc_ar_params_t &p, uint32_t epoch, slots_t slots, uint32_t at, uint32_t hidden,
                        const team_t<A> &team, octets_t<T, V> &x, waiter_t &w) {
    const uint32_t end = at + hidden * (uint32_t)sizeof(T), step = 32 * team.warps * 8 * (uint32_t)sizeof(T);
#pragma unroll
    for (int i = 0; i < octet_packets<T>::COUNT; i++) {
        uint32_t first = at + (uint32_t)(8 * sizeof(T)) * octet_of(team, 0) + 16 * i;
#pragma unroll
        for (int v = 0; v < V; v += TOGETHER) {
            uint32_t place = first + v * step;
            if (place >= end) continue;
            if constexpr (N == 0)
                x.x[i][v] = reduce_general<T>(p, epoch, slots, place, x.x[i][v], w);
            else
                reduce_fast<T, N, TOGETHER>(p, epoch, slots, place, step, end, &x.x[i][v], w);
        }
    }
}

/** The row at `at` of one source's slot; NaN if given up. */
template <typename T, int V, bool A>
TPC_DEVICE void take_row(const tpc_ar_params_t &p, uint32_t epoch, slots_t slots, int source, uint32_t at,
                         uint32_t hidden, const team_t<A> &team, octets_t<T, V> &x, waiter_t &w) {
    const uint32_t step = 32 * team.warps * 8 * (uint32_t)sizeof(T);
    const int slot = (int)slot_index(source, p.rank);
    w.start = 0;
    unsigned wanted = 0;
#pragma unroll
    for (int v = 0; v < V; v++) wanted |= 8 * octet_of(team, v) < hidden ? 1u << v : 0u;
#pragma unroll
    for (int i = 0; i < octet_packets<T>::COUNT; i++) {
        uint32_t place = slots.offset + (uint32_t)slot * slots.slot_bytes + at +
                         (uint32_t)(8 * sizeof(T)) * octet_of(team, 0) + 16 * i;
        packet_t got[V][1];
        bool done = wanted != 0 && !w.dead && take_many<1, V>(p, epoch, place, 0, step, wanted, got, w, slot);
#pragma unroll
        for (int v = 0; v < V; v++) x.x[i][v] = done ? unpack_sentinel(got[v][0]) : nan_vec(element_t<T>::NAN_WORD);
    }
}

#endif
