/* SPDX-License-Identifier: Apache-2.0 */
/** Seeded inputs that every rank can make for every rank, and the exact result. */
#ifndef TPC_TESTS_PATTERN_H
#define TPC_TESTS_PATTERN_H

#include <stddef.h>

#include "check.h"

/** Kinds of input. */
enum {
    PATTERN_EXACT = 0, /**< (7 i + 3 r) mod 13: sums are small integers, so a wrong index or rank shows */
    PATTERN_BITS = 1   /**< random bits, NaN and infinities among them: the order of additions shows */
};

/** Fill bytes with what stands in the first period of them, again and again. */
void bytes_repeat(void *data, size_t period, size_t bytes);

/** Fill count elements with rank's input of a round. */
void pattern_fill(int kind, tpcomm_dtype_t dtype, uint64_t seed, int32_t rank, size_t count, void *out);

/** The result that the numbers contract asks for: the generic kernel over all ranks' inputs (itself tested in
 * tests/unit/test_reduce.c). */
void pattern_result(int kind, tpcomm_dtype_t dtype, tpcomm_op_t op, uint64_t seed, int32_t size, size_t count,
                    void *out);

/** Buffer of bytes at an offset from alignment, with 64 guard bytes on both sides. */
typedef struct {
    unsigned char *block, *data;
    size_t bytes;
} guarded_t;
guarded_t guarded_new(size_t bytes, size_t misalign);
void guarded_check(const guarded_t *guarded); /**< guards are as they were */
void guarded_free(guarded_t *guarded);

#endif
