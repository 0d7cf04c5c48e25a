/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Meeting, the same for all ways in that use sockets: come to rank 0 (root.c, join.c), tell each other who is where,
 * make the links (mesh.c). Each step ends in a vote over the connections to rank 0, so that all ranks leave with one
 * result.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/hook.h"
#include "bootstrap/host.h"
#include "bootstrap/internal.h"

/* A rank that knows it is none tries this long to tell the others. */
#define TELL_MS 5000

/* How much sooner than the vote on the links a rank gives up making them. */
#define SOONER_MS 500

/** A meeting in progress. */
typedef struct {
    tpc_bootstrap_t *bootstrap;
    const tpc_place_t *place;
    const tpc_deadline_t *deadline;
    tpc_door_t *door;  /**< rank 0 */
    tpc_lobby_t lobby; /**< where this rank accepts links */
    tpc_record_t record;
    tpc_peer_t peers[TPCOMM_MAX_RANKS];
    tpc_mesh_t mesh;
    char text[TPC_ERROR_BYTES]; /**< of a failure that is still to be voted on */
} meeting_t;

/** Keep the text of a failure until the vote. */
static tpcomm_status_t hold(meeting_t *meeting, tpcomm_status_t status) {
    if (status != TPCOMM_OK) snprintf(meeting->text, sizeof meeting->text, "%s", tpcomm_last_error());
    return status;
}

static tpcomm_status_t prepare(meeting_t *meeting) {
    tpc_record_t *record = &meeting->record;
    const tpc_self_t *self = &meeting->bootstrap->self;
    uint64_t name;
    int fd;
    record->process = self->process;
    record->pid = (int32_t)getpid();
    memcpy(record->host_id, self->host_id, sizeof record->host_id);
    tpcomm_status_t status = tpc_lobby_open(&meeting->lobby, TPC_HELLO_LINK);
    meeting->lobby.secret = self->secret;
    if (status == TPCOMM_OK) status = tpc_random(&name, sizeof name);
    if (status != TPCOMM_OK) return status;
    snprintf(record->unix_name, sizeof record->unix_name, "tpcomm-link-%016llx", (unsigned long long)name);
    int err = tpc_unix_listen(record->unix_name, &fd);
    if (err != 0)
        return tpc_error_errno(err == EMFILE || err == ENFILE ? TPCOMM_ERR_NO_MEMORY : TPCOMM_ERR_IO, err,
                               "cannot listen at unix socket @%s", record->unix_name);
    return tpc_lobby_listen(&meeting->lobby, fd, true);
}

static tpcomm_status_t come_together(meeting_t *meeting, tpcomm_status_t mine) {
    tpc_bootstrap_t *bootstrap = meeting->bootstrap;
    tpcomm_status_t status;
    if (bootstrap->self.rank == 0) {
        status = tpc_random(&bootstrap->nonce, sizeof bootstrap->nonce);
        if (status == TPCOMM_OK)
            status = tpc_root_open(meeting->place, &bootstrap->self, meeting->deadline, &meeting->door);
        if (meeting->door) status = tpc_root_collect(bootstrap, meeting->door, status, meeting->deadline);
    } else {
        status = tpc_join(bootstrap, meeting->place, meeting->deadline);
    }
    if (status != TPCOMM_OK) return status;

    tpc_record_t all[TPCOMM_MAX_RANKS];
    if (mine != TPCOMM_OK) (void)tpc_error(mine, "%s", meeting->text);
    status = tpc_team_gather(bootstrap, &bootstrap->world, TPC_STEP_MEET, mine, &meeting->record,
                             sizeof meeting->record, all, meeting->deadline);
    if (status == TPCOMM_ERR_TIMEOUT && meeting->place->hint[0] != '\0')
        return tpc_error(status, "%s. %s", tpcomm_last_error(), meeting->place->hint);
    if (status != TPCOMM_OK) return status;
    for (int32_t rank = 0; rank < bootstrap->self.size; rank++) {
        all[rank].host_id[sizeof all[rank].host_id - 1] = '\0';
        all[rank].unix_name[sizeof all[rank].unix_name - 1] = '\0';
        meeting->peers[rank].record = all[rank];
        bootstrap->said_pid[rank] = all[rank].pid;
        bootstrap->process[rank] = all[rank].process;
    }
    return TPCOMM_OK;
}

