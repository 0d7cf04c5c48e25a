/* SPDX-License-Identifier: Apache-2.0 */
/* Check that names, numbers, sizes and texts of the public sets are what tpcomm.h and the documents promise. */
#include "base/status.h"
#include "check.h"

static const struct {
    tpcomm_status_t status;
    int number;
    const char *name;
} statuses[] = {
#define STATUS(name, number)                                                                                           \
    { TPCOMM_##name, number, "TPCOMM_" #name }
    STATUS(OK, 0),
    STATUS(ERR_INVALID_ARG, -1),
    STATUS(ERR_INVALID_STATE, -2),
    STATUS(ERR_UNSUPPORTED, -3),
    STATUS(ERR_NO_MEMORY, -4),
    STATUS(ERR_TOO_SMALL, -5),
    STATUS(ERR_BUSY, -6),
    STATUS(ERR_VERSION, -7),
    STATUS(ERR_CONFIG, -8),
    STATUS(ERR_PARSE, -9),
    STATUS(ERR_INTERRUPTED, -10),
    STATUS(ERR_IO, -11),
    STATUS(ERR_ABORTED, -40),
    STATUS(ERR_PEER_DIED, -41),
    STATUS(ERR_MISMATCH, -42),
    STATUS(ERR_TIMEOUT, -43),
    STATUS(ERR_BACKEND, -44),
    STATUS(ERR_PEER_FAILED, -45),
    STATUS(ERR_CONFIG_MISMATCH, -46),
    STATUS(ERR_DUPLICATE_DEVICE, -47),
    STATUS(ERR_NO_TRANSPORT, -48),
    STATUS(ERR_ADDR_IN_USE, -49),
    STATUS(ERR_AUTH, -50),
    STATUS(ERR_OVERLAP, -51),
    STATUS(ERR_DEVICE, -80),
};
#define STATUS_COUNT (sizeof statuses / sizeof statuses[0])

static const char *known_name(int number) {
    for (size_t i = 0; i < STATUS_COUNT; i++)
        if (statuses[i].number == number) return statuses[i].name;
    return NULL;
}

static void check_names(void) {
    for (size_t i = 0; i < STATUS_COUNT; i++) CHECK_EQ(statuses[i].status, statuses[i].number);
    for (int number = -300; number <= 300; number++) {
        const char *want = known_name(number) ? known_name(number) : "TPCOMM_ERR_?";
        if (strcmp(tpcomm_status_name(number), want) != 0)
            FAIL("name of %d is %s, want %s", number, tpcomm_status_name(number), want);
    }
    CHECK(strcmp(tpcomm_status_name(INT32_MIN), "TPCOMM_ERR_?") == 0);
    CHECK(strcmp(tpcomm_status_name(INT32_MAX), "TPCOMM_ERR_?") == 0);
}

/** One sentence with what to check, and nothing that sends the reader after a cause that the status does not have. */
static void check_text(int number, const char *text) {
    static const char *const misleading[] = {"shared memory",  "shm",     "reinstall", "NCCL",   "increase",
                                             "larger timeout", "export ", "try ",      "please", "maybe"};
    size_t length = strlen(text);
    if (length < 15 || length > 200 || text[length - 1] != '.') FAIL("text of %d is no sentence: %s", number, text);
    if (strstr(text, ". ")) FAIL("text of %d is more than one sentence: %s", number, text);
    if (number != 0 && !strstr(text, "check ") && !strstr(text, "compare "))
        FAIL("text of %d does not say what to check: %s", number, text);
    for (size_t i = 0; i < sizeof misleading / sizeof misleading[0]; i++)
        if (strstr(text, misleading[i])) FAIL("text of %d says \"%s\": %s", number, misleading[i], text);
}

static void check_texts(void) {
    for (size_t i = 0; i < STATUS_COUNT; i++) {
        const char *text = tpcomm_status_text(statuses[i].status);
        check_text(statuses[i].number, text);
        for (size_t j = 0; j < i; j++) CHECK(strcmp(text, tpcomm_status_text(statuses[j].status)) != 0);
    }
    check_text(12345, tpcomm_status_text(12345));
    CHECK(strstr(tpcomm_status_text(TPCOMM_ERR_TIMEOUT), "did not arrive"));
}

static void check_sets(void) {
    static const struct {
        tpcomm_dtype_t dtype;
        size_t size;
        int is_float;
        const char *name;
    } dtypes[] = {{1, 4, 1, "f32"}, {2, 2, 1, "f16"},  {3, 2, 1, "bf16"},     {4, 1, 0, "i8"},
                  {5, 1, 0, "u8"},  {6, 4, 0, "i32"},  {7, 8, 0, "i64"},      {8, 4, 0, "u32"},
                  {9, 8, 0, "u64"}, {10, 8, 1, "f64"}, {11, 1, 1, "f8_e4m3"}, {12, 1, 1, "f8_e5m2"}};
    static const char *const ops[] = {"?", "sum", "avg", "max", "min", "prod", "?"};
    static const char *const colls[] = {"?", "all_reduce", "barrier", "broadcast", "all_gather", "reduce_scatter", "?"};
    static const char *const paths[] = {"auto",          "oneshot",       "twoshot", "nccl",        "?",
                                        "fused_oneshot", "fused_twoshot", "unfused", "cpu_oneshot", "cpu_twoshot",
                                        "local",         "ring",          "?"};
    int32_t value = 77;

    for (size_t i = 0; i < sizeof dtypes / sizeof dtypes[0]; i++) {
        CHECK_EQ(tpcomm_dtype_size(dtypes[i].dtype), dtypes[i].size);
        CHECK_EQ(tpc_dtype_is_float(dtypes[i].dtype), dtypes[i].is_float);
        CHECK(strcmp(tpcomm_dtype_name(dtypes[i].dtype), dtypes[i].name) == 0);
        CHECK(tpc_dtype_parse(dtypes[i].name, &value));
        CHECK_EQ(value, dtypes[i].dtype);
    }
    for (int32_t i = -3; i <= 20; i++) {
        if (i >= 1 && i <= 12) continue;
        CHECK_EQ(tpcomm_dtype_size(i), 0);
        CHECK(strcmp(tpcomm_dtype_name(i), "?") == 0);
        CHECK(!tpc_dtype_is_float(i));
    }
    for (int32_t i = 0; i < 7; i++) {
        CHECK(strcmp(tpcomm_op_name(i), ops[i]) == 0);
        if (*ops[i] != '?') CHECK(tpc_op_parse(ops[i], &value) && value == i);
    }
    for (int32_t i = 0; i < 7; i++) {
        CHECK(strcmp(tpcomm_coll_name(i), colls[i]) == 0);
        if (*colls[i] != '?') CHECK(tpc_coll_parse(colls[i], &value) && value == i);
    }
    for (int32_t i = 0; i < 12; i++) {
        CHECK(strcmp(tpcomm_path_name(i), paths[i]) == 0);
        if (*paths[i] != '?') CHECK(tpc_path_parse(paths[i], &value) && value == i);
    }
    CHECK_EQ(TPC_PATH_END, TPCOMM_PATH_RING + 1);

    static const char *const wrong[] = {"", "?", "F32", " f32", "f32 ", "sum1", "SUM", "all_reduc", "Auto", "cpu"};
    value = 77;
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        CHECK(!tpc_dtype_parse(wrong[i], &value));
        CHECK(!tpc_op_parse(wrong[i], &value));
        CHECK(!tpc_coll_parse(wrong[i], &value));
        CHECK(!tpc_path_parse(wrong[i], &value));
        CHECK_EQ(value, 77);
    }
}

static void check_reductions(void) {
    for (tpcomm_dtype_t dtype = -1; dtype <= 14; dtype++) {
        for (tpcomm_op_t op = -1; op <= 7; op++) {
            bool known = dtype >= TPCOMM_F32 && dtype <= TPCOMM_F64 && op >= TPCOMM_SUM && op <= TPCOMM_PROD;
            bool integer = dtype >= TPCOMM_I8 && dtype <= TPCOMM_U64;
            bool want = known && !(integer && op == TPCOMM_AVG);
            if (tpc_reduction_defined(dtype, op) != want)
                FAIL("reduction of dtype %d by op %d is %d", dtype, op, !want);
        }
    }
}

int main(void) {
    CHECK_EQ(tpcomm_version(), 100);
    CHECK_EQ(tpcomm_version(), TPCOMM_VERSION_NUMBER);
    check_names();
    check_texts();
    check_sets();
    check_reductions();
    return 0;
}
