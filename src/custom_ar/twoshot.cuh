/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Two-shot all_reduce, and reduce_scatter, of f32, f16, bf16. Each rank owns one part of the message. Every rank pushes
 * each part to its owner; the owner sums what arrives in rank order; for all_reduce it pushes the result to everybody,
 * and everybody stores all parts. No barrier between ranks: both phases' packets carry their own arrival, and have
 * slots of their own.
 *
 * A result never looks EMPTY: a NaN result is the canonical one, so results travel as they are.
 *
 * In place: vector i of every part of in is read by thread i alone, and before it writes vector i of any part of out.
 */
#ifndef TPC_CUSTOM_AR_TWOSHOT_CUH
#define TPC_CUSTOM_AR_TWOSHOT_CUH

#include "parts.cuh"
#include "reduce.cuh"

#define TPC_AR_LOADS 4 /* own vectors that are loaded together */

/** Push vector `at` of every part to its owner. */
template <typename T, int N>
TPC_DEVICE void push_parts(const tpc_ar_params_t &p, bool gathers, slots_t slots, uint32_t at) {
    const unsigned char *in = (const unsigned char *)p.in;
#pragma unroll
    for (int from = 1; from < N; from += TPC_AR_LOADS) { /* a few loads in flight, then their pushes */
        vec_t v[TPC_AR_LOADS];
#pragma unroll
        for (int i = 0; i < TPC_AR_LOADS; i++) {
            int to = rank_after(p.rank, from + i, p.size);
            if (from + i < N && from + i < p.size && at < part_bytes(p, gathers, to))
                v[i] = load_whole(in + (uint64_t)to * p.in_stride + at);
        }
#pragma unroll
        for (int i = 0; i < TPC_AR_LOADS; i++) {
            int k = from + i;
            if (k >= N || k >= p.size || at >= part_bytes(p, gathers, rank_after(p.rank, k, p.size))) continue;
            if (TPC_FAULT(packet_dropped) && at == 16 && k == 1) continue;
            packet_store(slot_after(p, slots, k, at), pack_sentinel(v[i], element_t<T>::NAN_WORD));
        }
    }
}

/** Vector `at` of the own part: reduce, push the result to all, store. */
template <typename T, int N>
TPC_DEVICE void reduce_own(const tpc_ar_params_t &p, uint32_t epoch, bool gathers, slots_t slots, slots_t results,
                           uint32_t at, waiter_t &w) {
    vec_t sum = load_whole((const unsigned char *)p.in + (uint64_t)p.rank * p.in_stride + at);
    reduce_fast<T, N, 1>(p, epoch, slots, at, 0, p.own_bytes, &sum, w);
    if (gathers && !w.dead) {
#pragma unroll
        for (int k = 1; k < N; k++) {
            if (k >= p.size) break;
            if (TPC_FAULT(result_kept_back) && at == 0 && k == 1) continue;
            packet_store(slot_after(p, results, k, at), pack_words(sum));
        }
    }
    store_whole((unsigned char *)p.out + (gathers ? (uint64_t)p.rank * p.in_stride : 0) + at, sum);
}

/** Vector `at` of all other parts: take the owners' results, store. */
template <typename T, int N>
TPC_DEVICE void gather_results(const tpc_ar_params_t &p, uint32_t epoch, slots_t results, uint32_t at, waiter_t &w) {
    packet_t got[1][N - 1];
    unsigned there = 0;
#pragma unroll
    for (int i = 0; i < N - 1; i++)
        if (i < p.size - 1 && at < part_bytes(p, true, source_of(p.rank, i))) there |= 1u << i;
    bool done = !w.dead && take_together<N - 1, 1>(p, epoch, results, at, 0, there, got, w);
#pragma unroll
    for (int i = 0; i < N - 1; i++)
        if (there >> i & 1)
            store_whole((unsigned char *)p.out + (uint64_t)source_of(p.rank, i) * p.in_stride + at,
                        done ? unpack_sentinel(got[0][i]) : nan_vec(element_t<T>::NAN_WORD));
}

/**
 * p.lead turns' parts are on their way to the owners while one turn's sum is made, and as many turns' results on their
 * way back. No wait is for a wait of a later vector, whatever the grids, so none is for itself.
 */
template <typename T, int N>
TPC_DEVICE void take_turns(const tpc_ar_params_t &p, const begun_t &begun, bool gathers, slots_t slots, slots_t results,
                           uint32_t at, uint32_t step) {
    uint32_t end = p.longest_bytes, pushed = at, lead = at + p.lead * step, gathered = gathers ? at : end;
#pragma unroll 1
    for (; pushed < end && pushed < lead; pushed += step) push_parts<T, N>(p, gathers, slots, pushed);
    waiter_t w = all_have_begun(begun);
#pragma unroll 1
    while (at < end || gathered < end) {
        if (pushed < end) {
            push_parts<T, N>(p, gathers, slots, pushed);
            pushed += step;
        }
        if (at < p.own_bytes) reduce_own<T, N>(p, begun.epoch, gathers, slots, results, at, w);
        at += step; /* also beyond the end: the last turns only gather */
        if (at > lead && gathered < end) {
            gather_results<T, N>(p, begun.epoch, results, gathered, w);
            gathered += step;
        }
    }
}

