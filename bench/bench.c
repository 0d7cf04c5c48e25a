/* SPDX-License-Identifier: Apache-2.0 */
#include "bench.h"

#include <inttypes.h>
#include <stdio.h>

int bench_exit_code(tpcomm_status_t status) {
    switch (status) {
    case TPCOMM_OK:
        return BENCH_EXIT_OK;
    case TPCOMM_ERR_INVALID_ARG:
    case TPCOMM_ERR_UNSUPPORTED:
    case TPCOMM_ERR_CONFIG:
    case TPCOMM_ERR_PARSE:
    case TPCOMM_ERR_IO:
        return BENCH_EXIT_USAGE;
    default:
        return BENCH_EXIT_COMM;
    }
}

int bench_report(const char *command, tpcomm_status_t status) {
    fprintf(stderr, "tpcomm-bench %s: %s\n", command, tpcomm_last_error());
    return bench_exit_code(status);
}

int bench_verdict(const char *command, tpcomm_status_t status, uint64_t wrong, uint64_t checked) {
    if (wrong == 0 && checked > 0) return status == TPCOMM_OK ? BENCH_EXIT_OK : bench_report(command, status);
    if (checked == 0)
        fprintf(stderr, "tpcomm-bench %s: nothing was checked: no measurement could be made\n", command);
    else
        fprintf(stderr, "tpcomm-bench %s: %" PRIu64 " of %" PRIu64 " elements are wrong\n", command, wrong, checked);
    return BENCH_EXIT_WRONG;
}
