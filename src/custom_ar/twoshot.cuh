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
 * way back. No wait is for a wait of a later vector, whatever the grids, so none is for itself. pushed: up to here
 * parts are on their way.
 */
template <typename T, int N>
TPC_DEVICE void take_turns(const tpc_ar_params_t &p, uint32_t epoch, bool gathers, slots_t slots, uint32_t at,
                           uint32_t step, uint32_t pushed, waiter_t &w) {
    slots_t results = results_of(p, slots);
    uint32_t end = p.longest_bytes, lead = at + p.lead * step, gathered = gathers ? at : end;
#pragma unroll 1
    while (at < end || gathered < end) {
        if (pushed < end) {
            push_parts<T, N>(p, gathers, slots, pushed);
            pushed += step;
        }
        if (at < p.own_bytes) reduce_own<T, N>(p, epoch, gathers, slots, results, at, w);
        at += step; /* also beyond the end: the last turns only gather */
        if (at > lead && gathered < end) {
            gather_results<T, N>(p, epoch, results, gathered, w);
            gathered += step;
        }
    }
}

/** All sums, all results: turns of eight ranks' packets would take more registers than there are. */
template <typename T, int N>
TPC_DEVICE void do_phases(const tpc_ar_params_t &p, uint32_t epoch, bool gathers, slots_t slots, uint32_t first,
                          uint32_t step, waiter_t &w) {
    slots_t results = results_of(p, slots);
#pragma unroll 1
    for (uint32_t at = first; at < p.own_bytes; at += step) reduce_own<T, N>(p, epoch, gathers, slots, results, at, w);
    uint32_t end = gathers ? p.longest_bytes : 0;
#pragma unroll 1
    for (uint32_t at = first; at < end; at += step) gather_results<T, N>(p, epoch, results, at, w);
}

/** Where the tail, which is the end of its owner's part, stands in slots. */
TPC_DEVICE uint32_t tail_at(const tpc_ar_params_t &p) {
    return (uint32_t)p.parts_bytes - (uint32_t)p.tail_owner * (uint32_t)p.in_stride;
}

template <typename T> TPC_DEVICE vec_t own_tail(const tpc_ar_params_t &p) {
    return load_tail<T>((const unsigned char *)p.in + p.parts_bytes, p.tail_bytes);
}

/** The tail, by its one thread: to its owner. */
template <typename T> TPC_DEVICE void push_tail_to_owner(const tpc_ar_params_t &p, slots_t slots) {
    int k = p.tail_owner - p.rank + (p.tail_owner < p.rank ? p.size : 0);
    if (k == 0 || TPC_FAULT(tail_dropped)) return;
    packet_store(slot_after(p, slots, k, tail_at(p)), pack_sentinel(own_tail<T>(p), element_t<T>::NAN_WORD));
}

/**
 * Reduce it, if it is this rank's, and push the result to all; else take it. Source by source, and all found anew: more
 * would take registers that the others' waits need.
 */
template <typename T> TPC_DEVICE void settle_tail(const tpc_ar_params_t &p, uint32_t epoch, waiter_t &w) {
    compute_anew(epoch);
    slots_t slots = slots_of(p, epoch, p.slot_bytes / 2), results = results_of(p, slots);
    uint32_t at = tail_at(p);
    vec_t v = own_tail<T>(p);
    if (p.tail_owner == p.rank) {
        v = reduce_general<T>(p, epoch, slots, at, v, w);
#pragma unroll 1
        for (int k = 1; k < p.size && !w.dead; k++) packet_store(slot_after(p, results, k, at), pack_words(v));
    } else {
        if (!w.dead) v = take_sentinel(p, epoch, slot_in(p, results, p.tail_owner, at), p.tail_owner, w);
        if (w.dead) v = nan_vec(element_t<T>::NAN_WORD);
    }
    store_tail<T>((unsigned char *)p.out + p.parts_bytes, p.tail_bytes, v);
}

