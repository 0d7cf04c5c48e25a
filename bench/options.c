/* SPDX-License-Identifier: Apache-2.0 */
#include "options.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "bench.h"
#include "number.h"

static const char *option_name(const void *arg, size_t i) {
    const bench_options_t *table = arg;
    if (i == table->count) return "help";
    return i < table->count ? table->options[i].name : NULL;
}

/** Index of word in "a|b|c", or -1. */
static int32_t word_index(const char *words, const char *word) {
    size_t length = strlen(word);
    int32_t index = 0;
    for (const char *at = words;; index++) {
        size_t n = strcspn(at, "|");
        if (n == length && memcmp(at, word, n) == 0) return index;
        if (at[n] == '\0') return -1;
        at += n + 1;
    }
}

/** The word with this index, for the help. */
static void print_word(FILE *file, const char *words, int32_t index) {
    const char *at = words;
    for (int32_t i = 0; i < index; i++) at += strcspn(at, "|") + 1;
    fprintf(file, "%.*s", (int)strcspn(at, "|"), at);
}

static tpcomm_status_t set_value(const bench_option_t *option, const char *text, void *settings) {
    void *field = (char *)settings + option->offset;
    switch (option->kind) {
    case BENCH_OPTION_U64: {
        uint64_t value;
        if (!bench_number_u64(text, strlen(text), &value) || value < option->u64_min || value > option->u64_max)
            return tpc_error(TPCOMM_ERR_INVALID_ARG, "--%s %s: allowed are whole numbers from %" PRIu64 " to %" PRIu64,
                             option->name, text, option->u64_min, option->u64_max);
        memcpy(field, &value, sizeof value);
        return TPCOMM_OK;
    }
    case BENCH_OPTION_DOUBLE: {
        double value;
        if (!bench_number_double(text, strlen(text), &value) || value < option->double_min ||
            value > option->double_max)
            return tpc_error(TPCOMM_ERR_INVALID_ARG, "--%s %s: allowed are numbers from %.10g to %.10g", option->name,
                             text, option->double_min, option->double_max);
        memcpy(field, &value, sizeof value);
        return TPCOMM_OK;
    }
    case BENCH_OPTION_WORD: {
        int32_t index = word_index(option->words, text);
        if (index < 0)
            return tpc_error(TPCOMM_ERR_INVALID_ARG, "--%s %s: allowed are %s", option->name, text, option->words);
        memcpy(field, &index, sizeof index);
        return TPCOMM_OK;
    }
    case BENCH_OPTION_TEXT:
        if (text[0] == '\0') return tpc_error(TPCOMM_ERR_INVALID_ARG, "--%s: the value is empty", option->name);
        memcpy(field, &text, sizeof text);
        return TPCOMM_OK;
    case BENCH_OPTION_FLAG:
        break;
    }
    return tpc_error(TPCOMM_ERR_INVALID_ARG, "--%s takes no value", option->name);
}

/** The option that argument names, and its value where it stands after '='. */
static tpcomm_status_t find_option(const bench_options_t *table, const char *argument, size_t *index_p,
                                   const char **value_p) {
    char name[64];
    const char *value = NULL;

    if (argument[0] != '-' || argument[1] == '\0')
        return tpc_error(TPCOMM_ERR_INVALID_ARG, "\"%s\": not an option; options begin with --", argument);
    if (argument[1] != '-') {
        for (size_t i = 0; argument[2] == '\0' && i < table->count; i++) {
            if (table->options[i].letter != argument[1]) continue;
            *index_p = i;
            *value_p = NULL;
            return TPCOMM_OK;
        }
        for (const bench_foreign_letter_t *f = table->foreign; argument[2] == '\0' && f && f->letter; f++)
            if (f->letter == argument[1])
                return tpc_error(TPCOMM_ERR_INVALID_ARG, "unknown option %s: %s", argument, f->instead);
        return tpc_error(TPCOMM_ERR_INVALID_ARG, "unknown option %s; long options begin with --", argument);
    }

    size_t length = strcspn(argument + 2, "=");
    if (argument[2 + length] == '=') value = argument + 2 + length + 1;
    if (length >= sizeof name) length = sizeof name - 1;
    memcpy(name, argument + 2, length);
    name[length] = '\0';
    for (size_t i = 0; i < table->count; i++) {
        if (strcmp(table->options[i].name, name) != 0) continue;
        *index_p = i;
        *value_p = value;
        return TPCOMM_OK;
    }
    const char *nearest = bench_nearest(name, option_name, table);
    if (nearest) return tpc_error(TPCOMM_ERR_INVALID_ARG, "unknown option --%s; the nearest is --%s", name, nearest);
    return tpc_error(TPCOMM_ERR_INVALID_ARG, "unknown option --%s; --help lists all", name);
}

static bool asks_help(const char *argument) {
    return strcmp(argument, "--help") == 0 || strcmp(argument, "-h") == 0;
}

