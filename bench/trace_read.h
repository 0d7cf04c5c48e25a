/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Serving traces: when each request came and how many tokens it had (docs/trace.md). Read line by line, so that memory
 * is 16 bytes a request; strict: a line that is not understood ends it, named by file and line.
 */
#ifndef BENCH_TRACE_READ_H
#define BENCH_TRACE_READ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tpcomm.h"

/** X(constant, name): the formats, in the order of --format's words. */
#define BENCH_TRACE_FORMAT_LIST(X)                                                                                     \
    X(BENCH_TRACE_AUTO, "auto")                                                                                        \
    X(BENCH_TRACE_AZURE, "azure")                                                                                      \
    X(BENCH_TRACE_BURSTGPT, "burstgpt")                                                                                \
    X(BENCH_TRACE_MOONCAKE, "mooncake")

typedef enum {
#define BENCH_TRACE_FORMAT(constant, name) constant,
    BENCH_TRACE_FORMAT_LIST(BENCH_TRACE_FORMAT)
#undef BENCH_TRACE_FORMAT
} bench_trace_format_t;

/** Name, such as "azure". */
const char *bench_trace_format_name(bench_trace_format_t format);

/** Limits of what a trace may hold. */
#define BENCH_TRACE_TOKENS_MAX (1u << 24)         /**< tokens of one prompt or one output */
#define BENCH_TRACE_ROWS_MAX   UINT64_C(50000000) /**< rows of one file */
#define BENCH_TRACE_LINE_MAX   (4u << 20)         /**< bytes of one line */
#define BENCH_TRACE_TIME_MAX_S 1e12               /**< seconds */

typedef struct {
    double arrival_s; /**< the file's own clock: Unix time, or seconds since its own start */
    uint32_t prompt_tokens, output_tokens;
} bench_request_t;

typedef struct {
    bench_request_t *requests; /**< by arrival; requests of equal arrival as in the file */
    size_t count;
    uint64_t rows;    /**< data rows of the file */
    uint64_t dropped; /**< rows left out since they have no prompt or no output tokens (failed requests) */
    bool reordered;   /**< the file was not in order of arrival */
    bench_trace_format_t format;
    uint64_t bytes;
    char sha256[65];
} bench_trace_t;

/**
 * Read a trace. format AUTO: by the header or the first line.
 * Fails: IO (naming the file), PARSE (naming file and line; a file without a usable request), NO_MEMORY.
 */
tpcomm_status_t bench_trace_read(const char *path, bench_trace_format_t format, bench_trace_t *trace_p);

/** Free the requests; the struct may be all zero. */
void bench_trace_free(bench_trace_t *trace);

#endif
