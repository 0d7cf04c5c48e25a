/* SPDX-License-Identifier: Apache-2.0 */
/* Check what a MISMATCH between kernels says of a launch: the call as its rank made it, seq and count with it; the
 * latest seq of one made again; what is known from the two words alone where another launch has taken its place. */
#include <stdlib.h>

#include "check.h"
#include "custom_ar/said.h"

static const char *text_of(const tpc_ar_said_t *table, uint32_t what, uint32_t hash) {
    static char text[240];
    return tpc_ar_said_text(table, what, hash, text, sizeof text);
}

static void check_text(const tpc_ar_said_t *table, uint32_t what, uint32_t hash, const char *want) {
    const char *text = text_of(table, what, hash);
    if (strcmp(text, want) != 0) FAIL("'%s', want '%s'", text, want);
}

int main(void) {
    tpc_ar_said_t *table = calloc(TPC_AR_SAID_SLOTS, sizeof *table);
    CHECK(table != NULL);
    uint32_t what = (uint32_t)TPCOMM_ALL_REDUCE | (uint32_t)TPCOMM_PATH_ONESHOT << 8 | (uint32_t)TPCOMM_MAX << 16 |
                    (uint32_t)TPCOMM_BF16 << 20;
    tpc_flight_record_t record = {.seq = 7,
                                  .count = 4096,
                                  .coll = TPCOMM_ALL_REDUCE,
                                  .dtype = TPCOMM_BF16,
                                  .op = TPCOMM_MAX,
                                  .path = TPCOMM_PATH_ONESHOT};
    check_text(table, what, 77, "all_reduce bf16 max by oneshot (what 00330101, hash 0000004d)");
    tpc_ar_say(table, what, 77, &record);
    check_text(table, what, 77, "all_reduce seq 7 count 4096 bf16 max by oneshot");
    record.seq = 9;
    tpc_ar_say(table, what, 77, &record);
    check_text(table, what, 77, "all_reduce seq 9 count 4096 bf16 max by oneshot");
    /* Another launch of the same place, and the words of one that nobody made. */
    tpc_flight_record_t other = {.seq = 10,
                                 .count = 5,
                                 .coll = TPCOMM_BROADCAST,
                                 .dtype = TPCOMM_F32,
                                 .root = 3,
                                 .path = TPCOMM_PATH_ONESHOT,
                                 .capturing = 1};
    tpc_ar_say(table, 1u << 20 | TPCOMM_BROADCAST, 77 + TPC_AR_SAID_SLOTS, &other);
    check_text(table, 1u << 20 | TPCOMM_BROADCAST, 77 + TPC_AR_SAID_SLOTS,
               "broadcast seq 10 count 5 f32 root 3 by oneshot, captured");
    CHECK(strncmp(text_of(table, what, 77), "all_reduce bf16 max", 19) == 0);
    CHECK(strstr(text_of(table, what, 77), "4096") == NULL);
    CHECK(strlen(text_of(table, UINT32_MAX, UINT32_MAX)) > 0);
    free(table);
    return 0;
}
