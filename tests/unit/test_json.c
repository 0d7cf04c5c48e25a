/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Check that values come out of a document exactly or are refused by key path and value, in every locale; that files of
 * every kind are read or refused by name; and that the library is loaded once.
 */
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <sys/stat.h>

#include "base/error.h"
#include "base/json.h"
#include "child.h"
#include "comma_locale.h"

static char folder[] = "/tmp/tpcomm-test-json-XXXXXX";

static tpc_json_t *parse(const char *text) {
    tpc_json_t *doc;
    CHECK_OK(tpc_json_parse("t", text, strlen(text), &doc));
    return doc;
}

static void check_error(const char *want) {
    if (strcmp(tpcomm_last_error(), want) != 0) FAIL("the error is \"%s\", want \"%s\"", tpcomm_last_error(), want);
}

/* ---------------------------------------------------------------- values */

static void check_u64(void) {
    static const struct {
        const char *text;
        uint64_t value;
    } good[] = {{"0", 0},
                {"1", 1},
                {"2147483647", 2147483647},
                {"2147483648", 2147483648},
                {"4294967295", 4294967295},
                {"4294967296", 4294967296},
                {"1000000000000000", 1000000000000000},
                {"9007199254740990", 9007199254740990},
                {"9007199254740991", 9007199254740991}};
    static const char *const wrong[] = {"9007199254740992",
                                        "9007199254740993",
                                        "18446744073709551615",
                                        "18446744073709551616",
                                        "18446744073709551617",
                                        "100000000000000000000000000000000000000000000000000000000000000",
                                        "-1",
                                        "-0",
                                        "1.5",
                                        "1.0",
                                        "4096.0",
                                        "1e3",
                                        "1E0",
                                        "1e400",
                                        "-1e400",
                                        "1e-400",
                                        "\"4096\"",
                                        "\"\"",
                                        "true",
                                        "false",
                                        "null"};
    char text[256], want[512];
    uint64_t value;
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        snprintf(text, sizeof text, "{\"rows\": [{}, {\"bytes\": %s}]}", good[i].text);
        tpc_json_t *doc = parse(text);
        tpc_json_value_t rows, row;
        CHECK_OK(tpc_json_array(tpc_json_root(doc), "rows", &rows));
        row = tpc_json_next(tpc_json_first(rows));
        value = 4711;
        CHECK_OK(tpc_json_u64(row, "bytes", 0, UINT64_MAX, &value));
        CHECK(value == good[i].value);
        CHECK_OK(tpc_json_u64(row, "bytes", good[i].value, good[i].value, &value));
        CHECK_STATUS(tpc_json_u64(row, "bytes", good[i].value + 1, UINT64_MAX, &value), TPCOMM_ERR_PARSE);
        if (good[i].value > 0) CHECK_STATUS(tpc_json_u64(row, "bytes", 0, good[i].value - 1, &value), TPCOMM_ERR_PARSE);
        tpc_json_free(doc);
    }
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        snprintf(text, sizeof text, "{\"rows\": [{}, {\"bytes\": %s}]}", wrong[i]);
        tpc_json_t *doc = parse(text);
        tpc_json_value_t rows;
        CHECK_OK(tpc_json_array(tpc_json_root(doc), "rows", &rows));
        value = 4711;
        tpcomm_status_t status = tpc_json_u64(tpc_json_next(tpc_json_first(rows)), "bytes", 0, UINT64_MAX, &value);
        if (status != TPCOMM_ERR_PARSE || value != 4711)
            FAIL("%s was taken as %llu", wrong[i], (unsigned long long)value);
        /* The value stands as the file has it, not as some double. */
        snprintf(want, sizeof want,
                 "t: rows[1].bytes = %s: want a whole number from 0 to 9007199254740991, written in digits only",
                 wrong[i]);
        check_error(want);
        tpc_json_free(doc);
    }
    tpc_json_t *doc;
    CHECK_STATUS(tpc_json_parse("t", "{\"n\": NaN}", 10, &doc), TPCOMM_ERR_PARSE);
    check_error("t:1:7: expected a value but found 'N'");
}

