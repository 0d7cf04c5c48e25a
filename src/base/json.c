/* SPDX-License-Identifier: Apache-2.0 */
#include "base/json.h"

#include <locale.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/env.h"
#include "base/error.h"
#include "base/json_internal.h"
#include "base/shlib.h"

tpc_cjson_t tpc_cjson;
static tpc_shlib_t library;
static locale_t c_locale;
static _Thread_local locale_t caller_locale;

/* ---------------------------------------------------------------- library */

static tpcomm_status_t load(const char *path) {
    static const char *const names[] = {"libcjson.so.1", "libcjson.so", NULL};
    static const tpc_shlib_symbol_t symbols[] = {
#define SYMBOL(type, name, parameters) {"cJSON_" #name, offsetof(tpc_cjson_t, name), true},
        JSON_CJSON_LIST(SYMBOL)
#undef SYMBOL
    };
    static const tpc_shlib_desc_t desc = {.what = "cJSON",
                                          .names = names,
                                          .deepbind = true,
                                          .symbols = symbols,
                                          .symbol_count = sizeof symbols / sizeof symbols[0]};
    tpc_env_value_t value;
    if (!path || !*path) {
        tpcomm_status_t status = tpc_env_get(TPC_ENV_CJSON_PATH, &value);
        if (status != TPCOMM_OK) return status;
        path = value.text;
    }
    c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    if (!c_locale) return tpc_error(TPCOMM_ERR_NO_MEMORY, "no memory for the C locale");
    tpcomm_status_t status = tpc_shlib_open(&desc, path, &tpc_cjson, &library);
    if (status == TPCOMM_OK) return TPCOMM_OK;
    freelocale(c_locale);
    return tpc_error(
        status, "%s (install libcjson1 on Debian and Ubuntu, cjson elsewhere; TPCOMM_CJSON_PATH names another file)",
        tpcomm_last_error());
}

static _Thread_local const char *wanted_path;
static tpcomm_status_t load_status;
static char load_error[TPC_ERROR_BYTES];

static void load_once(void) {
    load_status = load(wanted_path);
    if (load_status != TPCOMM_OK) snprintf(load_error, sizeof load_error, "%s", tpcomm_last_error());
}

tpcomm_status_t tpc_json_load_library(const char *path) {
    /* Not a lock: a child forked meanwhile could never take it. */
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    wanted_path = path;
    pthread_once(&once, load_once);
    return load_status == TPCOMM_OK ? TPCOMM_OK : tpc_error(load_status, "%s", load_error);
}

void tpc_json_locale_enter(void) {
    caller_locale = uselocale(c_locale);
}

void tpc_json_locale_leave(void) {
    uselocale(caller_locale);
}

const char *tpc_json_double_text(char text[JSON_DOUBLE_BYTES], double value) {
    char shortest[JSON_DOUBLE_BYTES] = ""; /* gcc's sanitizers make a NULL of text, and warn of it */
    tpc_json_locale_enter();
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(shortest, sizeof shortest, "%.*g", digits, value);
        if (strtod(shortest, NULL) == value) break;
    }
    tpc_json_locale_leave();
    memcpy(text, shortest, sizeof shortest);
    return text;
}

double tpc_json_double_parse(const char *text, size_t bytes) {
    char digits[JSON_NUMBER_MAX_BYTES + 1] = "";
    memcpy(digits, text, bytes < sizeof digits ? bytes : sizeof digits - 1);
    return strtod_l(digits, NULL, c_locale);
}

/* ---------------------------------------------------------------- documents */

const cJSON *tpc_json_walk_start(tpc_json_walk_t *walk, const cJSON *root) {
    walk->path[0] = root;
    walk->index[0] = 0;
    walk->depth = 0;
    return root;
}

const cJSON *tpc_json_walk_next(tpc_json_walk_t *walk) {
    const cJSON *child = walk->path[walk->depth]->child;
    if (child) {
        walk->path[++walk->depth] = child;
        walk->index[walk->depth] = 0;
        return child;
    }
    for (; walk->depth > 0; walk->depth--) {
        const cJSON *sibling = walk->path[walk->depth]->next;
        if (!sibling) continue;
        walk->path[walk->depth] = sibling;
        walk->index[walk->depth]++;
        return sibling;
    }
    return NULL;
}

