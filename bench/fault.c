/* SPDX-License-Identifier: Apache-2.0 */
#include "fault.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "bench.h"
#include "number.h"

/** Read "NAME@A:B:C" of count numbers. */
static bool parse_one(const char *text, size_t length, const char *name, size_t count, uint64_t *const *values) {
    size_t name_length = strlen(name);
    if (length <= name_length || memcmp(text, name, name_length) != 0 || text[name_length] != '@') return false;
    const char *at = text + name_length + 1, *end = text + length;
    for (size_t i = 0; i < count; i++) {
        const char *colon = memchr(at, ':', (size_t)(end - at));
        const char *stop = i + 1 < count ? colon : end;
        if (!stop || !bench_number_u64(at, (size_t)(stop - at), values[i])) return false;
        at = stop + 1;
    }
    return true;
}

tpcomm_status_t bench_fault_read(bench_fault_t *fault_p) {
    bench_fault_t fault;
    memset(&fault, 0, sizeof fault);
    fault.text = getenv("TPCOMM_BENCH_FAULT");
    if (fault.text && fault.text[0] == '\0') fault.text = NULL;
    for (const char *at = fault.text; at;) {
        size_t length = strcspn(at, ";");
        if (parse_one(at, length, "wrong", 3,
                      (uint64_t *const[]){&fault.wrong_iteration, &fault.wrong_call, &fault.wrong_element}))
            fault.wrong = true;
        else if (parse_one(at, length, "slow", 2, (uint64_t *const[]){&fault.slow_call, &fault.slow_ms}))
            fault.slow = true;
        else if (parse_one(at, length, "late", 2, (uint64_t *const[]){&fault.late_rank, &fault.late_ms}))
            fault.late = true;
        else if (parse_one(at, length, "die", 2, (uint64_t *const[]){&fault.die_rank, &fault.die_iteration}))
            fault.die = true;
        else
            return tpc_error(
                TPCOMM_ERR_CONFIG,
                "TPCOMM_BENCH_FAULT=%s: allowed are wrong@ITERATION:CALL:ELEMENT, slow@CALL:MS, late@RANK:MS and "
                "die@RANK:ITERATION, separated by ';'",
                fault.text);
        at = at[length] ? at + length + 1 : NULL;
    }
    *fault_p = fault;
    return TPCOMM_OK;
}

void bench_fault_sleep(uint64_t ms) {
    struct timespec left = {.tv_sec = (time_t)(ms / 1000), .tv_nsec = (long)(ms % 1000) * 1000000};
    while (nanosleep(&left, &left) != 0 && errno == EINTR) {
    }
}
