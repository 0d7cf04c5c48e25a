/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/report.h"

#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/status.h"
#include "coordinator/check.h"
#include "coordinator/comm.h"

/* Calls that a status answer shows. */
#define LAST_CALLS 8u

/* ------------------------------------------------------------------ facts */

/* Wall clock minus tpc_clock_ns: makes times comparable between hosts whose clocks are. */
static uint64_t wall_offset_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec - tpc_clock_ns();
}

typedef struct {
    const char *name;
    const tpc_plane_t *plane;
    bool async; /* a call returns when it is enqueued */
} plane_view_t;

#define PLANES 2

static void view_planes(const tpcomm_t *comm, plane_view_t views_p[PLANES]) {
    views_p[0] = (plane_view_t){"device", &comm->device, comm->agreed.device_kind == TPCOMM_DEVICE_CUDA};
    views_p[1] = (plane_view_t){"host", &comm->host, false};
}

/* Last call that a rank is known to have begun. */
static uint64_t seq_of(const tpcomm_t *comm, const plane_view_t *view, int32_t rank) {
    if (view->plane == &comm->device) return tpc_comm_rank_seq(comm, rank);
    if (rank == comm->rank) return atomic_load_explicit(&view->plane->flight.seq, memory_order_acquire);
    void *state = atomic_load_explicit(&comm->host_state, memory_order_acquire);
    return state != NULL ? tpc_host_backend->rank_seq(state, rank) : 0;
}

/* Whether this rank is inside a call now, or has enqueued one that another rank has not come to yet; its record. */
static bool in_flight(const tpcomm_t *comm, const plane_view_t *view, tpc_flight_record_t *record_p) {
    uint64_t seq = atomic_load_explicit(&view->plane->flight.seq, memory_order_acquire);
    if (!tpc_flight_read(&view->plane->flight, seq, record_p)) return false;
    bool behind = false;
    for (int32_t r = 0; r < comm->size && view->async; r++) behind = behind || seq_of(comm, view, r) < record_p->seq;
    return record_p->end_ns == 0 || (behind && record_p->status == TPCOMM_OK);
}

static const char *state_of(const plane_view_t *view, const tpc_flight_record_t *record) {
    if (record->end_ns == 0) return "started";
    if (record->status != TPCOMM_OK) return "failed";
    return view->async ? "enqueued" : "completed";
}

/* ------------------------------------------------------------------ JSON */

static void emit_time(tpc_emit_t *emit, const char *key, uint64_t ns, uint64_t offset_ns) {
    if (ns == 0)
        tpc_emit(emit, ",\"%s\":null", key);
    else
        tpc_emit(emit, ",\"%s\":%llu", key, (unsigned long long)((ns + offset_ns) / 1000u));
}

static void emit_record(tpc_emit_t *emit, const plane_view_t *view, const tpc_flight_record_t *record,
                        uint64_t offset_ns) {
    bool moves = tpc_coll_moves_data(record->coll);
    tpc_emit(emit, "{\"seq\":%llu,\"coll\":\"%s\"", (unsigned long long)record->seq, tpcomm_coll_name(record->coll));
    tpc_emit(emit, moves ? ",\"dtype\":\"%s\"" : ",\"dtype\":null", tpcomm_dtype_name(record->dtype));
    tpc_emit(emit, tpc_coll_reduces(record->coll) && !tpc_coll_norms(record->coll) ? ",\"op\":\"%s\"" : ",\"op\":null",
             tpcomm_op_name(record->op));
    tpc_emit(emit, ",\"count\":%llu,\"bytes\":%llu,\"path\":\"%s\"", (unsigned long long)(moves ? record->count : 0),
             (unsigned long long)record->bytes, tpcomm_path_name(record->path));
    tpc_emit(emit, record->coll == TPCOMM_BROADCAST ? ",\"root\":%d" : ",\"root\":null", record->root);
    char rows[160];
    tpc_rows_text(&record->rows, record->coll, rows, sizeof rows);
    tpc_emit(emit, ",\"rows\":");
    tpc_emit_string(emit, rows[0] == ' ' ? rows + 1 : NULL);
    tpc_emit(emit, ",\"tag\":\"%llx\",\"stream\":\"%llx\",\"capturing\":%s", (unsigned long long)record->tag,
             (unsigned long long)record->stream, record->capturing ? "true" : "false");
    emit_time(emit, "created_us", record->start_ns, offset_ns);
    emit_time(emit, "begun_us", record->begun_ns, offset_ns);
    emit_time(emit, "ended_us", record->end_ns, offset_ns);
    tpc_emit(emit, ",\"wait_us\":");
    tpc_emit_us(emit, record->wait_ns);
    tpc_emit(emit, ",\"skew_us\":");
    tpc_emit_us(emit, record->skew_ns);
    tpc_emit(emit, record->last_rank >= 0 ? ",\"last_rank\":%d" : ",\"last_rank\":null", record->last_rank);
    const char *state = state_of(view, record);
    tpc_emit(emit, ",\"status\":\"%s\",\"state\":\"%s\",\"retired\":%s}", tpcomm_status_name(record->status), state,
             state[0] == 'c' ? "true" : "false");
}

