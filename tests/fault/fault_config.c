/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Check that ranks which are set up differently learn so in init, all of them alike, with the item and both values (H1,
 * I13, J5), and that what may differ does not matter; that a tuning file measured elsewhere is refused on every rank
 * with both values, and a good one is read once for all groups of a world.
 */
#include <unistd.h>

#include "base/hook.h"
#include "multirank/ranks.h"

typedef struct {
    const char *what;
    const char *variable[2], *value[2]; /* per rank; NULL: leave alone */
    tpcomm_status_t want;
    const char *text[3];
} setup_t;

static const setup_t setups[] = {
    {"forced path",
     {"TPCOMM_PATH", "TPCOMM_PATH"},
     {"cpu_oneshot", "cpu_twoshot"},
     TPCOMM_ERR_CONFIG_MISMATCH,
     {"TPCOMM_PATH", "cpu_oneshot", "cpu_twoshot"}},
    {"a path that two ranks cannot take",
     {"TPCOMM_PATH", NULL},
     {"local", NULL},
     TPCOMM_ERR_CONFIG,
     {"TPCOMM_PATH", "local", "only a group of one"}},
    {"path only on rank 1",
     {NULL, "TPCOMM_PATH"},
     {NULL, "cpu_twoshot"},
     TPCOMM_ERR_CONFIG_MISMATCH,
     {"TPCOMM_PATH", "auto", "cpu_twoshot"}},
    {"path only on rank 0", {"TPCOMM_PATH", NULL}, {"cpu_twoshot", NULL}, TPCOMM_OK, {NULL}},
    {"the default spelled out", {NULL, "TPCOMM_PATH"}, {NULL, " AUTO "}, TPCOMM_OK, {NULL}},
    {"one value, two spellings", {"TPCOMM_DETERMINISTIC", "TPCOMM_DETERMINISTIC"}, {"TRUE", "on"}, TPCOMM_OK, {NULL}},
    {"timeout",
     {"TPCOMM_OP_TIMEOUT_MS", "TPCOMM_OP_TIMEOUT_MS"},
     {"1000", "2000"},
     TPCOMM_ERR_CONFIG_MISMATCH,
     {"TPCOMM_OP_TIMEOUT_MS", "1000", "2000"}},
    {"how calls are compared",
     {"TPCOMM_CHECK", "TPCOMM_CHECK"},
     {"sync", "Off"},
     TPCOMM_ERR_CONFIG_MISMATCH,
     {"TPCOMM_CHECK (config.check) differs", "rank 0 has 'sync'", "rank 1 has 'off'"}},
    {"how calls are compared, on rank 0 alone", {"TPCOMM_CHECK", NULL}, {"sync", NULL}, TPCOMM_OK, {NULL}},
    {"how calls are compared, on rank 1 alone",
     {NULL, "TPCOMM_CHECK"},
     {NULL, "off"},
     TPCOMM_ERR_CONFIG_MISMATCH,
     {"TPCOMM_CHECK (config.check)", "'async' (the default)", "rank 1 has 'off'"}},
    {"tuning file",
     {"TPCOMM_TUNING_FILE", "TPCOMM_TUNING_FILE"},
     {"/nowhere/a.json", "/nowhere/b.json"},
     TPCOMM_ERR_CONFIG_MISMATCH,
     {"TPCOMM_TUNING_FILE", "a.json", "b.json"}},
    {"no such tuning file, named on rank 0 alone",
     {"TPCOMM_TUNING_FILE", NULL},
     {"/nowhere/a.json", NULL},
     TPCOMM_ERR_PEER_FAILED,
     {"rank 0", "/nowhere/a.json", "read tuning file"}},
    {"deterministic",
     {"TPCOMM_DETERMINISTIC", "TPCOMM_DETERMINISTIC"},
     {"on", "off"},
     TPCOMM_ERR_CONFIG_MISMATCH,
     {"TPCOMM_DETERMINISTIC", "'1'", "'0'"}},
    {"workspace",
     {"TPCOMM_WORKSPACE_BYTES", "TPCOMM_WORKSPACE_BYTES"},
     {"1048576", "2097152"},
     TPCOMM_ERR_CONFIG_MISMATCH,
     {"TPCOMM_WORKSPACE_BYTES", "1048576", "2097152"}},
    {"workspace on rank 1 alone, not the default",
     {NULL, "TPCOMM_WORKSPACE_BYTES"},
     {NULL, "2097152"},
     TPCOMM_ERR_CONFIG_MISMATCH,
     {"TPCOMM_WORKSPACE_BYTES", "rank 1", "2097152"}},
    {"NCCL", {"TPCOMM_NCCL", "TPCOMM_NCCL"}, {"0", "1"}, TPCOMM_ERR_CONFIG_MISMATCH, {"TPCOMM_NCCL", "'0'", "'1'"}},
    {"device",
     {"TPCOMM_DEVICE", "TPCOMM_DEVICE"},
     {"cpu", "cuda"},
     TPCOMM_ERR_CONFIG_MISMATCH,
     {"TPCOMM_DEVICE", "cpu", "cuda"}},
    {"how memory is shared",
     {"TPCOMM_PEER_MEM", "TPCOMM_PEER_MEM"},
     {"cumem", "cudaipc"},
     TPCOMM_ERR_CONFIG_MISMATCH,
     {"TPCOMM_PEER_MEM", "cumem", "cudaipc"}},
    {"tuning file on rank 1 alone",
     {NULL, "TPCOMM_TUNING_FILE"},
     {NULL, "/nowhere/b.json"},
     TPCOMM_ERR_CONFIG_MISMATCH,
     {"TPCOMM_TUNING_FILE", "rank 1", "b.json"}},
    {"bad value on rank 1",
     {NULL, "TPCOMM_OP_TIMEOUT_MS"},
     {NULL, "12x"},
     TPCOMM_ERR_CONFIG,
     {"rank 1", "TPCOMM_OP_TIMEOUT_MS", "12x"}},
    {"bad value on rank 0",
     {"TPCOMM_DETERMINISTIC", NULL},
     {"2", NULL},
     TPCOMM_ERR_CONFIG,
     {"rank 0", "TPCOMM_DETERMINISTIC", "2"}},
    {"library version",
     {NULL, "TPCOMM_TEST_HOOKS"},
     {NULL, "set@library_version:105"},
     TPCOMM_ERR_CONFIG_MISMATCH,
     {"version", "0.1.0", "0.1.5"}},
    {"one path fewer",
     {NULL, "TPCOMM_TEST_HOOKS"},
     {NULL, "set@paths:1280"},
     TPCOMM_ERR_CONFIG_MISMATCH,
     {"paths", "cpu_oneshot cpu_twoshot fused_oneshot local", "cpu_oneshot local"}},
    {"another table",
     {NULL, "TPCOMM_TEST_HOOKS"},
     {NULL, "set@table_hash:1"},
     TPCOMM_ERR_CONFIG_MISMATCH,
     {"tuning table", "0000000000000001", "rank 1"}},
    {"local variables", {"TPCOMM_LOG", "TPCOMM_LOG"}, {"none", "error"}, TPCOMM_OK, {NULL}},
};

