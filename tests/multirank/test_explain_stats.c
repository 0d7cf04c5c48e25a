/* SPDX-License-Identifier: Apache-2.0 */
/* Check that explain tells the path which the counters then show, its reason and range, and why every other path was
 * not taken; of captured calls as of eager ones, where a tuning file has rows for either; and that callers who know
 * less of a decision get that much. */
#include <stddef.h>
#include <unistd.h>

#include "base/hook.h"
#include "coordinator/comm.h"
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

/* Under a file by which captured messages above 1000 bytes, and eager ones below, take cpu_twoshot. */
static void by_mode(rank_t *rank) {
    bool captures = rank->arg != NULL; /* the cpu device captures nothing; a hook makes it take calls as if it did */
    static _Thread_local float data[4096];
    for (size_t count = 4; count <= 4096; count *= 4) {
        tpcomm_call_t call = {.struct_size = sizeof call,
                              .coll = TPCOMM_ALL_REDUCE,
                              .dtype = TPCOMM_F32,
                              .op = TPCOMM_SUM,
                              .flags = captures ? TPCOMM_CALL_CAPTURED : 0,
                              .in = data,
                              .out = data,
                              .count = count};
        bool twoshot = (count * sizeof *data > 1000) == captures;
        tpcomm_decision_t decision = {.struct_size = sizeof decision};
        CHECK_OK(tpcomm_explain(rank->comm, &call, &decision));
        CHECK_EQ(decision.path, twoshot ? TPCOMM_PATH_CPU_TWOSHOT : TPCOMM_PATH_CPU_ONESHOT);
        CHECK_EQ(decision.other_path, twoshot ? TPCOMM_PATH_CPU_ONESHOT : TPCOMM_PATH_CPU_TWOSHOT);
        CHECK_EQ(decision.capturing, captures ? TPCOMM_ON : TPCOMM_OFF);
        char text[2048];
        CHECK_OK(tpcomm_explain_text(rank->comm, &call, text, sizeof text));
        CHECK((strstr(text, "outside a graph: ") != NULL) == captures);
        CHECK((strstr(text, "captured in a graph: ") != NULL) == captures || !captures);
        CHECK(strstr(text, tpcomm_path_name(decision.other_path)) != NULL);

        /* A caller from before these fields gets what it knows, and nothing is written behind it. */
        union {
            tpcomm_decision_t decision;
            unsigned char bytes[sizeof(tpcomm_decision_t)];
        } old;
        memset(&old, 0xA5, sizeof old);
        old.decision.struct_size = offsetof(tpcomm_decision_t, capturing);
        CHECK_OK(tpcomm_explain(rank->comm, &call, &old.decision));
        CHECK_EQ(old.decision.path, decision.path);
        for (size_t i = offsetof(tpcomm_decision_t, capturing); i < sizeof old; i++) CHECK_EQ(old.bytes[i], 0xA5);

        if (captures) { /* a call itself is asked of its stream */
            CHECK_STATUS(tpcomm_call(rank->comm, &call, NULL), TPCOMM_ERR_INVALID_ARG);
            CHECK_ERROR_HAS("tpcomm_explain");
        }
        call.flags = 2;
        CHECK_STATUS(tpcomm_explain(rank->comm, &call, &decision), TPCOMM_ERR_INVALID_ARG);
        call.flags = 0;
        uint64_t before = calls_of(rank->comm, decision.path);
        CHECK_OK(tpcomm_call(rank->comm, &call, NULL));
        CHECK_EQ(calls_of(rank->comm, decision.path), before + 1);
    }
    if (!captures) return;
    CHECK_OK(tpcomm_host_barrier(rank->comm, 0)); /* pretended calls wait for nobody */
    tpc_kept_drop(&rank->comm->graphs);
}

static const char rows[] = "{\"schema\": \"tpcomm-tuning/1\", \"device\": \"cpu\", \"rows\": ["
#define HEAD "{\"coll\": \"all_reduce\", \"topology\": \"cpu\", \"ranks\": 2, "
    HEAD "\"capturing\": true, \"bytes_max\": 1000, \"path\": \"cpu_oneshot\"}, " HEAD
                           "\"capturing\": true, \"bytes_min\": 1001, \"path\": \"cpu_twoshot\"}, " HEAD
                           "\"capturing\": false, \"bytes_max\": 1000, \"path\": \"cpu_twoshot\"}, " HEAD
                           "\"capturing\": false, \"bytes_min\": 1001, \"path\": \"cpu_oneshot\"}]}";

int main(void) {
    tpcomm_config_t config = ranks_config();
    for (int32_t size = 2; size <= 6; size++) ranks_run(RANKS_THREADS, size, &config, body, NULL);

    char path[64];
    snprintf(path, sizeof path, "/tmp/tpcomm-test-explain-%d.json", (int)getpid());
    FILE *file = fopen(path, "we");
    CHECK(file != NULL && fputs(rows, file) >= 0);
    CHECK_EQ(fclose(file), 0);
    config.tuning_file = path;
    for (int kind = 0; kind < RANKS_KINDS; kind++) {
        ranks_run(kind, 2, &config, by_mode, NULL);
        ranks_set_hooks("set@capture:1");
        tpc_hook_reload();
        ranks_run(kind, 2, &config, by_mode, path);
        ranks_set_hooks("");
        tpc_hook_reload();
    }
    CHECK_EQ(unlink(path), 0);
    return 0;
}