/* The last most records, oldest first. */
static void emit_records(tpc_emit_t *emit, const plane_view_t *view, uint64_t most, uint64_t offset_ns) {
    uint64_t last = atomic_load_explicit(&view->plane->flight.seq, memory_order_acquire);
    uint64_t first = tpc_flight_oldest(&view->plane->flight), dropped = first - 1, skipped = 0;
    const char *comma = "";
    if (last > most && last - most + 1 > first) {
        skipped = last - most + 1 - first;
        first = last - most + 1;
    }
    tpc_emit(emit, ",\"records\":[");
    for (uint64_t seq = first; seq <= last && !emit->failed; seq++) {
        tpc_flight_record_t record;
        if (!tpc_flight_read(&view->plane->flight, seq, &record)) { /* overwritten while we read */
            dropped++;
            continue;
        }
        tpc_emit(emit, "%s", comma);
        emit_record(emit, view, &record, offset_ns);
        comma = ",\n";
    }
    tpc_emit(emit, "],\"dropped\":%llu,\"skipped\":%llu", (unsigned long long)dropped, (unsigned long long)skipped);
}

/* Ranks that have not yet begun the call this rank is in. */
static void emit_waits(tpc_emit_t *emit, const tpcomm_t *comm, const plane_view_t *view) {
    tpc_flight_record_t record;
    bool inside = in_flight(comm, view, &record);
    const char *comma = "";
    tpc_emit(emit, ",\"in_flight\":%s,\"waits_for\":[", inside ? "true" : "false");
    for (int32_t r = 0; inside && r < comm->size; r++) {
        if (r == comm->rank || seq_of(comm, view, r) >= record.seq) continue;
        tpc_emit(emit, "%s%d", comma, r);
        comma = ",";
    }
    tpc_emit(emit, "]");
}

static void emit_planes(tpc_emit_t *emit, const tpcomm_t *comm, uint64_t most, uint64_t offset_ns) {
    plane_view_t views[PLANES];
    view_planes(comm, views);
    tpc_emit(emit, ",\"planes\":[");
    for (int i = 0; i < PLANES; i++) {
        const tpc_flight_t *flight = &views[i].plane->flight;
        tpc_emit(emit, "%s{\"plane\":\"%s\",\"last_begun\":%llu,\"last_ended\":%llu", i > 0 ? ",\n" : "", views[i].name,
                 (unsigned long long)atomic_load_explicit(&flight->seq, memory_order_acquire),
                 (unsigned long long)atomic_load_explicit(&flight->ended, memory_order_acquire));
        tpc_emit(emit, ",\"rank_seq\":[");
        for (int32_t r = 0; r < comm->size; r++)
            tpc_emit(emit, "%s%llu", r > 0 ? "," : "", (unsigned long long)seq_of(comm, &views[i], r));
        tpc_emit(emit, "]");
        emit_waits(emit, comm, &views[i]);
        emit_records(emit, &views[i], most, offset_ns);
        tpc_emit(emit, "}");
    }
    tpc_emit(emit, "]");
}

static void emit_failure(tpc_emit_t *emit, const tpcomm_t *comm) {
    tpc_failure_place_t place;
    char text[512];
    tpc_backend_set_poll(&comm->backends); /* what a kernel alone has noticed */
    tpcomm_status_t status = tpc_failure_look(&comm->failure, &place, text, sizeof text);
    tpc_emit(emit, "\"status\":\"%s\"", tpcomm_status_name(status));
    if (status == TPCOMM_OK) return;
    tpc_emit(emit, ",\"failed_rank\":%d,\"failed_seq\":%llu,\"text\":", place.rank, (unsigned long long)place.seq);
    tpc_emit_string(emit, text);
}

