/* SPDX-License-Identifier: Apache-2.0 */
/**
 * All ordering between GPUs, and the only inline PTX. Each function is named after its use.
 *
 * Packets carry their own arrival: a packet's words are data that cannot be EMPTY, or data beside the epoch. So no
 * fence and no separate flag is needed, and every access is relaxed at system scope: PTX promises single accesses of up
 * to 64 bits, and nothing here relies on more (KERNELS' proof: sentinels are tested in all four words, flags in both
 * halves). The one hardware assumption: a kernel's stores to its own memory are performed before its successor on the
 * stream runs.
 *
 * Host builds (tests/kernels_on_host) replace this file's lower half by ptx_host.h, which has the same functions.
 */
#ifndef TPC_CUSTOM_AR_SIGNAL_CUH
#define TPC_CUSTOM_AR_SIGNAL_CUH

#include <cuda_runtime.h>
#include <stdint.h>

/** Four words that travel together as two 64-bit accesses. */
struct packet_t {
    uint64_t low, high;
};

#ifdef __CUDACC__

#define TPC_DEVICE      __device__ __forceinline__
#define TPC_FAULT(name) false /* a planted fault of tests/kernels_on_host */
#define TPC_LOOK_EVERY  64    /* fruitless looks at a wait's packets before each look around */
/* A wait lasts so many ticks (wait.cuh) before the host's word is looked at: 2 are up to 131 us. */
#define TPC_HOST_LOOK_TICKS 2
/* A job may be stopped for so many ticks while a kernel waits: an hour. Nothing waits for ever. */
#define TPC_LONGEST_STOP_TICKS 54931640

/** Push a packet into a peer's slot, or re-arm one of mine. */
TPC_DEVICE void packet_store(void *slot, packet_t packet) {
    asm volatile("st.relaxed.sys.global.v2.b64 [%0], {%1, %2};" ::"l"(slot), "l"(packet.low), "l"(packet.high)
                 : "memory");
}

/** Look at a packet in my slot. */
TPC_DEVICE packet_t packet_load(const void *slot) {
    packet_t packet;
    asm volatile("ld.relaxed.sys.global.v2.b64 {%0, %1}, [%2];"
                 : "=l"(packet.low), "=l"(packet.high)
                 : "l"(slot)
                 : "memory");
    return packet;
}

/** A failure or abort word: device memory of any rank, or pinned host memory. */
TPC_DEVICE uint64_t word_load(const uint64_t *word) {
    uint64_t value;
    asm volatile("ld.relaxed.sys.global.b64 %0, [%1];" : "=l"(value) : "l"(word) : "memory");
    return value;
}
TPC_DEVICE void word_store(uint64_t *word, uint64_t value) {
    asm volatile("st.relaxed.sys.global.b64 [%0], %1;" ::"l"(word), "l"(value) : "memory");
}
/** Store value unless there is one already: whether it was stored. Of many that fail at once, one reports. */
TPC_DEVICE bool word_claim(uint64_t *word, uint64_t value) {
    uint64_t before;
    asm volatile("atom.relaxed.sys.global.cas.b64 %0, [%1], 0, %2;" : "=l"(before) : "l"(word), "l"(value) : "memory");
    return before == 0;
}
/** Publish a report: what was written before is seen by the host that sees this. */
TPC_DEVICE void word_publish(uint64_t *word, uint64_t value) {
    asm volatile("fence.acq_rel.sys;\n\tst.relaxed.sys.global.b64 [%0], %1;" ::"l"(word), "l"(value) : "memory");
}

/**
 * Set a count that kernels of one rank share, where it is 0; what it was. (An addition would do as well, but the
 * compiler makes one of a whole warp's, and lets the warp wait for its answer.)
 */
TPC_DEVICE uint32_t count_claim(uint32_t *count, uint32_t number) {
    uint32_t before;
    asm volatile("atom.relaxed.sys.global.cas.b32 %0, [%1], 0, %2;"
                 : "=r"(before)
                 : "l"(count), "r"(number)
                 : "memory");
    return before;
}

/** Take from it, and wait for no answer: a kernel would end as much later. */
TPC_DEVICE void count_take(uint32_t *count, uint32_t number) {
    asm volatile("red.relaxed.sys.global.add.u32 [%0], %1;" ::"l"(count), "r"(0u - number) : "memory");
}

/**
 * Flags, of data that is no packet. What this thread has done, and what others had done before they met it at a
 * barrier, comes before the flags that it stores after a release.
 */
