/* SPDX-License-Identifier: Apache-2.0 */
/** The text behind a status: recorded once, by the function that first knows the cause; callers pass the status up. */
#ifndef TPC_BASE_ERROR_H
#define TPC_BASE_ERROR_H

#include "tpcomm.h"

/** Longest error text, with its terminating NUL; longer ones are cut at a character boundary and end in "...". */
#define TPC_ERROR_BYTES 1024

/** Record the text of this thread's failure and return status, so that `return tpc_error(...)` reads well. */
tpcomm_status_t tpc_error(tpcomm_status_t status, const char *format, ...) __attribute__((format(printf, 2, 3)));

/** As tpc_error, with ": " and the text of errno value err at the end. */
tpcomm_status_t tpc_error_errno(tpcomm_status_t status, int err, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/** Put "prefix: " in front of this thread's text; returns status. For the one caller that knows where it happened. */
tpcomm_status_t tpc_error_prefix(tpcomm_status_t status, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
