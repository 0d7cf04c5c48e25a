/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The ring: all_reduce of f32, f16, bf16 of any length in one launch, through a workspace whose size does not depend on
 * it. The sums are those of one-shot and two-shot, to the bit: whole parts travel to who reduces them in rank order.
 *
 *   more than two ranks   as two-shot: each rank owns a part; pieces of it come from all ranks to its owner, who pushes
 *                         the sums to all
 *   two ranks             as one-shot: both push everything, and both reduce everything; no second trip
 *
 * A block walks through its share of every part in chunks: a piece a part. For each source, kind of piece and block
 * there are TPC_AR_RING_DEPTH slots of a piece, which the chunks take in turn, and one flag: the number of chunks that
 * are there, counted over all calls of the group. Slots hold plain data; nothing is re-armed.
 *
 * Order. Pieces are stored; the block's threads meet; the signaller's lanes, a peer each, pass one fence and store the
 * peer's flag. A lane of the peer's block sees the flag by an acquiring load; its threads meet; they load the pieces.
 * Only the signaller's warp waits for the fence, while the others already reduce.
 *
 * Why no slot is overwritten before it is read, without credits. Let AHEAD be the chunks that a block has pushed and
 * not yet written out, at most, when it has just pushed one (2 of two ranks, 4 of more). Block b talks to block b of
 * its peers alone, and all grids are equal.
 *   Two ranks: before X pushes chunk c it has reduced c - 2, so Y has pushed c - 2, before which Y had reduced c - 4.
 *   More: before X pushes the parts of c it has got all sums of c - 4, so every owner has read all parts of c - 4.
 *   Before X pushes its sums of c it has reduced c, so every Y has pushed c, before which Y had got all sums of c - 4.
 * So four slots do, three do not, and each step is a flag seen by an acquiring load. Chunks are counted over calls, so
 * the argument holds from call to call; a rank whose part is shorter sends empty pieces.
 *
 * In place: a vector of in is read for the last time by the thread that writes it in out, or before a barrier of its
 * block: pieces are pushed before the same chunk's sums are stored.
 */
#ifndef TPC_CUSTOM_AR_RING_CUH
#define TPC_CUSTOM_AR_RING_CUH

#include "reduce.cuh"

#define TPC_AR_RING_LOADS 4 /* vectors that a thread loads together */

/** Which slots and flags of a block. */
enum ring_kind_t { RING_PARTS, RING_SUMS };

/* Barriers of a block that its header warp does not meet at. Each is one place of the code for all who meet there: PTX
 * does not ask for it, synccheck does. */
enum { RING_BARRIER_ALL = 1, RING_BARRIER_MOVERS = 2 };

/** What a thread of the movers or of the signaller's warp has at hand. */
struct ring_t {
    uint32_t position; /**< of this launch's first chunk, counted over all calls */
    uint32_t epoch;
    unsigned movers; /**< threads that move data; the signaller's warp comes after them */
    bool scatters;   /**< each rank reduces its part alone */
    waiter_t w;
};

/* ------------------------------------------------------------------ where things lie */

TPC_DEVICE uint32_t *ring_flag(const tpc_ar_params_t &p, unsigned char *workspace, int kind, int source) {
    return (uint32_t *)(workspace + p.ring_offset + blockIdx.x * TPC_AR_RING_LINE) + kind * TPC_AR_MAX_RANKS + source;
}

/** The own entry among the flags counts the block's own chunks. */
TPC_DEVICE uint32_t *ring_position(const tpc_ar_params_t &p) {
    return ring_flag(p, own_workspace(p), RING_PARTS, p.rank);
}

/** The slot of a chunk that an owner has for a source, by slot_index; in anybody's workspace. */
TPC_DEVICE uint32_t ring_slot(const tpc_ar_params_t &p, const ring_t &ring, int kind, uint32_t index, uint32_t chunk) {
    uint32_t place = (ring.position + chunk) % TPC_AR_RING_DEPTH;
    if (TPC_FAULT(ring_too_short)) place = (ring.position + 1 + chunk) % (TPC_AR_RING_DEPTH - 1);
    uint32_t slot = ((uint32_t)kind * (uint32_t)(p.size - 1) + index) * p.ring_blocks + blockIdx.x;
    slot = slot * TPC_AR_RING_DEPTH + place;
    return p.ring_offset + p.ring_blocks * TPC_AR_RING_LINE + slot * p.ring_piece;
}

