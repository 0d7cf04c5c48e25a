/* SPDX-License-Identifier: Apache-2.0 */
/* The scheduler: ranks with one stream each, launches, blocks, barriers, sleep, and what happens when nobody can go on.
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <algorithm>
#include <map>

#include "internal.h"

namespace hostrun {

scenario_t scenario;

/** Who sleeps until a 16-byte piece of memory changes. */
struct sleeper_t {
    fiber_t *fiber;
    uint64_t sleep;
};
static std::map<uint64_t, std::vector<sleeper_t>> sleepers;

static const uint64_t PATIENCE_NS = 20000000; /* by which the clock goes on when all sleep */
static const size_t SEEN_MAX = 64;

static void note_failure(outcome_t outcome, const std::string &message) {
    if (scenario.failed) return;
    scenario.failed = true;
    scenario.result.outcome = outcome;
    scenario.result.message = message;
}

static std::string describe_thread(const block_t *block, int thread) {
    char text[100];
    snprintf(text, sizeof(text), "rank %d launch %d block %u thread %d", block->rank, block->grid->number,
             block->block_index.x, thread);
    return text;
}

void fail(const char *format, ...) {
    char text[600];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    note_failure(FAILED, describe_thread(current->block, current->index) + ": " + text);
    for (;;) fiber_leave(); /* and is never entered again */
}

/* ------------------------------------------------------------------ who is ready */

static void make_ready(fiber_t *fiber) {
    block_t *block = fiber->block;
    fiber->state = READY;
    fiber->place = (int)block->ready.size();
    block->ready.push_back(fiber);
    scenario.ready++;
    if (block->ready.size() > 1) return;
    block->place = (int)scenario.rank[block->rank].active.size();
    scenario.rank[block->rank].active.push_back(block);
}

static void take_off(fiber_t *fiber, fiber_state_t state) {
    block_t *block = fiber->block;
    fiber->state = state;
    block->ready[(size_t)fiber->place] = block->ready.back();
    block->ready[(size_t)fiber->place]->place = fiber->place;
    block->ready.pop_back();
    fiber->place = -1;
    scenario.ready--;
    if (!block->ready.empty()) return;
    std::vector<block_t *> &active = scenario.rank[block->rank].active;
    active[(size_t)block->place] = active.back();
    active[(size_t)block->place]->place = block->place;
    active.pop_back();
    block->place = -1;
}

static void count_step() {
    scenario.clock_ns++;
    if (++scenario.result.steps <= scenario.config.step_limit) return;
    note_failure(STEP_LIMIT, "step limit: threads run without an end");
    for (;;) fiber_leave();
}

void step() {
    settle(current);
    count_step();
    if (scenario.random.chance(scenario.config.switch_chance)) fiber_leave();
}

/* ------------------------------------------------------------------ sleep, barriers */

void pause() {
    fiber_t *fiber = current;
    step();
    bool changed = fiber->seen.size() >= SEEN_MAX;
    for (const seen_t &seen : fiber->seen) changed = changed || memcmp(seen.at, seen.value, (size_t)seen.bytes) != 0;
    if (!changed && !fiber->seen.empty()) {
        fiber->sleeps++;
        for (const seen_t &seen : fiber->seen) sleepers[piece_of(seen.at)].push_back({fiber, fiber->sleeps});
        take_off(fiber, ASLEEP);
        fiber_leave();
    }
    fiber->seen.clear();
}

static void wake_list(const std::vector<sleeper_t> &list) {
    for (const sleeper_t &sleeper : list)
        if (sleeper.fiber->state == ASLEEP && sleeper.fiber->sleeps == sleeper.sleep) make_ready(sleeper.fiber);
}

void wake(const char *at, int bytes) {
    if (sleepers.empty()) return;
    for (uint64_t piece = piece_of(at); piece <= piece_of(at + bytes - 1); piece++) {
        auto found = sleepers.find(piece);
        if (found == sleepers.end()) continue;
        std::vector<sleeper_t> list = std::move(found->second);
        sleepers.erase(found);
        wake_list(list);
    }
}

static void wake_all() {
    for (const auto &entry : sleepers) wake_list(entry.second);
    sleepers.clear();
}

/* All who have met go on, and know what each of them knew. */
static void release_barrier(block_t *block, std::vector<fiber_t *> &met) {
    uint64_t sees_all_to = 0;
    block->barriers++;
    for (const fiber_t *fiber : met) sees_all_to = std::max(sees_all_to, fiber->sees_all_to);
    if (scenario.config.race) race_barrier(met);
    for (fiber_t *fiber : met) {
        fiber->barriers = block->barriers;
        fiber->sees_all_to = sees_all_to;
        make_ready(fiber);
    }
    met.clear();
}

