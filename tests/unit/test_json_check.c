/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Check that exactly RFC 8259 within the documented limits is accepted, that a refusal names the place, and that no
 * text, however damaged, is read beyond its end: tables, every prefix, deep nesting, and seeded mutations against a
 * reference.
 */
#include "base/error.h"
#include "base/json_internal.h"
#include "base/text.h"
#include "check.h"

/* ---------------------------------------------------------------- reference */

typedef struct {
    const char *at, *end;
} reference_t;

static void blanks(reference_t *r) {
    while (r->at < r->end && (*r->at == ' ' || *r->at == '\t' || *r->at == '\n' || *r->at == '\r')) r->at++;
}

static bool eat(reference_t *r, const char *word) {
    size_t length = strlen(word);
    if ((size_t)(r->end - r->at) < length || memcmp(r->at, word, length) != 0) return false;
    r->at += length;
    return true;
}

static size_t eat_digits(reference_t *r) {
    size_t count = 0;
    for (; r->at < r->end && *r->at >= '0' && *r->at <= '9'; r->at++) count++;
    return count;
}

static bool eat_hex(reference_t *r, unsigned *unit) {
    char digits[5] = "";
    if (r->end - r->at < 4) return false;
    memcpy(digits, r->at, 4);
    if (strspn(digits, "0123456789abcdefABCDEF") != 4) return false;
    *unit = (unsigned)strtoul(digits, NULL, 16);
    r->at += 4;
    return true;
}

static bool string(reference_t *r) {
    if (!eat(r, "\"")) return false;
    while (r->at < r->end) {
        unsigned char c = (unsigned char)*r->at;
        unsigned unit, low;
        if (eat(r, "\"")) return true;
        if (c < 0x20) return false;
        if (eat(r, "\\u")) {
            if (!eat_hex(r, &unit) || unit == 0 || (unit >= 0xdc00 && unit <= 0xdfff)) return false;
            if (unit < 0xd800 || unit > 0xdbff) continue;
            if (!eat(r, "\\u") || !eat_hex(r, &low) || low < 0xdc00 || low > 0xdfff) return false;
        } else if (c == '\\') {
            if (r->end - r->at < 2 || r->at[1] == '\0' || !strchr("\"\\/bfnrt", r->at[1])) return false;
            r->at += 2;
        } else {
            size_t length = tpc_text_utf8(r->at, (size_t)(r->end - r->at));
            if (length == 0) return false;
            r->at += length;
        }
    }
    return false;
}

static bool number(reference_t *r) {
    const char *start = r->at;
    eat(r, "-");
    const char *whole = r->at;
    size_t count = eat_digits(r);
    if (count == 0 || (count > 1 && *whole == '0')) return false;
    if (eat(r, ".") && eat_digits(r) == 0) return false;
    if (eat(r, "e") || eat(r, "E")) {
        if (!eat(r, "+")) eat(r, "-");
        if (eat_digits(r) == 0) return false;
    }
    return r->at - start <= JSON_NUMBER_MAX_BYTES;
}

static bool value(reference_t *r, unsigned depth);

static bool members(reference_t *r, unsigned depth, const char *close, bool keys) {
    blanks(r);
    if (eat(r, close)) return true;
    do {
        blanks(r);
        if (keys) {
            if (!string(r)) return false;
            blanks(r);
            if (!eat(r, ":")) return false;
        }
        if (!value(r, depth)) return false;
        blanks(r);
    } while (eat(r, ","));
    return eat(r, close);
}

static bool value(reference_t *r, unsigned depth) {
    blanks(r);
    if (r->at == r->end) return false;
    if (*r->at == '"') return string(r);
    if (eat(r, "true") || eat(r, "false") || eat(r, "null")) return true;
    if (*r->at != '{' && *r->at != '[') return number(r);
    if (depth == TPC_JSON_MAX_DEPTH) return false;
    return eat(r, "{") ? members(r, depth + 1, "}", true) : eat(r, "[") && members(r, depth + 1, "]", false);
}

static bool reference(const char *text, size_t bytes) {
    reference_t r = {text, text + bytes};
    if (!value(&r, 0)) return false;
    blanks(&r);
    return r.at == r.end;
}

/* ---------------------------------------------------------------- tables */

