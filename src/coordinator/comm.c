/* SPDX-License-Identifier: Apache-2.0 */
/* Making and freeing a communicator. */
#include "coordinator/comm.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/hash.h"
#include "base/hook.h"
#include "base/log.h"
#include "health/agreement.h"

/* Spinning before sleeping. Where every rank has a processor: about two decode steps' skew. Where not, the processor is
 * better used by the rank that is waited for. */
#define SPIN_US_OWN_CPU    200u
#define SPIN_US_SHARED_CPU 2u

#define WORLD_GROUP_ID 1u

static uint32_t spin_us(int32_t ranks_here) {
    cpu_set_t cpus;
    if (sched_getaffinity(0, sizeof cpus, &cpus) != 0) return SPIN_US_SHARED_CPU;
    return CPU_COUNT(&cpus) >= ranks_here ? SPIN_US_OWN_CPU : SPIN_US_SHARED_CPU;
}

/* ------------------------------------------------------------------ watching */

/* On the watchdog's thread. */
static void peer_ended(void *arg) {
    tpc_peer_watch_t *peer = arg;
    tpcomm_t *comm = peer->comm;
    if (atomic_load(&comm->failure.slots[peer->rank].left) != 0 || atomic_load(&comm->finalized) != 0) return;
    char text[160];
    snprintf(text, sizeof text, "rank %d (pid %d) ended without finalizing", peer->rank, peer->pid);
    tpc_failure_place_t place = {.rank = peer->rank};
    tpc_failure_raise(&comm->failure, TPCOMM_ERR_PEER_DIED, place, text);
}

static void late_comer(void *arg) {
    tpc_listener_watch_t *listener = arg;
    tpc_bootstrap_serve(listener->comm->bootstrap, listener->fd);
}

static tpcomm_status_t watch_all(tpcomm_t *comm) {
    for (int32_t r = 0; r < comm->size; r++) {
        const tpc_member_t *member = tpc_bootstrap_member(comm->bootstrap, comm->ranks[r]);
        if (r == comm->rank || member->pidfd < 0) continue;
        comm->peers[r] = (tpc_peer_watch_t){.comm = comm, .rank = r, .pid = member->pid};
        tpcomm_status_t status =
            tpc_watchdog_add(member->pidfd, true, peer_ended, &comm->peers[r], &comm->peers[r].watch);
        if (status != TPCOMM_OK) return status;
    }
    int fds[2];
    int32_t count = tpc_bootstrap_listeners(comm->bootstrap, fds);
    for (int32_t i = 0; i < count; i++) {
        comm->listeners[i] = (tpc_listener_watch_t){.comm = comm, .fd = fds[i]};
        tpcomm_status_t status =
            tpc_watchdog_add(fds[i], false, late_comer, &comm->listeners[i], &comm->listeners[i].watch);
        if (status != TPCOMM_OK) return status;
    }
    return TPCOMM_OK;
}

/* ------------------------------------------------------------------ making */

static void wake_all(void *arg) {
    tpcomm_t *comm = arg;
    comm->backend->wake(comm->backend_state);
}

static bool has_path(const tpc_backend_t *backend, tpcomm_path_t path) {
    for (const tpcomm_path_t *own = backend->paths; *own != 0; own++)
        if (*own == path) return true;
    return false;
}