/** From one source's slot to the next one's. */
TPC_DEVICE uint32_t ring_step(const tpc_ar_params_t &p) {
    return p.ring_blocks * TPC_AR_RING_DEPTH * p.ring_piece;
}

/** Where a chunk's pieces begin in their parts. */
TPC_DEVICE uint64_t ring_from(const tpc_ar_params_t &p, uint32_t chunk) {
    return ((uint64_t)chunk * gridDim.x + blockIdx.x) * p.ring_piece;
}

/** Bytes of rank's part, which begins at rank * in_stride: of everything, where nobody owns a part. */
TPC_DEVICE uint64_t ring_part(const tpc_ar_params_t &p, const ring_t &ring, int rank) {
    if (!ring.scatters) return p.parts_bytes;
    uint64_t from = (uint64_t)rank * p.in_stride;
    if (from >= p.parts_bytes) return 0;
    return p.parts_bytes - from < p.in_stride ? p.parts_bytes - from : p.in_stride;
}

TPC_DEVICE uint64_t ring_part_at(const tpc_ar_params_t &p, const ring_t &ring, int rank) {
    return ring.scatters ? (uint64_t)rank * p.in_stride : 0;
}

/** Bytes of a chunk's piece of rank's part. */
TPC_DEVICE uint32_t ring_bytes(const tpc_ar_params_t &p, const ring_t &ring, int rank, uint32_t chunk) {
    uint64_t from = ring_from(p, chunk), part = ring_part(p, ring, rank);
    if (from >= part) return 0;
    return part - from < p.ring_piece ? (uint32_t)(part - from) : p.ring_piece;
}

/* ------------------------------------------------------------------ flags */

/** Whether so many chunks are there. Counts wrap. */
TPC_DEVICE bool ring_reached(uint32_t flag, uint32_t wanted) {
    return TPC_FAULT(ring_count_ends) ? flag >= wanted : (int32_t)(flag - wanted) >= 0;
}

/** Wait until a chunk's pieces are there from all peers. The movers call it together. */
TPC_DEVICE void ring_await(const tpc_ar_params_t &p, ring_t &ring, int kind, uint32_t chunk) {
    if (threadIdx.x < (unsigned)p.size - 1 && !ring.w.dead) {
        int source = source_of(p.rank, (int)threadIdx.x);
        const uint32_t *flag = ring_flag(p, own_workspace(p), kind, source);
        uint32_t wanted = ring.position + chunk + 1;
        bool there = false;
        ring.w.start = 0;
        do {
#pragma unroll 1
            for (int spin = 0; spin < TPC_LOOK_EVERY && !there; spin++)
                there = ring_reached(setting_load(flag), wanted);
        } while (!there && keep_waiting(p, ring.w, source, ring.epoch));
        if (there && !TPC_FAULT(ring_not_acquired)) (void)flag_acquire(flag);
    }
    if (!TPC_FAULT(ring_wait_alone)) ring.w.dead = team_any(RING_BARRIER_MOVERS, ring.movers, ring.w.dead);
}

/** The signaller's lanes tell a peer each that a chunk's pieces are there. */
TPC_DEVICE void ring_signal(const tpc_ar_params_t &p, const ring_t &ring, int kind, uint32_t chunk) {
    int k = (int)(threadIdx.x - ring.movers) + 1;
    if (k >= p.size || ring.w.dead) return;
    if (!TPC_FAULT(ring_not_released)) flag_release();
    flag_store(ring_flag(p, p.workspace[k], kind, p.rank), ring.position + chunk + 1);
}

/** A chunk's pieces are on their way: movers and signaller meet, in one place of the code, and the latter tells. */
TPC_DEVICE void ring_pushed(const tpc_ar_params_t &p, ring_t &ring, bool moves, int kind, uint32_t chunk) {
    if (TPC_FAULT(ring_signals_early) && !moves) ring_signal(p, ring, kind, chunk);
    ring.w.dead = team_any(RING_BARRIER_ALL, ring.movers + TPC_AR_RING_SIGNALLERS, ring.w.dead);
    if (!TPC_FAULT(ring_signals_early) && !moves) ring_signal(p, ring, kind, chunk);
}

/* ------------------------------------------------------------------ turns */

