/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Packets, which carry their own arrival (signal.cuh has the ordering), and the slots that they travel through.
 *
 *   sentinel  reductions of f32, f16, bf16: 16 bytes of data. A word of all ones is EMPTY, and a sender turns such a
 *             word (a NaN, whose payload no reduction keeps) into the canonical NaN
 *   flag      everything else: {4 bytes, epoch} twice, since every bit pattern is data
 *
 * All slots are EMPTY while no call is in flight, so both kinds share them.
 */
#ifndef TPC_CUSTOM_AR_PACKET_CUH
#define TPC_CUSTOM_AR_PACKET_CUH

#include "vec.cuh"
#include "wait.cuh"

#define TPC_EMPTY_WORD 0xFFFFFFFFu

/* ------------------------------------------------------------------ sentinel packets */

TPC_DEVICE packet_t pack_words(const vec_t &v) {
    packet_t packet = {v.word[0] | (uint64_t)v.word[1] << 32, v.word[2] | (uint64_t)v.word[3] << 32};
    return packet;
}

/** Of any data; nan_word replaces a word that looks EMPTY. */
TPC_DEVICE packet_t pack_sentinel(vec_t v, uint32_t nan_word) {
#pragma unroll
    for (int w = 0; w < 4; w++)
        if (v.word[w] == TPC_EMPTY_WORD && !TPC_FAULT(empty_word_sent)) v.word[w] = nan_word;
    return pack_words(v);
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

/* ------------------------------------------------------------------ flag packets */

TPC_DEVICE packet_t pack_flag(uint64_t value, uint32_t epoch) {
    packet_t packet = {(value & 0xFFFFFFFFu) | (uint64_t)epoch << 32, value >> 32 | (uint64_t)epoch << 32};
    return packet;
}

TPC_DEVICE uint64_t unpack_flag(packet_t packet) {
    return (packet.low & 0xFFFFFFFFu) | packet.high << 32;
}

TPC_DEVICE bool flag_arrived(packet_t packet, uint32_t epoch) {
    if (TPC_FAULT(one_flag_tested)) return (uint32_t)(packet.low >> 32) == epoch;
    return (uint32_t)(packet.low >> 32) == epoch && (uint32_t)(packet.high >> 32) == epoch;
}

/* ------------------------------------------------------------------ slots */

/** One parity's slots of one kind, in anybody's workspace: one a source (slot_index), slot_bytes apart. */
struct slots_t {
    uint32_t offset; /**< of the first, in a workspace (which is below 4 GiB) */
    uint32_t slot_bytes;
};

/** This epoch's slots: the first ones of its half. */
TPC_DEVICE slots_t slots_of(const tpc_ar_params_t &p, uint32_t epoch, uint32_t slot_bytes) {
    slots_t slots = {TPC_AR_SLOT_OFFSET + (parity_of(epoch) != 0 ? (uint32_t)p.half_bytes : 0), slot_bytes};
    return slots;
}

/** A place in a source's slot, in this rank's workspace. */
TPC_DEVICE unsigned char *slot_in(const tpc_ar_params_t &p, slots_t slots, int source, uint32_t at) {
    return own_workspace(p) + (slots.offset + slot_index(source, p.rank) * slots.slot_bytes + at);
}

/** A place in this rank's slot, in the workspace of the rank k places after it. */
TPC_DEVICE unsigned char *slot_after(const tpc_ar_params_t &p, slots_t slots, int k, uint32_t at) {
    return p.workspace[k] + (slots.offset + slot_index_after(p, k) * slots.slot_bytes + at);
}

/** The consumer of a packet makes its slot EMPTY again, at once: what the call after the next needs. */
TPC_DEVICE void rearm(const tpc_ar_params_t &p, uint32_t epoch, unsigned char *slot) {
    packet_t empty = {~0ull, ~0ull};
    if (TPC_FAULT(no_rearm)) return;
    if (TPC_FAULT(late_rearm)) slot += parity_of(epoch) != 0 ? -p.half_bytes : p.half_bytes; /* of the call before */
    packet_store(slot, empty);
}

/** Wait for the sentinel packet in a slot and re-arm it. Undefined if the wait was given up. */
TPC_DEVICE vec_t take_sentinel(const tpc_ar_params_t &p, uint32_t epoch, unsigned char *slot, int source, waiter_t &w) {
    packet_t packet = await_packet(p, slot, source, epoch, w, [](packet_t packet) { return sentinel_arrived(packet); });
    if (!w.dead) rearm(p, epoch, slot);
    return unpack_sentinel(packet);
}

/** Wait for the flag packet in a slot and re-arm it. Undefined if the wait was given up. */
TPC_DEVICE uint64_t take_flag(const tpc_ar_params_t &p, uint32_t epoch, unsigned char *slot, int source, waiter_t &w) {
    packet_t packet =
        await_packet(p, slot, source, epoch, w, [=](packet_t packet) { return flag_arrived(packet, epoch); });
    if (!w.dead) rearm(p, epoch, slot);
    return unpack_flag(packet);
}

#endif
