/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Peers that no pidfd tells of: those on other hosts, and those of this host where the kernel has none. Their notes and
 * the ends of their links are looked at on the watchdog's thread.
 */
#include "coordinator/comm.h"

static bool is_watched(const tpc_world_t *world, int32_t rank) {
    const tpc_member_t *member = tpc_bootstrap_member(world->bootstrap, rank);
    return member->pidfd < 0 && (!member->same_process || !member->same_host);
}

static tpcomm_t *find_group(tpc_world_t *world, uint64_t id) {
    tpcomm_t *group = world->groups;
    while (group != NULL && group->id != id) group = group->next_group;
    return group;
}

/* Under the lock. Notes first: a rank that has finalized may end. */
static void look_at(tpc_world_t *world, int32_t rank) {
    tpc_relay_note_t note;
    uint64_t channel;
    while (tpc_bootstrap_next_note(world->bootstrap, rank, &channel, &note, sizeof note)) {
        tpcomm_t *group = find_group(world, channel);
        if (group != NULL && group->failure.relay != NULL) tpc_relay_hear(&group->relay, rank, &note);
    }
    tpc_peer_end_t end = tpc_bootstrap_peer(world->bootstrap, rank);
    if (end == TPC_PEER_HERE || world->peers[rank].ended) return;
    world->peers[rank].ended = true;
    for (tpcomm_t *group = world->groups; group != NULL; group = group->next_group)
        tpc_comm_peer_ended(group, rank, tpc_bootstrap_member(world->bootstrap, rank)->said_pid, end);
}

/* On the watchdog's thread. */
static void attend(void *arg) {
    tpc_world_t *world = arg;
    tpc_bootstrap_attend(world->bootstrap);
    pthread_mutex_lock(&world->lock);
    for (int32_t rank = 0; rank < tpc_bootstrap_size(world->bootstrap); rank++)
        if (is_watched(world, rank)) look_at(world, rank);
    pthread_mutex_unlock(&world->lock);
}

tpcomm_status_t tpc_world_watch_links(tpc_world_t *world) {
    int32_t size = tpc_bootstrap_size(world->bootstrap);
    bool any = false;
    for (int32_t rank = 0; rank < size; rank++) any = any || is_watched(world, rank);
    if (!any) return TPCOMM_OK;
    int fd;
    tpcomm_status_t status = tpc_bootstrap_attention(world->bootstrap, &fd);
    if (status == TPCOMM_OK) status = tpc_watchdog_add(fd, TPC_WATCH_LEVEL, attend, world, &world->attention);
    for (int32_t rank = 0; rank < size && status == TPCOMM_OK; rank++) {
        fd = tpc_bootstrap_socket(world->bootstrap, rank);
        if (is_watched(world, rank) && fd >= 0)
            status = tpc_watchdog_add(fd, TPC_WATCH_EDGE, attend, world, &world->peers[rank].watch);
    }
    return status;
}
