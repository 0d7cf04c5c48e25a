/* SPDX-License-Identifier: Apache-2.0 */
#include "graph_capture/capture_log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/hash.h"
#include "base/status.h"
#include "base/text.h"

#define FIRST_ROOM 256u

tpcomm_status_t tpc_capture_log_new(tpc_capture_log_t **log_p) {
    tpc_capture_log_t *log = calloc(1, sizeof *log);
    if (log == NULL) return tpc_error(TPCOMM_ERR_NO_MEMORY, "out of memory");
    log->hash = TPC_HASH_START;
    *log_p = log;
    return TPCOMM_OK;
}

void tpc_capture_log_free(tpc_capture_log_t *log) {
    if (log == NULL) return;
    free(log->calls);
    free(log);
}

static bool make_room(tpc_capture_log_t *log) {
    if (log->kept < log->room) return true;
    size_t room = log->room == 0 ? FIRST_ROOM : 2 * log->room;
    if (room > TPC_CAPTURE_CALLS) return false;
    tpc_captured_t *calls = realloc(log->calls, room * sizeof *calls);
    if (calls == NULL) return false;
    log->calls = calls;
    log->room = room;
    return true;
}

void tpc_capture_log_add(tpc_capture_log_t *log, const tpc_flight_record_t *call, uint64_t ordinal) {
    if (ordinal == 1) log->graphs++;
    uint64_t facts[3] = {tpc_flight_hash(call), log->graphs, ordinal};
    log->hash = tpc_hash(log->hash, facts, sizeof facts);
    /* Kept are the first ones without a gap, or their numbers would be wrong. */
    if (log->kept == log->count && make_room(log)) {
        tpc_captured_t *kept = &log->calls[log->kept++];
        memset(kept, 0, sizeof *kept); /* it is sent as bytes */
        kept->prefix = log->hash;
        kept->graph = log->graphs;
        kept->ordinal = ordinal;
        kept->call = *call;
        kept->call.seq = 0; /* its text names no number: ranks may count differently */
    }
    log->count++;
}

/* ------------------------------------------------------------------ comparing */

/* What every rank tells first. */
typedef struct {
    uint64_t count, graphs, hash, kept;
} summary_t;

static uint64_t prefix(const tpc_capture_log_t *log, uint64_t calls) {
    return calls == 0 || calls > log->kept ? TPC_HASH_START : log->calls[calls - 1].prefix;
}

/* The greatest number of calls up to most that ranks 0 and odd have in common. All ranks take part in each step. */
static tpcomm_status_t count_equal(const tpc_capture_log_t *log, int32_t odd, uint64_t most,
                                   tpc_capture_exchange_fn exchange, void *arg, uint64_t *equal_p) {
    uint64_t equal = 0, differ = most + 1, all[TPCOMM_MAX_RANKS];
    while (differ - equal > 1) {
        uint64_t middle = equal + (differ - equal) / 2, mine = prefix(log, middle);
        tpcomm_status_t status = exchange(arg, &mine, sizeof mine, all);
        if (status != TPCOMM_OK) return status;
        *(all[0] == all[odd] ? &equal : &differ) = middle;
    }
    *equal_p = equal;
    return TPCOMM_OK;
}

/* "rank 0 captured 3 calls in 1 graph". */
static size_t describe_rank(char *text, size_t bytes, size_t used, int32_t rank, const summary_t *summary) {
    used = tpc_text_append(text, bytes, used, "rank %d captured %llu call%s", rank, (unsigned long long)summary->count,
                           summary->count == 1 ? "" : "s");
    if (summary->graphs > 0)
        used = tpc_text_append(text, bytes, used, " in %llu graph%s", (unsigned long long)summary->graphs,
                               summary->graphs == 1 ? "" : "s");
    return used;
}

/* "rank 0 all_reduce count 4096 bf16 sum by oneshot (call 2 of graph 1)"; present: it has such a call. */
static size_t describe_call(char *text, size_t bytes, size_t used, int32_t rank, const tpc_captured_t *captured,
                            bool present) {
    char call[256];
    if (!present) return tpc_text_append(text, bytes, used, "rank %d nothing", rank);
    used = tpc_text_append(text, bytes, used, "rank %d %s by %s", rank,
                           tpc_flight_text(&captured->call, call, sizeof call), tpcomm_path_name(captured->call.path));
    if (captured->graph > 0)
        used = tpc_text_append(text, bytes, used, " (call %llu of graph %llu)", (unsigned long long)captured->ordinal,
                               (unsigned long long)captured->graph);
    return used;
}

static tpcomm_status_t name_difference(const tpc_capture_log_t *log, const summary_t *all, int32_t odd,
                                       tpc_capture_exchange_fn exchange, void *arg) {
    tpc_captured_t mine, calls[TPCOMM_MAX_RANKS];
    uint64_t kept = all[0].kept < all[odd].kept ? all[0].kept : all[odd].kept, equal = 0;
    tpcomm_status_t status = count_equal(log, odd, kept, exchange, arg, &equal);
    if (status != TPCOMM_OK) return status;
    memset(&mine, 0, sizeof mine);
    if (equal < log->kept) mine = log->calls[equal];
    status = exchange(arg, &mine, sizeof mine, calls);
    if (status != TPCOMM_OK) return status;

    char text[480];
    size_t used = describe_rank(text, sizeof text, 0, 0, &all[0]);
    used = tpc_text_append(text, sizeof text, used, ", ");
    used = describe_rank(text, sizeof text, used, odd, &all[odd]);
    bool known[2] = {equal < all[0].kept, equal < all[odd].kept}; /* its call after the equal ones */
    bool none[2] = {equal == all[0].count, equal == all[odd].count};
    if ((known[0] || none[0]) && (known[1] || none[1])) {
        used = tpc_text_append(text, sizeof text, used,
                               "; first difference at call %llu: ", (unsigned long long)(equal + 1));
        used = describe_call(text, sizeof text, used, 0, &calls[0], known[0]);
        used = tpc_text_append(text, sizeof text, used, ", ");
        describe_call(text, sizeof text, used, odd, &calls[odd], known[1]);
    } else {
        tpc_text_append(text, sizeof text, used, "; the first %llu calls are equal, what follows was not kept",
                        (unsigned long long)equal);
    }
    return tpc_error(TPCOMM_ERR_MISMATCH, "%s", text);
}

tpcomm_status_t tpc_capture_log_compare(const tpc_capture_log_t *log, int32_t size, tpc_capture_exchange_fn exchange,
                                        void *arg) {
    summary_t mine = {.count = log->count, .graphs = log->graphs, .hash = log->hash, .kept = log->kept};
    summary_t all[TPCOMM_MAX_RANKS];
    tpcomm_status_t status = exchange(arg, &mine, sizeof mine, all);
    if (status != TPCOMM_OK) return status;
    for (int32_t r = 1; r < size; r++)
        if (all[r].count != all[0].count || all[r].hash != all[0].hash)
            return name_difference(log, all, r, exchange, arg);
    return TPCOMM_OK;
}
