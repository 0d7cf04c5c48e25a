/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Collectives on rows, in the rounds of cpu_backend.c. With a norm: a round carries whole rows; each is summed into a
 * row of this rank's own (or into the caller's sum), then normalised while it is in the nearest cache. In a
 * reduce_scatter the ranks' rows take turns, so that a round has work for every rank whatever a chunk holds.
 */
#include <string.h>

#include "cpu_backend/internal.h"
#include "cpu_backend/norm.h"

/* A row as the rounds count them. */
typedef struct {
    int32_t owner;  /* the rank that normalises it; -1: every rank */
    bool exists;    /* the last ranks may have fewer rows than the first */
    uint64_t row;   /* of in */
    uint64_t index; /* of the outputs */
} place_t;

static place_t place_of(const tpc_cpu_state_t *state, const tpc_cpu_round_t *round, uint64_t number) {
    const tpc_request_t *request = round->request;
    if (request->call->coll == TPCOMM_ALL_REDUCE_RMS_NORM) return (place_t){-1, true, number, number};
    uint64_t size = (uint64_t)state->group.agreed.size, tokens = request->norm->tokens;
    place_t place = {.owner = (int32_t)(number % size), .index = number / size};
    place.row = (uint64_t)place.owner * tpc_rows_per_rank(tokens, state->group.agreed.size) + place.index;
    place.exists = place.row < tokens;
    return place;
}

static bool is_staged(const tpc_cpu_state_t *state, const place_t *place) {
    return place->exists && place->owner != state->group.rank; /* my own rows nobody else reads */
}

static const unsigned char *in_row(const tpc_cpu_round_t *round, uint64_t row) {
    const tpcomm_rms_norm_t *norm = round->request->norm;
    return tpc_norm_at(norm->in, row, norm->in_stride, tpcomm_dtype_size(norm->dtype));
}

/* ------------------------------------------------------------------ with a norm */

static void norm_stage(const tpc_cpu_state_t *state, const tpc_cpu_round_t *round) {
    unsigned char *chunk = tpc_cpu_chunk_of(state, state->group.rank, round->epoch);
    for (size_t i = 0; i < round->count; i++) {
        place_t place = place_of(state, round, round->done + i);
        if (is_staged(state, &place)) memcpy(chunk + i * round->element, in_row(round, place.row), round->element);
    }
}

static void norm_finish(tpc_cpu_state_t *state, const tpc_cpu_round_t *round) {
    const tpcomm_rms_norm_t *norm = round->request->norm;
    int32_t me = state->group.rank, size = state->group.agreed.size;
    size_t element = tpcomm_dtype_size(norm->dtype);
    tpc_norm_fn_t kernel = tpc_norm_find(norm->dtype, norm->weight_dtype);
    tpc_float_env_t env;
    tpc_float_env_enter(&env);
    for (size_t i = 0; i < round->count; i++) {
        place_t place = place_of(state, round, round->done + i);
        if (!place.exists || (place.owner >= 0 && place.owner != me)) continue;
        const void *sources[TPCOMM_MAX_RANKS];
        for (int32_t r = 0; r < size; r++)
            sources[r] =
                r == me ? in_row(round, place.row) : tpc_cpu_chunk_of(state, r, round->epoch) + i * round->element;
        void *sum = norm->sum != NULL ? tpc_norm_at(norm->sum, place.index, norm->sum_stride, element) : state->row;
        state->reduce[norm->dtype][TPCOMM_SUM](sum, sources, size, (size_t)norm->hidden);
        tpc_norm_row_t row = tpc_norm_row(norm, place.index, sum);
        kernel(&row);
    }
    tpc_float_env_leave(&env);
}

/* ------------------------------------------------------------------ all_gather_rows */

/* Elements of rank's part that a round carries. */
static size_t part_of(const tpc_cpu_state_t *state, const tpc_cpu_round_t *round, int32_t rank) {
    const tpcomm_call_t *call = round->request->call;
    uint64_t hidden = (uint64_t)call->hidden;
    uint64_t all = tpc_row_range(call->count / hidden, state->group.agreed.size, rank).count * hidden;
    if (all <= round->done) return 0;
    return all - round->done < round->count ? (size_t)all - round->done : round->count;
}

static void gather_stage(const tpc_cpu_state_t *state, const tpc_cpu_round_t *round) {
    size_t bytes = part_of(state, round, state->group.rank) * round->element;
    if (bytes > 0)
        memcpy(tpc_cpu_chunk_of(state, state->group.rank, round->epoch), round->in + round->done * round->element,
               bytes);
}

static void gather_finish(const tpc_cpu_state_t *state, const tpc_cpu_round_t *round) {
    const tpcomm_call_t *call = round->request->call;
    size_t hidden = (size_t)call->hidden, at = round->done * round->element;
    for (int32_t r = 0; r < state->group.agreed.size; r++) {
        size_t bytes = part_of(state, round, r) * round->element;
        if (bytes == 0) continue;
        size_t first = (size_t)tpc_row_range(call->count / hidden, state->group.agreed.size, r).first;
        unsigned char *to = round->out + first * hidden * round->element + at;
        const unsigned char *from = r == state->group.rank ? round->in + at : tpc_cpu_chunk_of(state, r, round->epoch);
        if (from != to) memcpy(to, from, bytes);
    }
}

/* ------------------------------------------------------------------ the rounds' side */

size_t tpc_cpu_rows_total(const tpc_cpu_state_t *state, const tpc_request_t *request, size_t *element_p) {
    const tpcomm_call_t *call = request->call;
    size_t element = tpcomm_dtype_size(call->dtype), hidden = (size_t)call->hidden;
    uint64_t tokens = call->count / hidden, per_rank = tpc_rows_per_rank(tokens, state->group.agreed.size);
    *element_p = call->coll == TPCOMM_ALL_GATHER_ROWS ? element : element * hidden;
    if (call->coll == TPCOMM_ALL_GATHER_ROWS) return (size_t)(per_rank * hidden);
    if (call->coll == TPCOMM_REDUCE_SCATTER_RMS_NORM) return (size_t)(per_rank * (uint64_t)state->group.agreed.size);
    return (size_t)tokens;
}

void tpc_cpu_rows_stage(const tpc_cpu_state_t *state, const tpc_cpu_round_t *round) {
    if (round->request->norm == NULL)
        gather_stage(state, round);
    else
        norm_stage(state, round);
}

tpcomm_status_t tpc_cpu_rows_finish(tpc_cpu_state_t *state, const tpc_cpu_round_t *round) {
    if (round->request->norm == NULL)
        gather_finish(state, round);
    else
        norm_finish(state, round);
    return TPCOMM_OK;
}

uint64_t tpc_cpu_rows_staged(const tpc_cpu_state_t *state, const tpc_cpu_round_t *round) {
    if (round->request->norm == NULL) return part_of(state, round, state->group.rank) * round->element;
    uint64_t rows = 0;
    for (size_t i = 0; i < round->count; i++) {
        place_t place = place_of(state, round, round->done + i);
        rows += is_staged(state, &place);
    }
    return rows * round->element;
}
