/* SPDX-License-Identifier: Apache-2.0 */
#include "base/text.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define DISTANCE_BYTES 63

size_t tpc_text_utf8(const char *text, size_t left) {
    const unsigned char *byte = (const unsigned char *)text;
    if (left == 0) return 0;
    if (byte[0] < 0x80) return 1;
    size_t length = byte[0] < 0xc2 ? 0 : byte[0] < 0xe0 ? 2 : byte[0] < 0xf0 ? 3 : byte[0] < 0xf5 ? 4 : 0;
    if (length == 0 || left < length) return 0;
    for (size_t i = 1; i < length; i++)
        if ((byte[i] & 0xc0) != 0x80) return 0;
    /* The second byte tells overlong forms, surrogates and what lies above U+10FFFF. */
    if (byte[0] == 0xe0 && byte[1] < 0xa0) return 0;
    if (byte[0] == 0xed && byte[1] > 0x9f) return 0;
    if (byte[0] == 0xf0 && byte[1] < 0x90) return 0;
    if (byte[0] == 0xf4 && byte[1] > 0x8f) return 0;
    return length;
}

/** C0 controls, DEL, and U+0080 to U+009F, which some terminals take as commands. */
static bool is_control(const char *text, size_t length) {
    const unsigned char *byte = (const unsigned char *)text;
    if (length == 1) return byte[0] < 0x20 || byte[0] == 0x7f;
    return length == 2 && byte[0] == 0xc2 && byte[1] < 0xa0;
}

void tpc_text_clean(char *text) {
    size_t left = strlen(text);
    while (left > 0) {
        size_t length = tpc_text_utf8(text, left);
        if (length == 0) {
            *text = '?';
            length = 1;
        } else if (is_control(text, length)) {
            memset(text, '?', length);
        }
        text += length;
        left -= length;
    }
}

void tpc_text_cut(char *text, size_t bytes, size_t needed) {
    if (needed < bytes || bytes < 4) return;
    size_t end = bytes - 4;
    while (end > 0 && ((unsigned char)text[end] & 0xc0) == 0x80) end--;
    memcpy(text + end, "...", 4);
}

const char *tpc_text_quote(char quoted[TPC_TEXT_QUOTE_BYTES], const char *text, size_t count) {
    size_t kept = count < TPC_TEXT_QUOTE_BYTES - 1 ? count : TPC_TEXT_QUOTE_BYTES - 1;
    for (size_t i = 0; i < kept; i++) quoted[i] = text[i] == '\0' ? '?' : text[i];
    quoted[kept] = '\0';
    tpc_text_cut(quoted, TPC_TEXT_QUOTE_BYTES, count);
    tpc_text_clean(quoted);
    return quoted;
}

static size_t least(size_t a, size_t b) {
    return a < b ? a : b;
}

size_t tpc_text_distance(const char *a, const char *b) {
    size_t a_length = strnlen(a, DISTANCE_BYTES), b_length = strnlen(b, DISTANCE_BYTES);
    size_t rows[3][DISTANCE_BYTES + 1];
    size_t *before = rows[0], *last = rows[1], *now = rows[2];
    for (size_t j = 0; j <= b_length; j++) last[j] = j;
    for (size_t i = 1; i <= a_length; i++) {
        now[0] = i;
        for (size_t j = 1; j <= b_length; j++) {
            size_t replaced = last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
            now[j] = least(least(last[j], now[j - 1]) + 1, replaced);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                now[j] = least(now[j], before[j - 2] + 1);
        }
        size_t *spare = before;
        before = last;
        last = now;
        now = spare;
    }
    return last[b_length];
}

const char *tpc_text_nearest(const char *name, const char *const *names, size_t count) {
    const char *nearest = NULL;
    size_t nearest_distance = SIZE_MAX;
    for (size_t i = 0; i < count; i++) {
        size_t distance = tpc_text_distance(name, names[i]);
        if (distance >= nearest_distance) continue;
        nearest = names[i];
        nearest_distance = distance;
    }
    /* A guess that shares less than half its letters would send the reader the wrong way. */
    if (nearest && nearest_distance * 2 > strnlen(name, DISTANCE_BYTES)) return NULL;
    return nearest;
}

size_t tpc_text_append(char *text, size_t bytes, size_t used, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    int wrote = vsnprintf(used < bytes ? text + used : NULL, used < bytes ? bytes - used : 0, format, arguments);
    va_end(arguments);
    return used + (wrote > 0 ? (size_t)wrote : 0);
}
