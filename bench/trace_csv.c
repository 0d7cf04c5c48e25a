/* SPDX-License-Identifier: Apache-2.0 */
/** Rows of the two CSV formats. Columns go by name, so extra ones and any order are fine. */
#include <string.h>

#include "number.h"
#include "trace_line.h"

/* Arrival, prompt tokens, output tokens. */
static const char *const azure_columns[3] = {"TIMESTAMP", "ContextTokens", "GeneratedTokens"};
static const char *const burstgpt_columns[3] = {"Timestamp", "Request tokens", "Response tokens"};

static const char *const *columns_of(bench_trace_format_t format) {
    return format == BENCH_TRACE_AZURE ? azure_columns : burstgpt_columns;
}

typedef struct {
    const char *text;
    size_t length;
} slice_t;

static slice_t trim(slice_t slice) {
    while (slice.length && (slice.text[0] == ' ' || slice.text[0] == '\t')) slice.text++, slice.length--;
    while (slice.length && (slice.text[slice.length - 1] == ' ' || slice.text[slice.length - 1] == '\t'))
        slice.length--;
    return slice;
}

/**
 * The field at *at_p, which moves behind its comma, or to SIZE_MAX after the last. Quotes are taken off; a doubled
 * quote inside stays doubled, since no field we look into has one.
 */
static tpcomm_status_t next_field(const bench_line_t *line, size_t *at_p, slice_t *field_p) {
    const char *text = line->text;
    size_t at = *at_p, end = line->length;
    slice_t field;

    if (at < end && text[at] == '"') {
        size_t from = ++at;
        for (;;) {
            const char *quote = memchr(text + at, '"', end - at);
            if (!quote) return bench_line_fail(line, "a quoted field does not end on this line");
            at = (size_t)(quote - text);
            if (at + 1 >= end || text[at + 1] != '"') break;
            at += 2;
        }
        field.text = text + from;
        field.length = at - from;
        at++;
        if (at < end && text[at] != ',')
            return bench_line_fail(line, "a quoted field is followed by more than a comma");
    } else {
        const char *comma = memchr(text + at, ',', end - at);
        field.text = text + at;
        field.length = comma ? (size_t)(comma - text) - at : end - at;
        if (memchr(field.text, '"', field.length)) return bench_line_fail(line, "a quote inside an unquoted field");
        at += field.length;
        field = trim(field);
    }
    *field_p = field;
    *at_p = at < end ? at + 1 : SIZE_MAX;
    return TPCOMM_OK;
}

static int find_column(const char *const columns[3], slice_t name) {
    for (int i = 0; i < 3; i++) {
        if (strlen(columns[i]) == name.length && memcmp(columns[i], name.text, name.length) == 0) return i;
    }
    return -1;
}

/** Positions of the columns of one format; *missing_p: the first that is not there, or NULL. */
static tpcomm_status_t find_columns(const bench_line_t *line, bench_trace_format_t format, bench_csv_t *csv_p,
                                    const char **missing_p) {
    const char *const *columns = columns_of(format);
    bench_csv_t csv = {format, 0, {SIZE_MAX, SIZE_MAX, SIZE_MAX}, -1};
    for (size_t at = 0; at != SIZE_MAX; csv.fields++) {
        slice_t name;
        tpcomm_status_t status = next_field(line, &at, &name);
        if (status != TPCOMM_OK) return status;
        int i = find_column(columns, name);
        if (i < 0) continue;
        if (csv.position[i] != SIZE_MAX) return bench_line_fail(line, "two columns are named %s", columns[i]);
        csv.position[i] = csv.fields;
    }
    *missing_p = NULL;
    for (int i = 2; i >= 0; i--) {
        if (csv.position[i] == SIZE_MAX) *missing_p = columns[i];
    }
    *csv_p = csv;
    return TPCOMM_OK;
}

