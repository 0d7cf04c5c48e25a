/* SPDX-License-Identifier: Apache-2.0 */
/* Device memory: strong and plain accesses, stores that wait in buffers, loads of old values. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <algorithm>
#include <unordered_map>

#include "internal.h"

#ifndef __has_feature
#define __has_feature(feature) 0
#endif
#if defined(__SANITIZE_ADDRESS__) || __has_feature(address_sanitizer)
#include <sanitizer/asan_interface.h>
#else
#define __asan_poison_memory_region(at, bytes)   ((void)(at), (void)(bytes))
#define __asan_unpoison_memory_region(at, bytes) ((void)(at), (void)(bytes))
#endif

namespace hostrun {

static const size_t RANK_BYTES = 1u << 30; /* of address space */
static const size_t RED_ZONE = 256;

static char *memory;

/** What 16 bytes of memory were before their last stores. */
struct history_t {
    struct {
        uint64_t ended; /**< memory time */
        uint32_t block; /**< that stored */
        unsigned char value[16];
    } old[4];
    int count;
};
static std::unordered_map<uint64_t, history_t> histories;
/** Per thread and 16 bytes: the memory time of what it saw last. No thread sees them go back. */
static std::unordered_map<uint64_t, uint64_t> last_seen;
static uint64_t memory_time;

uint64_t piece_of(const void *at) {
    return (uint64_t)((const char *)at - memory) / 16;
}

static bool overlap(const char *a, int a_bytes, const char *b, int b_bytes) {
    return a < b + b_bytes && b < a + a_bytes;
}

/* ------------------------------------------------------------------ allocations */

bool is_device(const void *at) {
    return (size_t)((const char *)at - memory) < MAX_RANKS * RANK_BYTES;
}

static int owner_of(const void *at) {
    return (int)((size_t)((const char *)at - memory) / RANK_BYTES);
}

