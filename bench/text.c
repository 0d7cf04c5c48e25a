/* SPDX-License-Identifier: Apache-2.0 */
#include "text.h"

#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <string.h>

#include "manifest.h"

enum { LABEL_WIDTH = 12, LINE_WIDTH = 132 };

void bench_text_field(FILE *file, const char *label, const char *text) {
    int column = LABEL_WIDTH + 2, blanks = 0;
    fprintf(file, "  %-*s", LABEL_WIDTH, label);
    for (const char *at = text; *at;) {
        int word = (int)strcspn(at, " ");
        if (column + blanks + word > LINE_WIDTH && column > LABEL_WIDTH + 2) {
            fprintf(file, "\n%*s", LABEL_WIDTH + 2, "");
            column = LABEL_WIDTH + 2;
            blanks = 0;
        }
        fprintf(file, "%*s%.*s", blanks, "", word, at);
        column += blanks + word;
        at += word;
        blanks = (int)strspn(at, " ");
        at += blanks;
    }
    fputc('\n', file);
}

void bench_text_line(FILE *file, const char *label, const char *format, ...) {
    char text[2048];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    bench_text_field(file, label, text);
}

void bench_text_number(FILE *file, int width, double value) {
    if (isnan(value))
        fprintf(file, " %*s", width, "-");
    else
        fprintf(file, " %*.*f", width, value < 10 ? 2 : value < 10000 ? 1 : 0, value);
}

/** Variables that say only who a rank is: the launcher's line has them. */
static bool says_who(const char *variable) {
    static const char *const names[] = {
        "TPCOMM_RANK=", "TPCOMM_SIZE=", "TPCOMM_LOCAL_RANK=", "TPCOMM_LOCAL_SIZE=", "TPCOMM_JOB_ID="};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strncmp(variable, names[i], strlen(names[i])) == 0) return true;
    return false;
}

void bench_text_variables(FILE *file) {
    char text[2048] = "";
    size_t used = 0;
    for (size_t i = 0; bench_variable(i) && used < sizeof text; i++) {
        if (says_who(bench_variable(i))) continue;
        int wrote = snprintf(text + used, sizeof text - used, "%s%s", used ? " " : "", bench_variable(i));
        if (wrote > 0) used += (size_t)wrote;
    }
    bench_text_field(file, "variables", text[0] ? text : "none");
}