tpcomm_status_t bench_csv_header(const bench_line_t *line, bench_trace_format_t format, bench_csv_t *csv_p) {
    const char *missing;
    tpcomm_status_t status;

    if (format != BENCH_TRACE_AUTO) {
        bench_csv_t csv;
        status = find_columns(line, format, &csv, &missing);
        if (status != TPCOMM_OK) return status;
        if (missing)
            return bench_line_fail(line, "the header has no column \"%s\", which format %s needs: %.*s", missing,
                                   bench_trace_format_name(format), BENCH_LINE_QUOTE(line->length), line->text);
        *csv_p = csv;
        return TPCOMM_OK;
    }

    bench_csv_t azure, burstgpt;
    const char *azure_missing, *burstgpt_missing;
    if ((status = find_columns(line, BENCH_TRACE_AZURE, &azure, &azure_missing)) != TPCOMM_OK) return status;
    if ((status = find_columns(line, BENCH_TRACE_BURSTGPT, &burstgpt, &burstgpt_missing)) != TPCOMM_OK) return status;
    if (!azure_missing && !burstgpt_missing)
        return bench_line_fail(line, "the header has the columns of azure and of burstgpt: say which with --format");
    if (azure_missing && burstgpt_missing)
        return bench_line_fail(
            line,
            "no known format: azure needs the columns \"%s\", \"%s\", \"%s\", burstgpt \"%s\", \"%s\", "
            "\"%s\", mooncake a JSON object a line; the line is: %.*s",
            azure_columns[0], azure_columns[1], azure_columns[2], burstgpt_columns[0], burstgpt_columns[1],
            burstgpt_columns[2], BENCH_LINE_QUOTE(line->length), line->text);
    *csv_p = azure_missing ? burstgpt : azure;
    return TPCOMM_OK;
}

/** Exactly count digits at *at_p, which moves behind them. */
static bool take_digits(slice_t text, size_t *at_p, size_t count, uint32_t *value_p) {
    uint64_t value;
    if (text.length - *at_p < count || !bench_number_u64(text.text + *at_p, count, &value)) return false;
    *at_p += count;
    *value_p = (uint32_t)value;
    return true;
}

static bool take_char(slice_t text, size_t *at_p, char c) {
    if (*at_p >= text.length || text.text[*at_p] != c) return false;
    ++*at_p;
    return true;
}