/** Sums of an aligned message of N ranks at most; of reduce_scatter, without a tail. */
template <typename T, int N, bool EARLY>
__global__ void __launch_bounds__(TPC_AR_72_REGISTERS, 1)
    twoshot_fast(const __grid_constant__ tpc_ar_params_t p, bool gathers) {
    begun_t begun = begin_call<EARLY>(p);
    unsigned workers = (unsigned)p.work_threads;
    bool works = threadIdx.x < workers;
    uint32_t step = 16 * gridDim.x * workers, at = 16 * (blockIdx.x * workers + threadIdx.x);
    uint32_t epoch = begun.epoch, pushed = at;
    announced_t said;
    slots_t slots = slots_of(p, epoch, gathers ? p.slot_bytes / 2 : p.slot_bytes);
    if (works) {
        uint32_t end = p.longest_bytes, lead = N < 8 ? at + p.lead * step : end;
#pragma unroll 1
        for (; pushed < end && pushed < lead; pushed += step) push_parts<T, N>(p, gathers, slots, pushed);
    } else {
        said = announce(p, begun, threadIdx.x - workers);
        if (has_tail(p)) push_tail_to_owner<T>(p, slots);
    }
    waiter_t w = all_have_begun(begun);
    if (works) {
        if constexpr (N < 8)
            take_turns<T, N>(p, epoch, gathers, slots, at, step, pushed, w);
        else
            do_phases<T, N>(p, epoch, gathers, slots, at, step, w);
    } else {
        accompany(p, begun, threadIdx.x - workers, said, w);
        if (has_tail(p)) settle_tail<T>(p, epoch, w);
    }
    end_call<EARLY>(p);
}

/* ------------------------------------------------------------------ any op, alignment, length and number of ranks */

template <typename T>
TPC_DEVICE void push_general(const tpc_ar_params_t &p, bool gathers, slots_t slots, uint32_t first, uint32_t step) {
    const unsigned char *in = (const unsigned char *)p.in;
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
}

template <typename T>
TPC_DEVICE void reduce_own_general(const tpc_ar_params_t &p, uint32_t epoch, bool gathers, slots_t slots,
                                   uint32_t first, uint32_t step, waiter_t &w) {
    slots_t results = results_of(p, slots);
    const unsigned char *own = (const unsigned char *)p.in + (uint64_t)p.rank * p.in_stride;
    unsigned char *out = (unsigned char *)p.out + (gathers ? (uint64_t)p.rank * p.in_stride : 0);
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
        store_vec(out, at, p.own_bytes, sum);
    }
}

template <typename T>
TPC_DEVICE void gather_general(const tpc_ar_params_t &p, uint32_t epoch, slots_t results, uint32_t first, uint32_t step,
                               waiter_t &w) {
#pragma unroll 1
    for (int r = 0; r < p.size; r++) {
        uint32_t bytes = r != p.rank ? part_bytes(p, true, r) : 0;
        for (uint32_t at = first; at < bytes; at += step) {
            vec_t v = nan_vec(element_t<T>::NAN_WORD);
            if (!w.dead) v = take_sentinel(p, epoch, slot_in(p, results, r, at), r, w);
            store_vec((unsigned char *)p.out + (uint64_t)r * p.in_stride, at, bytes,
                      w.dead ? nan_vec(element_t<T>::NAN_WORD) : v);
        }
    }
}

template <typename T>
__global__ void __launch_bounds__(TPC_AR_64_REGISTERS, 1)
    twoshot_general(const __grid_constant__ tpc_ar_params_t p, bool gathers) {
    begun_t begun = begin_call(p);
    unsigned workers = (unsigned)p.work_threads;
    bool works = threadIdx.x < workers;
    uint32_t step = 16 * gridDim.x * workers, first = 16 * (blockIdx.x * workers + threadIdx.x);
    announced_t said;
    slots_t slots = slots_of(p, begun.epoch, gathers ? p.slot_bytes / 2 : p.slot_bytes);
    if (works)
        push_general<T>(p, gathers, slots, first, step);
    else
        said = announce(p, begun, threadIdx.x - workers);
    waiter_t w = all_have_begun(begun);
    if (works) {
        reduce_own_general<T>(p, begun.epoch, gathers, slots, first, step, w);
        if (gathers) gather_general<T>(p, begun.epoch, results_of(p, slots), first, step, w);
    } else {
        accompany(p, begun, threadIdx.x - workers, said, w);
    }
    end_call(p);
}

#endif
