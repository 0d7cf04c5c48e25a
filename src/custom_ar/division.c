/* SPDX-License-Identifier: Apache-2.0 */
/* How a rank's device workspace is divided between slots and the ring. */
#include "custom_ar/share.h"

/* The largest slots that pay: of two ranks' messages, which have no better form than one-shot, and of more ranks, where
 * two-shot takes over and its launch carries size / 2 slots. */
#define LARGEST_SLOT_OF_TWO (8u << 20)
#define LARGEST_SLOT        (4u << 20)
#define SMALLEST_SLOT       (16u << 10)

/* The ring's share is half of the workspace at most, with as many blocks as that leaves, and slots beside it of what is
 * worth a launch. A piece is what the threads of a block load together, of two ranks; a vector a thread, of many: about
 * as much of the message is on its way. */
#define RING_BLOCKS       64u
#define RING_BLOCKS_LEAST 16u
#define RING_SLOT_LEAST   (256u << 10)

static size_t workspace_with(int32_t size, size_t slot_bytes, tpc_ar_ring_t ring) {
    return tpc_ar_workspace_bytes(size, slot_bytes) + (ring.blocks > 0 ? tpc_ar_ring_bytes(size, ring) : 0);
}

/* Largest slot, a power of two, with which a rank's device workspace stays in the limit; 0: none of `least` or more. */
static size_t largest_slot(const tpc_agreed_t *agreed, tpc_ar_ring_t ring, size_t least) {
    size_t slot = agreed->size == 2 ? LARGEST_SLOT_OF_TWO : LARGEST_SLOT;
    while (slot > least && workspace_with(agreed->size, slot, ring) > agreed->workspace_bytes) slot /= 2;
    return workspace_with(agreed->size, slot, ring) <= agreed->workspace_bytes ? slot : 0;
}

static tpc_ar_ring_t largest_ring(const tpc_agreed_t *agreed) {
    int32_t size = agreed->size;
    tpc_ar_ring_t ring = {.blocks = RING_BLOCKS, .piece_bytes = 16 * TPC_AR_RING_MOVERS * (size == 2 ? 4 : 1)};
    while (ring.blocks >= RING_BLOCKS_LEAST && tpc_ar_ring_bytes(size, ring) > agreed->workspace_bytes / 2)
        ring.blocks /= 2;
    if (ring.blocks < RING_BLOCKS_LEAST) ring.blocks = 0;
    return ring;
}

/* How a group's device workspace is divided. slot_bytes 0: the limit leaves no room for any path. */
typedef struct {
    size_t slot_bytes;
    tpc_ar_ring_t ring;
} sizes_t;

/* Pure: gate, capacity and allocation come from it. */
static sizes_t divide(const tpc_agreed_t *agreed) {
    sizes_t sizes = {.ring = largest_ring(agreed)};
    if (sizes.ring.blocks > 0) sizes.slot_bytes = largest_slot(agreed, sizes.ring, RING_SLOT_LEAST);
    if (sizes.slot_bytes > 0) return sizes;
    sizes.ring.blocks = 0;
    sizes.slot_bytes = largest_slot(agreed, sizes.ring, SMALLEST_SLOT);
    return sizes;
}

size_t tpc_ar_slot_bytes(const tpc_agreed_t *agreed) {
    return divide(agreed).slot_bytes;
}

tpc_ar_ring_t tpc_ar_ring(const tpc_agreed_t *agreed) {
    return divide(agreed).ring;
}

size_t tpc_ar_device_bytes(const tpc_agreed_t *agreed) {
    sizes_t sizes = divide(agreed);
    return sizes.slot_bytes > 0 ? workspace_with(agreed->size, sizes.slot_bytes, sizes.ring) : 0;
}

size_t tpc_ar_least_bytes(int32_t size) {
    return tpc_ar_workspace_bytes(size, SMALLEST_SLOT);
}
