/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Runs CUDA kernels, compiled by a host compiler, with every thread of every rank a fiber under one seeded scheduler.
 *
 * One scenario at a time: begin, allocate, enqueue launches (the launchers' cudaLaunchKernelEx does), run. The same
 * seed gives the same run, on every machine. Every access that a kernel makes through signal.cuh may change the fiber.
 * Kernels compiled with -fsanitize=thread (and linked to hooks.cc instead of its runtime) announce their plain
 * accesses too.
 *
 *   config_t::weak  stores wait in a buffer per block and reach memory in any order that PTX allows; 16-byte ones in
 * two pieces; loads may return what was there a while ago config_t::race  happens-before race detector over plain and
 * strong accesses; memory is then strong
 *
 * Every outcome that it shows is one that PTX allows, but not the other way round: loads never take a value from the
 * future, a fence makes stores visible at once, a launch's stores are in memory before the next launch of its rank. It
 * knows no time, no registers, no occupancy, and no compiler or hardware fault. Of shared memory and warp operations it
 * has what kernels use (races on shared memory show by their results alone); scopes other than sys it does
 * not have.
 */
#ifndef TPC_KERNELS_ON_HOST_HOSTRUN_H
#define TPC_KERNELS_ON_HOST_HOSTRUN_H

#include <stddef.h>
#include <stdint.h>

#include <functional>
#include <string>

#include "device_side.h"

namespace hostrun {

enum { MAX_RANKS = 16 };

/** How a scenario is scheduled. Uniform choice finds nearly nothing: draw_config() makes each seed extreme in its own
 * way. */
struct config_t {
    uint64_t seed = 1;
    bool weak = false, race = false;
    double switch_chance = 1;       /**< of another fiber, at each strong access */
    double plain_switch_chance = 0; /**< at each plain access */
    double start_chance = 0.3;      /**< of one more block's start, at each switch */
    double flush_chance = 0.1;      /**< weak: of one buffered store reaching memory, at each switch */
    double stale_chance = 0;        /**< weak: of a load returning an old value, where one is allowed */
    double victim_chance = 0;       /**< of a thread or block that is hardly ever picked */
    bool victim_blocks = false;
    bool shuffle_blocks = false; /**< blocks start in any order */
    bool tear = false;           /**< weak: 16-byte stores reach memory in two pieces */
    int buffer_capacity = 16;    /**< weak: stores that a block may have waiting */
    int weight_bits = 0;         /**< ranks run at weights down to 2^-bits, drawn anew from time to time */
    int slow_rank = -1;          /**< hardly ever picked while others can go on */
    bool time_passes = false;    /**< when all wait, the clock goes on; else that is a deadlock */
    int64_t step_limit = 20000000;
};
config_t draw_config(uint64_t seed, bool weak, bool race);
std::string describe(const config_t &config);

enum outcome_t { FINISHED, DEADLOCK, STEP_LIMIT, FAILED };
struct result_t {
    outcome_t outcome = FINISHED;
    std::string message;
    int64_t steps = 0;
    uint64_t clock_ns = 0;
};

/** Pseudo-random numbers, the same everywhere. */
class random_t {
  public:
    explicit random_t(uint64_t seed) : state(seed) {}
    uint64_t bits();
    /** 0 .. below-1 */
    uint32_t below(uint32_t below) { return (uint32_t)(((bits() >> 32) * below) >> 32); }
    /** from .. to */
    int between(int from, int to) { return from + (int)below((uint32_t)(to - from + 1)); }
    bool chance(double probability);
    template <typename T, size_t N> T pick(const T (&values)[N]) { return values[below((uint32_t)N)]; }

  private:
    uint64_t state;
};

/* ------------------------------------------------------------------ tests */

/** A new scenario; frees all of the last one. */
void begin(int ranks, const config_t &config);

/** Memory of a rank, its pinned host memory too; 256-byte aligned, filled with garbage. Any access beside it is an
 * error. */
unsigned char *allocate(int rank, size_t bytes, const char *name);

/** Put a launch into the rank's one stream. */
void enqueue(int rank, launch_t launch);

/** The launch enqueued last starts when the clock is there, or when all others wait. */
void delay_last(int rank, uint64_t start_ns);

/** Asked as a rank's launch begins; launches are numbered from 0. A text ends the run. */
void on_launch_start(std::function<std::string(int rank, int number)> ask);
/** Launches of a rank that have ended. */
int launches_ended(int rank);

/** What a host thread does when so many steps are done, or when all others wait. It may call host_store(). */
void at_step(int64_t step, std::function<void()> act);
void host_store(uint64_t *word, uint64_t value);

/** What host threads do whenever the clock has gone on. It may call host_store(). */
void on_clock(std::function<void(uint64_t now_ns)> act);

result_t run();
/** Of the last run. */
int64_t steps_done();

/** Called by a kernel's thread: ends the run with this text. */
[[noreturn]] void fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* A plain access follows; pc: where. Does nothing outside device memory. */
void plain_load(const void *from, int bytes, const void *pc);
void plain_store(void *to, int bytes, const void *pc);

} // namespace hostrun

#endif