/* Turns by which a chunk is reduced behind its pushing, and by which its sums are gathered. */
#define TPC_AR_RING_REDUCED(scatters) ((scatters) ? 2u : 1u)
#define TPC_AR_RING_GATHERED          3u

/**
 * Movers, and the signaller's warp beside them. work has push(chunk), reduce(chunk), gather(chunk); when the wait was
 * given up, sums are NaN.
 */
template <typename Work> TPC_DEVICE void ring_turns(const tpc_ar_params_t &p, ring_t &ring, Work &work, bool moves) {
    uint32_t behind = ring.scatters ? TPC_AR_RING_GATHERED : TPC_AR_RING_REDUCED(false);
#pragma unroll 1
    for (uint32_t turn = 0; p.ring_chunks > 0 && turn < p.ring_chunks + behind; turn++) {
        if (turn < p.ring_chunks) {
            if (moves && !ring.w.dead) work.push(turn);
            ring_pushed(p, ring, moves, RING_PARTS, turn);
        }
        uint32_t chunk = turn - TPC_AR_RING_REDUCED(ring.scatters); /* huge where there is none yet */
        if (chunk < p.ring_chunks) {
            if (moves) {
                ring_await(p, ring, RING_PARTS, chunk);
                work.reduce(chunk);
            }
            if (ring.scatters) ring_pushed(p, ring, moves, RING_SUMS, chunk);
        }
        chunk = turn - TPC_AR_RING_GATHERED;
        if (moves && ring.scatters && chunk < p.ring_chunks) {
            ring_await(p, ring, RING_SUMS, chunk);
            work.gather(chunk);
        }
    }
    if (threadIdx.x == ring.movers) *ring_position(p) = ring.position + p.ring_chunks;
}

/** A block's way through a call. Work is made of p and of the ring. */
template <template <typename, int> class Work, typename T, int N> TPC_DEVICE void ring_call(const tpc_ar_params_t &p) {
    begun_t begun = begin_call(p);
    unsigned members = (unsigned)p.work_threads;
    announced_t said;
    ring_t ring;
    ring.position = *ring_position(p);
    ring.epoch = begun.epoch;
    ring.movers = members - TPC_AR_RING_SIGNALLERS;
    ring.scatters = N == 0 ? p.size > 2 : N > 2;
    if (threadIdx.x >= members) said = announce(p, begun, threadIdx.x - members);
    ring.w = all_have_begun(begun);
    if (threadIdx.x >= members) {
        accompany(p, begun, threadIdx.x - members, said, ring.w);
    } else {
        Work<T, N> work = {p, ring};
        ring_turns(p, ring, work, threadIdx.x < ring.movers);
    }
    end_call(p);
}

/* ------------------------------------------------------------------ fast: sums of aligned messages */

/** Whether this thread has the tail, and in this chunk: then where in its piece. One of the movers does all of it. */
TPC_DEVICE bool ring_tail(const tpc_ar_params_t &p, const ring_t &ring, uint32_t chunk, uint32_t *at_p) {
    if (p.tail_bytes == 0 || threadIdx.x != ring.movers - 1) return false;
    uint64_t at = p.parts_bytes - ring_part_at(p, ring, p.tail_owner) - ring_from(p, chunk); /* or huge */
    *at_p = (uint32_t)at;
    return at < p.ring_piece;
}

template <typename T> TPC_DEVICE vec_t ring_own_tail(const tpc_ar_params_t &p) {
    return load_tail<T>((const unsigned char *)p.in + p.parts_bytes, p.tail_bytes);
}

/** A tail that is somewhere else's to reduce goes there. */
template <typename T> TPC_DEVICE void ring_push_tail(const tpc_ar_params_t &p, const ring_t &ring, uint32_t chunk) {
    uint32_t at;
    if (!ring_tail(p, ring, chunk, &at)) return;
    int owner = ring.scatters ? p.tail_owner : 1 - p.rank, k = owner - p.rank + (owner < p.rank ? p.size : 0);
    if (k == 0 || TPC_FAULT(ring_tail_dropped)) return;
    packet_store(p.workspace[k] + ring_slot(p, ring, RING_PARTS, slot_index_after(p, k), chunk) + at,
                 pack_words(ring_own_tail<T>(p)));
}

