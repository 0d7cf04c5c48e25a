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

/* Bounds on a block's threads by which the compiler takes 64 or 72 registers at most, so that blocks of 544 threads
 * (512 that work, and the warp for call headers) leave some of an SM to others. Eight ranks' packets, and two-shot,
 * would spill one to nine words with 64. */
#define TPC_AR_64_REGISTERS 1024
#define TPC_AR_72_REGISTERS 896

/** The epoch after e. 0xFFFFFFFF is EMPTY; leaving out 0xFFFFFFFE too keeps the parity alternating over the wrap. */
TPC_DEVICE uint32_t next_epoch(uint32_t e) {
    if (TPC_FAULT(epoch_repeats_parity)) return e >= 0xFFFFFFFEu ? 0 : e + 1;
    if (TPC_FAULT(epoch_may_be_empty)) return e + 1;
    return e >= 0xFFFFFFFDu ? 0 : e + 1;
}

/** This rank's own workspace. */
TPC_DEVICE unsigned char *own_workspace(const tpc_ar_params_t &p) {
    return p.workspace[0];
}

/** The rank k places after a rank, of size. This one's: its workspace is p.workspace[k]. */
TPC_DEVICE int rank_after(int rank, int k, int size) {
    return rank + k >= size ? rank + k - size : rank + k;
}

TPC_DEVICE tpc_ar_header_t *header_of(unsigned char *workspace) {
    return (tpc_ar_header_t *)workspace;
}

TPC_DEVICE uint32_t *epochs_of(const tpc_ar_params_t &p) {
    return (uint32_t *)(own_workspace(p) + TPC_AR_EPOCH_OFFSET);
}

/** Half of the workspace that this epoch uses. */
TPC_DEVICE unsigned parity_of(uint32_t epoch) {
    return TPC_FAULT(one_parity) ? 0 : epoch & 1u;
}

/** Which of an owner's slots is a source's. */
TPC_DEVICE uint32_t slot_index(int source, int owner) {
    return (uint32_t)(source - (source > owner));
}

/** The same for this rank's slot in the workspace of the rank k places after it. */
TPC_DEVICE uint32_t slot_index_after(const tpc_ar_params_t &p, int k) {
    return (uint32_t)(p.rank - (p.rank + k >= p.size));
}

TPC_DEVICE unsigned char *call_header_of(unsigned char *workspace, int source, uint32_t epoch) {
    return workspace + TPC_AR_CALL_OFFSET + ((epoch & 1u) * TPC_AR_MAX_RANKS + (unsigned)source) * 16u;
}

/** What this rank says of a call. */
TPC_DEVICE packet_t call_header(const tpc_ar_params_t &p, uint32_t epoch) {
    packet_t packet = {(uint64_t)p.what << 32 | epoch, (uint64_t)p.hash << 32 | epoch};
    return packet;
}

/**
 * Break the group on all ranks, unless this rank's is broken already. Out of line, with few parameters: it runs once in
 * a group's life, and would take registers from every wait.
 */
static __device__ __noinline__ void report_failure(const tpc_ar_params_t &p, int status, int peer, uint32_t epoch) {
    uint64_t word = (uint64_t)(uint32_t)-status | (uint64_t)(uint32_t)(p.rank + 1) << 32;
    if (!word_claim(&header_of(own_workspace(p))->fail, word) && !TPC_FAULT(report_not_claimed)) return;
    if (p.report != nullptr) {
        packet_t mine = {0, 0}, theirs = {0, 0};
        if (status == TPCOMM_ERR_MISMATCH) {
            mine = call_header(p, epoch);
            theirs = packet_load(call_header_of(own_workspace(p), peer, epoch));
        }
        p.report->peer = peer;
        p.report->epoch = epoch;
        p.report->mine[0] = mine.low, p.report->mine[1] = mine.high;
        p.report->theirs[0] = theirs.low, p.report->theirs[1] = theirs.high;
        word_publish(&p.report->word, word);
    }
    if (TPC_FAULT(peers_not_told)) return;
    for (int k = 1; k < p.size; k++) word_store(&header_of(p.workspace[k])->fail, word);
}

/** What a thread knows of its waits. */
struct waiter_t {
    uint32_t start; /**< of the present wait: when it first looked around, in ticks, odd; 0: not yet; WAIT_IS_OVER */
    bool dead;      /**< this thread waits for nothing any more; it goes on to every barrier all the same */
};

