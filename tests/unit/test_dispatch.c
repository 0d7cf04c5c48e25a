/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Check the choice: limits are bytes and exact (P3), the documented precedence and what happens for a group size
 * without rows (P4), a forced path is refused where it cannot be, explain and choose say the same for every size,
 * ranges cover everything, rows of captured calls and of eager ones are kept apart and both are told, several GPUs get
 * NCCL for large messages and go without it where it was left out, and no fact that a rank alone knows can enter (F1:
 * the choice has no argument for it).
 */
#include "check.h"
#include "coordinator/backends.h"
#include "cpu_backend/layout.h"
#include "dispatch/dispatch.h"
#include "multirank/ranks.h"

static tpc_table_t table;

/* Those for the cpu device, whatever else this build has; NULL at the end. */
static const tpc_backend_t *const *cpu_backends(void) {
    static const tpc_backend_t *list[8];
    size_t count = 0;
    for (const tpc_backend_t *const *backend = tpc_backends; *backend != NULL; backend++)
        if (tpc_backend_serves(*backend, TPCOMM_DEVICE_CPU) && count < sizeof list / sizeof *list - 1)
            list[count++] = *backend;
    list[count] = NULL;
    return list;
}

static tpc_dispatch_t *make(int32_t size, tpcomm_path_t forced) {
    tpc_agreed_t agreed = {.size = size,
                           .device_kind = TPCOMM_DEVICE_CPU,
                           .topology = TPC_TOPOLOGY_CPU,
                           .forced_path = forced,
                           .workspace_bytes = 1u << 25};
    tpc_dispatch_t *dispatch = NULL;
    CHECK_OK(tpc_dispatch_new(&agreed, &table, cpu_backends(), NULL, &dispatch));
    return dispatch;
}

static tpc_call_key_t key_of(uint64_t bytes) {
    return (tpc_call_key_t){.coll = TPCOMM_ALL_REDUCE, .dtype = TPCOMM_BF16, .op = TPCOMM_SUM, .bytes = bytes};
}

static tpcomm_path_t choose(const tpc_dispatch_t *dispatch, uint64_t bytes) {
    tpc_call_key_t key = key_of(bytes);
    tpc_choice_t choice;
    CHECK_OK(tpc_dispatch_choose(dispatch, &key, 0, &choice));
    return choice.path;
}

static void put_row(tpc_row_t row) {
    memmove(&table.rows[1], &table.rows[0], table.count * sizeof *table.rows);
    table.rows[0] = row;
    table.count++;
}

static tpc_row_t row_of(int32_t size, uint64_t min, uint64_t max, tpcomm_path_t path) {
    return (tpc_row_t){.coll = TPCOMM_ALL_REDUCE,
                       .topology = TPC_TOPOLOGY_CPU,
                       .size = size,
                       .path = path,
                       .source = TPCOMM_SOURCE_MEASURED,
                       .hidden_max = INT32_MAX,
                       .bytes_min = min,
                       .bytes_max = max,
                       .base_ns = -1};
}

/* A limit of 1 MiB: tokens x hidden x 2 bytes, on the threshold and around it. */
static void limits_are_bytes(void) {
    static const struct {
        uint64_t tokens, hidden;
        bool below;
    } rows[] = {{64, 7168, true},   {73, 7168, true},   {74, 7168, false}, {1, 7168, true},    {128, 4096, true},
                {129, 4096, false}, {64, 8192, true},   {65, 8192, false}, {102, 5120, true},  {103, 5120, false},
                {1, 524288, true},  {1, 524289, false}, {524288, 1, true}, {524289, 1, false}, {256, 2048, true},
                {257, 2048, false}, {0, 4096, true},    {1, 1, true},      {2048, 256, true},  {2049, 256, false}};
    tpc_table_builtin(&table);
    put_row(row_of(2, 1048577, UINT64_MAX, TPCOMM_PATH_CPU_TWOSHOT));
    put_row(row_of(2, 0, 1048576, TPCOMM_PATH_CPU_ONESHOT));
    tpc_dispatch_t *dispatch = make(2, 0);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        tpcomm_path_t want = rows[i].below ? TPCOMM_PATH_CPU_ONESHOT : TPCOMM_PATH_CPU_TWOSHOT;
        if (choose(dispatch, rows[i].tokens * rows[i].hidden * 2) != want)
            FAIL("%llu tokens of %llu", (unsigned long long)rows[i].tokens, (unsigned long long)rows[i].hidden);
    }
    tpc_dispatch_free(dispatch);
}

