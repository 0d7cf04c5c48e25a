/* SPDX-License-Identifier: Apache-2.0 */
/* Check that one message over 2^31 bytes is exact: every offset is 64 bits wide (F5). */
#include "multirank/pattern.h"
#include "multirank/ranks.h"

#define COUNT  ((size_t)2147483648u + 12345u)
#define PERIOD 251
#define PIECE  ((size_t)PERIOD * 1024)

static void body(rank_t *rank) {
    static _Thread_local uint8_t want[PIECE];
    uint8_t *data = malloc(COUNT);
    CHECK(data != NULL);
    for (int i = 0; i < PERIOD; i++) {
        data[i] = (uint8_t)(i + rank->rank);
        want[i] = (uint8_t)(2 * i + 1);
    }
    bytes_repeat(data, PERIOD, COUNT);
    bytes_repeat(want, PERIOD, PIECE);
    CHECK_OK(tpcomm_all_reduce(rank->comm, data, data, COUNT, TPCOMM_U8, TPCOMM_SUM, NULL));
    for (size_t at = 0; at < COUNT; at += PIECE) {
        size_t bytes = COUNT - at < PIECE ? COUNT - at : PIECE;
        for (size_t i = 0; memcmp(data + at, want, bytes) != 0 && i < bytes; i++)
            if (data[at + i] != want[i]) FAIL("rank %d element %zu: %u", rank->rank, at + i, data[at + i]);
    }
    free(data);
}

int main(void) {
    tpcomm_config_t config = ranks_config();
    ranks_run(RANKS_THREADS, 2, &config, body, NULL);
    return 0;
}
