/* SPDX-License-Identifier: Apache-2.0 */
/*
 * AllReduce and barrier through shared memory.
 *
 * Protocol. A message travels in rounds of at most chunk_bytes; every round has an epoch, the same on all ranks, and
 * uses the half of each rank's area that belongs to the epoch's parity. one-shot: copy my chunk in, announce; wait for
 * every peer's announcement; reduce all chunks in rank order straight into out. two-shot: the same up to the wait;
 * reduce my share of the chunk into my result area and out, answer; wait for every peer's answer and copy its share. A
 * rank ends round e only after every peer has announced e, and a peer announces e only after it has ended e-1. So a
 * rank that begins e+1 knows that everybody has ended e-1, and may write the half that e-1 used: two parities suffice
 * and no closing barrier is needed (the argument of KERNELS' invariant; holds for any mix of sizes and paths, since
 * every round is complete). Announcements carry the call, so a rank that called something else is a MISMATCH before any
 * data is used. Epochs are compared for equality only and may wrap: a word read for epoch e holds e or e-2.
 */
#include "cpu_backend/cpu_backend.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/hook.h"
#include "cpu_backend/layout.h"
#include "cpu_backend/reduce.h"

typedef struct {
    tpc_backend_group_t group;
    tpc_cpu_layout_t layout;
    uint32_t epoch; /* of the last round begun */
    tpc_reduce_fn_t reduce[TPCOMM_F8_E5M2 + 1][TPCOMM_PROD + 1]; /* by dtype and op; NULL where not defined */
} state_t;

static tpc_cpu_announcement_t *announcement_of(const state_t *state, int32_t rank, uint32_t epoch) {
    return (void *)(state->group.workspace->data + state->layout.ranks_offset +
                    (size_t)rank * state->layout.rank_stride + (epoch & 1u) * state->layout.parity_stride);
}

static unsigned char *chunk_of(const state_t *state, int32_t rank, uint32_t epoch) {
    return (unsigned char *)announcement_of(state, rank, epoch) + TPC_CPU_LINE;
}

static tpc_cpu_answer_t *answer_of(const state_t *state, int32_t rank, uint32_t epoch) {
    return (void *)((unsigned char *)announcement_of(state, rank, epoch) + state->layout.answer_offset);
}

static unsigned char *share_of(const state_t *state, int32_t rank, uint32_t epoch) {
    return (unsigned char *)answer_of(state, rank, epoch) + TPC_CPU_LINE;
}

static uint64_t rank_seq(void *opaque, int32_t rank) {
    const state_t *state = opaque;
    if (state->group.agreed.size == 1) return 0;
    uint64_t even = atomic_load_explicit(&announcement_of(state, rank, 0)->seq, memory_order_relaxed);
    uint64_t odd = atomic_load_explicit(&announcement_of(state, rank, 1)->seq, memory_order_relaxed);
    return even > odd ? even : odd;
}

static void wake(void *opaque) {
    const state_t *state = opaque;
    if (state->group.agreed.size == 1) return;
    for (int32_t r = 0; r < state->group.agreed.size; r++) {
        for (uint32_t parity = 0; parity < 2; parity++) {
            tpc_signal_wake(&announcement_of(state, r, parity)->posted);
            tpc_signal_wake(&answer_of(state, r, parity)->posted);
        }
    }
}

/* ------------------------------------------------------------------ failures */

