/* SPDX-License-Identifier: Apache-2.0 */
/* Check that one message over 2^31 bytes is exact: every offset is 64 bits wide (F5). */
#include "multirank/ranks.h"

#define COUNT ((size_t)2147483648u + 12345u)

static void body(rank_t *rank) {
    uint8_t *data = malloc(COUNT);
    CHECK(data != NULL);
    for (size_t i = 0; i < COUNT; i++) data[i] = (uint8_t)(i % 251 + (size_t)rank->rank);
    CHECK_OK(tpcomm_all_reduce(rank->comm, data, data, COUNT, TPCOMM_U8, TPCOMM_SUM, NULL));
    for (size_t i = 0; i < COUNT; i++)
        if (data[i] != (uint8_t)(2 * (i % 251) + 1)) FAIL("rank %d element %zu: %u", rank->rank, i, data[i]);
    free(data);
}

int main(void) {
    tpcomm_config_t config = ranks_config();
    ranks_run(RANKS_THREADS, 2, &config, body, NULL);
    return 0;
}
