/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Reducing the packets of f32, f16 and bf16 messages: for each vector, all sources' packets, in rank order.
 *
 * Two forms. Fast: sums of whole aligned vectors; all sources' packets are loaded together, since looking
 * at one after the other costs a trip to L2 for each. General: every op, alignment and number of ranks; its code would
 * stand in the way of the fast form's, which is short enough to stay in an SM's nearest instruction cache.
 */
#ifndef TPC_CUSTOM_AR_REDUCE_CUH
#define TPC_CUSTOM_AR_REDUCE_CUH

#include "packet.cuh"

TPC_DEVICE vec_t nan_vec(uint32_t nan_word) {
    vec_t v = {{nan_word, nan_word, nan_word, nan_word}};
    return v;
}

/* ------------------------------------------------------------------ whole vectors of the caller */

TPC_DEVICE vec_t load_whole(const unsigned char *at) {
    uint4 q = *(const uint4 *)at;
    vec_t v = {{q.x, q.y, q.z, q.w}};
    return v;
}

TPC_DEVICE void store_whole(unsigned char *at, const vec_t &v) {
    *(uint4 *)at = make_uint4(v.word[0], v.word[1], v.word[2], v.word[3]);
}

/* ------------------------------------------------------------------ fast: all sources together */

/** The source whose packets come in slot i of rank's. */
TPC_DEVICE int source_of(int rank, int i) {
    return i + (i >= rank);
}

template <int S, int V>
TPC_DEVICE bool take_many(const tpc_ar_params_t &p, uint32_t epoch, uint32_t at, uint32_t slot_bytes, uint32_t step,
                          unsigned wanted, packet_t (*got)[S], waiter_t &w, int first = 0) {
    unsigned pending;
    do {
        pending = wanted;
#pragma unroll 1
        for (int spin = 0; spin < TPC_LOOK_EVERY; spin++) {
            compute_anew(at); /* addresses: cheaper than as many registers */
#pragma unroll
            for (int i = 0; i < V * S; i++)
                if (pending >> i & 1)
                    got[i / S][i % S] = packet_load(own_workspace(p) + (at + (i % S * slot_bytes + i / S * step)));
#pragma unroll
            for (int i = 0; i < V * S; i++)
                if ((pending >> i & 1) && sentinel_arrived(got[i / S][i % S])) pending &= ~(1u << i);
            if (pending != 0) continue;
            compute_anew(at);
#pragma unroll
            for (int i = 0; i < V * S; i++)
                if (wanted >> i & 1) rearm(p, epoch, own_workspace(p) + (at + (i % S * slot_bytes + i / S * step)));
            return true;
        }
    } while (keep_waiting(p, w, source_of(p.rank, first + (__ffs((int)pending) - 1) % S), epoch));
    return false;
}

/**
 * Wait for packets of V vectors (at, at + step, ...) in S slots: got[v][slot] for each bit v S + slot of wanted.
 * Whether all have come; their slots are EMPTY again.
 */
template <int S, int V>
TPC_DEVICE bool take_together(const tpc_ar_params_t &p, uint32_t epoch, slots_t slots, uint32_t at, uint32_t step,
                              unsigned wanted, packet_t (*got)[S], waiter_t &w) {
    w.start = 0;
    if constexpr (S * V == 1) {
        unsigned char *slot = own_workspace(p) + (slots.offset + at);
        got[0][0] = await_packet(p, slot, source_of(p.rank, 0), epoch, w,
                                 [](packet_t packet) { return sentinel_arrived(packet); });
        if (!w.dead) rearm(p, epoch, slot);
        return !w.dead;
    } else {
        return take_many<S, V>(p, epoch, slots.offset + at, slots.slot_bytes, step, wanted, got, w);
    }
}

/** Of a vector of sums. (16-bit dtypes; a sum of f32 needs none.) */
template <typename T> TPC_DEVICE vec_t round_sum(float *sum) {
    if (TPC_FAULT(sum_cut_off) && sizeof(T) == 2)
        for (int e = 0; e < element_t<T>::PER_VEC; e++) sum[e] = __uint_as_float(__float_as_uint(sum[e]) & 0xFFFF0000u);
    return round_vec<T>(sum);
}

/** Of all sources' values, combined: what the op makes of them at last, rounded. */
template <typename T> TPC_DEVICE vec_t finish_vec(float *sum, int op, int size) {
    if (op == TPCOMM_AVG) {
#pragma unroll
        for (int e = 0; e < element_t<T>::PER_VEC; e++) sum[e] = __fdiv_rn(sum[e], (float)size);
    }
    return round_sum<T>(sum);
}

/** The slots hold the other ranks in order, without the own one: slot r has rank r's packet below it, and rank r + 1's
 * above. */
template <typename T, int N>
TPC_DEVICE void add_in_order(const tpc_ar_params_t &p, const packet_t *got, const vec_t &own, float *sum) {
#pragma unroll
    for (int r = 0; r < N; r++) {
        vec_t v = own, below = unpack_sentinel(got[r < N - 1 ? r : 0]), above = unpack_sentinel(got[r > 0 ? r - 1 : 0]);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            if (r < N - 1 && r < p.rank) v.word[i] = below.word[i];
            if (r > 0 && r > p.rank) v.word[i] = above.word[i];
        }
        if (r < p.size) add_vec<T>(sum, v, r == 0);
    }
}

/** Sum in rank order of a vector's packets, by slot, and the own vector. Of two, the order makes no difference. */
template <typename T, int N>
TPC_DEVICE vec_t sum_packets(const tpc_ar_params_t &p, const packet_t *got, const vec_t &own) {
    float sum[element_t<T>::PER_VEC];
    if constexpr (N == 2) {
        add_vec<T>(sum, own, true);
        add_vec<T>(sum, unpack_sentinel(got[0]), false);
    } else {
        add_in_order<T, N>(p, got, own, sum);
    }
    return round_sum<T>(sum);
}

/** own becomes the sum; NaN if the wait was given up. */
template <typename T, int N, int V>
TPC_DEVICE void reduce_fast(const tpc_ar_params_t &p, uint32_t epoch, slots_t slots, uint32_t at, uint32_t step,
                            uint32_t end, vec_t *own, waiter_t &w) {
    packet_t got[V][N - 1];
    unsigned all = N == 2 ? 1 : (1u << (p.size - 1)) - 1, wanted = all;
#pragma unroll
    for (int v = 1; v < V; v++)
        if (at + v * step < end) wanted |= all << (v * (N - 1));
    bool done = !w.dead && take_together<N - 1, V>(p, epoch, slots, at, step, wanted, got, w);
#pragma unroll
    for (int v = 0; v < V; v++) own[v] = done ? sum_packets<T, N>(p, got[v], own[v]) : nan_vec(element_t<T>::NAN_WORD);
}

/* ------------------------------------------------------------------ general: source by source */

template <typename T>
TPC_DEVICE vec_t reduce_general(const tpc_ar_params_t &p, uint32_t epoch, slots_t slots, uint32_t at, const vec_t &own,
                                waiter_t &w) {
    float sum[element_t<T>::PER_VEC];
#pragma unroll 1
    for (int r = 0; r < p.size && !w.dead; r++) {
        vec_t v = own;
        if (r != p.rank) v = take_sentinel(p, epoch, slot_in(p, slots, r, at), r, w);
        combine_vec<T>(sum, v, r == 0, p.op);
    }
    if (w.dead) return nan_vec(element_t<T>::NAN_WORD);
    return finish_vec<T>(sum, p.op, p.size);
}

#endif