static void add_address(tpc_wire_addresses_t *addresses, const tpc_address_t *address) {
    if (addresses->count == TPC_WIRE_ADDRESSES) return;
    for (size_t i = 0; i < addresses->count; i++)
        if (memcmp(addresses->ip[i], address->ip, sizeof address->ip) == 0) return;
    memcpy(addresses->ip[addresses->count++], address->ip, sizeof address->ip);
}

/** Listen for ranks of other hosts, and say where: first the address by which this host talks to rank 0. */
static tpcomm_status_t listen_tcp(meeting_t *meeting, tpc_wire_addresses_t *addresses) {
    tpc_address_t own, interfaces[TPC_WIRE_ADDRESSES];
    tpc_address_t loopback = {.ip = {[10] = 0xff, [11] = 0xff, [12] = 127, [15] = 1}};
    /* One machine, made two hosts by TPCOMM_HOST_ID, needs no more than loopback. */
    bool one_machine = meeting->place->loopback_only;
    int fd, err;
    const char *bind = meeting->place->bind;
    size_t count = 0;
    if (bind[0] != '\0' && meeting->bootstrap->self.rank == 0 && tpc_tcp_resolve(bind, 0, &own, 1, &count) == 0)
        err = tpc_tcp_listen(&own, &fd);
    else
        err = tpc_tcp_listen_any(0, one_machine, &fd);
    if (err == 0) err = tpc_tcp_local(fd, &own);
    if (err != 0) return tpc_error_errno(TPCOMM_ERR_IO, err, "cannot listen for ranks of other hosts by TCP");
    addresses->port = own.port;
    if (count > 0) add_address(addresses, &own);
    int root_fd = meeting->bootstrap->links.boxes->box[0].fd;
    if (root_fd >= 0 && tpc_tcp_local(root_fd, &own) == 0 && !tpc_address_is_loopback(&own))
        add_address(addresses, &own);
    if (!one_machine) {
        size_t found = tpc_tcp_interfaces(interfaces, TPC_WIRE_ADDRESSES - 1);
        for (size_t i = 0; i < found && addresses->count < TPC_WIRE_ADDRESSES - 1; i++)
            add_address(addresses, &interfaces[i]);
    }
    add_address(addresses, &loopback);
    return tpc_lobby_listen(&meeting->lobby, fd, false);
}

static tpcomm_status_t tell_addresses(meeting_t *meeting) {
    tpc_bootstrap_t *bootstrap = meeting->bootstrap;
    bool several_hosts = false;
    for (int32_t rank = 1; rank < bootstrap->self.size; rank++)
        several_hosts |= strcmp(meeting->peers[rank].record.host_id, meeting->peers[0].record.host_id) != 0;
    if (!several_hosts) return TPCOMM_OK;
    tpc_wire_addresses_t mine = {.port = 0}, all[TPCOMM_MAX_RANKS];
    tpcomm_status_t status = listen_tcp(meeting, &mine);
    status =
        tpc_team_gather(bootstrap, &bootstrap->world, "addresses", status, &mine, sizeof mine, all, meeting->deadline);
    for (int32_t rank = 0; status == TPCOMM_OK && rank < bootstrap->self.size; rank++)
        meeting->peers[rank].addresses = all[rank];
    return status;
}

