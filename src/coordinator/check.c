/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/check.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/hook.h"

/* ------------------------------------------------------------------ by itself */

static bool on_gpu(const tpcomm_t *comm) {
    return comm->agreed.device_kind == TPCOMM_DEVICE_CUDA;
}

tpcomm_status_t tpc_check_stream(const tpcomm_t *comm, tpcomm_stream_t stream) {
    return on_gpu(comm) ? tpc_cuda_check_stream(&comm->devices[comm->rank], stream) : TPCOMM_OK;
}

tpcomm_status_t tpc_check_ranges(const tpcomm_t *comm, const tpc_call_ranges_t *ranges) {
    tpcomm_status_t passed = tpc_hook("check_ranges", comm->rank);
    if (passed != TPCOMM_OK) return passed;
    for (int32_t i = 0; i < ranges->count; i++) {
        const tpc_range_t *range = &ranges->range[i];
        tpcomm_status_t status =
            on_gpu(comm) ? tpc_cuda_check_range(&comm->devices[comm->rank], range) : tpc_cpu_check_range(range);
        if (status != TPCOMM_OK) return status;
    }
    return TPCOMM_OK;
}

/* ------------------------------------------------------------------ together */

/* What a rank says of its call. */
typedef struct {
    tpc_call_note_t note;
    uint64_t arrived_ns;
    int32_t process; /* the lowest world rank of its process */
    int32_t count;
    struct {
        uint64_t base, bytes;
        int32_t written, packed;
        char name[16];
    } range[TPC_RANGES_MAX];
} said_t;

static int32_t process_of(const tpcomm_t *comm) {
    int32_t mine = tpc_bootstrap_rank(comm->world->bootstrap);
    for (int32_t r = 0; r < mine; r++)
        if (tpc_bootstrap_member(comm->world->bootstrap, r)->same_process) return r;
    return mine;
}

static said_t say(const tpcomm_t *comm, const tpc_flight_record_t *record, const tpc_call_ranges_t *ranges) {
    said_t said;
    memset(&said, 0, sizeof said);
    said.note = tpc_calls_of(record);
    said.arrived_ns = record->start_ns;
    said.process = process_of(comm);
    said.count = ranges->count;
    for (int32_t i = 0; i < ranges->count; i++) {
        said.range[i].base = (uintptr_t)ranges->range[i].base;
        said.range[i].bytes = ranges->range[i].bytes;
        said.range[i].written = ranges->range[i].written;
        said.range[i].packed = ranges->range[i].packed;
        snprintf(said.range[i].name, sizeof said.range[i].name, "%s", ranges->range[i].name);
    }
    return said;
}

static tpcomm_status_t compare_calls(const tpcomm_t *comm, const said_t *all) {
    for (int32_t r = 1; r < comm->size; r++) {
        char first[200], other[200];
        if (tpc_calls_same(&all[0].note, &all[r].note)) continue;
        return tpc_error(TPCOMM_ERR_MISMATCH, "rank 0 called %s, rank %d called %s",
                         tpc_calls_text(&all[0].note, first, sizeof first), r,
                         tpc_calls_text(&all[r].note, other, sizeof other));
    }
    return TPCOMM_OK;
}

/* Ranks that are threads of one process, and what one writes the other uses. */
static tpcomm_status_t compare_ranges(int32_t a, const said_t *x, int32_t b, const said_t *y) {
    for (int32_t i = 0; i < x->count && i < TPC_RANGES_MAX; i++)
        for (int32_t j = 0; j < y->count && j < TPC_RANGES_MAX; j++) {
            bool apart = x->range[i].base + x->range[i].bytes <= y->range[j].base ||
                         y->range[j].base + y->range[j].bytes <= x->range[i].base;
            if (apart || (x->range[i].written == 0 && y->range[j].written == 0)) continue;
            if (x->range[i].packed == 0 || y->range[j].packed == 0) continue; /* rows may lie between rows */
            return tpc_error(TPCOMM_ERR_INVALID_ARG,
                             "rank %d's %.15s [%p, +%llu) and rank %d's %.15s [%p, +%llu) overlap: both ranks are "
                             "threads of one process",
                             a, x->range[i].name, (void *)(uintptr_t)x->range[i].base,
                             (unsigned long long)x->range[i].bytes, b, y->range[j].name,
                             (void *)(uintptr_t)y->range[j].base, (unsigned long long)y->range[j].bytes);
        }
    return TPCOMM_OK;
}

