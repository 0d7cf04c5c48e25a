/* SPDX-License-Identifier: Apache-2.0 */
/**
 * One-shot kernels: every rank pushes its whole input to every peer and reduces all inputs itself. One launch a message
 * of up to a slot; no barrier, no staging of the caller's buffers, nothing registered.
 *
 * Phases of a thread, for its vectors: load own data and push it to all peers; then, for each vector, load all peers'
 * packets together, look again at those that have not arrived, re-arm their slots at once, sum in rank order, store.
 * The first few own vectors stay in registers between the phases. Reading `in` again for later ones is safe in place:
 * element i of out is written by the thread that has read element i of in for the last time.
 *
 * Packets (wait.cuh has the frame, signal.cuh the ordering):
 *   sentinel  f32, f16, bf16: 16 bytes of data; a word of all ones is EMPTY, and a sender turns such a word (a NaN,
 * whose payload no reduction keeps) into the canonical NaN flag      everything else: {4 bytes, epoch} twice, since
 * every bit pattern is data
 */
#ifndef TPC_CUSTOM_AR_ONESHOT_CUH
#define TPC_CUSTOM_AR_ONESHOT_CUH

#include "vec.cuh"
#include "wait.cuh"

#define TPC_AR_WARP        32
#define TPC_AR_MAX_THREADS 544 /* 512 that work and the warp for call headers */
#define TPC_AR_KEEP        2   /* own vectors kept in registers between push and reduction */

/**
 * A bound on threads by which the compiler takes 64 registers at most, without a spill, and leaves half an SM to
 * others. Eight ranks' packets take 28 registers more.
 */
#define TPC_AR_64_REGISTERS 1024

#define TPC_EMPTY_WORD 0xFFFFFFFFu

TPC_DEVICE packet_t pack_sentinel(const vec_t &v, uint32_t nan_word) {
    uint32_t word[4];
#pragma unroll
    for (int w = 0; w < 4; w++)
        word[w] = v.word[w] == TPC_EMPTY_WORD && !TPC_FAULT(empty_word_sent) ? nan_word : v.word[w];
    packet_t packet = {word[0] | (uint64_t)word[1] << 32, word[2] | (uint64_t)word[3] << 32};
    return packet;
}

TPC_DEVICE vec_t unpack_sentinel(packet_t packet) {
    vec_t v;
    v.word[0] = (uint32_t)packet.low, v.word[1] = (uint32_t)(packet.low >> 32);
    v.word[2] = (uint32_t)packet.high, v.word[3] = (uint32_t)(packet.high >> 32);
    return v;
}

/** All four words: nothing promises that they arrive together. */
TPC_DEVICE bool sentinel_arrived(packet_t packet) {
    vec_t v = unpack_sentinel(packet);
    if (TPC_FAULT(one_word_tested)) return v.word[0] != TPC_EMPTY_WORD;
    return v.word[0] != TPC_EMPTY_WORD && v.word[1] != TPC_EMPTY_WORD && v.word[2] != TPC_EMPTY_WORD &&
           v.word[3] != TPC_EMPTY_WORD;
}

TPC_DEVICE bool flag_arrived(packet_t packet, uint32_t epoch) {
    if (TPC_FAULT(one_flag_tested)) return (uint32_t)(packet.low >> 32) == epoch;
    return (uint32_t)(packet.low >> 32) == epoch && (uint32_t)(packet.high >> 32) == epoch;
}

TPC_DEVICE packet_t empty_packet() {
    packet_t packet = {~0ull, ~0ull};
    return packet;
}

/** The consumer of a packet makes its slot EMPTY again, at once: what the call after the next needs. */
TPC_DEVICE void rearm(const tpc_ar_params_t &p, uint32_t epoch, unsigned char *slot) {
    if (TPC_FAULT(no_rearm)) return;
    uint64_t half = (uint64_t)(p.size - 1) * p.slot_bytes;
    if (TPC_FAULT(late_rearm)) slot += parity_of(epoch) != 0 ? -half : half; /* the packet of the call before */
    packet_store(slot, empty_packet());
}

