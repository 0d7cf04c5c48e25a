/* SPDX-License-Identifier: Apache-2.0 */
/* The ways out, and what is in force while a communicator lives. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "coordinator/abi.h"
#include "coordinator/comm.h"
#include "coordinator/report.h"

#define DESTROY_WAIT_MS 1000
#define DESTROY_LOOKS   200u

tpcomm_status_t tpc_comm_failed(tpcomm_t *comm) {
    tpc_failure_place_t place;
    if (atomic_exchange(&comm->dumped, 1) == 0) tpc_report_failure(comm->world, comm->name);
    char text[512];
    tpcomm_status_t status = tpc_failure_read(&comm->failure, &place, text, sizeof text);
    return tpc_error(status, "group '%s' (%d ranks) is broken: %s", comm->name, comm->size, text);
}

tpcomm_status_t tpc_comm_check_owner(const tpcomm_t *comm) {
    if (comm == NULL) return tpc_error(TPCOMM_ERR_INVALID_ARG, "comm is NULL");
    if (comm->fork_generation != tpc_fork_generation())
        return tpc_error(TPCOMM_ERR_INVALID_STATE,
                         "group '%s': this process is a fork of the one that joined it; "
                         "call an init function here to make a communicator of its own",
                         comm->name);
    if (atomic_load_explicit(&comm->finalized, memory_order_relaxed) != 0)
        return tpc_error(TPCOMM_ERR_INVALID_STATE, "group '%s' is finalized", comm->name);
    return TPCOMM_OK;
}

tpcomm_status_t tpc_comm_check(tpcomm_t *comm) {
    tpcomm_status_t status = tpc_comm_check_owner(comm);
    if (status != TPCOMM_OK) return status;
    tpc_backend_set_poll(&comm->backends);
    if (tpc_failure_status(&comm->failure) != TPCOMM_OK) return tpc_comm_failed(comm);
    return TPCOMM_OK;
}

tpcomm_status_t tpc_comm_enter(tpcomm_t *comm, tpc_plane_t *plane) {
    if (atomic_exchange_explicit(&plane->busy, 1, memory_order_acquire) == 0) return TPCOMM_OK;
    return tpc_error(
        TPCOMM_ERR_BUSY,
        "group '%s': another thread is inside this communicator; one thread at a time, in one order on all ranks",
        comm->name);
}

void tpc_comm_leave(tpc_plane_t *plane) {
    atomic_store_explicit(&plane->busy, 0, memory_order_release);
}

tpcomm_status_t tpcomm_finalize(tpcomm_t *comm) {
    tpcomm_status_t status = tpc_comm_check(comm);
    if (status == TPCOMM_OK) status = tpc_batch_check_none(comm); /* they would never run */
    if (status == TPCOMM_OK) status = tpc_comm_enter(comm, &comm->device);
    if (status != TPCOMM_OK) return status;
    if (comm->capture.log != NULL) {
        tpc_comm_leave(&comm->device);
        return tpc_error(TPCOMM_ERR_INVALID_STATE,
                         "group '%s': tpcomm_graph_capture_begin is open; call tpcomm_graph_capture_end first",
                         comm->name);
    }
    /* On a GPU there is no stream to say it on. */
    tpcomm_call_t barrier = {.struct_size = sizeof barrier, .coll = TPCOMM_BARRIER, .flags = TPC_CALL_ENDS};
    bool on_host = comm->agreed.device_kind == TPCOMM_DEVICE_CUDA || tpc_comm_spans(comm);
    status = on_host ? tpc_comm_host_run(comm, &barrier, 0) : tpc_comm_run(comm, &barrier, NULL, NULL);
    /* Nobody keeps a kernel of this rank waiting now; behind it the caller's stream may go. */
    if (status == TPCOMM_OK && comm->order != NULL)
        (void)tpc_cuda_order_drain(comm->order, atomic_load(&comm->workspace.header->op_timeout_ms));
    if (status == TPCOMM_OK) {
        atomic_store(&comm->failure.slots[comm->rank].left, 1);
        if (tpc_comm_spans(comm)) tpc_relay_left(&comm->relay);
        atomic_store(&comm->finalized, 1);
    }
    tpc_comm_leave(&comm->device);
    return status;
}