void barrier() {
    fiber_t *fiber = current;
    block_t *block = fiber->block;
    settle(fiber);
    count_step();
    if (block->alive != block->fibers.size()) fail("__syncthreads, after a thread of the block has ended");
    take_off(fiber, AT_BARRIER);
    block->at_barrier.push_back(fiber);
    if (block->at_barrier.size() == block->alive) release_barrier(block, block->at_barrier);
    fiber_leave();
}

bool team_any(unsigned id, unsigned threads, bool mine) {
    fiber_t *fiber = current;
    block_t *block = fiber->block;
    std::vector<fiber_t *> &met = block->at_team_barrier[id];
    settle(fiber);
    count_step();
    if ((unsigned)fiber->index >= threads || threads % 32 != 0)
        fail("barrier %u of %u threads, in thread %d", id, threads, fiber->index);
    fiber->any = mine;
    take_off(fiber, AT_BARRIER);
    met.push_back(fiber);
    if (met.size() == threads) {
        bool any = std::any_of(met.begin(), met.end(), [](const fiber_t *other) { return other->any; });
        for (fiber_t *other : met) other->any = any;
        release_barrier(block, met);
    }
    fiber_leave();
    return fiber->any;
}

float warp_exchange(float x, int bits) {
    fiber_t *fiber = current;
    std::vector<fiber_t *> &met = fiber->block->at_exchange[fiber->index / 32];
    settle(fiber);
    count_step();
    fiber->exchange = x;
    take_off(fiber, AT_BARRIER);
    met.push_back(fiber);
    if (met.size() == 32) {
        float given[32];
        for (const fiber_t *other : met) given[other->index % 32] = other->exchange;
        for (fiber_t *other : met) {
            other->exchange = given[(other->index ^ bits) % 32];
            make_ready(other);
        }
        met.clear();
    }
    fiber_leave();
    return fiber->exchange;
}

void *block_memory(const char *name, size_t bytes) {
    std::vector<uint64_t> &memory = current->block->shared[name];
    if (memory.empty())
        for (size_t i = 0; i < (bytes + 7) / 8; i++) memory.push_back(scenario.random.bits());
    return memory.data();
}

uint64_t clock_ns() {
    step();
    return scenario.clock_ns;
}

/* ------------------------------------------------------------------ launches */

/* The stream of rank r is the pointer r + 1. */
cudaError_t launch_on(cudaStream_t stream, launch_t launch) {
    enqueue((int)((intptr_t)stream - 1), std::move(launch));
    return cudaSuccess;
}

void enqueue(int rank, launch_t launch) {
    grid_t *grid = new grid_t();
    scenario.grids.emplace_back(grid);
    grid->rank = rank;
    grid->number = scenario.rank[rank].enqueued++;
    grid->order.resize(launch.grid.x);
    for (size_t i = 0; i < grid->order.size(); i++) grid->order[i] = (int)i;
    if (scenario.config.shuffle_blocks)
        for (size_t i = grid->order.size(); i > 1; i--)
            std::swap(grid->order[i - 1], grid->order[scenario.random.below((uint32_t)i)]);
    if (launch.grid.x == 0 || launch.grid.y * launch.grid.z != 1 || launch.block.y * launch.block.z != 1 ||
        launch.block.x - 1 >= 1024)
        note_failure(FAILED, "a launch with an empty or too large grid or block, or one of more than one dimension");
    scenario.unstarted += grid->order.size();
    grid->launch = std::move(launch);
    scenario.rank[rank].queue.push_back(grid);
}

void delay_last(int rank, uint64_t start_ns) {
    scenario.rank[rank].queue.back()->start_ns = start_ns;
}

void on_launch_start(std::function<std::string(int, int)> ask) {
    scenario.launch_starts = std::move(ask);
}

int launches_ended(int rank) {
    return scenario.rank[rank].ended;
}

/** The launch whose blocks may start now: the first one's, or one's that the first has released. */
static grid_t *startable(int rank) {
    const std::deque<grid_t *> &queue = scenario.rank[rank].queue;
    if (queue.empty()) return nullptr;
    grid_t *grid = queue.front();
    if (grid->started == grid->order.size()) {
        if (queue.size() == 1 || !queue[1]->launch.early || grid->released < grid->order.size()) return nullptr;
        grid = queue[1];
    }
    return grid->started < grid->order.size() && grid->start_ns <= scenario.clock_ns ? grid : nullptr;
}

/** A launch is the first of its rank that has not ended, and one of its blocks has started. */
static void launch_began(grid_t *grid) {
    std::string wrong = scenario.launch_starts ? scenario.launch_starts(grid->rank, grid->number) : "";
    if (!wrong.empty()) note_failure(FAILED, wrong);
}