/* The same of calls with a norm, by what a call with these rows gets (P3, C1): on the threshold and around it. */
static void limits_of_norms(void) {
    static const struct {
        uint64_t tokens;
        int32_t hidden;
        bool below;
    } rows[] = {{64, 7168, true},   {73, 7168, true},   {74, 7168, false},  {1, 7168, true},   {128, 4096, true},
                {129, 4096, false}, {64, 8192, true},   {65, 8192, false},  {102, 5120, true}, {103, 5120, false},
                {32, 16384, true},  {33, 16384, false}, {65536, 8, true},   {65537, 8, false}, {256, 2048, true},
                {257, 2048, false}, {0, 4096, true},    {146, 7168, false}, {2048, 256, true}, {2049, 256, false}};
    tpc_table_builtin(&table);
    for (int n = 0; n < 2; n++) {
        tpc_row_t row = row_of(2, n == 0 ? 1048577 : 0, n == 0 ? UINT64_MAX : 1048576,
                               n == 0 ? TPCOMM_PATH_UNFUSED : TPCOMM_PATH_FUSED_ONESHOT);
        row.coll = TPCOMM_ALL_REDUCE_RMS_NORM;
        put_row(row);
    }
    tpc_dispatch_t *dispatch = make(2, 0);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        tpc_call_key_t key = {.coll = TPCOMM_ALL_REDUCE_RMS_NORM,
                              .dtype = TPCOMM_BF16,
                              .op = TPCOMM_SUM,
                              .hidden = rows[i].hidden,
                              .bytes = rows[i].tokens * (uint64_t)rows[i].hidden * 2};
        tpc_choice_t choice;
        tpcomm_decision_t decision;
        CHECK_OK(tpc_dispatch_choose(dispatch, &key, 0, &choice));
        CHECK_OK(tpc_dispatch_explain(dispatch, &key, 0, &decision));
        CHECK_EQ(choice.path, decision.path);
        if (choice.path != (rows[i].below ? TPCOMM_PATH_FUSED_ONESHOT : TPCOMM_PATH_UNFUSED))
            FAIL("%llu tokens of %d: %s", (unsigned long long)rows[i].tokens, rows[i].hidden,
                 tpcomm_path_name(choice.path));
        /* What cannot be composed stays fused at every size, and explain says so. */
        key.obstacles = TPC_ROWS_NO_ROOM;
        CHECK_OK(tpc_dispatch_choose(dispatch, &key, 0, &choice));
        CHECK_OK(tpc_dispatch_explain(dispatch, &key, 0, &decision));
        CHECK_EQ(choice.path, TPCOMM_PATH_FUSED_ONESHOT);
        CHECK_EQ(decision.path, TPCOMM_PATH_FUSED_ONESHOT);
        CHECK(rows[i].below || strstr(decision.reason, "neither out nor sum") != NULL);
    }
    tpc_dispatch_free(dispatch);
}

static tpcomm_path_t choose_norm(const tpc_dispatch_t *dispatch, int32_t hidden, uint64_t bytes, const char *piece) {
    tpc_call_key_t key = {
        .coll = TPCOMM_ALL_REDUCE_RMS_NORM, .dtype = TPCOMM_BF16, .op = TPCOMM_SUM, .hidden = hidden, .bytes = bytes};
    tpc_choice_t choice;
    tpcomm_decision_t decision;
    CHECK_OK(tpc_dispatch_choose(dispatch, &key, 0, &choice));
    CHECK_OK(tpc_dispatch_explain(dispatch, &key, 0, &decision));
    CHECK_EQ(choice.path, decision.path);
    if (strstr(decision.reason, piece) == NULL) FAIL("rows of %d: %s lacks '%s'", hidden, decision.reason, piece);
    return choice.path;
}

