/* SPDX-License-Identifier: Apache-2.0 */
/* Check that calls that differ in one bit of one word differ in the 32 bits that kernels compare, each from all others.
 */
#include <stdlib.h>

#include "base/hash.h"
#include "check.h"

#define WORDS 7

static int by_value(const void *a, const void *b) {
    uint32_t x, y;
    memcpy(&x, a, sizeof x);
    memcpy(&y, b, sizeof y);
    return x < y ? -1 : x > y;
}

static void check_bits(uint64_t fill) {
    uint32_t low[WORDS * 64 + 1];
    size_t n = 0;
    uint64_t words[WORDS];
    for (size_t w = 0; w < WORDS; w++) words[w] = fill * w;
    low[n++] = (uint32_t)tpc_hash_words(TPC_HASH_START, words, WORDS);
    for (size_t w = 0; w < WORDS; w++)
        for (int bit = 0; bit < 64; bit++) {
            words[w] ^= UINT64_C(1) << bit;
            low[n++] = (uint32_t)tpc_hash_words(TPC_HASH_START, words, WORDS);
            words[w] ^= UINT64_C(1) << bit;
        }
    qsort(low, n, sizeof low[0], by_value);
    for (size_t i = 1; i < n; i++) CHECK(low[i] != low[i - 1]);
}

int main(void) {
    check_bits(0);
    check_bits(1);
    check_bits(UINT64_C(0x0123456789ABCDEF));
    /* In another order, and with a word more, they are others. */
    uint64_t there[] = {4096, 7, 0}, back[] = {7, 4096, 0};
    CHECK((uint32_t)tpc_hash_words(TPC_HASH_START, there, 2) != (uint32_t)tpc_hash_words(TPC_HASH_START, back, 2));
    CHECK((uint32_t)tpc_hash_words(TPC_HASH_START, there, 2) != (uint32_t)tpc_hash_words(TPC_HASH_START, there, 3));
    return 0;
}