static tpcomm_status_t compare_buffers(const tpcomm_t *comm, const said_t *all) {
    tpcomm_status_t status = TPCOMM_OK;
    for (int32_t b = 1; b < comm->size; b++)
        for (int32_t a = 0; a < b && status == TPCOMM_OK; a++)
            if (all[a].process == all[b].process) status = compare_ranges(a, &all[a], b, &all[b]);
    return status;
}

static tpc_outcome_t read_arrivals(const tpcomm_t *comm, const said_t *all) {
    tpc_outcome_t arrivals = {.last_rank = -1};
    uint64_t first = all[0].arrived_ns;
    if (tpc_comm_spans(comm)) return arrivals; /* clocks of their own */
    for (int32_t r = 0; r < comm->size; r++) {
        if (all[r].arrived_ns < first) first = all[r].arrived_ns;
        if (all[r].arrived_ns < arrivals.begun_ns) continue;
        arrivals.begun_ns = all[r].arrived_ns;
        arrivals.last_rank = r;
    }
    arrivals.skew_ns = arrivals.begun_ns - first;
    arrivals.wait_ns = arrivals.begun_ns - all[comm->rank].arrived_ns;
    return arrivals;
}

tpcomm_status_t tpc_check_together(tpcomm_t *comm, const tpc_flight_record_t *record, const tpc_call_ranges_t *ranges,
                                   bool *refused_p, tpc_outcome_t *arrivals_p) {
    said_t all[TPCOMM_MAX_RANKS], mine = say(comm, record, ranges);
    const tpc_wait_t *wait = &comm->device.wait;
    tpc_team_t team = tpc_links_team(comm, "check");
    tpc_deadline_t deadline = tpc_deadline_in(atomic_load(wait->timeout_ms), wait->interrupted, wait->interrupted_arg);
    tpcomm_status_t status = tpc_hook("check_together", comm->rank);
    if (status != TPCOMM_OK) return status;
    status = tpc_team_gather(comm->world->bootstrap, &team, "compare a call (TPCOMM_CHECK=sync)", TPCOMM_OK, &mine,
                             sizeof mine, all, &deadline);
    if (status == TPCOMM_OK) status = compare_calls(comm, all);
    if (status != TPCOMM_OK) return tpc_links_failed(comm, status, record);
    *arrivals_p = read_arrivals(comm, all);
    status = compare_buffers(comm, all);
    *refused_p = status != TPCOMM_OK;
    return status;
}

/* ------------------------------------------------------------------ for people */

const char *tpc_check_name(const tpcomm_t *comm) {
    static const char *const names[] = {"", "off", "async", "sync"};
    return names[comm->check];
}

const char *tpc_check_text(const tpcomm_t *comm, tpcomm_path_t path) {
    bool by_host = comm->calls.ranks != NULL;
    if (comm->size == 1)
        return comm->check == TPCOMM_CHECK_SYNC ? "sync: a group of one rank has its buffers looked at before each call"
                                                : "a group of one rank has nobody to differ from";
    switch (comm->check) {
    case TPCOMM_CHECK_SYNC:
        return "sync: the ranks agree on each call before it begins, and its buffers are looked at; while a stream is "
               "captured, as async";
    case TPCOMM_CHECK_ASYNC:
        if (path == TPCOMM_PATH_NCCL) return "async: the hosts compare the ranks' calls beside them";
        return by_host ? "async: the path compares each call itself, and the hosts compare the ranks' calls beside them"
                       : "async: the path compares each call itself";
    default:
        return path == TPCOMM_PATH_NCCL ? "off: nothing compares the ranks' calls"
                                        : "off: the path compares each call itself";
    }
}
