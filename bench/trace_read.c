/* SPDX-License-Identifier: Apache-2.0 */
#include "trace_read.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench.h"
#include "number.h"
#include "sha256.h"
#include "trace_line.h"

#define FIRST_BUFFER_BYTES (256u << 10)
#define FIRST_REQUESTS     4096u

const char *bench_trace_format_name(bench_trace_format_t format) {
    switch (format) {
#define FORMAT_NAME(constant, name)                                                                                    \
    case constant:                                                                                                     \
        return name;
        BENCH_TRACE_FORMAT_LIST(FORMAT_NAME)
#undef FORMAT_NAME
    }
    return "?";
}

tpcomm_status_t bench_line_fail(const bench_line_t *line, const char *format, ...) {
    char text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return tpc_error(TPCOMM_ERR_PARSE, "%s:%" PRIu64 ": %s", line->path, line->number, text);
}

tpcomm_status_t bench_line_tokens(const bench_line_t *line, const char *what, const char *text, size_t length,
                                  uint32_t *tokens_p) {
    uint64_t tokens;
    if (!bench_number_u64(text, length, &tokens) || tokens > BENCH_TRACE_TOKENS_MAX)
        return bench_line_fail(line, "%s is \"%.*s\"; allowed are whole numbers from 0 to %u", what,
                               BENCH_LINE_QUOTE(length), text, BENCH_TRACE_TOKENS_MAX);
    *tokens_p = (uint32_t)tokens;
    return TPCOMM_OK;
}

/** The file, and the part of it that is in memory. */
typedef struct {
    const char *path;
    int fd;
    char *buffer; /**< one byte longer than capacity */
    size_t capacity, from, to;
    bool at_end;
    uint64_t line_number;
    bench_sha256_t sha;
} file_t;

/** Read more behind what is there, moving it to the front first and growing the buffer where one line fills it. */
static tpcomm_status_t fill(file_t *file) {
    if (file->from > 0) {
        memmove(file->buffer, file->buffer + file->from, file->to - file->from);
        file->to -= file->from;
        file->from = 0;
    }
    if (file->to == file->capacity) {
        if (file->capacity >= BENCH_TRACE_LINE_MAX)
            return tpc_error(TPCOMM_ERR_PARSE, "%s:%" PRIu64 ": the line is longer than %u bytes", file->path,
                             file->line_number + 1, BENCH_TRACE_LINE_MAX);
        char *larger = realloc(file->buffer, file->capacity * 2 + 1);
        if (!larger) return tpc_error(TPCOMM_ERR_NO_MEMORY, "%s: no memory for a line", file->path);
        file->buffer = larger;
        file->capacity *= 2;
    }
    ssize_t got;
    do {
        got = read(file->fd, file->buffer + file->to, file->capacity - file->to);
    } while (got < 0 && errno == EINTR);
    if (got < 0) return tpc_error_errno(TPCOMM_ERR_IO, errno, "cannot read %s", file->path);
    bench_sha256_add(&file->sha, file->buffer + file->to, (size_t)got);
    file->to += (size_t)got;
    file->at_end = got == 0;
    return TPCOMM_OK;
}

/** The next line, valid until the next call; text NULL after the last. */
static tpcomm_status_t next_line(file_t *file, bench_line_t *line_p) {
    size_t searched = 0;
    char *end = NULL;
    while (!end) {
        size_t held = file->to - file->from;
        if (held > searched) end = memchr(file->buffer + file->from + searched, '\n', held - searched);
        if (end || file->at_end) break;
        searched = held;
        tpcomm_status_t status = fill(file);
        if (status != TPCOMM_OK) return status;
    }
    bench_line_t line = {file->path, ++file->line_number, file->buffer + file->from, 0};
    if (!end && file->from == file->to) {
        line.text = NULL;
        *line_p = line;
        return TPCOMM_OK;
    }
    size_t stop = end ? (size_t)(end - file->buffer) : file->to;
    line.length = stop - file->from;
    file->from = end ? stop + 1 : stop;
    if (line.length > 0 && line.text[line.length - 1] == '\r') line.length--;
    if (memchr(line.text, '\0', line.length)) return bench_line_fail(&line, "a NUL byte; a trace is UTF-8 text");
    *line_p = line;
    return TPCOMM_OK;
}

/** Text editors put a byte-order mark in front of UTF-8, which is harmless; other encodings are not read. */
static void skip_byte_order_mark(bench_line_t *line) {
    if (line->length < 3 || memcmp(line->text, "\xef\xbb\xbf", 3) != 0) return;
    line->text += 3;
    line->length -= 3;
}

/** The first character that is no blank; 0 if there is none. */
static char first_character(const bench_line_t *line) {
    for (size_t i = 0; i < line->length; i++) {
        if (line->text[i] != ' ' && line->text[i] != '\t') return line->text[i];
    }
    return '\0';
}