static bool is_leap(uint32_t year) {
    return (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
}

/** Days from 1970-01-01, proleptic Gregorian; false if there is no such day. */
static bool day_number(uint32_t year, uint32_t month, uint32_t day, int64_t *days_p) {
    static const uint32_t before_month[] = {0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334, 365};
    if (year < 1970 || month < 1 || month > 12) return false;
    uint32_t leap = is_leap(year), length = before_month[month] - before_month[month - 1] + (month == 2 && leap);
    if (day < 1 || day > length) return false;
    uint32_t past = year - 1; /* whole years before this one, for counting leap days */
    int64_t leap_days = (int64_t)(past / 4 - past / 100 + past / 400) - (1969 / 4 - 1969 / 100 + 1969 / 400);
    *days_p = (int64_t)(year - 1970) * 365 + leap_days + before_month[month - 1] + (month > 2 && leap) + day - 1;
    return true;
}

/**
 * "YYYY-MM-DD HH:MM:SS", then up to 9 digits of a fraction, then "Z" or "+HH:MM" or nothing. The result is the double
 * nearest to the Unix time: no sum of at most 9 decimals lies so near the middle between two doubles that rounding the
 * fraction first could tip it over.
 */
static bool parse_time(slice_t text, double *unix_s_p, bool *has_offset_p) {
    static const double power[] = {1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9};
    uint32_t year, month, day, hour, minute, second, fraction = 0, offset_hour = 0, offset_minute = 0;
    size_t at = 0, places = 0;
    int64_t days, offset_s = 0;

    if (!take_digits(text, &at, 4, &year) || !take_char(text, &at, '-') || !take_digits(text, &at, 2, &month) ||
        !take_char(text, &at, '-') || !take_digits(text, &at, 2, &day))
        return false;
    if (!take_char(text, &at, ' ') && !take_char(text, &at, 'T')) return false;
    if (!take_digits(text, &at, 2, &hour) || !take_char(text, &at, ':') || !take_digits(text, &at, 2, &minute) ||
        !take_char(text, &at, ':') || !take_digits(text, &at, 2, &second))
        return false;
    if (!day_number(year, month, day, &days) || hour > 23 || minute > 59 || second > 59) return false;
    if (take_char(text, &at, '.')) {
        while (at + places < text.length && text.text[at + places] >= '0' && text.text[at + places] <= '9') places++;
        if (places == 0 || places > 9 || !take_digits(text, &at, places, &fraction)) return false;
    }
    bool has_offset = at < text.length;
    if (has_offset && !take_char(text, &at, 'Z')) {
        int sign = text.text[at] == '-' ? -1 : 1;
        if (!take_char(text, &at, '+') && !take_char(text, &at, '-')) return false;
        if (!take_digits(text, &at, 2, &offset_hour) || !take_char(text, &at, ':') ||
            !take_digits(text, &at, 2, &offset_minute) || offset_hour > 23 || offset_minute > 59)
            return false;
        offset_s = sign * (int64_t)(offset_hour * 3600 + offset_minute * 60);
    }
    if (at != text.length) return false;
    int64_t seconds = days * 86400 + (int64_t)(hour * 3600 + minute * 60 + second) - offset_s;
    *unix_s_p = (double)seconds + (double)fraction / power[places];
    *has_offset_p = has_offset;
    return true;
}

static tpcomm_status_t read_arrival(const bench_line_t *line, bench_csv_t *csv, slice_t text, double *arrival_s_p) {
    const char *column = columns_of(csv->format)[0];
    double seconds;
    if (csv->format == BENCH_TRACE_BURSTGPT) {
        if (!bench_number_double(text.text, text.length, &seconds) ||
            !(seconds >= 0 && seconds <= BENCH_TRACE_TIME_MAX_S))
            return bench_line_fail(line, "%s is \"%.*s\"; allowed are seconds from 0 to %g", column,
                                   BENCH_LINE_QUOTE(text.length), text.text, BENCH_TRACE_TIME_MAX_S);
        *arrival_s_p = seconds;
        return TPCOMM_OK;
    }
    bool has_offset;
    if (!parse_time(text, &seconds, &has_offset))
        return bench_line_fail(
            line, "%s is \"%.*s\"; allowed are times like 2023-11-16 18:17:03.9799600, since 1970, +00:00 may follow",
            column, BENCH_LINE_QUOTE(text.length), text.text);
    /* Mixed, the two kinds could not be put in order: nobody says where the clock without an offset stood. */
    if (csv->has_offset >= 0 && csv->has_offset != (int8_t)has_offset)
        return bench_line_fail(line, "%s is \"%.*s\", %s an offset from UTC, unlike the rows before", column,
                               BENCH_LINE_QUOTE(text.length), text.text, has_offset ? "with" : "without");
    csv->has_offset = (int8_t)has_offset;
    *arrival_s_p = seconds;
    return TPCOMM_OK;
}

tpcomm_status_t bench_csv_row(const bench_line_t *line, bench_csv_t *csv, bench_request_t *request_p) {
    const char *const *columns = columns_of(csv->format);
    slice_t value[3] = {{"", 0}, {"", 0}, {"", 0}};
    bench_request_t request;
    size_t fields = 0;
    tpcomm_status_t status;

    for (size_t at = 0; at != SIZE_MAX; fields++) {
        slice_t field;
        if ((status = next_field(line, &at, &field)) != TPCOMM_OK) return status;
        for (int i = 0; i < 3; i++) {
            if (csv->position[i] == fields) value[i] = field;
        }
    }
    if (fields != csv->fields)
        return bench_line_fail(line, "%zu fields, but the header has %zu: %.*s", fields, csv->fields,
                               BENCH_LINE_QUOTE(line->length), line->text);
    if ((status = read_arrival(line, csv, value[0], &request.arrival_s)) != TPCOMM_OK) return status;
    status = bench_line_tokens(line, columns[1], value[1].text, value[1].length, &request.prompt_tokens);
    if (status != TPCOMM_OK) return status;
    status = bench_line_tokens(line, columns[2], value[2].text, value[2].length, &request.output_tokens);
    if (status != TPCOMM_OK) return status;
    *request_p = request;
    return TPCOMM_OK;
}
