/* SPDX-License-Identifier: Apache-2.0 */
#include "base/pattern.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"

tpcomm_status_t tpc_pattern_expand(const char *variable, const char *pattern, int32_t rank, char *text_p,
                                   size_t bytes) {
    char host[256] = "localhost", number[32];
    gethostname(host, sizeof host - 1);
    size_t used = 0;
    text_p[0] = '\0';
    for (const char *c = pattern; *c; c++) {
        const char *piece = number;
        snprintf(number, sizeof number, "%c", *c);
        if (*c == '%') {
            switch (*++c) {
            case 'h':
                piece = host;
                break;
            case 'p':
                snprintf(number, sizeof number, "%ld", (long)getpid());
                break;
            case 'r':
                snprintf(number, sizeof number, rank < 0 ? "x" : "%d", rank);
                break;
            case '%':
                break;
            default:
                return tpc_error(TPCOMM_ERR_CONFIG,
                                 "%s='%s' is not valid: allowed after %% are h (host), p (process), r (rank) "
                                 "and another %%",
                                 variable, pattern);
            }
        }
        size_t length = strlen(piece);
        if (length >= bytes - used) return tpc_error(TPCOMM_ERR_CONFIG, "%s='%s' is too long", variable, pattern);
        memcpy(text_p + used, piece, length + 1);
        used += length;
    }
    return TPCOMM_OK;
}
