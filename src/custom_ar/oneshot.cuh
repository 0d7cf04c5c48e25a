/* SPDX-License-Identifier: Apache-2.0 */
/**
 * One-shot all_reduce of f32, f16, bf16: every rank pushes its whole input to every peer and reduces all inputs itself.
 * One launch a message of up to a slot; no barrier between ranks, no staging of the caller's buffers, nothing
 * registered.
 *
 * A thread, for its vectors: load own data and push it to all peers; then load all peers' packets together, look again
 * at those that have not arrived, re-arm their slots at once, sum in rank order, store. In place: element i of out is
 * written by the thread that has read element i of in for the last time.
 *
 * A grid may have any size: which thread handles a vector is each rank's own affair.
 */
#ifndef TPC_CUSTOM_AR_ONESHOT_CUH
#define TPC_CUSTOM_AR_ONESHOT_CUH

#include "parts.cuh"
#include "reduce.cuh"

/** Vectors at, at + step, ... that lie before end, the end of the last whole one, of an aligned message. */
template <int V>
TPC_DEVICE void load_some(const unsigned char *in, uint32_t at, uint32_t step, uint32_t end, vec_t *v) {
#pragma unroll
    for (int i = 0; i < V; i++)
        if (at + i * step < end) v[i] = load_whole(in + (at + i * step));
}

/** Push them to every peer: to rank + 1, rank + 2, ..., so that no peer is everybody's first. */
template <typename T, int N, int V>
TPC_DEVICE void push_some(const tpc_ar_params_t &p, slots_t slots, uint32_t at, uint32_t step, uint32_t end,
                          const vec_t *v) {
#pragma unroll
    for (int k = 1; k < N; k++) {
        if (N > 2 && k >= p.size) break;
#pragma unroll
        for (int i = 0; i < V; i++) {
            if (at + i * step >= end) continue;
            if (TPC_FAULT(packet_dropped) && at + i * step == 16 && k == 1) continue;
            packet_store(slot_after(p, slots, k, at + i * step), pack_sentinel(v[i], element_t<T>::NAN_WORD));
        }
    }
}

/** The tail, by its one thread: to every peer. */
template <typename T> TPC_DEVICE void push_tail_to_all(const tpc_ar_params_t &p, slots_t slots, const vec_t &own) {
    packet_t packet = pack_sentinel(own, element_t<T>::NAN_WORD);
#pragma unroll 1
    for (int k = 1; k < p.size; k++)
        if (!TPC_FAULT(tail_dropped) || k > 1) packet_store(slot_after(p, slots, k, p.own_bytes), packet);
}

template <typename T, int N>
TPC_DEVICE void reduce_tail(const tpc_ar_params_t &p, uint32_t epoch, slots_t slots, vec_t own, waiter_t &w) {
    reduce_fast<T, N, 1>(p, epoch, slots, p.own_bytes, 0, p.own_bytes, &own, w);
    store_tail<T>((unsigned char *)p.out + p.own_bytes, p.tail_bytes, own);
}

/**
 * Sums of an aligned message of N ranks at most, V vectors of a thread at a time: a turn. Of several turns the next
 * ones' packets, p.lead of them, are on their way while one's are awaited and reduced.
 */
template <typename T, int N, int V, bool EARLY>
__global__ void __launch_bounds__(N == 8 ? TPC_AR_72_REGISTERS : TPC_AR_64_REGISTERS, 1)
    oneshot_fast(const __grid_constant__ tpc_ar_params_t p) {
    begun_t begun = begin_call<EARLY>(p);
    const unsigned char *in = (const unsigned char *)p.in;
    unsigned workers = (unsigned)p.work_threads;
    uint32_t end = p.own_bytes, step = 16 * gridDim.x * workers, at = 16 * (blockIdx.x * workers + threadIdx.x);
    bool works = threadIdx.x < workers;
    vec_t own[V];
    constexpr bool TURNS = N < 8; /* eight ranks' packets leave no register for that: all is pushed first */
    uint32_t epoch = begun.epoch, pushed = at + V * step;
    announced_t said;
    slots_t slots;
    if (works) {
        load_some<V>(in, at, step, end, own);
        slots = slots_of(p, epoch, p.slot_bytes); /* the first that waits for the epoch */
        push_some<T, N, V>(p, slots, at, step, end, own);
        uint32_t lead = TURNS ? at + p.lead * V * step : end;
#pragma unroll 1
        for (; pushed < end && pushed < lead; pushed += V * step) {
            vec_t more[V];
            load_some<V>(in, pushed, step, end, more);
            push_some<T, N, V>(p, slots, pushed, step, end, more);
        }
    } else {
        if (has_tail(p)) own[0] = load_tail<T>(in + end, p.tail_bytes);
        slots = slots_of(p, epoch, p.slot_bytes);
        said = announce(p, begun, threadIdx.x - workers);
        if (has_tail(p)) push_tail_to_all<T>(p, slots, own[0]);
    }
    waiter_t w = all_have_begun(begun);
    if (works) {
#pragma unroll 1
        while (at < end) {
            if (TURNS && pushed < end) {
                vec_t more[V];
                load_some<V>(in, pushed, step, end, more);
                push_some<T, N, V>(p, slots, pushed, step, end, more);
                pushed += V * step;
            }
            reduce_fast<T, N, V>(p, epoch, slots, at, step, end, own, w);
#pragma unroll
            for (int v = 0; v < V; v++)
                if (at + v * step < end) store_whole((unsigned char *)p.out + (at + v * step), own[v]);
            at += V * step;
            load_some<V>(in, at, step, end, own);
        }
    } else {
        accompany(p, begun, threadIdx.x - workers, said, w);
        if (has_tail(p)) reduce_tail<T, N>(p, epoch, slots, own[0], w);
    }
    end_call<EARLY>(p);
}

/** Any op, alignment, length and number of ranks. */
template <typename T>
__global__ void __launch_bounds__(TPC_AR_64_REGISTERS, 1) oneshot_general(const __grid_constant__ tpc_ar_params_t p) {
    begun_t begun = begin_call(p);
    const unsigned char *in = (const unsigned char *)p.in;
    unsigned workers = (unsigned)p.work_threads;
    bool works = threadIdx.x < workers;
    uint32_t bytes = (uint32_t)(p.count * sizeof(T)); /* a slot is below 4 GiB */
    uint32_t step = 16 * gridDim.x * workers, first = 16 * (blockIdx.x * workers + threadIdx.x);
    uint32_t epoch = begun.epoch;
    announced_t said;
    slots_t slots = slots_of(p, epoch, p.slot_bytes);
    if (works) {
        for (uint32_t at = first; at < bytes; at += step) {
            packet_t packet = pack_sentinel(load_vec(in, at, bytes), element_t<T>::NAN_WORD);
            for (int k = 1; k < p.size; k++) {
                if (TPC_FAULT(packet_dropped) && at == 16 && k == 1) continue;
                packet_store(slot_after(p, slots, k, at), packet);
            }
        }
    } else {
        said = announce(p, begun, threadIdx.x - workers);
    }
    waiter_t w = all_have_begun(begun);
    if (works) {
        for (uint32_t at = first; at < bytes; at += step)
            store_vec((unsigned char *)p.out, at, bytes,
                      reduce_general<T>(p, epoch, slots, at, load_vec(in, at, bytes), w));
    } else {
        accompany(p, begun, threadIdx.x - workers, said, w);
    }
    end_call(p);
}

#endif
