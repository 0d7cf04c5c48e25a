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
 *   slots         [parity][source], slot_bytes each: packets; every byte 0xFF (EMPTY) while no call is in flight
 */
#ifndef TPC_CUSTOM_AR_ABI_H
#define TPC_CUSTOM_AR_ABI_H

#include <stddef.h>
#include <stdint.h>

#define TPC_AR_LAYOUT    1u
#define TPC_AR_MAX_RANKS 16
#ifndef TPC_AR_MAX_BLOCKS
#define TPC_AR_MAX_BLOCKS 512 /* tests/kernels_on_host has fewer, to be faster */
#endif

/** First bytes of a workspace. */
typedef struct {
    char magic[8]; /**< "TPCOMMAR" */
    uint32_t layout;
    int32_t rank;
    uint64_t nonce, group_id;
    unsigned char reserved0[96];
    uint64_t fail; /**< 0 while healthy; else status (negated, low half) and reporting rank + 1; written by any rank */
    uint32_t
        timeout_ms; /**< limit of each wait; written by the owner's host, read by kernels, so that graphs obey it */
    uint32_t reserved1;
    unsigned char reserved2[112];
} tpc_ar_header_t;

/** What a kernel that fails tells its host: in pinned host memory, one a rank. Written before word. */
typedef struct {
    uint64_t word; /**< as tpc_ar_header_t.fail; 0: nothing */
    int32_t peer;  /**< rank at fault; -1: none */
    uint32_t epoch;
    uint64_t mine[2], theirs[2]; /**< MISMATCH: both call headers */
} tpc_ar_report_t;

#define TPC_AR_EPOCH_OFFSET 256u
#define TPC_AR_CALL_OFFSET  (TPC_AR_EPOCH_OFFSET + 4u * TPC_AR_MAX_BLOCKS)
#define TPC_AR_SLOT_OFFSET  4096u

/** Bytes of a workspace for size ranks. Gate, capacity and allocation all come from slot_bytes. */
static inline size_t tpc_ar_workspace_bytes(int32_t size, size_t slot_bytes) {
    return TPC_AR_SLOT_OFFSET + 2u * (size_t)(size - 1) * slot_bytes;
}

/** Where in a workspace the packets from one rank arrive: source's place among the owner's peers. */
static inline uint32_t tpc_ar_slot_index(int32_t source, int32_t owner, int32_t size) {
    return (uint32_t)((source - owner - 1 + size) % size);
}

/** Parameters of every kernel, by value. */
typedef struct {
    unsigned char *workspace[TPC_AR_MAX_RANKS]; /**< of each rank, as mapped in this process */
    const void *in;
    void *out;
    uint64_t count;      /**< elements of this launch; at most what a slot carries */
    uint64_t out_stride; /**< all_gather: bytes between the ranks' parts of out */
    uint64_t slot_bytes;
    const uint64_t *host_fail; /**< the group's failure word in pinned host memory, device address; NULL: none */
    tpc_ar_report_t *report;   /**< this rank's, in pinned host memory, device address; NULL: none */
    uint32_t what;             /**< bit fields of the call: equal on all ranks, or it is a MISMATCH */
    uint32_t hash;             /**< of count, root and the rest: likewise */
    int32_t rank, size;
    int32_t dtype, op, root;
    int32_t work_threads; /**< threads of a block that move data; the 32 after them exchange call headers */
} tpc_ar_params_t;

#endif
