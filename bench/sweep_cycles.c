/* SPDX-License-Identifier: Apache-2.0 */
/**
 * `sweep --cycles K`: the whole sweep in K fresh processes, one after the other. What differs from process to process
 * (where memory lies, which clocks a GPU has settled on) is in no single run's spread; the medians of several show it.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench.h"
#include "launch.h"
#include "sweep.h"
#include "text.h"

#define CYCLES_SCHEMA "tpcomm-sweep-cycles/1"

/** One row and place, over the cycles. */
typedef struct {
    char coll[24], dtype[16], redop[8], path_asked[24], path[24];
    int place;
    uint64_t bytes, count;
    double *us; /* one a cycle: p50, or the mean where there were too few samples; NaN: not measured */
} line_t;

typedef struct {
    uint64_t cycles;
    line_t *lines;
    size_t count;
} lines_t;

static const char *const place_keys[] = {"out_of_place", "in_place"};

/* ---------------------------------------------------------------- one cycle */

/** argv without --cycles and --json, with --json file; NULL: no memory. */
static char **cycle_argv(int argc, char **argv, const char *file) {
    char **copy = calloc((size_t)argc + 4, sizeof *copy);
    int n = 0;
    if (!copy) return NULL;
    copy[n++] = (char *)(uintptr_t) "tpcomm-bench";
    for (int i = 0; i < argc; i++) {
        if (strcmp(argv[i], "--cycles") == 0 || strcmp(argv[i], "--json") == 0) {
            i++; /* its value */
            continue;
        }
        if (strncmp(argv[i], "--cycles=", 9) == 0 || strncmp(argv[i], "--json=", 7) == 0) continue;
        copy[n++] = argv[i];
    }
    copy[n++] = (char *)(uintptr_t) "--json";
    copy[n++] = (char *)(uintptr_t)file;
    return copy;
}

static void cycle_main(const void *arg, const sigset_t *mask, const sigset_t *waiting) {
    char *const *argv = arg;
    int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
    (void)waiting;
    if (null < 0 || dup2(null, STDOUT_FILENO) < 0) _exit(BENCH_EXIT_USAGE);
    sigprocmask(SIG_SETMASK, mask, NULL);
    execv("/proc/self/exe", argv);
    _exit(BENCH_EXIT_USAGE);
}

/** Run one cycle; its exit code. */
static int run_cycle(int argc, char **argv, const char *file) {
    char **copy = cycle_argv(argc, argv, file);
    if (!copy) return bench_report("sweep", tpc_error(TPCOMM_ERR_NO_MEMORY, "no memory"));
    int code = bench_launch_child("tpcomm-bench sweep", cycle_main, copy);
    free(copy);
    return code;
}

/* ---------------------------------------------------------------- its figures */

static void copy_text(tpc_json_value_t row, const char *key, char *text_p, size_t bytes) {
    const char *text = NULL;
    bool null = tpc_json_is_null(tpc_json_get(row, key));
    if (!null && tpc_json_string(row, key, &text) == TPCOMM_OK)
        snprintf(text_p, bytes, "%s", text);
    else
        snprintf(text_p, bytes, "-");
}

static tpcomm_status_t add_line(lines_t *lines, tpc_json_value_t row, int place) {
    line_t *more = realloc(lines->lines, (lines->count + 1) * sizeof *more);
    if (!more) return tpc_error(TPCOMM_ERR_NO_MEMORY, "no memory");
    lines->lines = more;
    line_t *line = &more[lines->count];
    memset(line, 0, sizeof *line);
    line->place = place;
    copy_text(row, "coll", line->coll, sizeof line->coll);
    copy_text(row, "dtype", line->dtype, sizeof line->dtype);
    copy_text(row, "redop", line->redop, sizeof line->redop);
    copy_text(row, "path_asked", line->path_asked, sizeof line->path_asked);
    copy_text(row, "path", line->path, sizeof line->path);
    tpcomm_status_t status = tpc_json_u64(row, "bytes", 0, UINT64_MAX, &line->bytes);
    if (status == TPCOMM_OK) status = tpc_json_u64(row, "count", 0, UINT64_MAX, &line->count);
    if (status != TPCOMM_OK) return status;
    line->us = malloc((size_t)lines->cycles * sizeof *line->us);
    if (!line->us) return tpc_error(TPCOMM_ERR_NO_MEMORY, "no memory");
    for (uint64_t c = 0; c < lines->cycles; c++) line->us[c] = NAN;
    lines->count++;
    return TPCOMM_OK;
}