#define WAIT_IS_OVER 2u /* this look at what it waits for is the last */

#define TPC_TICK_SHIFT 16 /* 66 us: 32 bits hold three days */

/**
 * A wait for data lasts a little longer than one for a call header: a peer whose data does not come may itself wait for
 * a rank that has not even begun, and that one is to be named.
 */
TPC_DEVICE uint32_t ticks_of_ms(uint32_t ms, bool of_header) {
    uint64_t ticks = ((uint64_t)ms * 1000000u >> TPC_TICK_SHIFT) + 1;
    if (!of_header && !TPC_FAULT(victim_named)) ticks += (ticks >> 4) + 512;
    return ticks < 0xFFFFFF00u ? (uint32_t)ticks : 0xFFFFFF00u;
}

TPC_DEVICE uint32_t ticks_now() {
    return (uint32_t)(timer_ns() >> TPC_TICK_SHIFT);
}

/**
 * A wait has lasted for its limit (in ticks) by the device's clock, which goes on while the whole job is stopped: by a
 * signal, a debugger, a machine that is paused. So the hosts' pulse counts as well: for how long any rank's host has
 * been awake. Before that is believed it must change, else the job may be stopped at this moment. Whether the wait is
 * over. A wait for data ends a beat later than one for a call header could have.
 */
TPC_DEVICE bool is_over(const tpc_ar_params_t &p, uint32_t start, uint32_t limit, bool of_header) {
    if (p.host_pulse == nullptr || TPC_FAULT(stop_not_seen)) return true;
    uint64_t before = word_load(p.host_pulse), pulse = before;
    if (before == 0) return true; /* no host's heart beats */
    for (int beats = of_header || TPC_FAULT(victim_named) ? 1 : 2; beats > 0; beats--) {
        do {
            if ((int32_t)(ticks_now() - start - limit) >= TPC_LONGEST_STOP_TICKS) return true;
            if (TPC_FAULT(beat_not_awaited)) break;
            wait_pause();
            pulse = word_load(p.host_pulse);
        } while (pulse == before);
        if (ticks_of_ms((uint32_t)(pulse >> 32) - (uint32_t)pulse, true) < limit) return false;
        before = pulse;
    }
    return true;
}

/** A wait ends: somebody failed or aborted, or the deadline is over. */
TPC_DEVICE bool give_up(waiter_t &w) {
    w.dead = true;
    return false;
}

/**
 * Look around in a wait for peer: whether to wait on. A packet that is in a register over this call costs a spill.
 *
 * The host's word is looked at only in waits that have lasted: it lies behind PCIe, and where every warp of several
 * ranks read it as soon as it waits at all, their reads held up the packets that would end the waits (measured: eight
 * ranks on one H200, 64 KiB, 244 us in place of 5.3).
 */
TPC_DEVICE bool keep_waiting(const tpc_ar_params_t &p, waiter_t &w, int peer, uint32_t epoch, bool of_header = false) {
    tpc_ar_header_t *own = header_of(own_workspace(p));
    if (word_load(&own->fail) != 0) return give_up(w);
    if (w.start == WAIT_IS_OVER) {
        report_failure(p, TPCOMM_ERR_TIMEOUT, peer, epoch);
        return give_up(w);
    }
    uint32_t now = ticks_now() | 1u;
    if (w.start == 0) w.start = now;
    uint32_t lasted = now - w.start, patience = TPC_HOST_LOOK_TICKS;
    if (p.host_fail != nullptr && lasted >= patience) {
        uint64_t failed = word_load(p.host_fail);
        if (failed != 0) {
            word_store(&own->fail, failed); /* the kernels after this one leave at once */
            return give_up(w);
        }
    }
    uint32_t limit = ticks_of_ms(setting_load(&own->timeout_ms), of_header);
    if (lasted >= limit && is_over(p, w.start, limit, of_header))
        w.start = WAIT_IS_OVER;
    else
        wait_pause();
    return true;
}

/** Wait for one packet. Undefined if the wait was given up. */
template <typename Arrived>
TPC_DEVICE packet_t await_packet(const tpc_ar_params_t &p, const unsigned char *slot, int peer, uint32_t epoch,
                                 waiter_t &w, Arrived arrived, bool of_header = false) {
    packet_t packet;
    w.start = 0;
    do {
#pragma unroll 1
        for (int spin = 0; spin < TPC_LOOK_EVERY; spin++) {
            packet = packet_load(slot);
            if (arrived(packet)) return packet;
        }
    } while (keep_waiting(p, w, peer, epoch, of_header));
    return packet;
}