static void join(int32_t rank, int32_t size, void *arg) {
    const setup_t *setup = arg;
    (void)size;
    if (setup->variable[rank] != NULL) CHECK_EQ(setenv(setup->variable[rank], setup->value[rank], 1), 0);
    tpc_hook_reload();
    resources_t before = resources_now();
    tpcomm_t *comm = NULL;
    /* Everything but the timeout by the environment: a config's value is the same item. */
    tpcomm_config_t config = {.struct_size = sizeof config, .init_timeout_ms = 30000};
    CHECK_STATUS(tpcomm_init_env(&config, &comm), setup->want);
    for (int i = 0; i < 3 && setup->text[i] != NULL; i++) CHECK_ERROR_HAS(setup->text[i]);
    if (setup->want == TPCOMM_OK) {
        CHECK_OK(tpcomm_barrier(comm, NULL));
        CHECK_OK(tpcomm_finalize(comm));
        CHECK_OK(tpcomm_destroy(comm));
    } else {
        CHECK(comm == NULL);
    }
    resources_check_equal(before, setup->what);
}

/* The environment wins over the config struct, and the config struct over the default (P4). */
static void precedence(int32_t rank, int32_t size, void *arg) {
    (void)size;
    int round = *(int *)arg;
    tpcomm_config_t config = {.struct_size = sizeof config, .path = TPCOMM_PATH_CPU_ONESHOT};
    if (round == 1) CHECK_EQ(setenv("TPCOMM_PATH", "cpu_twoshot", 1), 0);
    if (round == 2 && rank == 1) config.path = 0; /* takes rank 0's */
    tpcomm_t *comm = NULL;
    CHECK_OK(tpcomm_init_env(&config, &comm));
    float x = 1;
    tpcomm_call_t call = {.struct_size = sizeof call,
                          .coll = TPCOMM_ALL_REDUCE,
                          .dtype = TPCOMM_F32,
                          .op = TPCOMM_SUM,
                          .in = &x,
                          .out = &x,
                          .count = 1};
    tpcomm_decision_t decision = {.struct_size = sizeof decision};
    CHECK_OK(tpcomm_explain(comm, &call, &decision));
    CHECK_EQ(decision.path, round == 1 ? TPCOMM_PATH_CPU_TWOSHOT : TPCOMM_PATH_CPU_ONESHOT);
    CHECK_OK(tpcomm_call(comm, &call, NULL));
    CHECK(x == 2);
    CHECK_OK(tpcomm_finalize(comm));
    CHECK_OK(tpcomm_destroy(comm));
}

