/* SPDX-License-Identifier: Apache-2.0 */
/**
 * What a rank's peers send it of one call, put together by the host, so that a kernel of one rank runs alone: it finds
 * all that it waits for in its workspace. And so what it must send them. A second writing down of the protocol, beside
 * the kernels' own. For tests on a GPU and in the harness; C and C++.
 */
#ifndef TPC_KERNELS_ON_HOST_INBOX_H
#define TPC_KERNELS_ON_HOST_INBOX_H

#include <string.h>

#include "custom_ar/ar_abi.h"
#include "custom_ar/launch.h"

enum { INBOX_RING_BLOCKS = 4 };

/** One call of a group; count of reduce_scatter and all_gather: of a rank's part. */
typedef struct {
    tpc_ar_form_t form;
    tpcomm_dtype_t dtype;
    tpcomm_op_t op;
    int32_t root, size;
    size_t count;
    size_t slot_bytes;
    uint32_t epoch, what, hash;
    const unsigned char *in[TPC_AR_MAX_RANKS]; /**< every rank's input */
    const unsigned char *result;               /**< two-shot all_reduce, ring: the sum */
    tpc_ar_ring_t ring; /**< memory behind the slots; INBOX_RING_BLOCKS at most. Of a call through it these as well: */
    uint32_t ring_grid; /**< blocks of the launch */
    uint32_t ring_first[INBOX_RING_BLOCKS]; /**< chunks that each block has counted before */
} inbox_call_t;

static inline bool inbox_reduces(const inbox_call_t *call) {
    return call->form.coll == TPCOMM_ALL_REDUCE || call->form.coll == TPCOMM_REDUCE_SCATTER;
}

/** Sentinel packets of 16 bytes, or flag packets of 8 with the epoch beside each half. */
static inline bool inbox_sentinels(const inbox_call_t *call) {
    return inbox_reduces(call) &&
           (call->dtype == TPCOMM_F32 || call->dtype == TPCOMM_F16 || call->dtype == TPCOMM_BF16);
}

static inline size_t inbox_bytes(const inbox_call_t *call) {
    return call->count * tpcomm_dtype_size(call->dtype);
}

/** The message as packets, from a slot's beginning on. */
static inline void inbox_packets(const inbox_call_t *call, const unsigned char *from, size_t bytes,
                                 unsigned char *slot) {
    bool sentinels = inbox_sentinels(call);
    uint32_t nan_word = call->dtype == TPCOMM_F32 ? 0x7FFFFFFFu : 0x7FFF7FFFu;
    size_t payload = sentinels ? 16 : 8;
    for (size_t at = 0; at < bytes; at += payload, slot += 16) {
        uint32_t data[4] = {0, 0, 0, 0};
        memcpy(data, from + at, bytes - at < payload ? bytes - at : payload);
        uint32_t flags[4] = {data[0], call->epoch, data[1], call->epoch};
        for (int w = 0; w < 4; w++)
            if (data[w] == 0xFFFFFFFFu) data[w] = nan_word;
        memcpy(slot, sentinels ? data : flags, 16);
    }
}

/** From one rank's part of a ring's message to the next one's: two ranks' parts are the whole. */
static inline size_t inbox_ring_stride(const inbox_call_t *call) {
    size_t bytes = inbox_bytes(call), ranks = (size_t)call->size;
    return call->size == 2 ? bytes : ((bytes + 15) / 16 + ranks - 1) / ranks * 16;
}

/** Chunks that each block of the launch sends. */
static inline uint32_t inbox_ring_chunks(const inbox_call_t *call) {
    size_t chunk = (size_t)call->ring_grid * call->ring.piece_bytes;
    return (uint32_t)((inbox_ring_stride(call) + chunk - 1) / chunk);
}

/** A block's line of flags in an image of a workspace: [kind][source], of which the owner's own counts its chunks. */
static inline unsigned char *inbox_ring_line(const inbox_call_t *call, uint32_t block, unsigned char *workspace) {
    return workspace + tpc_ar_workspace_bytes(call->size, call->slot_bytes) + (size_t)block * TPC_AR_RING_LINE;
}