/**
 * Every thread's first step, on every path: only then the caller's memory and the workspace are this call's. A kernel
 * that pushed before would overwrite what a peer has not yet taken of the call before the last, and one that ended
 * without would let its successor run beside its predecessor.
 *
 * Then a block's first look at the workspace: the loads are under way when this returns, and nothing waits for them
 * yet.
 */
struct begun_t {
    uint32_t epoch;
    uint64_t fail; /**< not 0: the group is broken */
};
template <bool EARLY = false> TPC_DEVICE begun_t begin_call(const tpc_ar_params_t &p) {
    if (EARLY && !TPC_FAULT(late_dependency) && !TPC_FAULT(norm_late_dependency)) await_predecessor();
    begun_t begun;
    begun.epoch = epochs_of(p)[blockIdx.x];
    begun.fail = word_load(&header_of(own_workspace(p))->fail);
    return begun;
}

/**
 * All threads of a block call this once, in one place of the code, whatever their parts in the call: between their
 * pushes and their first wait, when packets are on their way anyway. (PTX would let them meet from several places;
 * compute-sanitizer's synccheck does not.) Only now it matters whether the group is broken: what is pushed into a
 * broken one is never looked at, and waiting for that answer first would cost a trip to memory.
 */
TPC_DEVICE waiter_t all_have_begun(const begun_t &begun) {
    if (TPC_FAULT(late_dependency) || TPC_FAULT(norm_late_dependency)) await_predecessor();
    if (!TPC_FAULT(epoch_unguarded)) __syncthreads(); /* every thread of the block has read its epoch word */
    waiter_t w = {0, begun.fail != 0};
    return w;
}

/*
 * Calls of one rank run one after the other; where the caller's streams or graphs allow otherwise, slots and epochs are
 * two calls' at once. No edge can be added to a graph that is launched, so it is found out: block 0, which every launch
 * has, counts itself in before its first wait and out at its end. Out for each of its two halves, the threads that move
 * data and the warp beside them, so that neither waits for the other.
 */
TPC_DEVICE uint32_t count_in(const tpc_ar_params_t &p) {
    return count_claim(&header_of(own_workspace(p))->running, 2);
}

/**
 * Every thread's last step, in one place of the code. Not before the block's last wait: successors that filled the
 * device while this call waits for a peer could keep that peer's kernel out, where ranks or groups meet on one device.
 */
template <bool EARLY = false> TPC_DEVICE void end_call(const tpc_ar_params_t &p) {
    bool counts = blockIdx.x == 0 && (threadIdx.x == 0 || threadIdx.x == (unsigned)p.work_threads);
    if (TPC_FAULT(half_counted_out)) counts = counts && threadIdx.x == 0;
    if (counts) count_take(&header_of(own_workspace(p))->running, 1);
    if (!EARLY) return;
    __syncthreads();
    release_successor();
}

/* A thread's wait for a peer's header, in units of 64 ns, so that 32 bits hold four minutes. */
#define TPC_WAIT_SHIFT 6
#define TPC_WAIT_NONE  0u          /* the header was there already, or none is waited for */
#define TPC_WAIT_ENDED 0xFFFFFFFFu /* the wait was given up */

TPC_DEVICE uint32_t wait_since(uint64_t begun_ns) {
    uint64_t units = ((timer_ns() - begun_ns) >> TPC_WAIT_SHIFT) + 1;
    return units < TPC_WAIT_ENDED ? (uint32_t)units : TPC_WAIT_ENDED - 1;
}

/** In the workspace, and a copy for the host. */
TPC_DEVICE void count_up(uint64_t *mine, uint64_t *hosts, uint64_t number) {
    uint64_t sum = *mine + number;
    *mine = sum;
    if (hosts != nullptr) word_store(hosts, sum);
}

/**
 * Note what block 0's header warp has waited, a thread a peer; all 32 call it. Who came last, as this rank sees it: the
 * peer whose header came last, if that took longer than a header's way; this rank itself, if all were there before it.
 * Out of line: it is asked for now and then, and would take registers from every call. One call of a rank is under way
 * at a time, so nobody else counts here.
 */
