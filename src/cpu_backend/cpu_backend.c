/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Collectives through shared memory.
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
#include "cpu_backend/internal.h"

#define LARGEST_ROW 65536u /* 16384 f32 */

static tpc_cpu_answer_t *answer_of(const tpc_cpu_state_t *state, int32_t rank, uint32_t epoch) {
    return (void *)((unsigned char *)tpc_cpu_announcement_of(state, rank, epoch) + state->layout.answer_offset);
}

static unsigned char *share_of(const tpc_cpu_state_t *state, int32_t rank, uint32_t epoch) {
    return (unsigned char *)answer_of(state, rank, epoch) + TPC_CPU_LINE;
}

static uint64_t device_bytes(const void *opaque) {
    (void)opaque;
    return 0;
}

static uint64_t rank_seq(void *opaque, int32_t rank) {
    const tpc_cpu_state_t *state = opaque;
    if (state->group.agreed.size == 1) return 0;
    uint64_t even = atomic_load_explicit(&tpc_cpu_announcement_of(state, rank, 0)->seq, memory_order_relaxed);
    uint64_t odd = atomic_load_explicit(&tpc_cpu_announcement_of(state, rank, 1)->seq, memory_order_relaxed);
    return even > odd ? even : odd;
}

static void wake(void *opaque) {
    const tpc_cpu_state_t *state = opaque;
    if (state->group.agreed.size == 1) return;
    for (int32_t r = 0; r < state->group.agreed.size; r++) {
        for (uint32_t parity = 0; parity < 2; parity++) {
            tpc_signal_wake(&tpc_cpu_announcement_of(state, r, parity)->posted);
            tpc_signal_wake(&answer_of(state, r, parity)->posted);
        }
    }
}

static void outlived(void *opaque) {
    (void)opaque; /* nothing is captured */
}

/* ------------------------------------------------------------------ failures */

