/* SPDX-License-Identifier: Apache-2.0 */
/**
 * What all groups of one init share: the links, the settings, and who watches over the processes at their other ends.
 * Freed with the last group.
 */
#ifndef TPC_COORDINATOR_WORLD_H
#define TPC_COORDINATOR_WORLD_H

#include <pthread.h>
#include <stdatomic.h>

#include "bootstrap/bootstrap.h"
#include "coordinator/settings.h"
#include "dispatch/dispatch.h"
#include "health/status_socket.h"
#include "health/watchdog.h"

typedef struct tpc_world tpc_world_t;

/** A process that the watchdog looks after. */
typedef struct {
    tpc_world_t *world;
    tpc_watch_t *watch; /**< NULL: not watched */
    int32_t rank;       /**< world rank */
    int32_t pid;
    bool ended; /**< the groups have been told that its link has ended */
} tpc_peer_watch_t;

/** A listener of rank 0, where late-comers are turned away. */
typedef struct {
    tpc_world_t *world;
    tpc_watch_t *watch;
    int fd;
} tpc_listener_watch_t;

/** A set of ranks that has made groups under a parent. */
typedef struct tpc_members {
    uint64_t hash; /**< of parent and ranks: also the channel on which they meet */
    uint64_t made; /**< attempts so far, as this rank counts them */
    bool busy;     /**< a thread of this rank is making one */
    struct tpc_members *next;
} tpc_members_t;

struct tpc_world {
    tpc_bootstrap_t *bootstrap;
    tpc_settings_t *settings;
    tpc_table_t *table; /**< rows of all its groups, the same on all ranks; NULL until its first group is made */
    uint32_t fork_generation;
    pthread_mutex_t lock; /**< of all below; held by the watchdog while it tells the groups of a death */
    int32_t references;
    tpcomm_t *groups; /**< linked by next_group */
    tpc_members_t *members;
    tpc_peer_watch_t peers[TPCOMM_MAX_RANKS];
    tpc_listener_watch_t listeners[2];
    tpc_watch_t *attention;      /**< notes and ends of links; NULL: pidfds tell of all peers */
    tpc_status_t *status_socket; /**< NULL: not asked for */
    int tick_fd;                 /**< looks at the groups from time to time; -1: not needed */
    tpc_watch_t *tick;
};

/** Takes over bootstrap and settings, whatever the result. One reference. */
tpcomm_status_t tpc_world_new(tpc_bootstrap_t *bootstrap, tpc_settings_t *settings, tpc_world_t **world_p);

/** Begin to watch peers and listeners, and to answer at the status socket. Fails: NO_MEMORY, CONFIG. */
tpcomm_status_t tpc_world_watch(tpc_world_t *world);

/** The part of it for peers without a pidfd (remote.c). */
tpcomm_status_t tpc_world_watch_links(tpc_world_t *world);

/** Take and give back a reference; the last one frees. */
void tpc_world_retain(tpc_world_t *world);
void tpc_world_release(tpc_world_t *world);

/** A group of this world, with its planes made: it is told of deaths from now until it is forgotten. */
void tpc_world_enlist(tpc_world_t *world, tpcomm_t *group);
void tpc_world_forget(tpc_world_t *world, tpcomm_t *group);

/**
 * Begin a step of these members (world ranks, ascending) under parent: making a group, or agreeing on how to. A thread
 * of this rank that is just at such a step is waited for.
 * @param channel_p  where the members meet; the same on all of them, whatever failed before.
 * @param number_p   of this step, as this rank counts them: the leader's names the group.
 * Fails: BUSY (the other thread did not end in time); INTERRUPTED; NO_MEMORY.
 */
tpcomm_status_t tpc_world_begin_step(tpc_world_t *world, uint64_t parent_id, const int32_t *ranks, int32_t n,
                                     const tpc_deadline_t *deadline, uint64_t *channel_p, uint64_t *number_p);
void tpc_world_end_step(tpc_world_t *world, uint64_t channel);

#endif
