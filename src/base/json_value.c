/* SPDX-License-Identifier: Apache-2.0 */
/** Reading values out of a checked document. */
#include "base/json_internal.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/text.h"

#define PATH_BYTES  256
#define VALUE_BYTES (TPC_TEXT_QUOTE_BYTES + 8)

static const cJSON *item_of(tpc_json_value_t value) {
    return value.node;
}

static tpc_json_value_t value_at(const tpc_json_t *doc, const cJSON *item) {
    return (tpc_json_value_t){doc, item};
}

static bool is_type(tpc_json_value_t value, int type) {
    return value.node && tpc_json_type(item_of(value)) == type;
}

/** A number as the file has it. */
static const char *number_text(tpc_json_value_t value, size_t *bytes_p) {
    const char *text = value.doc->text + value.doc->numbers.offset[item_of(value)->valueint];
    size_t bytes = 0;
    /* No strspn: a sanitizer lets it look at the whole rest of the document, for each number. */
    while ((text[bytes] >= '0' && text[bytes] <= '9') || (text[bytes] != '\0' && memchr("+-.eE", text[bytes], 5)))
        bytes++;
    *bytes_p = bytes;
    return text;
}

/* ---------------------------------------------------------------- errors */

static bool is_plain_key(const char *key) {
    return *key && strspn(key, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") == strlen(key);
}

/** Append ".key" to a path, or "["key"]" where the key would be misread. */
static size_t append_key(char path[PATH_BYTES], size_t used, const char *key) {
    char quoted[TPC_TEXT_QUOTE_BYTES];
    if (used >= PATH_BYTES) return used;
    tpc_text_quote(quoted, key, strlen(key));
    int length = is_plain_key(key) ? snprintf(path + used, PATH_BYTES - used, "%s%s", used ? "." : "", quoted)
                                   : snprintf(path + used, PATH_BYTES - used, "[\"%s\"]", quoted);
    return length < 0 ? used : used + (size_t)length;
}

static size_t append_index(char path[PATH_BYTES], size_t used, size_t index) {
    if (used >= PATH_BYTES) return used;
    int length = snprintf(path + used, PATH_BYTES - used, "[%zu]", index);
    return length < 0 ? used : used + (size_t)length;
}

/** The path of a value, "rows[3].bytes_max"; empty for the root. A value knows no parent, so it is searched for. */
static size_t path_of(tpc_json_value_t value, char path[PATH_BYTES]) {
    tpc_json_walk_t walk;
    size_t used = 0;
    path[0] = '\0';
    const cJSON *item = tpc_json_walk_start(&walk, value.doc->root);
    while (item && item != value.node) item = tpc_json_walk_next(&walk);
    if (!item) return 0;
    for (size_t i = 1; i <= walk.depth; i++)
        used = walk.path[i]->string ? append_key(path, used, walk.path[i]->string)
                                    : append_index(path, used, walk.index[i]);
    tpc_text_cut(path, PATH_BYTES, used);
    return used;
}

static const char *value_text(tpc_json_value_t value, char text[VALUE_BYTES]) {
    char quoted[TPC_TEXT_QUOTE_BYTES];
    size_t bytes;
    const char *digits;
    switch (tpc_json_type(item_of(value))) {
    case cJSON_Number:
        digits = number_text(value, &bytes);
        return tpc_text_quote(text, digits, bytes);
    case cJSON_String:
        snprintf(text, VALUE_BYTES, "\"%s\"",
                 tpc_text_quote(quoted, item_of(value)->valuestring, strlen(item_of(value)->valuestring)));
        return text;
    case cJSON_True:
        return "true";
    case cJSON_False:
        return "false";
    case cJSON_NULL:
        return "null";
    case cJSON_Array:
        return "[...]";
    default:
        return "{...}";
    }
}

tpcomm_status_t tpc_json_fail(tpc_json_value_t value, const char *format, ...) {
    char path[PATH_BYTES], held[VALUE_BYTES], text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (!value.node) return tpc_error(TPCOMM_ERR_PARSE, "%s: %s", value.doc->name, text);
    bool is_root = path_of(value, path) == 0;
    return tpc_error(TPCOMM_ERR_PARSE, "%s: %s = %s: %s", value.doc->name, is_root ? "the document" : path,
                     value_text(value, held), text);
}

/** The member, or the error that it is missing. */
static tpcomm_status_t member_of(tpc_json_value_t object, const char *key, tpc_json_value_t *member_p) {
    char path[PATH_BYTES];
    tpc_json_value_t member = tpc_json_get(object, key);
    if (member.node) {
        *member_p = member;
        return TPCOMM_OK;
    }
    if (object.node && !is_type(object, cJSON_Object)) return tpc_json_fail(object, "want an object with \"%s\"", key);
    size_t used = object.node ? path_of(object, path) : 0;
    used = append_key(path, used, key);
    tpc_text_cut(path, PATH_BYTES, used);
    return tpc_error(TPCOMM_ERR_PARSE, "%s: %s is missing", object.doc->name, path);
}

/* ---------------------------------------------------------------- structure */

tpc_json_value_t tpc_json_root(const tpc_json_t *doc) {
    return value_at(doc, doc->root);
}

tpcomm_status_t tpc_json_check_schema(const tpc_json_t *doc, const char *schema) {
    tpc_json_value_t root = tpc_json_root(doc), first = tpc_json_first(root);
    if (!is_type(root, cJSON_Object) || !first.node || strcmp(tpc_json_key(first), "schema") != 0)
        return tpc_json_fail(root, "want an object whose first key is \"schema\" with \"%s\"", schema);
    if (!is_type(first, cJSON_String) || strcmp(item_of(first)->valuestring, schema) != 0)
        return tpc_json_fail(first, "want \"%s\"", schema);
    return TPCOMM_OK;
}

tpcomm_status_t tpc_json_check_keys(tpc_json_value_t object, const char *const *allowed) {
    char quoted[TPC_TEXT_QUOTE_BYTES];
    size_t count = 0;
    while (allowed[count]) count++;
    if (!is_type(object, cJSON_Object)) return tpc_json_fail(object, "want an object");
    for (tpc_json_value_t member = tpc_json_first(object); member.node; member = tpc_json_next(member)) {
        const char *key = tpc_json_key(member);
        size_t i = 0;
        while (i < count && strcmp(key, allowed[i]) != 0) i++;
        if (i < count) continue;
        const char *nearest = tpc_text_nearest(tpc_text_quote(quoted, key, strlen(key)), allowed, count);
        return nearest ? tpc_json_fail(member, "unknown key; the nearest allowed one is \"%s\"", nearest)
                       : tpc_json_fail(member, "unknown key");
    }
    return TPCOMM_OK;
}

tpc_json_value_t tpc_json_get(tpc_json_value_t object, const char *key) {
    const cJSON *member = is_type(object, cJSON_Object) ? item_of(object)->child : NULL;
    while (member && strcmp(member->string, key) != 0) member = member->next;
    return value_at(object.doc, member);
}

bool tpc_json_is_null(tpc_json_value_t value) {
    return is_type(value, cJSON_NULL);
}

size_t tpc_json_count(tpc_json_value_t value) {
    size_t count = 0;
    for (tpc_json_value_t member = tpc_json_first(value); member.node; member = tpc_json_next(member)) count++;
    return count;
}

tpc_json_value_t tpc_json_first(tpc_json_value_t value) {
    return value_at(value.doc, value.node ? item_of(value)->child : NULL);
}

tpc_json_value_t tpc_json_next(tpc_json_value_t value) {
    return value_at(value.doc, value.node ? item_of(value)->next : NULL);
}

const char *tpc_json_key(tpc_json_value_t value) {
    return value.node ? item_of(value)->string : NULL;
}

/* ---------------------------------------------------------------- typed reads */

/** Decimal digits alone, so that no double stands between the file and the value. */
static bool parse_whole(const char *digits, size_t count, uint64_t *value_p) {
    uint64_t value = 0;
    for (size_t i = 0; i < count; i++) {
        if (digits[i] < '0' || digits[i] > '9') return false;
        uint64_t digit = (uint64_t)(digits[i] - '0');
        if (value > (UINT64_MAX - digit) / 10) return false;
        value = value * 10 + digit;
    }
    *value_p = value;
    return count > 0;
}

tpcomm_status_t tpc_json_as_u64(tpc_json_value_t value, uint64_t minimum, uint64_t maximum, uint64_t *value_p) {
    uint64_t whole = 0;
    size_t count = 0;
    if (maximum > JSON_WHOLE_MAX) maximum = JSON_WHOLE_MAX;
    const char *digits = is_type(value, cJSON_Number) ? number_text(value, &count) : "";
    if (!parse_whole(digits, count, &whole) || whole < minimum || whole > maximum)
        return tpc_json_fail(value, "want a whole number from %" PRIu64 " to %" PRIu64 ", written in digits only",
                             minimum, maximum);
    *value_p = whole;
    return TPCOMM_OK;
}

tpcomm_status_t tpc_json_u64(tpc_json_value_t object, const char *key, uint64_t minimum, uint64_t maximum,
                             uint64_t *value_p) {
    tpc_json_value_t member;
    tpcomm_status_t status = member_of(object, key, &member);
    return status == TPCOMM_OK ? tpc_json_as_u64(member, minimum, maximum, value_p) : status;
}

tpcomm_status_t tpc_json_double(tpc_json_value_t object, const char *key, double minimum, double maximum,
                                double *value_p) {
    tpc_json_value_t member;
    tpcomm_status_t status = member_of(object, key, &member);
    if (status != TPCOMM_OK) return status;
    /* Not from cJSON, whose versions differ in how they convert. */
    double value = 0;
    size_t bytes = 0;
    bool is_number = is_type(member, cJSON_Number);
    const char *digits = is_number ? number_text(member, &bytes) : "";
    if (is_number) value = tpc_json_double_parse(digits, bytes);
    if (!is_number || !isfinite(value) || !(value >= minimum) || !(value <= maximum)) {
        char low[JSON_DOUBLE_BYTES], high[JSON_DOUBLE_BYTES];
        return tpc_json_fail(member, "want a number from %s to %s", tpc_json_double_text(low, minimum),
                             tpc_json_double_text(high, maximum));
    }
    *value_p = value;
    return TPCOMM_OK;
}

tpcomm_status_t tpc_json_bool(tpc_json_value_t object, const char *key, bool *value_p) {
    tpc_json_value_t member;
    tpcomm_status_t status = member_of(object, key, &member);
    if (status != TPCOMM_OK) return status;
    if (!is_type(member, cJSON_True) && !is_type(member, cJSON_False))
        return tpc_json_fail(member, "want true or false");
    *value_p = is_type(member, cJSON_True);
    return TPCOMM_OK;
}

tpcomm_status_t tpc_json_string(tpc_json_value_t object, const char *key, const char **value_p) {
    tpc_json_value_t member;
    tpcomm_status_t status = member_of(object, key, &member);
    if (status != TPCOMM_OK) return status;
    if (!is_type(member, cJSON_String)) return tpc_json_fail(member, "want a string");
    *value_p = item_of(member)->valuestring;
    return TPCOMM_OK;
}

tpcomm_status_t tpc_json_object(tpc_json_value_t object, const char *key, tpc_json_value_t *value_p) {
    tpc_json_value_t member;
    tpcomm_status_t status = member_of(object, key, &member);
    if (status != TPCOMM_OK) return status;
    if (!is_type(member, cJSON_Object)) return tpc_json_fail(member, "want an object");
    *value_p = member;
    return TPCOMM_OK;
}

tpcomm_status_t tpc_json_array(tpc_json_value_t object, const char *key, tpc_json_value_t *value_p) {
    tpc_json_value_t member;
    tpcomm_status_t status = member_of(object, key, &member);
    if (status != TPCOMM_OK) return status;
    if (!is_type(member, cJSON_Array)) return tpc_json_fail(member, "want an array");
    *value_p = member;
    return TPCOMM_OK;
}