/* A wait for peer ended without it: make that the group's failure. answers: the second wait of a two-shot round. */
static tpcomm_status_t wait_failed(tpc_cpu_state_t *state, const tpc_request_t *request, uint32_t epoch, bool answers,
                                   tpcomm_status_t status) {
    if (status != TPCOMM_ERR_TIMEOUT && status != TPCOMM_ERR_INTERRUPTED) return status; /* the failure in force */
    char call[256], text[480];
    int used = snprintf(text, sizeof text, "%s%s by rank %d: ", state->group.plane,
                        tpc_flight_text(request->record, call, sizeof call), state->group.rank);
    tpc_failure_place_t place = {.rank = -1, .coll = request->call->coll, .seq = request->record->seq};
    if (status == TPCOMM_ERR_INTERRUPTED) {
        snprintf(text + used, sizeof text - (size_t)used, "config.interrupted asked to stop");
    } else {
        used += snprintf(text + used, sizeof text - (size_t)used, "after %llu ms still waiting for",
                         (unsigned long long)((tpc_clock_ns() - request->record->start_ns) / 1000000u));
        for (int32_t r = 0; r < state->group.agreed.size && used < (int)sizeof text; r++) {
            const tpc_signal_t *signal =
                answers ? &answer_of(state, r, epoch)->posted : &tpc_cpu_announcement_of(state, r, epoch)->posted;
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
    return a->coll == b->coll && a->dtype == b->dtype && a->op == b->op && a->path == b->path && a->root == b->root &&
           a->count == b->count && tpc_rows_equal(&a->rows, &b->rows) &&
           atomic_load_explicit(&a->seq, memory_order_relaxed) == atomic_load_explicit(&b->seq, memory_order_relaxed);
}

static void describe(const tpc_cpu_announcement_t *announcement, char *text, size_t bytes) {
    tpc_flight_record_t record = {.seq = atomic_load_explicit(&announcement->seq, memory_order_relaxed),
                                  .coll = announcement->coll,
                                  .dtype = announcement->dtype,
                                  .op = announcement->op,
                                  .root = announcement->root,
                                  .count = announcement->count,
                                  .rows = announcement->rows};
    char call[256];
    snprintf(text, bytes, "%s by %s", tpc_flight_text(&record, call, sizeof call),
             tpcomm_path_name(announcement->path));
}

static tpcomm_status_t mismatch(tpc_cpu_state_t *state, const tpc_request_t *request, uint32_t epoch, int32_t peer) {
    char mine[288], theirs[288], text[720];
    describe(tpc_cpu_announcement_of(state, state->group.rank, epoch), mine, sizeof mine);
    describe(tpc_cpu_announcement_of(state, peer, epoch), theirs, sizeof theirs);
    const char *plane = state->group.plane;
    snprintf(text, sizeof text, "rank %d called %s%s, rank %d called %s%s", state->group.rank, plane, mine, peer, plane,
             theirs);
    tpc_failure_place_t place = {.rank = peer, .coll = request->call->coll, .seq = request->record->seq};
    return tpc_failure_raise(state->group.failure, TPCOMM_ERR_MISMATCH, place, text);
}

/* ------------------------------------------------------------------ rounds */

static void announce(tpc_cpu_state_t *state, const tpc_request_t *request, uint32_t epoch) {
    tpc_cpu_announcement_t *mine = tpc_cpu_announcement_of(state, state->group.rank, epoch);
    const tpc_flight_record_t *call = request->record;
    mine->coll = (int16_t)call->coll;
    mine->dtype = (int16_t)(tpc_coll_moves_data(call->coll) ? call->dtype : 0);
    mine->op = (int16_t)(tpc_coll_reduces(call->coll) ? call->op : 0);
    mine->root = call->coll == TPCOMM_BROADCAST ? call->root : 0;
    mine->path = (int16_t)call->path;
    mine->count = tpc_coll_moves_data(call->coll) ? call->count : 0;
    mine->rows = call->rows;
    atomic_store_explicit(&mine->seq, request->record->seq, memory_order_relaxed);
    atomic_store_explicit(&mine->arrived_ns, request->record->start_ns, memory_order_relaxed);
    /* A word that stood still for 2^32 rounds would look current again; so every round sets both. */
    if (request->path != TPCOMM_PATH_CPU_TWOSHOT)
        atomic_store_explicit(&answer_of(state, state->group.rank, epoch)->posted.value, epoch, memory_order_relaxed);
    tpc_signal_post(&mine->posted, epoch);
}

/* Wait until every peer has announced this round, and check that it is the same call. */
static tpcomm_status_t gather_announcements(tpc_cpu_state_t *state, const tpc_request_t *request, uint32_t epoch) {
    const tpc_cpu_announcement_t *mine = tpc_cpu_announcement_of(state, state->group.rank, epoch);
    for (int32_t r = 0; r < state->group.agreed.size; r++) {
        if (r == state->group.rank) continue;
        tpc_cpu_announcement_t *theirs = tpc_cpu_announcement_of(state, r, epoch);
        tpcomm_status_t status = tpc_signal_wait(&theirs->posted, epoch, state->group.wait);
        if (status != TPCOMM_OK) return wait_failed(state, request, epoch, false, status);
        if (!same_call(mine, theirs) && tpc_hook_value("no_compare", 0) == 0) return mismatch(state, request, epoch, r);
    }
    return TPCOMM_OK;
}

/* Who arrived when; valid once the first round's announcements are gathered. */
static void read_arrivals(const tpc_cpu_state_t *state, uint32_t epoch, tpc_outcome_t *outcome) {
    uint64_t first = UINT64_MAX, last = 0;
    for (int32_t r = 0; r < state->group.agreed.size; r++) {
        uint64_t at = atomic_load_explicit(&tpc_cpu_announcement_of(state, r, epoch)->arrived_ns, memory_order_relaxed);
        if (at < first) first = at;
        if (at < last) continue;
        last = at;
        outcome->last_rank = r;
    }
    outcome->skew_ns = last - first;
    outcome->begun_ns = last;
}

/* Whatever rounding and subnormal mode the caller works in. */
static void reduce_exactly(tpc_reduce_fn_t reduce, void *out, const void *const *sources, int32_t size, size_t count) {
    tpc_float_env_t env;
    tpc_float_env_enter(&env);
    reduce(out, sources, size, count);
    tpc_float_env_leave(&env);
}

/* A rank's share of a two-shot round: elements [begin, begin + count) of it. */
typedef struct {
    size_t begin, count;
} share_t;

/* Whole lines a rank, so that no two ranks write one line; the last ranks may get less or nothing. */
static share_t share_of_rank(const tpc_cpu_state_t *state, const tpc_cpu_round_t *round, int32_t rank) {
    size_t size = (size_t)state->group.agreed.size, per_line = TPC_CPU_LINE / round->element;
    size_t most = ((round->count + size - 1) / size + per_line - 1) / per_line * per_line;
    size_t begin = (size_t)rank * most < round->count ? (size_t)rank * most : round->count;
    return (share_t){begin, round->count - begin < most ? round->count - begin : most};
}

static void all_reduce_stage(const tpc_cpu_state_t *state, const tpc_cpu_round_t *round) {
    unsigned char *chunk = tpc_cpu_chunk_of(state, state->group.rank, round->epoch);
    const unsigned char *in = round->in + round->done * round->element;
    if (round->request->path != TPCOMM_PATH_CPU_TWOSHOT) {
        memcpy(chunk, in, round->count * round->element);
        return;
    }
    /* My own share nobody else reads. */
    share_t mine = share_of_rank(state, round, state->group.rank);
    size_t end = mine.begin + mine.count;
    memcpy(chunk, in, mine.begin * round->element);
    memcpy(chunk + end * round->element, in + end * round->element, (round->count - end) * round->element);
}

static tpcomm_status_t all_reduce_oneshot(tpc_cpu_state_t *state, const tpc_cpu_round_t *round) {
    const tpcomm_call_t *call = round->request->call;
    const void *sources[TPCOMM_MAX_RANKS];
    size_t at = round->done * round->element;
    for (int32_t r = 0; r < state->group.agreed.size; r++)
        sources[r] = r == state->group.rank ? round->in + at : tpc_cpu_chunk_of(state, r, round->epoch);
    reduce_exactly(state->reduce[call->dtype][call->op], round->out + at, sources, state->group.agreed.size,
                   round->count);
    return TPCOMM_OK;
}

static tpcomm_status_t all_reduce_twoshot(tpc_cpu_state_t *state, const tpc_cpu_round_t *round) {
    const tpcomm_call_t *call = round->request->call;
    int32_t size = state->group.agreed.size, me = state->group.rank;
    size_t element = round->element;
    const unsigned char *in = round->in + round->done * element;
    unsigned char *out = round->out + round->done * element;
    unsigned char *result = share_of(state, me, round->epoch);
    share_t mine = share_of_rank(state, round, me);
    if (mine.count > 0) {
        const void *sources[TPCOMM_MAX_RANKS];
        for (int32_t r = 0; r < size; r++)
            sources[r] =
                (r == me ? in : (const unsigned char *)tpc_cpu_chunk_of(state, r, round->epoch)) + mine.begin * element;
        reduce_exactly(state->reduce[call->dtype][call->op], result, sources, size, mine.count);
    }
    tpc_signal_post(&answer_of(state, me, round->epoch)->posted, round->epoch);
    memcpy(out + mine.begin * element, result, mine.count * element);
    for (int32_t i = 1; i < size; i++) {
        int32_t r = (me + i) % size;
        share_t theirs = share_of_rank(state, round, r);
        if (theirs.count == 0) continue;
        tpcomm_status_t status =
            tpc_signal_wait(&answer_of(state, r, round->epoch)->posted, round->epoch, state->group.wait);
        if (status != TPCOMM_OK) return wait_failed(state, round->request, round->epoch, true, status);
        memcpy(out + theirs.begin * element, share_of(state, r, round->epoch), theirs.count * element);
    }
    return TPCOMM_OK;
}

static void broadcast_stage(const tpc_cpu_state_t *state, const tpc_cpu_round_t *round) {
    if (round->request->call->root == state->group.rank) all_reduce_stage(state, round);
}

static tpcomm_status_t broadcast_finish(tpc_cpu_state_t *state, const tpc_cpu_round_t *round) {
    size_t at = round->done * round->element, bytes = round->count * round->element;
    int32_t root = round->request->call->root;
    const unsigned char *from =
        root == state->group.rank ? round->in + at : tpc_cpu_chunk_of(state, root, round->epoch);
    if (from != round->out + at) memcpy(round->out + at, from, bytes);
    return TPCOMM_OK;
}

static tpcomm_status_t all_gather_finish(tpc_cpu_state_t *state, const tpc_cpu_round_t *round) {
    size_t at = round->done * round->element, stride = (size_t)round->request->call->count * round->element;
    for (int32_t r = 0; r < state->group.agreed.size; r++) {
        unsigned char *to = round->out + (size_t)r * stride + at;
        const unsigned char *from = r == state->group.rank ? round->in + at : tpc_cpu_chunk_of(state, r, round->epoch);
        if (from != to) memcpy(to, from, round->count * round->element);
    }
    return TPCOMM_OK;
}

/* My chunk holds the pieces of this round for all ranks, one after the other. */
static void reduce_scatter_stage(const tpc_cpu_state_t *state, const tpc_cpu_round_t *round) {
    size_t bytes = round->count * round->element, stride = (size_t)round->request->call->count * round->element;
    unsigned char *chunk = tpc_cpu_chunk_of(state, state->group.rank, round->epoch);
    for (int32_t r = 0; r < state->group.agreed.size; r++)
        if (r != state->group.rank)
            memcpy(chunk + (size_t)r * bytes, round->in + (size_t)r * stride + round->done * round->element, bytes);
}

static tpcomm_status_t reduce_scatter_finish(tpc_cpu_state_t *state, const tpc_cpu_round_t *round) {
    const tpcomm_call_t *call = round->request->call;
    int32_t me = state->group.rank;
    size_t bytes = round->count * round->element, at = round->done * round->element;
    const void *sources[TPCOMM_MAX_RANKS];
    for (int32_t r = 0; r < state->group.agreed.size; r++)
        sources[r] = r == me ? round->in + (size_t)me * (size_t)call->count * round->element + at
                             : tpc_cpu_chunk_of(state, r, round->epoch) + (size_t)me * bytes;
    reduce_exactly(state->reduce[call->dtype][call->op], round->out + at, sources, state->group.agreed.size,
                   round->count);
    return TPCOMM_OK;
}

/* What a collective does before it announces a round and after all have announced it. */
static const struct {
    void (*stage)(const tpc_cpu_state_t *state, const tpc_cpu_round_t *round);
    tpcomm_status_t (*finish)(tpc_cpu_state_t *state, const tpc_cpu_round_t *round);
} steps[] = {
    [TPCOMM_ALL_REDUCE] = {all_reduce_stage, all_reduce_oneshot},
    [TPCOMM_BARRIER] = {NULL, NULL}, /* no data: the announcement is all */
    [TPCOMM_BROADCAST] = {broadcast_stage, broadcast_finish},
    [TPCOMM_ALL_GATHER] = {all_reduce_stage, all_gather_finish}, /* stages alike: its path is never two-shot */
    [TPCOMM_REDUCE_SCATTER] = {reduce_scatter_stage, reduce_scatter_finish},
    [TPCOMM_ALL_REDUCE_RMS_NORM] = {tpc_cpu_rows_stage, tpc_cpu_rows_finish},
    [TPCOMM_REDUCE_SCATTER_RMS_NORM] = {tpc_cpu_rows_stage, tpc_cpu_rows_finish},
    [TPCOMM_ALL_GATHER_ROWS] = {tpc_cpu_rows_stage, tpc_cpu_rows_finish},
};

/* Bytes that this rank wrote for its peers in a round. */
static uint64_t staged_bytes(const tpc_cpu_state_t *state, const tpc_cpu_round_t *round) {
    uint64_t bytes = round->count * round->element;
    const tpcomm_call_t *call = round->request->call;
    if (tpc_coll_has_rows(call->coll)) return tpc_cpu_rows_staged(state, round);
    if (call->coll == TPCOMM_REDUCE_SCATTER) return bytes * (uint64_t)(state->group.agreed.size - 1);
    if (round->request->path == TPCOMM_PATH_CPU_TWOSHOT) return bytes; /* all but my share, and my share's result */
    return call->coll == TPCOMM_BROADCAST && call->root != state->group.rank ? 0 : bytes;
}

static tpcomm_status_t run_rounds(tpc_cpu_state_t *state, const tpc_request_t *request, tpc_outcome_t *outcome) {
    const tpcomm_call_t *call = request->call;
    bool moves = tpc_coll_moves_data(call->coll);
    tpc_cpu_round_t round = {
        .request = request, .element = moves ? tpcomm_dtype_size(call->dtype) : 1, .in = call->in, .out = call->out};
    size_t total = moves ? (size_t)call->count : 0;
    if (tpc_coll_has_rows(call->coll)) total = tpc_cpu_rows_total(state, request, &round.element);
    size_t per_round = state->layout.chunk_bytes / round.element;
    if (call->coll == TPCOMM_REDUCE_SCATTER) per_round /= (size_t)state->group.agreed.size;
    do {
        round.epoch = ++state->epoch;
        round.count = total - round.done < per_round ? total - round.done : per_round;
        if (round.count > 0) steps[call->coll].stage(state, &round);
        announce(state, request, round.epoch);
        uint64_t waiting = round.done == 0 ? request->record->start_ns : tpc_clock_ns();
        tpcomm_status_t status = gather_announcements(state, request, round.epoch);
        outcome->wait_ns += tpc_clock_ns() - waiting;
        if (status == TPCOMM_OK) status = tpc_hook("reduce", state->group.rank);
        if (status != TPCOMM_OK) return status;
        if (round.done == 0) read_arrivals(state, round.epoch, outcome);
        if (round.count > 0) {
            status = request->path == TPCOMM_PATH_CPU_TWOSHOT ? all_reduce_twoshot(state, &round)
                                                              : steps[call->coll].finish(state, &round);
            if (status != TPCOMM_OK) return status;
        }
        outcome->wire_bytes += staged_bytes(state, &round);
        round.done += round.count;
    } while (round.done < total);
    return TPCOMM_OK;
}

static tpcomm_status_t run_local(const tpc_request_t *request) {
    if (request->bytes > 0 && request->call->out != request->call->in)
        memcpy(request->call->out, request->call->in, (size_t)request->bytes);
    return TPCOMM_OK;
}

static tpcomm_status_t run(void *opaque, const tpc_request_t *request, tpc_outcome_t *outcome_p) {
    tpc_cpu_state_t *state = opaque;
    *outcome_p = (tpc_outcome_t){.last_rank = -1};
    if (request->path == TPCOMM_PATH_LOCAL) return run_local(request);
    return run_rounds(state, request, outcome_p);
}

/* ------------------------------------------------------------------ the backend */

static const char *why_not_fused(const tpc_agreed_t *agreed, const tpc_call_key_t *key) {
    tpc_cpu_layout_t layout;
    if (!tpc_coll_norms(key->coll)) return "only calls with a norm are fused";
    if (agreed->topology != TPC_TOPOLOGY_CPU) return "the ranks are on several hosts and share no memory";
    if (tpc_cpu_layout(agreed, &layout) != TPCOMM_OK ||
        (size_t)key->hidden * tpcomm_dtype_size(key->dtype) > layout.chunk_bytes)
        return "a row is larger than what a round carries in so small a workspace";
    return NULL;
}

static const char *why_not(const tpc_agreed_t *agreed, tpcomm_path_t path, const tpc_call_key_t *key) {
    if (agreed->device_kind != TPCOMM_DEVICE_CPU) return "the group's device is not the cpu";
    if (tpc_coll_reduces(key->coll) && !tpc_reduction_defined(key->dtype, key->op))
        return "this reduction of this dtype is not defined";
    if (path == TPCOMM_PATH_LOCAL) return agreed->size == 1 ? NULL : "only a group of one rank needs no communication";
    if (agreed->size == 1) return "a group of one rank has nobody to talk to";
    if (path == TPCOMM_PATH_FUSED_ONESHOT) return why_not_fused(agreed, key);
    if (tpc_coll_norms(key->coll)) return "it has no norm";
    if (agreed->topology != TPC_TOPOLOGY_CPU) return "the ranks are on several hosts and share no memory";
    if (key->coll != TPCOMM_ALL_REDUCE && path == TPCOMM_PATH_CPU_TWOSHOT) return "only an all_reduce has two phases";
    return NULL;
}

static tpcomm_status_t workspace_bytes(const tpc_agreed_t *agreed, size_t *bytes_p) {
    tpc_cpu_layout_t layout;
    tpcomm_status_t status = tpc_cpu_layout(agreed, &layout);
    if (status == TPCOMM_OK) *bytes_p = layout.data_bytes;
    return status;
}

static void destroy(void *opaque) {
    tpc_cpu_state_t *state = opaque;
    free(state->row);
    free(state);
}

static tpcomm_status_t create(const tpc_backend_group_t *group, void **state_p) {
    tpc_cpu_state_t *state = malloc(sizeof *state);
    unsigned char *row = malloc(LARGEST_ROW);
    if (state == NULL || row == NULL) {
        free(state);
        free(row);
        return tpc_error(TPCOMM_ERR_NO_MEMORY, "out of memory");
    }
    *state = (tpc_cpu_state_t){.group = *group, .epoch = (uint32_t)tpc_hook_value("epoch", 0), .row = row};
    for (tpcomm_dtype_t dtype = TPCOMM_F32; dtype <= TPCOMM_F8_E5M2; dtype++)
        for (tpcomm_op_t op = TPCOMM_SUM; op <= TPCOMM_PROD; op++)
            state->reduce[dtype][op] = tpc_reduce_find(dtype, op);
    tpcomm_status_t status = tpc_cpu_layout(&group->agreed, &state->layout);
    if (status != TPCOMM_OK) {
        destroy(state);
        return status;
    }
    *state_p = state;
    return TPCOMM_OK;
}

static void poll(void *state) {
    (void)state; /* whoever fails here sets the group's word himself */
}

static tpcomm_status_t set_timeout(void *state, uint32_t timeout_ms) {
    (void)state, (void)timeout_ms; /* waits read it where the host does */
    return TPCOMM_OK;
}

static const char *check_stream(void *state, tpcomm_stream_t stream) {
    (void)state;
    return stream == NULL ? NULL : "on the cpu device it must be NULL";
}

static const char *kernels(const void *state) {
    (void)state;
    return tpc_reduce_isa();
}

static const tpcomm_path_t paths[] = {TPCOMM_PATH_CPU_ONESHOT, TPCOMM_PATH_CPU_TWOSHOT, TPCOMM_PATH_FUSED_ONESHOT,
                                      TPCOMM_PATH_LOCAL, 0};

const tpc_backend_t tpc_cpu_backend = {
    .name = "cpu",
    .device_kind = TPCOMM_DEVICE_CPU,
    .paths = paths,
    .describe = kernels,
    .version = tpc_backend_own_version,
    .why_not = why_not,
    .workspace_bytes = workspace_bytes,
    .create = create,
    .destroy = destroy,
    .wake = wake,
    .outlived = outlived,
    .poll = poll,
    .set_timeout = set_timeout,
    .note_waits = tpc_backend_notes_no_waits,
    .waits = tpc_backend_no_waits,
    .times_last = tpc_backend_nobody_last,
    .check_stream = check_stream,
    .rank_seq = rank_seq,
    .device_bytes = device_bytes,
    .run = run,
};
