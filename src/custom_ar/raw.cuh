/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Collectives of any bits: flag packets, 8 bytes of data each. One-shot all_reduce of integers and f64, broadcast,
 * all_gather, barrier; two-shot all_reduce and reduce_scatter of integers and f64. Phases as oneshot.cuh and
 * twoshot.cuh have them; a thread handles granules of 8 bytes, source by source.
 */
#ifndef TPC_CUSTOM_AR_RAW_CUH
#define TPC_CUSTOM_AR_RAW_CUH

#include "parts.cuh"

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

/** What a thread of these kernels has at hand. */
struct raw_t {
    uint32_t epoch;
    slots_t slots;
    uint64_t first, step, bytes, granules;
};

TPC_DEVICE raw_t raw_begin(const tpc_ar_params_t &p, uint32_t epoch, uint64_t bytes, uint32_t slot_bytes) {
    unsigned workers = (unsigned)p.work_threads;
    raw_t raw;
    raw.epoch = epoch;
    raw.slots = slots_of(p, epoch, slot_bytes);
    raw.first = (uint64_t)blockIdx.x * workers + threadIdx.x;
    raw.step = (uint64_t)gridDim.x * workers;
    raw.bytes = bytes;
    raw.granules = (bytes + 7) / 8;
    return raw;
}

/** Granule i to the rank k places after this one. */
TPC_DEVICE void raw_push(const tpc_ar_params_t &p, const raw_t &raw, slots_t slots, int k, uint64_t i, uint64_t value) {
    if (TPC_FAULT(flag_dropped) && i == 1 && k == 1) return;
    packet_store(slot_after(p, slots, k, 16 * (uint32_t)i), pack_flag(value, raw.epoch));
}

/** Granule i from a source. */
TPC_DEVICE uint64_t raw_take(const tpc_ar_params_t &p, const raw_t &raw, slots_t slots, int source, uint64_t i,
                             waiter_t &w) {
    return take_flag(p, raw.epoch, slot_in(p, slots, source, 16 * (uint32_t)i), source, w);
}

/** Granule i of all ranks, reduced in rank order; of a broken group NaN or 0. */
TPC_DEVICE uint64_t raw_reduce(const tpc_ar_params_t &p, const raw_t &raw, uint64_t i, uint64_t own, waiter_t &w) {
    uint64_t sum = 0;
    for (int r = 0; r < p.size && !w.dead; r++) {
        uint64_t x = r == p.rank ? own : raw_take(p, raw, raw.slots, r, i, w);
        sum = r == 0 ? x : combine_raw(sum, x, p.dtype, p.op);
    }
    if (w.dead) return p.dtype == TPCOMM_F64 ? TPC_CANONICAL_F64 : 0;
    return finish_raw(sum, p.dtype, p.op, p.size);
}

/* ------------------------------------------------------------------ one-shot */

TPC_DEVICE void raw_broadcast(const tpc_ar_params_t &p, const raw_t &raw, uint64_t i, waiter_t &w) {
    uint64_t x = p.rank == p.root ? load_raw((const unsigned char *)p.in, i, raw.bytes)
                                  : raw_take(p, raw, raw.slots, p.root, i, w);
    if (!w.dead && !(p.rank == p.root && p.in == p.out)) store_raw((unsigned char *)p.out, i, raw.bytes, x);
}

/** all_gather: bytes of a rank's part. */
TPC_DEVICE uint64_t gathered_bytes(const tpc_ar_params_t &p, uint64_t bytes, int rank) {
    uint64_t from = (uint64_t)rank * p.out_stride;
    if (p.parts_bytes == 0) return bytes;
    if (from >= p.parts_bytes) return 0;
    return p.parts_bytes - from < bytes ? p.parts_bytes - from : bytes;
}

TPC_DEVICE void raw_gather(const tpc_ar_params_t &p, const raw_t &raw, uint64_t i, waiter_t &w) {
    for (int r = 0; r < p.size && !w.dead; r++) {
        unsigned char *to = (unsigned char *)p.out + (uint64_t)r * p.out_stride;
        uint64_t bytes = gathered_bytes(p, raw.bytes, r);
        if (8 * i >= bytes) break; /* no rank after this one has more */
        uint64_t x =
            r == p.rank ? load_raw((const unsigned char *)p.in, i, bytes) : raw_take(p, raw, raw.slots, r, i, w);
        if (!w.dead && !(r == p.rank && p.in == to)) store_raw(to, i, bytes, x);
    }
}