static void check_double(void) {
    tpc_json_t *doc = parse("{\"a\":[1.5,-0.25,0.1,1e308,5e-324,-0.0,1e400,-1e400,1e-400,\"1\",null],\"x\":{\"y\":0.1,"
                            "\"z\":1e400,\"s\":\"0.1\",\"m\":-0.0}}");
    tpc_json_value_t x;
    double value = 7;
    CHECK_OK(tpc_json_object(tpc_json_root(doc), "x", &x));
    CHECK_OK(tpc_json_double(x, "y", -1, 1, &value));
    CHECK(value == 0.1);
    CHECK_OK(tpc_json_double(x, "y", 0.1, 0.1, &value));
    CHECK_OK(tpc_json_double(x, "m", 0, 1, &value));
    CHECK(value == 0 && signbit(value));
    value = 7;
    CHECK_STATUS(tpc_json_double(x, "y", 0.25, 1.5, &value), TPCOMM_ERR_PARSE);
    check_error("t: x.y = 0.1: want a number from 0.25 to 1.5");
    CHECK_STATUS(tpc_json_double(x, "z", 0, INFINITY, &value), TPCOMM_ERR_PARSE);
    check_error("t: x.z = 1e400: want a number from 0 to inf");
    CHECK_STATUS(tpc_json_double(x, "s", 0, 1, &value), TPCOMM_ERR_PARSE);
    check_error("t: x.s = \"0.1\": want a number from 0 to 1");
    CHECK_STATUS(tpc_json_double(x, "none", 0, 1, &value), TPCOMM_ERR_PARSE);
    check_error("t: x.none is missing");
    CHECK(value == 7);
    tpc_json_free(doc);
}

static void check_types(void) {
    tpc_json_t *doc = parse("{\"b\":true,\"c\":false,\"s\":\"caf\\u00e9\",\"n\":null,\"o\":{\"k\":1},\"a\":[1,[2]],"
                            "\"odd key\":{\"\":[{}]},\"u\":3}");
    tpc_json_value_t root = tpc_json_root(doc), value = {doc, NULL};
    const char *text = "x";
    bool flag = false;
    uint64_t whole;
    CHECK_OK(tpc_json_bool(root, "b", &flag));
    CHECK(flag);
    CHECK_OK(tpc_json_bool(root, "c", &flag));
    CHECK(!flag);
    CHECK_STATUS(tpc_json_bool(root, "u", &flag), TPCOMM_ERR_PARSE);
    check_error("t: u = 3: want true or false");
    CHECK_OK(tpc_json_string(root, "s", &text));
    CHECK(strcmp(text, "caf\xc3\xa9") == 0);
    CHECK_STATUS(tpc_json_string(root, "n", &text), TPCOMM_ERR_PARSE);
    check_error("t: n = null: want a string");
    CHECK(tpc_json_is_null(tpc_json_get(root, "n")) && !tpc_json_is_null(tpc_json_get(root, "s")));
    CHECK(!tpc_json_is_null(tpc_json_get(root, "none")));
    CHECK_STATUS(tpc_json_object(root, "a", &value), TPCOMM_ERR_PARSE);
    check_error("t: a = [...]: want an object");
    CHECK_STATUS(tpc_json_array(root, "o", &value), TPCOMM_ERR_PARSE);
    check_error("t: o = {...}: want an array");
    CHECK(value.node == NULL);
    CHECK_OK(tpc_json_array(root, "a", &value));
    CHECK_EQ(tpc_json_count(value), 2);
    CHECK_STATUS(tpc_json_u64(tpc_json_first(value), "k", 0, 1, &whole), TPCOMM_ERR_PARSE);
    check_error("t: a[0] = 1: want an object with \"k\"");
    CHECK_STATUS(tpc_json_as_u64(tpc_json_first(tpc_json_next(tpc_json_first(value))), 5, 6, &whole), TPCOMM_ERR_PARSE);
    check_error("t: a[1][0] = 2: want a whole number from 5 to 6, written in digits only");
    CHECK_OK(tpc_json_object(root, "odd key", &value));
    CHECK_STATUS(tpc_json_fail(tpc_json_first(tpc_json_first(value)), "no %s", "good"), TPCOMM_ERR_PARSE);
    check_error("t: [\"odd key\"][\"\"][0] = {...}: no good");
    CHECK_STATUS(tpc_json_fail(root, "no"), TPCOMM_ERR_PARSE);
    check_error("t: the document = {...}: no");
    CHECK_STATUS(tpc_json_fail(tpc_json_get(root, "none"), "no"), TPCOMM_ERR_PARSE);
    check_error("t: no");
    CHECK_STATUS(tpc_json_string(tpc_json_get(root, "none"), "x", &text), TPCOMM_ERR_PARSE);
    check_error("t: x is missing");

    /* In file order, with keys; nothing of a value that is not there. */
    static const char *const keys[] = {"b", "c", "s", "n", "o", "a", "odd key", "u"};
    size_t i = 0;
    for (value = tpc_json_first(root); value.node; value = tpc_json_next(value))
        CHECK(strcmp(tpc_json_key(value), keys[i++]) == 0);
    CHECK_EQ(i, 8);
    CHECK_EQ(tpc_json_count(root), 8);
    CHECK_EQ(tpc_json_count(tpc_json_get(root, "u")), 0);
    CHECK(tpc_json_key(tpc_json_first(tpc_json_get(root, "a"))) == NULL);
    CHECK(tpc_json_first(value).node == NULL && tpc_json_next(value).node == NULL && tpc_json_key(value) == NULL);
    CHECK(tpc_json_get(root, "B").node == NULL);
    CHECK(tpc_json_get(tpc_json_get(root, "a"), "b").node == NULL);
    tpc_json_free(doc);
    tpc_json_free(NULL);
}

