/* SPDX-License-Identifier: Apache-2.0 */
/** A locale with a decimal comma, made on the spot, since a test machine may have none installed. */
#ifndef TPC_TESTS_UNIT_COMMA_LOCALE_H
#define TPC_TESTS_UNIT_COMMA_LOCALE_H

#include <errno.h>
#include <locale.h>
#include <stdbool.h>
#include <sys/stat.h>
#include <unistd.h>

#include "check.h"

/** Make the process run with a decimal comma; glibc's compiled form of LC_NUMERIC (locale/localeinfo.h). */
static inline void comma_locale_set(void) {
    static const struct {
        uint32_t magic, count, offset[6];
        char decimal[2], thousands[2], grouping[4];
        uint32_t decimal_wide, thousands_wide;
        char codeset[8];
    } numeric = {.magic = 0x20031115 ^ LC_NUMERIC,
                 .count = 6,
                 .offset = {32, 34, 36, 40, 44, 48},
                 .decimal = ",",
                 .thousands = ".",
                 .grouping = {3},
                 .decimal_wide = ',',
                 .thousands_wide = '.',
                 .codeset = "UTF-8"};
    char folder[] = "/tmp/tpcomm-test-locale-XXXXXX", sub[64], path[80], text[16];
    CHECK(mkdtemp(folder) != NULL);
    snprintf(sub, sizeof sub, "%s/xx_XX", folder);
    snprintf(path, sizeof path, "%s/LC_NUMERIC", sub);
    CHECK_EQ(mkdir(sub, 0700), 0);
    FILE *file = fopen(path, "wb");
    CHECK(file != NULL);
    CHECK_EQ(fwrite(&numeric, 1, sizeof numeric, file), sizeof numeric);
    CHECK_EQ(fclose(file), 0);
    CHECK_EQ(setenv("LOCPATH", folder, 1), 0);
    bool set = setlocale(LC_NUMERIC, "xx_XX") != NULL;
    CHECK_EQ(unlink(path), 0);
    CHECK_EQ(rmdir(sub), 0);
    CHECK_EQ(rmdir(folder), 0);
    CHECK(set);
    snprintf(text, sizeof text, "%.1f", 0.5);
    CHECK(strcmp(text, "0,5") == 0);
}

#endif