TPC_DEVICE void flag_release() {
    asm volatile("fence.acq_rel.sys;" ::: "memory");
}
TPC_DEVICE void flag_store(uint32_t *flag, uint32_t value) {
    asm volatile("st.relaxed.sys.global.b32 [%0], %1;" ::"l"(flag), "r"(value) : "memory");
}
/** A flag that has been seen, looked at once more: what came before it is there, for all whom this thread meets then.
 */
TPC_DEVICE uint32_t flag_acquire(const uint32_t *flag) {
    uint32_t value;
    asm volatile("ld.acquire.sys.global.b32 %0, [%1];" : "=r"(value) : "l"(flag) : "memory");
    return value;
}

/** A flag, before it is acquired; or a setting that the host may change while the kernel runs. */
TPC_DEVICE uint32_t setting_load(const uint32_t *setting) {
    uint32_t value;
    asm volatile("ld.relaxed.sys.global.b32 %0, [%1];" : "=r"(value) : "l"(setting) : "memory");
    return value;
}

/** Nanoseconds; ticks about every 32 ns to 1 us. */
TPC_DEVICE uint64_t timer_ns() {
    uint64_t now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    return now;
}

/**
 * Dependent launch (sm_90): a kernel may begin while the one before it on the stream still runs. Returns when that one
 * and all before it have ended, with all their stores performed. No effect on a kernel that was launched otherwise.
 */
TPC_DEVICE void await_predecessor() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
/** The kernel after this one may begin, once every block has said so or ended. */
TPC_DEVICE void release_successor() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

/** Bring a line near: to this SM, for what is read behind a wait. Reads no value, and orders nothing. */
TPC_DEVICE void prefetch_to_sm(const void *line) {
    asm volatile("prefetch.global.L1 [%0];" ::"l"(line));
}
/** To the device's cache alone; also of what a predecessor may still write. */
TPC_DEVICE void prefetch_to_device(const void *line) {
    asm volatile("prefetch.global.L2 [%0];" ::"l"(line));
}

/** Forget what x is: what is computed of it is computed anew behind this. */
TPC_DEVICE void compute_anew(uint32_t &x) {
    asm volatile("" : "+r"(x));
}

/** Room that the threads of a block share. */
#define TPC_SHARED(type, name, count) __shared__ type name[count]

/** Barrier of a block's first `threads` threads, whole warps. The others may have ended. */
TPC_DEVICE void team_barrier(unsigned threads) {
    asm volatile("bar.sync 1, %0;" ::"r"(threads) : "memory");
}

/** Barrier `id` of so many of a block's first threads: whether any of them says yes. */
TPC_DEVICE bool team_any(unsigned id, unsigned threads, bool mine) {
    uint32_t any;
    asm volatile("{\n\t.reg .pred p, q;\n\tsetp.ne.u32 p, %3, 0;\n\tbarrier.red.or.pred q, %1, %2, p;\n\t"
                 "selp.u32 %0, 1, 0, q;\n\t}"
                 : "=r"(any)
                 : "r"(id), "r"(threads), "r"((uint32_t)mine)
                 : "memory");
    return any != 0;
}

/** The value of the thread of the own warp whose number differs in these bits. All 32 threads call it together. */
TPC_DEVICE float warp_exchange(float x, int bits) {
    return __shfl_xor_sync(0xFFFFFFFFu, x, bits);
}

/** The greatest of a warp's values, which all its threads call together. */
TPC_DEVICE uint32_t warp_most(uint32_t x) {
#pragma unroll
    for (int bits = 16; bits > 0; bits /= 2) {
        uint32_t other = __shfl_xor_sync(0xFFFFFFFFu, x, bits);
        if (other > x) x = other;
    }
    return x;
}

/**
 * What is the same for all 32 threads of the own warp, as the compiler cannot know: it keeps no registers then for
 * bringing them together again.
 */
TPC_DEVICE bool warp_agrees(bool same) {
    return __any_sync(0xFFFFFFFFu, same);
}

TPC_DEVICE void wait_pause() {
    __nanosleep(64);
}

/**
 * The aligned word at an edge of a misaligned vector. The caller uses its bytes [from, to) alone: the others belong to
 * another thread's vector, which may be written at this moment, or to nobody.
 */
TPC_DEVICE uint32_t edge_load(const uint32_t *word, unsigned from, unsigned to) {
    (void)from, (void)to;
    return *word;
}

#else
#include <ptx_host.h>
#endif

#endif