/** In memory of exactly its size, so that a sanitizer sees a read beyond. */
static tpcomm_status_t check_bytes(const char *text, size_t bytes) {
    tpc_json_numbers_t numbers = {NULL, 0, 0};
    char *copy = malloc(bytes ? bytes : 1);
    CHECK(copy != NULL);
    memcpy(copy, text, bytes);
    tpcomm_status_t status = tpc_json_check_text("t", copy, bytes, &numbers);
    for (size_t i = 0; i < numbers.count; i++) {
        char c = copy[numbers.offset[i]];
        CHECK((c >= '0' && c <= '9') || c == '-');
    }
    free(numbers.offset);
    free(copy);
    return status;
}

static void check_accepted(void) {
    static const char *const good[] = {
        "0",
        "-0",
        "1",
        "10",
        "-1.5e-10",
        "1E5",
        "1e+5",
        "0.0",
        "0e0",
        "1e400",
        "1e-400",
        "null",
        " true ",
        "\t\r\nfalse\n",
        "\"\"",
        "{}",
        "[]",
        " { } ",
        "[ ]",
        "[1,2]",
        "[[],{}]",
        "{\"a\":1}",
        "{ \"a\" : [ 1 , { \"b\" : null } ] }",
        "\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"",
        "\"\\u0001\\uFFFF\\ud83d\\uDE00\"",
        "\"\x7f\"",
        "\"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\xf4\x8f\xbf\xbf\"",
        "{\"\":0}",
        "\"\xef\xbb\xbf\"",
        "123456789012345678901234567890123456789012345678901234567890123", /* 63 characters */
    };
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        if (check_bytes(good[i], strlen(good[i])) != TPCOMM_OK) FAIL("refused: %s: %s", good[i], tpcomm_last_error());
        CHECK(reference(good[i], strlen(good[i])));
    }
}

typedef struct {
    const char *text, *place, *piece;
    size_t bytes; /**< 0: strlen */
} refused_t;