/** All parts, all sums, all results: turns of eight ranks' packets would take more registers than there are. */
template <typename T, int N>
TPC_DEVICE void do_phases(const tpc_ar_params_t &p, const begun_t &begun, bool gathers, slots_t slots, slots_t results,
                          uint32_t first, uint32_t step) {
#pragma unroll 1
    for (uint32_t at = first; at < p.longest_bytes; at += step) push_parts<T, N>(p, gathers, slots, at);
    waiter_t w = all_have_begun(begun);
#pragma unroll 1
    for (uint32_t at = first; at < p.own_bytes; at += step)
        reduce_own<T, N>(p, begun.epoch, gathers, slots, results, at, w);
    uint32_t end = gathers ? p.longest_bytes : 0;
#pragma unroll 1
    for (uint32_t at = first; at < end; at += step) gather_results<T, N>(p, begun.epoch, results, at, w);
}

/** Sums of whole aligned vectors of N ranks at most. */
template <typename T, int N, bool EARLY>
__global__ void __launch_bounds__(TPC_AR_72_REGISTERS, 1)
    twoshot_fast(const __grid_constant__ tpc_ar_params_t p, bool gathers) {
    begun_t begun = begin_call<EARLY>(p);
    unsigned workers = (unsigned)p.work_threads;
    if (threadIdx.x >= workers) {
        accompany(p, begun, threadIdx.x - workers);
        end_call<EARLY>(p);
        return;
    }
    uint32_t step = 16 * gridDim.x * workers, at = 16 * (blockIdx.x * workers + threadIdx.x);
    slots_t slots = slots_of(p, begun.epoch, gathers ? p.slot_bytes / 2 : p.slot_bytes), results = results_of(p, slots);
    if constexpr (N < 8)
        take_turns<T, N>(p, begun, gathers, slots, results, at, step);
    else
        do_phases<T, N>(p, begun, gathers, slots, results, at, step);
    end_call<EARLY>(p);
}

/** Any op, alignment, length and number of ranks. */
template <typename T>
__global__ void __launch_bounds__(TPC_AR_64_REGISTERS, 1)
    twoshot_general(const __grid_constant__ tpc_ar_params_t p, bool gathers) {
    begun_t begun = begin_call(p);
    unsigned workers = (unsigned)p.work_threads;
    if (threadIdx.x >= workers) {
        accompany(p, begun, threadIdx.x - workers);
        end_call(p);
        return;
    }
    const unsigned char *in = (const unsigned char *)p.in;
    unsigned char *out = (unsigned char *)p.out;
    uint32_t step = 16 * gridDim.x * workers, first = 16 * (blockIdx.x * workers + threadIdx.x);
    uint32_t epoch = begun.epoch;
    slots_t slots = slots_of(p, epoch, gathers ? p.slot_bytes / 2 : p.slot_bytes);
#pragma unroll 1
    for (uint32_t at = first; at < p.longest_bytes; at += step) {
#pragma unroll 1
        for (int k = 1; k < p.size; k++) {
            int to = rank_after(p.rank, k, p.size);
            uint32_t bytes = part_bytes(p, gathers, to);
            if (at >= bytes) continue;
            if (TPC_FAULT(packet_dropped) && at == 16 && k == 1) continue;
            vec_t v = load_vec(in + (uint64_t)to * p.in_stride, at, bytes);
            packet_store(slot_after(p, slots, k, at), pack_sentinel(v, element_t<T>::NAN_WORD));
        }
    }
    waiter_t w = all_have_begun(begun);
    slots_t results = results_of(p, slots);
    const unsigned char *own = in + (uint64_t)p.rank * p.in_stride;
    unsigned char *own_out = out + (gathers ? (uint64_t)p.rank * p.in_stride : 0);
#pragma unroll 1
    for (uint32_t at = first; at < p.own_bytes; at += step) {
        vec_t sum = reduce_general<T>(p, epoch, slots, at, load_vec(own, at, p.own_bytes), w);
        if (gathers && !w.dead) {
#pragma unroll 1
            for (int k = 1; k < p.size; k++) {
                if (TPC_FAULT(result_kept_back) && at == 0 && k == 1) continue;
                packet_store(slot_after(p, results, k, at), pack_words(sum));
            }
        }
        store_vec(own_out, at, p.own_bytes, sum);
    }
#pragma unroll 1
    for (int r = 0; r < p.size && gathers; r++) {
        uint32_t bytes = r != p.rank ? part_bytes(p, gathers, r) : 0;
        for (uint32_t at = first; at < bytes; at += step) {
            vec_t v = nan_vec(element_t<T>::NAN_WORD);
            if (!w.dead) v = take_sentinel(p, epoch, slot_in(p, results, r, at), r, w);
            store_vec(out + (uint64_t)r * p.in_stride, at, bytes, w.dead ? nan_vec(element_t<T>::NAN_WORD) : v);
        }
    }
    end_call(p);
}

#endif