void memory_reset() {
    if (memory == nullptr) {
        void *mapped = mmap(nullptr, MAX_RANKS * RANK_BYTES, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (mapped == MAP_FAILED) abort();
        memory = (char *)mapped;
    }
    for (int r = 0; r < MAX_RANKS; r++)
        __asan_unpoison_memory_region(memory + (size_t)r * RANK_BYTES, scenario.rank[r].used);
    histories.clear();
    last_seen.clear();
    memory_time = 1;
}

unsigned char *allocate(int rank, size_t bytes, const char *name) {
    rank_t &r = scenario.rank[rank];
    size_t rounded = (bytes + 255) / 256 * 256;
    char *at = memory + (size_t)rank * RANK_BYTES + r.used + RED_ZONE;
    r.used += rounded + 2 * RED_ZONE;
    if (r.used > RANK_BYTES) abort();
    for (size_t i = 0; i < rounded; i += 8) {
        uint64_t garbage = scenario.random.bits();
        memcpy(at + i, &garbage, 8);
    }
    __asan_poison_memory_region(at - RED_ZONE, RED_ZONE);
    __asan_poison_memory_region(at + bytes, rounded - bytes + RED_ZONE);
    r.allocations.push_back({at, bytes, name});
    return (unsigned char *)at;
}

static const allocation_t *find_allocation(const void *at) {
    const std::vector<allocation_t> &all = scenario.rank[owner_of(at)].allocations;
    auto behind = std::upper_bound(all.begin(), all.end(), (const char *)at,
                                   [](const char *address, const allocation_t &a) { return address < a.from; });
    return behind == all.begin() ? nullptr : &*(behind - 1);
}

std::string describe_address(const void *at) {
    char text[160];
    const allocation_t *allocation = find_allocation(at);
    snprintf(text, sizeof(text), "rank %d's %s + %#zx", owner_of(at),
             allocation == nullptr ? "memory" : allocation->name.c_str(),
             (size_t)((const char *)at - (allocation == nullptr ? memory : allocation->from)));
    return text;
}

static void check_bounds(const void *at, int bytes, const char *what) {
    const allocation_t *allocation = find_allocation(at);
    if (allocation == nullptr || (const char *)at + bytes > allocation->from + allocation->bytes)
        fail("%s of %d bytes outside any allocation: %s", what, bytes, describe_address(at).c_str());
}

/* ------------------------------------------------------------------ stores */

/** 16 bytes, of which some may lie in a red zone. */
__attribute__((no_sanitize("address"))) static void read_piece(uint64_t piece, unsigned char *value) {
    const volatile uint64_t *from = (const volatile uint64_t *)(memory + piece * 16);
    uint64_t words[2] = {from[0], from[1]};
    memcpy(value, words, 16);
}

static void apply(char *to, const void *value, int bytes, uint32_t block) {
    memory_time++;
    if (scenario.config.stale_chance > 0) {
        for (uint64_t piece = piece_of(to); piece <= piece_of(to + bytes - 1); piece++) {
            history_t &history = histories[piece];
            if (history.count == 4) memmove(history.old, history.old + 1, 3 * sizeof(history.old[0])), history.count--;
            auto &old = history.old[history.count++];
            old.ended = memory_time;
            old.block = block;
            read_piece(piece, old.value);
        }
    }
    memcpy(to, value, (size_t)bytes);
    wake(to, bytes);
}

void host_store(uint64_t *word, uint64_t value) {
    apply((char *)word, &value, 8, UINT32_MAX);
}

void memory_time_passes() {
    histories.clear();
}

/** Whether a store comes before a later access of this thread, at this number of barriers: in the order of the block's
 * program. */
static bool precedes(const store_t &store, int thread, uint32_t barriers) {
    return store.thread == thread || store.barriers < barriers;
}

void flush_one(block_t *block, size_t i) {
    /* Of stores to the same bytes that have an order, the first goes first. */
    for (size_t j = 0; j < i; j++) {
        const store_t &before = block->buffer[j], &after = block->buffer[i];
        if (!precedes(before, after.thread, after.barriers) || !overlap(before.to, before.bytes, after.to, after.bytes))
            continue;
        i = j;
        j = (size_t)-1;
    }
    store_t store = block->buffer[i];
    block->buffer.erase(block->buffer.begin() + (ptrdiff_t)i);
    apply(store.to, store.value, store.bytes, block->index);
    if (!block->buffer.empty()) return;
    std::vector<block_t *> &buffers = scenario.buffers;
    buffers[(size_t)block->buffer_place] = buffers.back();
    buffers[(size_t)block->buffer_place]->buffer_place = block->buffer_place;
    buffers.pop_back();
    block->buffer_place = -1;
    if (block->alive == 0) block_drained(block);
}

static void store(fiber_t *fiber, char *to, const void *value, int bytes) {
    block_t *block = fiber->block;
    if (!scenario.config.weak) {
        apply(to, value, bytes, block->index);
        return;
    }
    while (block->buffer.size() >= (size_t)scenario.config.buffer_capacity)
        flush_one(block, scenario.random.below((uint32_t)block->buffer.size()));
    if (block->buffer.empty()) {
        block->buffer_place = (int)scenario.buffers.size();
        scenario.buffers.push_back(block);
    }
    store_t entry = {to, bytes, {}, fiber->index, fiber->barriers};
    memcpy(entry.value, value, (size_t)bytes);
    block->buffer.push_back(entry);
}

/** Flush what precedes this thread's next access: everything, or what overlaps these bytes. */
static void drain(fiber_t *fiber, const char *at, int bytes) {
    block_t *block = fiber->block;
    for (size_t i = 0; i < block->buffer.size();) {
        const store_t &entry = block->buffer[i];
        bool wanted = at == nullptr || overlap(entry.to, entry.bytes, at, bytes);
        if (!wanted || !precedes(entry, fiber->index, fiber->barriers)) {
            i++;
            continue;
        }
        flush_one(block, i);
        i = 0;
    }
}

/* ------------------------------------------------------------------ loads */

/** Put the bytes of this block's waiting stores that the thread must see into value; whether there are any. */
static bool forward(const fiber_t *fiber, const char *from, int bytes, unsigned char *value) {
    bool any = false;
    for (const store_t &entry : fiber->block->buffer) {
        if (!overlap(entry.to, entry.bytes, from, bytes) || !precedes(entry, fiber->index, fiber->barriers)) continue;
        any = true;
        for (int i = 0; i < entry.bytes; i++) {
            ptrdiff_t at = entry.to + i - from;
            if (at >= 0 && at < bytes) value[at] = entry.value[i];
        }
    }
    return any;
}

/** Perhaps an older value, one that the thread may still see; its own block's stores end that. */
static bool old_value(const fiber_t *fiber, const char *from, int bytes, unsigned char *value) {
    if (scenario.config.stale_chance <= 0 || piece_of(from) != piece_of(from + bytes - 1)) return false;
    auto found = histories.find(piece_of(from));
    if (found == histories.end()) return false;
    const history_t &history = found->second;
    uint64_t &seen = last_seen[((uint64_t)fiber->block->index * 1024 + (uint64_t)fiber->index) << 36 ^ piece_of(from)];
    uint64_t oldest = std::max(fiber->sees_all_to, seen);
    int first = history.count;
    while (first > 0 && history.old[first - 1].ended > oldest && history.old[first - 1].block != fiber->block->index)
        first--;
    if (first == history.count || !scenario.random.chance(scenario.config.stale_chance)) {
        seen = memory_time;
        return false;
    }
    const auto &old = history.old[scenario.random.between(first, history.count - 1)];
    memcpy(value, old.value + (uint64_t)from % 16, (size_t)bytes);
    seen = old.ended - 1;
    return true;
}

void memory_fiber_start(fiber_t *fiber) {
    fiber->sees_all_to = memory_time;
}

/* ------------------------------------------------------------------ strong accesses */

static void remember_seen(fiber_t *fiber, const char *from, int bytes, const void *value) {
    for (seen_t &seen : fiber->seen) {
        if (seen.at != from) continue;
        memcpy(seen.value, value, (size_t)bytes);
        return;
    }
    if (fiber->seen.size() >= 64) return;
    seen_t seen = {from, bytes, {}};
    memcpy(seen.value, value, (size_t)bytes);
    fiber->seen.push_back(seen);
}

void strong_store(void *to, const void *value, int bytes) {
    int piece = scenario.config.tear && bytes > 8 ? 8 : bytes;
    for (int done = 0; done < bytes; done += piece) {
        step();
        check_bounds((char *)to + done, piece, "a strong store");
        if (scenario.config.race) {
            race_access((char *)to + done, piece, true, true, __builtin_return_address(0));
            race_strong_store((char *)to + done);
        }
        store(current, (char *)to + done, (const char *)value + done, piece);
    }
}

void strong_load(const void *from, void *value, int bytes) {
    int piece = scenario.config.tear && bytes > 8 ? 8 : bytes;
    for (int done = 0; done < bytes; done += piece) {
        const char *at = (const char *)from + done;
        unsigned char *to = (unsigned char *)value + done;
        step();
        fiber_t *fiber = current;
        check_bounds(at, piece, "a strong load");
        memcpy(to, at, (size_t)piece);
        if (!forward(fiber, at, piece, to)) old_value(fiber, at, piece, to);
        remember_seen(fiber, at, piece, to);
        if (scenario.config.race) {
            race_access(at, piece, false, true, __builtin_return_address(0));
            race_strong_load(at);
        }
    }
}

void prefetch(const void *at) {
    check_bounds(at, 1, "a prefetch");
}

uint64_t strong_claim(uint64_t *word, uint64_t value) {
    step();
    check_bounds(word, 8, "a read-modify-write");
    if (scenario.config.race) {
        race_access(word, 8, true, true, __builtin_return_address(0));
        race_claim(word);
    }
    drain(current, (const char *)word, 8);
    uint64_t before = *word;
    if (before == 0) apply((char *)word, &value, 8, current->block->index);
    return before;
}

uint32_t strong_add(uint32_t *word, uint32_t number) {
    step();
    check_bounds(word, 4, "a read-modify-write");
    if (scenario.config.race) {
        race_access(word, 4, true, true, __builtin_return_address(0));
        race_claim(word);
    }
    drain(current, (const char *)word, 4);
    uint32_t before = *word, after = before + number;
    apply((char *)word, &after, 4, current->block->index);
    return before;
}

void fence() {
    step();
    drain(current, nullptr, 0);
    current->sees_all_to = memory_time;
    if (scenario.config.race) race_fence();
}

void acquire() {
    current->sees_all_to = memory_time;
    if (scenario.config.race) race_acquire();
}

/* ------------------------------------------------------------------ plain accesses */

void settle(fiber_t *fiber) {
    plain_t plain = fiber->plain;
    if (plain.kind == plain_t::NONE) return;
    fiber->plain.kind = plain_t::NONE;
    unsigned char now[16];
    memcpy(now, plain.at, (size_t)plain.bytes);
    memcpy(plain.at, plain.memory, (size_t)plain.bytes);
    if (plain.kind == plain_t::STORE) store(fiber, plain.at, now, plain.bytes);
}

/* The access itself comes after this call. Memory is as the thread must find it until it comes back: settle() repairs
 * that. */
static bool announce(const void *at, int bytes, bool write, const void *pc) {
    if (current == nullptr || !scenario.running || !is_device(at)) return false;
    settle(current);
    check_bounds(at, bytes, write ? "a store" : "a load");
    if (scenario.random.chance(scenario.config.plain_switch_chance)) step();
    if (scenario.config.race) race_access(at, bytes, write, false, pc);
    return scenario.config.weak;
}

void plain_load(const void *from, int bytes, const void *pc) {
    if (!announce(from, bytes, false, pc)) return;
    plain_t &plain = current->plain;
    unsigned char value[16];
    memcpy(plain.memory, from, (size_t)bytes);
    memcpy(value, from, (size_t)bytes);
    if (!forward(current, (const char *)from, bytes, value) && !old_value(current, (const char *)from, bytes, value))
        return;
    plain.kind = plain_t::OLD_VALUE;
    plain.at = (char *)from;
    plain.bytes = bytes;
    memcpy(plain.at, value, (size_t)bytes);
}

void plain_store(void *to, int bytes, const void *pc) {
    if (!announce(to, bytes, true, pc)) return;
    plain_t &plain = current->plain;
    memcpy(plain.memory, to, (size_t)bytes);
    plain.kind = plain_t::STORE;
    plain.at = (char *)to;
    plain.bytes = bytes;
}

} // namespace hostrun