static const refused_t refused[] = {
    {"", "t:1:1:", "the text is empty", 0},
    {" \n\t", "t:1:1:", "the text is empty", 0},
    {"{", "t:1:2:", "ends where a key in quotes", 0},
    {"[", "t:1:2:", "ends where a value", 0},
    {"[1", "t:1:3:", "ends where ',' or ']'", 0},
    {"{\"a\"", "t:1:5:", "ends where ':'", 0},
    {"{\"a\":1", "t:1:7:", "ends where ',' or '}'", 0},
    {"\"abc", "t:1:5:", "ends inside a string", 0},
    {"\"abc\\", "t:1:6:", "ends inside a string", 0},
    {"[1,\n 2,\n  x]", "t:3:3:", "expected a value but found 'x'", 0},
    {"[\"\xc3\xa9\xe2\x82\xac\",x]", "t:1:7:", "found 'x'", 0}, /* columns count characters */
    {"[1 2]", "t:1:4:", "expected ',' or ']' but found '2'", 0},
    {"[1}", "t:1:3:", "expected ',' or ']' but found '}'", 0},
    {"{\"a\":1]", "t:1:7:", "expected ',' or '}' but found ']'", 0},
    {"[1,]", "t:1:4:", "expected a value but found ']'", 0},
    {"{\"a\":1,}", "t:1:8:", "expected a key in quotes but found '}'", 0},
    {"{a:1}", "t:1:2:", "expected a key in quotes but found 'a'", 0},
    {"{'a':1}", "t:1:2:", "expected a key in quotes", 0},
    {"{1:1}", "t:1:2:", "expected a key in quotes", 0},
    {"{\"a\" 1}", "t:1:6:", "expected ':' but found '1'", 0},
    {"{\"a\":}", "t:1:6:", "expected a value but found '}'", 0},
    {"[] []", "t:1:4:", "expected the end of the text but found '['", 0},
    {"1 2", "t:1:3:", "expected the end", 0},
    {"[,1]", "t:1:2:", "expected a value but found ','", 0},
    {"]", "t:1:1:", "expected a value but found ']'", 0},
    {"[1]\n// no", "t:2:1:", "expected the end of the text but found '/'", 0},
    {"01", "t:1:1:", "begin with a 0", 0},
    {"-01", "t:1:2:", "begin with a 0", 0},
    {"[00]", "t:1:2:", "begin with a 0", 0},
    {"1.", "t:1:3:", "ends where a digit", 0},
    {"[1.]", "t:1:4:", "expected a digit but found ']'", 0},
    {".5", "t:1:1:", "expected a value but found '.'", 0},
    {"+1", "t:1:1:", "expected a value but found '+'", 0},
    {"-", "t:1:2:", "ends where a digit", 0},
    {"- 1", "t:1:2:", "expected a digit but found ' '", 0},
    {"--1", "t:1:2:", "expected a digit", 0},
    {"1e", "t:1:3:", "ends where a digit", 0},
    {"1e+", "t:1:4:", "ends where a digit", 0},
    {"1e5.5", "t:1:4:", "expected the end of the text but found '.'", 0},
    {"1,5", "t:1:2:", "expected the end of the text but found ','", 0},
    {"0x10", "t:1:2:", "found 'x'", 0},
    {"1_000", "t:1:2:", "found '_'", 0},
    {"NaN", "t:1:1:", "expected a value but found 'N'", 0},
    {"Infinity", "t:1:1:", "found 'I'", 0},
    {"-Infinity", "t:1:2:", "found 'I'", 0},
    {"nan", "t:1:1:", "found 'n'", 0},
    {"nul", "t:1:1:", "found 'n'", 0},
    {"True", "t:1:1:", "found 'T'", 0},
    {"truefalse", "t:1:5:", "found 'f'", 0},
    {"1234567890123456789012345678901234567890123456789012345678901234", "t:1:1:", "a number of 64 characters", 0},
    {"\xef\xbb\xbf{}", "t:1:1:", "byte-order mark", 0},
    {"{}\xef\xbb\xbf", "t:1:3:", "expected the end", 0},
    {"\xff\xfe{\0}\0", "t:1:1:", "found the byte 0xff", 6},
    {"[1]\0", "t:1:4:", "found a NUL byte", 4},
    {"\0", "t:1:1:", "found a NUL byte", 1},
    {"[\0]", "t:1:2:", "found a NUL byte", 3},
    {"\"a\0b\"", "t:1:3:", "control byte 0x00", 5},
    {"\"a\nb\"", "t:1:3:", "control byte 0x0a", 0},
    {"\"a\tb\"", "t:1:3:", "control byte 0x09", 0},
    {"\"\x1f\"", "t:1:2:", "control byte 0x1f", 0},
    {"\v1", "t:1:1:", "found the byte 0x0b", 0},
    {"\xc2\xa0"
     "1",
     "t:1:1:", "expected a value", 0},
    {"\"\\x41\"", "t:1:2:", "escape is not valid", 0},
    {"\"\\'\"", "t:1:2:", "escape is not valid", 0},
    {"\"\\\0\"", "t:1:2:", "escape is not valid", 4},
    {"\"\\u12\"", "t:1:2:", "four hexadecimal digits", 0},
    {"\"\\u12g4\"", "t:1:2:", "four hexadecimal digits", 0},
    {"\"\\u+123\"", "t:1:2:", "four hexadecimal digits", 0},
    {"\"\\U0041\"", "t:1:2:", "escape is not valid", 0},
    {"\"\\u0000\"", "t:1:2:", "\\u0000 is not allowed", 0},
    {"\"\\ud800\"", "t:1:2:", "high surrogate without", 0},
    {"\"\\ud800\\n\"", "t:1:2:", "high surrogate without", 0},
    {"\"\\ud800\\ud800\"", "t:1:2:", "high surrogate without", 0},
    {"\"\\ud800\\u0041\"", "t:1:2:", "high surrogate without", 0},
    {"\"x\\udc00\"", "t:1:3:", "low surrogate without", 0},
    {"\"\xc0\x80\"", "t:1:2:", "0xc0 is not valid UTF-8", 0},         /* overlong NUL */
    {"\"\xc1\xbf\"", "t:1:2:", "0xc1 is not valid UTF-8", 0},         /* overlong ASCII */
    {"\"\xe0\x80\xaf\"", "t:1:2:", "0xe0 is not valid UTF-8", 0},     /* overlong '/' */
    {"\"\xf0\x80\x80\xaf\"", "t:1:2:", "0xf0 is not valid UTF-8", 0}, /* overlong '/' */
    {"\"\xed\xa0\x80\"", "t:1:2:", "0xed is not valid UTF-8", 0},     /* surrogate */
    {"\"\xf4\x90\x80\x80\"", "t:1:2:", "0xf4 is not valid UTF-8", 0}, /* above U+10FFFF */
    {"\"\x80\"", "t:1:2:", "0x80 is not valid UTF-8", 0},
    {"\"\xc3\"", "t:1:2:", "0xc3 is not valid UTF-8", 0},
    {"\"\xe2\x82", "t:1:2:", "0xe2 is not valid UTF-8", 0},
    {"\"caf\xe9\"", "t:1:5:", "0xe9 is not valid UTF-8", 0}, /* Latin-1 */
};

