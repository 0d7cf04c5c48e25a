/* SPDX-License-Identifier: Apache-2.0 */
#include "dispatch/dispatch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

#define DTYPE_END (TPCOMM_F8_E5M2 + 1)

/* Messages from the end of the range before to bytes_max, both included, take this path by this row. */
typedef struct {
    uint64_t bytes_max;
    tpcomm_path_t path;
    const tpc_row_t *row;
} range_t;

typedef struct {
    range_t *ranges; /* ascending; the last ends at UINT64_MAX; NULL: no path carries such calls */
    size_t count;
} ranges_t;

/* Of a collective on rows: the lengths of these at which the answer can change, each the last of its class, ascending;
 * the last is INT32_MAX. Of any other there is one. */
typedef struct {
    int32_t *ends;
    size_t count;
} classes_t;

struct tpc_dispatch {
    tpc_agreed_t agreed;
    const tpc_backend_t *const *backends;
    const char *const *unmade;
    tpc_choice_t of_path[TPC_PATH_END]; /* backend NULL: no such path in this group */
    const tpc_table_t *table;
    classes_t classes[TPC_COLL_END];
    ranges_t *ranges[TPC_COLL_END][DTYPE_END][2]; /* one a class; a barrier has dtype 0 alone; the last: capturing */
};

static const tpc_backend_t *backend_of(const tpc_dispatch_t *dispatch, tpcomm_path_t path) {
    return path > 0 && path < TPC_PATH_END ? dispatch->of_path[path].backend : NULL;
}

/* Whether such a call can be made at all; otherwise it has no ranges. */
static bool key_exists(const tpc_call_key_t *key) {
    if (key->coll <= 0 || tpcomm_coll_name(key->coll)[0] == '?') return false;
    if (!tpc_coll_moves_data(key->coll)) return true;
    if (tpc_coll_norms(key->coll) &&
        (key->op != TPCOMM_SUM || (key->dtype != TPCOMM_F32 && key->dtype != TPCOMM_F16 && key->dtype != TPCOMM_BF16)))
        return false;
    if (tpc_coll_reduces(key->coll)) return tpc_reduction_defined(key->dtype, key->op);
    return key->dtype > 0 && key->dtype < DTYPE_END;
}

static const range_t *find_range(const tpc_dispatch_t *dispatch, const tpc_call_key_t *key);

tpc_call_key_t tpc_dispatch_reduction_of(const tpc_call_key_t *key) {
    return (tpc_call_key_t){.coll = key->coll == TPCOMM_ALL_REDUCE_RMS_NORM ? TPCOMM_ALL_REDUCE : TPCOMM_REDUCE_SCATTER,
                            .dtype = key->dtype,
                            .op = TPCOMM_SUM,
                            .bytes = key->bytes,
                            .capturing = key->capturing};
}

/* The one path that no backend has: a reduction by whatever path is chosen for it, then the norm. */
static const char *why_not_unfused(const tpc_dispatch_t *dispatch, const tpc_call_key_t *key) {
    if (!tpc_coll_norms(key->coll)) return "only calls with a norm are composed of two steps";
    if (dispatch->agreed.size == 1) return "a group of one rank has nothing to reduce";
    if (key->obstacles & TPC_ROWS_NO_ROOM) return "neither out nor sum is given, so the sum has no room";
    if (key->obstacles & TPC_ROWS_STRIDED) return "rows of in, or of the room for the sum, are not packed";
    if (key->obstacles & TPC_ROWS_UNEQUAL) return "the tokens do not divide by the ranks";
    tpc_call_key_t reduction = tpc_dispatch_reduction_of(key);
    return find_range(dispatch, &reduction) != NULL ? NULL : "no path carries the reduction in it";
}

static bool has_path(const tpc_dispatch_t *dispatch, tpcomm_path_t path) {
    return path == TPCOMM_PATH_UNFUSED || backend_of(dispatch, path) != NULL;
}