/* Rows that make every message of these ranks take cpu_twoshot. */
static void write_rows(const char *path, const char *head) {
    FILE *file = fopen(path, "we");
    CHECK(file != NULL);
    fprintf(file,
            "{\"schema\": \"tpcomm-tuning/1\", %s \"rows\": ["
            "{\"coll\": \"all_reduce\", \"topology\": \"cpu\", \"ranks\": 3, \"path\": \"cpu_twoshot\"}, "
            "{\"coll\": \"all_reduce\", \"topology\": \"cpu\", \"ranks\": 2, \"path\": \"cpu_twoshot\"}]}",
            head);
    CHECK_EQ(fclose(file), 0);
}

/* What is told of a file by rank 0, who alone reads it, is every rank's. arg: the file, then a piece of the text. */
static void refused_file(int32_t rank, int32_t size, void *arg) {
    (void)rank, (void)size;
    const char *const *what = arg;
    tpcomm_config_t config = {.struct_size = sizeof config, .init_timeout_ms = 30000, .tuning_file = what[0]};
    tpcomm_t *comm = NULL;
    resources_t before = resources_now();
    CHECK_STATUS(tpcomm_init_env(&config, &comm), TPCOMM_ERR_CONFIG);
    CHECK_ERROR_HAS(what[0]);
    CHECK_ERROR_HAS(what[1]);
    CHECK(comm == NULL);
    resources_check_equal(before, what[1]);
}

static void check_path(tpcomm_t *comm) {
    float x = 1;
    tpcomm_call_t call = {
        .struct_size = sizeof call, .coll = TPCOMM_ALL_REDUCE, .dtype = TPCOMM_F32, .op = TPCOMM_SUM, .count = 1};
    tpcomm_decision_t decision = {.struct_size = sizeof decision};
    tpcomm_info_t info = {.struct_size = sizeof info};
    CHECK_OK(tpcomm_comm_info(comm, &info));
    CHECK_OK(tpcomm_explain(comm, &call, &decision));
    CHECK_EQ(decision.path, TPCOMM_PATH_CPU_TWOSHOT);
    CHECK(strstr(decision.reason, "tuning file's row") != NULL);
    CHECK_OK(tpcomm_all_reduce(comm, &x, &x, 1, TPCOMM_F32, TPCOMM_SUM, NULL));
    CHECK(x == (float)info.size);
}

/* A world reads its file once: its later groups have the same rows, whoever leads them and whatever became of it. */
static void read_once(int32_t rank, int32_t size, void *arg) {
    (void)size;
    static const int32_t lists[][2] = {{1, 2}, {2, 0}};
    tpcomm_config_t config = {.struct_size = sizeof config, .tuning_file = arg};
    tpcomm_t *comm = NULL, *group = NULL;
    CHECK_OK(tpcomm_init_env(&config, &comm));
    check_path(comm);
    CHECK_OK(tpcomm_host_barrier(comm, 0));
    if (rank == 0) write_rows(arg, "\"device\": \"another\",");
    CHECK_OK(tpcomm_host_barrier(comm, 0));
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        CHECK_OK(tpcomm_group_create(comm, lists[i], 2, "pair", &group));
        if (group == NULL) continue;
        check_path(group);
        CHECK_OK(tpcomm_finalize(group));
        CHECK_OK(tpcomm_destroy(group));
    }
    CHECK_OK(tpcomm_finalize(comm));
    CHECK_OK(tpcomm_destroy(comm));
}

static void tuning_files(void) {
    static const char *const heads[][2] = {
        {"\"device\": \"NVIDIA H200\",", "measured on device 'NVIDIA H200', but rank 0 runs on 'cpu'"},
        {"\"device\": \"cpu\", \"world_size\": 4,", "measured in a world of 4 ranks, but this one has 3"},
        {"\"device\": \"cpu\", \"library_version\": \"0.9\",", "measured with library version '0.9', but this is"},
        {"\"device\": \"cpu\", \"topology\": \"nvlink\",", "measured on topology 'nvlink', but this world is 'cpu'"}};
    char path[64];
    snprintf(path, sizeof path, "/tmp/tpcomm-test-config-%d.json", (int)getpid());
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++) {
        const char *what[] = {path, heads[i][1]};
        write_rows(path, heads[i][0]);
        ranks_fork(3, refused_file, (void *)what);
    }
    write_rows(path, "\"device\": \"cpu\",");
    ranks_fork(3, read_once, path);
    CHECK_EQ(unlink(path), 0);
}

int main(void) {
    for (size_t s = 0; s < sizeof setups / sizeof *setups; s++) {
        printf("%s\n", setups[s].what);
        ranks_fork(2, join, (void *)&setups[s]);
    }
    for (int round = 0; round < 3; round++) ranks_fork(2, precedence, &round);
    tuning_files();
    return 0;
}
