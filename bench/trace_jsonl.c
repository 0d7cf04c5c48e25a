/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Rows of the mooncake format: one JSON object a line, of which three numbers matter. A scanner of its own, not
 * base/json.h: the lists between them (hash_ids) are most of the file, and are passed over without being kept.
 */
#include <string.h>

#include "number.h"
#include "trace_line.h"

#define DEPTH_MAX 64

typedef struct {
    const bench_line_t *line;
    size_t at;
} scan_t;

static tpcomm_status_t fail_at(const scan_t *scan, const char *what) {
    return bench_line_fail(scan->line, "column %zu: %s", scan->at + 1, what);
}

/** The next character, 0 at the end of the line (a NUL in a line is refused before). */
static char peek(const scan_t *scan) {
    return scan->at < scan->line->length ? scan->line->text[scan->at] : '\0';
}

static void skip_blanks(scan_t *scan) {
    while (peek(scan) == ' ' || peek(scan) == '\t' || peek(scan) == '\r') scan->at++;
}

static bool take(scan_t *scan, char c) {
    skip_blanks(scan);
    if (peek(scan) != c) return false;
    scan->at++;
    return true;
}

static bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

static bool is_hex(char c) {
    return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

/** A string, its escapes left as they are. */
static tpcomm_status_t scan_string(scan_t *scan, const char **text_p, size_t *length_p) {
    if (!take(scan, '"')) return fail_at(scan, "a string should begin here");
    size_t from = scan->at;
    for (char c; (c = peek(scan)) != '"'; scan->at++) {
        if ((unsigned char)c < ' ')
            return fail_at(scan, c ? "a control character inside a string" : "the string has no end");
        if (c != '\\') continue;
        scan->at++;
        c = peek(scan);
        if (c == '\0' || !strchr("\"\\/bfnrtu", c)) return fail_at(scan, "an unknown escape");
        for (int i = 0; c == 'u' && i < 4; i++) {
            scan->at++;
            if (!is_hex(peek(scan))) return fail_at(scan, "\\u needs four hexadecimal digits");
        }
    }
    *text_p = scan->line->text + from;
    *length_p = scan->at - from;
    scan->at++;
    return TPCOMM_OK;
}

/** A number by JSON's grammar. */
static tpcomm_status_t scan_number(scan_t *scan, const char **text_p, size_t *length_p) {
    skip_blanks(scan);
    size_t from = scan->at;
    if (peek(scan) == '-') scan->at++;
    if (!is_digit(peek(scan))) return fail_at(scan, "a number should stand here");
    if (peek(scan) == '0') {
        scan->at++;
        if (is_digit(peek(scan))) return fail_at(scan, "a number with a leading zero");
    }
    while (is_digit(peek(scan))) scan->at++;
    if (peek(scan) == '.') {
        scan->at++;
        if (!is_digit(peek(scan))) return fail_at(scan, "a digit should follow the point");
        while (is_digit(peek(scan))) scan->at++;
    }
    if (peek(scan) == 'e' || peek(scan) == 'E') {
        scan->at++;
        if (peek(scan) == '+' || peek(scan) == '-') scan->at++;
        if (!is_digit(peek(scan))) return fail_at(scan, "a digit should follow the e");
        while (is_digit(peek(scan))) scan->at++;
    }
    *text_p = scan->line->text + from;
    *length_p = scan->at - from;
    return TPCOMM_OK;
}

static bool take_word(scan_t *scan, const char *word) {
    size_t length = strlen(word);
    if (scan->line->length - scan->at < length || memcmp(scan->line->text + scan->at, word, length) != 0) return false;
    scan->at += length;
    return true;
}

/** Pass over a value of any kind. A stack of brackets instead of recursion: the depth is the file's choice. */
static tpcomm_status_t skip_value(scan_t *scan) {
    char open[DEPTH_MAX];
    size_t depth = 0;
    for (;;) {
        const char *text;
        size_t length;
        tpcomm_status_t status = TPCOMM_OK;
        bool opened = false;
        skip_blanks(scan);
        char c = peek(scan);
        if (c == '[' || c == '{') {
            if (depth == DEPTH_MAX) return fail_at(scan, "nested more than 64 levels deep");
            open[depth++] = c;
            scan->at++;
            opened = true;
        } else if (c == '"') {
            status = scan_string(scan, &text, &length);
        } else if (c == '-' || is_digit(c)) {
            status = scan_number(scan, &text, &length);
        } else if (!take_word(scan, "true") && !take_word(scan, "false") && !take_word(scan, "null")) {
            return fail_at(scan, "a value should stand here");
        }
        if (status != TPCOMM_OK) return status;

        /* Close what ends here; then either all is done, or a comma and, in an object, a key lead to the next value. */
        while (depth > 0 && take(scan, open[depth - 1] == '[' ? ']' : '}')) {
            depth--;
            opened = false;
        }
        if (depth == 0) return TPCOMM_OK;
        if (!opened && !take(scan, ',')) return fail_at(scan, "a comma or a closing bracket should stand here");
        if (open[depth - 1] == '[') continue;
        if ((status = scan_string(scan, &text, &length)) != TPCOMM_OK) return status;
        if (!take(scan, ':')) return fail_at(scan, "a colon should follow the key");
    }
}

/* Arrival, prompt tokens, output tokens. */
static const char *const keys[3] = {"timestamp", "input_length", "output_length"};

static int find_key(const char *text, size_t length) {
    for (int i = 0; i < 3; i++) {
        if (strlen(keys[i]) == length && memcmp(keys[i], text, length) == 0) return i;
    }
    return -1;
}

static tpcomm_status_t read_value(scan_t *scan, int key, bench_request_t *request) {
    const char *text;
    size_t length;
    tpcomm_status_t status = scan_number(scan, &text, &length);
    if (status != TPCOMM_OK)
        return bench_line_fail(scan->line, "%s, column %zu: not a number", keys[key], scan->at + 1);
    if (key == 1) return bench_line_tokens(scan->line, keys[1], text, length, &request->prompt_tokens);
    if (key == 2) return bench_line_tokens(scan->line, keys[2], text, length, &request->output_tokens);
    double ms;
    if (!bench_number_double(text, length, &ms) || !(ms >= 0 && ms <= BENCH_TRACE_TIME_MAX_S * 1e3))
        return bench_line_fail(scan->line, "%s is %.*s; allowed are milliseconds from 0 to %g", keys[0],
                               BENCH_LINE_QUOTE(length), text, BENCH_TRACE_TIME_MAX_S * 1e3);
    request->arrival_s = ms / 1000.0;
    return TPCOMM_OK;
}

tpcomm_status_t bench_jsonl_row(const bench_line_t *line, bench_request_t *request_p) {
    scan_t scan = {line, 0};
    bench_request_t request = {0, 0, 0};
    bool have[3] = {false, false, false};

    if (!take(&scan, '{')) return fail_at(&scan, "mooncake has one JSON object a line, beginning with {");
    if (!take(&scan, '}')) {
        do {
            const char *text;
            size_t length;
            tpcomm_status_t status = scan_string(&scan, &text, &length);
            if (status != TPCOMM_OK) return status;
            if (!take(&scan, ':')) return fail_at(&scan, "a colon should follow the key");
            int key = find_key(text, length);
            if (key < 0) {
                status = skip_value(&scan);
            } else if (have[key]) {
                return bench_line_fail(line, "the key %s stands twice", keys[key]);
            } else {
                have[key] = true;
                status = read_value(&scan, key, &request);
            }
            if (status != TPCOMM_OK) return status;
        } while (take(&scan, ','));
        if (!take(&scan, '}')) return fail_at(&scan, "a comma or } should stand here");
    }
    skip_blanks(&scan);
    if (scan.at != line->length) return fail_at(&scan, "something follows the object");
    for (int i = 0; i < 3; i++) {
        if (!have[i]) return bench_line_fail(line, "the key %s is missing", keys[i]);
    }
    *request_p = request;
    return TPCOMM_OK;
}