static __device__ __noinline__ void note_wait(const tpc_ar_params_t &p, unsigned lane, uint32_t waited) {
    uint32_t most = TPC_FAULT(wait_of_one_peer) ? waited : warp_most(waited);
    uint32_t owner = ~warp_most(waited == most ? ~lane : 0); /* the first thread that waited so long */
    if (lane != 0 || most == TPC_WAIT_ENDED) return;
    uint32_t path = p.what >> 8 & (TPC_AR_WAITS_PATHS - 1);
    tpc_ar_waits_t *mine = (tpc_ar_waits_t *)(own_workspace(p) + TPC_AR_WAITS_OFFSET);
    tpc_ar_waits_t *hosts = p.report != nullptr ? &p.report->waits : nullptr;
    count_up(&mine->path[path].calls, hosts != nullptr ? &hosts->path[path].calls : nullptr, 1);
    count_up(&mine->path[path].wait_ns, hosts != nullptr ? &hosts->path[path].wait_ns : nullptr,
             (uint64_t)most << TPC_WAIT_SHIFT);
    if (most != TPC_WAIT_NONE && most <= TPC_AR_LAST_NS >> TPC_WAIT_SHIFT) return;
    int last = most == TPC_WAIT_NONE ? p.rank : rank_after(p.rank, (int)owner + 1, p.size);
    count_up(&mine->last[last], hosts != nullptr ? &hosts->last[last] : nullptr, 1);
}

/*
 * What a block's last warp does beside the others, who push and reduce. Block 0's tells every peer what this call is,
 * and compares with what each says. Every block's advances epoch words, also those of blocks that this launch does not
 * have: all are equal between calls, whatever the grid.
 */

/** What its two steps have in common. */
struct announced_t {
    uint64_t begun_ns; /**< when headers were on their way; where waits are noted */
    uint32_t others;   /**< calls of this rank that run beside this one */
    bool notes;
};

/** Before all_have_begun. */
TPC_DEVICE announced_t announce(const tpc_ar_params_t &p, const begun_t &begun, unsigned lane) {
    announced_t said;
    int k = (int)lane + 1;
    said.notes = blockIdx.x == 0 && setting_load(&header_of(own_workspace(p))->notes_waits) != 0;
    if (blockIdx.x == 0 && k < p.size && !TPC_FAULT(no_header))
        packet_store(call_header_of(p.workspace[k], p.rank, begun.epoch), call_header(p, begun.epoch));
    said.begun_ns = said.notes ? timer_ns() : 0;
    /* By a lane that waits for no header, so that none waits for the count's answer. */
    said.others = blockIdx.x == 0 && lane == TPC_AR_HEADER_THREADS - 1 ? count_in(p) : 0;
    return said;
}

/** After it, with what that gave. */
TPC_DEVICE void accompany(const tpc_ar_params_t &p, const begun_t &begun, unsigned lane, const announced_t &said,
                          waiter_t w) {
    uint32_t epoch = begun.epoch;
    int k = (int)lane + 1;
    bool exchanges = blockIdx.x == 0 && k < p.size;
    packet_t mine = call_header(p, epoch);
    unsigned end = TPC_FAULT(epoch_of_grid_only) ? gridDim.x : TPC_AR_MAX_BLOCKS;
    for (unsigned b = blockIdx.x + lane * gridDim.x; b < end; b += TPC_AR_HEADER_THREADS * gridDim.x)
        epochs_of(p)[b] = next_epoch(epoch);
    uint32_t waited = w.dead ? TPC_WAIT_ENDED : TPC_WAIT_NONE;
    if (exchanges && !w.dead && !TPC_FAULT(header_not_awaited)) {
        int peer = rank_after(p.rank, k, p.size);
        const unsigned char *slot = call_header_of(own_workspace(p), peer, epoch);
        auto arrived = [=](packet_t packet) { return (uint32_t)packet.low == epoch && (uint32_t)packet.high == epoch; };
        bool there = said.notes && arrived(packet_load(slot));
        packet_t theirs = await_packet(p, slot, peer, epoch, w, arrived, true);
        if (said.notes) waited = w.dead ? TPC_WAIT_ENDED : there ? TPC_WAIT_NONE : wait_since(said.begun_ns);
        if (!w.dead && (theirs.low != mine.low || theirs.high != mine.high))
            report_failure(p, TPCOMM_ERR_MISMATCH, peer, epoch);
    } else if (said.others != 0 && !TPC_FAULT(overlap_unseen)) {
        report_failure(p, TPCOMM_ERR_OVERLAP, p.rank, epoch);
    }
    if (said.notes) note_wait(p, lane, waited);
}

#endif
