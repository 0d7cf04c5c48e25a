/* SPDX-License-Identifier: Apache-2.0 */
/**
 * What host code and kernels both know: the layout of a rank's device workspace, and a launch's parameters. Plain C; no
 * CUDA header needed.
 *
 * Every rank has one workspace in its own device memory. Its peers write into it; only its owner reads it.
 *
 *   header        256 bytes
 *   epochs        TPC_AR_MAX_BLOCKS words, all equal between calls: the number of the next call, modulo wrap
 *   call headers  [parity][source rank], 16 bytes each: what each peer says it calls
 *   waits         how long its owner's kernels have waited, where that was asked for
 *   slots         [parity][source], slot_bytes each: packets; every byte 0xFF (EMPTY) while no call is in flight
 */
#ifndef TPC_CUSTOM_AR_ABI_H
#define TPC_CUSTOM_AR_ABI_H

#include <stddef.h>
#include <stdint.h>

#define TPC_AR_LAYOUT         1u
#define TPC_AR_MAX_RANKS      16
#define TPC_AR_HEADER_THREADS 32 /* of each block, beside those that move data */
#ifndef TPC_AR_MAX_BLOCKS
#define TPC_AR_MAX_BLOCKS 512 /* tests/kernels_on_host has fewer, to be faster */
#endif

/** First bytes of a workspace. */
typedef struct {
    char magic[8]; /**< "TPCOMMAR" */
    uint32_t layout;
    int32_t rank;
    uint64_t nonce, group_id;
    unsigned char reserved0[32];
    uint32_t running; /**< 2 for each kernel of the owner's that is under way, 1 where half of it has ended; 0 between
                         calls. In another line than what kernels load as they begin. */
    unsigned char reserved1[60];
    uint64_t fail; /**< 0 while healthy; else status (negated, low half) and reporting rank + 1; written by any rank */
    uint32_t
        timeout_ms; /**< limit of each wait; written by the owner's host, read by kernels, so that graphs obey it */
    uint32_t notes_waits; /**< likewise: not 0: kernels note how long they wait */
    unsigned char reserved2[112];
} tpc_ar_header_t;

#define TPC_AR_WAITS_PATHS 16

/**
 * What the owner's kernels have waited, by path, and for whom: in its workspace; what host code reads is a copy. A wait
 * is from a call's header on its way to the last peer's that came.
 */
typedef struct {
    struct {
        uint64_t calls, wait_ns;
    } path[TPC_AR_WAITS_PATHS];
    uint64_t last[TPC_AR_MAX_RANKS]; /**< calls in which a rank was the last by more than TPC_AR_LAST_NS */
} tpc_ar_waits_t;

/* Less than this is a header's way: ranks that come so close together see each other come last. */
#define TPC_AR_LAST_NS 2048u

/** What kernels tell their host, when they fail and of waits: in pinned host memory, one a rank. Written before word.
 */
typedef struct {
    uint64_t word; /**< as tpc_ar_header_t.fail; 0: nothing */
    int32_t peer;  /**< rank at fault; -1: none */
    uint32_t epoch;
    uint64_t mine[2], theirs[2]; /**< MISMATCH: both call headers */
    tpc_ar_waits_t waits;
} tpc_ar_report_t;

#define TPC_AR_EPOCH_OFFSET 256u
#define TPC_AR_CALL_OFFSET  (TPC_AR_EPOCH_OFFSET + 4u * TPC_AR_MAX_BLOCKS)
#define TPC_AR_WAITS_OFFSET (TPC_AR_CALL_OFFSET + 2u * TPC_AR_MAX_RANKS * 16u)
#define TPC_AR_SLOT_OFFSET  4096u

/**
 * The layout of the slots, for every path: one half of half_bytes for each parity, and in a half the slots of the
 * launch's own making, since a slot is EMPTY whenever no call uses it.
 *
 *   one-shot, reduce_scatter   size - 1 slots of slot_bytes: one for each source
 *   two-shot                   as many of half the size for the parts to reduce, then as many for the results
 *
 * So paths share memory, and no group pays for one that it does not take. slot_bytes is a multiple of 32.
 */
static inline size_t tpc_ar_half_bytes(int32_t size, size_t slot_bytes) {
    return (size_t)(size - 1) * slot_bytes;
}