static void emit_group(tpc_emit_t *emit, const tpcomm_t *comm, uint64_t most, uint64_t offset_ns) {
    tpc_emit(emit, "{\"name\":");
    tpc_emit_string(emit, comm->name);
    tpc_emit(emit, ",\"id\":\"%llx\",\"rank\":%d,\"size\":%d,\"ranks\":[", (unsigned long long)comm->id, comm->rank,
             comm->size);
    for (int32_t r = 0; r < comm->size; r++) tpc_emit(emit, "%s%d", r > 0 ? "," : "", comm->ranks[r]);
    tpc_emit(emit, "],\"device\":\"%s\",\"topology\":\"%s\",\"op_timeout_ms\":%u,\"check\":\"%s\",",
             comm->agreed.device_kind == TPCOMM_DEVICE_CUDA ? "cuda" : "cpu", tpc_topology_name(comm->agreed.topology),
             atomic_load(&comm->workspace.header->op_timeout_ms), tpc_check_name(comm));
    emit_failure(emit, comm);
    tpc_emit(emit, ",\n\"peers\":[");
    for (int32_t r = 0; r < comm->size; r++) {
        const tpc_member_t *member = tpc_bootstrap_member(comm->world->bootstrap, comm->ranks[r]);
        tpc_emit(emit, "%s{\"rank\":%d,\"pid\":%d,\"host\":", r > 0 ? ",\n" : "", r, member->pid);
        tpc_emit_string(emit, member->host_id);
        tpc_emit(emit, ",\"times_last\":%llu}", (unsigned long long)tpc_comm_times_last(comm, r));
    }
    tpc_emit(emit, "],\n\"paths\":[");
    const char *comma = "";
    for (int path = 0; path < TPC_PATH_END; path++) {
        const tpc_counters_t *counters = &comm->counters[path];
        uint64_t calls = atomic_load_explicit(&counters->calls, memory_order_relaxed);
        if (calls == 0) continue;
        tpc_emit(emit, "%s{\"path\":\"%s\",\"calls\":%llu,\"bytes\":%llu,\"wire_bytes\":%llu,\"wait_us\":", comma,
                 tpcomm_path_name(path), (unsigned long long)calls,
                 (unsigned long long)atomic_load_explicit(&counters->bytes, memory_order_relaxed),
                 (unsigned long long)atomic_load_explicit(&counters->wire_bytes, memory_order_relaxed));
        tpc_comm_waits_t waits = tpc_comm_waits(comm, path);
        tpc_emit_us(emit, waits.wait_ns);
        tpc_emit(emit, ",\"skew_us\":");
        tpc_emit_us(emit, waits.skew_ns);
        tpc_emit(emit, ",\"waits\":%llu}", (unsigned long long)waits.calls);
        comma = ",\n";
    }
    tpc_emit(emit, "]");
    emit_planes(emit, comm, most, offset_ns);
    tpc_emit(emit, "}");
}

/* Members of an object that is open. */
static void emit_world(tpc_emit_t *emit, tpc_world_t *world, const char *cause, uint64_t most) {
    uint64_t offset_ns = wall_offset_ns();
    const tpc_bootstrap_t *bootstrap = world->bootstrap;
    int32_t rank = tpc_bootstrap_rank(bootstrap);
    tpc_emit(emit, "\"version\":\"%d.%d.%d\",\"written_us\":%llu,\"pid\":%d,\"host\":", TPCOMM_VERSION_MAJOR,
             TPCOMM_VERSION_MINOR, TPCOMM_VERSION_PATCH, (unsigned long long)((tpc_clock_ns() + offset_ns) / 1000u),
             (int)getpid());
    tpc_emit_string(emit, tpc_bootstrap_member(bootstrap, rank)->host_id);
    tpc_emit(emit, ",\"job\":\"%016llx\",\"rank\":%d,\"size\":%d,\"cause\":",
             (unsigned long long)tpc_bootstrap_nonce(bootstrap), rank, tpc_bootstrap_size(bootstrap));
    tpc_emit_string(emit, cause);
    tpc_emit(emit, ",\n\"groups\":[");
    pthread_mutex_lock(&world->lock);
    for (const tpcomm_t *comm = world->groups; comm != NULL; comm = comm->next_group) {
        emit_group(emit, comm, most, offset_ns);
        tpc_emit(emit, comm->next_group != NULL ? ",\n" : "");
    }
    pthread_mutex_unlock(&world->lock);
    tpc_emit(emit, "]");
}

void tpc_report_flight(tpc_world_t *world, const char *cause, tpc_emit_t *emit) {
    tpc_emit(emit, "{\"schema\":\"tpcomm-flight/1\",");
    emit_world(emit, world, cause, UINT64_MAX);
    tpc_emit(emit, "}\n");
}

void tpc_report_status_json(tpc_world_t *world, tpc_emit_t *emit) {
    tpc_emit(emit, "{");
    emit_world(emit, world, NULL, LAST_CALLS);
    tpc_emit(emit, "}");
}

/* ------------------------------------------------------------------ text */

