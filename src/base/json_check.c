/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The grammar of JSON (RFC 8259) in one pass over the text, without recursion. It runs before cJSON sees the text,
 * since cJSON lets much through (wrong UTF-8, control characters, 01, a byte-order mark) and cannot say where it
 * stopped.
 */
#include "base/json_internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/text.h"

/* A value costs cJSON some 80 bytes, however short it is in the text. */
#define VALUES_MAX (1u << 21)

typedef struct {
    const char *name, *text;
    size_t at, bytes;
    unsigned depth;
    uint64_t objects; /**< bit d: the container at depth d is an object */
    size_t values;
    tpc_json_numbers_t numbers;
} scan_t;

_Static_assert(TPC_JSON_MAX_DEPTH <= 64, "one bit for each level");
_Static_assert(TPC_JSON_MAX_BYTES <= UINT32_MAX, "offsets of numbers have 32 bits");

__attribute__((format(printf, 3, 4))) static tpcomm_status_t fail(const scan_t *scan, size_t at, const char *format,
                                                                  ...) {
    char text[256];
    size_t line = 1, column = 1;
    for (size_t i = 0; i < at; i++) {
        if (scan->text[i] == '\n') {
            line++;
            column = 1;
        } else if (((unsigned char)scan->text[i] & 0xc0) != 0x80) {
            column++;
        }
    }
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return tpc_error(TPCOMM_ERR_PARSE, "%s:%zu:%zu: %s", scan->name, line, column, text);
}

/** The byte at offset at; -1 behind the end. */
static int peek(const scan_t *scan, size_t at) {
    return at < scan->bytes ? (unsigned char)scan->text[at] : -1;
}

/** "expected WHAT but found ...", where the text stands now. */
static tpcomm_status_t fail_expected(const scan_t *scan, const char *what) {
    int found = peek(scan, scan->at);
    char quoted[TPC_TEXT_QUOTE_BYTES];
    if (found < 0) return fail(scan, scan->at, "the text ends where %s is expected", what);
    if (found == 0) return fail(scan, scan->at, "expected %s but found a NUL byte", what);
    size_t length = tpc_text_utf8(scan->text + scan->at, scan->bytes - scan->at);
    if (length == 0 || found < 0x20 || found == 0x7f)
        return fail(scan, scan->at, "expected %s but found the byte 0x%02x", what, (unsigned)found);
    tpc_text_quote(quoted, scan->text + scan->at, length);
    return fail(scan, scan->at, "expected %s but found '%s'", what, quoted);
}

static void skip_blanks(scan_t *scan) {
    for (; scan->at < scan->bytes; scan->at++) {
        char c = scan->text[scan->at];
        if (c != ' ' && c != '\t' && c != '\n' && c != '\r') return;
    }
}

static bool is_digit(int c) {
    return c >= '0' && c <= '9';
}

/** The value of four hexadecimal digits at offset at; -1 if they are not. */
static long parse_hex4(const scan_t *scan, size_t at) {
    long value = 0;
    for (size_t i = at; i < at + 4; i++) {
        int c = peek(scan, i);
        int digit = is_digit(c)            ? c - '0'
                    : c >= 'a' && c <= 'f' ? c - 'a' + 10
                    : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                           : -1;
        if (digit < 0) return -1;
        value = value * 16 + digit;
    }
    return value;
}

static bool is_surrogate(long unit, long first) {
    return unit >= first && unit < first + 0x400;
}