/* ------------------------------------------------------------------ f32, f16, bf16 */

template <typename T>
TPC_DEVICE void push_sentinel(const tpc_ar_params_t &p, uint32_t epoch, uint32_t at, const vec_t &v) {
    packet_t packet = pack_sentinel(v, element_t<T>::NAN_WORD);
    int to = p.rank;
    for (int k = 1; k < p.size; k++) {
        if (++to == p.size) to = 0; /* rank+1, rank+2, ...: no peer is everybody's first */
        if (TPC_FAULT(packet_dropped) && at == 16 && k == 1) continue;
        packet_store(slot_of(p, to, p.rank, epoch) + at, packet);
    }
}

template <typename T> TPC_DEVICE void accumulate(float *sum, const vec_t &v, bool first, int op) {
#pragma unroll
    for (int e = 0; e < element_t<T>::PER_VEC; e++) {
        float x = element_t<T>::get(v, e);
        sum[e] = first ? x : combine(sum[e], x, op);
    }
}

template <typename T> TPC_DEVICE vec_t finish(const float *sum, int op, int size) {
    vec_t v;
#pragma unroll
    for (int e = 0; e < element_t<T>::PER_VEC; e++)
        element_t<T>::put(v, e, op == TPCOMM_AVG ? __fdiv_rn(sum[e], (float)size) : sum[e]);
    return v;
}

TPC_DEVICE vec_t nan_vec(uint32_t nan_word) {
    vec_t v = {{nan_word, nan_word, nan_word, nan_word}};
    return v;
}

/** The vector at byte `at` of the result, for a number of ranks known here: all packets are looked at together. */
template <typename T, int N>
TPC_DEVICE vec_t reduce_together(const tpc_ar_params_t &p, uint32_t epoch, uint32_t at, const vec_t &own, waiter_t &w) {
    const unsigned others = ((1u << N) - 1) & ~(1u << p.rank);
    unsigned pending;
    w.start = 0;
    do {
        pending = others;
        packet_t got[N];
#pragma unroll 1
        for (int spin = 0; spin < TPC_LOOK_EVERY; spin++) {
#pragma unroll
            for (int r = 0; r < N; r++)
                if (pending >> r & 1) got[r] = packet_load(slot_of(p, p.rank, r, epoch) + at);
#pragma unroll
            for (int r = 0; r < N; r++)
                if ((pending >> r & 1) && sentinel_arrived(got[r])) pending &= ~(1u << r);
            if (pending != 0) continue;
            float sum[element_t<T>::PER_VEC];
#pragma unroll
            for (int r = 0; r < N; r++) {
                if (r != p.rank) rearm(p, epoch, slot_of(p, p.rank, r, epoch) + at);
                accumulate<T>(sum, r == p.rank ? own : unpack_sentinel(got[r]), r == 0, p.op);
            }
            return finish<T>(sum, p.op, N);
        }
    } while (keep_waiting(p, w, __ffs((int)pending) - 1, epoch));
    return nan_vec(element_t<T>::NAN_WORD);
}

/** The same for any number of ranks: source by source, in rank order. */
template <typename T>
TPC_DEVICE vec_t reduce_in_turn(const tpc_ar_params_t &p, uint32_t epoch, uint32_t at, const vec_t &own, waiter_t &w) {
    float sum[element_t<T>::PER_VEC];
    for (int r = 0; r < p.size; r++) {
        vec_t v = own;
        if (r != p.rank) {
            unsigned char *slot = slot_of(p, p.rank, r, epoch) + at;
            v = unpack_sentinel(
                await_packet(p, slot, r, epoch, w, [](packet_t packet) { return sentinel_arrived(packet); }));
            if (w.dead) return nan_vec(element_t<T>::NAN_WORD);
            rearm(p, epoch, slot);
        }
        accumulate<T>(sum, v, r == 0, p.op);
    }
    return finish<T>(sum, p.op, p.size);
}