static void check_refused(void) {
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        const refused_t *r = &refused[i];
        size_t bytes = r->bytes ? r->bytes : strlen(r->text);
        if (check_bytes(r->text, bytes) != TPCOMM_ERR_PARSE) FAIL("case %zu was not refused: %s", i, r->text);
        const char *error = tpcomm_last_error();
        if (strncmp(error, r->place, strlen(r->place)) != 0 || !strstr(error, r->piece))
            FAIL("case %zu (%s): the error is \"%s\", want \"%s ... %s\"", i, r->text, error, r->place, r->piece);
        CHECK(!reference(r->text, bytes));
    }
}

/* ---------------------------------------------------------------- limits */

static void check_depth(void) {
    static const char *const opens[] = {"[", "{\"a\":", "[{\"a\":"}, *const closes[] = {"]", "}", "}]"};
    static const unsigned levels[] = {1, 1, 2};
    enum { BYTES = 2000000 };
    char *text = malloc(BYTES);
    CHECK(text != NULL);
    for (int form = 0; form < 3; form++) {
        size_t open_bytes = strlen(opens[form]), close_bytes = strlen(closes[form]);
        for (unsigned depth = 60; depth <= 70; depth += levels[form]) {
            size_t used = 0, count = depth / levels[form];
            for (size_t i = 0; i < count; i++, used += open_bytes) memcpy(text + used, opens[form], open_bytes);
            text[used++] = '1';
            for (size_t i = 0; i < count; i++, used += close_bytes) memcpy(text + used, closes[form], close_bytes);
            tpcomm_status_t want = depth <= TPC_JSON_MAX_DEPTH ? TPCOMM_OK : TPCOMM_ERR_PARSE;
            CHECK_STATUS(check_bytes(text, used), want);
            if (want != TPCOMM_OK) CHECK_ERROR_HAS("nested more than 64 levels deep");
            CHECK_EQ(reference(text, used), want == TPCOMM_OK);
        }
        size_t used = 0;
        for (size_t i = 0; i < 100000; i++, used += open_bytes) memcpy(text + used, opens[form], open_bytes);
        CHECK_STATUS(check_bytes(text, used), TPCOMM_ERR_PARSE);
        CHECK_ERROR_HAS("nested more than 64 levels deep");
    }
    free(text);
}

static void check_size(void) {
    char *text = malloc(TPC_JSON_MAX_BYTES + 1);
    CHECK(text != NULL);
    memset(text, ' ', TPC_JSON_MAX_BYTES + 1);
    text[0] = '1';
    CHECK_OK(check_bytes(text, TPC_JSON_MAX_BYTES));
    CHECK_STATUS(check_bytes(text, TPC_JSON_MAX_BYTES + 1), TPCOMM_ERR_PARSE);
    CHECK_ERROR_HAS("16777217 bytes long; at most 16777216");

    /* 2^21 values, then one more. */
    size_t used = 0;
    text[used++] = '[';
    for (size_t i = 1; i < (1u << 21); i++) {
        if (i > 1) text[used++] = ',';
        text[used++] = '0';
    }
    text[used] = ']';
    CHECK_OK(check_bytes(text, used + 1));
    memcpy(text + used, ",0]", 3);
    CHECK_STATUS(check_bytes(text, used + 3), TPCOMM_ERR_PARSE);
    CHECK_ERROR_HAS("more than 2097152 values");
    free(text);
}

/* ---------------------------------------------------------------- damage */

static const char sample[] =
    "{\n  \"schema\": \"tpcomm-tuning/1\",\n  \"name\": \"caf\xc3\xa9 \\u20ac \\ud83d\\ude00 \\\"q\\\"\",\n"
    "  \"rows\": [\n    {\"bytes_min\": 0, \"bytes_max\": 9007199254740991, \"us\": -1.25e-3, \"on\": true, \"off\": "
    "false, \"none\": null},\n"
    "    [[], {}, [0, [1, [2, [3]]]], \"\"]\n  ],\n  \"e\": 1E+5, \"z\": -0\n}";

static void check_prefixes(void) {
    size_t bytes = sizeof sample - 1;
    CHECK_OK(check_bytes(sample, bytes));
    for (size_t i = 0; i < bytes; i++) {
        if (check_bytes(sample, i) != TPCOMM_ERR_PARSE) FAIL("the prefix of %zu bytes was not refused", i);
        CHECK(strncmp(tpcomm_last_error(), "t:", 2) == 0);
    }
}