tpcomm_status_t bench_options_parse(const bench_options_t *table, int argc, char **argv, void *settings,
                                    bench_options_rest_t *rest_p) {
    uint64_t seen = 0; /* bit i: option i was given */
    bench_options_rest_t rest = {.help = false};

    if (table->count > BENCH_OPTIONS_MAX)
        return tpc_error(TPCOMM_ERR_INVALID_ARG, "%s has more than %d options", table->command, BENCH_OPTIONS_MAX);
    memcpy(settings, table->defaults, table->settings_bytes);

    /* Help is given whatever else the line holds, but for what belongs to another program. */
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) {
        if (!asks_help(argv[i])) continue;
        rest.help = true;
        *rest_p = rest;
        return TPCOMM_OK;
    }
    for (int i = 1; i < argc; i++) {
        size_t index = 0;
        const char *value = NULL;
        if (strcmp(argv[i], "--") == 0) {
            if (!table->rest) return tpc_error(TPCOMM_ERR_INVALID_ARG, "\"--\": nothing may follow the options");
            rest.rest = argv + i + 1;
            rest.rest_count = argc - i - 1;
            break;
        }
        tpcomm_status_t status = find_option(table, argv[i], &index, &value);
        if (status != TPCOMM_OK) return status;
        const bench_option_t *option = &table->options[index];
        if (seen & (UINT64_C(1) << index))
            return tpc_error(TPCOMM_ERR_INVALID_ARG, "--%s is given more than once", option->name);
        seen |= UINT64_C(1) << index;

        if (option->kind == BENCH_OPTION_FLAG) {
            if (value) return tpc_error(TPCOMM_ERR_INVALID_ARG, "--%s takes no value", option->name);
            *((bool *)((char *)settings + option->offset)) = true;
            continue;
        }
        if (!value) {
            if (i + 1 >= argc) return tpc_error(TPCOMM_ERR_INVALID_ARG, "--%s needs a value", option->name);
            if (strncmp(argv[i + 1], "--", 2) == 0)
                return tpc_error(TPCOMM_ERR_INVALID_ARG,
                                 "--%s needs a value, but %s follows; write --%s=VALUE if it begins with --",
                                 option->name, argv[i + 1], option->name);
            value = argv[++i];
        }
        status = set_value(option, value, settings);
        if (status != TPCOMM_OK) return status;
    }
    for (size_t i = 0; i < table->count; i++) {
        if (table->options[i].required && !(seen & (UINT64_C(1) << i)))
            return tpc_error(TPCOMM_ERR_INVALID_ARG, "--%s %s is needed; --help lists all", table->options[i].name,
                             table->options[i].argument);
    }
    rest.given = seen;
    *rest_p = rest;
    return TPCOMM_OK;
}

bool bench_options_given(const bench_options_t *table, const bench_options_rest_t *rest, const char *name) {
    for (size_t i = 0; i < table->count; i++)
        if (strcmp(table->options[i].name, name) == 0) return (rest->given & (UINT64_C(1) << i)) != 0;
    return false;
}

/** " (1 to 9; default 3)" */
static void print_limits(const bench_options_t *table, const bench_option_t *option, FILE *file) {
    const void *field = (const char *)table->defaults + option->offset;
    switch (option->kind) {
    case BENCH_OPTION_U64: {
        uint64_t value;
        memcpy(&value, field, sizeof value);
        fprintf(file, " (%" PRIu64 " to %" PRIu64, option->u64_min, option->u64_max);
        if (value >= option->u64_min) fprintf(file, "; default %" PRIu64, value);
        fputc(')', file);
        return;
    }
    case BENCH_OPTION_DOUBLE: {
        double value;
        memcpy(&value, field, sizeof value);
        fprintf(file, " (%.10g to %.10g", option->double_min, option->double_max);
        if (!isnan(value)) fprintf(file, "; default %.10g", value);
        fputc(')', file);
        return;
    }
    case BENCH_OPTION_WORD: {
        int32_t value;
        memcpy(&value, field, sizeof value);
        fputs(" (default ", file);
        print_word(file, option->words, value);
        fputc(')', file);
        return;
    }
    case BENCH_OPTION_TEXT: {
        const char *value;
        memcpy(&value, field, sizeof value);
        if (option->required) fputs(" (needed)", file);
        if (value) fprintf(file, " (default %s)", value);
        return;
    }
    case BENCH_OPTION_FLAG:
        return;
    }
}

void bench_options_help(const bench_options_t *table, FILE *file) {
    fprintf(file, "Usage: tpcomm-bench %s", table->command);
    for (size_t i = 0; i < table->count; i++) {
        const bench_option_t *option = &table->options[i];
        if (option->required) fprintf(file, " --%s %s", option->name, option->argument);
    }
    fprintf(file, " [options]%s%s\n\n%s\n\nOptions:\n", table->rest ? " -- " : "", table->rest ? table->rest : "",
            table->about);
    for (size_t i = 0; i < table->count; i++) {
        const bench_option_t *option = &table->options[i];
        fputs("  ", file);
        if (option->letter) fprintf(file, "-%c, ", option->letter);
        fprintf(file, "--%s%s%s\n", option->name, option->argument[0] ? " " : "", option->argument);
        for (const char *line = option->help;;) {
            size_t length = strcspn(line, "\n");
            fprintf(file, "      %.*s", (int)length, line);
            if (line[length] == '\0') break;
            fputc('\n', file);
            line += length + 1;
        }
        print_limits(table, option, file);
        fputc('\n', file);
    }
    fputs("  -h, --help\n      print this\n", file);
}

bool bench_options_read(const bench_options_t *table, int argc, char **argv, void *settings,
                        bench_options_rest_t *rest_p, int *code_p) {
    tpcomm_status_t status = bench_options_parse(table, argc, argv, settings, rest_p);
    *code_p = BENCH_EXIT_OK;
    if (status == TPCOMM_OK && !rest_p->help) return true;
    if (status != TPCOMM_OK)
        *code_p = bench_report(table->command, status);
    else
        bench_options_help(table, stdout);
    return false;
}
