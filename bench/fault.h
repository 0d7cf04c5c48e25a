/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Faults planted in a replay, to show that it finds or withstands them. TPCOMM_BENCH_FAULT holds any of these,
 * separated by ';': wrong@ITERATION:CALL:ELEMENT  the last rank flips bits of this element of a call's output
 *   slow@CALL:MS                  the last rank's call number CALL (0: the very first, in the warm-up) takes MS longer
 *   late@RANK:MS                  this rank is MS late at the start of every iteration
 *   die@RANK:ITERATION            this rank ends with exit code 9 before an iteration
 */
#ifndef BENCH_FAULT_H
#define BENCH_FAULT_H

#include <stdbool.h>
#include <stdint.h>

#include "tpcomm.h"

typedef struct {
    bool wrong, slow, late, die;
    uint64_t wrong_iteration, wrong_call, wrong_element;
    uint64_t slow_call, slow_ms;
    uint64_t late_rank, late_ms;
    uint64_t die_rank, die_iteration;
    const char *text; /**< the variable's value; NULL: none */
} bench_fault_t;

/** Read TPCOMM_BENCH_FAULT. Fails: CONFIG. */
tpcomm_status_t bench_fault_read(bench_fault_t *fault_p);

void bench_fault_sleep(uint64_t ms);

#endif