/** Source by source: it is one vector of a large message. */
template <typename T> TPC_DEVICE void ring_reduce_tail(const tpc_ar_params_t &p, const ring_t &ring, uint32_t chunk) {
    uint32_t at;
    if (!ring_tail(p, ring, chunk, &at) || (ring.scatters && p.tail_owner != p.rank)) return;
    float sum[element_t<T>::PER_VEC];
    vec_t v = ring_own_tail<T>(p);
#pragma unroll 1
    for (int r = 0; r < p.size; r++) {
        vec_t x = v;
        if (r != p.rank)
            x = unpack_sentinel(
                packet_load(own_workspace(p) + ring_slot(p, ring, RING_PARTS, slot_index(r, p.rank), chunk) + at));
        add_vec<T>(sum, x, r == 0);
    }
    v = ring.w.dead ? nan_vec(element_t<T>::NAN_WORD) : round_sum<T>(sum);
#pragma unroll 1
    for (int k = 1; k < p.size && ring.scatters && !ring.w.dead; k++)
        packet_store(p.workspace[k] + ring_slot(p, ring, RING_SUMS, slot_index_after(p, k), chunk) + at, pack_words(v));
    store_tail<T>((unsigned char *)p.out + p.parts_bytes, p.tail_bytes, v);
}

template <typename T> TPC_DEVICE void ring_gather_tail(const tpc_ar_params_t &p, const ring_t &ring, uint32_t chunk) {
    uint32_t at;
    if (!ring_tail(p, ring, chunk, &at) || p.tail_owner == p.rank) return;
    vec_t v = nan_vec(element_t<T>::NAN_WORD);
    if (!ring.w.dead)
        v = unpack_sentinel(packet_load(own_workspace(p) +
                                        ring_slot(p, ring, RING_SUMS, slot_index(p.tail_owner, p.rank), chunk) + at));
    store_tail<T>((unsigned char *)p.out + p.parts_bytes, p.tail_bytes, v);
}

/** Of two ranks. */
template <typename T, int N> struct ring_fast_t {
    const tpc_ar_params_t &p;
    const ring_t &ring;
    static_assert(N == 2, "the form of more ranks is below");

    TPC_DEVICE void push(uint32_t chunk) {
        const unsigned char *in = (const unsigned char *)p.in + ring_from(p, chunk);
        unsigned char *to = p.workspace[1] + ring_slot(p, ring, RING_PARTS, slot_index_after(p, 1), chunk);
        uint32_t bytes = ring_bytes(p, ring, 0, chunk), step = 16 * ring.movers;
#pragma unroll 1
        for (uint32_t at = 16 * threadIdx.x; at < bytes; at += TPC_AR_RING_LOADS * step) {
            vec_t v[TPC_AR_RING_LOADS];
#pragma unroll
            for (int i = 0; i < TPC_AR_RING_LOADS; i++)
                if (at + i * step < bytes) v[i] = load_whole(in + (at + i * step));
#pragma unroll
            for (int i = 0; i < TPC_AR_RING_LOADS; i++)
                if (at + i * step < bytes) packet_store(to + (at + i * step), pack_words(v[i]));
        }
        ring_push_tail<T>(p, ring, chunk);
    }

    TPC_DEVICE void reduce(uint32_t chunk) {
        uint64_t from = ring_from(p, chunk);
        const unsigned char *in = (const unsigned char *)p.in + from,
                            *peer = own_workspace(p) + ring_slot(p, ring, RING_PARTS, 0, chunk);
        unsigned char *out = (unsigned char *)p.out + from;
        uint32_t bytes = ring_bytes(p, ring, 0, chunk), step = 16 * ring.movers;
#pragma unroll 1
        for (uint32_t at = 16 * threadIdx.x; at < bytes; at += TPC_AR_RING_LOADS * step) {
            vec_t own[TPC_AR_RING_LOADS];
            packet_t got[TPC_AR_RING_LOADS];
#pragma unroll
            for (int i = 0; i < TPC_AR_RING_LOADS; i++)
                if (at + i * step < bytes) {
                    own[i] = load_whole(in + (at + i * step));
                    got[i] = packet_load(peer + (at + i * step));
                }
#pragma unroll
            for (int i = 0; i < TPC_AR_RING_LOADS; i++)
                if (at + i * step < bytes)
                    store_whole(out + (at + i * step),
                                ring.w.dead ? nan_vec(element_t<T>::NAN_WORD) : sum_packets<T, 2>(p, &got[i], own[i]));
        }
        ring_reduce_tail<T>(p, ring, chunk);
    }

    TPC_DEVICE void gather(uint32_t) {}
};

