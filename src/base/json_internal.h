/* SPDX-License-Identifier: Apache-2.0 */
/** What the json*.c files share; the only file that includes cJSON's header. */
#ifndef TPC_BASE_JSON_INTERNAL_H
#define TPC_BASE_JSON_INTERNAL_H

#include <cjson/cJSON.h>
#include <stddef.h>
#include <stdint.h>

#include "base/json.h"

/* Whole numbers beyond it are no longer exact in the double that other readers of the file use. */
#define JSON_WHOLE_MAX ((UINT64_C(1) << 53) - 1)

/* cJSON copies a number into a buffer of this size before it converts it. */
#define JSON_NUMBER_MAX_BYTES 63

/** X(return type, name without cJSON_, parameters): what is used of cJSON, all of it old enough for 1.7.0. */
#define JSON_CJSON_LIST(X)                                                                                             \
    X(cJSON *, ParseWithOpts, (const char *text, const char **end, cJSON_bool terminated))                             \
    X(void, Delete, (cJSON * item))                                                                                    \
    X(char *, Print, (const cJSON *item))                                                                              \
    X(void, free, (void *memory))                                                                                      \
    X(cJSON *, CreateObject, (void))                                                                                   \
    X(cJSON *, CreateArray, (void))                                                                                    \
    X(cJSON *, CreateString, (const char *text))                                                                       \
    X(cJSON *, CreateRaw, (const char *text))                                                                          \
    X(cJSON *, CreateBool, (cJSON_bool value))                                                                         \
    X(cJSON *, CreateNull, (void))                                                                                     \
    X(cJSON_bool, AddItemToObject, (cJSON * object, const char *key, cJSON *item))                                     \
    X(cJSON_bool, AddItemToArray, (cJSON * array, cJSON * item))

typedef struct {
#define FIELD(type, name, parameters) type(*name) parameters;
    JSON_CJSON_LIST(FIELD)
#undef FIELD
} tpc_cjson_t;

/** cJSON's functions; valid after tpc_json_load_library. */
extern tpc_cjson_t tpc_cjson;

/**
 * Run the calling thread in the C locale, where the decimal point is a point, until tpc_json_locale_leave: cJSON and
 * printf follow the locale.
 */
void tpc_json_locale_enter(void);
void tpc_json_locale_leave(void);

/** The shortest text that reads back as exactly this finite double. */
#define JSON_DOUBLE_BYTES 32
const char *tpc_json_double_text(char text[JSON_DOUBLE_BYTES], double value);

/** The double that a JSON number of bytes characters denotes; infinite where none is large enough. */
double tpc_json_double_parse(const char *text, size_t bytes);

/** Where the numbers of a text stand, in document order. */
typedef struct {
    uint32_t *offset;
    size_t count, capacity;
} tpc_json_numbers_t;

/**
 * Check the whole grammar of text. Fails: PARSE "name:line:column: ...", NO_MEMORY.
 * @param numbers_p  out, the caller frees offset.
 */
tpcomm_status_t tpc_json_check_text(const char *name, const char *text, size_t bytes, tpc_json_numbers_t *numbers_p);

struct tpc_json {
    cJSON *root;
    tpc_json_numbers_t numbers; /**< a number's valueint is its index here: cJSON's own values are rounded */
    char *text;                 /**< as it was given, for the numbers' digits */
    char name[];
};

/** cJSON_Number and so on, without its flags. */
static inline int tpc_json_type(const cJSON *item) {
    return item->type & 0xff;
}

/** A way through a tree in document order; path leads from its root down to the current item. */
typedef struct {
    const cJSON *path[TPC_JSON_MAX_DEPTH + 1];
    size_t index[TPC_JSON_MAX_DEPTH + 1]; /**< of path[i] among its siblings */
    size_t depth;
} tpc_json_walk_t;

const cJSON *tpc_json_walk_start(tpc_json_walk_t *walk, const cJSON *root);
/** The next item; NULL at the end. */
const cJSON *tpc_json_walk_next(tpc_json_walk_t *walk);

/** A key that stands twice in one object of the tree below root: it, or NULL. Fails: NO_MEMORY. */
tpcomm_status_t tpc_json_find_duplicate(const cJSON *root, const cJSON **item_p);

/** Replace path's file by one that holds text; a reader sees the former file or the whole new one. */
tpcomm_status_t tpc_json_replace_file(const char *path, const char *text, size_t bytes);

#endif
