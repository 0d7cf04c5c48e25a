/* SPDX-License-Identifier: Apache-2.0 */
/**
 * JSON, strict: cJSON (loaded at run time) parses and prints, these files check what they let through. UTF-8 without a
 * byte-order mark or NUL (nor \u0000), RFC 8259 grammar, no duplicate keys, at most 64 levels deep, TPC_JSON_MAX_BYTES
 * long, of 2^21 values, numbers of at most 63 characters, the same in every locale. Integers are exact or refused.
 * Every error is PARSE and names the file and line:column, or the file and the key's path ("rows[3].bytes_max") with
 * the value.
 */
#ifndef TPC_BASE_JSON_H
#define TPC_BASE_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tpcomm.h"

#define TPC_JSON_MAX_BYTES (16u << 20)
#define TPC_JSON_MAX_DEPTH 64

typedef struct tpc_json tpc_json_t; /**< a document: its text's name and its values */

/** A value inside a document; a plain handle, valid as long as the document. node NULL: absent. */
typedef struct {
    const tpc_json_t *doc;
    const void *node;
} tpc_json_value_t;

/** Load cJSON; path "" or NULL: TPCOMM_CJSON_PATH, then the system's. Once per process. Fails: UNSUPPORTED, CONFIG. */
tpcomm_status_t tpc_json_load_library(const char *path);

/** Parse text (need not be terminated). name stands in errors: a file name or "<tuning>". The caller frees *doc_p. */
tpcomm_status_t tpc_json_parse(const char *name, const char *text, size_t bytes, tpc_json_t **doc_p);
/** Read and parse a file. Fails: IO (naming the file and errno; a directory or unreadable file), PARSE. */
tpcomm_status_t tpc_json_read_file(const char *path, tpc_json_t **doc_p);
/** Read a whole file of at most max_bytes; the caller frees *text_p, which is terminated. Fails: IO, PARSE. */
tpcomm_status_t tpc_json_slurp(const char *path, size_t max_bytes, char **text_p, size_t *bytes_p);
void tpc_json_free(tpc_json_t *doc);

tpc_json_value_t tpc_json_root(const tpc_json_t *doc);
/** Check that the root is an object whose first key is "schema" with exactly this value ("tpcomm-tuning/1"). */
tpcomm_status_t tpc_json_check_schema(const tpc_json_t *doc, const char *schema);
/** Refuse keys of an object that are not in the NULL-terminated list; names the key and the nearest allowed one. */
tpcomm_status_t tpc_json_check_keys(tpc_json_value_t object, const char *const *allowed);

/** Member of an object; node NULL if there is none (or object is no object). */
tpc_json_value_t tpc_json_get(tpc_json_value_t object, const char *key);
bool tpc_json_is_null(tpc_json_value_t value);
/** Members of an object or array in file order; key_p (may be NULL) is the member's key, NULL for array elements. */
size_t tpc_json_count(tpc_json_value_t value);
tpc_json_value_t tpc_json_first(tpc_json_value_t value);
tpc_json_value_t tpc_json_next(tpc_json_value_t value);
const char *tpc_json_key(tpc_json_value_t value);

/** Typed reads: PARSE with the key's path and the value where the type or range is wrong or the member is absent. */
tpcomm_status_t tpc_json_u64(tpc_json_value_t object, const char *key, uint64_t minimum, uint64_t maximum,
                             uint64_t *value_p);
tpcomm_status_t tpc_json_double(tpc_json_value_t object, const char *key, double minimum, double maximum,
                                double *value_p);
tpcomm_status_t tpc_json_bool(tpc_json_value_t object, const char *key, bool *value_p);
tpcomm_status_t tpc_json_string(tpc_json_value_t object, const char *key, const char **value_p);
tpcomm_status_t tpc_json_object(tpc_json_value_t object, const char *key, tpc_json_value_t *value_p);
tpcomm_status_t tpc_json_array(tpc_json_value_t object, const char *key, tpc_json_value_t *value_p);
/** The same for a value itself (an array's element). */
tpcomm_status_t tpc_json_as_u64(tpc_json_value_t value, uint64_t minimum, uint64_t maximum, uint64_t *value_p);
/** Record a PARSE error about a value: "file: path.to.key = VALUE: " and the text. For checks of the caller's own. */
tpcomm_status_t tpc_json_fail(tpc_json_value_t value, const char *format, ...) __attribute__((format(printf, 2, 3)));

/*
 * Building. A writer owns one document; functions on a NULL parent do nothing, so only the result of
 * tpc_json_writer_text or tpc_json_write_file needs a check. key NULL: into an array. Strings that are not UTF-8 get
 * U+FFFD in place of each wrong byte.
 */
typedef struct tpc_json_writer tpc_json_writer_t;
typedef void tpc_json_node_t;
/** A document whose root is an object with "schema" first. */
tpcomm_status_t tpc_json_writer_new(const char *schema, tpc_json_writer_t **writer_p);
tpc_json_node_t *tpc_json_writer_root(tpc_json_writer_t *writer);
tpc_json_node_t *tpc_json_add_object(tpc_json_writer_t *writer, tpc_json_node_t *parent, const char *key);
tpc_json_node_t *tpc_json_add_array(tpc_json_writer_t *writer, tpc_json_node_t *parent, const char *key);
/** Beyond 2^53 - 1: an error at write; also for i64. */
void tpc_json_add_u64(tpc_json_writer_t *writer, tpc_json_node_t *parent, const char *key, uint64_t value);
void tpc_json_add_i64(tpc_json_writer_t *writer, tpc_json_node_t *parent, const char *key, int64_t value);
/** NaN: null; infinite: an error at write. */
void tpc_json_add_double(tpc_json_writer_t *writer, tpc_json_node_t *parent, const char *key, double value);
void tpc_json_add_bool(tpc_json_writer_t *writer, tpc_json_node_t *parent, const char *key, bool value);
/** NULL: null. */
void tpc_json_add_string(tpc_json_writer_t *writer, tpc_json_node_t *parent, const char *key, const char *value);
/** The document's text; the caller frees it with free(). */
tpcomm_status_t tpc_json_writer_text(tpc_json_writer_t *writer, char **text_p);
/**
 * Write to a temporary file beside path and rename it, so that a reader always sees a whole file. What is no plain file
 * (/dev, a pipe) is written to in place. Fails: IO, NO_MEMORY.
 */
tpcomm_status_t tpc_json_write_file(tpc_json_writer_t *writer, const char *path);
void tpc_json_writer_free(tpc_json_writer_t *writer);

#endif