static void emit_plane_text(tpc_emit_t *emit, const tpcomm_t *comm, const plane_view_t *view) {
    uint64_t last = atomic_load_explicit(&view->plane->flight.seq, memory_order_acquire), now = tpc_clock_ns();
    tpc_flight_record_t record;
    char call[128];
    if (last == 0) return;
    tpc_emit(emit, "    %s calls: %llu begun, %llu ended; last of each rank:", view->name, (unsigned long long)last,
             (unsigned long long)atomic_load_explicit(&view->plane->flight.ended, memory_order_acquire));
    for (int32_t r = 0; r < comm->size; r++) tpc_emit(emit, " %llu", (unsigned long long)seq_of(comm, view, r));
    tpc_emit(emit, "\n");
    if (in_flight(comm, view, &record)) {
        uint64_t ms = now > record.start_ns ? (now - record.start_ns) / 1000000u : 0;
        tpc_emit(emit, "    in %s for %llu ms, waits for", tpc_flight_text(&record, call, sizeof call),
                 (unsigned long long)ms);
        bool somebody = false;
        for (int32_t r = 0; r < comm->size; r++) {
            if (r == comm->rank || seq_of(comm, view, r) >= record.seq) continue;
            tpc_emit(emit, "%s rank %d (last seq %llu)", somebody ? "," : "", r,
                     (unsigned long long)seq_of(comm, view, r));
            somebody = true;
        }
        tpc_emit(emit, "%s\n", somebody ? "" : " nobody");
    }
    uint64_t first = last > LAST_CALLS ? last - LAST_CALLS + 1 : 1;
    for (uint64_t seq = last; seq >= first; seq--) {
        if (!tpc_flight_read(&view->plane->flight, seq, &record)) continue;
        tpc_emit(emit, "      %-44s %-12s %-9s", tpc_flight_text(&record, call, sizeof call),
                 tpcomm_path_name(record.path), state_of(view, &record));
        if (record.end_ns != 0) {
            tpc_emit(emit, " ");
            tpc_emit_us(emit, record.end_ns - record.start_ns);
            tpc_emit(emit, " us, waited ");
            tpc_emit_us(emit, record.wait_ns);
            if (record.last_rank >= 0) tpc_emit(emit, ", last rank %d", record.last_rank);
        }
        tpc_emit(emit, "\n");
    }
}

static void emit_group_text(tpc_emit_t *emit, const tpcomm_t *comm) {
    tpc_failure_place_t place;
    char text[512];
    tpc_backend_set_poll(&comm->backends);
    tpcomm_status_t status = tpc_failure_look(&comm->failure, &place, text, sizeof text);
    tpc_emit(emit, "  group '%s': rank %d of %d, %s%s, %s%s%s\n", comm->name, comm->rank, comm->size,
             comm->agreed.device_kind == TPCOMM_DEVICE_CUDA ? "cuda" : "cpu",
             comm->check == TPCOMM_CHECK_SYNC ? ", each call checked (TPCOMM_CHECK=sync)" : "",
             status == TPCOMM_OK ? "healthy" : tpcomm_status_name(status), status == TPCOMM_OK ? "" : ": ", text);
    tpc_emit(emit, "    times last:");
    for (int32_t r = 0; r < comm->size; r++) tpc_emit(emit, " %llu", (unsigned long long)tpc_comm_times_last(comm, r));
    tpc_emit(emit, "\n");
    for (int path = 0; path < TPC_PATH_END; path++) {
        const tpc_counters_t *counters = &comm->counters[path];
        uint64_t calls = atomic_load_explicit(&counters->calls, memory_order_relaxed);
        if (calls == 0) continue;
        tpc_emit(emit, "    %-12s %llu calls, %llu bytes, waited ", tpcomm_path_name(path), (unsigned long long)calls,
                 (unsigned long long)atomic_load_explicit(&counters->bytes, memory_order_relaxed));
        tpc_comm_waits_t waits = tpc_comm_waits(comm, path);
        tpc_emit_us(emit, waits.wait_ns);
        tpc_emit(emit, " us, skew ");
        tpc_emit_us(emit, waits.skew_ns);
        tpc_emit(emit, " us in %llu calls\n", (unsigned long long)waits.calls);
    }
    plane_view_t views[PLANES];
    view_planes(comm, views);
    for (int i = 0; i < PLANES; i++) emit_plane_text(emit, comm, &views[i]);
}

void tpc_report_status_text(tpc_world_t *world, tpc_emit_t *emit) {
    const tpc_bootstrap_t *bootstrap = world->bootstrap;
    int32_t rank = tpc_bootstrap_rank(bootstrap);
    tpc_emit(emit, "rank %d of %d, pid %d, job %016llx, tpcomm %d.%d.%d\n", rank, tpc_bootstrap_size(bootstrap),
             (int)getpid(), (unsigned long long)tpc_bootstrap_nonce(bootstrap), TPCOMM_VERSION_MAJOR,
             TPCOMM_VERSION_MINOR, TPCOMM_VERSION_PATCH);
    pthread_mutex_lock(&world->lock);
    for (const tpcomm_t *comm = world->groups; comm != NULL; comm = comm->next_group) emit_group_text(emit, comm);
    pthread_mutex_unlock(&world->lock);
}
