/* SPDX-License-Identifier: Apache-2.0 */
/**
 * A text that grows as it is written, and JSON's strings in it. For what must be written while something is broken (a
 * dump, a status answer): needs no library and stops at a limit.
 */
#ifndef TPC_BASE_EMIT_H
#define TPC_BASE_EMIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct {
    char *text; /**< terminated; NULL while nothing was written */
    size_t used, room;
    size_t limit; /**< of used; set before the first write */
    bool failed;  /**< the limit or memory ended it: text is not whole */
} tpc_emit_t;

void tpc_emit(tpc_emit_t *emit, const char *format, ...) __attribute__((format(printf, 2, 3)));
/** A JSON string with its quotes; bytes that are no UTF-8 become U+FFFD. NULL: null. */
void tpc_emit_string(tpc_emit_t *emit, const char *text);
/** Nanoseconds as microseconds with up to three decimals. */
void tpc_emit_us(tpc_emit_t *emit, uint64_t ns);
void tpc_emit_free(tpc_emit_t *emit);

#endif
