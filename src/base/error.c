/* SPDX-License-Identifier: Apache-2.0 */
#include "base/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"

/* Of fixed size and per thread, so that the text of an out-of-memory error needs no memory. */
static _Thread_local char error_text[TPC_ERROR_BYTES];

/** Append to text, which holds used bytes; returns the bytes that all of it would need, which may be more than there
 * are. */
static size_t append(char text[TPC_ERROR_BYTES], size_t used, const char *format, va_list args) {
    if (used >= TPC_ERROR_BYTES) return used;
    int length = vsnprintf(text + used, TPC_ERROR_BYTES - used, format, args);
    if (length < 0) {
        text[used] = '\0';
        return used;
    }
    return used + (size_t)length;
}

static size_t append_text(char text[TPC_ERROR_BYTES], size_t used, const char *more) {
    size_t length = strlen(more);
    if (used >= TPC_ERROR_BYTES) return used + length;
    size_t room = TPC_ERROR_BYTES - 1 - used;
    size_t kept = length < room ? length : room;
    memcpy(text + used, more, kept);
    text[used + kept] = '\0';
    return used + length;
}

/** Texts are built aside: an argument may be this thread's last text. */
static void store(char text[TPC_ERROR_BYTES], size_t needed) {
    tpc_text_cut(text, TPC_ERROR_BYTES, needed);
    tpc_text_clean(text);
    memcpy(error_text, text, strlen(text) + 1);
}

tpcomm_status_t tpc_error(tpcomm_status_t status, const char *format, ...) {
    char text[TPC_ERROR_BYTES] = "";
    va_list args;
    va_start(args, format);
    size_t needed = append(text, 0, format, args);
    va_end(args);
    store(text, needed);
    return status;
}

tpcomm_status_t tpc_error_errno(tpcomm_status_t status, int err, const char *format, ...) {
    char text[TPC_ERROR_BYTES] = "", reason[128];
    va_list args;
    va_start(args, format);
    size_t needed = append(text, 0, format, args);
    va_end(args);
    needed = append_text(text, needed, ": ");
    needed = append_text(text, needed, strerror_r(err, reason, sizeof reason));
    store(text, needed);
    return status;
}

tpcomm_status_t tpc_error_prefix(tpcomm_status_t status, const char *format, ...) {
    char text[TPC_ERROR_BYTES] = "";
    va_list args;
    va_start(args, format);
    size_t needed = append(text, 0, format, args);
    va_end(args);
    needed = append_text(text, needed, ": ");
    needed = append_text(text, needed, error_text);
    store(text, needed);
    return status;
}

const char *tpcomm_last_error(void) {
    return error_text;
}