/* A wait for peer ended without it: make that the group's failure. answers: the second wait of a two-shot round. */
static tpcomm_status_t wait_failed(state_t *state, const tpc_request_t *request, uint32_t epoch, bool answers,
                                   tpcomm_status_t status) {
    if (status != TPCOMM_ERR_TIMEOUT && status != TPCOMM_ERR_INTERRUPTED) return status; /* the failure in force */
    char call[128], text[480];
    int used = snprintf(text, sizeof text, "%s by rank %d: ", tpc_flight_text(request->record, call, sizeof call),
                        state->group.rank);
    tpc_failure_place_t place = {.rank = -1, .coll = request->call->coll, .seq = request->record->seq};
    if (status == TPCOMM_ERR_INTERRUPTED) {
        snprintf(text + used, sizeof text - (size_t)used, "config.interrupted asked to stop");
    } else {
        used += snprintf(text + used, sizeof text - (size_t)used, "after %llu ms still waiting for",
                         (unsigned long long)((tpc_clock_ns() - request->record->start_ns) / 1000000u));
        for (int32_t r = 0; r < state->group.agreed.size && used < (int)sizeof text; r++) {
            const tpc_signal_t *signal =
                answers ? &answer_of(state, r, epoch)->posted : &announcement_of(state, r, epoch)->posted;
            if (r == state->group.rank || atomic_load_explicit(&signal->value, memory_order_acquire) == epoch) continue;
            used += snprintf(text + used, sizeof text - (size_t)used, "%s rank %d (last seq %llu)",
                             place.rank < 0 ? "" : ",", r, (unsigned long long)rank_seq(state, r));
            if (place.rank < 0) place.rank = r;
        }
        if (place.rank < 0) snprintf(text + used, sizeof text - (size_t)used, " nobody: all arrived just now");
    }
    return tpc_failure_raise(state->group.failure, status, place, text);
}

static bool same_call(const tpc_cpu_announcement_t *a, const tpc_cpu_announcement_t *b) {
    return a->coll == b->coll && a->dtype == b->dtype && a->op == b->op && a->path == b->path && a->count == b->count &&
           atomic_load_explicit(&a->seq, memory_order_relaxed) == atomic_load_explicit(&b->seq, memory_order_relaxed);
}

static void describe(const tpc_cpu_announcement_t *announcement, char *text, size_t bytes) {
    tpc_flight_record_t record = {.seq = atomic_load_explicit(&announcement->seq, memory_order_relaxed),
                                  .coll = announcement->coll,
                                  .dtype = announcement->dtype,
                                  .op = announcement->op,
                                  .count = announcement->count};
    char call[128];
    snprintf(text, bytes, "%s by %s", tpc_flight_text(&record, call, sizeof call),
             tpcomm_path_name(announcement->path));
}

static tpcomm_status_t mismatch(state_t *state, const tpc_request_t *request, uint32_t epoch, int32_t peer) {
    char mine[160], theirs[160], text[480];
    describe(announcement_of(state, state->group.rank, epoch), mine, sizeof mine);
    describe(announcement_of(state, peer, epoch), theirs, sizeof theirs);
    snprintf(text, sizeof text, "rank %d called %s, rank %d called %s", state->group.rank, mine, peer, theirs);
    tpc_failure_place_t place = {.rank = peer, .coll = request->call->coll, .seq = request->record->seq};
    return tpc_failure_raise(state->group.failure, TPCOMM_ERR_MISMATCH, place, text);
}

/* ------------------------------------------------------------------ rounds */

static void announce(state_t *state, const tpc_request_t *request, uint32_t epoch) {
    tpc_cpu_announcement_t *mine = announcement_of(state, state->group.rank, epoch);
    bool moves_data = request->call->coll != TPCOMM_BARRIER;
    mine->coll = request->call->coll;
    mine->dtype = moves_data ? request->call->dtype : 0;
    mine->op = moves_data ? request->call->op : 0;
    mine->path = request->path;
    mine->count = moves_data ? request->call->count : 0;
    atomic_store_explicit(&mine->seq, request->record->seq, memory_order_relaxed);
    atomic_store_explicit(&mine->arrived_ns, request->record->start_ns, memory_order_relaxed);
    /* A word that stood still for 2^32 rounds would look current again; so every round sets both. */
    if (request->path != TPCOMM_PATH_CPU_TWOSHOT)
        atomic_store_explicit(&answer_of(state, state->group.rank, epoch)->posted.value, epoch, memory_order_relaxed);
    tpc_signal_post(&mine->posted, epoch);
}

/* Wait until every peer has announced this round, and check that it is the same call. */
static tpcomm_status_t gather_announcements(state_t *state, const tpc_request_t *request, uint32_t epoch) {
    const tpc_cpu_announcement_t *mine = announcement_of(state, state->group.rank, epoch);
    for (int32_t r = 0; r < state->group.agreed.size; r++) {
        if (r == state->group.rank) continue;
        tpc_cpu_announcement_t *theirs = announcement_of(state, r, epoch);
        tpcomm_status_t status = tpc_signal_wait(&theirs->posted, epoch, state->group.wait);
        if (status != TPCOMM_OK) return wait_failed(state, request, epoch, false, status);
        if (!same_call(mine, theirs)) return mismatch(state, request, epoch, r);
    }
    return TPCOMM_OK;
}

