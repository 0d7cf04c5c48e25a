/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Memory that captured graphs keep. A graph, and whatever is instantiated from it, may be replayed after its
 * communicator was destroyed: the kernels in it then find the group broken and leave at once, for which their memory
 * must still be mapped. So each graph counts here from its first captured call until it is gone, and what it keeps is
 * freed after the last one: not by whoever lets go, which is a thread of the driver that may make no CUDA call, but by
 * the next sweep.
 */
#ifndef TPC_GRAPH_CAPTURE_KEPT_H
#define TPC_GRAPH_CAPTURE_KEPT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct tpc_kept {
    _Atomic int32_t graphs; /**< that keep it; taken before a graph holds it, dropped when that is gone */
    /* From tpc_kept_free on: */
    void (*free)(void *arg);
    void *arg;
    uint32_t fork_generation;
    struct tpc_kept *next;
} tpc_kept_t;

/** Another graph keeps it. */
void tpc_kept_take(tpc_kept_t *kept);

/** One graph less. Any thread; no CUDA call, no lock; touches nothing afterwards. Its type is that of cudaHostFn_t. */
void tpc_kept_drop(void *kept);

static inline bool tpc_kept_in_use(const tpc_kept_t *kept) {
    return atomic_load_explicit(&kept->graphs, memory_order_acquire) > 0;
}

/** Call free(arg), which frees kept with it: now, or where graphs keep it in a sweep after they are gone. */
void tpc_kept_free(tpc_kept_t *kept, void (*free)(void *arg), void *arg);

/**
 * Free what no graph keeps any more. Where memory is made or freed anyway: with a kernel of ours waiting on the same
 * device, freeing may block. Returns how many are still kept. Any thread.
 */
int32_t tpc_kept_sweep(void);

#endif