static void check_schema(void) {
    static const struct {
        const char *text, *error;
    } wrong[] = {
        {"{\"schema\":\"tpcomm-histogram/1\"}", "t: schema = \"tpcomm-histogram/1\": want \"tpcomm-tuning/1\""},
        {"{\"schema\":\"tpcomm-tuning/2\"}", "t: schema = \"tpcomm-tuning/2\": want \"tpcomm-tuning/1\""},
        {"{\"schema\":\"tpcomm-tuning/11\"}", "t: schema = \"tpcomm-tuning/11\": want \"tpcomm-tuning/1\""},
        {"{\"schema\":1}", "t: schema = 1: want \"tpcomm-tuning/1\""},
        {"{\"a\":1,\"schema\":\"tpcomm-tuning/1\"}",
         "t: the document = {...}: want an object whose first key is \"schema\" with \"tpcomm-tuning/1\""},
        {"{}", "t: the document = {...}: want an object whose first key is \"schema\" with \"tpcomm-tuning/1\""},
        {"[\"schema\"]",
         "t: the document = [...]: want an object whose first key is \"schema\" with \"tpcomm-tuning/1\""},
        {"\"tpcomm-tuning/1\"", "t: the document = \"tpcomm-tuning/1\": want an object whose first key is \"schema\" "
                                "with \"tpcomm-tuning/1\""},
    };
    static const char *const allowed[] = {"schema", "rows", "bytes_max", NULL};
    tpc_json_t *doc = parse("{\"schema\":\"tpcomm-tuning/1\",\"rows\":[{\"byte_max\":5}]}");
    CHECK_OK(tpc_json_check_schema(doc, "tpcomm-tuning/1"));
    CHECK_OK(tpc_json_check_keys(tpc_json_root(doc), allowed));
    tpc_json_value_t rows = tpc_json_get(tpc_json_root(doc), "rows");
    CHECK_STATUS(tpc_json_check_keys(tpc_json_first(rows), allowed), TPCOMM_ERR_PARSE);
    check_error("t: rows[0].byte_max = 5: unknown key; the nearest allowed one is \"bytes_max\"");
    CHECK_STATUS(tpc_json_check_keys(rows, allowed), TPCOMM_ERR_PARSE);
    check_error("t: rows = [...]: want an object");
    tpc_json_free(doc);
    doc = parse("{\"something\":{}}");
    CHECK_STATUS(tpc_json_check_keys(tpc_json_root(doc), allowed), TPCOMM_ERR_PARSE);
    check_error("t: something = {...}: unknown key");
    tpc_json_free(doc);
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        doc = parse(wrong[i].text);
        CHECK_STATUS(tpc_json_check_schema(doc, "tpcomm-tuning/1"), TPCOMM_ERR_PARSE);
        check_error(wrong[i].error);
        tpc_json_free(doc);
    }
}