/* Who arrived when; valid once the first round's announcements are gathered. */
static void read_arrivals(const state_t *state, uint32_t epoch, tpc_outcome_t *outcome) {
    uint64_t first = UINT64_MAX, last = 0;
    for (int32_t r = 0; r < state->group.agreed.size; r++) {
        uint64_t at = atomic_load_explicit(&announcement_of(state, r, epoch)->arrived_ns, memory_order_relaxed);
        if (at < first) first = at;
        if (at < last) continue;
        last = at;
        outcome->last_rank = r;
    }
    outcome->skew_ns = last - first;
}

/* Whatever rounding and subnormal mode the caller works in. */
static void reduce_exactly(tpc_reduce_fn_t reduce, void *out, const void *const *sources, int32_t size, size_t count) {
    tpc_float_env_t env;
    tpc_float_env_enter(&env);
    reduce(out, sources, size, count);
    tpc_float_env_leave(&env);
}

/* The two ways to finish a round whose announcements are gathered. in and out are the round's part of the message. */
static void finish_oneshot(const state_t *state, uint32_t epoch, tpc_reduce_fn_t reduce, const unsigned char *in,
                           unsigned char *out, size_t count) {
    const void *sources[TPCOMM_MAX_RANKS];
    for (int32_t r = 0; r < state->group.agreed.size; r++)
        sources[r] = r == state->group.rank ? in : chunk_of(state, r, epoch);
    reduce_exactly(reduce, out, sources, state->group.agreed.size, count);
}

static tpcomm_status_t finish_twoshot(state_t *state, const tpc_request_t *request, uint32_t epoch,
                                      tpc_reduce_fn_t reduce, const unsigned char *in, unsigned char *out,
                                      size_t count) {
    int32_t size = state->group.agreed.size, me = state->group.rank;
    size_t element = tpcomm_dtype_size(request->call->dtype), per_line = TPC_CPU_LINE / element;
    /* Whole lines a rank, so that no two ranks write one line; the last ranks may get less or nothing. */
    size_t share = ((count + (size_t)size - 1) / (size_t)size + per_line - 1) / per_line * per_line;
    size_t begin = (size_t)me * share < count ? (size_t)me * share : count;
    size_t mine = count - begin < share ? count - begin : share;
    if (mine > 0) {
        const void *sources[TPCOMM_MAX_RANKS];
        for (int32_t r = 0; r < size; r++)
            sources[r] = (r == me ? in : (const unsigned char *)chunk_of(state, r, epoch)) + begin * element;
        reduce_exactly(reduce, share_of(state, me, epoch), sources, size, mine);
        memcpy(out + begin * element, share_of(state, me, epoch), mine * element);
    }
    tpc_signal_post(&answer_of(state, me, epoch)->posted, epoch);
    for (int32_t i = 1; i < size; i++) {
        int32_t r = (me + i) % size;
        size_t from = (size_t)r * share;
        if (from >= count) continue;
        tpcomm_status_t status = tpc_signal_wait(&answer_of(state, r, epoch)->posted, epoch, state->group.wait);
        if (status != TPCOMM_OK) return wait_failed(state, request, epoch, true, status);
        memcpy(out + from * element, share_of(state, r, epoch),
               (count - from < share ? count - from : share) * element);
    }
    return TPCOMM_OK;
}

