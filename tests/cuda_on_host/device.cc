/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The thread that plays all devices: copies as they come, and kernels in rounds, in which each fiber that can go on
 * does so once. Blocks start in the order of the queue, each when an SM has room for its threads; a kernel whose blocks
 * find none holds up those behind it.
 *
 * Nothing of this file runs with the lock held where a kernel's thread is entered.
 */
#include <emmintrin.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <deque>
#include <thread>

#include "runtime.h"
#include "kernels_on_host/stack.h"

namespace host_cuda {

struct block_t;

struct fiber_t : hostrun::stack_user_t {
    block_t *block;
    unsigned index;
    bool ended;
    bool any;       /* what it gives to a team, then what it gets */
    float exchange; /* to its warp, likewise */
};

/* Threads of a block that meet. */
struct meeting_t {
    std::vector<fiber_t *> met;
};

struct shared_t {
    const char *name;
    std::vector<uint64_t> words;
};

struct block_t {
    item_p item;
    unsigned index;
    int sm;
    unsigned alive;
    bool released;
    meeting_t all, teams[16], warps[SM_THREADS / 32];
    std::vector<shared_t> shared;
};

struct device_t {
    int room[SMS];              /* threads */
    std::deque<item_p> kernels; /* that have blocks to start */
};

/* None of all this is ever destroyed: the thread goes on until the process is gone. */
static device_t *const devices = new device_t[DEVICES_MAX];
static std::deque<item_p> &actions = *new std::deque<item_p>;
static std::condition_variable &came = *new std::condition_variable;
static std::atomic<bool> news{false}; /* something came; or blocks have ended, so that others find room */
static bool idle = true;              /* the thread waits for `came` */

/* Of the thread alone. */
static fiber_t *current;
static std::vector<fiber_t *> &now = *new std::vector<fiber_t *>, &next = *new std::vector<fiber_t *>,
                              &spare = *new std::vector<fiber_t *>;
static std::vector<block_t *> &spare_blocks = *new std::vector<block_t *>;
static bool progress;

void device_enqueue(const item_p &item) {
    if (item->work.kind == work_t::KERNEL)
        devices[item->device].kernels.push_back(item);
    else
        actions.push_back(item);
    news.store(true, std::memory_order_relaxed);
    if (idle) came.notify_one();
}

/* ------------------------------------------------------------------ blocks */

static void thread_ended() {
    block_t *block = current->block;
    current->ended = true;
    progress = true;
    spare.push_back(current);
    if (--block->alive > 0) return;
    std::lock_guard<std::mutex> held(lock);
    item_p item = std::move(block->item);
    devices[item->device].room[block->sm] += (int)item->work.launch.block.x;
    if (!block->released && ++item->blocks_released == item->work.launch.grid.x) item_released(item);
    if (--item->blocks_alive == 0 && item->blocks_started == item->work.launch.grid.x) item_work_ended(item);
    spare_blocks.push_back(block);
    news.store(true, std::memory_order_relaxed);
}

[[noreturn]] static void fiber_main() {
    hostrun::stack_entered_first();
    current->block->item->work.launch.thread();
    thread_ended();
    hostrun::stack_leave(current, true);
    abort();
}

/* One that was used before, or a new one. */
template <typename T> static T *take(std::vector<T *> &spares) {
    if (spares.empty()) return new T();
    T *one = spares.back();
    spares.pop_back();
    return one;
}

static void start_block(const item_p &item, int sm) {
    block_t *block = take(spare_blocks);
    block->item = item;
    block->index = (unsigned)item->blocks_started++;
    block->sm = sm;
    block->alive = item->work.launch.block.x;
    block->released = false;
    for (shared_t &shared : block->shared) memset(shared.words.data(), 0xA5, shared.words.size() * 8);
    item->blocks_alive++;
    devices[item->device].room[sm] -= (int)block->alive;
    for (unsigned t = 0; t < block->alive; t++) {
        fiber_t *fiber = take(spare);
        fiber->block = block;
        fiber->index = t;
        fiber->ended = false;
        hostrun::stack_begin(fiber, fiber_main);
        next.push_back(fiber);
    }
}

/* With the lock held. */
static void start_blocks(device_t &device) {
    while (!device.kernels.empty()) {
        item_p item = device.kernels.front();
        int sm = 0;
        for (int s = 1; s < SMS; s++)
            if (device.room[s] > device.room[sm]) sm = s;
        if (device.room[sm] < (int)item->work.launch.block.x) return;
        start_block(item, sm);
        progress = true;
        if (item->blocks_started == item->work.launch.grid.x) device.kernels.pop_front();
    }
}

/* ------------------------------------------------------------------ the thread */

static void act(std::unique_lock<std::mutex> &held) {
    while (!actions.empty()) {
        item_p item = std::move(actions.front());
        actions.pop_front();
        held.unlock();
        item->work.act();
        held.lock();
        item_work_ended(item);
    }
}

static void look_for_news() {
    std::unique_lock<std::mutex> held(lock);
    for (;;) {
        news.store(false, std::memory_order_relaxed);
        act(held);
        for (int d = 0; d < DEVICES_MAX; d++) start_blocks(devices[d]);
        if (!next.empty() || !now.empty()) return;
        if (!actions.empty()) continue;
        idle = true;
        came.wait(held, [] { return news.load(std::memory_order_relaxed); });
        idle = false;
    }
}

static void round() {
    std::swap(now, next);
    for (size_t i = 0; i < now.size(); i++) {
        current = now[i];
        const hostrun::launch_t &launch = current->block->item->work.launch;
        hostrun::stack_enter(current,
                             {{current->index, 0, 0}, {current->block->index, 0, 0}, launch.block, launch.grid});
    }
    now.clear();
}

/* All wait: for other processes, for the host's threads, or for a time. In a long wait a round costs more than it is
 * worth. */
static void give_the_core_away(int rounds) {
    const struct timespec nap = {0, 50000 + 200 * (long)next.size()};
    if (rounds < 20)
        sched_yield();
    else
        nanosleep(&nap, nullptr);
}

static void play() {
    int in_vain = 0;
    for (;;) {
        if (news.load(std::memory_order_relaxed) || next.empty()) look_for_news();
        progress = false;
        round();
        in_vain = progress ? 0 : in_vain + 1;
        if (in_vain > 1) give_the_core_away(in_vain);
    }
}

void device_start_thread() {
    for (int d = 0; d < DEVICES_MAX; d++)
        for (int &room : devices[d].room) room = SM_THREADS;
    std::thread(play).detach();
}

} // namespace host_cuda

