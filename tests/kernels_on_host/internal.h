/* SPDX-License-Identifier: Apache-2.0 */
/** What the harness' files share: fiber.cc, sched.cc, memory.cc, race.cc. */
#ifndef TPC_KERNELS_ON_HOST_INTERNAL_H
#define TPC_KERNELS_ON_HOST_INTERNAL_H

#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "hostrun.h"
#include "stack.h"

namespace hostrun {

struct block_t;
struct known_t;

/** A strong load since the last pause. */
struct seen_t {
    const char *at;
    int bytes;
    unsigned char value[16];
};

/** A plain access that was announced and happens after the announcement: what memory is to be when the thread comes
 * back. */
struct plain_t {
    enum { NONE, STORE, OLD_VALUE } kind;
    char *at;
    int bytes;
    unsigned char memory[16];
};

enum fiber_state_t { READY, ASLEEP, AT_BARRIER, AT_PREDECESSOR, ENDED };

/** One thread of a kernel. */
struct fiber_t : stack_user_t {
    block_t *block;
    int index; /**< in its block */
    uint3 thread_index;
    fiber_state_t state;
    int place; /**< in block->ready; -1 */
    bool victim;
    bool awaited; /**< the launches before its own have ended, and it knows */
    std::vector<seen_t> seen;
    uint64_t sleeps; /**< so far; tells an old wake-up call from a new one */

    uint32_t barriers;    /**< passed */
    uint64_t sees_all_to; /**< memory time: no older value is seen any more */
    plain_t plain;
    float exchange; /**< what it gives to its warp, then what it gets */
    bool any;       /**< what it gives to a team, then what it gets */

    std::shared_ptr<known_t> known;            /**< accesses that happened before this thread's next one */
    bool known_is_own;                         /**< nobody else holds it */
    std::shared_ptr<known_t> released, loaded; /**< at the last fence; by loads since then */
    uint32_t fences;
};

/** A store that has not reached memory. */
struct store_t {
    char *to;
    int bytes;
    unsigned char value[16];
    int thread;
    uint32_t barriers;
};

struct grid_t {
    launch_t launch;
    int rank, number;
    uint64_t start_ns = 0;
    std::vector<int> order; /**< of its blocks */
    size_t started = 0;
    int alive = 0;                  /**< blocks that run, or whose stores wait */
    size_t released = 0;            /**< blocks that have released the next launch, or ended */
    std::vector<fiber_t *> waiting; /**< for the launch before */
    std::shared_ptr<known_t> known_at_start, known_at_end;
};

struct block_t {
    grid_t *grid;
    int rank;
    uint32_t index; /**< in the scenario */
    uint3 block_index;
    std::vector<fiber_t *> fibers, ready, at_barrier;
    std::map<unsigned, std::vector<fiber_t *>> at_team_barrier; /**< by its number */
    std::map<int, std::vector<fiber_t *>> at_exchange;          /**< by warp */
    std::map<std::string, std::vector<uint64_t>> shared;
    size_t alive;
    int place, buffer_place; /**< in rank_t.active and in scenario_t.buffers; -1 */
    uint32_t barriers;
    bool released;
    std::vector<store_t> buffer; /**< in program order, as far as there is one */
};

struct allocation_t {
    char *from;
    size_t bytes;
    std::string name;
};

struct rank_t {
    std::deque<grid_t *> queue;
    std::vector<block_t *> active; /**< blocks that have a ready fiber */
    double weight = 1;
    int enqueued = 0, ended = 0;
    size_t used = 0; /**< bytes of its memory */
    std::vector<allocation_t> allocations;
};

struct event_t {
    int64_t step;
    std::function<void()> act;
};

struct scenario_t {
    config_t config;
    result_t result;
    random_t random{0};
    int ranks = 0;
    rank_t rank[MAX_RANKS];
    std::vector<std::unique_ptr<grid_t>> grids;
    std::vector<std::unique_ptr<block_t>> blocks;
    std::vector<block_t *> buffers; /**< blocks whose stores wait */
    std::vector<event_t> events;    /**< next one last */
    std::function<std::string(int, int)> launch_starts;
    std::function<void(uint64_t)> clock_goes_on;
    int ready = 0;
    size_t unstarted = 0; /**< blocks */
    int64_t weights_change = 0;
    uint64_t clock_ns = 1000000;
    bool failed = false, running = false;
};

extern scenario_t scenario;
/** The thread that runs now; NULL: the scheduler or the test. */
extern fiber_t *current;

/* fiber.cc */
fiber_t *fiber_new();
/** All fibers are free again. */
void fibers_reset();
/** Run a fiber until it leaves. */
void fiber_enter(fiber_t *fiber);
/** Back to the scheduler; returns when it is entered again. */
void fiber_leave();

/* sched.cc */
void fiber_ended(fiber_t *fiber);
void block_drained(block_t *block);
/** A strong access: a step, and perhaps another fiber. */
void step();
/** A store changed memory here. */
void wake(const char *at, int bytes);

/* memory.cc */
void memory_reset();
/** The clock goes on by milliseconds: no load returns what was there before. */
void memory_time_passes();
/** What was stored before a thread's launch, the thread sees. */
void memory_fiber_start(fiber_t *fiber);
bool is_device(const void *at);
/** Number of the 16-byte piece of device memory, the same in every process. */
uint64_t piece_of(const void *at);
/** "rank 2's out of call 3 + 0x10" */
std::string describe_address(const void *at);
/** Let a pending plain access take effect; at each entry of the harness. */
void settle(fiber_t *fiber);
/** One waiting store of the block reaches memory: entry i, or what must be there before it. */
void flush_one(block_t *block, size_t i);

/* race.cc */
void race_reset();
void race_grid_start(grid_t *grid);
void race_grid_end(grid_t *grid);
void race_fiber_start(fiber_t *fiber);
void race_fiber_end(fiber_t *fiber);
/** It knows now what the launches before its own did. */
void race_awaited(fiber_t *fiber);
void race_barrier(const std::vector<fiber_t *> &met);
void race_access(const void *at, int bytes, bool write, bool strong, const void *pc);
void race_strong_store(const void *to);
void race_strong_load(const void *from);
void race_claim(const void *word);
void race_fence();
void race_acquire();

} // namespace hostrun

#endif
