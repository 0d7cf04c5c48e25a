/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Check that a pulse tells for how long a job has been awake (health/pulse.h): from its first beat, and anew behind a
 * silence of all ranks that is longer than a rank's own pauses are, and not behind one of a single rank; whoever comes
 * first behind it; beats that come later than they were made change nothing; over the wrap of milliseconds; and with
 * threads that beat at once.
 */
#include <pthread.h>

#include "base/clock.h"
#include "check.h"
#include "health/pulse.h"

#define MS UINT64_C(1000000)

static tpc_pulse_t pulse;

static uint32_t awake(void) {
    uint64_t word = atomic_load(&pulse);
    return (uint32_t)(word >> 32) - (uint32_t)word;
}

static void beat(uint64_t at_ms, uint32_t awake_ms) {
    tpc_pulse_beat(&pulse, at_ms * MS);
    CHECK_EQ(awake(), awake_ms);
}

static void check_silence(uint64_t start_ms) {
    atomic_store(&pulse, 0);
    beat(start_ms, 0);
    beat(start_ms + 100, 100);
    beat(start_ms + 2100, 2100); /* not longer than the gap: somebody was late */
    beat(start_ms + 2200, 2200);
    beat(start_ms + 4201, 0);
    beat(start_ms + 4301, 100);
    /* Two ranks: one is stopped, and comes back. */
    for (uint64_t ms = 4400; ms <= 9000; ms += 100) beat(start_ms + ms, (uint32_t)(ms - 4201));
    beat(start_ms + 9001, 4800);
    /* Both are stopped. */
    beat(start_ms + 19000, 0);
    beat(start_ms + 19000, 0);
    beat(start_ms + 19100, 100);
}

static void check_late_beat(void) {
    atomic_store(&pulse, 0);
    beat(5000, 0);
    beat(5100, 100);
    uint64_t before = atomic_load(&pulse);
    tpc_pulse_beat(&pulse, 5099 * MS);
    CHECK_EQ(atomic_load(&pulse), before); /* what changes is new */
    tpc_pulse_beat(&pulse, 2 * MS);
    CHECK_EQ(atomic_load(&pulse), before);
    beat(5200, 200);
}

static void *beats(void *arg) {
    const uint64_t *from_ms = arg;
    for (uint64_t ms = *from_ms; ms < *from_ms + 20000; ms++) tpc_pulse_beat(&pulse, ms * MS);
    return NULL;
}

/* Behind a silence none of those who come back at once says that there was none. */
static void check_threads(void) {
    static uint64_t from_ms = 50000;
    pthread_t threads[4];
    atomic_store(&pulse, 0);
    tpc_pulse_beat(&pulse, 1 * MS);
    tpc_pulse_beat(&pulse, 1000 * MS);
    for (int i = 0; i < 4; i++) CHECK_EQ(pthread_create(&threads[i], NULL, beats, &from_ms), 0);
    for (int i = 0; i < 4; i++) CHECK_EQ(pthread_join(threads[i], NULL), 0);
    CHECK_EQ(awake(), 19999);
}

int main(void) {
    check_silence(1000);
    check_silence((UINT64_C(1) << 32) - 3000); /* over the wrap */
    check_late_beat();
    check_threads();
    printf("ok\n");
    return 0;
}
