/* SPDX-License-Identifier: Apache-2.0 */
/** Ranks that are threads of one process: their boxes lie in one shared place, and a frame goes from hand to hand. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/hook.h"
#include "bootstrap/host.h"
#include "bootstrap/internal.h"

struct tpc_thread_world {
    _Atomic int32_t references; /**< ranks that are not out yet */
    int32_t size;
    uint64_t nonce;
    tpc_boxes_t boxes[TPCOMM_MAX_RANKS];
};

void tpc_thread_world_release(tpc_thread_world_t *world) {
    if (atomic_fetch_sub(&world->references, 1) != 1) return;
    for (int32_t rank = 0; rank < world->size; rank++) tpc_boxes_destroy(&world->boxes[rank]);
    free(world);
}

tpcomm_status_t tpc_thread_world_new(int32_t size, tpc_thread_world_t **world_p) {
    if (size < 1 || size > TPCOMM_MAX_RANKS)
        return tpc_error(TPCOMM_ERR_INVALID_ARG, "size %d: a world has 1 to %d ranks", size, TPCOMM_MAX_RANKS);
    tpc_thread_world_t *world = calloc(1, sizeof *world);
    if (!world) return tpc_error(TPCOMM_ERR_NO_MEMORY, "no memory for a world of %d threads", size);
    atomic_init(&world->references, size);
    tpcomm_status_t status = tpc_random(&world->nonce, sizeof world->nonce);
    for (; status == TPCOMM_OK && world->size < size; world->size++) {
        status = tpc_boxes_init(&world->boxes[world->size]);
        if (status != TPCOMM_OK) break;
        for (int32_t peer = 0; peer < size; peer++)
            if (peer != world->size) world->boxes[world->size].box[peer].state = TPC_LINK_OPEN;
    }
    if (status != TPCOMM_OK) {
        atomic_store(&world->references, 1);
        tpc_thread_world_release(world);
        return status;
    }
    *world_p = world;
    return TPCOMM_OK;
}

static void leave(tpc_thread_world_t *world, int32_t rank) {
    for (int32_t peer = 0; peer < world->size; peer++) {
        tpc_boxes_t *boxes = &world->boxes[peer];
        if (peer == rank) continue;
        pthread_mutex_lock(&boxes->mutex);
        tpc_box_end(boxes, &boxes->box[rank], TPC_LINK_LEFT, 0);
        boxes->events++;
        pthread_cond_broadcast(&boxes->changed);
        pthread_mutex_unlock(&boxes->mutex);
    }
}

void tpc_thread_world_leave(tpc_thread_world_t *world, int32_t rank) {
    leave(world, rank);
    tpc_thread_world_release(world);
}

/* ------------------------------------------------------------------ links */

static void thread_send(tpc_links_t *links, int32_t rank, tpc_mail_t *mail) {
    tpc_thread_world_t *world = links->world;
    tpc_boxes_t *boxes = &world->boxes[rank];
    int err;
    if (tpc_link_state(links, rank, &err) != TPC_LINK_OPEN) {
        tpc_mail_free(mail);
        return;
    }
    pthread_mutex_lock(&boxes->mutex);
    tpc_box_deliver(boxes, &boxes->box[links->rank], mail);
    boxes->events++;
    pthread_cond_broadcast(&boxes->changed);
    pthread_mutex_unlock(&boxes->mutex);
}

/** The sender has done all there is to do; what comes from now on ends the next wait. */
static void thread_pump(tpc_links_t *links) {
    pthread_mutex_lock(&links->boxes->mutex);
    links->boxes->seen = links->boxes->events;
    pthread_mutex_unlock(&links->boxes->mutex);
}

static void thread_wait(tpc_links_t *links, int ms) {
    struct timespec until;
    uint64_t begun_ns = tpc_clock_ns();
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += (long)ms * 1000000;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_mutex_lock(&links->boxes->mutex);
    if (links->boxes->seen == links->boxes->events)
        (void)pthread_cond_timedwait(&links->boxes->changed, &links->boxes->mutex, &until);
    pthread_mutex_unlock(&links->boxes->mutex);
    tpc_clock_waited(begun_ns, (uint64_t)ms);
}

