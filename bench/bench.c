/* SPDX-License-Identifier: Apache-2.0 */
#include "bench.h"

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
