/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Check what a wait makes of a group that a rank has left early: that this is told from any other failure, and that its
 * patience ends by the clock and by its own looks, so that neither a rank without time of its processor nor one that
 * looks all the time gives up too soon.
 */
#include "check.h"

#include "base/clock.h"
#include "health/failure.h"

static void leaving(void) {
    static tpc_failure_slot_t slots[3];
    _Atomic uint64_t word = 0;
    tpc_failure_t failure = {.word = &word, .slots = slots, .rank = 1, .size = 3};
    CHECK(!tpc_failure_is_leaving(&failure));
    CHECK_EQ(tpc_failure_raise(&failure, TPCOMM_ERR_ABORTED, (tpc_failure_place_t){.rank = 1}, "x"),
             TPCOMM_ERR_ABORTED);
    CHECK(!tpc_failure_is_leaving(&failure)); /* aborted */
    atomic_store(&slots[2].left, TPC_LEFT_EARLY);
    CHECK(!tpc_failure_is_leaving(&failure)); /* that rank 2 has gone is not what broke it */
    atomic_store(&slots[1].left, 1);
    CHECK(!tpc_failure_is_leaving(&failure));
    atomic_store(&slots[1].left, TPC_LEFT_EARLY);
    CHECK(tpc_failure_is_leaving(&failure));
}

static void patience(void) {
    tpc_patience_t starved = {.since_ns = 0}, busy = {.since_ns = 0}, none = {.since_ns = 0};
    CHECK(!tpc_patience_is_over(&starved, 2000));
    starved.since_ns -= 60000000000u; /* a minute passes before it gets to look again */
    for (int look = 1; look < 100; look++) CHECK(!tpc_patience_is_over(&starved, 2000));
    CHECK(tpc_patience_is_over(&starved, 2000));
    for (int look = 0; look < 1000; look++) CHECK(!tpc_patience_is_over(&busy, 3600000));
    while (!tpc_patience_is_over(&none, 0)) continue; /* it has an end */
}

int main(void) {
    leaving();
    patience();
    return 0;
}
