/* SPDX-License-Identifier: Apache-2.0 */
/* Calls in captured graphs: their place there, and the brackets between which ranks compare what they captured. */
#include <stdio.h>

#include "base/error.h"
#include "base/hook.h"
#include "base/status.h"
#include "coordinator/comm.h"

tpcomm_status_t tpc_comm_captures(tpcomm_t *comm, const tpc_cuda_call_t *where, uint64_t *ordinal_p) {
    bool first = false;
    *ordinal_p = tpc_capture_next(&comm->capture, where->capture_id, &first);
    if (!first || comm->size == 1) return TPCOMM_OK;
    tpc_kept_take(&comm->graphs);
    if (comm->order == NULL) return TPCOMM_OK; /* in tests, which drop it themselves */
    tpcomm_status_t status = tpc_cuda_order_keep(where, tpc_kept_drop, &comm->graphs);
    if (status != TPCOMM_OK) comm->capture.id = 0; /* the next call asks again */
    return status;
}

/* ------------------------------------------------------------------ brackets */

static tpcomm_status_t begin(tpcomm_t *comm) {
    const tpc_capture_log_t *open = comm->capture.log;
    if (open != NULL)
        return tpc_error(
            TPCOMM_ERR_INVALID_STATE,
            "group '%s': tpcomm_graph_capture_begin is open already, with %llu calls; brackets do not nest: "
            "call tpcomm_graph_capture_end first",
            comm->name, (unsigned long long)open->count);
    tpcomm_status_t status = tpc_hook("capture_begin", comm->rank);
    return status != TPCOMM_OK ? status : tpc_capture_log_new(&comm->capture.log);
}

static tpcomm_status_t exchange(void *arg, const void *mine, size_t bytes, void *all) {
    return tpc_comm_exchange(arg, "graph capture end", TPCOMM_OK, mine, bytes, all);
}

/* No graph of this bracket can be trusted on any rank, so its replays must not wait for each other. */
static tpcomm_status_t break_group(tpcomm_t *comm, tpcomm_status_t status) {
    char text[480];
    bool of_the_group = status <= TPCOMM_ERR_ABORTED && status > TPCOMM_ERR_DEVICE;
    if (status != TPCOMM_ERR_INTERRUPTED && !of_the_group) status = TPCOMM_ERR_PEER_FAILED;
    snprintf(text, sizeof text, "tpcomm_graph_capture_end: %.440s", tpcomm_last_error());
    tpc_failure_place_t place = {.rank = comm->rank, .seq = comm->device.flight.seq};
    if (tpc_failure_status(&comm->failure) == TPCOMM_OK) tpc_failure_raise(&comm->failure, status, place, text);
    return tpc_comm_failed(comm);
}

static tpcomm_status_t end(tpcomm_t *comm) {
    tpc_capture_log_t *log = comm->capture.log;
    if (log == NULL)
        return tpc_error(TPCOMM_ERR_INVALID_STATE,
                         "group '%s': tpcomm_graph_capture_end without tpcomm_graph_capture_begin", comm->name);
    tpcomm_status_t status = tpc_batch_check_none(comm); /* they are not captured yet */
    if (status != TPCOMM_OK) return status;
    comm->capture.log = NULL;
    /* The cpu device has run the calls, so a rank that has made one more waits in it, and not here. */
    if (comm->order == NULL && log->graphs == 0) {
        tpcomm_call_t barrier = {.struct_size = sizeof barrier, .coll = TPCOMM_BARRIER};
        status = tpc_comm_run(comm, &barrier, NULL, NULL);
    }
    if (status == TPCOMM_OK && comm->size > 1) {
        status = tpc_capture_log_compare(log, comm->size, exchange, comm);
        if (status != TPCOMM_OK) status = break_group(comm, status);
    }
    tpc_capture_log_free(log);
    return status;
}

static tpcomm_status_t run(tpcomm_t *comm, tpcomm_status_t (*step)(tpcomm_t *comm)) {
    tpcomm_status_t status = tpc_comm_check(comm);
    if (status == TPCOMM_OK) status = tpc_comm_enter(comm, &comm->device);
    if (status != TPCOMM_OK) return status;
    status = step(comm);
    tpc_comm_leave(&comm->device);
    return status;
}

tpcomm_status_t tpcomm_graph_capture_begin(tpcomm_t *comm) {
    return run(comm, begin);
}

tpcomm_status_t tpcomm_graph_capture_end(tpcomm_t *comm) {
    return run(comm, end);
}
