/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Check that what a rank writes before it posts is what its peer reads after it has waited (H14), a million times (or
 * as often as some seconds allow, where each takes a turn of a processor that others want too), and
 * that neither ever sleeps through a post: with spinning only, and with a spin budget of nothing so that nearly every
 * wait sleeps. Two threads share the memory, so that ThreadSanitizer sees every access.
 */
#include <pthread.h>
#include <stdbool.h>

#include "base/clock.h"
#include "check.h"
#include "health/signal.h"

#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define SLOW 1
#endif
#endif
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__) || defined(SLOW)
enum { SPIN_ROUNDS = 50000, SLEEP_ROUNDS = 5000 };
#else
enum { SPIN_ROUNDS = 1000000, SLEEP_ROUNDS = 50000 };
#endif

enum { LEAST_ROUNDS = 1000, SECONDS = 8 };

typedef struct {
    tpc_signal_t there, back;
    uint64_t data[32];
    tpc_wait_t wait;
    bool last; /* written with the data of the last round */
} shared_t;

static void *reader(void *arg) {
    shared_t *shared = arg;
    for (uint32_t round = 1, last = 0; !last; round++) {
        CHECK_EQ(tpc_signal_wait(&shared->there, round, &shared->wait), TPCOMM_OK);
        last = shared->last;
        for (int i = 0; i < 32; i++)
            if (shared->data[i] != round)
                FAIL("round %u: word %d is %llu", round, i, (unsigned long long)shared->data[i]);
        tpc_signal_post(&shared->back, round);
    }
    return NULL;
}

static void run(uint32_t spin_us, uint32_t rounds) {
    static _Atomic uint64_t healthy;
    static _Atomic uint32_t timeout_ms = 60000;
    tpc_failure_t failure = {.word = &healthy, .size = 2};
    shared_t shared = {.wait = {.failure = &failure, .timeout_ms = &timeout_ms, .spin_us = spin_us}};
    pthread_t thread;
    CHECK_EQ(pthread_create(&thread, NULL, reader, &shared), 0);
    uint64_t end_ns = tpc_clock_ns() + SECONDS * UINT64_C(1000000000);
    for (uint32_t round = 1; !shared.last; round++) {
        for (int i = 0; i < 32; i++) shared.data[i] = round;
        shared.last = round == rounds || (round >= LEAST_ROUNDS && tpc_clock_ns() > end_ns);
        tpc_signal_post(&shared.there, round);
        CHECK_EQ(tpc_signal_wait(&shared.back, round, &shared.wait), TPCOMM_OK);
    }
    CHECK_EQ(pthread_join(thread, NULL), 0);
}

int main(void) {
    run(1000, SPIN_ROUNDS);
    run(0, SLEEP_ROUNDS);
    return 0;
}