/* Rows of the table for some lengths of rows: exact at both ends; beside them what the table says else, here for any
 * length; each length has message sizes of its own. */
static void rows_by_length(void) {
    static const struct {
        int32_t min, max;
        uint64_t limit;
    } lengths[] = {{4096, 8191, 100000}, {8192, 8192, 50000}};
    tpc_table_builtin(&table);
    tpc_row_t row = row_of(2, 0, UINT64_MAX, TPCOMM_PATH_UNFUSED);
    row.coll = TPCOMM_ALL_REDUCE_RMS_NORM;
    put_row(row);
    for (int i = 0; i < 2; i++) {
        row = row_of(2, 0, lengths[i].limit, TPCOMM_PATH_FUSED_ONESHOT);
        row.coll = TPCOMM_ALL_REDUCE_RMS_NORM;
        row.hidden_min = lengths[i].min;
        row.hidden_max = lengths[i].max;
        put_row(row);
    }
    tpc_dispatch_t *dispatch = make(2, 0);
    static const struct {
        int32_t hidden;
        uint64_t fused; /* up to so many bytes */
    } cases[] = {{8, 0}, {4095, 0}, {4096, 100000}, {8191, 100000}, {8192, 50000}, {8193, 0}, {INT32_MAX, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int32_t hidden = cases[i].hidden;
        const char *piece = hidden == 8192 ? "rows of 8192 to 8192" : "rows of 4096 to 8191";
        if (cases[i].fused > 0) {
            CHECK_EQ(choose_norm(dispatch, hidden, cases[i].fused, piece), TPCOMM_PATH_FUSED_ONESHOT);
            CHECK_EQ(choose_norm(dispatch, hidden, 0, piece), TPCOMM_PATH_FUSED_ONESHOT);
        }
        CHECK_EQ(choose_norm(dispatch, hidden, cases[i].fused + 1, "all_reduce_rms_norm, any dtype"),
                 TPCOMM_PATH_UNFUSED);
    }
    CHECK_EQ(choose(dispatch, 1024), TPCOMM_PATH_CPU_ONESHOT); /* calls without rows know nothing of it */
    tpc_dispatch_free(dispatch);
    put_row(row); /* open at one end */
    table.rows[0].hidden_min = 12000;
    table.rows[0].hidden_max = INT32_MAX;
    dispatch = make(2, 0);
    CHECK_EQ(choose_norm(dispatch, 11999, 1, "any dtype"), TPCOMM_PATH_UNFUSED);
    CHECK_EQ(choose_norm(dispatch, 12000, 1, "rows of 12000 and more"), TPCOMM_PATH_FUSED_ONESHOT);
    tpc_dispatch_free(dispatch);
}

/* The gate of the fused path is what a round carries, to the byte: the widest row that fits, and the next. */
static void gate_is_capacity(void) {
    tpc_table_builtin(&table);
    for (uint64_t limit = 65536; limit <= 1u << 20; limit *= 2) {
        tpc_agreed_t agreed = {
            .size = 2, .device_kind = TPCOMM_DEVICE_CPU, .topology = TPC_TOPOLOGY_CPU, .workspace_bytes = limit};
        tpc_cpu_layout_t layout;
        CHECK_OK(tpc_cpu_layout(&agreed, &layout));
        tpc_dispatch_t *dispatch = NULL;
        CHECK_OK(tpc_dispatch_new(&agreed, &table, cpu_backends(), NULL, &dispatch));
        for (int32_t hidden = 8; hidden <= 16384; hidden += 8) {
            tpc_call_key_t key = {.coll = TPCOMM_ALL_REDUCE_RMS_NORM,
                                  .dtype = TPCOMM_F32,
                                  .op = TPCOMM_SUM,
                                  .hidden = hidden,
                                  .bytes = (uint64_t)hidden * 4};
            tpc_choice_t choice;
            tpcomm_status_t status = tpc_dispatch_choose(dispatch, &key, TPCOMM_PATH_FUSED_ONESHOT, &choice);
            CHECK_EQ(status == TPCOMM_OK, key.bytes <= layout.chunk_bytes);
            CHECK_OK(tpc_dispatch_choose(dispatch, &key, 0, &choice));
        }
        tpc_dispatch_free(dispatch);
    }
}

static void precedence(void) {
    tpc_table_builtin(&table);
    put_row(row_of(2, 100, 200,
                   TPCOMM_PATH_CPU_TWOSHOT)); /* a tuning file's row: wins over the built-in one, in its range only */
    tpc_dispatch_t *dispatch = make(2, 0);
    CHECK_EQ(choose(dispatch, 99), TPCOMM_PATH_CPU_ONESHOT);
    CHECK_EQ(choose(dispatch, 100), TPCOMM_PATH_CPU_TWOSHOT);
    CHECK_EQ(choose(dispatch, 200), TPCOMM_PATH_CPU_TWOSHOT);
    CHECK_EQ(choose(dispatch, 201), TPCOMM_PATH_CPU_ONESHOT);
    tpc_call_key_t key = key_of(150);
    tpcomm_decision_t decision;
    CHECK_OK(tpc_dispatch_explain(dispatch, &key, 0, &decision));
    CHECK_EQ(decision.bytes_min, 100);
    CHECK_EQ(decision.bytes_max, 200);
    CHECK_EQ(decision.source, TPCOMM_SOURCE_MEASURED);
    CHECK_EQ(decision.expected_ns, -1);
    CHECK(strstr(decision.reason, "tuning file") != NULL);
    tpc_choice_t choice;
    CHECK_OK(tpc_dispatch_choose(dispatch, &key, TPCOMM_PATH_CPU_ONESHOT, &choice)); /* the call's own path over all */
    CHECK_EQ(choice.path, TPCOMM_PATH_CPU_ONESHOT);
    tpc_dispatch_free(dispatch);

    dispatch = make(2, TPCOMM_PATH_CPU_TWOSHOT); /* the settings' over the tables */
    CHECK_EQ(choose(dispatch, 1), TPCOMM_PATH_CPU_TWOSHOT);
    CHECK_OK(tpc_dispatch_explain(dispatch, &key, 0, &decision));
    CHECK(strstr(decision.reason, "TPCOMM_PATH") != NULL);
    /* ... but it speaks of all_reduce: a barrier goes its own way. */
    tpc_call_key_t barrier = {.coll = TPCOMM_BARRIER};
    CHECK_OK(tpc_dispatch_choose(dispatch, &barrier, 0, &choice));
    CHECK_EQ(choice.path, TPCOMM_PATH_CPU_ONESHOT);
    tpc_dispatch_free(dispatch);
}

/* Rows of captured calls alone, of eager ones alone, and of both; explain says either choice and the other's path. */
static void by_mode(void) {
    tpc_table_builtin(&table);
    tpc_row_t captured = row_of(2, 1000, 1999, TPCOMM_PATH_CPU_TWOSHOT), eager = row_of(2, 2000, 2999, 0);
    captured.capturing = TPCOMM_ON;
    eager.capturing = TPCOMM_OFF;
    eager.path = TPCOMM_PATH_CPU_TWOSHOT;
    put_row(captured);
    put_row(eager);
    put_row(row_of(2, 3000, 3999, TPCOMM_PATH_CPU_TWOSHOT));
    static const struct {
        uint64_t bytes;
        bool twoshot[2]; /* eager, captured */
    } want[] = {{999, {false, false}}, {1000, {false, true}},  {1999, {false, true}},
                {2000, {true, false}}, {2999, {true, false}},  {3000, {true, true}},
                {3999, {true, true}},  {4000, {false, false}}, {70000, {true, true}}};
    tpc_dispatch_t *dispatch = make(2, 0), *forced = make(2, TPCOMM_PATH_CPU_TWOSHOT);
    for (size_t i = 0; i < sizeof want / sizeof *want; i++)
        for (int mode = 0; mode < 2; mode++) {
            tpcomm_path_t paths[] = {TPCOMM_PATH_CPU_ONESHOT, TPCOMM_PATH_CPU_TWOSHOT};
            tpc_call_key_t key = key_of(want[i].bytes);
            tpc_choice_t choice;
            tpcomm_decision_t decision;
            key.capturing = mode != 0;
            CHECK_OK(tpc_dispatch_choose(dispatch, &key, 0, &choice));
            CHECK_EQ(choice.path, paths[want[i].twoshot[mode]]);
            CHECK_OK(tpc_dispatch_explain(dispatch, &key, 0, &decision));
            CHECK_EQ(decision.path, choice.path);
            CHECK_EQ(decision.capturing, mode ? TPCOMM_ON : TPCOMM_OFF);
            CHECK_EQ(decision.other_path, paths[want[i].twoshot[!mode]]);
            CHECK(decision.bytes_min <= key.bytes && key.bytes <= decision.bytes_max);
            bool of_mode = key.bytes >= 1000 && key.bytes < 3000 && decision.path == TPCOMM_PATH_CPU_TWOSHOT;
            CHECK_EQ(strstr(decision.reason, mode ? ", captured," : ", eager,") != NULL, of_mode);
            CHECK_OK(tpc_dispatch_explain(forced, &key, 0, &decision));
            CHECK_EQ(decision.path, TPCOMM_PATH_CPU_TWOSHOT);
            CHECK_EQ(decision.other_path, TPCOMM_PATH_CPU_TWOSHOT);
            CHECK_OK(tpc_dispatch_explain(dispatch, &key, TPCOMM_PATH_CPU_ONESHOT, &decision));
            CHECK_EQ(decision.other_path, TPCOMM_PATH_CPU_ONESHOT);
        }
    tpc_dispatch_free(dispatch);
    tpc_dispatch_free(forced);
}

static void absent_group_size(void) {
    tpc_table_builtin(&table);
    put_row(row_of(4, 0, UINT64_MAX, TPCOMM_PATH_CPU_ONESHOT)); /* a tuning row speaks of its own group size alone */
    tpc_dispatch_t *six = make(6, 0);
    tpc_call_key_t key = key_of(1u << 20);
    tpcomm_decision_t decision;
    CHECK_OK(tpc_dispatch_explain(six, &key, 0, &decision));
    CHECK_EQ(decision.path, TPCOMM_PATH_CPU_TWOSHOT);
    CHECK(strstr(decision.reason, "4 ranks") != NULL && strstr(decision.reason, "none for 6 ranks") != NULL);
    tpc_dispatch_free(six);
    tpc_dispatch_t *sixteen = make(16, 0);
    CHECK_OK(tpc_dispatch_explain(sixteen, &key, 0, &decision));
    CHECK(strstr(decision.reason, "8 ranks") != NULL && strstr(decision.reason, "none for 16 ranks") != NULL);
    tpc_dispatch_free(sixteen);
    /* The path of these sizes cannot carry the call: that of the sizes below it, and said so. */
    table.count = 0;
    put_row(row_of(6, 0, 99, TPCOMM_PATH_CPU_ONESHOT));
    put_row(row_of(6, 100, 999, TPCOMM_PATH_CPU_TWOSHOT));
    put_row(row_of(6, 1000, UINT64_MAX, TPCOMM_PATH_LOCAL));
    put_row(row_of(6, 0, 49, TPCOMM_PATH_CPU_ONESHOT));
    tpc_dispatch_t *gap = make(6, 0);
    CHECK_EQ(choose(gap, 99), TPCOMM_PATH_CPU_ONESHOT);
    CHECK_EQ(choose(gap, 999), TPCOMM_PATH_CPU_TWOSHOT);
    CHECK_EQ(choose(gap, 1000), TPCOMM_PATH_CPU_TWOSHOT);
    CHECK_EQ(choose(gap, UINT64_MAX), TPCOMM_PATH_CPU_TWOSHOT);
    CHECK_OK(tpc_dispatch_explain(gap, &key, 0, &decision));
    CHECK(strstr(decision.reason, "100 bytes to 999 bytes") != NULL &&
          strstr(decision.reason, "no path above") != NULL);
    key.bytes = 999;
    CHECK_OK(tpc_dispatch_explain(gap, &key, 0, &decision));
    CHECK(decision.bytes_min <= 999 && decision.bytes_max >= 999);
    tpc_dispatch_free(gap);
    table.count = 0; /* no row at all: still a path, and said so */
    tpc_dispatch_t *bare = make(3, 0);
    CHECK_OK(tpc_dispatch_explain(bare, &key, 0, &decision));
    CHECK(strstr(decision.reason, "no row") != NULL);
    tpc_dispatch_free(bare);
}

/* A row of a tuning file whose path cannot carry the call is passed over, and explain says so; one of other calls is
 * not mentioned. */
static void passed_over(void) {
    tpc_table_builtin(&table);
    put_row(row_of(2, 0, 1000, TPCOMM_PATH_ONESHOT));
    put_row(row_of(2, 1001, 2000, TPCOMM_PATH_LOCAL));
    tpc_row_t other = row_of(2, 0, 1000, TPCOMM_PATH_TWOSHOT);
    other.dtype = TPCOMM_F32;
    put_row(other);
    tpc_dispatch_t *dispatch = make(2, 0);
    static const struct {
        uint64_t bytes;
        const char *text; /* NULL: nothing of it */
    } calls[] = {{1000, "; not the tuning file's oneshot (this library or group has no such path)"},
                 {1001, "; not the tuning file's local (only a group of one rank needs no communication)"},
                 {2001, NULL}};
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        tpcomm_decision_t decision;
        tpc_call_key_t key = key_of(calls[i].bytes);
        CHECK_OK(tpc_dispatch_explain(dispatch, &key, 0, &decision));
        CHECK_EQ(decision.path, TPCOMM_PATH_CPU_ONESHOT);
        CHECK(strstr(decision.reason, "built-in row: all_reduce") != NULL);
        CHECK(strstr(decision.reason, calls[i].text != NULL ? calls[i].text : "all_reduce") != NULL);
        CHECK((strstr(decision.reason, "tuning file") != NULL) == (calls[i].text != NULL));
    }
    tpc_dispatch_free(dispatch);
}