/** The escape whose backslash stands at scan->at. */
static tpcomm_status_t check_escape(scan_t *scan) {
    size_t start = scan->at;
    int kind = peek(scan, start + 1);
    if (kind < 0) return fail(scan, scan->bytes, "the text ends inside a string");
    if (kind != 'u') {
        if (kind == 0 || !strchr("\"\\/bfnrt", kind)) return fail(scan, start, "this escape is not valid");
        scan->at += 2;
        return TPCOMM_OK;
    }
    long unit = parse_hex4(scan, start + 2);
    if (unit < 0) return fail(scan, start, "\\u needs four hexadecimal digits");
    if (unit == 0) return fail(scan, start, "\\u0000 is not allowed");
    scan->at += 6;
    if (is_surrogate(unit, 0xdc00)) return fail(scan, start, "a low surrogate without a high one before it");
    if (!is_surrogate(unit, 0xd800)) return TPCOMM_OK;
    if (peek(scan, scan->at) != '\\' || peek(scan, scan->at + 1) != 'u' ||
        !is_surrogate(parse_hex4(scan, scan->at + 2), 0xdc00))
        return fail(scan, start, "a high surrogate without a low one behind it");
    scan->at += 6;
    return TPCOMM_OK;
}

/** The string whose opening quote stands at scan->at. */
static tpcomm_status_t check_string(scan_t *scan) {
    scan->at++;
    for (;;) {
        int c = peek(scan, scan->at);
        if (c < 0) return fail(scan, scan->at, "the text ends inside a string");
        if (c == '"') {
            scan->at++;
            return TPCOMM_OK;
        }
        if (c == '\\') {
            tpcomm_status_t status = check_escape(scan);
            if (status != TPCOMM_OK) return status;
            continue;
        }
        if (c < 0x20) return fail(scan, scan->at, "the control byte 0x%02x stands in a string", (unsigned)c);
        size_t length = tpc_text_utf8(scan->text + scan->at, scan->bytes - scan->at);
        if (length == 0) return fail(scan, scan->at, "the byte 0x%02x is not valid UTF-8 here", (unsigned)c);
        scan->at += length;
    }
}

static tpcomm_status_t add_number(scan_t *scan, size_t start) {
    tpc_json_numbers_t *numbers = &scan->numbers;
    if (numbers->count == numbers->capacity) {
        size_t capacity = numbers->capacity ? numbers->capacity * 2 : 64;
        uint32_t *grown = realloc(numbers->offset, capacity * sizeof *grown);
        if (!grown) return tpc_error(TPCOMM_ERR_NO_MEMORY, "%s: no memory for its %zu numbers", scan->name, capacity);
        numbers->offset = grown;
        numbers->capacity = capacity;
    }
    numbers->offset[numbers->count++] = (uint32_t)start;
    return TPCOMM_OK;
}

static tpcomm_status_t check_digits(scan_t *scan) {
    if (!is_digit(peek(scan, scan->at))) return fail_expected(scan, "a digit");
    while (is_digit(peek(scan, scan->at))) scan->at++;
    return TPCOMM_OK;
}

/** The number that begins at scan->at with a digit or a minus sign. */
static tpcomm_status_t check_number(scan_t *scan) {
    size_t start = scan->at;
    if (peek(scan, scan->at) == '-') scan->at++;
    if (peek(scan, scan->at) == '0' && is_digit(peek(scan, scan->at + 1)))
        return fail(scan, scan->at, "a number may not begin with a 0 that further digits follow");
    tpcomm_status_t status = check_digits(scan);
    if (status == TPCOMM_OK && peek(scan, scan->at) == '.') {
        scan->at++;
        status = check_digits(scan);
    }
    if (status == TPCOMM_OK && (peek(scan, scan->at) == 'e' || peek(scan, scan->at) == 'E')) {
        scan->at++;
        if (peek(scan, scan->at) == '+' || peek(scan, scan->at) == '-') scan->at++;
        status = check_digits(scan);
    }
    if (status != TPCOMM_OK) return status;
    if (scan->at - start > JSON_NUMBER_MAX_BYTES)
        return fail(scan, start, "a number of %zu characters; at most %d are allowed", scan->at - start,
                    JSON_NUMBER_MAX_BYTES);
    return add_number(scan, start);
}

