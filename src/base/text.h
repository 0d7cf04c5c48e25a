/* SPDX-License-Identifier: Apache-2.0 */
/** Small text helpers of the base folder: UTF-8, quoting hostile text for a message, the nearest of several names. */
#ifndef TPC_BASE_TEXT_H
#define TPC_BASE_TEXT_H

#include <stddef.h>

/** Bytes of the UTF-8 character at text, of which left bytes may be read; 0 if it is not one (RFC 3629). */
size_t tpc_text_utf8(const char *text, size_t left);

/** Replace every byte that is no printable UTF-8 by '?', so that text can go to a terminal or be decoded as UTF-8. */
void tpc_text_clean(char *text);

/** Cut text that snprintf found to need needed bytes to what fits bytes: at a character boundary, ending in "...". */
void tpc_text_cut(char *text, size_t bytes, size_t needed);

/**
 * Append to text of which used bytes stand; always terminated. Returns what the whole text needs without its NUL, which
 * is bytes or more where it was cut.
 */
size_t tpc_text_append(char *text, size_t bytes, size_t used, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/** Bytes that tpc_text_quote needs at most. */
#define TPC_TEXT_QUOTE_BYTES 96

/** Copy count bytes of hostile text, cleaned; long text is cut and ends in "...". Returns quoted. */
const char *tpc_text_quote(char quoted[TPC_TEXT_QUOTE_BYTES], const char *text, size_t count);

/** Edits (insert, delete, replace, swap neighbours) that lead from a to b; only the first 63 bytes count. */
size_t tpc_text_distance(const char *a, const char *b);

/** The one of names (count of them) nearest to name, or NULL if none is near enough to be a typing error. */
const char *tpc_text_nearest(const char *name, const char *const *names, size_t count);

#endif
