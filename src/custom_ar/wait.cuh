/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The frame of every kernel: its epoch, the exchange of call headers, and waits that end.
 *
 * Complete calls. Every rank sends each peer one call header and waits for one from each, whatever the collective. So
 * no rank finishes a call before every rank has begun it, and when a rank begins call k+1, every rank has finished call
 * k-1: slots used by calls two apart are free, and one bit of the epoch (its parity) chooses them.
 * (docs/architecture.md; checked by exhaustive search for 2 and 3 ranks in the project's design notes, and by
 * tests/kernels_on_host.)
 */
#ifndef TPC_CUSTOM_AR_WAIT_CUH
#define TPC_CUSTOM_AR_WAIT_CUH

#include "ar_abi.h"
#include "signal.cuh"
#include "tpcomm.h"

/** The epoch after e. 0xFFFFFFFF is EMPTY; leaving out 0xFFFFFFFE too keeps the parity alternating over the wrap. */
TPC_DEVICE uint32_t next_epoch(uint32_t e) {
    if (TPC_FAULT(epoch_repeats_parity)) return e >= 0xFFFFFFFEu ? 0 : e + 1;
    if (TPC_FAULT(epoch_may_be_empty)) return e + 1;
    return e >= 0xFFFFFFFDu ? 0 : e + 1;
}

TPC_DEVICE tpc_ar_header_t *header_of(const tpc_ar_params_t &p, int rank) {
    return (tpc_ar_header_t *)p.workspace[rank];
}

TPC_DEVICE uint32_t *epochs_of(const tpc_ar_params_t &p) {
    return (uint32_t *)(p.workspace[p.rank] + TPC_AR_EPOCH_OFFSET);
}

/** Half of the workspace that this epoch uses. */
TPC_DEVICE unsigned parity_of(uint32_t epoch) {
    return TPC_FAULT(one_parity) ? 0 : epoch & 1u;
}

/** Where source's packets arrive in owner's workspace. */
TPC_DEVICE unsigned char *slot_of(const tpc_ar_params_t &p, int owner, int source, uint32_t epoch) {
    int index = source - owner - 1;
    if (index < 0) index += p.size;
    return p.workspace[owner] + TPC_AR_SLOT_OFFSET +
           ((uint64_t)parity_of(epoch) * (uint64_t)(p.size - 1) + (uint64_t)index) * p.slot_bytes;
}

TPC_DEVICE unsigned char *call_header_of(const tpc_ar_params_t &p, int owner, int source, uint32_t epoch) {
    return p.workspace[owner] + TPC_AR_CALL_OFFSET + ((epoch & 1u) * TPC_AR_MAX_RANKS + (unsigned)source) * 16u;
}

/** Break the group on all ranks, unless this rank's is broken already. Out of line: it runs once in a group's life. */
static __device__ __noinline__ void report_failure(const tpc_ar_params_t &p, int status, int peer, uint32_t epoch,
                                                   packet_t mine, packet_t theirs) {
    uint64_t word = (uint64_t)(uint32_t)-status | (uint64_t)(uint32_t)(p.rank + 1) << 32;
    if (!word_claim(&header_of(p, p.rank)->fail, word) && !TPC_FAULT(report_not_claimed)) return;
    if (p.report != nullptr) {
        p.report->peer = peer;
        p.report->epoch = epoch;
        p.report->mine[0] = mine.low, p.report->mine[1] = mine.high;
        p.report->theirs[0] = theirs.low, p.report->theirs[1] = theirs.high;
        word_publish(&p.report->word, word);
    }
    if (TPC_FAULT(peers_not_told)) return;
    for (int r = 0; r < p.size; r++)
        if (r != p.rank) word_store(&header_of(p, r)->fail, word);
}

/** What a thread knows of its waits. */
struct waiter_t {
    uint64_t start; /**< of the present wait: when it first looked around; 0: not yet */
    bool dead;      /**< this thread waits for nothing any more; it goes on to every barrier all the same */
};