/** The figures of one cycle; the first also says which rows there are, and all have the same. */
static tpcomm_status_t read_cycle(lines_t *lines, uint64_t cycle, const char *file) {
    tpc_json_t *doc = NULL;
    tpc_json_value_t rows;
    size_t at = 0;
    tpcomm_status_t status = tpc_json_read_file(file, &doc);
    if (status == TPCOMM_OK) status = tpc_json_array(tpc_json_root(doc), "rows", &rows);
    if (status == TPCOMM_OK) {
        for (tpc_json_value_t row = tpc_json_first(rows); row.node && status == TPCOMM_OK; row = tpc_json_next(row))
            for (int place = 0; place < BENCH_PLACES && status == TPCOMM_OK; place++) {
                tpc_json_value_t measured = tpc_json_get(row, place_keys[place]), us = tpc_json_get(measured, "us");
                if (cycle == 0) status = add_line(lines, row, place);
                if (status != TPCOMM_OK || at == lines->count) break;
                line_t *line = &lines->lines[at++];
                if (!us.node) continue;
                const char *key = tpc_json_is_null(tpc_json_get(us, "p50_us")) ? "mean_us" : "p50_us";
                status = tpc_json_double(us, key, 0, 1e15, &line->us[cycle]);
            }
    }
    tpc_json_free(doc);
    return status;
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

typedef struct {
    double median, min, max, spread_percent;
} spread_t;

/** Of the cycles' medians; NaN where the row was not measured. */
static spread_t spread_of(const lines_t *lines, const line_t *line) {
    spread_t spread = {NAN, NAN, NAN, NAN};
    double *sorted = malloc((size_t)lines->cycles * sizeof *sorted);
    bool whole = true; /* measured in every cycle */
    for (uint64_t c = 0; c < lines->cycles; c++) whole = whole && !isnan(line->us[c]);
    if (!sorted || !whole) {
        free(sorted);
        return spread;
    }
    memcpy(sorted, line->us, (size_t)lines->cycles * sizeof *sorted);
    qsort(sorted, (size_t)lines->cycles, sizeof *sorted, by_value);
    spread = (spread_t){bench_percentile(sorted, (size_t)lines->cycles, 500), sorted[0], sorted[lines->cycles - 1], 0};
    spread.spread_percent = spread.median > 0 ? 100 * (spread.max - spread.min) / spread.median : NAN;
    free(sorted);
    return spread;
}

/* ---------------------------------------------------------------- telling it */

static void print_lines(const lines_t *lines) {
    printf("tpcomm-bench sweep: %" PRIu64 " cycles, each in fresh processes: their medians of one call in us\n\n"
           "#%11s %11s %5s %5s %-11s %-13s %-12s %8s %8s %8s %7s\n",
           lines->cycles, "size", "count", "type", "redop", "asked", "path", "place", "median", "min", "max",
           "spread%");
    for (size_t i = 0; i < lines->count; i++) {
        const line_t *line = &lines->lines[i];
        spread_t spread = spread_of(lines, line);
        if (isnan(spread.median)) continue;
        printf("%12" PRIu64 " %11" PRIu64 " %5s %5s %-11s %-13s %-12s", line->bytes, line->count, line->dtype,
               line->redop, line->path_asked, line->path, line->place == BENCH_IN_PLACE ? "in-place" : "out-of-place");
        bench_text_number(stdout, 8, spread.median);
        bench_text_number(stdout, 8, spread.min);
        bench_text_number(stdout, 8, spread.max);
        bench_text_number(stdout, 7, spread.spread_percent);
        putchar('\n');
    }
}

static tpcomm_status_t write_lines(const lines_t *lines, const char *path, int argc, char **argv) {
    tpc_json_writer_t *w;
    tpcomm_status_t status = tpc_json_writer_new(CYCLES_SCHEMA, &w);
    if (status != TPCOMM_OK) return status;
    tpc_json_node_t *root = tpc_json_writer_root(w), *command = tpc_json_add_array(w, root, "command");
    for (int i = 0; i < argc; i++) tpc_json_add_string(w, command, NULL, argv[i]);
    tpc_json_add_u64(w, root, "cycles", lines->cycles);
    tpc_json_node_t *rows = tpc_json_add_array(w, root, "rows");
    for (size_t i = 0; i < lines->count; i++) {
        const line_t *line = &lines->lines[i];
        spread_t spread = spread_of(lines, line);
        if (isnan(spread.median)) continue;
        tpc_json_node_t *row = tpc_json_add_object(w, rows, NULL);
        tpc_json_add_string(w, row, "coll", line->coll);
        tpc_json_add_u64(w, row, "bytes", line->bytes);
        tpc_json_add_u64(w, row, "count", line->count);
        tpc_json_add_string(w, row, "dtype", line->dtype);
        tpc_json_add_string(w, row, "redop", line->redop);
        tpc_json_add_string(w, row, "path_asked", line->path_asked);
        tpc_json_add_string(w, row, "path", line->path);
        tpc_json_add_string(w, row, "place", place_keys[line->place]);
        tpc_json_node_t *us = tpc_json_add_array(w, row, "cycle_us");
        for (uint64_t c = 0; c < lines->cycles; c++) tpc_json_add_double(w, us, NULL, line->us[c]);
        tpc_json_add_double(w, row, "median_us", spread.median);
        tpc_json_add_double(w, row, "spread_percent", spread.spread_percent);
    }
    status = tpc_json_write_file(w, path);
    tpc_json_writer_free(w);
    return status;
}

static int run_all(lines_t *lines, const char *stem, bool keep, int argc, char **argv) {
    for (uint64_t cycle = 0; cycle < lines->cycles; cycle++) {
        char file[4096];
        snprintf(file, sizeof file, "%s.cycle%" PRIu64 ".json", stem, cycle + 1);
        if (isatty(STDERR_FILENO))
            fprintf(stderr, "\r\033[Ksweep: cycle %" PRIu64 " of %" PRIu64, cycle + 1, lines->cycles);
        int code = run_cycle(argc, argv, file);
        tpcomm_status_t status = code == BENCH_EXIT_OK ? read_cycle(lines, cycle, file) : TPCOMM_OK;
        if (!keep) unlink(file);
        if (isatty(STDERR_FILENO)) fputs("\r\033[K", stderr);
        if (code != BENCH_EXIT_OK) {
            fprintf(stderr, "tpcomm-bench sweep: cycle %" PRIu64 " failed with exit code %d\n", cycle + 1, code);
            return code;
        }
        if (status != TPCOMM_OK) return bench_report("sweep", status);
    }
    return BENCH_EXIT_OK;
}

int bench_sweep_cycles(uint64_t cycles, const char *json_path, int argc, char **argv) {
    lines_t lines = {.cycles = cycles};
    char stem[4000], folder[] = "/tmp/tpcomm-sweep-XXXXXX";
    tpcomm_status_t status = tpc_json_load_library(NULL);
    if (status == TPCOMM_OK && !json_path && !mkdtemp(folder))
        status = tpc_error_errno(TPCOMM_ERR_IO, errno, "no folder for the cycles' figures: %s", folder);
    if (status != TPCOMM_OK) return bench_report("sweep", status);
    size_t length = json_path ? strlen(json_path) : 0;
    if (json_path && length > 5 && strcmp(json_path + length - 5, ".json") == 0) length -= 5;
    if (json_path)
        snprintf(stem, sizeof stem, "%.*s", (int)length, json_path);
    else
        snprintf(stem, sizeof stem, "%s/sweep", folder);
    int code = run_all(&lines, stem, json_path != NULL, argc, argv);
    if (!json_path) rmdir(folder);
    if (code == BENCH_EXIT_OK) {
        print_lines(&lines);
        status = json_path ? write_lines(&lines, json_path, argc, argv) : TPCOMM_OK;
        if (status != TPCOMM_OK) code = bench_report("sweep", status);
    }
    for (size_t i = 0; i < lines.count; i++) free(lines.lines[i].us);
    free(lines.lines);
    return code;
}
