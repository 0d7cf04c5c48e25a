/* SPDX-License-Identifier: Apache-2.0 */
/* Check that command lines are read strictly: both spellings, every type and its limits, and a text that names what is
 * wrong. */
#include <math.h>
#include <stdbool.h>

#include "check.h"
#include "options.h"

typedef struct {
    bool flag;
    uint64_t count;
    double scale;
    const char *text;
    int32_t word;
} settings_t;

static const settings_t defaults = {false, 5, NAN, NULL, 1};

static const bench_option_t options[] = {
    BENCH_TEXT("input", true, settings_t, text, "FILE", "a file"),
    BENCH_U64("ranks", 'n', settings_t, count, "N", 1, UINT64_C(18446744073709551615), "a number"),
    BENCH_DOUBLE("time-scale", settings_t, scale, "S", 0.5, 1e6, "a factor\nof time"),
    BENCH_WORD("format", settings_t, word, "auto|azure|mooncake", "a word"),
    BENCH_FLAG("prefill-elsewhere", settings_t, flag, "a switch"),
};

static const bench_foreign_letter_t foreign[] = {{'g', "another program's GPUs; here --ranks N"}, {0, NULL}};

static bench_options_t table = {"test", NULL, "About.", options, 5, &defaults, sizeof defaults, foreign};

static settings_t settings;
static bench_options_rest_t rest;

static tpcomm_status_t parse(const char *line) {
    static char copy[512];
    static char *argv[64];
    int argc = 1;
    argv[0] = copy;
    strcpy(copy, line);
    for (char *word = strtok(copy, " "); word; word = strtok(NULL, " ")) argv[argc++] = word;
    argv[argc] = NULL;
    memset(&settings, 0x55, sizeof settings);
    return bench_options_parse(&table, argc, argv, &settings, &rest);
}

static void refused(const char *line, const char *piece) {
    if (parse(line) != TPCOMM_ERR_INVALID_ARG) FAIL("\"%s\" should be refused", line);
    if (!strstr(tpcomm_last_error(), piece)) FAIL("\"%s\": no \"%s\" in: %s", line, piece, tpcomm_last_error());
}

static void check_values(void) {
    CHECK_OK(parse("--input a.csv"));
    CHECK(strcmp(settings.text, "a.csv") == 0 && settings.count == 5 && isnan(settings.scale) && settings.word == 1);
    CHECK(!settings.flag && !rest.help && rest.rest == NULL);
    CHECK_OK(parse(
        "--ranks=18446744073709551615 --input=--odd=name --time-scale 0.5 --format mooncake --prefill-elsewhere"));
    CHECK(settings.count == UINT64_MAX && settings.scale == 0.5 && settings.word == 2 && settings.flag);
    CHECK(strcmp(settings.text, "--odd=name") == 0);
    CHECK_OK(parse("-n 3 --input x --format=auto"));
    CHECK(settings.count == 3 && settings.word == 0);
    CHECK(bench_options_given(&table, &rest, "ranks") && bench_options_given(&table, &rest, "format"));
    CHECK(!bench_options_given(&table, &rest, "time-scale") && !bench_options_given(&table, &rest, "nosuch"));
    CHECK_OK(parse("--bogus --help --ranks"));
    CHECK(rest.help && settings.count == 5);
    CHECK_OK(parse("-h"));
    CHECK(rest.help);
}

static void check_refusals(void) {
    refused("", "--input FILE is needed");
    refused("--input", "--input needs a value");
    refused("--input --ranks 3", "--ranks follows");
    refused("--input=", "the value is empty");
    refused("--input a --input b", "--input is given more than once");
    refused("--input a file.csv", "\"file.csv\": not an option");
    refused("--input a -", "\"-\": not an option");
    refused("--input a --", "nothing may follow");
    refused("--inptu a", "unknown option --inptu; the nearest is --input");
    refused("--Time-Scale 1", "the nearest is --time-scale");
    refused("--hepl", "the nearest is --help");
    refused("--completely-else", "unknown option --completely-else; --help");
    refused("-x 3", "unknown option -x");
    refused("-n3", "unknown option -n3");
    refused("-g 3", "unknown option -g: another program's GPUs; here --ranks N");
    refused("-g3", "unknown option -g3; long options");
    refused("--input a --prefill-elsewhere=1", "takes no value");
    refused("--input a --ranks 0", "--ranks 0: allowed are whole numbers from 1 to 18446744073709551615");
    refused("--input a --ranks 18446744073709551616", "--ranks 18446744073709551616: allowed");
    refused("--input a --ranks -1", "--ranks -1: allowed");
    refused("--input a --ranks 1e3", "allowed are whole numbers");
    refused("--input a --ranks=", "allowed are whole numbers");
    refused("--input a --time-scale 0.4999", "--time-scale 0.4999: allowed are numbers from 0.5 to 1000000");
    refused("--input a --time-scale nan", "allowed are numbers");
    refused("--input a --time-scale 1,5", "allowed are numbers");
    refused("--input a --format Azure", "--format Azure: allowed are auto|azure|mooncake");
    refused("--input a --format azure|mooncake", "allowed are");
    refused("--input a --format=", "allowed are");
}

static void check_rest(void) {
    table.rest = "PROGRAM";
    CHECK_OK(parse("--input a -- ./program --input --help"));
    CHECK(!rest.help && rest.rest_count == 3);
    CHECK(strcmp(rest.rest[0], "./program") == 0 && strcmp(rest.rest[2], "--help") == 0 && rest.rest[3] == NULL);
    CHECK_OK(parse("--input a --"));
    CHECK(rest.rest != NULL && rest.rest_count == 0);
    refused("--input a ./program", "not an option");
    table.rest = NULL;
}

static void check_help(void) {
    static char text[4096];
    FILE *file = fmemopen(text, sizeof text, "w");
    CHECK(file);
    bench_options_help(&table, file);
    CHECK_EQ(fclose(file), 0);
    static const char *const pieces[] = {"Usage: tpcomm-bench test --input FILE [options]\n",
                                         "About.",
                                         "  -n, --ranks N\n      a number (1 to 18446744073709551615; default 5)\n",
                                         "  --time-scale S\n      a factor\n      of time (0.5 to 1000000)\n",
                                         "  --format auto|azure|mooncake\n      a word (default azure)\n",
                                         "--prefill-elsewhere\n      a switch\n",
                                         "--help"};
    for (size_t i = 0; i < sizeof pieces / sizeof pieces[0]; i++) {
        if (!strstr(text, pieces[i])) FAIL("no \"%s\" in the help:\n%s", pieces[i], text);
    }
}

int main(void) {
    check_values();
    check_refusals();
    check_rest();
    check_help();
    return 0;
}