static tpcomm_status_t append(bench_trace_t *trace, size_t *capacity, const char *path, bench_request_t request) {
    if (trace->count == *capacity) {
        size_t larger = *capacity ? *capacity + *capacity / 2 : FIRST_REQUESTS;
        bench_request_t *requests = realloc(trace->requests, larger * sizeof *requests);
        if (!requests) return tpc_error(TPCOMM_ERR_NO_MEMORY, "%s: no memory for %zu requests", path, larger);
        trace->requests = requests;
        *capacity = larger;
    }
    trace->requests[trace->count++] = request;
    return TPCOMM_OK;
}

/** Bottom-up merge sort: stable, so that requests of equal arrival stay in the file's order. */
static tpcomm_status_t sort_by_arrival(bench_trace_t *trace, const char *path) {
    size_t n = trace->count, i = 1;
    while (i < n && trace->requests[i - 1].arrival_s <= trace->requests[i].arrival_s) i++;
    if (i >= n) return TPCOMM_OK;

    bench_request_t *from = trace->requests, *to = malloc(n * sizeof *to);
    if (!to) return tpc_error(TPCOMM_ERR_NO_MEMORY, "%s: no memory to sort %zu requests", path, n);
    for (size_t width = 1; width < n; width *= 2) {
        for (size_t start = 0; start < n; start += 2 * width) {
            size_t middle = start + width < n ? start + width : n, end = middle + width < n ? middle + width : n;
            size_t a = start, b = middle;
            for (size_t out = start; out < end; out++)
                to[out] = b >= end || (a < middle && from[a].arrival_s <= from[b].arrival_s) ? from[a++] : from[b++];
        }
        bench_request_t *other = from;
        from = to;
        to = other;
    }
    free(to);
    trace->requests = from;
    trace->reordered = true;
    return TPCOMM_OK;
}

static tpcomm_status_t read_rows(file_t *file, bench_trace_format_t format, bench_trace_t *trace) {
    bench_csv_t csv = {BENCH_TRACE_AUTO, 0, {0, 0, 0}, -1};
    size_t capacity = 0;
    bool begun = false; /* the format is known, and a CSV header is behind us */

    for (;;) {
        bench_line_t line;
        bench_request_t request;
        tpcomm_status_t status = next_line(file, &line);
        if (status != TPCOMM_OK) return status;
        if (!line.text) break;
        if (line.number == 1) skip_byte_order_mark(&line);
        char first = first_character(&line);
        if (first == '\0') continue;

        if (!begun) {
            begun = true;
            trace->format = format;
            if (format == BENCH_TRACE_AUTO && (first == '{' || first == '[')) trace->format = BENCH_TRACE_MOONCAKE;
            if (trace->format != BENCH_TRACE_MOONCAKE) {
                if ((status = bench_csv_header(&line, format, &csv)) != TPCOMM_OK) return status;
                trace->format = csv.format;
                continue;
            }
        }
        if (trace->rows == BENCH_TRACE_ROWS_MAX)
            return bench_line_fail(&line, "more than %" PRIu64 " rows", BENCH_TRACE_ROWS_MAX);
        status = trace->format == BENCH_TRACE_MOONCAKE ? bench_jsonl_row(&line, &request)
                                                       : bench_csv_row(&line, &csv, &request);
        if (status != TPCOMM_OK) return status;
        trace->rows++;
        if (request.prompt_tokens < 1 || request.output_tokens < 1) {
            trace->dropped++;
            continue;
        }
        if ((status = append(trace, &capacity, file->path, request)) != TPCOMM_OK) return status;
    }
    if (!begun) return tpc_error(TPCOMM_ERR_PARSE, "%s: the file is empty", file->path);
    if (trace->rows == 0) return tpc_error(TPCOMM_ERR_PARSE, "%s: a header and no rows", file->path);
    if (trace->count == 0)
        return tpc_error(TPCOMM_ERR_PARSE, "%s: none of the %" PRIu64 " rows has both prompt and output tokens",
                         file->path, trace->rows);
    return TPCOMM_OK;
}

tpcomm_status_t bench_trace_read(const char *path, bench_trace_format_t format, bench_trace_t *trace_p) {
    bench_trace_t trace = {.requests = NULL};
    file_t file = {.path = path, .fd = open(path, O_RDONLY | O_CLOEXEC), .capacity = FIRST_BUFFER_BYTES};
    tpcomm_status_t status;

    if (file.fd < 0) return tpc_error_errno(TPCOMM_ERR_IO, errno, "cannot open %s", path);
    bench_sha256_start(&file.sha);
    file.buffer = malloc(file.capacity + 1);
    if (!file.buffer) {
        status = tpc_error(TPCOMM_ERR_NO_MEMORY, "%s: no memory for a line", path);
        goto close_file;
    }
    status = read_rows(&file, format, &trace);
    if (status == TPCOMM_OK) status = sort_by_arrival(&trace, path);
    if (status == TPCOMM_OK) {
        trace.bytes = file.sha.bytes;
        bench_sha256_end(&file.sha, trace.sha256);
        *trace_p = trace;
    } else {
        bench_trace_free(&trace);
    }
    free(file.buffer);
close_file:
    close(file.fd);
    return status;
}

void bench_trace_free(bench_trace_t *trace) {
    free(trace->requests);
    trace->requests = NULL;
    trace->count = 0;
}
