/* SPDX-License-Identifier: Apache-2.0 */
/** Inside the trace reader: from one line to one request. trace_read.c has the file, trace_csv.c and trace_jsonl.c the
 * formats. */
#ifndef BENCH_TRACE_LINE_H
#define BENCH_TRACE_LINE_H

#include "trace_read.h"

/** A line without its end; text[length] may be read and is no part of it. */
typedef struct {
    const char *path;
    uint64_t number; /**< 1 is the first */
    const char *text;
    size_t length;
} bench_line_t;

/** Where the three columns stand in a CSV file, from its header. */
typedef struct {
    bench_trace_format_t format;
    size_t fields;      /**< of every row */
    size_t position[3]; /**< of arrival, prompt tokens, output tokens */
    int8_t has_offset;  /**< azure: whether times name their offset from UTC; -1: no row yet */
} bench_csv_t;

/** Record a PARSE error "PATH:LINE: " and the text. */
tpcomm_status_t bench_line_fail(const bench_line_t *line, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/** Longest piece of a line that an error text quotes. */
#define BENCH_LINE_QUOTE(length) ((int)((length) < 80 ? (length) : 80))

/** Tokens of a request. what names the column or key. Fails: PARSE. */
tpcomm_status_t bench_line_tokens(const bench_line_t *line, const char *what, const char *text, size_t length,
                                  uint32_t *tokens_p);

/** Find the columns; csv_p->format is set where format is AUTO. Fails: PARSE. */
tpcomm_status_t bench_csv_header(const bench_line_t *line, bench_trace_format_t format, bench_csv_t *csv_p);
tpcomm_status_t bench_csv_row(const bench_line_t *line, bench_csv_t *csv, bench_request_t *request_p);

/** One JSON object (mooncake). Fails: PARSE. */
tpcomm_status_t bench_jsonl_row(const bench_line_t *line, bench_request_t *request_p);

#endif
