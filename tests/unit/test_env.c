/* SPDX-License-Identifier: Apache-2.0 */
/* Check that every TPCOMM_ variable takes exactly what is documented, and that unknown names are told once with the
 * nearest. */
#include <inttypes.h>
#include <stdbool.h>

#include "base/env.h"
#include "child.h"

static void clear_all(void) {
    for (int id = 0; id < TPC_ENV_COUNT; id++) CHECK_EQ(unsetenv(tpc_env_table[id].name), 0);
}

/** Refused, with the variable, its value, and what is allowed. */
static void check_refused(tpc_env_id_t id, const char *text, const char *allowed) {
    const tpc_env_row_t *row = &tpc_env_table[id];
    tpc_env_value_t value = {.u64 = 4711};
    char want[256];
    snprintf(want, sizeof want, "%s='%s' is not valid: allowed are %s", row->name, text, allowed);
    if (tpc_env_parse(id, text, &value) != TPCOMM_ERR_CONFIG) FAIL("%s='%s' was taken", row->name, text);
    if (strcmp(tpcomm_last_error(), want) != 0) FAIL("the error is \"%s\", want \"%s\"", tpcomm_last_error(), want);
    CHECK_EQ(value.u64, 4711);
    CHECK_EQ(setenv(row->name, text, 1), 0);
    static tpc_env_t env;
    CHECK_STATUS(tpc_env_read(&env), TPCOMM_ERR_CONFIG);
    CHECK(strcmp(tpcomm_last_error(), want) == 0);
    CHECK_EQ(unsetenv(row->name), 0);
}

static void check_taken(tpc_env_id_t id, const char *text, uint64_t u64, const char *canonical) {
    tpc_env_value_t value;
    CHECK_OK(tpc_env_parse(id, text, &value));
    if (!value.set || value.u64 != u64 || strcmp(value.text, canonical) != 0)
        FAIL("%s='%s' became %d, %" PRIu64 ", '%s'", tpc_env_table[id].name, text, value.set, value.u64, value.text);
}

static void check_bool(tpc_env_id_t id) {
    static const char *const on[] = {"1", "true", "TRUE", "on", "On", "yes", "YES", " 1 ", "\ttrue\n", "yEs "};
    static const char *const off[] = {"0", "false", "FALSE", "off", "OFF", "no", "nO", " 0 ", " off"};
    static const char *const wrong[] = {" ", "2", "abc", "-1",         "01",     "00",  "t",    "f",
                                        "y", "n", "1 1", "true false", "enable", "1.0", "truE!"};
    for (size_t i = 0; i < sizeof on / sizeof on[0]; i++) check_taken(id, on[i], 1, "1");
    for (size_t i = 0; i < sizeof off / sizeof off[0]; i++) check_taken(id, off[i], 0, "0");
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        check_refused(id, wrong[i], "1, true, on, yes, 0, false, off, no");
}

static void check_u64(tpc_env_id_t id) {
    static const char *const wrong[] = {" ",
                                        "12x",
                                        "-1",
                                        "1e3",
                                        "+1",
                                        "0x10",
                                        "1.0",
                                        "1,000",
                                        "1 0",
                                        "x",
                                        "--",
                                        "1_000",
                                        "ten",
                                        "\xd9\xa1", /* an Arabic one */
                                        "18446744073709551615",
                                        "18446744073709551616",
                                        "18446744073709551617",
                                        "99999999999999999999999999",
                                        "32M",
                                        "1e400",
                                        "NaN",
                                        "inf"};
    const tpc_env_row_t *row = &tpc_env_table[id];
    char allowed[128], text[64], want[64];
    snprintf(allowed, sizeof allowed, "whole numbers from %" PRIu64 " to %" PRIu64, row->minimum, row->maximum);
    if (*row->unit) snprintf(allowed + strlen(allowed), 32, " (%s)", row->unit);
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) check_refused(id, wrong[i], allowed);

    const uint64_t taken[] = {row->minimum, row->minimum + 1, row->maximum - 1, row->maximum};
    for (size_t i = 0; i < 4; i++) {
        snprintf(want, sizeof want, "%" PRIu64, taken[i]);
        check_taken(id, want, taken[i], want);
        snprintf(text, sizeof text, " 00%" PRIu64 "\n", taken[i]);
        check_taken(id, text, taken[i], want);
    }
    if (row->minimum > 0) {
        snprintf(text, sizeof text, "%" PRIu64, row->minimum - 1);
        check_refused(id, text, allowed);
    }
    snprintf(text, sizeof text, "%" PRIu64, row->maximum + 1);
    check_refused(id, text, allowed);
}