/* ------------------------------------------------------------------ what kernels call */

namespace hostrun {

using host_cuda::current;
using host_cuda::fiber_t;

static void fail(const char *what) {
    fprintf(stderr, "cuda_on_host: block %u thread %u: %s\n", current->block->index, current->index, what);
    abort();
}

static void leave_until_woken() {
    host_cuda::progress = true;
    stack_leave(current, false);
}

static void wake(std::vector<fiber_t *> &met) {
    host_cuda::next.insert(host_cuda::next.end(), met.begin(), met.end());
    met.clear();
}

void strong_store(void *to, const void *value, int bytes) {
    if (bytes == 16) { /* in one piece */
        _mm_store_si128((__m128i *)to, _mm_loadu_si128((const __m128i *)value));
    } else if (bytes == 8) {
        uint64_t word;
        memcpy(&word, value, 8);
        __atomic_store_n((uint64_t *)to, word, __ATOMIC_RELAXED);
    } else {
        uint32_t word;
        memcpy(&word, value, 4);
        __atomic_store_n((uint32_t *)to, word, __ATOMIC_RELAXED);
    }
    asm volatile("" ::: "memory");
}

void strong_load(const void *from, void *value, int bytes) {
    asm volatile("" ::: "memory");
    if (bytes == 16) {
        _mm_storeu_si128((__m128i *)value, _mm_load_si128((const __m128i *)from));
    } else if (bytes == 8) {
        uint64_t word = __atomic_load_n((const uint64_t *)from, __ATOMIC_RELAXED);
        memcpy(value, &word, 8);
    } else {
        uint32_t word = __atomic_load_n((const uint32_t *)from, __ATOMIC_RELAXED);
        memcpy(value, &word, 4);
    }
}

void prefetch(const void *at) {
    (void)*(const volatile char *)at;
}

uint64_t strong_claim(uint64_t *word, uint64_t value) {
    uint64_t there = 0;
    __atomic_compare_exchange_n(word, &there, value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
    return there;
}

uint32_t strong_add(uint32_t *word, uint32_t number) {
    return __atomic_fetch_add(word, number, __ATOMIC_SEQ_CST);
}

void fence() {
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}

void acquire() {
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
}

void barrier() {
    host_cuda::block_t *block = current->block;
    if (block->alive != block->item->work.launch.block.x) fail("__syncthreads, after a thread of the block has ended");
    block->all.met.push_back(current);
    if (block->all.met.size() == block->alive) wake(block->all.met);
    leave_until_woken();
}

bool team_any(unsigned id, unsigned threads, bool mine) {
    fiber_t *fiber = current;
    std::vector<fiber_t *> &met = fiber->block->teams[id].met;
    if (fiber->index >= threads || threads % 32 != 0) fail("a barrier that is not for it");
    fiber->any = mine;
    met.push_back(fiber);
    if (met.size() == threads) {
        bool any = false;
        for (const fiber_t *other : met) any = any || other->any;
        for (fiber_t *other : met) other->any = any;
        wake(met);
    }
    leave_until_woken();
    return fiber->any;
}

float warp_exchange(float x, int bits) {
    fiber_t *fiber = current;
    std::vector<fiber_t *> &met = fiber->block->warps[fiber->index / 32].met;
    fiber->exchange = x;
    met.push_back(fiber);
    if (met.size() == 32) {
        float given[32];
        for (const fiber_t *other : met) given[other->index % 32] = other->exchange;
        for (fiber_t *other : met) other->exchange = given[(other->index ^ (unsigned)bits) % 32];
        wake(met);
    }
    leave_until_woken();
    return fiber->exchange;
}

void *block_memory(const char *name, size_t bytes) {
    for (host_cuda::shared_t &shared : current->block->shared)
        if (strcmp(shared.name, name) == 0 && shared.words.size() * 8 >= bytes) return shared.words.data();
    current->block->shared.push_back({name, std::vector<uint64_t>((bytes + 7) / 8, 0xA5A5A5A5A5A5A5A5u)});
    return current->block->shared.back().words.data();
}

void pause() {
    host_cuda::next.push_back(current);
    stack_leave(current, false);
}

uint64_t clock_ns() {
    return host_cuda::now_ns();
}

void await_predecessor() {
    while (current->block->item->before_left.load(std::memory_order_acquire) != 0) pause();
}

void release_successor() {
    host_cuda::block_t *block = current->block;
    if (block->released) return;
    block->released = true;
    std::lock_guard<std::mutex> held(host_cuda::lock);
    if (++block->item->blocks_released == block->item->work.launch.grid.x) host_cuda::item_released(block->item);
}

cudaError_t launch_on(cudaStream_t handle, launch_t launch) {
    using namespace host_cuda;
    static const char *const kernels = getenv("CUDA_ON_HOST_KERNELS");
    static const bool none = kernels != nullptr && strcmp(kernels, "none") == 0;
    if (none) return cudaSuccess;
    return runtime_call("cudaLaunchKernelExC", CONTEXT_NEEDED, [&](std::unique_lock<std::mutex> &held) {
        stream_t *stream = stream_of(handle);
        unsigned threads = launch.block.x * launch.block.y * launch.block.z;
        if (stream == nullptr || stream->context != current_context()) return cudaErrorInvalidResourceHandle;
        if (launch.grid.x == 0 || launch.grid.y * launch.grid.z != 1 || launch.block.y * launch.block.z != 1 ||
            threads == 0 || threads > SM_THREADS)
            return cudaErrorInvalidConfiguration;
        bool early = launch.early;
        if (stream->capture == nullptr) stream_make_room(held, stream);
        return stream_put(stream, {work_t::KERNEL, nullptr, std::move(launch)}, early);
    });
}

} // namespace hostrun