/** Of more ranks, N at most. Vector `at` of a chunk's pieces lies at from + at of all parts; of the last ranks' it may
 * lie behind the message's end. */
template <typename T, int N> struct ring_parts_t {
    const tpc_ar_params_t &p;
    const ring_t &ring;

    /** Bytes of the longest part's piece. */
    TPC_DEVICE uint32_t longest(uint64_t from) {
        if (from >= p.in_stride) return 0;
        return p.in_stride - from < p.ring_piece ? (uint32_t)(p.in_stride - from) : p.ring_piece;
    }

    TPC_DEVICE void push(uint32_t chunk) {
        const unsigned char *in = (const unsigned char *)p.in;
        uint64_t from = ring_from(p, chunk);
        uint32_t bytes = longest(from), slots = ring_slot(p, ring, RING_PARTS, 0, chunk), step = ring_step(p);
#pragma unroll 1
        for (uint32_t at = 16 * threadIdx.x; at < bytes; at += 16 * ring.movers) {
#pragma unroll
            for (int first = 1; first < N; first += TPC_AR_RING_LOADS) {
                vec_t v[TPC_AR_RING_LOADS];
                unsigned there = 0;
#pragma unroll
                for (int i = 0; i < TPC_AR_RING_LOADS; i++) {
                    if (first + i >= N || first + i >= p.size) continue;
                    uint64_t place = (uint64_t)rank_after(p.rank, first + i, p.size) * p.in_stride + from + at;
                    if (place >= p.parts_bytes) continue;
                    v[i] = load_whole(in + place);
                    there |= 1u << i;
                }
#pragma unroll
                for (int i = 0; i < TPC_AR_RING_LOADS; i++)
                    if (first + i < N && (there >> i & 1))
                        packet_store(p.workspace[first + i] + (slots + slot_index_after(p, first + i) * step + at),
                                     pack_words(v[i]));
            }
        }
        ring_push_tail<T>(p, ring, chunk);
    }

    TPC_DEVICE void reduce(uint32_t chunk) {
        uint64_t from = ring_part_at(p, ring, p.rank) + ring_from(p, chunk);
        uint32_t bytes = ring_bytes(p, ring, p.rank, chunk), step = ring_step(p),
                 parts = ring_slot(p, ring, RING_PARTS, 0, chunk), sums = ring_slot(p, ring, RING_SUMS, 0, chunk);
#pragma unroll 1
        for (uint32_t at = 16 * threadIdx.x; at < bytes; at += 16 * ring.movers) {
            packet_t got[N - 1];
            vec_t sum = load_whole((const unsigned char *)p.in + from + at);
#pragma unroll
            for (int i = 0; i < N - 1; i++)
                if (i < p.size - 1) got[i] = packet_load(own_workspace(p) + (parts + (uint32_t)i * step + at));
            sum = ring.w.dead ? nan_vec(element_t<T>::NAN_WORD) : sum_packets<T, N>(p, got, sum);
#pragma unroll
            for (int k = 1; k < N; k++)
                if (k < p.size && !ring.w.dead)
                    packet_store(p.workspace[k] + (sums + slot_index_after(p, k) * step + at), pack_words(sum));
            store_whole((unsigned char *)p.out + from + at, sum);
        }
        ring_reduce_tail<T>(p, ring, chunk);
    }

    TPC_DEVICE void gather(uint32_t chunk) {
        uint64_t from = ring_from(p, chunk);
        uint32_t bytes = longest(from), slots = ring_slot(p, ring, RING_SUMS, 0, chunk), step = ring_step(p);
#pragma unroll 1
        for (uint32_t at = 16 * threadIdx.x; at < bytes; at += 16 * ring.movers) {
            packet_t got[N - 1];
#pragma unroll
            for (int i = 0; i < N - 1; i++)
                if (i < p.size - 1) got[i] = packet_load(own_workspace(p) + (slots + (uint32_t)i * step + at));
#pragma unroll
            for (int i = 0; i < N - 1; i++) {
                uint64_t place = (uint64_t)source_of(p.rank, i) * p.in_stride + from + at;
                if (i < p.size - 1 && place < p.parts_bytes)
                    store_whole((unsigned char *)p.out + place,
                                ring.w.dead ? nan_vec(element_t<T>::NAN_WORD) : unpack_sentinel(got[i]));
            }
        }
        ring_gather_tail<T>(p, ring, chunk);
    }
};