/* Everything that is decided from what the ranks agreed on; the same verdict everywhere. */
static tpcomm_status_t decide_facts(tpcomm_t *comm, const tpc_team_t *team, const tpc_device_t **device_p) {
    const tpc_settings_t *settings = comm->settings;
    int32_t odd = 0;
    tpcomm_status_t status = tpc_device_find(settings->device_kind, device_p);
    if (status != TPCOMM_OK) return status;
    comm->agreed = (tpc_agreed_t){.size = comm->size,
                                  .device_kind = (*device_p)->kind,
                                  .topology = tpc_topology_of_cpu_team(comm->bootstrap, team, &odd),
                                  .deterministic = settings->deterministic,
                                  .forced_path = settings->forced_path,
                                  .workspace_bytes = settings->workspace_bytes};
    if (comm->agreed.topology == TPC_TOPOLOGY_MULTI_HOST)
        return tpc_error(TPCOMM_ERR_NO_TRANSPORT,
                         "the cpu device carries data within one host, but rank 0 is on host '%s' and rank %d on '%s'",
                         tpc_bootstrap_member(comm->bootstrap, team->ranks[0])->host_id, odd,
                         tpc_bootstrap_member(comm->bootstrap, team->ranks[odd])->host_id);
    comm->backend = tpc_backends[0];
    if (settings->forced_path != 0 && !has_path(comm->backend, settings->forced_path))
        return tpc_error(TPCOMM_ERR_CONFIG, "TPCOMM_PATH or config.path asks for %s, which this group does not have",
                         tpcomm_path_name(settings->forced_path));
    return TPCOMM_OK;
}

/* The leader reads the tuning file, if any, and hands its rows to all. */
static tpcomm_status_t share_table(tpcomm_t *comm, const tpc_team_t *team, const char *device, tpc_table_t *table,
                                   const tpc_deadline_t *deadline) {
    tpc_table_builtin(table);
    if (comm->settings->tuning_file[0] == '\0') return TPCOMM_OK;
    tpcomm_status_t status = TPCOMM_OK;
    if (team->me == 0) status = tpc_table_read(comm->settings->tuning_file, device, table);
    if (team->n == 1) return status;
    void *data = table;
    size_t bytes = team->me == 0 ? offsetof(tpc_table_t, rows) + table->count * sizeof *table->rows : 0;
    status = tpc_team_broadcast(comm->bootstrap, team, "read tuning file", status, &data, &bytes, deadline);
    if (status != TPCOMM_OK || team->me == 0) return status;
    bool fits = bytes >= offsetof(tpc_table_t, rows) && bytes <= sizeof *table;
    if (fits) memcpy(table, data, bytes);
    fits = fits && bytes == offsetof(tpc_table_t, rows) + table->count * sizeof *table->rows;
    free(data);
    return fits ? TPCOMM_OK
                : tpc_error(TPCOMM_ERR_PEER_FAILED, "the tuning table came in %zu bytes, which is no table", bytes);
}

/* The last vote: what the choice depends on is equal, and everybody has everything. */
static tpcomm_status_t vote_ready(tpcomm_t *comm, const tpc_team_t *team, const tpc_table_t *table,
                                  tpcomm_status_t status, const tpc_deadline_t *deadline) {
    tpc_agree_item_t items[2] = {{.name = "hash of the tuning table", .set = true},
                                 {.name = "hash of the agreed record", .set = true}};
    const tpc_agreed_t *a = &comm->agreed;
    uint64_t record[6] = {(uint64_t)a->size,          (uint64_t)a->device_kind, (uint64_t)a->topology,
                          (uint64_t)a->deterministic, (uint64_t)a->forced_path, a->workspace_bytes};
    uint64_t table_hash = tpc_hook_value("table_hash", tpc_table_hash(table));
    snprintf(items[0].value, sizeof items[0].value, "%016llx", (unsigned long long)table_hash);
    snprintf(items[1].value, sizeof items[1].value, "%016llx",
             (unsigned long long)tpc_hash(TPC_HASH_START, record, sizeof record));
    return tpc_agree(comm->bootstrap, team, "ready", status, items, 2, deadline);
}

static tpcomm_status_t make_parts(tpcomm_t *comm, const tpc_table_t *table) {
    tpc_backend_group_t group = {.agreed = comm->agreed,
                                 .rank = comm->rank,
                                 .workspace = &comm->workspace,
                                 .wait = &comm->wait,
                                 .failure = &comm->failure};
    tpcomm_status_t status = tpc_hook("backend", comm->rank);
    if (status == TPCOMM_OK) status = comm->backend->create(&group, &comm->backend_state);
    if (status != TPCOMM_OK) return status;
    comm->failure.wake = wake_all;
    comm->failure.wake_arg = comm;
    status = tpc_dispatch_new(&comm->agreed, table, tpc_backends, &comm->dispatch);
    if (status == TPCOMM_OK) status = tpc_hook("watch", comm->rank);
    if (status == TPCOMM_OK) status = watch_all(comm);
    return status;
}