/* Whether a path is of the kind that such calls take; the others are not worth a word. */
static bool is_of_kind(tpcomm_path_t path, tpcomm_coll_t coll) {
    return path == TPCOMM_PATH_LOCAL || tpc_path_norms(path) == tpc_coll_norms(coll);
}

static const char *hard_limit(const tpc_dispatch_t *dispatch, tpcomm_path_t path, const tpc_call_key_t *key) {
    if (path == TPCOMM_PATH_UNFUSED) return why_not_unfused(dispatch, key);
    const tpc_backend_t *backend = backend_of(dispatch, path);
    if (backend == NULL) return "this library or group has no such path";
    const char *unmade = dispatch->unmade != NULL ? dispatch->unmade[dispatch->of_path[path].backend_index] : NULL;
    return unmade != NULL ? unmade : backend->why_not(&dispatch->agreed, path, key);
}

/* ------------------------------------------------------------------ rows to ranges */

/* The group size whose built-in rows serve this group: its own; else the greatest smaller one listed, else the
 * smallest. */
static int32_t builtin_size(const tpc_table_t *table, const tpc_agreed_t *agreed, tpcomm_coll_t coll) {
    int32_t below = 0, smallest = 0;
    for (size_t i = 0; i < table->count; i++) {
        const tpc_row_t *row = &table->rows[i];
        if (!row->built_in || row->coll != coll || row->topology != (int32_t)agreed->topology) continue;
        if (row->size <= agreed->size && row->size > below) below = row->size;
        if (smallest == 0 || row->size < smallest) smallest = row->size;
    }
    return below > 0 ? below : smallest;
}

/* What rows are looked for: a call, whose rows are as long as any of their class; and whose built-in rows serve. */
typedef struct {
    tpc_call_key_t key;
    int32_t hidden, builtin;
} wanted_t;

static bool row_applies(const tpc_row_t *row, const tpc_agreed_t *agreed, const wanted_t *wanted) {
    const tpc_call_key_t *key = &wanted->key;
    if (row->coll != key->coll || row->topology != (int32_t)agreed->topology) return false;
    if (row->size != (row->built_in ? wanted->builtin : agreed->size)) return false;
    if (wanted->hidden < row->hidden_min || wanted->hidden > row->hidden_max) return false;
    if (row->dtype != 0 && row->dtype != key->dtype) return false;
    return row->capturing == 0 || row->capturing == (key->capturing ? TPCOMM_ON : TPCOMM_OFF);
}

/* First row that covers key->bytes and whose path can carry the call; where there is none, since the path that gets
 * these sizes is not for this dtype, say, the one that ends nearest below. */
static const tpc_row_t *first_row(const tpc_dispatch_t *dispatch, const wanted_t *wanted) {
    const tpc_call_key_t *key = &wanted->key;
    const tpc_row_t *below = NULL;
    for (size_t i = 0; i < dispatch->table->count; i++) {
        const tpc_row_t *row = &dispatch->table->rows[i];
        if (key->bytes < row->bytes_min) continue;
        bool covers = key->bytes <= row->bytes_max;
        if (!covers && below != NULL && row->bytes_max <= below->bytes_max) continue;
        if (!row_applies(row, &dispatch->agreed, wanted) || hard_limit(dispatch, row->path, key) != NULL) continue;
        if (covers) return row;
        below = row;
    }
    return below;
}

