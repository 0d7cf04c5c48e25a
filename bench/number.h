/* SPDX-License-Identifier: Apache-2.0 */
/** Numbers and names in text written by people: strict, and the same in every locale. */
#ifndef BENCH_NUMBER_H
#define BENCH_NUMBER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** Decimal digits only: no sign, blank, exponent or unit. False if it is not that, or does not fit 64 bits. */
bool bench_number_u64(const char *text, size_t length, uint64_t *value_p);

/**
 * A decimal number: digits, at most one point with a digit on both sides, at most one exponent; a minus in front. No
 * NaN, no infinity, no hexadecimal, at most 63 characters. The nearest double. False if it is not that, or too great
 * for a double.
 */
bool bench_number_double(const char *text, size_t length, double *value_p);

/** The candidate nearest to a mistyped name, or NULL if none is near. next(arg, i) gives candidate i, NULL after the
 * last. */
const char *bench_nearest(const char *name, const char *(*next)(const void *arg, size_t i), const void *arg);

#endif