static void refusals(void) {
    tpc_table_builtin(&table);
    tpc_dispatch_t *dispatch = make(2, 0);
    tpc_choice_t choice;
    tpcomm_decision_t decision;
    tpc_call_key_t key = key_of(8);
    CHECK_STATUS(tpc_dispatch_choose(dispatch, &key, TPCOMM_PATH_LOCAL, &choice), TPCOMM_ERR_UNSUPPORTED);
    CHECK_ERROR_HAS("group of one");
    CHECK_STATUS(tpc_dispatch_choose(dispatch, &key, TPCOMM_PATH_ONESHOT, &choice), TPCOMM_ERR_UNSUPPORTED);
    CHECK_STATUS(tpc_dispatch_choose(dispatch, &key, 4, &choice), TPCOMM_ERR_INVALID_ARG);
    CHECK_STATUS(tpc_dispatch_choose(dispatch, &key, 1000, &choice), TPCOMM_ERR_INVALID_ARG);
    key.dtype = TPCOMM_F8_E5M2;
    CHECK_STATUS(tpc_dispatch_choose(dispatch, &key, 0, &choice), TPCOMM_ERR_UNSUPPORTED);
    CHECK_STATUS(tpc_dispatch_explain(dispatch, &key, 0, &decision), TPCOMM_ERR_UNSUPPORTED);
    key.dtype = TPCOMM_I8;
    key.op = TPCOMM_AVG;
    CHECK_STATUS(tpc_dispatch_choose(dispatch, &key, 0, &choice), TPCOMM_ERR_UNSUPPORTED);
    key.op = TPCOMM_MAX;
    CHECK_OK(tpc_dispatch_choose(dispatch, &key, 0, &choice));
    tpc_dispatch_free(dispatch);
}