/** The connections to rank 0 give way to the links, which are equal between all ranks. */
static tpcomm_status_t make_links(meeting_t *meeting) {
    tpc_bootstrap_t *bootstrap = meeting->bootstrap;
    tpc_mesh_t *mesh = &meeting->mesh;
    int32_t size = bootstrap->self.size, me = bootstrap->self.rank;
    tpcomm_status_t status = tpc_hook("mesh", me);
    /* A little sooner than the vote: whoever waits for another one's link is heard of it, and not taken for missing. */
    tpc_deadline_t deadline = *meeting->deadline;
    uint64_t sooner_ms = tpc_deadline_left_ms(&deadline) / 8;
    sooner_ms = tpc_hook_value("sooner_ms", sooner_ms < SOONER_MS ? sooner_ms : SOONER_MS);
    deadline.at_ns -= sooner_ms * UINT64_C(1000000);
    if (status == TPCOMM_OK) status = tpc_mesh_make(bootstrap, &meeting->lobby, meeting->peers, &deadline, mesh);
    status = tpc_team_gather_urgent(bootstrap, &bootstrap->world, "mesh", status, NULL, 0, NULL, meeting->deadline);
    if (status != TPCOMM_OK) return status;
    for (int32_t rank = 0; rank < size; rank++)
        if (rank != me && mesh->fd[rank] < 0)
            return tpc_error(TPCOMM_ERR_PEER_FAILED, "rank 0 went on without a link to rank %d", rank);
    for (int32_t rank = 0; rank < size; rank++) {
        if (rank == me) continue;
        tpc_bootstrap_set_member(bootstrap, rank, &meeting->peers[rank].record, mesh->pid[rank], mesh->pidfd[rank]);
        tpc_link_attach(&bootstrap->links, rank, mesh->fd[rank], mesh->pidfd[rank], &mesh->seal[rank]);
        mesh->fd[rank] = mesh->pidfd[rank] = -1;
    }
    return TPCOMM_OK;
}

static tpcomm_status_t run(meeting_t *meeting) {
    tpcomm_status_t mine = hold(meeting, tpc_hook("connect", meeting->bootstrap->self.rank));
    tpcomm_status_t prepared = prepare(meeting);
    if (mine == TPCOMM_OK) mine = hold(meeting, prepared);
    tpcomm_status_t status = come_together(meeting, mine);
    if (status == TPCOMM_OK) status = tell_addresses(meeting);
    if (status == TPCOMM_OK) status = make_links(meeting);
    return status;
}

/** This process was given a rank that is none; without it the world cannot be complete, so the others should not wait.
 */
static tpcomm_status_t tell_bad_rank(const tpc_place_t *place, const tpc_self_t *self, const tpc_deadline_t *deadline) {
    tpc_bootstrap_t *bootstrap;
    tpc_deadline_t soon = tpc_deadline_in(TELL_MS, deadline->interrupted, deadline->interrupted_arg);
    if (soon.at_ns > deadline->at_ns) soon.at_ns = deadline->at_ns;
    tpc_self_t nobody = *self;
    nobody.rank = 1; /* any index that the tables have */
    tpcomm_status_t told = TPCOMM_OK;
    if (self->size > 1 && tpc_bootstrap_new(&nobody, &bootstrap) == TPCOMM_OK) {
        bootstrap->self.rank = self->rank;
        told = tpc_join(bootstrap, place, &soon);
        bootstrap->self.rank = nobody.rank;
        tpc_bootstrap_free(bootstrap);
    }
    /* Rank 0 knows better what is wrong: it may be the size. */
    if (told == TPCOMM_ERR_INVALID_ARG || told == TPCOMM_ERR_INTERRUPTED) return told;
    return tpc_error(TPCOMM_ERR_INVALID_ARG, "rank %d is outside the world of %d ranks, which are 0 to %d", self->rank,
                     self->size, self->size - 1);
}

tpcomm_status_t tpc_meet(const tpc_place_t *place, int32_t rank, int32_t size, const char *host_id,
                         const tpc_deadline_t *deadline, tpc_bootstrap_t **bootstrap_p) {
    tpc_self_t self;
    if (size < 1 || size > TPCOMM_MAX_RANKS)
        return tpc_error(TPCOMM_ERR_INVALID_ARG, "size %d: a world has 1 to %d ranks", size, TPCOMM_MAX_RANKS);
    tpcomm_status_t status = tpc_self_fill(rank, size, host_id, &self);
    if (status == TPCOMM_OK) status = tpc_secret_read(&self.secret);
    if (status != TPCOMM_OK) return status;
    if (rank < 0 || rank >= size) return tell_bad_rank(place, &self, deadline);

    meeting_t meeting = {.place = place, .deadline = deadline};
    status = tpc_bootstrap_new(&self, &meeting.bootstrap);
    if (status != TPCOMM_OK) return status;
    tpc_bootstrap_t *bootstrap = meeting.bootstrap;
    snprintf(bootstrap->text, sizeof bootstrap->text, "%s", place->label);
    tpc_mesh_init(&meeting.mesh);
    meeting.lobby.epoll_fd = -1;

    if (size > 1) {
        status = run(&meeting);
        if (meeting.lobby.epoll_fd >= 0) tpc_lobby_close(&meeting.lobby);
        tpc_mesh_free(&meeting.mesh);
    } else {
        status = tpc_hook("connect", rank);
        if (status == TPCOMM_OK) status = tpc_random(&bootstrap->nonce, sizeof bootstrap->nonce);
    }
    if (status != TPCOMM_OK) {
        tpc_bootstrap_free(bootstrap);
        if (meeting.door) tpc_door_leave(meeting.door, NULL);
        return status;
    }
    if (meeting.door) tpc_door_met(meeting.door, bootstrap);
    *bootstrap_p = bootstrap;
    return TPCOMM_OK;
}