static bool take_word(scan_t *scan, const char *word) {
    size_t length = strlen(word);
    if (scan->bytes - scan->at < length || memcmp(scan->text + scan->at, word, length) != 0) return false;
    scan->at += length;
    return true;
}

/** A key and its colon. */
static tpcomm_status_t check_key(scan_t *scan) {
    skip_blanks(scan);
    if (peek(scan, scan->at) != '"') return fail_expected(scan, "a key in quotes");
    tpcomm_status_t status = check_string(scan);
    if (status != TPCOMM_OK) return status;
    skip_blanks(scan);
    if (peek(scan, scan->at) != ':') return fail_expected(scan, "':'");
    scan->at++;
    return TPCOMM_OK;
}

/** Begin one value. opened_p: it is a container with something in it, whose first value comes next. */
static tpcomm_status_t check_value(scan_t *scan, bool *opened_p) {
    *opened_p = false;
    skip_blanks(scan);
    int c = peek(scan, scan->at);
    if (++scan->values > VALUES_MAX) return fail(scan, scan->at, "more than %u values", VALUES_MAX);
    if (c == '"') return check_string(scan);
    if (c == '-' || is_digit(c)) return check_number(scan);
    if (take_word(scan, "true") || take_word(scan, "false") || take_word(scan, "null")) return TPCOMM_OK;
    if (c != '{' && c != '[') return fail_expected(scan, "a value");

    if (scan->depth == TPC_JSON_MAX_DEPTH)
        return fail(scan, scan->at, "nested more than %d levels deep", TPC_JSON_MAX_DEPTH);
    scan->at++;
    skip_blanks(scan);
    if (peek(scan, scan->at) == (c == '{' ? '}' : ']')) {
        scan->at++;
        return TPCOMM_OK;
    }
    uint64_t bit = UINT64_C(1) << scan->depth++;
    scan->objects = c == '{' ? scan->objects | bit : scan->objects & ~bit;
    *opened_p = true;
    return c == '{' ? check_key(scan) : TPCOMM_OK;
}

/** Behind a value: close containers, until a comma leads to the next value or the document is done. */
static tpcomm_status_t check_after(scan_t *scan, bool *done_p) {
    *done_p = false;
    while (scan->depth > 0) {
        bool in_object = scan->objects >> (scan->depth - 1) & 1;
        skip_blanks(scan);
        int c = peek(scan, scan->at);
        if (c == ',') {
            scan->at++;
            return in_object ? check_key(scan) : TPCOMM_OK;
        }
        if (c != (in_object ? '}' : ']')) return fail_expected(scan, in_object ? "',' or '}'" : "',' or ']'");
        scan->at++;
        scan->depth--;
    }
    skip_blanks(scan);
    *done_p = true;
    return scan->at == scan->bytes ? TPCOMM_OK : fail_expected(scan, "the end of the text");
}

tpcomm_status_t tpc_json_check_text(const char *name, const char *text, size_t bytes, tpc_json_numbers_t *numbers_p) {
    scan_t scan = {.name = name, .text = text, .bytes = bytes};
    if (bytes > TPC_JSON_MAX_BYTES)
        return tpc_error(TPCOMM_ERR_PARSE, "%s: %zu bytes long; at most %u are allowed", name, bytes,
                         TPC_JSON_MAX_BYTES);
    if (take_word(&scan, "\xef\xbb\xbf"))
        return fail(&scan, 0, "a byte-order mark is not allowed; save it as plain UTF-8");
    skip_blanks(&scan);
    if (scan.at == bytes) return fail(&scan, 0, "the text is empty");

    tpcomm_status_t status = TPCOMM_OK;
    bool done = false;
    while (status == TPCOMM_OK && !done) {
        bool opened;
        status = check_value(&scan, &opened);
        if (status == TPCOMM_OK && !opened) status = check_after(&scan, &done);
    }
    if (status != TPCOMM_OK) {
        free(scan.numbers.offset);
        return status;
    }
    *numbers_p = scan.numbers;
    return TPCOMM_OK;
}