/* Random tables and calls: two makings agree, explain agrees with choose, and its range holds at both ends and not
 * beyond. */
static void random_tables(void) {
    uint64_t seed = 5;
    for (int round = 0; round < 300; round++) {
        tpc_table_builtin(&table);
        int32_t size = (int32_t)(1 + random_next(&seed) % TPCOMM_MAX_RANKS);
        for (uint64_t n = random_next(&seed) % 12; n > 0; n--) {
            uint64_t a = random_next(&seed) >> (random_next(&seed) % 64),
                     b = random_next(&seed) >> (random_next(&seed) % 64);
            tpc_row_t row = row_of(size, a < b ? a : b,
                                   random_next(&seed) % 5 == 0 ? UINT64_MAX
                                   : a < b                     ? b
                                                               : a,
                                   random_next(&seed) % 2 ? TPCOMM_PATH_CPU_ONESHOT : TPCOMM_PATH_CPU_TWOSHOT);
            if (random_next(&seed) % 3 == 0) row.dtype = (tpcomm_dtype_t)(1 + random_next(&seed) % 10);
            row.capturing = (int32_t)(random_next(&seed) % 3); /* any, on, off */
            put_row(row);
        }
        tpc_dispatch_t *one = make(size, 0), *two = make(size, 0);
        for (int i = 0; i < 200; i++) {
            tpc_call_key_t key = key_of(random_next(&seed) >> (random_next(&seed) % 64));
            key.dtype = (tpcomm_dtype_t)(1 + random_next(&seed) % 10);
            key.capturing = random_next(&seed) % 2 != 0;
            tpc_choice_t a, b;
            tpcomm_decision_t decision;
            CHECK_OK(tpc_dispatch_choose(one, &key, 0, &a));
            CHECK_OK(tpc_dispatch_choose(two, &key, 0, &b));
            CHECK_EQ(a.path, b.path);
            CHECK_OK(tpc_dispatch_explain(one, &key, 0, &decision));
            CHECK_EQ(a.path, decision.path);
            tpc_call_key_t other = key;
            other.capturing = !key.capturing;
            CHECK_OK(tpc_dispatch_choose(one, &other, 0, &b));
            CHECK_EQ(decision.other_path, b.path);
            CHECK(decision.bytes_min <= key.bytes && key.bytes <= decision.bytes_max);
            for (int end = 0; end < 2; end++) {
                tpc_call_key_t at = key;
                at.bytes = end ? decision.bytes_max : decision.bytes_min;
                tpcomm_decision_t same;
                CHECK_OK(tpc_dispatch_explain(one, &at, 0, &same));
                CHECK_EQ(same.path, decision.path);
                CHECK_EQ(same.bytes_min, decision.bytes_min);
                CHECK_EQ(same.bytes_max, decision.bytes_max);
            }
        }
        tpc_dispatch_free(one);
        tpc_dispatch_free(two);
    }
}