/** N: number of ranks, or 0 for any. */
template <typename T, int N>
__global__ void __launch_bounds__(N == 8 ? TPC_AR_MAX_THREADS : TPC_AR_64_REGISTERS, 1)
    oneshot_sentinel(const __grid_constant__ tpc_ar_params_t p) {
    waiter_t w;
    uint32_t epoch = begin_call(p, w);
    const unsigned char *in = (const unsigned char *)p.in;
    uint32_t bytes = (uint32_t)(p.count * sizeof(T)); /* a slot is below 4 GiB */
    unsigned workers = (unsigned)p.work_threads;
    if (threadIdx.x >= workers) {
        if (!w.dead) exchange_call_headers(p, (int)(threadIdx.x - workers), epoch, w);
    } else {
        uint32_t stride = 16 * gridDim.x * workers, first = 16 * (blockIdx.x * workers + threadIdx.x);
        vec_t kept[TPC_AR_KEEP] = {};
#pragma unroll
        for (unsigned k = 0; k < TPC_AR_KEEP; k++)
            if (first + k * stride < bytes) kept[k] = load_vec(in, first + k * stride, bytes);
        if (!w.dead) {
#pragma unroll
            for (unsigned k = 0; k < TPC_AR_KEEP; k++)
                if (first + k * stride < bytes) push_sentinel<T>(p, epoch, first + k * stride, kept[k]);
            for (uint32_t at = first + TPC_AR_KEEP * stride; at < bytes; at += stride)
                push_sentinel<T>(p, epoch, at, load_vec(in, at, bytes));
        }
        for (uint32_t at = first, turn = 0; at < bytes; at += stride, turn++) {
            vec_t v = turn < TPC_AR_KEEP ? kept[0] : load_vec(in, at, bytes);
#pragma unroll
            for (int k = 1; k < TPC_AR_KEEP; k++) kept[k - 1] = kept[k];
            if (w.dead)
                v = nan_vec(element_t<T>::NAN_WORD);
            else if (N != 0)
                v = reduce_together < T, N == 0 ? 2 : N > (p, epoch, at, v, w);
            else
                v = reduce_in_turn<T>(p, epoch, at, v, w);
            store_vec((unsigned char *)p.out, at, bytes, v);
        }
    }
    end_call(p, epoch);
}

/* ------------------------------------------------------------------ any bits: 8 bytes a packet */

/** Bytes [8 i, 8 i + 8) of a message, zero-padded. */
TPC_DEVICE uint64_t load_raw(const unsigned char *in, uint64_t i, uint64_t bytes) {
    uint64_t at = 8 * i;
    if (at + 8 <= bytes && ((uintptr_t)in & 7u) == 0) return *(const uint64_t *)(in + at);
    uint64_t value = 0;
#pragma unroll
    for (int b = 0; b < 8; b++)
        if (at + b < bytes) value |= (uint64_t)in[at + b] << (8 * b);
    return value;
}

TPC_DEVICE void store_raw(unsigned char *out, uint64_t i, uint64_t bytes, uint64_t value) {
    uint64_t at = 8 * i;
    if (at + 8 <= bytes && ((uintptr_t)out & 7u) == 0) {
        *(uint64_t *)(out + at) = value;
        return;
    }
#pragma unroll
    for (int b = 0; b < 8; b++)
        if (at + b < bytes) out[at + b] = (unsigned char)(value >> (8 * b));
}

TPC_DEVICE packet_t pack_flag(uint64_t value, uint32_t epoch) {
    packet_t packet = {(value & 0xFFFFFFFFu) | (uint64_t)epoch << 32, value >> 32 | (uint64_t)epoch << 32};
    return packet;
}

TPC_DEVICE uint64_t unpack_flag(packet_t packet) {
    return (packet.low & 0xFFFFFFFFu) | packet.high << 32;
}

TPC_DEVICE void push_flag(const tpc_ar_params_t &p, uint32_t epoch, uint64_t i, uint64_t value) {
    int to = p.rank;
    for (int k = 1; k < p.size; k++) {
        if (++to == p.size) to = 0;
        if (TPC_FAULT(packet_dropped) && i == 1 && k == 1) continue;
        packet_store(slot_of(p, to, p.rank, epoch) + 16ull * i, pack_flag(value, epoch));
    }
}

