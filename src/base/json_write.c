/* SPDX-License-Identifier: Apache-2.0 */
/** Building and writing documents. What this file writes, json.c reads: every text is checked before it leaves. */
#include "base/json_internal.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/text.h"

#define REPLACEMENT       "\xef\xbf\xbd" /* U+FFFD */
#define REPLACEMENT_BYTES 3

struct tpc_json_writer {
    cJSON *root;
    tpcomm_status_t status; /**< of the first thing that could not be added; told at the end */
    char problem[256];
};

static void spoil(tpc_json_writer_t *writer, tpcomm_status_t status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static void spoil(tpc_json_writer_t *writer, tpcomm_status_t status, const char *format, ...) {
    if (writer->status != TPCOMM_OK) return;
    writer->status = status;
    va_list args;
    va_start(args, format);
    vsnprintf(writer->problem, sizeof writer->problem, format, args);
    va_end(args);
}

/** A copy whose every byte that is not UTF-8 became U+FFFD: a host's or file's odd name must not cost the whole
 * document. */
static char *copy_utf8(const char *text) {
    size_t left = strlen(text);
    char *copy = malloc(left * REPLACEMENT_BYTES + 1);
    if (!copy) return NULL;
    char *to = copy;
    while (left > 0) {
        size_t length = tpc_text_utf8(text, left);
        size_t taken = length ? length : 1;
        size_t given = length ? length : REPLACEMENT_BYTES;
        memcpy(to, length ? text : REPLACEMENT, given);
        to += given;
        text += taken;
        left -= taken;
    }
    *to = '\0';
    return copy;
}

/** Put item into parent, which takes it over; NULL where that was not possible. */
static cJSON *add_item(tpc_json_writer_t *writer, tpc_json_node_t *parent, const char *key, cJSON *item) {
    cJSON *into = parent;
    if (!item) {
        spoil(writer, TPCOMM_ERR_NO_MEMORY, "no memory for a value of the document");
        return NULL;
    }
    if (tpc_json_type(into) != (key ? cJSON_Object : cJSON_Array)) {
        spoil(writer, TPCOMM_ERR_INVALID_ARG, key ? "\"%s\" has a key but goes into an array" : "%s",
              key ? key : "a value without a key goes into an object");
        goto delete_item;
    }
    if (!key) {
        tpc_cjson.AddItemToArray(into, item);
        return item;
    }
    char *copy = copy_utf8(key);
    if (copy) tpc_cjson.AddItemToObject(into, copy, item);
    free(copy);
    /* Not by what it returned: that is nothing before cJSON 1.7.13. */
    if (item->string) return item;
    spoil(writer, TPCOMM_ERR_NO_MEMORY, "no memory for the key \"%s\"", key);
delete_item:
    tpc_cjson.Delete(item);
    return NULL;
}

tpcomm_status_t tpc_json_writer_new(const char *schema, tpc_json_writer_t **writer_p) {
    tpcomm_status_t status = tpc_json_load_library(NULL);
    if (status != TPCOMM_OK) return status;
    tpc_json_writer_t *writer = calloc(1, sizeof *writer);
    if (!writer) return tpc_error(TPCOMM_ERR_NO_MEMORY, "no memory for a document");
    writer->root = tpc_cjson.CreateObject();
    if (!writer->root) {
        free(writer);
        return tpc_error(TPCOMM_ERR_NO_MEMORY, "no memory for a document");
    }
    tpc_json_add_string(writer, writer->root, "schema", schema);
    *writer_p = writer;
    return TPCOMM_OK;
}

tpc_json_node_t *tpc_json_writer_root(tpc_json_writer_t *writer) {
    return writer->root;
}

tpc_json_node_t *tpc_json_add_object(tpc_json_writer_t *writer, tpc_json_node_t *parent, const char *key) {
    return parent ? add_item(writer, parent, key, tpc_cjson.CreateObject()) : NULL;
}

tpc_json_node_t *tpc_json_add_array(tpc_json_writer_t *writer, tpc_json_node_t *parent, const char *key) {
    return parent ? add_item(writer, parent, key, tpc_cjson.CreateArray()) : NULL;
}

/* Numbers go in as text: cJSON prints 10^15 as 1e+15 and some versions drop the last bit of a double. */

void tpc_json_add_u64(tpc_json_writer_t *writer, tpc_json_node_t *parent, const char *key, uint64_t value) {
    char text[32];
    if (!parent) return;
    if (value > JSON_WHOLE_MAX)
        spoil(writer, TPCOMM_ERR_INVALID_ARG, "\"%s\" is %" PRIu64 ", over 2^53 - 1", key ? key : "[]", value);
    snprintf(text, sizeof text, "%" PRIu64, value);
    add_item(writer, parent, key, tpc_cjson.CreateRaw(text));
}

void tpc_json_add_i64(tpc_json_writer_t *writer, tpc_json_node_t *parent, const char *key, int64_t value) {
    char text[32];
    if (!parent) return;
    if (value > (int64_t)JSON_WHOLE_MAX || value < -(int64_t)JSON_WHOLE_MAX)
        spoil(writer, TPCOMM_ERR_INVALID_ARG, "\"%s\" is %" PRId64 ", beyond +-(2^53 - 1)", key ? key : "[]", value);
    snprintf(text, sizeof text, "%" PRId64, value);
    add_item(writer, parent, key, tpc_cjson.CreateRaw(text));
}

void tpc_json_add_double(tpc_json_writer_t *writer, tpc_json_node_t *parent, const char *key, double value) {
    char text[JSON_DOUBLE_BYTES];
    if (!parent) return;
    if (isinf(value)) spoil(writer, TPCOMM_ERR_INVALID_ARG, "\"%s\" is infinite", key ? key : "[]");
    add_item(writer, parent, key,
             isfinite(value) ? tpc_cjson.CreateRaw(tpc_json_double_text(text, value)) : tpc_cjson.CreateNull());
}

void tpc_json_add_bool(tpc_json_writer_t *writer, tpc_json_node_t *parent, const char *key, bool value) {
    if (parent) add_item(writer, parent, key, tpc_cjson.CreateBool(value));
}

void tpc_json_add_string(tpc_json_writer_t *writer, tpc_json_node_t *parent, const char *key, const char *value) {
    if (!parent) return;
    char *copy = value ? copy_utf8(value) : NULL;
    cJSON *item = copy ? tpc_cjson.CreateString(copy) : NULL;
    add_item(writer, parent, key, value ? item : tpc_cjson.CreateNull());
    free(copy);
}

tpcomm_status_t tpc_json_writer_text(tpc_json_writer_t *writer, char **text_p) {
    tpc_json_numbers_t numbers = {NULL, 0, 0};
    const cJSON *duplicate;
    if (writer->status != TPCOMM_OK) return tpc_error(writer->status, "the JSON document: %s", writer->problem);

    char *printed = tpc_cjson.Print(writer->root);
    if (!printed) return tpc_error(TPCOMM_ERR_NO_MEMORY, "no memory for the text of a document");
    size_t bytes = strlen(printed);
    /* A copy: the host program may have given cJSON an allocator of its own. */
    char *text = malloc(bytes + 2);
    if (text) snprintf(text, bytes + 2, "%s\n", printed);
    tpc_cjson.free(printed);
    if (!text) return tpc_error(TPCOMM_ERR_NO_MEMORY, "no memory for the text of a document");

    tpcomm_status_t status = tpc_json_check_text("the JSON document", text, bytes + 1, &numbers);
    free(numbers.offset);
    if (status != TPCOMM_OK) goto free_text;
    /* Only now: the tree is known to be no deeper than a walk can go. */
    status = tpc_json_find_duplicate(writer->root, &duplicate);
    if (status != TPCOMM_OK) goto free_text;
    if (duplicate) {
        status = tpc_error(TPCOMM_ERR_INVALID_ARG, "the JSON document: \"%s\" was added twice", duplicate->string);
        goto free_text;
    }
    *text_p = text;
    return TPCOMM_OK;

free_text:
    free(text);
    return status;
}

tpcomm_status_t tpc_json_write_file(tpc_json_writer_t *writer, const char *path) {
    char *text;
    tpcomm_status_t status = tpc_json_writer_text(writer, &text);
    if (status != TPCOMM_OK) return status;
    status = tpc_json_replace_file(path, text, strlen(text));
    free(text);
    return status;
}

void tpc_json_writer_free(tpc_json_writer_t *writer) {
    if (!writer) return;
    tpc_cjson.Delete(writer->root);
    free(writer);
}