static void start_block(int rank) {
    grid_t *grid = startable(rank);
    bool first = grid == scenario.rank[rank].queue.front();
    if (grid->started == 0) {
        if (scenario.config.race) race_grid_start(grid);
        if (first) launch_began(grid);
    }
    block_t *block = new block_t();
    scenario.blocks.emplace_back(block);
    scenario.unstarted--;
    block->grid = grid;
    block->rank = rank;
    block->index = (uint32_t)scenario.blocks.size() - 1;
    block->block_index = {(unsigned)grid->order[grid->started++], 0, 0};
    block->alive = grid->launch.block.x;
    block->place = block->buffer_place = -1;
    block->released = false;
    grid->alive++;
    double victims = scenario.config.victim_chance;
    bool victim_block = scenario.config.victim_blocks && scenario.random.chance(victims);
    for (unsigned t = 0; t < grid->launch.block.x; t++) {
        fiber_t *fiber = fiber_new();
        fiber->block = block;
        fiber->index = (int)t;
        fiber->thread_index = {t, 0, 0};
        fiber->victim = scenario.config.victim_blocks ? victim_block : scenario.random.chance(victims);
        fiber->seen.clear();
        fiber->barriers = 0;
        fiber->awaited = first;
        fiber->plain.kind = plain_t::NONE;
        memory_fiber_start(fiber);
        if (scenario.config.race) race_fiber_start(fiber);
        block->fibers.push_back(fiber);
        make_ready(fiber);
    }
}

static void note_awaited(fiber_t *fiber) {
    fiber->awaited = true;
    memory_fiber_start(fiber);
    if (scenario.config.race) race_awaited(fiber);
}

void await_predecessor() {
    fiber_t *fiber = current;
    step();
    grid_t *grid = fiber->block->grid;
    if (fiber->awaited) return;
    if (scenario.rank[grid->rank].queue.front() == grid) {
        note_awaited(fiber);
        return;
    }
    take_off(fiber, AT_PREDECESSOR);
    grid->waiting.push_back(fiber);
    fiber_leave();
}

static void release_block(block_t *block) {
    if (!block->released) block->grid->released++;
    block->released = true;
}

void release_successor() {
    step();
    release_block(current->block);
}

void block_drained(block_t *block) {
    grid_t *grid = block->grid;
    if (--grid->alive > 0 || grid->started < grid->order.size()) return;
    rank_t &rank = scenario.rank[grid->rank];
    if (rank.queue.front() != grid) {
        note_failure(FAILED, describe_thread(block, 0) + " and all others have ended before the launch before theirs");
        return;
    }
    if (scenario.config.race) race_grid_end(grid);
    rank.queue.pop_front();
    rank.ended++;
    if (rank.queue.empty() || rank.queue.front()->started == 0) return;
    grid = rank.queue.front();
    launch_began(grid);
    for (fiber_t *fiber : grid->waiting) {
        note_awaited(fiber);
        make_ready(fiber);
    }
    grid->waiting.clear();
}

void fiber_ended(fiber_t *fiber) {
    block_t *block = fiber->block;
    if (scenario.config.race) race_fiber_end(fiber);
    take_off(fiber, ENDED);
    if (!fiber->awaited)
        note_failure(FAILED, describe_thread(block, fiber->index) + " ends, and has not awaited the launch before");
    block->alive--;
    if (block->alive == 0) release_block(block);
    if (!block->at_barrier.empty())
        note_failure(FAILED,
                     describe_thread(block, fiber->index) + " ends while others of its block wait at __syncthreads");
    if (block->alive == 0 && block->buffer.empty()) block_drained(block);
}

/* ------------------------------------------------------------------ the loop */

/* One of the eligible ranks, by weight; -1: none. */
template <typename Eligible> static int choose_rank(Eligible eligible) {
    double total = 0;
    int last = -1;
    for (int r = 0; r < scenario.ranks; r++) {
        if (!eligible(r)) continue;
        total += scenario.rank[r].weight;
        last = r;
    }
    double at = (double)(scenario.random.bits() >> 11) * 0x1p-53 * total;
    for (int r = 0; r < last; r++)
        if (eligible(r) && (at -= scenario.rank[r].weight) < 0) return r;
    return last;
}

static void change_weights() {
    const config_t &config = scenario.config;
    if (scenario.result.steps < scenario.weights_change) return;
    scenario.weights_change = scenario.result.steps + (256ll << scenario.random.below(10));
    for (int r = 0; r < scenario.ranks; r++) {
        scenario.rank[r].weight = 1.0 / (1 << scenario.random.below((uint32_t)config.weight_bits + 1));
        if (r == config.slow_rank) scenario.rank[r].weight = 0x1p-24;
    }
}