static int compare_keys(const void *a, const void *b) {
    return strcmp((*(const cJSON *const *)a)->string, (*(const cJSON *const *)b)->string);
}

tpcomm_status_t tpc_json_find_duplicate(const cJSON *root, const cJSON **item_p) {
    tpc_json_walk_t walk;
    const cJSON **members = NULL;
    size_t capacity = 0;
    *item_p = NULL;
    for (const cJSON *item = tpc_json_walk_start(&walk, root); item && !*item_p; item = tpc_json_walk_next(&walk)) {
        if (tpc_json_type(item) != cJSON_Object) continue;
        size_t count = 0;
        for (const cJSON *member = item->child; member; member = member->next) {
            if (count == capacity) {
                capacity = capacity ? capacity * 2 : 64;
                const cJSON **grown = realloc(members, capacity * sizeof *grown);
                if (!grown) {
                    free(members);
                    return tpc_error(TPCOMM_ERR_NO_MEMORY, "no memory for %zu keys", capacity);
                }
                members = grown;
            }
            members[count++] = member;
        }
        if (count > 1) qsort(members, count, sizeof members[0], compare_keys);
        for (size_t i = 1; i < count && !*item_p; i++)
            if (strcmp(members[i - 1]->string, members[i]->string) == 0) *item_p = members[i];
    }
    free(members);
    return TPCOMM_OK;
}

/** Let each number know where its digits stand. */
static void number_items(tpc_json_t *doc) {
    tpc_json_walk_t walk;
    int index = 0;
    for (const cJSON *item = tpc_json_walk_start(&walk, doc->root); item; item = tpc_json_walk_next(&walk))
        if (tpc_json_type(item) == cJSON_Number) ((cJSON *)item)->valueint = index++;
}

static tpcomm_status_t check_duplicates(const tpc_json_t *doc) {
    const cJSON *duplicate;
    tpcomm_status_t status = tpc_json_find_duplicate(doc->root, &duplicate);
    if (status != TPCOMM_OK || !duplicate) return status;
    return tpc_json_fail((tpc_json_value_t){doc, duplicate}, "the key stands twice in its object");
}

tpcomm_status_t tpc_json_parse(const char *name, const char *text, size_t bytes, tpc_json_t **doc_p) {
    tpcomm_status_t status = tpc_json_load_library(NULL);
    if (status != TPCOMM_OK) return status;

    size_t name_bytes = strlen(name) + 1;
    tpc_json_t *doc = calloc(1, sizeof *doc + name_bytes);
    if (!doc) return tpc_error(TPCOMM_ERR_NO_MEMORY, "%s: no memory for the document", name);
    memcpy(doc->name, name, name_bytes);
    status = tpc_json_check_text(name, text, bytes, &doc->numbers);
    if (status != TPCOMM_OK) goto free_doc;

    doc->text = malloc(bytes + 1);
    if (doc->text) {
        memcpy(doc->text, text, bytes);
        doc->text[bytes] = '\0';
        tpc_json_locale_enter();
        doc->root = tpc_cjson.ParseWithOpts(doc->text, NULL, 1);
        tpc_json_locale_leave();
    }
    if (!doc->root) {
        status = tpc_error(TPCOMM_ERR_NO_MEMORY, "%s: no memory for the document", name);
        goto free_doc;
    }
    number_items(doc);
    status = check_duplicates(doc);
    if (status != TPCOMM_OK) goto free_doc;
    *doc_p = doc;
    return TPCOMM_OK;

free_doc:
    tpc_json_free(doc);
    return status;
}

tpcomm_status_t tpc_json_read_file(const char *path, tpc_json_t **doc_p) {
    char *text;
    size_t bytes;
    tpcomm_status_t status = tpc_json_slurp(path, TPC_JSON_MAX_BYTES, &text, &bytes);
    if (status != TPCOMM_OK) return status;
    status = tpc_json_parse(path, text, bytes, doc_p);
    free(text);
    return status;
}

void tpc_json_free(tpc_json_t *doc) {
    if (!doc) return;
    if (doc->root) tpc_cjson.Delete(doc->root);
    free(doc->numbers.offset);
    free(doc->text);
    free(doc);
}
