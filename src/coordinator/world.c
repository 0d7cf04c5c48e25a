/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/world.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "base/error.h"
#include "base/hash.h"
#include "base/hook.h"
#include "base/log.h"
#include "base/pattern.h"
#include "coordinator/comm.h"
#include "coordinator/report.h"

/* How soon a rank that is in no call dumps its calls after a failure. */
#define TICK_MS 500

tpcomm_status_t tpc_world_new(tpc_bootstrap_t *bootstrap, tpc_settings_t *settings, tpc_world_t **world_p) {
    tpc_world_t *world = calloc(1, sizeof *world);
    if (world == NULL || pthread_mutex_init(&world->lock, NULL) != 0) {
        free(world);
        free(settings);
        tpc_bootstrap_free(bootstrap);
        return tpc_error(TPCOMM_ERR_NO_MEMORY, "out of memory");
    }
    world->bootstrap = bootstrap;
    world->settings = settings;
    world->fork_generation = tpc_fork_generation();
    world->references = 1;
    world->tick_fd = -1;
    *world_p = world;
    return TPCOMM_OK;
}

/* ------------------------------------------------------------------ watching */

/* On the watchdog's thread. */
static void peer_ended(void *arg) {
    tpc_peer_watch_t *peer = arg;
    pthread_mutex_lock(&peer->world->lock);
    for (tpcomm_t *group = peer->world->groups; group != NULL; group = group->next_group)
        tpc_comm_peer_ended(group, peer->rank, peer->pid, TPC_PEER_ENDED);
    pthread_mutex_unlock(&peer->world->lock);
}

static void late_comer(void *arg) {
    tpc_listener_watch_t *listener = arg;
    tpc_bootstrap_serve(listener->world->bootstrap, listener->fd);
}

/* A rank may be stuck in the caller's own code while its group has long failed: its calls are what tells why. */
static void look_at_groups(void *arg) {
    tpc_world_t *world = arg;
    uint64_t fired;
    (void)!read(world->tick_fd, &fired, sizeof fired);
    const tpcomm_t *failed = NULL;
    char name[sizeof failed->name];
    pthread_mutex_lock(&world->lock);
    for (tpcomm_t *group = world->groups; group != NULL; group = group->next_group) {
        tpc_backend_set_poll(&group->backends); /* a kernel may have given up, and no rank's host be in a call */
        if (tpc_failure_status(&group->failure) == TPCOMM_OK || atomic_exchange(&group->dumped, 1) != 0) continue;
        memcpy(name, group->name, sizeof name);
        failed = group;
    }
    pthread_mutex_unlock(&world->lock);
    if (failed != NULL) tpc_report_failure(world, name); /* the group itself may be gone by now */
}

static tpcomm_status_t start_ticking(tpc_world_t *world) {
    const long tick_ns = (long)tpc_hook_value("tick_ms", TICK_MS) * 1000000L;
    const struct itimerspec every = {.it_interval = {.tv_nsec = tick_ns}, .it_value = {.tv_nsec = tick_ns}};
    if (world->settings->env.value[TPC_ENV_FLIGHT_DIR].text[0] == '\0') return TPCOMM_OK;
    world->tick_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    if (world->tick_fd < 0 || timerfd_settime(world->tick_fd, 0, &every, NULL) != 0)
        return tpc_error_errno(TPCOMM_ERR_NO_MEMORY, errno, "cannot make a timer");
    return tpc_watchdog_add(world->tick_fd, false, look_at_groups, world, &world->tick);
}

static void status_text(void *arg, tpc_emit_t *emit) {
    tpc_report_status_text(arg, emit);
}
static void status_json(void *arg, tpc_emit_t *emit) {
    tpc_report_status_json(arg, emit);
}
static void status_flight(void *arg, tpc_emit_t *emit) {
    tpc_report_flight(arg, NULL, emit);
}

/* An address that is none is a mistake to be told; one that cannot be had is no reason not to work. */
static tpcomm_status_t open_status_socket(tpc_world_t *world) {
    const char *pattern = world->settings->env.value[TPC_ENV_STATUS_SOCKET].text;
    const tpc_status_source_t source = {
        .text = status_text, .json = status_json, .flight = status_flight, .arg = world};
    char address[TPC_ENV_TEXT_BYTES];
    if (pattern[0] == '\0') return TPCOMM_OK;
    tpcomm_status_t status = tpc_pattern_expand("TPCOMM_STATUS_SOCKET", pattern, tpc_bootstrap_rank(world->bootstrap),
                                                address, sizeof address);
    if (status == TPCOMM_OK) status = tpc_status_open(address, &source, &world->status_socket);
    if (status != TPCOMM_ERR_ADDR_IN_USE && status != TPCOMM_ERR_IO) return status;
    TPC_WARN("status", "rank %d answers nowhere: %s; %%r and %%p make an address for each rank",
             tpc_bootstrap_rank(world->bootstrap), tpcomm_last_error());
    return TPCOMM_OK;
}