static void check_word(tpc_env_id_t id) {
    static const char *const wrong[] = {" ", "autoo", "aut", "cuda|cpu", "|", "auto,cpu", "1"};
    char words[256], allowed[256] = "", upper[64];
    snprintf(words, sizeof words, "%s", tpc_env_table[id].allowed);
    uint64_t index = 0;
    char *rest = NULL;
    for (char *word = strtok_r(words, "|", &rest); word; word = strtok_r(NULL, "|", &rest), index++) {
        snprintf(allowed + strlen(allowed), 64, "%s%s", *allowed ? ", " : "", word);
        check_taken(id, word, index, word);
        size_t length = strlen(word);
        for (size_t i = 0; i <= length; i++)
            upper[i] = word[i] >= 'a' && word[i] <= 'z' ? (char)(word[i] - 32) : word[i];
        check_taken(id, upper, index, word);
    }
    CHECK(index >= 2);
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) check_refused(id, wrong[i], allowed);
}

static void check_text(tpc_env_id_t id) {
    char text[TPC_ENV_TEXT_BYTES + 2], quoted[128];
    check_taken(id, "a", 0, "a");
    check_taken(id, " kept as it is ", 0, " kept as it is ");
    memset(text, 'x', sizeof text);
    text[TPC_ENV_TEXT_BYTES - 1] = '\0';
    check_taken(id, text, 0, text);
    text[TPC_ENV_TEXT_BYTES - 1] = 'x';
    text[TPC_ENV_TEXT_BYTES] = '\0';
    tpc_env_value_t value;
    CHECK_STATUS(tpc_env_parse(id, text, &value), TPCOMM_ERR_CONFIG);
    snprintf(quoted, sizeof quoted, "allowed are texts of at most %d bytes", TPC_ENV_TEXT_BYTES - 1);
    CHECK_ERROR_HAS(quoted);
    CHECK_ERROR_HAS(tpc_env_table[id].name);
}

/** Unset and empty mean the default, whose own text is valid. */
static void check_default(tpc_env_id_t id) {
    const tpc_env_row_t *row = &tpc_env_table[id];
    static tpc_env_t env;
    tpc_env_value_t empty, given;
    CHECK_OK(tpc_env_get(id, &empty));
    CHECK(!empty.set);
    CHECK_EQ(setenv(row->name, "", 1), 0);
    CHECK_OK(tpc_env_get(id, &given));
    CHECK(!given.set && given.u64 == empty.u64 && strcmp(given.text, empty.text) == 0);
    CHECK_OK(tpc_env_read(&env));
    CHECK(!env.value[id].set && strcmp(env.value[id].text, row->default_text) == 0);
    CHECK_EQ(unsetenv(row->name), 0);
    if (*row->default_text == '\0') return;
    CHECK_OK(tpc_env_parse(id, row->default_text, &given));
    CHECK(given.set && given.u64 == empty.u64 && strcmp(given.text, row->default_text) == 0);
}

