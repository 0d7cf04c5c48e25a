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
#include "health/watchdog.h"

typedef struct tpc_world tpc_world_t;

/** A process that the watchdog looks after. */
typedef struct {
    tpc_world_t *world;
    tpc_watch_t *watch; /**< NULL: not watched */
    int32_t rank;       /**< world rank */
    int32_t pid;
} tpc_peer_watch_t;

/** A listener of rank 0, where late-comers are turned away. */
typedef struct {
    tpc_world_t *world;
    tpc_watch_t *watch;
    int fd;
} tpc_listener_watch_t;

/** Teams of the same members so far, so that each gets a channel of its own. */
typedef struct tpc_instance {
    uint64_t members; /**< hash of parent and members */
    uint64_t count;
    struct tpc_instance *next;
} tpc_instance_t;

struct tpc_world {
    tpc_bootstrap_t *bootstrap;
    tpc_settings_t *settings;
    uint32_t fork_generation;
    pthread_mutex_t lock; /**< of all below; held by the watchdog while it tells the groups of a death */
    int32_t references;
    tpcomm_t *groups; /**< linked by next_group */
    tpc_instance_t *instances;
    tpc_peer_watch_t peers[TPCOMM_MAX_RANKS];
    tpc_listener_watch_t listeners[2];
};

/** Takes over bootstrap and settings, whatever the result. One reference. */
tpcomm_status_t tpc_world_new(tpc_bootstrap_t *bootstrap, tpc_settings_t *settings, tpc_world_t **world_p);

/** Begin to watch peers and listeners. Fails: NO_MEMORY. */
tpcomm_status_t tpc_world_watch(tpc_world_t *world);

/** Take and give back a reference; the last one frees. */
void tpc_world_retain(tpc_world_t *world);
void tpc_world_release(tpc_world_t *world);

/** A group of this world, with its planes made: it is told of deaths from now until it is forgotten. */
void tpc_world_enlist(tpc_world_t *world, tpcomm_t *group);
void tpc_world_forget(tpc_world_t *world, tpcomm_t *group);

/**
 * A channel for a new team of these members (world ranks, ascending) under parent: the same on all of them as long as
 * they make their teams in one order. Fails: NO_MEMORY.
 */
tpcomm_status_t tpc_world_channel(tpc_world_t *world, uint64_t parent_id, const int32_t *ranks, int32_t n,
                                  uint64_t *channel_p);

#endif