/** All that a rank's workspace holds. */
static inline size_t inbox_workspace_bytes(const inbox_call_t *call) {
    size_t bytes = tpc_ar_workspace_bytes(call->size, call->slot_bytes);
    return bytes + (call->ring.blocks > 0 ? tpc_ar_ring_bytes(call->size, call->ring) : 0);
}

/** The ring's part of inbox_put: plain data in slots of a piece, and flags that count. All chunks of what one image
 * holds must find slots of their own: TPC_AR_RING_DEPTH at most of a block. */
static inline void inbox_put_ring(const inbox_call_t *call, int32_t source, int32_t owner, unsigned char *workspace) {
    size_t bytes = inbox_bytes(call), stride = inbox_ring_stride(call), piece = call->ring.piece_bytes;
    size_t sources = (size_t)call->size - 1, index = (size_t)(source - (source > owner));
    unsigned char *slots = inbox_ring_line(call, call->ring.blocks, workspace);
    for (size_t kind = 0; kind < (call->size > 2 ? 2 : 1); kind++) {
        const unsigned char *data = kind == 0 ? call->in[source] : call->result;
        size_t from = call->size == 2 ? 0 : stride * (size_t)(kind == 0 ? owner : source);
        size_t part = from >= bytes ? 0 : bytes - from < stride ? bytes - from : stride;
        for (uint32_t b = 0; b < call->ring_grid; b++) {
            uint32_t chunks = inbox_ring_chunks(call), flag = call->ring_first[b] + chunks;
            for (uint32_t c = 0; c < chunks; c++) {
                size_t at = ((size_t)c * call->ring_grid + b) * piece;
                size_t place = (call->ring_first[b] + c) % TPC_AR_RING_DEPTH;
                if (at >= part) continue;
                size_t there = part - at < piece ? part - at : piece;
                unsigned char *slot =
                    slots + (((kind * sources + index) * call->ring.blocks + b) * TPC_AR_RING_DEPTH + place) * piece;
                memcpy(slot, data + from + at, there);
                memset(slot + there, 0, (16 - there % 16) % 16);
            }
            memcpy(inbox_ring_line(call, b, workspace) + (kind * TPC_AR_MAX_RANKS + (size_t)source) * 4, &flag, 4);
        }
    }
}

/** All that source sends owner goes into an image of owner's workspace. */
static inline void inbox_put(const inbox_call_t *call, int32_t source, int32_t owner, unsigned char *workspace) {
    uint32_t header[4] = {call->epoch, call->what, call->epoch, call->hash};
    memcpy(workspace + TPC_AR_CALL_OFFSET + ((call->epoch & 1u) * TPC_AR_MAX_RANKS + (uint32_t)source) * 16u, header,
           sizeof header);
    if (call->form.ring) {
        inbox_put_ring(call, source, owner, workspace);
        return;
    }
    size_t bytes = inbox_bytes(call), slot_bytes = call->form.twoshot ? call->slot_bytes / 2 : call->slot_bytes;
    unsigned char *half = workspace + TPC_AR_SLOT_OFFSET +
                          ((call->epoch & 1u) != 0 ? tpc_ar_half_bytes(call->size, call->slot_bytes) : 0);
    unsigned char *slot = half + (size_t)(source - (source > owner)) * slot_bytes;
    if (call->form.coll == TPCOMM_BROADCAST && source != call->root) return;
    if (call->form.coll == TPCOMM_REDUCE_SCATTER) {
        inbox_packets(call, call->in[source] + (size_t)owner * bytes, bytes, slot);
        return;
    }
    if (!call->form.twoshot) {
        inbox_packets(call, call->in[source], bytes, slot);
        return;
    }
    /* As equal parts as whole packets allow: source sends owner its share of owner's part, and the sum of its own. */
    size_t unit = inbox_sentinels(call) ? 16 : 8, ranks = (size_t)call->size;
    size_t stride = ((bytes + unit - 1) / unit + ranks - 1) / ranks * unit;
    for (int phase = 0; phase < 2; phase++) {
        size_t from = stride * (size_t)(phase == 0 ? owner : source), left = from < bytes ? bytes - from : 0;
        inbox_packets(call, (phase == 0 ? call->in[source] : call->result) + (left > 0 ? from : 0),
                      left < stride ? left : stride, slot + (size_t)phase * (ranks - 1) * slot_bytes);
    }
}

#endif