/* ------------------------------------------------------------------ as a launcher says */

/** Where the ranks that a launcher describes meet. */
static tpcomm_status_t place_of(const tpc_rank_env_t *env, tpc_place_t *place) {
    memset(place, 0, sizeof *place);
    place->hint = "";
    place->job = tpc_hash(TPC_HASH_START, env->job, strlen(env->job));
    snprintf(place->unix_name, sizeof place->unix_name, "tpcomm-%u-%016llx", (unsigned)geteuid(),
             (unsigned long long)place->job);
    snprintf(place->bind, sizeof place->bind, "%s", env->bind);
    if (env->root[0] != '\0') {
        if (!tpc_host_port_parse(env->root, place->host, sizeof place->host, &place->first_port))
            return tpc_error(TPCOMM_ERR_CONFIG,
                             "TPCOMM_ROOT='%s': wanted is host:port or [address]:port, with a port of 1 to 65535",
                             env->root);
        place->last_port = place->first_port;
        place->exact = true;
        snprintf(place->text, sizeof place->text, "TPCOMM_ROOT=%.200s", env->root);
        return TPCOMM_OK;
    }
    bool one_host = env->local_size == env->size;
    if (one_host || (env->local_size <= 0 && env->root_host[0] == '\0')) {
        place->loopback_only = true;
        snprintf(place->text, sizeof place->text, "unix socket @%s", place->unix_name);
        if (!one_host)
            place->hint = "If the ranks are on several hosts, set TPCOMM_ROOT=host:port, host being rank 0's";
        return TPCOMM_OK;
    }
    if (env->root_host[0] == '\0' || env->root_base_port == 0)
        return tpc_error(
            TPCOMM_ERR_CONFIG,
            "%d of %d ranks are on this host: set TPCOMM_ROOT=host:port (host being rank 0's, port a free one), or "
            "MASTER_ADDR and MASTER_PORT, on all ranks",
            env->local_size, env->size);
    /* The base port itself is the launcher's: torchrun's agent listens there. */
    uint32_t first = env->root_base_port + 1u, last = env->root_base_port + 16u;
    if (first > 65535)
        return tpc_error(TPCOMM_ERR_CONFIG,
                         "MASTER_PORT=%u: the ports behind it are used, and there are none; set TPCOMM_ROOT=host:port",
                         env->root_base_port);
    place->first_port = (uint16_t)first;
    place->last_port = (uint16_t)(last < 65535 ? last : 65535);
    snprintf(place->host, sizeof place->host, "%s", env->root_host);
    snprintf(place->text, sizeof place->text, "MASTER_ADDR=%.180s ports %u to %u", env->root_host, place->first_port,
             place->last_port);
    return TPCOMM_OK;
}

tpcomm_status_t tpc_bootstrap_meet_env(const tpc_rank_env_t *env, const tpc_deadline_t *deadline,
                                       tpc_bootstrap_t **bootstrap_p) {
    tpc_place_t place;
    tpcomm_status_t status = place_of(env, &place);
    snprintf(place.label, sizeof place.label, "%.100s, %.150s", env->size == 1 ? "a world of 1" : place.text,
             env->used);
    if (status == TPCOMM_OK) status = tpc_meet(&place, env->rank, env->size, env->host_id, deadline, bootstrap_p);
    if (status != TPCOMM_OK) return tpc_error(status, "%s (%s)", tpcomm_last_error(), env->used);
    return TPCOMM_OK;
}