static void check_duplicates(void) {
    static const struct {
        const char *text, *error;
    } wrong[] = {
        {"{\"a\":1,\"a\":1}", "t: a = 1: the key stands twice in its object"},
        {"{\"a\":1,\"\\u0061\":2}", "t: a = "},
        {"[{},{\"x\":{\"b\":[],\"c\":1,\"b\":[]}}]", "t: [1].x.b = [...]: the key stands twice in its object"},
    };
    tpc_json_t *doc;
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        CHECK_STATUS(tpc_json_parse("t", wrong[i].text, strlen(wrong[i].text), &doc), TPCOMM_ERR_PARSE);
        CHECK_ERROR_HAS(wrong[i].error);
    }
    tpc_json_free(parse("{\"a\":{\"a\":{\"A\":1,\"a\":1}},\"\":0}"));

    /* Many keys cost little more than their reading; one of them twice is found wherever it stands. */
    enum { KEYS = 100000, BYTES = KEYS * 16 + 64 };
    char *text = malloc(BYTES);
    CHECK(text != NULL);
    size_t used = 0;
    text[used++] = '{';
    for (int i = 0; i < KEYS; i++)
        used += (size_t)snprintf(text + used, BYTES - used, "%s\"%d\":%d", i ? "," : "", i * 7919 % KEYS, i);
    text[used] = '}';
    CHECK_OK(tpc_json_parse("t", text, used + 1, &doc));
    CHECK_EQ(tpc_json_count(tpc_json_root(doc)), KEYS);
    uint64_t value, wanted = 0;
    for (tpc_json_value_t member = tpc_json_first(tpc_json_root(doc)); member.node; member = tpc_json_next(member)) {
        CHECK_OK(tpc_json_as_u64(member, 0, KEYS, &value));
        CHECK(value == wanted++);
    }
    tpc_json_free(doc);
    snprintf(text + used, BYTES - used, ",\"77777\":1}");
    CHECK_STATUS(tpc_json_parse("t", text, strlen(text), &doc), TPCOMM_ERR_PARSE);
    CHECK_ERROR_HAS("t: 77777 = ");
    free(text);
}

/** Key paths and values in errors are bounded, whatever the file holds. */
static void check_long_names(void) {
    char text[4096] = "{\"", key[1001];
    memset(key, 'k', 1000);
    key[1000] = '\0';
    snprintf(text, sizeof text, "{\"%s\":{\"%s\":{\"%s\":\"%s\"}}}", key, key, key, key);
    tpc_json_t *doc = parse(text);
    tpc_json_value_t inner = tpc_json_first(tpc_json_first(tpc_json_root(doc)));
    uint64_t value;
    CHECK_STATUS(tpc_json_u64(inner, key, 0, 1, &value), TPCOMM_ERR_PARSE);
    CHECK_ERROR_HAS("kkk....kkk");
    CHECK_ERROR_HAS("kkk...\": want a whole number from 0 to 1");
    CHECK(strlen(tpcomm_last_error()) < 600);
    CHECK_STATUS(tpc_json_u64(inner, "missing", 0, 1, &value), TPCOMM_ERR_PARSE);
    CHECK_ERROR_HAS(" is missing");
    tpc_json_free(doc);
}

/* ---------------------------------------------------------------- files */

