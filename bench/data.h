/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Test data: the inputs of every rank, and what a call must make of them, worked out here from the written contract
 * (reference.h), not by the library. Element i of a buffer depends on i alone, so one table serves every message size,
 * and repeats after a prime number of elements, so it never lines up with a page, a vector or a row. Every buffer
 * begins somewhere else in the table, so that one taken for another shows.
 *
 * Even buffers hold x[rank][i] = (7 i + 3 rank) mod 13, whose sums are exact in every type: a missing rank, one counted
 * twice or a wrong index shows. Odd buffers hold seeded random values of mixed sign and size, whose sum depends on the
 * order of the additions, and among them raw bit patterns: infinities, NaNs, subnormals.
 *
 * With a norm (spec.hidden) the table is seven rows, and random values have no raw patterns: one NaN would hide the
 * rest of its row.
 *
 * "Exact" data is for libraries that add in an order of their own: 0 or 1 at random (1 or 2 for products), where every
 * order and every place of rounding gives the same bits.
 */
#ifndef BENCH_DATA_H
#define BENCH_DATA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tpcomm.h"

/** What an output holds before a call: bits that no sum of two or more ranks has. */
#define BENCH_POISON 0xFF

typedef struct bench_data bench_data_t;

typedef struct {
    tpcomm_dtype_t dtype;
    tpcomm_op_t op; /**< 0: nothing is reduced, data is moved */
    int32_t rank, ranks;
    uint64_t seed;
    bool exact;
    uint32_t
        hidden; /**< sums of rows of so many elements are added to a residual and normalised (f32, f16, bf16); 0: not */
} bench_data_spec_t;

/** Epsilon of the norm. */
#define BENCH_NORM_EPS 1e-5f

/** What a rank's buffers hold before a call. */
typedef enum {
    BENCH_INPUT,
    BENCH_RESIDUAL, /**< the same on every rank */
    BENCH_WEIGHT    /**< likewise; one row, whichever buffer is named */
} bench_part_t;

/** What an output must hold. */
typedef struct {
    uint32_t buffer;
    uint64_t from;    /**< element of the buffer that the output begins with */
    int32_t of_rank;  /**< the input of this rank; -1: the reduction of all; -2: the residual after it */
    uint64_t repeats; /**< the call was made so many times in place, or with this residual; 0 and 1: once
                         (bench_data_repeat) */
} bench_expect_t;

/** Tables of one rank. Fails: NO_MEMORY. */
tpcomm_status_t bench_data_new(const bench_data_spec_t *spec, bench_data_t **data_p);
void bench_data_free(bench_data_t *data);
size_t bench_data_element_bytes(const bench_data_t *data);

/**
 * Make ready for results of `repeats` reductions in place, or with the same residual. own_block: of them only this
 * rank's own input is replaced by the result (reduce_scatter), not every rank's (all_reduce). Fails: NO_MEMORY.
 */
tpcomm_status_t bench_data_repeat(bench_data_t *data, uint64_t repeats, bool own_block);

/** Write a part of this rank's buffer, from element `from` on. */
void bench_data_fill(const bench_data_t *data, bench_part_t part, uint32_t buffer, uint64_t from, void *in,
                     uint64_t count);

/** Compare every element of out with what must be there; returns how many are wrong, first_p the first of them. */
uint64_t bench_data_check(const bench_data_t *data, const bench_expect_t *expect, const void *out, uint64_t count,
                          uint64_t *first_p);

/** The bits that element i of the output must have. */
uint64_t bench_data_expected(const bench_data_t *data, const bench_expect_t *expect, uint64_t i);

#endif