static void set_up_health(tpcomm_t *comm) {
    tpc_workspace_header_t *header = comm->workspace.header;
    atomic_store(&header->op_timeout_ms, comm->settings->op_timeout_ms); /* the same on all ranks */
    comm->failure = (tpc_failure_t){
        .word = &header->fail, .slots = (void *)comm->workspace.data, .rank = comm->rank, .size = comm->size};
    comm->wait = (tpc_wait_t){.failure = &comm->failure,
                              .timeout_ms = &header->op_timeout_ms,
                              .spin_us = spin_us(comm->size),
                              .interrupted = comm->settings->config.interrupted,
                              .interrupted_arg = comm->settings->config.interrupted_arg};
}

tpcomm_status_t tpc_comm_create(tpc_bootstrap_t *bootstrap, tpc_settings_t *settings, const char *name,
                                const tpc_deadline_t *deadline, tpcomm_t **comm_p) {
    tpcomm_status_t status;
    const tpc_device_t *device = NULL;
    size_t data_bytes = 0;
    tpc_table_t *table = malloc(sizeof *table);
    tpcomm_t *comm = calloc(1, sizeof *comm);
    if (comm == NULL || table == NULL) {
        free(comm);
        free(table);
        tpc_bootstrap_free(bootstrap);
        free(settings);
        return tpc_error(TPCOMM_ERR_NO_MEMORY, "out of memory");
    }
    comm->bootstrap = bootstrap;
    comm->settings = settings;
    comm->rank = tpc_bootstrap_rank(bootstrap);
    comm->size = tpc_bootstrap_size(bootstrap);
    comm->fork_generation = tpc_fork_generation();
    snprintf(comm->name, sizeof comm->name, "%s", name);
    for (int32_t r = 0; r < comm->size; r++) comm->ranks[r] = r;
    tpc_team_t team = {.channel = 0, .ranks = comm->ranks, .n = comm->size, .me = comm->rank};

    status = tpc_settings_agree(settings, bootstrap, &team, deadline);
    if (status == TPCOMM_OK) status = decide_facts(comm, &team, &device);
    if (status == TPCOMM_OK) status = share_table(comm, &team, device->name, table, deadline);
    if (status == TPCOMM_OK) status = comm->backend->workspace_bytes(&comm->agreed, &data_bytes);
    if (status == TPCOMM_OK)
        status = tpc_workspace_open(bootstrap, &team, device, WORLD_GROUP_ID, data_bytes, deadline, &comm->workspace);
    if (status == TPCOMM_OK) {
        set_up_health(comm);
        status = vote_ready(comm, &team, table, make_parts(comm, table), deadline);
    }
    if (status != TPCOMM_OK) {
        tpc_comm_free(comm);
        free(table);
        return status;
    }
    snprintf(comm->tuning_origin, sizeof comm->tuning_origin, "%s", table->origin);
    free(table);
    *comm_p = comm;
    return TPCOMM_OK;
}

void tpc_comm_free(tpcomm_t *comm) {
    /* The watchdog first: it uses everything else. */
    for (int32_t r = 0; r < comm->size; r++) tpc_watchdog_remove(comm->peers[r].watch);
    for (int i = 0; i < 2; i++) tpc_watchdog_remove(comm->listeners[i].watch);
    tpc_dispatch_free(comm->dispatch);
    if (comm->backend_state != NULL) comm->backend->destroy(comm->backend_state);
    /* A forked child's mapping is shared with its parent, who counts its users. */
    if (comm->fork_generation == tpc_fork_generation()) tpc_workspace_close(&comm->workspace);
    tpc_bootstrap_free(comm->bootstrap);
    free(comm->settings);
    free(comm);
}