tpcomm_status_t tpc_world_watch(tpc_world_t *world) {
    int32_t size = tpc_bootstrap_size(world->bootstrap);
    for (int32_t r = 0; r < size; r++) {
        const tpc_member_t *member = tpc_bootstrap_member(world->bootstrap, r);
        if (member->pidfd < 0) continue;
        world->peers[r] = (tpc_peer_watch_t){.world = world, .rank = r, .pid = member->pid};
        tpcomm_status_t status =
            tpc_watchdog_add(member->pidfd, TPC_WATCH_ONCE, peer_ended, &world->peers[r], &world->peers[r].watch);
        if (status != TPCOMM_OK) return status;
    }
    int fds[2];
    int32_t count = tpc_bootstrap_listeners(world->bootstrap, fds);
    for (int32_t i = 0; i < count; i++) {
        world->listeners[i] = (tpc_listener_watch_t){.world = world, .fd = fds[i]};
        tpcomm_status_t status =
            tpc_watchdog_add(fds[i], TPC_WATCH_LEVEL, late_comer, &world->listeners[i], &world->listeners[i].watch);
        if (status != TPCOMM_OK) return status;
    }
    tpcomm_status_t status = tpc_world_watch_links(world);
    if (status == TPCOMM_OK) status = start_ticking(world);
    return status == TPCOMM_OK ? open_status_socket(world) : status;
}

/* ------------------------------------------------------------------ groups */

void tpc_world_retain(tpc_world_t *world) {
    pthread_mutex_lock(&world->lock);
    world->references++;
    pthread_mutex_unlock(&world->lock);
}

void tpc_world_enlist(tpc_world_t *world, tpcomm_t *group) {
    pthread_mutex_lock(&world->lock);
    group->next_group = world->groups;
    world->groups = group;
    pthread_mutex_unlock(&world->lock);
}

void tpc_world_forget(tpc_world_t *world, tpcomm_t *group) {
    pthread_mutex_lock(&world->lock);
    for (tpcomm_t **link = &world->groups; *link != NULL; link = &(*link)->next_group) {
        if (*link != group) continue;
        *link = group->next_group;
        break;
    }
    pthread_mutex_unlock(&world->lock);
}

void tpc_world_release(tpc_world_t *world) {
    pthread_mutex_lock(&world->lock);
    int32_t left = --world->references;
    pthread_mutex_unlock(&world->lock);
    if (left > 0) return;
    /* The watchdog first: it uses everything else. Not under the lock, which its functions take. */
    for (int32_t r = 0; r < TPCOMM_MAX_RANKS; r++) tpc_watchdog_remove(world->peers[r].watch);
    for (int i = 0; i < 2; i++) tpc_watchdog_remove(world->listeners[i].watch);
    tpc_watchdog_remove(world->attention);
    tpc_status_close(world->status_socket);
    tpc_watchdog_remove(world->tick);
    if (world->tick_fd >= 0) close(world->tick_fd);
    for (tpc_members_t *members = world->members; members != NULL;) {
        tpc_members_t *next = members->next;
        free(members);
        members = next;
    }
    tpc_bootstrap_free(world->bootstrap);
    free(world->settings);
    free(world->table);
    pthread_mutex_destroy(&world->lock);
    free(world);
}

static tpc_members_t *find_members(tpc_world_t *world, uint64_t hash) {
    tpc_members_t *members = world->members;
    while (members != NULL && members->hash != hash) members = members->next;
    return members;
}

/* Under the lock. OK with *members_p NULL: another thread is at it. */
static tpcomm_status_t take_members(tpc_world_t *world, uint64_t hash, tpc_members_t **members_p) {
    tpc_members_t *members = find_members(world, hash);
    if (members == NULL) {
        members = calloc(1, sizeof *members);
        if (members == NULL) return tpc_error(TPCOMM_ERR_NO_MEMORY, "out of memory");
        members->hash = hash;
        members->next = world->members;
        world->members = members;
    }
    *members_p = members->busy ? NULL : members;
    members->busy = true;
    return TPCOMM_OK;
}

tpcomm_status_t tpc_world_begin_step(tpc_world_t *world, uint64_t parent_id, const int32_t *ranks, int32_t n,
                                     const tpc_deadline_t *deadline, uint64_t *channel_p, uint64_t *number_p) {
    uint64_t hash = tpc_hash(TPC_HASH_START, &parent_id, sizeof parent_id);
    hash = tpc_hash(hash, ranks, (size_t)n * sizeof *ranks) | 1u; /* never 0, which is the world's own channel */
    for (;;) {
        tpc_members_t *members = NULL;
        pthread_mutex_lock(&world->lock);
        tpcomm_status_t status = take_members(world, hash, &members);
        if (status == TPCOMM_OK && members != NULL) {
            *number_p = ++members->made;
            *channel_p = hash;
        }
        pthread_mutex_unlock(&world->lock);
        if (status != TPCOMM_OK || members != NULL) return status;
        if (tpc_deadline_left_ms(deadline) == 0)
            return tpc_error(TPCOMM_ERR_BUSY, "another thread is making a group of the same ranks");
        status = tpc_deadline_sleep(deadline, 1);
        if (status != TPCOMM_OK && status != TPCOMM_ERR_TIMEOUT) return status;
    }
}

void tpc_world_end_step(tpc_world_t *world, uint64_t channel) {
    pthread_mutex_lock(&world->lock);
    tpc_members_t *members = find_members(world, channel);
    if (members != NULL) members->busy = false;
    pthread_mutex_unlock(&world->lock);
}