static tpcomm_status_t run_rounds(state_t *state, const tpc_request_t *request, tpc_outcome_t *outcome) {
    const tpcomm_call_t *call = request->call;
    size_t element = call->coll == TPCOMM_BARRIER ? 1 : tpcomm_dtype_size(call->dtype);
    size_t left = call->coll == TPCOMM_BARRIER ? 0 : (size_t)call->count,
           per_round = state->layout.chunk_bytes / element;
    tpc_reduce_fn_t reduce = left > 0 ? state->reduce[call->dtype][call->op] : NULL;
    const unsigned char *in = call->in;
    unsigned char *out = call->out;
    bool first = true;
    do {
        uint32_t epoch = ++state->epoch;
        size_t count = left < per_round ? left : per_round;
        if (count > 0) memcpy(chunk_of(state, state->group.rank, epoch), in, count * element);
        announce(state, request, epoch);
        uint64_t waiting = first ? request->record->start_ns : tpc_clock_ns();
        tpcomm_status_t status = gather_announcements(state, request, epoch);
        outcome->wait_ns += tpc_clock_ns() - waiting;
        if (status == TPCOMM_OK) status = tpc_hook("reduce", state->group.rank);
        if (status != TPCOMM_OK) return status;
        if (first) read_arrivals(state, epoch, outcome);
        if (count > 0) {
            if (request->path == TPCOMM_PATH_CPU_ONESHOT)
                finish_oneshot(state, epoch, reduce, in, out, count);
            else
                status = finish_twoshot(state, request, epoch, reduce, in, out, count);
            if (status != TPCOMM_OK) return status;
            outcome->wire_bytes += count * element;
            in += count * element;
            out += count * element;
            left -= count;
        }
        first = false;
    } while (left > 0);
    return TPCOMM_OK;
}

static tpcomm_status_t run_local(const tpc_request_t *request) {
    if (request->bytes > 0 && request->call->out != request->call->in)
        memcpy(request->call->out, request->call->in, (size_t)request->bytes);
    return TPCOMM_OK;
}

static tpcomm_status_t run(void *opaque, const tpc_request_t *request, tpc_outcome_t *outcome_p) {
    state_t *state = opaque;
    *outcome_p = (tpc_outcome_t){.last_rank = -1};
    if (request->path == TPCOMM_PATH_LOCAL) return run_local(request);
    return run_rounds(state, request, outcome_p);
}

/* ------------------------------------------------------------------ the backend */

static const char *why_not(const tpc_agreed_t *agreed, tpcomm_path_t path, const tpc_call_key_t *key) {
    if (agreed->device_kind != TPCOMM_DEVICE_CPU) return "the group's device is not the cpu";
    if (key->coll == TPCOMM_ALL_REDUCE && !tpc_reduction_defined(key->dtype, key->op))
        return "this reduction of this dtype is not defined";
    if (path == TPCOMM_PATH_LOCAL) return agreed->size == 1 ? NULL : "only a group of one rank needs no communication";
    if (agreed->size == 1) return "a group of one rank has nobody to talk to";
    if (agreed->topology != TPC_TOPOLOGY_CPU) return "the ranks are on several hosts and share no memory";
    if (key->coll == TPCOMM_BARRIER && path == TPCOMM_PATH_CPU_TWOSHOT) return "a barrier carries no data to share out";
    return NULL;
}

static tpcomm_status_t workspace_bytes(const tpc_agreed_t *agreed, size_t *bytes_p) {
    tpc_cpu_layout_t layout;
    tpcomm_status_t status = tpc_cpu_layout(agreed, &layout);
    if (status == TPCOMM_OK) *bytes_p = layout.data_bytes;
    return status;
}

static tpcomm_status_t create(const tpc_backend_group_t *group, void **state_p) {
    state_t *state = malloc(sizeof *state);
    if (state == NULL) return tpc_error(TPCOMM_ERR_NO_MEMORY, "out of memory");
    *state = (state_t){.group = *group, .epoch = (uint32_t)tpc_hook_value("epoch", 0)};
    for (tpcomm_dtype_t dtype = TPCOMM_F32; dtype <= TPCOMM_F8_E5M2; dtype++)
        for (tpcomm_op_t op = TPCOMM_SUM; op <= TPCOMM_PROD; op++) state->reduce[dtype][op] = tpc_reduce_find(dtype, op);
    tpcomm_status_t status = tpc_cpu_layout(&group->agreed, &state->layout);
    if (status != TPCOMM_OK) {
        free(state);
        return status;
    }
    *state_p = state;
    return TPCOMM_OK;
}

static void destroy(void *state) {
    free(state);
}

static const tpcomm_path_t paths[] = {TPCOMM_PATH_CPU_ONESHOT, TPCOMM_PATH_CPU_TWOSHOT, TPCOMM_PATH_LOCAL, 0};

const tpc_backend_t tpc_cpu_backend = {
    .name = "cpu",
    .paths = paths,
    .why_not = why_not,
    .workspace_bytes = workspace_bytes,
    .create = create,
    .destroy = destroy,
    .wake = wake,
    .rank_seq = rank_seq,
    .run = run,
};