static void thread_fail(tpc_links_t *links, int32_t rank) {
    tpc_thread_world_t *world = links->world;
    for (int turn = 0; turn < 2; turn++) {
        tpc_boxes_t *boxes = &world->boxes[turn == 0 ? links->rank : rank];
        pthread_mutex_lock(&boxes->mutex);
        tpc_box_t *box = &boxes->box[turn == 0 ? rank : links->rank];
        if (box->state == TPC_LINK_OPEN) tpc_box_end(boxes, box, turn == 0 ? TPC_LINK_BROKEN : TPC_LINK_LEFT, ENOMEM);
        boxes->events++;
        pthread_cond_broadcast(&boxes->changed);
        pthread_mutex_unlock(&boxes->mutex);
    }
}

static void thread_leave(tpc_links_t *links) {
    leave(links->world, links->rank);
}

static const tpc_link_ops_t thread_links = {
    .send = thread_send,
    .pump = thread_pump,
    .wait = thread_wait,
    .fail = thread_fail,
    .leave = thread_leave,
};

/* ------------------------------------------------------------------ meeting */

static tpcomm_status_t meet(tpc_thread_world_t *world, int32_t rank, const tpc_env_t *env,
                            const tpc_deadline_t *deadline, tpc_bootstrap_t **bootstrap_p) {
    char host_id[64];
    tpc_self_t self;
    tpc_bootstrap_t *bootstrap;
    uint64_t per_host = tpc_hook_value("threads_per_host", 0);
    tpc_host_identity(env, host_id);
    if (per_host > 0) snprintf(host_id, sizeof host_id, "host%d", (int)(rank / (int32_t)per_host));
    tpcomm_status_t status = tpc_self_fill(rank, world->size, host_id, &self);
    if (status == TPCOMM_OK) status = tpc_bootstrap_new(&self, &bootstrap);
    if (status != TPCOMM_OK) return status;

    tpc_links_destroy(&bootstrap->links);
    bootstrap->links = (tpc_links_t){
        .ops = &thread_links, .boxes = &world->boxes[rank], .rank = rank, .size = world->size, .world = world};
    bootstrap->thread_world = world;
    bootstrap->nonce = world->nonce;
    snprintf(bootstrap->text, sizeof bootstrap->text, "%d threads of process %d", world->size, (int)getpid());
    tpc_record_t record = {.process = self.process, .pid = (int32_t)getpid()};
    memcpy(record.host_id, self.host_id, sizeof record.host_id);
    for (int32_t peer = 0; peer < world->size; peer++) {
        if (per_host > 0) snprintf(record.host_id, sizeof record.host_id, "host%d", (int)(peer / (int32_t)per_host));
        tpc_bootstrap_set_member(bootstrap, peer, &record, record.pid, -1);
    }

    status = tpc_hook("connect", rank);
    status = tpc_team_gather(bootstrap, &bootstrap->world, TPC_STEP_MEET, status, NULL, 0, NULL, deadline);
    if (status != TPCOMM_OK) {
        bootstrap->thread_world = NULL; /* the caller lets go of it */
        tpc_bootstrap_free(bootstrap);
        return status;
    }
    *bootstrap_p = bootstrap;
    return TPCOMM_OK;
}

tpcomm_status_t tpc_bootstrap_meet_threads(tpc_thread_world_t *world, int32_t rank, const tpc_env_t *env,
                                           const tpc_deadline_t *deadline, tpc_bootstrap_t **bootstrap_p) {
    tpcomm_status_t status = meet(world, rank, env, deadline, bootstrap_p);
    if (status != TPCOMM_OK) tpc_thread_world_leave(world, rank);
    return status;
}
