/* SPDX-License-Identifier: Apache-2.0 */
/** How reports for people are laid out. */
#ifndef BENCH_TEXT_H
#define BENCH_TEXT_H

#include <stdio.h>

/** "  label       text", broken between words so that a line stays readable. */
void bench_text_field(FILE *file, const char *label, const char *text);
/** The same of a formatted text, of which the first 2047 bytes count. */
void bench_text_line(FILE *file, const char *label, const char *format, ...) __attribute__((format(printf, 3, 4)));
/** A blank and a number in `width` columns, with as many decimals as make sense; "-" for NaN. */
void bench_text_number(FILE *file, int width, double value);
/** bench_variable's, but for those that only say who a rank is. */
void bench_text_variables(FILE *file);

#endif
