/* SPDX-License-Identifier: Apache-2.0 */
#include "base/emit.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"

static bool reserve(tpc_emit_t *emit, size_t more) {
    if (emit->failed) return false;
    if (emit->used + more < emit->room) return true;
    size_t room = emit->room == 0 ? 4096 : emit->room;
    while (room <= emit->used + more && room <= SIZE_MAX / 2) room *= 2;
    char *text = emit->used + more <= emit->limit ? realloc(emit->text, room) : NULL;
    if (text == NULL) {
        emit->failed = true;
        return false;
    }
    emit->text = text;
    emit->room = room;
    return true;
}

void tpc_emit(tpc_emit_t *emit, const char *format, ...) {
    va_list args;
    va_start(args, format);
    int need = vsnprintf(NULL, 0, format, args);
    va_end(args);
    if (need < 0 || !reserve(emit, (size_t)need)) return;
    va_start(args, format);
    vsnprintf(emit->text + emit->used, emit->room - emit->used, format, args);
    va_end(args);
    emit->used += (size_t)need;
}

static void put(tpc_emit_t *emit, const char *bytes, size_t count) {
    if (!reserve(emit, count)) return;
    memcpy(emit->text + emit->used, bytes, count);
    emit->used += count;
    emit->text[emit->used] = '\0';
}

void tpc_emit_string(tpc_emit_t *emit, const char *text) {
    if (text == NULL) {
        put(emit, "null", 4);
        return;
    }
    put(emit, "\"", 1);
    for (size_t left = strlen(text); left > 0 && !emit->failed;) {
        size_t length = tpc_text_utf8(text, left);
        unsigned char first = (unsigned char)*text;
        if (length == 0)
            put(emit, "\xef\xbf\xbd", 3);
        else if (first == '"' || first == '\\')
            tpc_emit(emit, "\\%c", first);
        else if (first < 0x20 || first == 0x7f)
            tpc_emit(emit, "\\u%04x", first);
        else
            put(emit, text, length);
        text += length == 0 ? 1 : length;
        left -= length == 0 ? 1 : length;
    }
    put(emit, "\"", 1);
}

void tpc_emit_us(tpc_emit_t *emit, uint64_t ns) {
    tpc_emit(emit, "%llu.%03u", (unsigned long long)(ns / 1000u), (unsigned)(ns % 1000u));
}

void tpc_emit_free(tpc_emit_t *emit) {
    free(emit->text);
    *emit = (tpc_emit_t){.limit = emit->limit};
}