template <typename T, int N>
__global__ void __launch_bounds__(TPC_AR_RING_BLOCK_THREADS, 1) ring_fast(const __grid_constant__ tpc_ar_params_t p) {
    if constexpr (N == 2)
        ring_call<ring_fast_t, T, N>(p);
    else
        ring_call<ring_parts_t, T, N>(p);
}

/* ------------------------------------------------------------------ general */

/** Any op, alignment, length and number of ranks. */
template <typename T, int N> struct ring_general_t {
    const tpc_ar_params_t &p;
    const ring_t &ring;

    TPC_DEVICE void push(uint32_t chunk) {
#pragma unroll 1
        for (int k = 1; k < p.size; k++) {
            int owner = rank_after(p.rank, k, p.size);
            uint32_t bytes = ring_bytes(p, ring, owner, chunk);
            const unsigned char *in = (const unsigned char *)p.in + ring_part_at(p, ring, owner);
            unsigned char *to = p.workspace[k] + ring_slot(p, ring, RING_PARTS, slot_index_after(p, k), chunk);
#pragma unroll 1
            for (uint32_t at = 16 * threadIdx.x; at < bytes; at += 16 * ring.movers)
                packet_store(to + at, pack_words(load_vec(in, ring_from(p, chunk) + at, ring_part(p, ring, owner))));
        }
    }

    TPC_DEVICE vec_t sum_of(uint32_t chunk, uint32_t at, const vec_t &own) {
        float sum[element_t<T>::PER_VEC];
#pragma unroll 1
        for (int r = 0; r < p.size; r++) {
            vec_t v = own;
            if (r != p.rank)
                v = unpack_sentinel(
                    packet_load(own_workspace(p) + ring_slot(p, ring, RING_PARTS, slot_index(r, p.rank), chunk) + at));
            combine_vec<T>(sum, v, r == 0, p.op);
        }
        return finish_vec<T>(sum, p.op, p.size);
    }

    TPC_DEVICE void reduce(uint32_t chunk) {
        uint64_t from = ring_from(p, chunk), part = ring_part(p, ring, p.rank);
        const unsigned char *in = (const unsigned char *)p.in + ring_part_at(p, ring, p.rank);
        unsigned char *out = (unsigned char *)p.out + ring_part_at(p, ring, p.rank);
        uint32_t bytes = ring_bytes(p, ring, p.rank, chunk);
#pragma unroll 1
        for (uint32_t at = 16 * threadIdx.x; at < bytes; at += 16 * ring.movers) {
            vec_t sum = nan_vec(element_t<T>::NAN_WORD);
            if (!ring.w.dead) sum = sum_of(chunk, at, load_vec(in, from + at, part));
            store_vec(out, from + at, part, sum);
#pragma unroll 1
            for (int k = 1; k < p.size && ring.scatters && !ring.w.dead; k++)
                packet_store(p.workspace[k] + ring_slot(p, ring, RING_SUMS, slot_index_after(p, k), chunk) + at,
                             pack_words(sum));
        }
    }

    TPC_DEVICE void gather(uint32_t chunk) {
#pragma unroll 1
        for (int r = 0; r < p.size; r++) {
            uint32_t bytes = r != p.rank ? ring_bytes(p, ring, r, chunk) : 0;
            unsigned char *out = (unsigned char *)p.out + ring_part_at(p, ring, r);
#pragma unroll 1
            for (uint32_t at = 16 * threadIdx.x; at < bytes; at += 16 * ring.movers) {
                vec_t v = nan_vec(element_t<T>::NAN_WORD);
                if (!ring.w.dead)
                    v = unpack_sentinel(packet_load(own_workspace(p) +
                                                    ring_slot(p, ring, RING_SUMS, slot_index(r, p.rank), chunk) + at));
                store_vec(out, ring_from(p, chunk) + at, ring_part(p, ring, r), v);
            }
        }
    }
};

template <typename T>
__global__ void __launch_bounds__(TPC_AR_RING_BLOCK_THREADS, 1)
    ring_general(const __grid_constant__ tpc_ar_params_t p) {
    ring_call<ring_general_t, T, 0>(p);
}

#endif
