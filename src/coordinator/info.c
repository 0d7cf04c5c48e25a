/* SPDX-License-Identifier: Apache-2.0 */
/* What a communicator says of itself. */
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/text.h"
#include "coordinator/abi.h"
#include "coordinator/comm.h"

/* "a, b; not c (why)", for an all_reduce of f32, alone or with a norm. */
static void describe_paths(const tpcomm_t *comm, char *text, size_t bytes) {
    size_t used = 0;
    for (int cannot = 0; cannot < 2; cannot++) {
        bool first = true;
        for (tpcomm_path_t path = 1; path < TPC_PATH_END; path++) {
            const char *why = tpc_dispatch_why_not(comm->dispatch, path);
            if ((why != NULL && why[0] == '\0') || (why != NULL) != (cannot != 0)) continue;
            const char *lead = !first ? ", " : cannot ? "; not " : "";
            used = tpc_text_append(text, bytes, used, "%s%s%s%s%s", lead, tpcomm_path_name(path), why ? " (" : "",
                                   why ? why : "", why ? ")" : "");
            first = false;
        }
    }
}

tpcomm_status_t tpcomm_comm_info(const tpcomm_t *comm, tpcomm_info_t *info) {
    if (comm == NULL) return tpc_error(TPCOMM_ERR_INVALID_ARG, "comm is NULL");
    tpcomm_info_t known = {.rank = comm->rank,
                           .size = comm->size,
                           .device_kind = comm->agreed.device_kind,
                           .workspace_bytes = comm->agreed.device_kind == TPCOMM_DEVICE_CUDA
                                                  ? tpc_backend_set_device_bytes(&comm->backends)
                                                  : comm->workspace.bytes / (uint64_t)comm->here_size,
                           .op_timeout_ms = atomic_load(&comm->workspace.header->op_timeout_ms),
                           .init_us = comm->init_us,
                           .deterministic = comm->agreed.deterministic ? TPCOMM_ON : TPCOMM_OFF,
                           .check = comm->check};
    snprintf(known.topology, sizeof known.topology, "%s", tpc_topology_name(comm->agreed.topology));
    snprintf(known.name, sizeof known.name, "%s", comm->name);
    snprintf(known.launcher, sizeof known.launcher, "%s", tpc_bootstrap_text(comm->world->bootstrap));
    describe_paths(comm, known.paths, sizeof known.paths);
    snprintf(known.tuning, sizeof known.tuning, "%s", comm->tuning_origin);
    snprintf(known.cpu_kernels, sizeof known.cpu_kernels, "%s", tpc_backend_set_describe(&comm->backends, 0));
    int32_t nccl = -1;
    tpc_backend_set_of_path(&comm->backends, TPCOMM_PATH_NCCL, &nccl);
    snprintf(known.nccl, sizeof known.nccl, "%s", tpc_backend_set_describe(&comm->backends, nccl));
    return tpc_struct_out("tpcomm_info", &known, sizeof known, info);
}

tpc_comm_waits_t tpc_comm_waits(const tpcomm_t *comm, tpcomm_path_t path) {
    const tpc_counters_t *counters = &comm->counters[path];
    tpc_waits_t noted = tpc_backend_set_waits(&comm->backends, path);
    return (tpc_comm_waits_t){.calls = atomic_load_explicit(&counters->waits, memory_order_relaxed) + noted.calls,
                              .wait_ns = atomic_load_explicit(&counters->wait_ns, memory_order_relaxed) + noted.wait_ns,
                              .skew_ns =
                                  atomic_load_explicit(&counters->skew_ns, memory_order_relaxed) + noted.wait_ns};
}

uint64_t tpc_comm_times_last(const tpcomm_t *comm, int32_t rank) {
    uint64_t counted = atomic_load_explicit(&comm->times_last[rank], memory_order_relaxed);
    return counted + tpc_backend_set_times_last(&comm->backends, rank);
}

tpcomm_status_t tpcomm_rank_info(const tpcomm_t *comm, int32_t rank, tpcomm_rank_info_t *info) {
    if (comm == NULL) return tpc_error(TPCOMM_ERR_INVALID_ARG, "comm is NULL");
    if (rank < 0 || rank >= comm->size)
        return tpc_error(TPCOMM_ERR_INVALID_ARG, "rank is %d; this group has 0 to %d", rank, comm->size - 1);
    const tpc_member_t *member = tpc_bootstrap_member(comm->world->bootstrap, comm->ranks[rank]);
    tpcomm_rank_info_t known = {.rank = rank,
                                .pid = member->pid != 0 ? member->pid : member->said_pid,
                                .same_process = member->same_process,
                                .seq = tpc_comm_rank_seq(comm, rank),
                                .times_last = tpc_comm_times_last(comm, rank)};
    snprintf(known.host, sizeof known.host, "%s", member->host_id);
    if (comm->agreed.device_kind == TPCOMM_DEVICE_CUDA) {
        char link[TPC_PAIR_TEXT_BYTES];
        snprintf(known.device, sizeof known.device, "%.63s", comm->devices[rank].name);
        snprintf(known.bus_id, sizeof known.bus_id, "%.15s", comm->devices[rank].bus_id);
        snprintf(known.link, sizeof known.link, "%s", tpc_pair_text(&comm->pairs[rank], link));
    }
    return tpc_struct_out("tpcomm_rank_info", &known, sizeof known, info);
}

tpcomm_status_t tpcomm_stats(const tpcomm_t *comm, int32_t index, tpcomm_stats_t *stats) {
    if (comm == NULL) return tpc_error(TPCOMM_ERR_INVALID_ARG, "comm is NULL");
    int32_t count = 0;
    for (tpcomm_path_t path = 1; path < TPC_PATH_END; path++) {
        if (tpc_dispatch_why_not(comm->dispatch, path) != NULL || count++ != index) continue;
        const tpc_counters_t *counters = &comm->counters[path];
        tpc_comm_waits_t waits = tpc_comm_waits(comm, path);
        tpcomm_stats_t known = {.path = path,
                                .calls = atomic_load_explicit(&counters->calls, memory_order_relaxed),
                                .bytes = atomic_load_explicit(&counters->bytes, memory_order_relaxed),
                                .wire_bytes = atomic_load_explicit(&counters->wire_bytes, memory_order_relaxed),
                                .wait_ns = waits.wait_ns,
                                .skew_ns = waits.skew_ns,
                                .waits = waits.calls};
        return tpc_struct_out("tpcomm_stats", &known, sizeof known, stats);
    }
    return tpc_error(TPCOMM_ERR_INVALID_ARG, "index is %d; this group has %d paths", index, count);
}
