/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Race detector: two accesses to the same byte, one of them a store, one of them plain, and neither happened before the
 * other.
 *
 * Before come: the same thread; an earlier barrier of the block; an earlier launch of the rank's stream; a fence,
 * strong store, strong load of that store, fence. What a thread knows of others is kept by whole launches and by
 * barriers of blocks where that is enough, so that a clock per thread of every grid is never needed.
 */
#include <stdio.h>

#include <algorithm>
#include <unordered_map>

#include "internal.h"

namespace hostrun {

struct thread_known_t {
    uint32_t block, thread;
    uint32_t fences;   /**< everything before its fence of this number */
    uint32_t barriers; /**< that its block had passed then */
};

/** A set of accesses. */
struct known_t {
    int launches[MAX_RANKS] = {};                  /**< of each rank: all before this number */
    std::unordered_map<uint32_t, uint32_t> blocks; /**< all before a block's barrier of this number */
    std::vector<thread_known_t> threads;
    void join(const known_t &other);
};
typedef std::shared_ptr<known_t> known_p;

struct access_t {
    uint32_t block, thread, fences, barriers;
    const void *pc;      /**< NULL: no access */
    unsigned char bytes; /**< of the cell: a mask */
    bool strong;
};

/** Four bytes of memory. Two readers are remembered: more may be missed, none is invented. */
struct cell_t {
    access_t store, load[2];
    unsigned next;
};

static std::unordered_map<uint64_t, cell_t> cells;
/** Who reads this store after a fence of its thread, and fences then, knows this. */
static std::unordered_map<uint64_t, known_p> releases;
static known_p rank_known[MAX_RANKS];

void known_t::join(const known_t &other) {
    for (int r = 0; r < MAX_RANKS; r++) launches[r] = std::max(launches[r], other.launches[r]);
    for (const auto &entry : other.blocks) blocks[entry.first] = std::max(blocks[entry.first], entry.second);
    for (const thread_known_t &theirs : other.threads) {
        auto same = std::find_if(threads.begin(), threads.end(), [&](const thread_known_t &mine) {
            return mine.block == theirs.block && mine.thread == theirs.thread;
        });
        if (same == threads.end())
            threads.push_back(theirs);
        else if (same->fences < theirs.fences)
            *same = theirs;
    }
}

/** The thread's own copy of what it knows, to be changed. */
static known_t &own_known(fiber_t *fiber) {
    if (!fiber->known_is_own) fiber->known = std::make_shared<known_t>(*fiber->known);
    fiber->known_is_own = true;
    return *fiber->known;
}

static bool knows(const fiber_t *fiber, const access_t &access) {
    const block_t *theirs = scenario.blocks[access.block].get(), *mine = fiber->block;
    if (theirs == mine) {
        if (access.thread == (uint32_t)fiber->index || access.barriers < fiber->barriers) return true;
    } else if (theirs->rank == mine->rank && theirs->grid->number < mine->grid->number - !fiber->awaited) {
        return true;
    }
    const known_t &known = *fiber->known;
    if (theirs->grid->number < known.launches[theirs->rank]) return true;
    auto block = known.blocks.find(access.block);
    if (block != known.blocks.end() && access.barriers < block->second) return true;
    for (const thread_known_t &thread : known.threads) {
        if (thread.block != access.block) continue;
        if (access.barriers < thread.barriers) return true;
        if (thread.thread == access.thread) return access.fences <= thread.fences;
    }
    return false;
}

void race_reset() {
    cells.clear();
    releases.clear();
    for (known_p &known : rank_known) known = std::make_shared<known_t>();
}

void race_grid_start(grid_t *grid) {
    grid->known_at_start = rank_known[grid->rank];
    grid->known_at_end = nullptr;
}

void race_grid_end(grid_t *grid) {
    known_p known = std::make_shared<known_t>(*grid->known_at_start);
    if (grid->known_at_end) known->join(*grid->known_at_end);
    known->launches[grid->rank] = grid->number + 1;
    rank_known[grid->rank] = known;
}

void race_fiber_start(fiber_t *fiber) {
    fiber->known = fiber->block->grid->known_at_start;
    fiber->known_is_own = false;
    fiber->released = fiber->loaded = nullptr;
    fiber->fences = 0;
}

void race_awaited(fiber_t *fiber) {
    own_known(fiber).join(*rank_known[fiber->block->rank]);
}

void race_fiber_end(fiber_t *fiber) {
    grid_t *grid = fiber->block->grid;
    if (fiber->known == grid->known_at_start) return;
    if (!grid->known_at_end) grid->known_at_end = std::make_shared<known_t>();
    grid->known_at_end->join(*fiber->known);
}

/** All threads of the block know what each of them knew; that they know each other's accesses follows from the number
 * of barriers. */
void race_barrier(const std::vector<fiber_t *> &met) {
    const known_p &first = met.front()->known;
    bool same = std::all_of(met.begin(), met.end(), [&](const fiber_t *fiber) { return fiber->known == first; });
    if (same) return;
    known_p known = std::make_shared<known_t>();
    for (const fiber_t *fiber : met) known->join(*fiber->known);
    for (fiber_t *fiber : met) {
        fiber->known = known;
        fiber->known_is_own = false;
    }
}

[[noreturn]] static void report_race(const void *at, bool write, const void *pc, const access_t &earlier,
                                     bool earlier_write) {
    extern const char here __asm__("__executable_start");
    const block_t *block = scenario.blocks[earlier.block].get();
    fail("race on %s: %s here (%#zx in the program), %s by rank %d launch %d block %u thread %u (%#zx in the program)",
         describe_address(at).c_str(), write ? "a store" : "a load", (size_t)((const char *)pc - &here),
         earlier_write ? "a store" : "a load", block->rank, block->grid->number, block->block_index.x, earlier.thread,
         (size_t)((const char *)earlier.pc - &here));
}

void race_access(const void *at, int bytes, bool write, bool strong, const void *pc) {
    fiber_t *fiber = current;
    const char *from = (const char *)at, *end = from + bytes;
    for (uint64_t place = (uint64_t)from / 4; place <= (uint64_t)(end - 1) / 4; place++) {
        cell_t &cell = cells[place];
        access_t mine = {fiber->block->index, (uint32_t)fiber->index, fiber->fences, fiber->barriers, pc, 0, strong};
        for (unsigned b = 0; b < 4; b++) {
            const char *byte = (const char *)(place * 4 + b);
            if (byte >= from && byte < end) mine.bytes |= (unsigned char)(1u << b);
        }
        auto races = [&](const access_t &other) {
            return other.pc != nullptr && (other.bytes & mine.bytes) != 0 && !(other.strong && strong) &&
                   !knows(fiber, other);
        };
        if (races(cell.store)) report_race((const void *)(place * 4), write, pc, cell.store, true);
        if (write) {
            for (access_t &load : cell.load)
                if (races(load)) report_race((const void *)(place * 4), write, pc, load, false);
            cell.store = mine;
            if (mine.bytes == 15) cell.load[0].pc = cell.load[1].pc = nullptr;
            continue;
        }
        access_t *slot = nullptr;
        for (access_t &load : cell.load)
            if (slot == nullptr && (load.pc == nullptr || (load.block == mine.block && load.thread == mine.thread)))
                slot = &load;
        if (slot == nullptr) slot = &cell.load[cell.next++ % 2];
        *slot = mine;
    }
}

void race_strong_store(const void *to) {
    if (current->released)
        releases[(uint64_t)to] = current->released;
    else if (!releases.empty())
        releases.erase((uint64_t)to);
}

void race_strong_load(const void *from) {
    auto found = releases.find((uint64_t)from);
    if (found == releases.end()) return;
    if (!current->loaded) current->loaded = std::make_shared<known_t>();
    current->loaded->join(*found->second);
}

/** A read-modify-write hands on what the store that it read released. */
void race_claim(const void *word) {
    race_strong_load(word);
    if (!current->released) return;
    known_p known = std::make_shared<known_t>(*current->released);
    known_p &release = releases[(uint64_t)word];
    if (release) known->join(*release);
    release = known;
}

void race_acquire() {
    fiber_t *fiber = current;
    if (fiber->loaded) own_known(fiber).join(*fiber->loaded);
    fiber->loaded = nullptr;
}

void race_fence() {
    fiber_t *fiber = current;
    race_acquire();
    fiber->released = std::make_shared<known_t>(*fiber->known);
    fiber->released->threads.push_back({fiber->block->index, (uint32_t)fiber->index, fiber->fences, fiber->barriers});
    fiber->fences++;
}

} // namespace hostrun