static int by_value(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* A path that the table has no row for: the first that can carry the call at all. */
static tpcomm_path_t default_path(const tpc_dispatch_t *dispatch, const tpc_call_key_t *key) {
    for (const tpc_backend_t *const *backend = dispatch->backends; *backend != NULL; backend++)
        for (const tpcomm_path_t *path = (*backend)->paths; *path != 0; path++)
            if (hard_limit(dispatch, *path, key) == NULL) return *path;
    return hard_limit(dispatch, TPCOMM_PATH_UNFUSED, key) == NULL ? TPCOMM_PATH_UNFUSED : 0;
}

/* Every place where the answer can change, in order; returns their number. */
static size_t collect_starts(const tpc_table_t *table, uint64_t *starts) {
    size_t count = 0;
    starts[count++] = 0;
    for (size_t i = 0; i < table->count; i++) {
        starts[count++] = table->rows[i].bytes_min;
        if (table->rows[i].bytes_max != UINT64_MAX) starts[count++] = table->rows[i].bytes_max + 1;
    }
    qsort(starts, count, sizeof *starts, by_value);
    return count;
}

/* The classes of a collective, by its rows in the table. */
static tpcomm_status_t make_classes(const tpc_table_t *table, tpcomm_coll_t coll, classes_t *classes_p) {
    classes_t classes = {.ends = malloc((2 * table->count + 1) * sizeof *classes.ends), .count = 0};
    if (classes.ends == NULL) return tpc_error(TPCOMM_ERR_NO_MEMORY, "out of memory");
    for (int32_t end = 0; end < INT32_MAX;) { /* the nearest end behind the one before */
        int32_t next = INT32_MAX;
        for (size_t i = 0; i < table->count && tpc_coll_has_rows(coll); i++) {
            const tpc_row_t *row = &table->rows[i];
            if (row->coll != coll) continue;
            if (row->hidden_min - 1 > end && row->hidden_min - 1 < next) next = row->hidden_min - 1;
            if (row->hidden_max > end && row->hidden_max < next) next = row->hidden_max;
        }
        classes.ends[classes.count++] = end = next;
    }
    *classes_p = classes;
    return TPCOMM_OK;
}

static tpcomm_status_t build_ranges(const tpc_dispatch_t *dispatch, wanted_t wanted, const uint64_t *starts,
                                    size_t start_count, ranges_t *ranges_p) {
    ranges_t ranges = {.ranges = malloc(start_count * sizeof *ranges.ranges)};
    if (ranges.ranges == NULL) return tpc_error(TPCOMM_ERR_NO_MEMORY, "out of memory");
    for (size_t i = 0; i < start_count; i++) {
        wanted.key.bytes = starts[i];
        const tpc_row_t *row = first_row(dispatch, &wanted);
        tpcomm_path_t path = row != NULL ? row->path : default_path(dispatch, &wanted.key);
        range_t *last = ranges.count > 0 ? &ranges.ranges[ranges.count - 1] : NULL;
        if (last != NULL && last->path == path && last->row == row) continue;
        if (last != NULL) last->bytes_max = starts[i] - 1;
        ranges.ranges[ranges.count++] = (range_t){.bytes_max = UINT64_MAX, .path = path, .row = row};
    }
    range_t *fitting = realloc(ranges.ranges, ranges.count * sizeof *fitting); /* a few of them, mostly */
    if (fitting != NULL) ranges.ranges = fitting;
    *ranges_p = ranges;
    return TPCOMM_OK;
}

/* Ranges of one kind of calls, for each class of rows. */
static tpcomm_status_t build_classes(tpc_dispatch_t *dispatch, const tpc_call_key_t *key, const uint64_t *starts,
                                     size_t start_count) {
    const classes_t *classes = &dispatch->classes[key->coll];
    ranges_t *ranges = calloc(classes->count, sizeof *ranges);
    tpcomm_status_t status = TPCOMM_OK;
    if (ranges == NULL) return tpc_error(TPCOMM_ERR_NO_MEMORY, "out of memory");
    dispatch->ranges[key->coll][key->dtype][key->capturing] = ranges;
    wanted_t wanted = {.key = *key, .builtin = builtin_size(dispatch->table, &dispatch->agreed, key->coll)};
    for (size_t c = 0; c < classes->count && status == TPCOMM_OK; c++) {
        wanted.hidden = classes->ends[c];
        status = build_ranges(dispatch, wanted, starts, start_count, &ranges[c]);
    }
    return status;
}

tpcomm_status_t tpc_dispatch_new(const tpc_agreed_t *agreed, const tpc_table_t *table,
                                 const tpc_backend_t *const *backends, const char *const *unmade,
                                 tpc_dispatch_t **dispatch_p) {
    tpcomm_status_t status = TPCOMM_OK;
    tpc_dispatch_t *dispatch = calloc(1, sizeof *dispatch);
    uint64_t *starts = malloc((2 * table->count + 1) * sizeof *starts);
    if (dispatch == NULL || starts == NULL) {
        status = tpc_error(TPCOMM_ERR_NO_MEMORY, "out of memory");
        goto out;
    }
    dispatch->agreed = *agreed;
    dispatch->backends = backends;
    dispatch->unmade = unmade;
    dispatch->table = table;
    for (int32_t i = 0; backends[i] != NULL; i++)
        for (const tpcomm_path_t *path = backends[i]->paths; *path != 0; path++)
            dispatch->of_path[*path] = (tpc_choice_t){.path = *path, .backend = backends[i], .backend_index = i};

    dispatch->of_path[TPCOMM_PATH_UNFUSED] = (tpc_choice_t){.path = TPCOMM_PATH_UNFUSED, .backend_index = -1};

    size_t start_count = collect_starts(dispatch->table, starts);
    for (tpcomm_coll_t coll = 1; coll < TPC_COLL_END && status == TPCOMM_OK; coll++) {
        status = make_classes(dispatch->table, coll, &dispatch->classes[coll]);
        for (tpcomm_dtype_t dtype = 0; dtype < DTYPE_END && status == TPCOMM_OK; dtype++)
            for (int capturing = 0; capturing < 2 && status == TPCOMM_OK; capturing++) {
                tpc_call_key_t key = {.coll = coll, .dtype = dtype, .capturing = capturing != 0};
                if (tpc_coll_reduces(coll))
                    key.op = TPCOMM_SUM;                     /* what can be summed at all; find_range looks at the op */
                if (tpc_coll_has_rows(coll)) key.hidden = 8; /* rows of any length; settle looks at this one's */
                if (!key_exists(&key) || (!tpc_coll_moves_data(coll) && dtype != 0)) continue;
                status = build_classes(dispatch, &key, starts, start_count);
            }
    }
out:
    free(starts);
    if (status != TPCOMM_OK) {
        tpc_dispatch_free(dispatch);
        return status;
    }
    *dispatch_p = dispatch;
    return TPCOMM_OK;
}

void tpc_dispatch_free(tpc_dispatch_t *dispatch) {
    if (dispatch == NULL) return;
    for (int coll = 0; coll < TPC_COLL_END; coll++) {
        for (int dtype = 0; dtype < DTYPE_END; dtype++)
            for (int capturing = 0; capturing < 2; capturing++) {
                ranges_t *ranges = dispatch->ranges[coll][dtype][capturing];
                for (size_t c = 0; ranges != NULL && c < dispatch->classes[coll].count; c++) free(ranges[c].ranges);
                free(ranges);
            }
        free(dispatch->classes[coll].ends);
    }
    free(dispatch);
}

/* ------------------------------------------------------------------ the choice */

static const ranges_t *ranges_of(const tpc_dispatch_t *dispatch, const tpc_call_key_t *key) {
    const ranges_t *ranges =
        dispatch->ranges[key->coll][tpc_coll_moves_data(key->coll) ? key->dtype : 0][key->capturing];
    const int32_t *ends = dispatch->classes[key->coll].ends;
    if (ranges == NULL) return NULL; /* no such calls */
    while (key->hidden > *ends) ends++, ranges++;
    return ranges;
}

/* The range a call falls in; NULL if there is none (an undefined reduction, nothing that can carry it). */
static const range_t *find_range(const tpc_dispatch_t *dispatch, const tpc_call_key_t *key) {
    if (!key_exists(key)) return NULL;
    const ranges_t *ranges = ranges_of(dispatch, key);
    for (size_t i = 0; ranges != NULL && i < ranges->count; i++)
        if (key->bytes <= ranges->ranges[i].bytes_max) return ranges->ranges[i].path != 0 ? &ranges->ranges[i] : NULL;
    return NULL;
}

/* The path of a range, if it carries this very call: ranges know bytes alone, and a call on rows may be one of few that
 * their path cannot carry. Then the first path that can; 0: none. */
static tpcomm_path_t settle(const tpc_dispatch_t *dispatch, const tpc_call_key_t *key, const range_t *range) {
    if (!tpc_coll_norms(key->coll) || hard_limit(dispatch, range->path, key) == NULL) return range->path;
    return default_path(dispatch, key);
}

/* No path: say of each why not. */
static tpcomm_status_t refuse(const tpc_dispatch_t *dispatch, const tpc_call_key_t *key) {
    if (tpc_coll_reduces(key->coll) && !tpc_reduction_defined(key->dtype, key->op))
        return tpc_error(TPCOMM_ERR_UNSUPPORTED, "%s %s of %s is not defined (docs/numerics.md)",
                         tpcomm_coll_name(key->coll), tpcomm_op_name(key->op), tpcomm_dtype_name(key->dtype));
    char text[512];
    int used = 0;
    for (tpcomm_path_t path = 1; path < TPC_PATH_END && used < (int)sizeof text; path++) {
        if (!has_path(dispatch, path) || !is_of_kind(path, key->coll)) continue;
        const char *why = hard_limit(dispatch, path, key);
        used += snprintf(text + used, sizeof text - (size_t)used, "%s%s: %s", used > 0 ? "; " : "",
                         tpcomm_path_name(path), why != NULL ? why : "not chosen");
    }
    return tpc_error(TPCOMM_ERR_UNSUPPORTED, "no path carries %s of %llu bytes: %s", tpcomm_coll_name(key->coll),
                     (unsigned long long)key->bytes, used > 0 ? text : "this group has none");
}

/* The path that is asked for by name, of the call or of the settings; 0: none. A forced path of the settings speaks of
 * all_reduce alone, one that is fused or unfused of all_reduce_rms_norm alone. */
static tpcomm_path_t asked_for(const tpc_dispatch_t *dispatch, const tpc_call_key_t *key, tpcomm_path_t forced) {
    if (forced != 0) return forced;
    bool speaks =
        key->coll == (tpc_path_norms(dispatch->agreed.forced_path) ? TPCOMM_ALL_REDUCE_RMS_NORM : TPCOMM_ALL_REDUCE);
    return speaks && dispatch->agreed.size > 1 ? dispatch->agreed.forced_path : 0;
}

static tpcomm_status_t check_asked(const tpc_dispatch_t *dispatch, const tpc_call_key_t *key, tpcomm_path_t path) {
    if (path < 0 || path >= TPC_PATH_END || tpcomm_path_name(path)[0] == '?')
        return tpc_error(TPCOMM_ERR_INVALID_ARG, "path %d does not exist", path);
    const char *why = hard_limit(dispatch, path, key);
    if (why == NULL) return TPCOMM_OK;
    return tpc_error(TPCOMM_ERR_UNSUPPORTED, "path %s was asked for, but cannot carry %s of %s %s: %s",
                     tpcomm_path_name(path), tpcomm_coll_name(key->coll), tpcomm_dtype_name(key->dtype),
                     tpcomm_op_name(key->op), why);
}

/* Without a word of why: 0 where it is refused. */
static tpcomm_path_t path_of(const tpc_dispatch_t *dispatch, const tpc_call_key_t *key, tpcomm_path_t forced) {
    tpcomm_path_t asked = asked_for(dispatch, key, forced);
    if (asked != 0) return hard_limit(dispatch, asked, key) == NULL ? asked : 0;
    const range_t *range = find_range(dispatch, key);
    return range != NULL ? settle(dispatch, key, range) : 0;
}

tpcomm_status_t tpc_dispatch_choose(const tpc_dispatch_t *dispatch, const tpc_call_key_t *key, tpcomm_path_t forced,
                                    tpc_choice_t *choice_p) {
    tpcomm_path_t path = asked_for(dispatch, key, forced);
    if (path != 0) {
        tpcomm_status_t status = check_asked(dispatch, key, path);
        if (status != TPCOMM_OK) return status;
    } else {
        const range_t *range = find_range(dispatch, key);
        if (range == NULL) return refuse(dispatch, key);
        path = settle(dispatch, key, range);
        if (path == 0) return refuse(dispatch, key);
    }
    *choice_p = dispatch->of_path[path];
    return TPCOMM_OK;
}

const char *tpc_dispatch_why_not(const tpc_dispatch_t *dispatch, tpcomm_path_t path) {
    if (!has_path(dispatch, path)) return "";
    tpc_call_key_t plain = {.coll = TPCOMM_ALL_REDUCE, .dtype = TPCOMM_F32, .op = TPCOMM_SUM};
    tpc_call_key_t norm = {.coll = TPCOMM_ALL_REDUCE_RMS_NORM, .dtype = TPCOMM_F32, .op = TPCOMM_SUM, .hidden = 8};
    return hard_limit(dispatch, path, tpc_path_norms(path) ? &norm : &plain);
}

/* ------------------------------------------------------------------ explain */

/* The row of a tuning file that is for this call, but whose path cannot carry it; NULL: there is none. */
static const tpc_row_t *passed_over(const tpc_dispatch_t *dispatch, const tpc_call_key_t *key) {
    for (size_t i = 0; i < dispatch->table->count && !dispatch->table->rows[i].built_in; i++) {
        const tpc_row_t *row = &dispatch->table->rows[i];
        wanted_t wanted = {.key = *key, .hidden = tpc_coll_has_rows(key->coll) ? key->hidden : INT32_MAX};
        if (key->bytes < row->bytes_min || key->bytes > row->bytes_max) continue;
        if (row_applies(row, &dispatch->agreed, &wanted) && hard_limit(dispatch, row->path, key) != NULL) return row;
    }
    return NULL;
}

static void explain_row(const tpc_dispatch_t *dispatch, const range_t *range, tpcomm_decision_t *decision) {
    const tpc_row_t *row = range->row;
    if (row == NULL) {
        snprintf(decision->reason, sizeof decision->reason,
                 "no row of the table covers this call; %s is the first path that can", tpcomm_path_name(range->path));
        return;
    }
    char limit[40] = "any size";
    if (row->bytes_max != UINT64_MAX) snprintf(limit, sizeof limit, "%llu bytes", (unsigned long long)row->bytes_max);
    char hidden[48] = "";
    if (row->hidden_max != INT32_MAX)
        snprintf(hidden, sizeof hidden, ", rows of %d to %d", row->hidden_min, row->hidden_max);
    else if (row->hidden_min > 0)
        snprintf(hidden, sizeof hidden, ", rows of %d and more", row->hidden_min);
    const char *mode = row->capturing == TPCOMM_ON ? ", captured" : row->capturing == TPCOMM_OFF ? ", eager" : "";
    const char *from = tpc_row_from(row);
    int used =
        snprintf(decision->reason, sizeof decision->reason, "%s row: %s%s, %s%s, %d ranks, %llu bytes to %s (%s%s%s)",
                 row->built_in ? "built-in" : "tuning file's", tpcomm_coll_name(row->coll), hidden,
                 row->dtype == 0 ? "any dtype" : tpcomm_dtype_name(row->dtype), mode, row->size,
                 (unsigned long long)row->bytes_min, limit,
                 row->source == TPCOMM_SOURCE_MEASURED ? "measured" : "estimated", from[0] ? ": " : "", from);
    if (range->bytes_max > row->bytes_max && used > 0 && (size_t)used < sizeof decision->reason)
        used += snprintf(decision->reason + used, sizeof decision->reason - (size_t)used,
                         "; no path above it carries this call");
    if (row->size != dispatch->agreed.size && used > 0 && (size_t)used < sizeof decision->reason)
        snprintf(decision->reason + used, sizeof decision->reason - (size_t)used, "; there is none for %d ranks",
                 dispatch->agreed.size);
    decision->source = row->source;
}

/* In floating point, since bytes * per_mib_ns can pass 64 bits. */
static int64_t expected_ns(const tpc_row_t *row, uint64_t bytes) {
    if (row == NULL || row->base_ns < 0) return -1;
    double ns = (double)row->base_ns + (double)bytes * (double)row->per_mib_ns / 1048576.0;
    return ns < 9e18 ? (int64_t)ns : INT64_MAX;
}

tpcomm_status_t tpc_dispatch_explain(const tpc_dispatch_t *dispatch, const tpc_call_key_t *key, tpcomm_path_t forced,
                                     tpcomm_decision_t *decision_p) {
    tpcomm_decision_t decision = {.expected_ns = -1, .bytes_max = UINT64_MAX};
    tpc_call_key_t other = *key;
    other.capturing = !key->capturing;
    decision.capturing = key->capturing ? TPCOMM_ON : TPCOMM_OFF;
    decision.other_path = path_of(dispatch, &other, forced);
    tpcomm_path_t asked = asked_for(dispatch, key, forced);
    if (asked != 0) {
        tpcomm_status_t status = check_asked(dispatch, key, asked);
        if (status != TPCOMM_OK) return status;
        decision.path = asked;
        snprintf(decision.reason, sizeof decision.reason, "asked for by %s",
                 forced != 0 ? "the call" : "TPCOMM_PATH or config.path");
    } else {
        const range_t *range = find_range(dispatch, key);
        if (range == NULL) return refuse(dispatch, key);
        decision.path = settle(dispatch, key, range);
        if (decision.path == 0) return refuse(dispatch, key);
        decision.bytes_max = range->bytes_max;
        const ranges_t *ranges = ranges_of(dispatch, key);
        if (range > ranges->ranges) decision.bytes_min = range[-1].bytes_max + 1;
        if (decision.path == range->path) {
            explain_row(dispatch, range, &decision);
            decision.expected_ns = expected_ns(range->row, key->bytes);
        } else {
            snprintf(decision.reason, sizeof decision.reason, "%s gets these sizes, but: %s",
                     tpcomm_path_name(range->path), hard_limit(dispatch, range->path, key));
        }
        const tpc_row_t *passed = passed_over(dispatch, key);
        size_t used = strlen(decision.reason);
        if (passed != NULL && passed->path != range->path)
            snprintf(decision.reason + used, sizeof decision.reason - used, "; not the tuning file's %s (%s)",
                     tpcomm_path_name(passed->path), hard_limit(dispatch, passed->path, key));
    }
    for (tpcomm_path_t path = 1; path < TPC_PATH_END; path++) {
        if (path == decision.path || !has_path(dispatch, path) || !is_of_kind(path, key->coll)) continue;
        if (decision.rejected_count >= (int32_t)(sizeof decision.rejected / sizeof *decision.rejected)) break;
        tpcomm_rejected_t *rejected = &decision.rejected[decision.rejected_count++];
        const char *why = hard_limit(dispatch, path, key);
        rejected->path = path;
        if (why != NULL)
            snprintf(rejected->why_not, sizeof rejected->why_not, "%s", why);
        else
            snprintf(rejected->why_not, sizeof rejected->why_not, "%s gets these sizes",
                     tpcomm_path_name(decision.path));
    }
    *decision_p = decision;
    return TPCOMM_OK;
}
