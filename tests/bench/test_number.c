/* SPDX-License-Identifier: Apache-2.0 */
/* Check that numbers in text are read strictly, exactly and alike in every locale, and that a mistyped name finds its
 * like. */
#include <locale.h>

#include "check.h"
#include "number.h"

static void check_u64(const char *text, int good, uint64_t want) {
    uint64_t value = 77;
    if ((int)bench_number_u64(text, strlen(text), &value) != good)
        FAIL("\"%s\" should be %s", text, good ? "read" : "refused");
    if (good)
        CHECK(value == want);
    else
        CHECK_EQ(value, 77);
}

static void check_double(const char *text, int good, double want) {
    double value = 77;
    if ((int)bench_number_double(text, strlen(text), &value) != good)
        FAIL("\"%s\" should be %s", text, good ? "read" : "refused");
    if (value != (good ? want : 77)) FAIL("\"%s\" is %.17g, want %.17g", text, value, want);
}

static void check_doubles(void) {
    check_double("0", 1, 0.0);
    check_double("12", 1, 12.0);
    check_double("0.02", 1, 0.02);
    check_double("19440110.0", 1, 19440110.0);
    check_double("0.028387359647587547", 1, 0.028387359647587547);
    check_double("9007199254740993", 1, 9007199254740992.0);
    check_double("123456789.012345", 1, 123456789.012345);
    check_double("-1.5", 1, -1.5);
    check_double("1e3", 1, 1000.0);
    check_double("1E-4", 1, 0.0001);
    check_double("1.7976931348623157e308", 1, 1.7976931348623157e308);
    static const char *const bad[] = {"",     " 1",  "1 ",  "+1",    ".5",       "5.",       "1e",    "1e+",
                                      "0x10", "NaN", "nan", "inf",   "1,5",      "1.2.3",    "1e400", "--1",
                                      "-",    "1_0", "1f",  "1e5.0", "\xd9\xa1", "infinity", "1..2"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) check_double(bad[i], 0, 0);
    check_double("0.0000000000000000000000000000000000000000000000000000000000001", 1, 1e-61);
    check_double("0.000000000000000000000000000000000000000000000000000000000000001", 0, 0); /* 65 characters */
}

static const char *name_at(const void *arg, size_t i) {
    (void)arg;
    static const char *const names[] = {"time-scale", "token-ms", "token-budget", NULL};
    return names[i];
}

int main(void) {
    check_u64("0", 1, 0);
    check_u64("007", 1, 7);
    check_u64("18446744073709551615", 1, UINT64_MAX);
    check_u64("18446744073709551616", 0, 0);
    check_u64("99999999999999999999999", 0, 0);
    static const char *const bad[] = {"", " 1", "1 ", "-1", "+1", "1.0", "1e3", "0x1", "12x", "NaN", "1,000"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) check_u64(bad[i], 0, 0);

    check_doubles();
    /* A locale with a decimal comma, if the machine has one; the C locale has been checked above. */
    if (setlocale(LC_ALL, "de_DE.UTF-8") || setlocale(LC_ALL, "fr_FR.UTF-8") || setlocale(LC_ALL, "de_DE"))
        check_doubles();

    CHECK(strcmp(bench_nearest("time-scal", name_at, NULL), "time-scale") == 0);
    CHECK(strcmp(bench_nearest("tokn-budgt", name_at, NULL), "token-budget") == 0);
    CHECK(bench_nearest("output", name_at, NULL) == NULL);
    CHECK(bench_nearest("", name_at, NULL) == NULL);
    return 0;
}
