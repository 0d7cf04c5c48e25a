/* SPDX-License-Identifier: Apache-2.0 */
/* Check that explain tells the path which the counters then show, its reason and range, and why every other path was
 * not taken. */
#include "multirank/ranks.h"

static uint64_t calls_of(const tpcomm_t *comm, tpcomm_path_t path) {
    tpcomm_stats_t stats = {.struct_size = sizeof stats};
    for (int32_t i = 0; tpcomm_stats(comm, i, &stats) == TPCOMM_OK; i++)
        if (stats.path == path) return stats.calls;
    return 0;
}

static void body(rank_t *rank) {
    static _Thread_local float data[300000];
    static const size_t counts[] = {1, 100, 4096, 16384, 16385, 100000, 300000};
    for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
        tpcomm_call_t call = {.struct_size = sizeof call,
                              .coll = TPCOMM_ALL_REDUCE,
                              .dtype = TPCOMM_F32,
                              .op = TPCOMM_SUM,
                              .in = data,
                              .out = data,
                              .count = counts[c]};
        tpcomm_decision_t decision = {.struct_size = sizeof decision};
        CHECK_OK(tpcomm_explain(rank->comm, &call, &decision));
        uint64_t bytes = counts[c] * sizeof *data;
        CHECK(decision.bytes_min <= bytes && bytes <= decision.bytes_max);
        CHECK(decision.reason[0] != '\0');
        CHECK_EQ(decision.rejected_count, 2);
        for (int32_t i = 0; i < decision.rejected_count; i++) CHECK(decision.rejected[i].why_not[0] != '\0');
        uint64_t before = calls_of(rank->comm, decision.path);
        CHECK_OK(tpcomm_call(rank->comm, &call, NULL));
        CHECK_EQ(calls_of(rank->comm, decision.path), before + 1);

        char text[2048], cut[16];
        CHECK_OK(tpcomm_explain_text(rank->comm, &call, text, sizeof text));
        CHECK(strstr(text, tpcomm_path_name(decision.path)) != NULL && strstr(text, decision.reason) != NULL);
        CHECK_STATUS(tpcomm_explain_text(rank->comm, &call, cut, sizeof cut), TPCOMM_ERR_TOO_SMALL);
        CHECK_EQ(strlen(cut), sizeof cut - 1);

        call.path = TPCOMM_PATH_CPU_TWOSHOT; /* the call's own path wins over everything */
        CHECK_OK(tpcomm_explain(rank->comm, &call, &decision));
        CHECK_EQ(decision.path, rank->size == 1 ? TPCOMM_PATH_LOCAL : TPCOMM_PATH_CPU_TWOSHOT);
        CHECK(strstr(decision.reason, "the call") != NULL);
    }
}

int main(void) {
    tpcomm_config_t config = ranks_config();
    for (int32_t size = 2; size <= 6; size++) ranks_run(RANKS_THREADS, size, &config, body, NULL);
    return 0;
}
