/* SPDX-License-Identifier: Apache-2.0 */
/* Host messages: the cpu backend's collectives on a plane of their own, beside whatever the group's device does. */
#include "base/clock.h"
#include "base/error.h"
#include "base/hook.h"
#include "coordinator/comm.h"

tpcomm_status_t tpc_comm_host_run(tpcomm_t *comm, const tpcomm_call_t *call, uint32_t timeout_ms) {
    tpc_plane_t *plane = &comm->host;
    tpcomm_status_t status = tpc_comm_enter(comm, plane);
    if (status != TPCOMM_OK) return status;
    uint32_t limit = timeout_ms != 0 ? timeout_ms : atomic_load(&comm->workspace.header->op_timeout_ms);
    atomic_store(&plane->timeout_ms, limit);
    tpcomm_path_t path = comm->size == 1 ? TPCOMM_PATH_LOCAL : TPCOMM_PATH_CPU_ONESHOT;
    tpc_flight_record_t *record = tpc_flight_next(&plane->flight, call, path, call->count);
    tpc_flight_begin(&plane->flight, tpc_clock_ns());
    tpc_request_t request = {.call = call, .path = path, .bytes = call->count, .record = record};
    tpc_outcome_t outcome = {.last_rank = -1};
    if (tpc_comm_spans(comm))
        status = tpc_host_links_run(comm, call, limit, record);
    else
        status = tpc_host_backend->run(comm->host_state, &request, &outcome);
    if (status != TPCOMM_OK) status = tpc_comm_break(comm, "host ", record, status);
    tpc_comm_note(record, &outcome);
    tpc_flight_end(&plane->flight, status, tpc_clock_ns());
    tpc_comm_leave(plane);
    return status;
}

tpcomm_status_t tpcomm_host_broadcast(tpcomm_t *comm, void *data, size_t bytes, int32_t root, uint32_t timeout_ms) {
    tpcomm_status_t status = tpc_comm_check(comm);
    if (status != TPCOMM_OK) return status;
    if (root < 0 || root >= comm->size)
        return tpc_error(TPCOMM_ERR_INVALID_ARG, "root is %d; this group has ranks 0 to %d", root, comm->size - 1);
    if (data == NULL && bytes > 0) return tpc_error(TPCOMM_ERR_INVALID_ARG, "data is NULL, but bytes is %zu", bytes);
    if (bytes > PTRDIFF_MAX) return tpc_error(TPCOMM_ERR_INVALID_ARG, "bytes is %zu, more than memory can hold", bytes);
    tpcomm_call_t call = {.struct_size = sizeof call,
                          .coll = TPCOMM_BROADCAST,
                          .dtype = TPCOMM_U8,
                          .root = root,
                          .in = data,
                          .out = data,
                          .count = bytes};
    return tpc_comm_host_run(comm, &call, timeout_ms);
}

tpcomm_status_t tpcomm_host_all_gather(tpcomm_t *comm, const void *mine, void *all, size_t bytes, uint32_t timeout_ms) {
    tpcomm_status_t status = tpc_comm_check(comm);
    if (status != TPCOMM_OK) return status;
    if ((mine == NULL || all == NULL) && bytes > 0)
        return tpc_error(TPCOMM_ERR_INVALID_ARG, "%s is NULL, but bytes is %zu", mine == NULL ? "mine" : "all", bytes);
    if (bytes > (size_t)PTRDIFF_MAX / (size_t)comm->size)
        return tpc_error(TPCOMM_ERR_INVALID_ARG, "bytes is %zu, more than memory can hold", bytes);
    uintptr_t from = (uintptr_t)mine, to = (uintptr_t)all;
    size_t total = bytes * (size_t)comm->size;
    if (from != to + bytes * (size_t)comm->rank && from < to + total && to < from + bytes)
        return tpc_error(TPCOMM_ERR_INVALID_ARG,
                         "mine [%p, +%zu) and all [%p, +%zu) overlap; in place is mine == all + rank * bytes", mine,
                         bytes, all, total);
    tpcomm_call_t call = {.struct_size = sizeof call,
                          .coll = TPCOMM_ALL_GATHER,
                          .dtype = TPCOMM_U8,
                          .in = mine,
                          .out = all,
                          .count = bytes};
    return tpc_comm_host_run(comm, &call, timeout_ms);
}

tpcomm_status_t tpcomm_host_barrier(tpcomm_t *comm, uint32_t timeout_ms) {
    tpcomm_status_t status = tpc_comm_check(comm);
    if (status != TPCOMM_OK) return status;
    tpcomm_call_t call = {.struct_size = sizeof call, .coll = TPCOMM_BARRIER};
    return tpc_comm_host_run(comm, &call, timeout_ms);
}