/** element: bytes of one; count 0 is a barrier. */
template <int COLL>
__global__ void __launch_bounds__(TPC_AR_64_REGISTERS, 1)
    raw_oneshot(const __grid_constant__ tpc_ar_params_t p, uint32_t element) {
    begun_t begun = begin_call(p);
    unsigned workers = (unsigned)p.work_threads;
    bool works = threadIdx.x < workers;
    raw_t raw = raw_begin(p, begun.epoch, p.count * element, p.slot_bytes);
    const unsigned char *in = (const unsigned char *)p.in;
    announced_t said;
    if (works) {
        bool sends = COLL != TPCOMM_BROADCAST || p.rank == p.root;
        uint64_t own_bytes = COLL == TPCOMM_ALL_GATHER ? gathered_bytes(p, raw.bytes, p.rank) : raw.bytes;
        for (uint64_t i = raw.first; sends && 8 * i < own_bytes; i += raw.step) {
            uint64_t value = load_raw(in, i, own_bytes);
            for (int k = 1; k < p.size; k++) raw_push(p, raw, raw.slots, k, i, value);
        }
    } else {
        said = announce(p, begun, threadIdx.x - workers);
    }
    waiter_t w = all_have_begun(begun);
    if (works) {
        for (uint64_t i = raw.first; i < raw.granules; i += raw.step) {
            if (COLL == TPCOMM_ALL_REDUCE)
                store_raw((unsigned char *)p.out, i, raw.bytes, raw_reduce(p, raw, i, load_raw(in, i, raw.bytes), w));
            if (COLL == TPCOMM_BROADCAST) raw_broadcast(p, raw, i, w);
            if (COLL == TPCOMM_ALL_GATHER) raw_gather(p, raw, i, w);
        }
    } else {
        accompany(p, begun, threadIdx.x - workers, said, w);
    }
    end_call(p);
}

/* ------------------------------------------------------------------ two-shot, reduce_scatter */

TPC_DEVICE void raw_push_parts(const tpc_ar_params_t &p, bool gathers, const raw_t &raw) {
    const unsigned char *in = (const unsigned char *)p.in;
    for (int k = 1; k < p.size; k++) {
        uint64_t to = (uint64_t)rank_after(p.rank, k, p.size), bytes = part_bytes(p, gathers, (int)to);
        for (uint64_t i = raw.first; 8 * i < bytes; i += raw.step)
            raw_push(p, raw, raw.slots, k, i, load_raw(in + to * p.in_stride, i, bytes));
    }
}

TPC_DEVICE void raw_reduce_own(const tpc_ar_params_t &p, bool gathers, const raw_t &raw, waiter_t &w) {
    slots_t results = results_of(p, raw.slots);
    uint64_t from = (uint64_t)p.rank * p.in_stride;
    const unsigned char *in = (const unsigned char *)p.in + from;
    unsigned char *out = (unsigned char *)p.out + (gathers ? from : 0);
    for (uint64_t i = raw.first; i < raw.granules; i += raw.step) {
        uint64_t sum = raw_reduce(p, raw, i, load_raw(in, i, raw.bytes), w);
        for (int k = 1; k < p.size && gathers && !w.dead; k++) {
            if (TPC_FAULT(result_kept_back) && i == 0 && k == 1) continue;
            raw_push(p, raw, results, k, i, sum);
        }
        store_raw(out, i, raw.bytes, sum);
    }
}

TPC_DEVICE void raw_take_results(const tpc_ar_params_t &p, const raw_t &raw, waiter_t &w) {
    slots_t results = results_of(p, raw.slots);
    for (int r = 0; r < p.size; r++) {
        uint64_t bytes = r != p.rank ? part_bytes(p, true, r) : 0;
        for (uint64_t i = raw.first; 8 * i < bytes; i += raw.step) {
            uint64_t x = w.dead ? 0 : raw_take(p, raw, results, r, i, w);
            if (w.dead) x = p.dtype == TPCOMM_F64 ? TPC_CANONICAL_F64 : 0;
            store_raw((unsigned char *)p.out + (uint64_t)r * p.in_stride, i, bytes, x);
        }
    }
}

__global__ void __launch_bounds__(TPC_AR_64_REGISTERS, 1)
    raw_twoshot(const __grid_constant__ tpc_ar_params_t p, bool gathers) {
    begun_t begun = begin_call(p);
    unsigned workers = (unsigned)p.work_threads;
    bool works = threadIdx.x < workers;
    raw_t raw = raw_begin(p, begun.epoch, p.own_bytes, gathers ? p.slot_bytes / 2 : p.slot_bytes);
    announced_t said;
    if (works)
        raw_push_parts(p, gathers, raw);
    else
        said = announce(p, begun, threadIdx.x - workers);
    waiter_t w = all_have_begun(begun);
    if (works) {
        raw_reduce_own(p, gathers, raw, w);
        if (gathers) raw_take_results(p, raw, w);
    } else {
        accompany(p, begun, threadIdx.x - workers, said, w);
    }
    end_call(p);
}

#endif
