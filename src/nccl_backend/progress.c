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
    uint64_t seq = request->record->seq;
    tpc_nccl_calls_t *mine = &progress->control->ranks[progress->group->rank];
    tpc_nccl_begun_t *begun = &mine->calls[seq & (TPC_NCCL_CALLS - 1)];
    atomic_store(&begun->seq, 0);
    atomic_store(&begun->what, what_of(request->call));
    atomic_store(&begun->count, tpc_coll_moves_data(request->call->coll) ? request->call->count : 0);
    atomic_store(&begun->seq, seq);
    atomic_store(&mine->last, seq);
    mark(progress, request, STARTED);
}

void tpc_nccl_progress_ended(tpc_nccl_progress_t *progress, const tpc_request_t *request) {
    mark(progress, request, ENDED);
}

/* ------------------------------------------------------------------ looking */

typedef struct {
    uint64_t seq, what, count;
} call_t;

/* One of a rank's calls, whole; false: none, or just being written. */
static bool read_call(tpc_nccl_calls_t *calls, uint64_t seq, call_t *call_p) {
    tpc_nccl_begun_t *begun = &calls->calls[seq & (TPC_NCCL_CALLS - 1)];
    *call_p = (call_t){
        .seq = atomic_load(&begun->seq), .what = atomic_load(&begun->what), .count = atomic_load(&begun->count)};
    return call_p->seq != 0 && atomic_load(&begun->seq) == call_p->seq;
}

static void raise_mismatch(tpc_nccl_progress_t *progress, const call_t *mine, int32_t peer, const call_t *theirs) {
    char my_call[128], their_call[128], text[400];
    snprintf(text, sizeof text, "rank %d called %s by nccl, rank %d called %s by nccl", progress->group->rank,
             describe(mine->seq, mine->what, mine->count, my_call, sizeof my_call), peer,
             describe(theirs->seq, theirs->what, theirs->count, their_call, sizeof their_call));
    tpc_failure_place_t place = {.rank = peer, .coll = (tpcomm_coll_t)(mine->what & 0xFF), .seq = mine->seq};
    tpc_failure_raise(progress->group->failure, TPCOMM_ERR_MISMATCH, place, text);
}

/* The oldest call known of two ranks in which they differ. */
static void compare_calls(tpc_nccl_progress_t *progress) {
    const tpc_backend_group_t *group = progress->group;
    tpc_nccl_calls_t *ranks = progress->control->ranks;
    uint64_t last = atomic_load(&ranks[group->rank].last);
    for (uint64_t i = TPC_NCCL_CALLS; i-- > 0;) {
        call_t mine, theirs;
        if (i >= last || !read_call(&ranks[group->rank], last - i, &mine)) continue;
        for (int32_t r = 0; r < group->agreed.size; r++) {
            if (!read_call(&ranks[r], mine.seq, &theirs) || theirs.seq != mine.seq) continue;
            if (theirs.what == mine.what && theirs.count == mine.count) continue;
            raise_mismatch(progress, &mine, r, &theirs);
            return;
        }
    }
}

/* flying: the low half of the call's number. */
static void raise_timeout(tpc_nccl_progress_t *progress, uint32_t flying, uint32_t limit_ms) {
    const tpc_backend_group_t *group = progress->group;
    tpc_nccl_calls_t *ranks = progress->control->ranks;
    uint64_t seq = atomic_load(&ranks[group->rank].last);
    seq -= (uint32_t)((uint32_t)seq - flying);
    call_t mine;
    char call[128], text[480];
    bool unseen = false;
    if (!read_call(&ranks[group->rank], seq, &mine) || mine.seq != seq) mine = (call_t){.seq = seq};
    if (mine.what != 0)
        describe(seq, mine.what, mine.count, call, sizeof call);
    else
        snprintf(call, sizeof call, "call %llu", (unsigned long long)seq);
    size_t used = tpc_text_append(text, sizeof text, 0, "%s by rank %d: NCCL has not ended it after %u ms; ", call,
                                  group->rank, limit_ms);
    tpc_failure_place_t place = {.rank = -1, .coll = (tpcomm_coll_t)(mine.what & 0xFF), .seq = seq};
    for (int32_t r = 0; r < group->agreed.size; r++) {
        uint64_t last = atomic_load(&ranks[r].last);
        unseen = unseen || progress->elsewhere[r];
        if (progress->elsewhere[r] || last >= seq) continue;
        used = tpc_text_append(text, sizeof text, used, "%s rank %d (last seq by nccl %llu)",
                               place.rank < 0 ? "still waiting for" : ",", r, (unsigned long long)last);
        if (place.rank < 0) place.rank = r;
    }
    if (place.rank < 0)
        (void)tpc_text_append(text, sizeof text, used, "every rank%s has called it", unseen ? " of this host" : "");
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
    if (flying != 0 && progress->flying_ns / 1000000u >= limit_ms) raise_timeout(progress, flying, limit_ms);
    pthread_mutex_unlock(&progress->lock);
}