static void check_hostile_value(void) {
    tpc_env_value_t value;
    char text[400];
    memset(text, '9', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    CHECK_STATUS(tpc_env_parse(TPC_ENV_OP_TIMEOUT_MS, text, &value), TPCOMM_ERR_CONFIG);
    CHECK_ERROR_HAS("9...' is not valid: allowed are whole numbers from 1 to 86400000 (ms)");
    CHECK_STATUS(tpc_env_parse(TPC_ENV_OP_TIMEOUT_MS, "1\x1b[2J\n2\xff", &value), TPCOMM_ERR_CONFIG);
    CHECK_ERROR_HAS("TPCOMM_OP_TIMEOUT_MS='1?[2J?2?' is not valid");
}

static void check_foreign(void) {
    CHECK_EQ(setenv("PMI_RANK", "3", 1), 0);
    CHECK(strcmp(tpc_env_foreign("PMI_RANK"), "3") == 0);
    CHECK_EQ(setenv("PMI_RANK", "", 1), 0);
    CHECK(tpc_env_foreign("PMI_RANK") == NULL);
    CHECK_EQ(unsetenv("PMI_RANK"), 0);
    CHECK(tpc_env_foreign("PMI_RANK") == NULL);
}

static void read_with_unknown(void) {
    static tpc_env_t env;
    setenv("TPCOMM_OP_TIMEOUT", "5", 1);
    setenv("TPCOMM_LOGFILE", "secret-value", 1);
    setenv("TPCOMM_ZZZZZZZZZZ", "1", 1);
    setenv("TPCOMM_", "1", 1);
    setenv("TPCOMM_TEST_HOOKS", "", 1);
    setenv("TPCOMM_TEST_X", "1", 1);
    setenv("TPCOMM_BENCH_X", "1", 1);
    setenv("TPCOMM_DEVICE", "cpu", 1);
    setenv("XTPCOMM_LOGG", "1", 1);
    setenv("tpcomm_log", "1", 1);
    char long_name[3000] = "TPCOMM_";
    memset(long_name + 7, 'Q', sizeof long_name - 8);
    setenv(long_name, "1", 1);
    CHECK_OK(tpc_env_read(&env));
    CHECK_OK(tpc_env_read(&env));
    CHECK(env.value[TPC_ENV_DEVICE].set && strcmp(env.value[TPC_ENV_DEVICE].text, "cpu") == 0);
}

static void read_silently(void) {
    static tpc_env_t env;
    setenv("TPCOMM_LOG", "error", 1);
    setenv("TPCOMM_NOSUCH", "1", 1);
    CHECK_OK(tpc_env_read(&env));
}

/** Many unknown names, as in a hostile environment: bounded, and no crash. */
static void read_with_many(void) {
    static tpc_env_t env;
    char name[64];
    for (int i = 0; i < 500; i++) {
        snprintf(name, sizeof name, "TPCOMM_Q%d", i);
        setenv(name, "1", 1);
    }
    CHECK_OK(tpc_env_read(&env));
}

static size_t count(const char *text, const char *piece) {
    size_t found = 0;
    for (const char *at = text; (at = strstr(at, piece)); at++) found++;
    return found;
}

static void check_unknown(void) {
    static char output[CHILD_OUTPUT_BYTES];
    child_run(read_with_unknown, output);
    CHECK_EQ(count(output, "\n"), 5);
    CHECK_EQ(count(output, "tpcomm WARN env: TPCOMM_"), 5);
    CHECK_EQ(count(output,
                   "TPCOMM_OP_TIMEOUT is set but no variable of this version; the nearest is TPCOMM_OP_TIMEOUT_MS\n"),
             1);
    CHECK_EQ(count(output, "TPCOMM_LOGFILE is set but no variable of this version; the nearest is TPCOMM_LOG_FILE\n"),
             1);
    CHECK_EQ(
        count(output, "TPCOMM_ZZZZZZZZZZ is set but no variable of this version; docs/environment.md lists them\n"), 1);
    CHECK_EQ(count(output, "QQQ... is set"), 1);
    CHECK_EQ(count(output, "secret-value"), 0);
    CHECK_EQ(count(output, "_TEST_") + count(output, "_BENCH_") + count(output, "LOGG") + count(output, "tpcomm_"), 0);

    child_run(read_silently, output);
    CHECK(strcmp(output, "") == 0);
    child_run(read_with_many, output);
    CHECK_EQ(count(output, "\n"), 64);
}

int main(void) {
    /* First, while nothing of this process has read the environment. */
    clear_all();
    check_unknown();
    for (int i = 0; i < TPC_ENV_COUNT; i++) {
        tpc_env_id_t id = (tpc_env_id_t)i;
        CHECK(strncmp(tpc_env_table[id].name, "TPCOMM_", 7) == 0);
        check_default(id);
        if (tpc_env_table[id].kind == TPC_ENV_KIND_BOOL) check_bool(id);
        if (tpc_env_table[id].kind == TPC_ENV_KIND_U64) check_u64(id);
        if (tpc_env_table[id].kind == TPC_ENV_KIND_WORD) check_word(id);
        if (tpc_env_table[id].kind == TPC_ENV_KIND_TEXT) check_text(id);
    }
    check_refused(TPC_ENV_OP_TIMEOUT_MS, "12x", "whole numbers from 1 to 86400000 (ms)");
    check_refused(TPC_ENV_DEVICE, "gpu", "auto, cuda, cpu");
    check_hostile_value();
    check_foreign();
    return 0;
}
