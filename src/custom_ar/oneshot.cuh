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

#include "reduce.cuh"

/** Vectors at, at + step, ... that lie before end, of a whole aligned message. */
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

/**
 * Sums of whole aligned vectors of N ranks at most, V vectors of a thread at a time: a turn. Of several turns the next
 * ones' packets, p.lead of them, are on their way while one's are awaited and reduced.
 */
template <typename T, int N, int V, bool EARLY>
__global__ void __launch_bounds__(N == 8 ? TPC_AR_72_REGISTERS : TPC_AR_64_REGISTERS, 1)
    oneshot_fast(const __grid_constant__ tpc_ar_params_t p) {
    begun_t begun = begin_call<EARLY>(p);
    unsigned workers = (unsigned)p.work_threads;
    if (threadIdx.x >= workers) {
        accompany(p, begun, threadIdx.x - workers);
        end_call<EARLY>(p);
        return;
    }
    const unsigned char *in = (const unsigned char *)p.in;
    uint32_t end = (uint32_t)(p.count * sizeof(T)); /* a slot is below 4 GiB */
    uint32_t step = 16 * gridDim.x * workers, at = 16 * (blockIdx.x * workers + threadIdx.x);
    vec_t own[V];
    load_some<V>(in, at, step, end, own);
    uint32_t epoch = begun.epoch;
    slots_t slots = slots_of(p, epoch, p.slot_bytes);
    push_some<T, N, V>(p, slots, at, step, end, own);
    constexpr bool TURNS = N < 8; /* eight ranks' packets leave no register for that: all is pushed first */
    uint32_t pushed = at + V * step, lead = TURNS ? at + p.lead * V * step : end;
#pragma unroll 1
    for (; pushed < end && pushed < lead; pushed += V * step) {
        vec_t more[V];
        load_some<V>(in, pushed, step, end, more);
        push_some<T, N, V>(p, slots, pushed, step, end, more);
    }
    waiter_t w = all_have_begun(begun);
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
    end_call<EARLY>(p);
}

/** Any op, alignment, length and number of ranks. */
template <typename T>
__global__ void __launch_bounds__(TPC_AR_64_REGISTERS, 1) oneshot_general(const __grid_constant__ tpc_ar_params_t p) {
    begun_t begun = begin_call(p);
    unsigned workers = (unsigned)p.work_threads;
    if (threadIdx.x >= workers) {
        accompany(p, begun, threadIdx.x - workers);
        end_call(p);
        return;
    }
    const unsigned char *in = (const unsigned char *)p.in;
    uint32_t bytes = (uint32_t)(p.count * sizeof(T));
    uint32_t step = 16 * gridDim.x * workers, first = 16 * (blockIdx.x * workers + threadIdx.x);
    uint32_t epoch = begun.epoch;
    slots_t slots = slots_of(p, epoch, p.slot_bytes);
    for (uint32_t at = first; at < bytes; at += step) {
        packet_t packet = pack_sentinel(load_vec(in, at, bytes), element_t<T>::NAN_WORD);
        for (int k = 1; k < p.size; k++) {
            if (TPC_FAULT(packet_dropped) && at == 16 && k == 1) continue;
            packet_store(slot_after(p, slots, k, at), packet);
        }
    }
    waiter_t w = all_have_begun(begun);
    for (uint32_t at = first; at < bytes; at += step)
        store_vec((unsigned char *)p.out, at, bytes,
                  reduce_general<T>(p, epoch, slots, at, load_vec(in, at, bytes), w));
    end_call(p);
}

#endif
