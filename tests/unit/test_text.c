/* SPDX-License-Identifier: Apache-2.0 */
/* Check that UTF-8 is told exactly, hostile text is made harmless, and a typing error finds its name. */
#include <stdbool.h>

#include "base/text.h"
#include "check.h"

/** RFC 3629 by its definition: decode, then check the value, the shortest form and the surrogates. */
static size_t reference_utf8(const unsigned char *byte, size_t left) {
    static const uint32_t least[5] = {0, 0, 0x80, 0x800, 0x10000};
    size_t length = byte[0] < 0x80             ? 1
                    : (byte[0] & 0xe0) == 0xc0 ? 2
                    : (byte[0] & 0xf0) == 0xe0 ? 3
                    : (byte[0] & 0xf8) == 0xf0 ? 4
                                               : 0;
    if (length == 0 || length > left) return 0;
    uint32_t point = length == 1 ? byte[0] : byte[0] & (0xffu >> (length + 1));
    for (size_t i = 1; i < length; i++) {
        if ((byte[i] & 0xc0) != 0x80) return 0;
        point = point << 6 | (byte[i] & 0x3f);
    }
    if (point < least[length] || point > 0x10ffff || (point >= 0xd800 && point <= 0xdfff)) return 0;
    return length;
}

static void check_utf8(void) {
    static const unsigned char tails[] = {0x00, 0x41, 0x7f, 0x80, 0x8f, 0x90, 0x9f, 0xa0, 0xbf, 0xc0, 0xff};
    enum { TAILS = sizeof tails };
    CHECK_EQ(tpc_text_utf8("a", 0), 0);
    for (unsigned first = 0; first < 256; first++)
        for (unsigned second = 0; second < 256; second++)
            for (unsigned i = 0; i < TAILS; i++)
                for (unsigned j = 0; j < TAILS; j++)
                    for (size_t left = 1; left <= 4; left++) {
                        unsigned char bytes[4] = {(unsigned char)first, (unsigned char)second, tails[i], tails[j]};
                        size_t got = tpc_text_utf8((const char *)bytes, left), want = reference_utf8(bytes, left);
                        if (got != want)
                            FAIL("%02x %02x %02x %02x (%zu): %zu, want %zu", bytes[0], bytes[1], bytes[2], bytes[3],
                                 left, got, want);
                    }
}

static void check_clean(void) {
    static const char *const cases[][2] = {
        {"", ""},
        {"plain", "plain"},
        {"a\tb\nc\x1b[31m\x7f", "a?b?c?[31m?"},
        {"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80", "\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80"},
        {"\xc2\x9b"
         "31m",
         "??31m"}, /* the 8-bit form of ESC [ */
        {"\xc2\xa0", "\xc2\xa0"},
        {"\xc3", "?"},
        {"\xc0\x80\xed\xa0\x80", "?????"},
        {"a\xff\xe2\x82", "a???"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[32];
        strcpy(text, cases[i][0]);
        tpc_text_clean(text);
        if (strcmp(text, cases[i][1]) != 0) FAIL("case %zu became \"%s\"", i, text);
    }
}

static void check_cut_and_quote(void) {
    char text[16], quoted[TPC_TEXT_QUOTE_BYTES], whole[300];
    strcpy(text, "0123456");
    tpc_text_cut(text, 8, 7);
    CHECK(strcmp(text, "0123456") == 0);
    tpc_text_cut(text, 8, 8);
    CHECK(strcmp(text, "0123...") == 0);
    strcpy(text, "012\xe2\x82\xac"
                 "6");
    tpc_text_cut(text, 8, 100);
    CHECK(strcmp(text, "012...") == 0);

    CHECK(strcmp(tpc_text_quote(quoted, "a\0b\n", 4), "a?b?") == 0);
    /* Every length, with characters of every size, ends in whole characters. */
    static const char *const characters[] = {"x", "\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x98\x80"};
    for (size_t size = 1; size <= 4; size++) {
        for (size_t count = 0; count < 70; count++) {
            whole[0] = '\0';
            for (size_t i = 0; i < count; i++) strcat(whole, characters[size - 1]);
            tpc_text_quote(quoted, whole, strlen(whole));
            if (strlen(whole) < TPC_TEXT_QUOTE_BYTES) {
                CHECK(strcmp(quoted, whole) == 0);
                continue;
            }
            size_t kept = strlen(quoted);
            CHECK(kept < TPC_TEXT_QUOTE_BYTES && kept + size + 4 > TPC_TEXT_QUOTE_BYTES);
            CHECK(strcmp(quoted + kept - 3, "...") == 0);
            CHECK_EQ((kept - 3) % size, 0);
            CHECK(memcmp(quoted, whole, kept - 3) == 0);
        }
    }
}

static void check_nearest(void) {
    static const char *const names[] = {"OP_TIMEOUT_MS", "INIT_TIMEOUT_MS", "LOG", "LOG_FILE", "RANK"};
    static const struct {
        const char *name, *nearest;
    } cases[] = {
        {"OP_TIMEOUT", "OP_TIMEOUT_MS"},
        {"OP_TIMOEUT_MS", "OP_TIMEOUT_MS"},
        {"LOGFILE", "LOG_FILE"},
        {"RNAK", "RANK"},
        {"LOG", "LOG"},
        {"BANANA_SPLIT", NULL},
        {"", NULL},
        {"XYZ", NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *got = tpc_text_nearest(cases[i].name, names, 5);
        if (got != cases[i].nearest && (!got || !cases[i].nearest || strcmp(got, cases[i].nearest) != 0))
            FAIL("%s: nearest is %s, want %s", cases[i].name, got ? got : "none",
                 cases[i].nearest ? cases[i].nearest : "none");
    }
    CHECK(tpc_text_nearest("RANK", names, 0) == NULL);

    CHECK_EQ(tpc_text_distance("", ""), 0);
    CHECK_EQ(tpc_text_distance("", "abc"), 3);
    CHECK_EQ(tpc_text_distance("kitten", "sitting"), 3);
    CHECK_EQ(tpc_text_distance("ab", "ba"), 1);
    CHECK_EQ(tpc_text_distance("abc", "abc"), 0);
    char long_name[300];
    memset(long_name, 'x', sizeof long_name - 1);
    long_name[sizeof long_name - 1] = '\0';
    CHECK_EQ(tpc_text_distance(long_name, ""), 63);
    CHECK_EQ(tpc_text_distance(long_name, long_name), 0);
}

int main(void) {
    check_utf8();
    check_clean();
    check_cut_and_quote();
    check_nearest();
    return 0;
}
