/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Check that a library is found by its names or the given path, that an error names all that was tried or is missing,
 * and that the library uses its own symbols where the program has others of the same name.
 */
#include <stdbool.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/shlib.h"
#include "check.h"

#if defined(__has_feature)
#define HAS_FEATURE(name) __has_feature(name)
#else
#define HAS_FEATURE(name) 0
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || HAS_FEATURE(address_sanitizer) ||                 \
    HAS_FEATURE(thread_sanitizer)
#define SANITIZED 1
#else
#define SANITIZED 0
#endif

typedef struct {
    double (*cos)(double);
    void (*no_such)(void);
    double (*sqrt)(double);
} table_t;

static const char *const found[] = {"libtpcomm-no-such.so.1", "libm.so.6", NULL};
static const char *const not_found[] = {"libtpcomm-no-such.so.1", "libtpcomm-no-such.so", NULL};
static const tpc_shlib_symbol_t symbols[] = {{"cos", offsetof(table_t, cos), true},
                                             {"tpcomm_no_such", offsetof(table_t, no_such), false},
                                             {"sqrt", offsetof(table_t, sqrt), true}};
static const tpc_shlib_symbol_t too_many[] = {{"cos", offsetof(table_t, cos), true},
                                              {"tpcomm_no_such", offsetof(table_t, no_such), true},
                                              {"tpcomm_no_such_2", offsetof(table_t, sqrt), true}};

static void check_math(void) {
    tpc_shlib_desc_t desc = {.what = "the math library", .names = found, .symbols = symbols, .symbol_count = 3};
    table_t table;
    memset(&table, 0xff, sizeof table);
    tpc_shlib_t lib = {.handle = NULL};
    CHECK_OK(tpc_shlib_open(&desc, "", &table, &lib));
    CHECK(table.cos(0.0) == 1.0 && table.sqrt(4.0) == 2.0 && table.no_such == NULL);
    CHECK(strstr(lib.path, "/libm.so.6") && access(lib.path, R_OK) == 0);

    /* The explicit path is the only one. */
    char path[sizeof lib.path];
    strcpy(path, lib.path);
    tpc_shlib_close(&lib);
    CHECK(lib.handle == NULL);
    tpc_shlib_close(&lib);
    desc.names = not_found;
    CHECK_OK(tpc_shlib_open(&desc, path, &table, &lib));
    CHECK(strcmp(lib.path, path) == 0);
    tpc_shlib_close(&lib);
}

static void check_errors(void) {
    tpc_shlib_desc_t desc = {.what = "the math library", .names = not_found, .symbols = symbols, .symbol_count = 3};
    table_t table = {.cos = NULL};
    tpc_shlib_t lib = {.handle = NULL};
    CHECK_STATUS(tpc_shlib_open(&desc, NULL, &table, &lib), TPCOMM_ERR_UNSUPPORTED);
    CHECK_ERROR_HAS("the math library cannot be loaded: libtpcomm-no-such.so.1: ");
    CHECK_ERROR_HAS("; libtpcomm-no-such.so: ");

    desc.names = found;
    CHECK_STATUS(tpc_shlib_open(&desc, "/nonexistent/libm.so.6", &table, &lib), TPCOMM_ERR_UNSUPPORTED);
    CHECK_ERROR_HAS("/nonexistent/libm.so.6: ");
    CHECK(!strstr(tpcomm_last_error(), "no-such"));
    CHECK_STATUS(tpc_shlib_open(&desc, "/", &table, &lib), TPCOMM_ERR_UNSUPPORTED);
    CHECK_ERROR_HAS("/: it is no regular file");
    char pipe[64]; /* the loader would wait for a writer */
    snprintf(pipe, sizeof pipe, "/tmp/tpcomm-shlib-%d", (int)getpid());
    CHECK_EQ(mkfifo(pipe, 0600), 0);
    tpcomm_status_t status = tpc_shlib_open(&desc, pipe, &table, &lib);
    CHECK_EQ(unlink(pipe), 0);
    CHECK_EQ(status, TPCOMM_ERR_UNSUPPORTED);
    CHECK_ERROR_HAS(": it is no regular file");
    CHECK_STATUS(tpc_shlib_open(&desc, "/proc/self/environ", &table, &lib), TPCOMM_ERR_UNSUPPORTED);

    desc.symbols = too_many;
    CHECK_STATUS(tpc_shlib_open(&desc, NULL, &table, &lib), TPCOMM_ERR_UNSUPPORTED);
    CHECK_ERROR_HAS("/libm.so.6 has no tpcomm_no_such");
    CHECK(!strstr(tpcomm_last_error(), "no_such_2"));
    /* Outputs are written on success alone. */
    CHECK(table.cos == NULL && lib.handle == NULL);
}

/* A symbol of the program's own, as of a server that has another cJSON inside. cJSON_ParseWithOpts calls it by name. */
static bool hijacked;
__attribute__((visibility("default"))) void *cJSON_ParseWithLengthOpts(const char *text, size_t bytes, const char **end,
                                                                       int terminated);
__attribute__((visibility("default"))) void *cJSON_ParseWithLengthOpts(const char *text, size_t bytes, const char **end,
                                                                       int terminated) {
    (void)text, (void)bytes, (void)end, (void)terminated;
    hijacked = true;
    return NULL;
}

static void check_deepbind(void) {
    static const char *const names[] = {"libcjson.so.1", "libcjson.so", NULL};
    struct {
        void *(*parse)(const char *text, const char **end, int terminated);
        void (*delete)(void *item);
    } table;
    const tpc_shlib_symbol_t cjson_symbols[] = {{"cJSON_ParseWithOpts", 0, true},
                                                {"cJSON_Delete", sizeof(void (*)(void)), true}};
    tpc_shlib_desc_t desc = {
        .what = "cJSON", .names = names, .deepbind = true, .symbols = cjson_symbols, .symbol_count = 2};
    tpc_shlib_t lib = {.handle = NULL};
    CHECK_OK(tpc_shlib_open(&desc, NULL, &table, &lib));
    void *item = table.parse("{}", NULL, 1);
    if (SANITIZED) return; /* loaded without RTLD_DEEPBIND, which a sanitizer's runtime does not survive */
    CHECK(!hijacked);
    CHECK(item != NULL);
    table.delete(item);
    tpc_shlib_close(&lib);
}

int main(void) {
    check_math();
    check_errors();
    check_deepbind();
    return 0;
}