/** A wait ends: somebody failed or aborted, or the deadline is over. */
TPC_DEVICE bool give_up(waiter_t &w) {
    w.dead = true;
    return false;
}

/** Look around in a wait for peer: whether to wait on. A packet that is in a register over this call costs a spill. */
TPC_DEVICE bool keep_waiting(const tpc_ar_params_t &p, waiter_t &w, int peer, uint32_t epoch) {
    tpc_ar_header_t *own = header_of(p, p.rank);
    if (word_load(&own->fail) != 0) return give_up(w);
    if (p.host_fail != nullptr) {
        uint64_t failed = word_load(p.host_fail);
        if (failed != 0) {
            word_store(&own->fail, failed); /* the kernels after this one leave at once */
            return give_up(w);
        }
    }
    uint64_t now = timer_ns() | 1u;
    if (w.start == 0) w.start = now;
    if (now - w.start >= (uint64_t)setting_load(&own->timeout_ms) * 1000000u) {
        packet_t none = {0, 0};
        report_failure(p, TPCOMM_ERR_TIMEOUT, peer, epoch, none, none);
        return give_up(w);
    }
    wait_pause();
    return true;
}

/** Wait for one packet. Undefined if the wait was given up. */
template <typename Arrived>
TPC_DEVICE packet_t await_packet(const tpc_ar_params_t &p, const unsigned char *slot, int peer, uint32_t epoch,
                                 waiter_t &w, Arrived arrived) {
    packet_t packet;
    w.start = 0;
    do {
#pragma unroll 1
        for (int spin = 0; spin < TPC_LOOK_EVERY; spin++) {
            packet = packet_load(slot);
            if (arrived(packet)) return packet;
        }
    } while (keep_waiting(p, w, peer, epoch));
    return packet;
}

/** The warp after the working threads: tell every peer what this call is, and compare with what each says. */
TPC_DEVICE void exchange_call_headers(const tpc_ar_params_t &p, int lane, uint32_t epoch, waiter_t &w) {
    if (blockIdx.x != 0 || lane >= p.size || lane == p.rank) return;
    packet_t mine = {(uint64_t)p.what << 32 | epoch, (uint64_t)p.hash << 32 | epoch};
    if (!TPC_FAULT(no_header)) packet_store(call_header_of(p, lane, p.rank, epoch), mine);
    if (TPC_FAULT(header_not_awaited)) return;
    packet_t theirs = await_packet(p, call_header_of(p, p.rank, lane, epoch), lane, epoch, w, [=](packet_t packet) {
        return (uint32_t)packet.low == epoch && (uint32_t)packet.high == epoch;
    });
    if (!w.dead && (theirs.low != mine.low || theirs.high != mine.high))
        report_failure(p, TPCOMM_ERR_MISMATCH, lane, epoch, mine, theirs);
}

/** Begin: this block's epoch; dead if the group is broken already. */
TPC_DEVICE uint32_t begin_call(const tpc_ar_params_t &p, waiter_t &w) {
    w.start = 0;
    w.dead = word_load(&header_of(p, p.rank)->fail) != 0;
    return epochs_of(p)[blockIdx.x];
}

/** End: all words of the epoch array advance, also those of blocks that this launch does not have. */
TPC_DEVICE void end_call(const tpc_ar_params_t &p, uint32_t epoch) {
    if (!TPC_FAULT(end_without_barrier)) __syncthreads(); /* every thread of the block has read its word */
    unsigned end = TPC_FAULT(epoch_of_grid_only) ? gridDim.x : TPC_AR_MAX_BLOCKS;
    for (unsigned b = blockIdx.x + threadIdx.x * gridDim.x; b < end; b += blockDim.x * gridDim.x)
        epochs_of(p)[b] = next_epoch(epoch);
}

#endif
