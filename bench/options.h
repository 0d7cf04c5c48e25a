/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The options of every subcommand, from one table each: "--name value" or "--name=value", typed, range-checked, given
 * at most once. "--help" (or -h) is in every table by itself. Nothing is guessed: an unknown name is refused with the
 * nearest known one, and a value that does not fit with what is allowed.
 */
#ifndef BENCH_OPTIONS_H
#define BENCH_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "tpcomm.h"

typedef enum {
    BENCH_OPTION_FLAG,   /**< bool; takes no value */
    BENCH_OPTION_U64,    /**< uint64_t */
    BENCH_OPTION_DOUBLE, /**< double; a default of NaN means "not given" */
    BENCH_OPTION_TEXT,   /**< const char *, pointing into argv; never empty; a default of NULL means "not given" */
    BENCH_OPTION_WORD    /**< int32_t: index into words */
} bench_option_kind_t;

/** One option. Use the macros. */
typedef struct {
    const char *name; /**< without the dashes: "time-scale" */
    char letter;      /**< 'n' allows "-n value" too; 0: none */
    bool required;
    bench_option_kind_t kind;
    size_t offset;        /**< of the field in the settings struct */
    const char *argument; /**< the value's name in the help: "S" */
    uint64_t u64_min, u64_max;
    double double_min, double_max;
    const char *words; /**< "auto|azure|burstgpt" */
    const char *help;  /**< one line, or several separated by newlines */
} bench_option_t;

#define BENCH_FLAG(name, type, field, help)                                                                            \
    { name, 0, false, BENCH_OPTION_FLAG, offsetof(type, field), "", 0, 0, 0.0, 0.0, NULL, help }
#define BENCH_U64(name, letter, type, field, argument, min, max, help)                                                 \
    { name, letter, false, BENCH_OPTION_U64, offsetof(type, field), argument, min, max, 0.0, 0.0, NULL, help }
#define BENCH_DOUBLE(name, type, field, argument, min, max, help)                                                      \
    { name, 0, false, BENCH_OPTION_DOUBLE, offsetof(type, field), argument, 0, 0, min, max, NULL, help }
#define BENCH_TEXT(name, required, type, field, argument, help)                                                        \
    { name, 0, required, BENCH_OPTION_TEXT, offsetof(type, field), argument, 0, 0, 0.0, 0.0, NULL, help }
#define BENCH_LETTER_TEXT(name, letter, type, field, argument, help)                                                   \
    { name, letter, false, BENCH_OPTION_TEXT, offsetof(type, field), argument, 0, 0, 0.0, 0.0, NULL, help }
#define BENCH_WORD(name, type, field, words, help)                                                                     \
    { name, 0, false, BENCH_OPTION_WORD, offsetof(type, field), words, 0, 0, 0.0, 0.0, words, help }

/** A letter of another program's, whose users may try it here: what to write instead. */
typedef struct {
    char letter;
    const char *instead;
} bench_foreign_letter_t;

/** All options of one subcommand. */
typedef struct {
    const char *command; /**< "trace" */
    const char *rest;    /**< what may follow "--" ("PROGRAM [ARGUMENT ...]"); NULL: nothing */
    const char *about;   /**< what the subcommand does, before the options in the help */
    const bench_option_t *options;
    size_t count;         /**< at most BENCH_OPTIONS_MAX */
    const void *defaults; /**< the settings struct with every default */
    size_t settings_bytes;
    const bench_foreign_letter_t *foreign; /**< the last has letter 0; NULL: none */
} bench_options_t;

#define BENCH_OPTIONS_MAX 64

/** What a command line held beside its settings. */
typedef struct {
    bool help;   /**< --help was there: nothing else was checked, settings are the defaults */
    char **rest; /**< what followed "--", NULL-terminated as argv is; NULL if there was no "--" */
    int rest_count;
    uint64_t given; /**< bit i: option i of the table stood there */
} bench_options_rest_t;

/**
 * Read argv[1] on into settings, which begins as the defaults.
 * Fails: INVALID_ARG, naming option, value and what is allowed; settings then hold nothing of use.
 */
tpcomm_status_t bench_options_parse(const bench_options_t *table, int argc, char **argv, void *settings,
                                    bench_options_rest_t *rest_p);

/**
 * The same as a subcommand's main does it: what is wrong goes to stderr, help to stdout.
 * @return whether the subcommand goes on; otherwise code_p is its exit code.
 */
bool bench_options_read(const bench_options_t *table, int argc, char **argv, void *settings,
                        bench_options_rest_t *rest_p, int *code_p);

/** Whether this option was given. */
bool bench_options_given(const bench_options_t *table, const bench_options_rest_t *rest, const char *name);

/** Print the help: usage, what it does, every option with its default and what is allowed. */
void bench_options_help(const bench_options_t *table, FILE *file);

#endif
