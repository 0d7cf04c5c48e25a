/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Batches. Calls on the cpu device block, so two ranks that call two communicators in opposite orders would wait for
 * each other. Inside a batch calls are kept and run at its end, ordered by the communicators' jobs and ids, which all
 * members hold equal: one order for everybody, whatever order each rank called in.
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"
#include "coordinator/comm.h"

typedef struct {
    tpcomm_t *comm;
    tpcomm_call_t call;
    tpcomm_rms_norm_t norm; /* struct_size 0: none */
    tpcomm_stream_t stream;
    size_t position; /* in calling order */
} kept_t;

static _Thread_local struct {
    int depth;
    kept_t *calls;
    size_t count, room;
} batch;

tpcomm_status_t tpc_batch_take(tpcomm_t *comm, const tpcomm_call_t *call, const tpcomm_rms_norm_t *norm,
                               tpcomm_stream_t stream, bool *taken_p) {
    *taken_p = batch.depth > 0;
    if (batch.depth == 0) return TPCOMM_OK;
    if (batch.count == batch.room) {
        size_t room = batch.room == 0 ? 16 : 2 * batch.room;
        kept_t *calls = realloc(batch.calls, room * sizeof *calls);
        if (calls == NULL) return tpc_error(TPCOMM_ERR_NO_MEMORY, "out of memory for %zu calls of a batch", room);
        batch.calls = calls;
        batch.room = room;
    }
    batch.calls[batch.count] = (kept_t){.comm = comm, .call = *call, .stream = stream, .position = batch.count};
    if (norm != NULL) batch.calls[batch.count].norm = *norm;
    batch.count++;
    atomic_fetch_add(&comm->kept, 1); /* finalize, destroy and the end of a capture bracket refuse */
    return TPCOMM_OK;
}

tpcomm_status_t tpc_batch_check_none(const tpcomm_t *comm) {
    int32_t kept = atomic_load(&comm->kept);
    if (kept == 0) return TPCOMM_OK;
    return tpc_error(TPCOMM_ERR_INVALID_STATE, "group '%s': an open batch has %d calls of it; end the batch first",
                     comm->name, kept);
}

static int by_group_then_position(const void *a, const void *b) {
    const kept_t *x = a, *y = b;
    uint64_t job_x = tpc_bootstrap_nonce(x->comm->world->bootstrap),
             job_y = tpc_bootstrap_nonce(y->comm->world->bootstrap);
    if (job_x != job_y) return job_x < job_y ? -1 : 1; /* two worlds have the same ids */
    if (x->comm->id != y->comm->id) return x->comm->id < y->comm->id ? -1 : 1;
    return x->position < y->position ? -1 : x->position > y->position;
}

tpcomm_status_t tpcomm_batch_begin(void) {
    batch.depth++;
    return TPCOMM_OK;
}

tpcomm_status_t tpcomm_batch_end(void) {
    if (batch.depth == 0) return tpc_error(TPCOMM_ERR_INVALID_STATE, "tpcomm_batch_end without tpcomm_batch_begin");
    if (--batch.depth > 0) return TPCOMM_OK;
    kept_t *calls = batch.calls;
    size_t count = batch.count;
    batch.calls = NULL;
    batch.count = batch.room = 0;
    if (count > 0) qsort(calls, count, sizeof *calls, by_group_then_position);
    tpcomm_status_t first = TPCOMM_OK;
    char text[TPC_ERROR_BYTES];
    for (size_t i = 0; i < count; i++) { /* all of them: peers wait for the others, too */
        tpcomm_status_t status = tpc_comm_check(calls[i].comm);
        const tpcomm_rms_norm_t *norm = calls[i].norm.struct_size != 0 ? &calls[i].norm : NULL;
        if (status == TPCOMM_OK) status = tpc_comm_run_now(calls[i].comm, &calls[i].call, norm, calls[i].stream);
        atomic_fetch_sub(&calls[i].comm->kept, 1);
        if (status == TPCOMM_OK || first != TPCOMM_OK) continue;
        first = status;
        snprintf(text, sizeof text, "%s", tpcomm_last_error());
    }
    free(calls);
    return first == TPCOMM_OK ? TPCOMM_OK : tpc_error(first, "%s", text);
}