static const char *path_in(const char *name) {
    static char path[256];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static void put_file(const char *name, const char *text, size_t bytes) {
    FILE *file = fopen(path_in(name), "wb");
    CHECK(file != NULL);
    CHECK_EQ(fwrite(text, 1, bytes, file), bytes);
    CHECK_EQ(fclose(file), 0);
}

static void check_file(const char *path, tpcomm_status_t want, const char *piece) {
    tpc_json_t *doc = NULL;
    CHECK_STATUS(tpc_json_read_file(path, &doc), want);
    if (want == TPCOMM_OK) {
        tpc_json_free(doc);
        return;
    }
    CHECK(doc == NULL);
    if (strncmp(tpcomm_last_error(), path, strlen(path)) != 0)
        FAIL("the error does not begin with %s: %s", path, tpcomm_last_error());
    CHECK_ERROR_HAS(piece);
}

static void as_nobody(void) {
    if (geteuid() == 0) CHECK_EQ(seteuid(65534), 0);
    check_file(path_in("secret"), TPCOMM_ERR_IO, "cannot be opened: Permission denied");
    _exit(0); /* no exit: a leak checker cannot look into a process that changed its user */
}

static void *write_late(void *arg) {
    int fd = *(int *)arg;
    const struct timespec pause = {.tv_nsec = 30000000};
    for (const char *c = "{\"a\": [1, 2]}"; *c; c++) {
        if (*c == '[') nanosleep(&pause, NULL);
        CHECK_EQ(write(fd, c, 1), 1);
    }
    close(fd);
    return NULL;
}

static void check_files(void) {
    static char output[CHILD_OUTPUT_BYTES];
    char path[256];
    put_file("good", "{\"a\":1}\n", 8);
    check_file(path_in("good"), TPCOMM_OK, "");
    put_file("empty", "", 0);
    check_file(path_in("empty"), TPCOMM_ERR_PARSE, ":1:1: the text is empty");
    put_file("brace", "{", 1);
    check_file(path_in("brace"), TPCOMM_ERR_PARSE, ":1:2: the text ends");
    put_file("bom", "\xef\xbb\xbf{}", 5);
    check_file(path_in("bom"), TPCOMM_ERR_PARSE, ":1:1: a byte-order mark");
    put_file("nul", "{}\0", 3);
    check_file(path_in("nul"), TPCOMM_ERR_PARSE, ":1:3: expected the end of the text but found a NUL byte");
    check_file(path_in("missing"), TPCOMM_ERR_IO, "cannot be opened: No such file or directory");
    check_file(path_in("good/x"), TPCOMM_ERR_IO, "cannot be opened: Not a directory");
    check_file(folder, TPCOMM_ERR_IO, "cannot be read: Is a directory");
    check_file("/dev/zero", TPCOMM_ERR_PARSE, "at most 16777216 are allowed");
    check_file("/dev/null", TPCOMM_ERR_PARSE, "the text is empty");
    check_file("/proc/self/status", TPCOMM_ERR_PARSE, ":1:1: expected a value"); /* its size is 0 */

    put_file("secret", "{}", 2);
    CHECK_EQ(chmod(path_in("secret"), 0), 0);
    CHECK_EQ(chmod(folder, 0755), 0);
    child_run(as_nobody, output);

    /* 200 MiB, of which nothing need be read to know. */
    put_file("sparse", "{", 1);
    CHECK_EQ(truncate(path_in("sparse"), 200 << 20), 0);
    check_file(path_in("sparse"), TPCOMM_ERR_PARSE, "at least 209715200 bytes long; at most 16777216 are allowed");
    CHECK_EQ(truncate(path_in("sparse"), TPC_JSON_MAX_BYTES), 0);
    check_file(path_in("sparse"), TPCOMM_ERR_PARSE, ":1:2: expected a key in quotes but found a NUL byte");

    /* A pipe, as of a shell's <(...): its writer may be slow; a FIFO that nobody writes to is empty. */
    int ends[2];
    pthread_t writer;
    CHECK_EQ(pipe2(ends, O_CLOEXEC), 0);
    CHECK_EQ(pthread_create(&writer, NULL, write_late, &ends[1]), 0);
    snprintf(path, sizeof path, "/dev/fd/%d", ends[0]);
    check_file(path, TPCOMM_OK, "");
    CHECK_EQ(pthread_join(writer, NULL), 0);
    close(ends[0]);
    CHECK_EQ(mkfifo(path_in("fifo"), 0600), 0);
    check_file(path_in("fifo"), TPCOMM_ERR_PARSE, "the text is empty");

    char *text;
    size_t bytes;
    CHECK_OK(tpc_json_slurp(path_in("good"), 8, &text, &bytes));
    CHECK(bytes == 8 && strcmp(text, "{\"a\":1}\n") == 0);
    free(text);
    CHECK_STATUS(tpc_json_slurp(path_in("good"), 7, &text, &bytes), TPCOMM_ERR_PARSE);
    CHECK_OK(tpc_json_slurp(path_in("empty"), 0, &text, &bytes));
    CHECK(bytes == 0 && *text == '\0');
    free(text);

    static const char *const names[] = {"good", "empty", "brace", "bom", "nul", "secret", "sparse", "fifo"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) CHECK_EQ(unlink(path_in(names[i])), 0);
}

/* ---------------------------------------------------------------- library */

static void *parse_in_thread(void *arg) {
    (void)arg;
    for (int i = 0; i < 50; i++) {
        tpc_json_t *doc = parse("{\"a\":[1.5,{\"b\":\"x\"}],\"n\":4096}");
        uint64_t value;
        CHECK_OK(tpc_json_u64(tpc_json_root(doc), "n", 4096, 4096, &value));
        tpc_json_free(doc);
    }
    return NULL;
}

static void parse_in_threads(void) {
    pthread_t threads[8];
    for (int i = 0; i < 8; i++) CHECK_EQ(pthread_create(&threads[i], NULL, parse_in_thread, NULL), 0);
    for (int i = 0; i < 8; i++) CHECK_EQ(pthread_join(threads[i], NULL), 0);
}

static void *load_in_thread(void *arg) {
    (void)arg;
    CHECK_STATUS(tpc_json_load_library(NULL), TPCOMM_ERR_UNSUPPORTED);
    CHECK_ERROR_HAS("cJSON cannot be loaded: /nonexistent/libcjson.so");
    CHECK_ERROR_HAS("TPCOMM_CJSON_PATH");
    return NULL;
}

static void load_missing(void) {
    tpc_json_t *doc;
    pthread_t threads[4];
    CHECK_EQ(setenv("TPCOMM_CJSON_PATH", "/nonexistent/libcjson.so", 1), 0);
    for (int i = 0; i < 4; i++) CHECK_EQ(pthread_create(&threads[i], NULL, load_in_thread, NULL), 0);
    for (int i = 0; i < 4; i++) CHECK_EQ(pthread_join(threads[i], NULL), 0);
    /* Once per process: the setting is not read again. */
    CHECK_EQ(unsetenv("TPCOMM_CJSON_PATH"), 0);
    CHECK_STATUS(tpc_json_parse("t", "{}", 2, &doc), TPCOMM_ERR_UNSUPPORTED);
    CHECK_ERROR_HAS("/nonexistent/libcjson.so");
}

static void load_other(void) {
    CHECK_STATUS(tpc_json_load_library("libm.so.6"), TPCOMM_ERR_UNSUPPORTED);
    CHECK_ERROR_HAS("libm.so.6 has no cJSON_ParseWithOpts");
}

static void load_wrong_setting(void) {
    char text[600];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    CHECK_EQ(setenv("TPCOMM_CJSON_PATH", text, 1), 0);
    CHECK_STATUS(tpc_json_load_library(NULL), TPCOMM_ERR_CONFIG);
}

static void check_library(void) {
    static char output[CHILD_OUTPUT_BYTES];
    child_run(load_missing, output);
    child_run(load_other, output);
    child_run(load_wrong_setting, output);
    child_run(parse_in_threads, output);
}

static void check_values(void) {
    check_u64();
    check_double();
    check_types();
    check_schema();
    check_duplicates();
    check_long_names();
}

int main(void) {
    CHECK(mkdtemp(folder) != NULL);
    check_library();
    check_values();
    check_files();
    comma_locale_set();
    check_values();
    CHECK_EQ(rmdir(folder), 0);
    return 0;
}
