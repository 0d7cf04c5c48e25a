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

static void mark(tpc_nccl_progress_t *progress, const tpc_request_t *request, int word) {
    uint32_t value = (uint32_t)progress->group->calls->number;
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
    mark(progress, request, STARTED);
}

void tpc_nccl_progress_ended(tpc_nccl_progress_t *progress, const tpc_request_t *request) {
    mark(progress, request, ENDED);
}

/* ------------------------------------------------------------------ looking */

/* flying: the low half of the call's number. */
static void raise_timeout(tpc_nccl_progress_t *progress, uint32_t flying, uint32_t limit_ms) {
    const tpc_backend_group_t *group = progress->group;
    uint64_t number = tpc_calls_last(group->calls, group->rank);
    number -= (uint32_t)((uint32_t)number - flying);
    tpc_call_note_t mine = {0};
    char call[200], text[480];
    bool unseen = false;
    if (tpc_calls_read(group->calls, group->rank, number, &mine))
        tpc_calls_text(&mine, call, sizeof call);
    else
        snprintf(call, sizeof call, "a call");
    size_t used = tpc_text_append(text, sizeof text, 0, "%s by rank %d: NCCL has not ended it after %u ms; ", call,
                                  group->rank, limit_ms);
    tpc_failure_place_t place = {.rank = -1, .coll = (tpcomm_coll_t)(mine.what & 0xFF), .seq = mine.seq};
    for (int32_t r = 0; r < group->agreed.size; r++) {
        unseen = unseen || progress->unseen[r];
        if (progress->unseen[r] || tpc_calls_last(group->calls, r) >= number) continue;
        used = tpc_text_append(text, sizeof text, used, "%s rank %d (last seq %llu)",
                               place.rank < 0 ? "still waiting for" : ",", r,
                               (unsigned long long)tpc_calls_last_seq(group->calls, r));
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

void tpc_nccl_progress_look(tpc_nccl_progress_t *progress, bool compares) {
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
    bool late = flying != 0 && progress->flying_ns / 1000000u >= limit_ms;
    if (compares || late) tpc_calls_compare(progress->group->calls); /* another call is why it is late */
    if (late) raise_timeout(progress, flying, limit_ms);
    pthread_mutex_unlock(&progress->lock);
}
