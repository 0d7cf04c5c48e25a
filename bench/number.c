/* SPDX-License-Identifier: Apache-2.0 */
#include "number.h"

#include <locale.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

bool bench_number_u64(const char *text, size_t length, uint64_t *value_p) {
    uint64_t value = 0;
    if (length == 0) return false;
    for (size_t i = 0; i < length; i++) {
        if (text[i] < '0' || text[i] > '9') return false;
        uint64_t digit = (uint64_t)(text[i] - '0');
        if (value > (UINT64_MAX - digit) / 10) return false;
        value = value * 10 + digit;
    }
    *value_p = value;
    return true;
}

static size_t digits(const char *text, size_t length, size_t from) {
    size_t at = from;
    while (at < length && text[at] >= '0' && text[at] <= '9') at++;
    return at - from;
}

/** Whether all of text is [-]digits[.digits][e[+-]digits]. */
static bool is_decimal(const char *text, size_t length) {
    size_t at = length > 0 && text[0] == '-' ? 1 : 0, n = digits(text, length, at);
    if (n == 0) return false;
    at += n;
    if (at < length && text[at] == '.') {
        n = digits(text, length, at + 1);
        if (n == 0) return false;
        at += 1 + n;
    }
    if (at < length && (text[at] == 'e' || text[at] == 'E')) {
        at++;
        if (at < length && (text[at] == '+' || text[at] == '-')) at++;
        n = digits(text, length, at);
        if (n == 0) return false;
        at += n;
    }
    return at == length;
}

/**
 * At most 16 characters: with a point 15 digits, which a double holds exactly, as it does the power of ten, so that
 * their quotient is the nearest double (Clinger, "How to read floating point numbers accurately", 1990); without one a
 * whole number, rounded once. False if the text is not so simple.
 */
static bool simple_double(const char *text, size_t length, double *value_p) {
    static const double power[] = {1e0, 1e1, 1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                   1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15};
    uint64_t mantissa = 0;
    size_t point = length;
    if (length > 16) return false;
    for (size_t i = 0; i < length; i++) {
        if (text[i] == '.') {
            point = i;
        } else if (text[i] >= '0' && text[i] <= '9') {
            mantissa = mantissa * 10 + (uint64_t)(text[i] - '0');
        } else {
            return false;
        }
    }
    size_t decimals = point == length ? 0 : length - point - 1;
    *value_p = (double)mantissa / power[decimals];
    return true;
}

bool bench_number_double(const char *text, size_t length, double *value_p) {
    char copy[64];
    if (length >= sizeof copy || !is_decimal(text, length)) return false;
    if (simple_double(text, length, value_p)) return true;

    memcpy(copy, text, length);
    copy[length] = '\0';
    locale_t locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    if (locale == (locale_t)0) return false;
    locale_t before = uselocale(locale);
    double value = strtod(copy, NULL);
    uselocale(before);
    freelocale(locale);
    if (!isfinite(value)) return false;
    *value_p = value;
    return true;
}

/** Edits (insert, delete, replace) between two names; names over 63 characters count as far apart. */
static size_t distance(const char *a, const char *b) {
    size_t row[64], a_length = strlen(a), b_length = strlen(b);
    if (a_length >= 64 || b_length >= 64) return 64;
    for (size_t j = 0; j <= b_length; j++) row[j] = j;
    for (size_t i = 1; i <= a_length; i++) {
        size_t corner = row[0];
        row[0] = i;
        for (size_t j = 1; j <= b_length; j++) {
            size_t best = corner + (a[i - 1] != b[j - 1]);
            corner = row[j];
            if (row[j] + 1 < best) best = row[j] + 1;
            if (row[j - 1] + 1 < best) best = row[j - 1] + 1;
            row[j] = best;
        }
    }
    return row[b_length];
}

const char *bench_nearest(const char *name, const char *(*next)(const void *arg, size_t i), const void *arg) {
    const char *candidate, *best = NULL;
    size_t least = strlen(name) / 3 + 2; /* fewer edits than this: a slip, not another word */
    for (size_t i = 0; (candidate = next(arg, i)) != NULL; i++) {
        size_t edits = distance(name, candidate);
        if (edits < least) least = edits, best = candidate;
    }
    return best;
}