static inline size_t tpc_ar_workspace_bytes(int32_t size, size_t slot_bytes) {
    return TPC_AR_SLOT_OFFSET + 2u * tpc_ar_half_bytes(size, slot_bytes);
}

/**
 * Behind the slots, the ring's memory (ring.cuh), where a group has one: a line of flags for each block,
 * [kind][source], of which the own one counts the block's chunks; then the slots, [kind][source][block][depth], a piece
 * each. Two kinds, the parts to reduce and the results; two ranks have the first alone. Flags begin as EMPTY, so that
 * counts are 2^32 - 1 at first, and wrap.
 */
#define TPC_AR_RING_DEPTH         4u
#define TPC_AR_RING_LINE          128u
#define TPC_AR_RING_SIGNALLERS    32  /* threads of a block that store flags */
#define TPC_AR_RING_MOVERS        512 /* threads of a block that move data: there is a block an SM at most */
#define TPC_AR_RING_BLOCK_THREADS (TPC_AR_RING_MOVERS + TPC_AR_RING_SIGNALLERS + TPC_AR_HEADER_THREADS)

/** blocks 0: the group has no ring. */
typedef struct {
    uint32_t blocks;      /**< at most in a launch; less than TPC_AR_MAX_BLOCKS */
    uint32_t piece_bytes; /**< of a chunk: what goes through a slot; a multiple of 16 */
} tpc_ar_ring_t;

static inline size_t tpc_ar_ring_bytes(int32_t size, tpc_ar_ring_t ring) {
    size_t slots = (size_t)(size > 2 ? 2 : 1) * (size_t)(size - 1) * ring.blocks * TPC_AR_RING_DEPTH;
    return ring.blocks * TPC_AR_RING_LINE + slots * ring.piece_bytes;
}

/** Parameters of every kernel, by value. What a kernel needs first comes first. */
typedef struct {
    const void *in;
    void *out;
    uint64_t count;       /**< elements of this launch; at most what the slots carry */
    uint64_t half_bytes;  /**< of the slots of one parity */
    uint32_t slot_bytes;  /**< from one source's slot to the next */
    int32_t work_threads; /**< threads of a block that move data; the 32 after them exchange call headers */
    int32_t rank, size;
    int32_t dtype, op;
    unsigned char
        *workspace[TPC_AR_MAX_RANKS]; /**< [k]: of the rank k places after this one, as mapped here; [0] own */
    uint64_t in_stride;   /**< bytes between the ranks' parts of in: two-shot, reduce_scatter; these as well: */
    uint64_t parts_bytes; /**< all_reduce: of the message; reduce_scatter: of a part; all_gather of rows: what of out is
                             left behind `out`; 0: all parts are equally long */
    uint32_t own_bytes, longest_bytes; /**< of this rank's part, or of the message; of the longest part */
    uint64_t out_stride;               /**< of out: all_gather */
    const uint64_t *host_fail;  /**< the group's failure word in pinned host memory, device address; NULL: none */
    const uint64_t *host_pulse; /**< the group's pulse (health/pulse.h), likewise; NULL: waits end by the device's clock
                                   alone */
    tpc_ar_report_t *report;    /**< this rank's, in pinned host memory, device address; NULL: none */
    uint32_t what;              /**< bit fields of the call: equal on all ranks, or it is a MISMATCH */
    uint32_t hash;              /**< of count, root and the rest: likewise */
    int32_t root;
    uint32_t lead; /**< turns that a thread pushes before it reduces: 1 or more */
    int32_t early; /**< not 0: a dependent launch, which may begin before its predecessor has ended; kernels that can */
    uint32_t ring_offset; /**< of the ring's memory in a workspace, which is below 4 GiB; 0: none. These as well: */
    uint32_t ring_blocks, ring_piece; /**< as tpc_ar_ring_t: memory, and not what this launch has */
    uint32_t ring_chunks;             /**< of each block, in this launch */
    uint16_t
        tail_bytes; /**< of an aligned message's end behind its last whole vector, which a thread of its own has: all
                       other lengths are of whole vectors then; 0 where there is none, or a kernel does not care */
    int16_t tail_owner; /**< whose part that belongs to: where messages have parts */
} tpc_ar_params_t;

#endif
