/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Check that the harness of the kernel tests is what it says: of the memory model's litmus tests, outcomes that PTX
 * forbids never happen and those that it allows do; the race detector finds races and invents none; a stray access, a
 * deadlock, a barrier that not all threads reach are told; the same seed gives the same run.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <map>

#include "hostrun.h"

using namespace hostrun;

#define FAIL(...)                                                                                                      \
    do {                                                                                                               \
        fprintf(stderr, "%s:%d: ", __FILE__, __LINE__);                                                                \
        fprintf(stderr, __VA_ARGS__);                                                                                  \
        fputc('\n', stderr);                                                                                           \
        exit(1);                                                                                                       \
    } while (0)

/* The variables of a litmus test: x, y, each in another rank's memory, and what each rank saw. */
static uint64_t *x, *y, *saw[4];

static void set(uint64_t *word, uint64_t value) {
    strong_store(word, &value, 8);
}
static uint64_t get(const uint64_t *word) {
    uint64_t value;
    strong_load(word, &value, 8);
    return value;
}
static void set_plain(uint64_t *word, uint64_t value) {
    plain_store(word, 8, __builtin_return_address(0));
    *(volatile uint64_t *)word = value;
}
static uint64_t get_plain(const uint64_t *word) {
    plain_load(word, 8, __builtin_return_address(0));
    return *(const volatile uint64_t *)word;
}

static void start(int ranks, const config_t &config) {
    begin(ranks, config);
    x = (uint64_t *)allocate(0, 64, "x");
    y = (uint64_t *)allocate(1, 64, "y");
    memset(x, 0, 64);
    memset(y, 0, 64);
    for (int r = 0; r < ranks; r++) {
        saw[r] = (uint64_t *)allocate(r, 16, "results");
        memset(saw[r], 0, 16);
    }
}

static void add(int rank, unsigned threads, std::function<void()> thread) {
    launch_t launch;
    launch.grid = dim3(1);
    launch.block = dim3(threads);
    launch.thread = std::move(thread);
    enqueue(rank, launch);
}

extern uint3 threadIdx;

/* ------------------------------------------------------------------ litmus */

struct litmus_t {
    const char *name;
    unsigned threads[4]; /**< of each rank; 0: no more ranks */
    std::function<void()> code[4];
    std::function<bool()> outcome;
    bool allowed;
};

static const litmus_t litmus[] = {
    {"message passing, relaxed",
     {1, 1},
     {[] { set(x, 1), set(y, 1); }, [] { *saw[1] = get(y) * 2 + get(x); }},
     [] { return *saw[1] == 2; },
     true},
    {"message passing, both fences",
     {1, 1},
     {[] { set(x, 1), fence(), set(y, 1); },
      [] {
          uint64_t flag = get(y);
          fence();
          *saw[1] = flag * 2 + get(x);
      }},
     [] { return *saw[1] == 2; },
     false},
    {"message passing, no fence of the reader",
     {1, 1},
     {[] { set(x, 1), fence(), set(y, 1); },
      [] {
          uint64_t flag = get(y);
          *saw[1] = flag * 2 + get(x);
      }},
     [] { return *saw[1] == 2; },
     true},
    {"message passing, no fence of the writer",
     {1, 1},
     {[] { set(x, 1), set(y, 1); },
      [] {
          uint64_t flag = get(y);
          fence();
          *saw[1] = flag * 2 + get(x);
      }},
     [] { return *saw[1] == 2; },
     true},
    {"message passing, plain data, both fences",
     {1, 1},
     {[] { set_plain(x, 1), fence(), set(y, 1); },
      [] {
          uint64_t flag = get(y);
          fence();
          *saw[1] = flag * 2 + get_plain(x);
      }},
     [] { return *saw[1] == 2; },
     false},
    {"message passing, plain data, no fence of the writer",
     {1, 1},
     {[] { set_plain(x, 1), set(y, 1); },
      [] {
          uint64_t flag = get(y);
          fence();
          *saw[1] = flag * 2 + get_plain(x);
      }},
     [] { return *saw[1] == 2; },
     true},
    {"store buffering, relaxed",
     {1, 1},
     {[] { set(x, 1), *saw[0] = get(y); }, [] { set(y, 1), *saw[1] = get(x); }},
     [] { return *saw[0] == 0 && *saw[1] == 0; },
     true},
    {"store buffering, fences",
     {1, 1},
     {[] { set(x, 1), fence(), *saw[0] = get(y); }, [] { set(y, 1), fence(), *saw[1] = get(x); }},
     [] { return *saw[0] == 0 && *saw[1] == 0; },
     false},
    {"one thread's stores to one word",
     {1, 1},
     {[] { set(x, 1), set(x, 2); },
      [] {
          uint64_t first = get(x), second = get(x);
          *saw[1] = first > second;
      }},
     [] { return *saw[1] == 1; },
     false},
    {"a thread's own store", {1, 1}, {[] { set(x, 1), *saw[0] = get(x); }, [] {}}, [] { return *saw[0] == 0; }, false},
    {"write to read causality, relaxed",
     {1, 1, 1},
     {[] { set(x, 1); }, [] { set(y, get(x)); },
      [] {
          uint64_t flag = get(y);
          *saw[2] = flag * 2 + get(x);
      }},
     [] { return *saw[2] == 2; },
     true},
    {"write to read causality, fences",
     {1, 1, 1},
     {[] { set(x, 1); },
      [] {
          uint64_t flag = get(x);
          fence();
          set(y, flag);
      },
      [] {
          uint64_t flag = get(y);
          fence();
          *saw[2] = flag * 2 + get(x);
      }},
     [] { return *saw[2] == 2; },
     false},
    {"message passing through the writer's barrier",
     {2, 1},
     {[] {
          if (threadIdx.x == 1) set(x, 1);
          barrier();
          if (threadIdx.x == 0) fence(), set(y, 1);
      },
      [] {
          uint64_t flag = get(y);
          fence();
          *saw[1] = flag * 2 + get(x);
      }},
     [] { return *saw[1] == 2; },
     false},
    {"message passing without the writer's barrier",
     {2, 1},
     {[] {
          if (threadIdx.x == 1) set(x, 1);
          if (threadIdx.x == 0) fence(), set(y, 1);
      },
      [] {
          uint64_t flag = get(y);
          fence();
          *saw[1] = flag * 2 + get(x);
      }},
     [] { return *saw[1] == 2; },
     true},
    {"halves of a 16-byte packet apart",
     {1, 1},
     {[] {
          uint64_t packet[2] = {1, 1};
          strong_store(x, packet, 16);
      },
      [] {
          uint64_t packet[2];
          strong_load(x, packet, 16);
          *saw[1] = packet[0] != packet[1];
      }},
     [] { return *saw[1] == 1; },
     true},
    {"halves of an 8-byte word apart",
     {1, 1},
     {[] { set(x, ~0ull); },
      [] {
          uint64_t word = get(x);
          *saw[1] = word != 0 && word != ~0ull;
      }},
     [] { return *saw[1] == 1; },
     false},
    {"a later launch sees an earlier one's store",
     {1, 1},
     {[] { set(x, 1); }, [] {}},
     [] { return *saw[0] == 0; },
     false},
};