tpcomm_status_t tpcomm_destroy(tpcomm_t *comm) {
    if (comm == NULL) return TPCOMM_OK;
    /* A forked child frees its own copy; the group, the watchdog and the links are its parent's. */
    bool mine = comm->fork_generation == tpc_fork_generation();
    tpcomm_status_t status = mine ? tpc_batch_check_none(comm) : TPCOMM_OK;
    if (status != TPCOMM_OK) return status;
    /* Kernels in graphs that outlive it find the group broken, and leave. */
    bool finalized = atomic_load(&comm->finalized) != 0, outlived = tpc_kept_in_use(&comm->graphs);
    bool broken =
        !finalized && tpc_failure_status(&comm->failure) != TPCOMM_OK && !tpc_failure_is_leaving(&comm->failure);
    if (mine && comm->size > 1 && (!finalized || outlived)) {
        char text[96];
        snprintf(text, sizeof text, "rank %d destroyed its communicator%s", comm->rank,
                 finalized ? ", but graphs that use it are still there" : " without finalizing");
        tpc_failure_place_t place = {.rank = comm->rank, .seq = comm->device.flight.seq};
        bool whole = tpc_failure_status(&comm->failure) == TPCOMM_OK;
        atomic_store(&comm->failure.slots[comm->rank].left, whole ? TPC_LEFT_EARLY : 1);
        tpc_failure_raise(&comm->failure, TPCOMM_ERR_ABORTED, place, text);
    }
    if (mine) {
        /* By the clock and by its own looks: what stops this process, or keeps it from a processor, stops them, too. */
        uint64_t begun_ns = tpc_clock_ns();
        for (uint32_t looks = 0; atomic_load(&comm->device.busy) != 0 || atomic_load(&comm->host.busy) != 0 ||
                                 atomic_load(&comm->making) != 0;
             looks++) {
            if (looks >= DESTROY_LOOKS && tpc_clock_ns() - begun_ns >= DESTROY_WAIT_MS * UINT64_C(1000000))
                return tpc_error(TPCOMM_ERR_BUSY, "group '%s': a thread is still inside after %u ms; nothing was freed",
                                 comm->name, DESTROY_WAIT_MS);
            tpc_deadline_t pause = tpc_deadline_in(1, NULL, NULL);
            tpc_deadline_sleep(&pause, 1);
        }
        /* The watchdog would have done it within a second: not where the group goes sooner. */
        if (broken && atomic_exchange(&comm->dumped, 1) == 0) tpc_report_failure(comm->world, comm->name);
    }
    tpc_comm_free(comm);
    return TPCOMM_OK;
}

/* What a forked child did would be done to its parent's job. */
static tpcomm_status_t check_mine(const tpcomm_t *comm) {
    if (comm == NULL) return tpc_error(TPCOMM_ERR_INVALID_ARG, "comm is NULL");
    if (comm->fork_generation == tpc_fork_generation()) return TPCOMM_OK;
    return tpc_error(TPCOMM_ERR_INVALID_STATE, "group '%s' belongs to the process this one was forked from",
                     comm->name);
}

tpcomm_status_t tpcomm_abort(tpcomm_t *comm, const char *reason) {
    tpcomm_status_t mine = check_mine(comm);
    if (mine != TPCOMM_OK) return mine;
    char text[320];
    bool given = reason != NULL && reason[0] != '\0';
    snprintf(text, sizeof text, "tpcomm_abort by rank %d%s%.200s", comm->rank, given ? ": " : "", given ? reason : "");
    tpc_text_clean(text);
    tpc_failure_place_t place = {.rank = comm->rank};
    tpc_failure_raise(&comm->failure, TPCOMM_ERR_ABORTED, place, text);
    return TPCOMM_OK;
}

tpcomm_status_t tpcomm_async_status(const tpcomm_t *comm, tpcomm_error_t *error) {
    if (comm == NULL) return tpc_error(TPCOMM_ERR_INVALID_ARG, "comm is NULL");
    tpc_backend_set_poll(&comm->backends);
    if (error == NULL && comm->failure.relay == NULL) return tpc_failure_status(&comm->failure);
    tpcomm_error_t known = {.rank = -1};
    tpc_failure_place_t place;
    known.status = tpc_failure_read(&comm->failure, &place, known.text, sizeof known.text);
    known.rank = place.rank;
    known.coll = place.coll;
    known.seq = place.seq;
    if (error == NULL) return known.status;
    tpcomm_status_t status = tpc_struct_out("tpcomm_error", &known, sizeof known, error);
    return status != TPCOMM_OK ? status : known.status;
}

tpcomm_status_t tpcomm_note_waits(tpcomm_t *comm, int32_t on) {
    tpcomm_status_t mine = check_mine(comm);
    if (mine != TPCOMM_OK) return mine;
    if (on != TPCOMM_ON && on != TPCOMM_OFF)
        return tpc_error(TPCOMM_ERR_INVALID_ARG, "on is %d; it is TPCOMM_ON or TPCOMM_OFF", on);
    return tpc_backend_set_note_waits(&comm->backends, on == TPCOMM_ON);
}

tpcomm_status_t tpcomm_set_op_timeout(tpcomm_t *comm, uint32_t timeout_ms) {
    tpcomm_status_t mine = check_mine(comm);
    if (mine != TPCOMM_OK) return mine;
    const tpc_env_row_t *row = &tpc_env_table[TPC_ENV_OP_TIMEOUT_MS];
    if (timeout_ms < row->minimum || timeout_ms > row->maximum)
        return tpc_error(TPCOMM_ERR_INVALID_ARG, "timeout_ms is %u; allowed are %llu to %llu", timeout_ms,
                         (unsigned long long)row->minimum, (unsigned long long)row->maximum);
    atomic_store(&comm->workspace.header->op_timeout_ms, timeout_ms);
    return tpc_backend_set_timeout(&comm->backends, timeout_ms);
}
