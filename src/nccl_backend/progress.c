/* SPDX-License-Identifier: Apache-2.0 */
#include "nccl_backend/progress.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/status.h"
#include "base/text.h"

/* A longer gap than this between two looks: we were stopped ourselves, and peers are not late for that (signal.c). */
#define STOPPED_GAP_NS 2000000000u

enum { STARTED, ENDED };

tpcomm_status_t tpc_nccl_progress_init(tpc_nccl_progress_t *progress, const tpc_backend_group_t *group,
                                       tpc_nccl_control_t *control) {
    progress->group = group;
    progress->control = control;
    if (pthread_mutex_init(&progress->lock, NULL) == 0) return TPCOMM_OK;
    return tpc_error(TPCOMM_ERR_NO_MEMORY, "out of memory");
}

void tpc_nccl_progress_end(tpc_nccl_progress_t *progress) {
    if (progress->group != NULL) pthread_mutex_destroy(&progress->lock);
}

/* ------------------------------------------------------------------ calls */

static uint64_t what_of(const tpcomm_call_t *call) {
    uint64_t what = (uint64_t)call->coll;
    if (tpc_coll_moves_data(call->coll)) what |= (uint64_t)call->dtype << 8;
    if (tpc_coll_reduces(call->coll)) what |= (uint64_t)call->op << 16;
    if (call->coll == TPCOMM_BROADCAST) what |= (uint64_t)call->root << 24;
    return what;
}

static const char *describe(uint64_t seq, uint64_t what, uint64_t count, char *text, size_t bytes) {
    tpc_flight_record_t record = {.seq = seq,
                                  .count = count,
                                  .coll = (tpcomm_coll_t)(what & 0xFF),
                                  .dtype = (tpcomm_dtype_t)(what >> 8 & 0xFF),
                                  .op = (tpcomm_op_t)(what >> 16 & 0xFF),
                                  .root = (int32_t)(what >> 24)};
    return tpc_flight_text(&record, text, bytes);
}

static void mark(tpc_nccl_progress_t *progress, const tpc_request_t *request, int word) {
    uint32_t value = (uint32_t)request->record->seq;
    if (request->capturing || progress->no_marks) return;
    if (progress->side == NULL) {
        atomic_store(&progress->words[word], value);
        return;
    }
    if (tpc_cuda_side_mark(progress->side, request->stream, word, value) == TPCOMM_OK) return;
    progress->no_marks = true; /* by the one thread that calls */
    TPC_WARN("nccl", "calls by NCCL have no deadline here: %s", tpcomm_last_error());
}

void tpc_nccl_progress_begin(tpc_nccl_progress_t *progress, const tpc_request_t *request) {
    tpc_nccl_begun_t *mine = &progress->control->begun[progress->group->rank];
    atomic_store(&mine->seq, 0);
    atomic_store(&mine->what, what_of(request->call));
    atomic_store(&mine->count, tpc_coll_moves_data(request->call->coll) ? request->call->count : 0);
    atomic_store(&mine->seq, request->record->seq);
    atomic_store(&mine->last, request->record->seq);
    mark(progress, request, STARTED);
}

void tpc_nccl_progress_ended(tpc_nccl_progress_t *progress, const tpc_request_t *request) {
    mark(progress, request, ENDED);
}

/* ------------------------------------------------------------------ looking */

/* A rank's last call, whole; false: none, or just being written. */
static bool read_call(tpc_nccl_begun_t *begun, uint64_t *seq_p, uint64_t *what_p, uint64_t *count_p) {
    *seq_p = atomic_load(&begun->seq);
    *what_p = atomic_load(&begun->what);
    *count_p = atomic_load(&begun->count);
    return *seq_p != 0 && atomic_load(&begun->seq) == *seq_p;
}

static void compare_calls(tpc_nccl_progress_t *progress) {
    const tpc_backend_group_t *group = progress->group;
    uint64_t seq, what, count, their_seq, their_what, their_count;
    if (!read_call(&progress->control->begun[group->rank], &seq, &what, &count)) return;
    for (int32_t r = 0; r < group->agreed.size; r++) {
        if (!read_call(&progress->control->begun[r], &their_seq, &their_what, &their_count)) continue;
        if (their_seq != seq || (their_what == what && their_count == count)) continue;
        char mine[128], theirs[128], text[400];
        snprintf(text, sizeof text, "rank %d called %s by nccl, rank %d called %s by nccl", group->rank,
                 describe(seq, what, count, mine, sizeof mine), r,
                 describe(their_seq, their_what, their_count, theirs, sizeof theirs));
        tpc_failure_place_t place = {.rank = r, .coll = (tpcomm_coll_t)(what & 0xFF), .seq = seq};
        tpc_failure_raise(group->failure, TPCOMM_ERR_MISMATCH, place, text);
        return;
    }
}

static void raise_timeout(tpc_nccl_progress_t *progress, uint32_t limit_ms) {
    const tpc_backend_group_t *group = progress->group;
    uint64_t seq, what, count;
    char call[128], text[480];
    if (!read_call(&progress->control->begun[group->rank], &seq, &what, &count)) return; /* the next look */
    size_t used = tpc_text_append(text, sizeof text, 0, "%s by rank %d: NCCL has not ended it after %u ms; ",
                                  describe(seq, what, count, call, sizeof call), group->rank, limit_ms);
    tpc_failure_place_t place = {.rank = -1, .coll = (tpcomm_coll_t)(what & 0xFF), .seq = seq};
    for (int32_t r = 0; r < group->agreed.size; r++) {
        uint64_t last = atomic_load(&progress->control->begun[r].last);
        if (last >= seq) continue;
        used = tpc_text_append(text, sizeof text, used, "%s rank %d (last seq by nccl %llu)",
                               place.rank < 0 ? "still waiting for" : ",", r, (unsigned long long)last);
        if (place.rank < 0) place.rank = r;
    }
    if (place.rank < 0) (void)tpc_text_append(text, sizeof text, used, "every rank has called it");
    tpc_failure_raise(group->failure, TPCOMM_ERR_TIMEOUT, place, text);
}

/* The call under way, by its number's low half; 0: none. */
static uint32_t under_way(const tpc_nccl_progress_t *progress) {
    bool device = progress->side != NULL;
    uint32_t ended = device ? tpc_cuda_side_word(progress->side, ENDED) : atomic_load(&progress->words[ENDED]);
    uint32_t started = device ? tpc_cuda_side_word(progress->side, STARTED) : atomic_load(&progress->words[STARTED]);
    return started != ended ? started : 0;
}

void tpc_nccl_progress_look(tpc_nccl_progress_t *progress) {
    if (pthread_mutex_trylock(&progress->lock) != 0) return; /* somebody is just looking */
    uint32_t limit_ms = atomic_load(progress->group->wait->timeout_ms);
    uint64_t now = tpc_clock_ns();
    uint32_t flying = under_way(progress);
    if (flying == 0 || flying != progress->flying)
        progress->flying_ns = 0;
    else if (now - progress->looked_ns < STOPPED_GAP_NS)
        progress->flying_ns += now - progress->looked_ns;
    progress->flying = flying;
    progress->looked_ns = now;
    compare_calls(progress);
    if (flying != 0 && progress->flying_ns / 1000000u >= limit_ms) raise_timeout(progress, limit_ms);
    pthread_mutex_unlock(&progress->lock);
}
