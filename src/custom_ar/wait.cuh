/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The frame of every kernel: its epoch, the exchange of call headers, and waits that end.
 *
 * Complete calls. Every rank sends each peer one call header and waits for one from each, whatever the collective. So no rank
 * finishes a call before every rank has begun it, and when a rank begins call k+1, every rank has finished call k-1: slots used by
 * calls two apart are free, and one bit of the epoch (its parity) chooses them. (docs/architecture.md; checked by exhaustive search for 2 and
 * 3 ranks in the project's design notes, and by tests/kernels_on_host.)
 */
#ifndef TPC_CUSTOM_AR_WAIT_CUH
#define TPC_CUSTOM_AR_WAIT_CUH

#include "ar_abi.h"
#include "signal.cuh"
#include "tpcomm.h"

#ifndef TPC_FAULT
#define TPC_FAULT(name) false /* a planted fault of tests/kernels_on_host */
#endif

/** The epoch after e. 0xFFFFFFFF is EMPTY; leaving out 0xFFFFFFFE too keeps the parity alternating over the wrap. */
TPC_DEVICE uint32_t next_epoch(uint32_t e) {
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

/** Break the group on all ranks, unless it is broken already. Out of line: it runs once in a communicator's life. */
static __device__ __noinline__ void report_failure(const tpc_ar_params_t &p, int status, int peer, uint32_t epoch,
                                                   packet_t mine, packet_t theirs) {
    uint64_t word = (uint64_t)(uint32_t)-status | (uint64_t)(uint32_t)(p.rank + 1) << 32;
    if (word_load(&header_of(p, p.rank)->fail) != 0) return;
    if (p.report != nullptr) {
        p.report->peer = peer;
        p.report->epoch = epoch;
        p.report->mine[0] = mine.low, p.report->mine[1] = mine.high;
        p.report->theirs[0] = theirs.low, p.report->theirs[1] = theirs.high;
        word_publish(&p.report->word, word);
    }
    for (int r = 0; r < p.size; r++) word_store(&header_of(p, r)->fail, word);
}

/**
 * A look around during a long wait. start: when the wait's first look was, 0 for the first.
 * Returns the start, or 0 if the wait must end: somebody failed or aborted, or the deadline is over.
 */
static __device__ __noinline__ uint64_t look_around(const tpc_ar_params_t &p, uint64_t start, int peer, uint32_t epoch) {
    tpc_ar_header_t *own = header_of(p, p.rank);
    if (word_load(&own->fail) != 0) return 0;
    if (p.host_fail != nullptr) {
        uint64_t failed = word_load(p.host_fail);
        if (failed != 0) {
            word_store(&own->fail, failed); /* the kernels after this one leave at once */
            return 0;
        }
    }
    uint64_t now = timer_ns() | 1u;
    if (start == 0) return now;
    if (now - start >= (uint64_t)setting_load(&own->timeout_ms) * 1000000u) {
        packet_t none = {0, 0};
        report_failure(p, TPCOMM_ERR_TIMEOUT, peer, epoch, none, none);
        return 0;
    }
    wait_pause();
    return start;
}

/** One wait loop's state. */
struct waiter_t {
    uint64_t start;
    uint32_t spins;
    bool dead; /**< this thread waits for nothing any more; it goes on to every barrier all the same */
};

#define TPC_LOOK_EVERY 64u

/** After a fruitless look at a packet: whether to look again. */
TPC_DEVICE bool keep_waiting(const tpc_ar_params_t &p, waiter_t &w, int peer, uint32_t epoch) {
    if ((++w.spins % TPC_LOOK_EVERY) != 0) return true;
    w.start = look_around(p, w.start, peer, epoch);
    w.dead = w.start == 0;
    return !w.dead;
}

/** The warp after the working threads: tell every peer what this call is, and compare with what each says. */
TPC_DEVICE void exchange_call_headers(const tpc_ar_params_t &p, int lane, uint32_t epoch, waiter_t &w) {
    if (blockIdx.x != 0 || lane >= p.size || lane == p.rank) return;
    packet_t mine = {(uint64_t)p.what << 32 | epoch, (uint64_t)p.hash << 32 | epoch};
    if (!TPC_FAULT(no_header)) packet_store(call_header_of(p, lane, p.rank, epoch), mine);
    if (TPC_FAULT(header_not_awaited)) return;
    packet_t theirs;
    do {
        theirs = packet_load(call_header_of(p, p.rank, lane, epoch));
        if ((uint32_t)theirs.low == epoch && (uint32_t)theirs.high == epoch) {
            if (theirs.low != mine.low || theirs.high != mine.high)
                report_failure(p, TPCOMM_ERR_MISMATCH, lane, epoch, mine, theirs);
            return;
        }
    } while (keep_waiting(p, w, lane, epoch));
}

/** Begin: this block's epoch; dead if the group is broken already. */
TPC_DEVICE uint32_t begin_call(const tpc_ar_params_t &p, waiter_t &w) {
    w.start = 0;
    w.spins = 0;
    w.dead = word_load(&header_of(p, p.rank)->fail) != 0;
    return epochs_of(p)[blockIdx.x];
}

/** End: all words of the epoch array advance, also those of blocks that this launch does not have. */
TPC_DEVICE void end_call(const tpc_ar_params_t &p, uint32_t epoch) {
    __syncthreads();
    if (threadIdx.x != 0) return;
    unsigned end = TPC_FAULT(epoch_of_grid_only) ? gridDim.x : TPC_AR_MAX_BLOCKS;
    for (unsigned b = blockIdx.x; b < end; b += gridDim.x) epochs_of(p)[b] = next_epoch(epoch);
}

#endif