static void check_litmus(const litmus_t &test) {
    int seen = 0, first = 0, seeds = test.allowed ? 20000 : 2000;
    for (int seed = 1; seed <= seeds && (seen == 0 || !test.allowed); seed++) {
        int ranks = 0;
        while (ranks < 4 && test.threads[ranks] != 0) ranks++;
        start(ranks, draw_config((uint64_t)seed, true, false));
        for (int r = 0; r < ranks; r++) add(r, test.threads[r], test.code[r]);
        if (strstr(test.name, "later launch")) add(0, 1, [] { *saw[0] = get(x); });
        result_t result = run();
        if (result.outcome != FINISHED) FAIL("%s, seed %d: %s", test.name, seed, result.message.c_str());
        if (!test.outcome()) continue;
        if (seen++ == 0) first = seed;
    }
    if (!test.allowed && seen > 0)
        FAIL("%s: what PTX forbids happened in %d of %d seeds, first %d", test.name, seen, seeds, first);
    if (test.allowed && seen == 0) FAIL("%s: what PTX allows happened in none of %d seeds", test.name, seeds);
}

/* ------------------------------------------------------------------ races and other errors */

struct mistake_t {
    const char *name;
    bool race; /**< look for races */
    unsigned threads[2];
    std::function<void()> code[2];
    const char *text; /**< that the message has; NULL: no mistake */
};

static void pass_message(bool writer_fence, bool reader_fence) {
    if (threadIdx.x == 0) {
        set_plain(x, 1);
        if (writer_fence) fence();
        set(y, 1);
        return;
    }
    while (get(y) == 0) pause();
    if (reader_fence) fence();
    get_plain(x);
}

