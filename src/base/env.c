/* SPDX-License-Identifier: Apache-2.0 */
#include "base/env.h"

#include <inttypes.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/text.h"

#define PREFIX       "TPCOMM_"
#define PREFIX_BYTES (sizeof PREFIX - 1)
#define BLANKS       " \t\r\n\v\f"

const tpc_env_row_t tpc_env_table[TPC_ENV_COUNT] = {
#define ROW(id, name, kind, scope, default_text, minimum, maximum, unit, allowed, help)                                \
    {PREFIX name, TPC_ENV_KIND_##kind, TPC_ENV_SCOPE_##scope, default_text, minimum, maximum, unit, allowed, help},
    TPC_ENV_LIST(ROW)
#undef ROW
};

static const char *const names[TPC_ENV_COUNT] = {
#define NAME(id, name, ...) PREFIX name,
    TPC_ENV_LIST(NAME)
#undef NAME
};

/* Case folding of our own: toupper and isspace follow the locale. */
static char lower(char c) {
    return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

/** The one failure of a value: the variable, what it holds, what it may hold. */
static tpcomm_status_t refuse(const tpc_env_row_t *row, const char *text) {
    char quoted[TPC_TEXT_QUOTE_BYTES], allowed[256];
    switch (row->kind) {
    case TPC_ENV_KIND_BOOL:
        snprintf(allowed, sizeof allowed, "1, true, on, yes, 0, false, off, no");
        break;
    case TPC_ENV_KIND_U64:
        snprintf(allowed, sizeof allowed, "whole numbers from %" PRIu64 " to %" PRIu64 "%s%s%s", row->minimum,
                 row->maximum, *row->unit ? " (" : "", row->unit, *row->unit ? ")" : "");
        break;
    case TPC_ENV_KIND_WORD: {
        size_t used = 0;
        for (const char *c = row->allowed; *c && used + 2 < sizeof allowed; c++) {
            allowed[used++] = *c == '|' ? ',' : *c;
            if (*c == '|') allowed[used++] = ' ';
        }
        allowed[used] = '\0';
        break;
    }
    case TPC_ENV_KIND_TEXT:
        snprintf(allowed, sizeof allowed, "texts of at most %d bytes", TPC_ENV_TEXT_BYTES - 1);
        break;
    }
    if (row == &tpc_env_table[TPC_ENV_SECRET]) /* whose value no text holds */
        return tpc_error(TPCOMM_ERR_CONFIG, "%s is not valid: allowed are %s", row->name, allowed);
    return tpc_error(TPCOMM_ERR_CONFIG, "%s='%s' is not valid: allowed are %s", row->name,
                     tpc_text_quote(quoted, text, strlen(text)), allowed);
}

static bool parse_bool(const char *word, uint64_t *value_p) {
    static const char *const words[2][4] = {{"0", "false", "off", "no"}, {"1", "true", "on", "yes"}};
    for (unsigned value = 0; value < 2; value++) {
        for (unsigned i = 0; i < 4; i++) {
            if (strcmp(word, words[value][i]) != 0) continue;
            *value_p = value;
            return true;
        }
    }
    return false;
}

static bool parse_u64(const char *digits, uint64_t *value_p) {
    uint64_t value = 0;
    if (*digits == '\0') return false;
    for (; *digits; digits++) {
        if (*digits < '0' || *digits > '9') return false;
        uint64_t digit = (uint64_t)(*digits - '0');
        if (value > (UINT64_MAX - digit) / 10) return false;
        value = value * 10 + digit;
    }
    *value_p = value;
    return true;
}

/** The index of word in "a|b|c". */
static bool parse_word(const char *word, const char *allowed, uint64_t *value_p) {
    size_t length = strlen(word);
    for (uint64_t index = 0;; index++) {
        size_t allowed_length = strcspn(allowed, "|");
        if (length == allowed_length && memcmp(word, allowed, length) == 0) {
            *value_p = index;
            return true;
        }
        if (allowed[allowed_length] == '\0') return false;
        allowed += allowed_length + 1;
    }
}

tpcomm_status_t tpc_env_parse(tpc_env_id_t id, const char *text, tpc_env_value_t *value_p) {
    const tpc_env_row_t *row = &tpc_env_table[id];
    tpc_env_value_t value = {.set = text[0] != '\0'};
    const char *given = value.set ? text : row->default_text;

    size_t length = strlen(given);
    if (row->kind != TPC_ENV_KIND_TEXT) {
        given += strspn(given, BLANKS);
        for (length = strlen(given); length > 0 && strchr(BLANKS, given[length - 1]);) length--;
    }
    if (length >= sizeof value.text) return refuse(row, text);
    for (size_t i = 0; i < length; i++)
        value.text[i] = row->kind == TPC_ENV_KIND_WORD || row->kind == TPC_ENV_KIND_BOOL ? lower(given[i]) : given[i];

    bool valid = true;
    switch (row->kind) {
    case TPC_ENV_KIND_BOOL:
        valid = parse_bool(value.text, &value.u64);
        snprintf(value.text, sizeof value.text, "%" PRIu64, value.u64);
        break;
    case TPC_ENV_KIND_U64:
        if (!value.set && length == 0) break;
        valid = parse_u64(value.text, &value.u64) && value.u64 >= row->minimum && value.u64 <= row->maximum;
        snprintf(value.text, sizeof value.text, "%" PRIu64, value.u64);
        break;
    case TPC_ENV_KIND_WORD:
        valid = parse_word(value.text, row->allowed, &value.u64);
        break;
    case TPC_ENV_KIND_TEXT:
        break;
    }
    if (!valid) return refuse(row, text);
    *value_p = value;
    return TPCOMM_OK;
}

tpcomm_status_t tpc_env_get(tpc_env_id_t id, tpc_env_value_t *value_p) {
    const char *text = getenv(tpc_env_table[id].name);
    return tpc_env_parse(id, text ? text : "", value_p);
}

/** True the first time that this process meets the name. Without a lock, so that a fork cannot leave one held. */
static bool is_news(const char *name, size_t length) {
    static _Atomic uint64_t seen[64];
    uint64_t hash = tpc_hash(TPC_HASH_START, name, length) | 1;
    for (size_t i = 0; i < sizeof seen / sizeof seen[0]; i++) {
        uint64_t there = 0;
        if (atomic_compare_exchange_strong(&seen[i], &there, hash)) return true;
        if (there == hash) return false;
    }
    return false;
}

static bool starts_with(const char *text, const char *start) {
    return strncmp(text, start, strlen(start)) == 0;
}

/** Warn of names that look like ours and are not: a misspelt setting is otherwise a setting silently ignored. */
static void warn_of_unknown(void) {
    for (char **entry = environ; entry && *entry; entry++) {
        if (!starts_with(*entry, PREFIX)) continue;
        if (starts_with(*entry, PREFIX "TEST_") || starts_with(*entry, PREFIX "BENCH_")) continue;
        size_t length = strcspn(*entry, "=");
        bool known = false;
        for (size_t i = 0; i < TPC_ENV_COUNT && !known; i++)
            known = strlen(names[i]) == length && memcmp(names[i], *entry, length) == 0;
        if (known || !is_news(*entry, length)) continue;

        char name[TPC_TEXT_QUOTE_BYTES], own_part[TPC_TEXT_QUOTE_BYTES];
        tpc_text_quote(name, *entry, length);
        tpc_text_quote(own_part, *entry + PREFIX_BYTES, length - PREFIX_BYTES);
        const char *own_names[TPC_ENV_COUNT];
        for (size_t i = 0; i < TPC_ENV_COUNT; i++) own_names[i] = names[i] + PREFIX_BYTES;
        const char *nearest = tpc_text_nearest(own_part, own_names, TPC_ENV_COUNT);
        if (nearest)
            TPC_WARN("env", "%s is set but no variable of this version; the nearest is " PREFIX "%s", name, nearest);
        else
            TPC_WARN("env", "%s is set but no variable of this version; docs/environment.md lists them", name);
    }
}

tpcomm_status_t tpc_env_read(tpc_env_t *env_p) {
    tpc_env_t env;
    for (int id = 0; id < TPC_ENV_COUNT; id++) {
        tpcomm_status_t status = tpc_env_get((tpc_env_id_t)id, &env.value[id]);
        if (status != TPCOMM_OK) return status;
    }
    warn_of_unknown();
    *env_p = env;
    return TPCOMM_OK;
}

const char *tpc_env_foreign(const char *name) {
    const char *text = getenv(name);
    return text && *text ? text : NULL;
}