/* Stand-ins for what a build with CUDA has, on a group of several GPUs. */
static const char *carries_all(const tpc_agreed_t *agreed, tpcomm_path_t path, const tpc_call_key_t *key) {
    (void)agreed, (void)key;
    return path == TPCOMM_PATH_LOCAL ? "only a group of one" : NULL;
}

static void several_gpus(void) {
    static const tpcomm_path_t custom_paths[] = {TPCOMM_PATH_ONESHOT, TPCOMM_PATH_TWOSHOT, TPCOMM_PATH_LOCAL, 0};
    static const tpcomm_path_t nccl_paths[] = {TPCOMM_PATH_NCCL, 0};
    static const tpc_backend_t custom = {.name = "custom", .paths = custom_paths, .why_not = carries_all};
    static const tpc_backend_t nccl = {.name = "nccl", .paths = nccl_paths, .why_not = carries_all};
    static const tpc_backend_t *const backends[] = {&custom, &nccl, NULL};
    static const char *const all[] = {NULL, NULL}, *const without[] = {NULL, "no NCCL here"};
    static const tpc_topology_t classes[] = {TPC_TOPOLOGY_NVLINK, TPC_TOPOLOGY_PCIE_P2P, TPC_TOPOLOGY_MIXED};
    static const tpcomm_coll_t colls[] = {TPCOMM_ALL_REDUCE, TPCOMM_BROADCAST, TPCOMM_ALL_GATHER,
                                          TPCOMM_REDUCE_SCATTER};
    tpc_table_builtin(&table);
    for (size_t t = 0; t < sizeof classes / sizeof *classes; t++)
        for (int32_t size = 2; size <= 8; size++) {
            tpc_agreed_t agreed = {.size = size, .device_kind = TPCOMM_DEVICE_CUDA, .topology = classes[t]};
            tpc_dispatch_t *both = NULL, *one = NULL;
            CHECK_OK(tpc_dispatch_new(&agreed, &table, backends, all, &both));
            CHECK_OK(tpc_dispatch_new(&agreed, &table, backends, without, &one));
            for (int capturing = 0; capturing < 2; capturing++)
                for (size_t c = 0; c < sizeof colls / sizeof *colls; c++)
                    for (uint64_t bytes = 1024; bytes <= 1u << 30; bytes *= 4) {
                        tpc_call_key_t key = key_of(bytes);
                        tpc_choice_t choice;
                        tpcomm_decision_t decision;
                        key.coll = colls[c];
                        key.op = tpc_coll_reduces(key.coll) ? TPCOMM_SUM : 0;
                        key.capturing = capturing != 0;
                        CHECK_OK(tpc_dispatch_choose(both, &key, 0, &choice));
                        if (bytes <= 65536) CHECK_EQ(choice.path, TPCOMM_PATH_ONESHOT);
                        if (bytes >= 16u << 20) CHECK_EQ(choice.path, TPCOMM_PATH_NCCL);
                        CHECK_EQ(choice.backend_index, choice.path == TPCOMM_PATH_NCCL);
                        CHECK_OK(tpc_dispatch_choose(one, &key, 0, &choice));
                        CHECK(choice.path == TPCOMM_PATH_ONESHOT || choice.path == TPCOMM_PATH_TWOSHOT);
                        CHECK_OK(tpc_dispatch_explain(one, &key, 0, &decision));
                        bool told = false;
                        for (int32_t i = 0; i < decision.rejected_count; i++)
                            if (decision.rejected[i].path == TPCOMM_PATH_NCCL)
                                told = strcmp(decision.rejected[i].why_not, "no NCCL here") == 0;
                        CHECK(told);
                        CHECK_STATUS(tpc_dispatch_choose(one, &key, TPCOMM_PATH_NCCL, &choice), TPCOMM_ERR_UNSUPPORTED);
                        CHECK_ERROR_HAS("no NCCL here");
                    }
            tpc_dispatch_free(both);
            tpc_dispatch_free(one);
        }
}

int main(void) {
    limits_are_bytes();
    limits_of_norms();
    rows_by_length();
    gate_is_capacity();
    precedence();
    by_mode();
    absent_group_size();
    passed_over();
    refusals();
    several_gpus();
    random_tables();
    return 0;
}
