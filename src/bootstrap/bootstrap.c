/* SPDX-License-Identifier: Apache-2.0 */
/** Facts of a met job, and its end. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/text.h"
#include "bootstrap/host.h"
#include "bootstrap/internal.h"

tpcomm_status_t tpc_bootstrap_new(const tpc_self_t *self, tpc_bootstrap_t **bootstrap_p) {
    tpc_bootstrap_t *bootstrap = calloc(1, sizeof *bootstrap);
    if (!bootstrap) return tpc_error(TPCOMM_ERR_NO_MEMORY, "no memory to meet %d ranks", self->size);
    bootstrap->self = *self;
    bootstrap->owner_pid = getpid();
    bootstrap->door_fd = bootstrap->attention_fd = -1;
    for (int32_t rank = 0; rank < TPCOMM_MAX_RANKS; rank++) {
        bootstrap->world_ranks[rank] = rank;
        bootstrap->member[rank].rank = rank;
        bootstrap->member[rank].pidfd = -1;
    }
    bootstrap->world = (tpc_team_t){.channel = 0, .ranks = bootstrap->world_ranks, .n = self->size, .me = self->rank};
    tpcomm_status_t status = tpc_links_init(&bootstrap->links, self->rank, self->size);
    if (status != TPCOMM_OK) {
        free(bootstrap);
        return status;
    }
    tpc_record_t record = {.process = self->process, .pid = (int32_t)getpid()};
    memcpy(record.host_id, self->host_id, sizeof record.host_id);
    tpc_bootstrap_set_member(bootstrap, self->rank, &record, (int32_t)getpid(), -1);
    *bootstrap_p = bootstrap;
    return TPCOMM_OK;
}

void tpc_bootstrap_set_member(tpc_bootstrap_t *bootstrap, int32_t rank, const tpc_record_t *record, int32_t local_pid,
                              int pidfd) {
    tpc_member_t *member = &bootstrap->member[rank];
    bootstrap->process[rank] = record->process;
    bootstrap->said_pid[rank] = record->pid;
    member->pid = local_pid;
    member->said_pid = record->pid;
    if (member->pidfd >= 0) close(member->pidfd);
    member->pidfd = pidfd;
    member->same_process = record->process == bootstrap->self.process;
    member->same_host = strncmp(record->host_id, bootstrap->self.host_id, sizeof record->host_id) == 0;
    snprintf(member->host_id, sizeof member->host_id, "%.63s", record->host_id);
    tpc_text_clean(member->host_id); /* a peer's own word */
}

void tpc_bootstrap_free(tpc_bootstrap_t *bootstrap) {
    if (!bootstrap) return;
    bool mine = bootstrap->owner_pid == getpid();
    /* A forked child closes its copies; the parent's links, and the door, are not its own. */
    if (mine) tpc_link_want_attention(&bootstrap->links, -1);
    if (mine) bootstrap->links.ops->leave(&bootstrap->links);
    if (mine && bootstrap->door) tpc_door_leave(bootstrap->door, bootstrap);
    if (!mine && bootstrap->door) tpc_door_forget();
    if (mine && bootstrap->thread_world) tpc_thread_world_release(bootstrap->thread_world);
    tpc_links_destroy(&bootstrap->links);
    for (int32_t rank = 0; rank < bootstrap->self.size; rank++)
        if (bootstrap->member[rank].pidfd >= 0) close(bootstrap->member[rank].pidfd);
    if (bootstrap->door_fd >= 0) close(bootstrap->door_fd);
    if (bootstrap->attention_fd >= 0) close(bootstrap->attention_fd);
    tpc_secret_wipe(&bootstrap->self.secret);
    free(bootstrap);
}

int32_t tpc_bootstrap_rank(const tpc_bootstrap_t *bootstrap) {
    return bootstrap->self.rank;
}

int32_t tpc_bootstrap_size(const tpc_bootstrap_t *bootstrap) {
    return bootstrap->self.size;
}

const tpc_member_t *tpc_bootstrap_member(const tpc_bootstrap_t *bootstrap, int32_t rank) {
    return &bootstrap->member[rank];
}

bool tpc_bootstrap_gone(tpc_bootstrap_t *bootstrap, int32_t rank) {
    int err;
    if (rank == bootstrap->self.rank) return false;
    if (tpc_pidfd_ended(bootstrap->member[rank].pidfd, 0)) return true; /* forked children may keep its links open */
    tpc_link_pump(&bootstrap->links);
    return tpc_link_state(&bootstrap->links, rank, &err) != TPC_LINK_OPEN;
}

uint64_t tpc_bootstrap_nonce(const tpc_bootstrap_t *bootstrap) {
    return bootstrap->nonce;
}

const char *tpc_bootstrap_text(const tpc_bootstrap_t *bootstrap) {
    return bootstrap->text;
}

int32_t tpc_bootstrap_listeners(const tpc_bootstrap_t *bootstrap, int fds_p[2]) {
    if (bootstrap->door_fd < 0) return 0;
    fds_p[0] = bootstrap->door_fd;
    return 1;
}

void tpc_bootstrap_serve(tpc_bootstrap_t *bootstrap, int listener_fd) {
    (void)listener_fd; /* one descriptor stands for all there is to serve */
    if (bootstrap->door && bootstrap->owner_pid == getpid()) tpc_door_serve(bootstrap->door);
}
