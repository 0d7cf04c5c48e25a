/* SPDX-License-Identifier: Apache-2.0 */
/**
 * What kernels that a host compiler has compiled find in place of a GPU: ptx_host.h and shim/cuda_runtime.h call these.
 * Played twice: by the harness of this folder (memory.cc, sched.cc: seeded, with weak memory), and by the runtime of
 * tests/cuda_on_host, as it comes (real memory, a real clock; compiled with HOSTRUN_LIVE).
 */
#ifndef TPC_KERNELS_ON_HOST_DEVICE_SIDE_H
#define TPC_KERNELS_ON_HOST_DEVICE_SIDE_H

#include <stddef.h>
#include <stdint.h>

#include <functional>

#include <driver_types.h>
#include <vector_types.h>

namespace hostrun {

struct launch_t {
    dim3 grid, block;
    bool early = false; /**< dependent launch: may begin when all blocks of the one before have released it or ended */
    std::function<void()> thread;
};
/** Put a launch into a stream. */
cudaError_t launch_on(cudaStream_t stream, launch_t launch);

void strong_store(void *to, const void *value, int bytes);
void strong_load(const void *from, void *value, int bytes);
/** Brings nothing near, but must lie in an allocation. */
void prefetch(const void *at);
/** Stores value if 0 is there; returns what was there. */
uint64_t strong_claim(uint64_t *word, uint64_t value);
/** Adds; returns what was there. */
uint32_t strong_add(uint32_t *word, uint32_t number);
void fence();
void barrier();
/** Dependent launch: the launches before this thread's have ended, and their stores are in memory. */
void await_predecessor();
void release_successor();
/** After a strong load: what came before the store that it read is seen. */
void acquire();
/** Of the block's threads 0 to threads - 1 alone, at the barrier of this number: whether any says yes. */
bool team_any(unsigned id, unsigned threads, bool mine);
/** What the thread of the same warp gives whose number differs in these bits; all 32 meet here. */
float warp_exchange(float x, int bits);
/** Memory of the block, filled with garbage; the same for all its threads that name it. Not checked for races. */
void *block_memory(const char *name, size_t bytes);
/** Nothing new was seen since the last pause: sleep until a store changes one of the words loaded since then. */
void pause();
uint64_t clock_ns();

} // namespace hostrun

#endif