static const mistake_t mistakes[] = {
    {"two stores", true, {1, 1}, {[] { set_plain(x, 1); }, [] { set_plain(x, 2); }}, "race on rank 0's x + 0"},
    {"store and load", true, {1, 1}, {[] { set_plain(x, 1); }, [] { get_plain(x); }}, "race on rank 0's x + 0"},
    {"two loads", true, {1, 1}, {[] { get_plain(x); }, [] { get_plain(x); }}, nullptr},
    {"strong stores", true, {1, 1}, {[] { set(x, 1); }, [] { set(x, 2); }}, nullptr},
    {"strong and plain", true, {1, 1}, {[] { set(x, 1); }, [] { set_plain(x, 2); }}, "race on"},
    {"bytes side by side",
     true,
     {2, 1},
     {[] {
          plain_store((char *)x + threadIdx.x, 1, __builtin_return_address(0));
          ((volatile char *)x)[threadIdx.x] = 1;
      },
      [] {}},
     nullptr},
    {"no barrier",
     true,
     {2, 1},
     {[] {
          if (threadIdx.x == 0) set_plain(x, 1);
          if (threadIdx.x == 1) get_plain(x);
      },
      [] {}},
     "race on"},
    {"a barrier",
     true,
     {2, 1},
     {[] {
          if (threadIdx.x == 0) set_plain(x, 1);
          barrier();
          if (threadIdx.x == 1) get_plain(x);
      },
      [] {}},
     nullptr},
    {"a message", true, {2, 1}, {[] { pass_message(true, true); }, [] {}}, nullptr},
    {"a message, no fence of the writer", true, {2, 1}, {[] { pass_message(false, true); }, [] {}}, "race on"},
    {"a message, no fence of the reader", true, {2, 1}, {[] { pass_message(true, false); }, [] {}}, "race on"},
    {"one of many",
     true,
     {8, 1},
     {[] {
          if (strong_claim(y, 1) == 0) set_plain(x, 1);
      },
      [] {}},
     nullptr},
    {"behind an allocation", false, {1, 1}, {[] { set(x + 8, 1); }, [] {}}, "outside any allocation"},
    {"plain, half behind an allocation",
     false,
     {1, 1},
     {[] { plain_load((char *)x + 60, 8, nullptr); }, [] {}},
     "outside any allocation"},
    {"before an allocation", false, {1, 1}, {[] { get(x - 1); }, [] {}}, "outside any allocation"},
    {"nobody answers",
     false,
     {1, 1},
     {[] {
          while (get(y) == 0) pause();
      },
      [] {}},
     "rank 0 launch 0 block 0 thread 0 sleeps after looks at rank 1's y + 0"},
    {"no pause",
     false,
     {1, 1},
     {[] {
          while (get(y) == 0) continue;
      },
      [] {}},
     "step limit"},
    {"not all at the barrier",
     false,
     {2, 1},
     {[] {
          if (threadIdx.x == 0) barrier();
      },
      [] {}},
     "__syncthreads"},
};

static void check_mistake(const mistake_t &mistake) {
    for (uint64_t seed = 1; seed <= 200; seed++) {
        std::string text[2];
        int64_t steps[2];
        for (int replay = 0; replay < 2; replay++) {
            config_t config = draw_config(seed, !mistake.race && seed % 2 != 0, mistake.race);
            config.step_limit = 20000;
            start(2, config);
            for (int r = 0; r < 2; r++) add(r, mistake.threads[r], mistake.code[r]);
            result_t result = run();
            text[replay] = result.message;
            steps[replay] = result.steps;
        }
        if (text[0] != text[1] || steps[0] != steps[1])
            FAIL("%s: seed %d ran otherwise the second time: %s | %s", mistake.name, (int)seed, text[0].c_str(),
                 text[1].c_str());
        if (mistake.text == nullptr ? !text[0].empty() : text[0].find(mistake.text) == std::string::npos)
            FAIL("%s, seed %d: \"%s\", want \"%s\"", mistake.name, (int)seed, text[0].c_str(),
                 mistake.text == nullptr ? "" : mistake.text);
    }
}

/* A launch that is delayed starts then; a wait with a deadline ends; a host's store wakes. */
static void check_time() {
    for (uint64_t seed = 1; seed <= 200; seed++) {
        static uint64_t waited;
        config_t config = draw_config(seed, seed % 2 != 0, false);
        config.time_passes = true;
        start(2, config);
        add(0, 1, [] {
            uint64_t begun = clock_ns();
            while (get(y) == 0 && clock_ns() - begun < 1000000000) pause();
            waited = clock_ns() - begun;
        });
        add(1, 1, [] { set(y, 1); });
        delay_last(1, 3000000000);
        result_t result = run();
        if (result.outcome != FINISHED || waited < 1000000000 || waited > 1100000000 || result.clock_ns < 3000000000)
            FAIL("seed %d: waited %lld ns, clock %lld: %s", (int)seed, (long long)waited, (long long)result.clock_ns,
                 result.message.c_str());

        config.time_passes = false;
        start(1 + 1, config);
        add(0, 1, [] {
            while (get(y) == 0) pause();
        });
        at_step(50, [] { host_store(y, 7); });
        if (run().outcome != FINISHED) FAIL("seed %d: the host's store woke nobody", (int)seed);
    }
}

int main() {
    for (const litmus_t &test : litmus) check_litmus(test);
    for (const mistake_t &mistake : mistakes) check_mistake(mistake);
    check_time();
    return 0;
}