static fiber_t *pick() {
    std::vector<block_t *> &active =
        scenario.rank[choose_rank([](int r) { return !scenario.rank[r].active.empty(); })].active;
    fiber_t *fiber = nullptr;
    for (int attempt = 0; attempt < 8; attempt++) {
        block_t *block = active[scenario.random.below((uint32_t)active.size())];
        fiber = block->ready[scenario.random.below((uint32_t)block->ready.size())];
        if (!fiber->victim || scenario.random.below(64) == 0) break;
    }
    return fiber;
}

static void fire_event() {
    event_t event = std::move(scenario.events.back());
    scenario.events.pop_back();
    event.act();
}

void at_step(int64_t step, std::function<void()> act) {
    scenario.events.push_back({step, std::move(act)});
    std::stable_sort(scenario.events.begin(), scenario.events.end(),
                     [](const event_t &a, const event_t &b) { return a.step > b.step; });
}

void on_clock(std::function<void(uint64_t now_ns)> act) {
    scenario.clock_goes_on = std::move(act);
}

static void set_clock(uint64_t now_ns) {
    scenario.clock_ns = now_ns;
    memory_time_passes();
    if (scenario.clock_goes_on) scenario.clock_goes_on(now_ns);
}

/* All wait: what can happen from outside? */
static bool time_goes_on() {
    uint64_t first_start = UINT64_MAX;
    for (int r = 0; r < scenario.ranks; r++) {
        const rank_t &rank = scenario.rank[r];
        if (!rank.queue.empty() && rank.queue.front()->started == 0)
            first_start = std::min(first_start, rank.queue.front()->start_ns);
    }
    if (!scenario.events.empty()) {
        fire_event();
    } else if (scenario.config.time_passes && !sleepers.empty()) {
        set_clock(scenario.clock_ns + PATIENCE_NS);
        wake_all();
    } else if (first_start != UINT64_MAX) {
        set_clock(first_start);
    } else {
        return false;
    }
    return true;
}

static std::string describe_deadlock() {
    std::string text;
    int waiting = 0, shown = 0;
    for (fiber_state_t state : {ASLEEP, AT_BARRIER}) {
        for (const auto &block : scenario.blocks) {
            for (const fiber_t *fiber : block->fibers) {
                if (fiber->block != block.get() || fiber->state != state)
                    continue; /* ended; the fiber has another thread */
                waiting++;
                if (shown++ >= 4) continue;
                text += "; " + describe_thread(block.get(), fiber->index);
                if (state == AT_BARRIER) text += " at __syncthreads";
                for (size_t i = 0; state == ASLEEP && i < fiber->seen.size() && i < 4; i++)
                    text += (i == 0 ? " sleeps after looks at " : ", ") + describe_address(fiber->seen[i].at);
            }
        }
    }
    return "deadlock: " + std::to_string(waiting) + " threads wait" + text;
}

void begin(int ranks, const config_t &config) {
    memory_reset();
    fibers_reset();
    sleepers.clear();
    scenario = scenario_t();
    scenario.config = config;
    scenario.random = random_t(config.seed * 0x9E3779B97F4A7C15u + 99);
    scenario.ranks = ranks;
    race_reset();
}

int64_t steps_done() {
    return scenario.result.steps;
}

result_t run() {
    scenario.running = true;
    while (!scenario.failed) {
        change_weights();
        while (!scenario.events.empty() && scenario.events.back().step <= scenario.result.steps) fire_event();
        if (scenario.unstarted > 0 && (scenario.ready == 0 || scenario.random.chance(scenario.config.start_chance))) {
            bool others = scenario.ready > 0;
            int rank = choose_rank(
                [=](int r) { return startable(r) != nullptr && !(others && r == scenario.config.slow_rank); });
            if (rank >= 0) start_block(rank);
        }
        if (!scenario.buffers.empty() &&
            (scenario.ready == 0 || scenario.random.chance(scenario.config.flush_chance))) {
            block_t *block = scenario.buffers[scenario.random.below((uint32_t)scenario.buffers.size())];
            flush_one(block, scenario.random.below((uint32_t)block->buffer.size()));
        }
        if (scenario.ready > 0) {
            fiber_enter(pick());
            continue;
        }
        bool left = !scenario.buffers.empty(), can_go_on = left;
        for (int r = 0; r < scenario.ranks; r++) {
            left = left || !scenario.rank[r].queue.empty();
            can_go_on = can_go_on || startable(r) != nullptr;
        }
        if (!left) break;
        if (!can_go_on && !time_goes_on()) note_failure(DEADLOCK, describe_deadlock());
    }
    scenario.running = false;
    scenario.result.clock_ns = scenario.clock_ns;
    return scenario.result;
}

} // namespace hostrun