/** Wait for a peer's packet, and make its slot EMPTY again. Undefined if the wait was given up. */
TPC_DEVICE uint64_t take_flag(const tpc_ar_params_t &p, uint32_t epoch, uint64_t i, int source, waiter_t &w) {
    unsigned char *slot = slot_of(p, p.rank, source, epoch) + 16ull * i;
    packet_t packet =
        await_packet(p, slot, source, epoch, w, [=](packet_t packet) { return flag_arrived(packet, epoch); });
    if (!w.dead) rearm(p, epoch, slot);
    return unpack_flag(packet);
}

/** all_reduce of integers and f64. */
TPC_DEVICE void raw_reduce(const tpc_ar_params_t &p, uint32_t epoch, uint64_t i, uint64_t bytes, waiter_t &w) {
    uint64_t sum = 0;
    for (int r = 0; r < p.size && !w.dead; r++) {
        uint64_t x = r == p.rank ? load_raw((const unsigned char *)p.in, i, bytes) : take_flag(p, epoch, i, r, w);
        sum = r == 0 ? x : combine_raw(sum, x, p.dtype, p.op);
    }
    sum = w.dead ? (p.dtype == TPCOMM_F64 ? TPC_CANONICAL_F64 : 0) : finish_raw(sum, p.dtype, p.op, p.size);
    store_raw((unsigned char *)p.out, i, bytes, sum);
}

TPC_DEVICE void raw_broadcast(const tpc_ar_params_t &p, uint32_t epoch, uint64_t i, uint64_t bytes, waiter_t &w) {
    uint64_t x = p.rank == p.root ? load_raw((const unsigned char *)p.in, i, bytes) : take_flag(p, epoch, i, p.root, w);
    if (!w.dead && !(p.rank == p.root && p.in == p.out)) store_raw((unsigned char *)p.out, i, bytes, x);
}

TPC_DEVICE void raw_gather(const tpc_ar_params_t &p, uint32_t epoch, uint64_t i, uint64_t bytes, waiter_t &w) {
    for (int r = 0; r < p.size && !w.dead; r++) {
        unsigned char *to = (unsigned char *)p.out + (uint64_t)r * p.out_stride;
        uint64_t x = r == p.rank ? load_raw((const unsigned char *)p.in, i, bytes) : take_flag(p, epoch, i, r, w);
        if (!w.dead && !(r == p.rank && p.in == to)) store_raw(to, i, bytes, x);
    }
}

/** element: bytes of one; count 0 is a barrier. */
template <int COLL>
__global__ void __launch_bounds__(TPC_AR_64_REGISTERS, 1)
    oneshot_raw(const __grid_constant__ tpc_ar_params_t p, uint32_t element) {
    waiter_t w;
    uint32_t epoch = begin_call(p, w);
    uint64_t bytes = p.count * element, granules = (bytes + 7) / 8;
    unsigned workers = (unsigned)p.work_threads;
    if (threadIdx.x >= workers) {
        if (!w.dead) exchange_call_headers(p, (int)(threadIdx.x - workers), epoch, w);
    } else {
        uint64_t stride = (uint64_t)gridDim.x * workers, first = (uint64_t)blockIdx.x * workers + threadIdx.x;
        bool sends = COLL != TPCOMM_BROADCAST || p.rank == p.root;
        if (sends && !w.dead)
            for (uint64_t i = first; i < granules; i += stride)
                push_flag(p, epoch, i, load_raw((const unsigned char *)p.in, i, bytes));
        for (uint64_t i = first; i < granules; i += stride) {
            if (COLL == TPCOMM_ALL_REDUCE) raw_reduce(p, epoch, i, bytes, w);
            if (COLL == TPCOMM_BROADCAST) raw_broadcast(p, epoch, i, bytes, w);
            if (COLL == TPCOMM_ALL_GATHER) raw_gather(p, epoch, i, bytes, w);
        }
    }
    end_call(p, epoch);
}

#endif