static uint64_t random_state = 0x9e3779b97f4a7c15u;

static size_t random_below(size_t limit) {
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (size_t)(random_state % limit);
}

static size_t mutate(char *text, size_t bytes, size_t most) {
    static const char *const tokens[] = {"{",
                                         "}",
                                         "[",
                                         "]",
                                         "\"",
                                         ",",
                                         ":",
                                         "\\",
                                         "\\u",
                                         "\\u0000",
                                         "\\ud800",
                                         "\\udc00",
                                         "0",
                                         "-",
                                         ".",
                                         "e",
                                         "1e999",
                                         "null",
                                         "true",
                                         "\xc0\x80",
                                         "\xed\xa0\x80",
                                         "\xef\xbb\xbf",
                                         "\xff",
                                         "\n",
                                         " ",
                                         "\x01",
                                         "[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[",
                                         "\"a\":1,",
                                         "01"};
    size_t at = random_below(bytes + 1), count = random_below(8) + 1;
    const char *token = tokens[random_below(sizeof tokens / sizeof tokens[0])];
    size_t token_bytes = strlen(token);
    switch (random_below(5)) {
    case 0: /* another byte */
        if (at < bytes) text[at] = (char)random_below(256);
        return bytes;
    case 1: /* less */
        if (at + count > bytes) return bytes;
        memmove(text + at, text + at + count, bytes - at - count);
        return bytes - count;
    case 2: /* a token more */
        if (bytes + token_bytes > most) return bytes;
        memmove(text + at + token_bytes, text + at, bytes - at);
        memcpy(text + at, token, token_bytes);
        return bytes + token_bytes;
    case 3: /* a piece twice */
        if (at + count > bytes || bytes + count > most) return bytes;
        memmove(text + at + count, text + at, bytes - at);
        return bytes + count;
    default: /* a byte copied from elsewhere: mostly another legal one */
        if (at < bytes) text[at] = text[random_below(bytes)];
        return bytes;
    }
}

/** Use everything of a document that was taken. */
static void visit(tpc_json_value_t value, unsigned depth) {
    uint64_t whole;
    CHECK(depth <= TPC_JSON_MAX_DEPTH);
    (void)tpc_json_as_u64(value, 0, UINT64_MAX, &whole);
    (void)tpc_json_is_null(value);
    size_t count = 0;
    for (tpc_json_value_t member = tpc_json_first(value); member.node; member = tpc_json_next(member), count++) {
        const char *key = tpc_json_key(member);
        if (key) CHECK(tpc_json_get(value, key).node == member.node);
        visit(member, depth + 1);
    }
    CHECK_EQ(tpc_json_count(value), count);
}

static void check_mutations(void) {
    enum { ROUNDS = 20000, MOST = 2048 };
    static char text[MOST];
    size_t accepted = 0, parsed = 0;
    for (int round = 0; round < ROUNDS; round++) {
        size_t bytes = sizeof sample - 1;
        memcpy(text, sample, bytes);
        for (size_t i = random_below(3) + 1; i > 0; i--) bytes = mutate(text, bytes, MOST);
        bool want = reference(text, bytes);
        tpcomm_status_t status = check_bytes(text, bytes);
        if (status != (want ? TPCOMM_OK : TPCOMM_ERR_PARSE))
            FAIL("round %d: %s (%s), the reference says %d: %.*s", round, tpcomm_status_name(status),
                 tpcomm_last_error(), want, (int)bytes, text);
        accepted += want;

        /* What the check accepts, cJSON must take too; a key that stands twice is all that may be found later. */
        tpc_json_t *doc = NULL;
        status = tpc_json_parse("t", text, bytes, &doc);
        if (!want) CHECK_STATUS(status, TPCOMM_ERR_PARSE);
        if (want && status != TPCOMM_OK) {
            CHECK_STATUS(status, TPCOMM_ERR_PARSE);
            CHECK_ERROR_HAS("stands twice");
        }
        if (status != TPCOMM_OK) continue;
        parsed++;
        visit(tpc_json_root(doc), 1);
        tpc_json_free(doc);
    }
    CHECK(accepted > ROUNDS / 100 && accepted < ROUNDS);
    CHECK(parsed > ROUNDS / 100);
}

int main(void) {
    check_accepted();
    check_refused();
    check_depth();
    check_size();
    check_prefixes();
    check_mutations();
    return 0;
}
