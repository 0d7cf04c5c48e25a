/* SPDX-License-Identifier: Apache-2.0 */
/** The communicator: one rank's membership of one group, and what the public functions share. */
#ifndef TPC_COORDINATOR_COMM_H
#define TPC_COORDINATOR_COMM_H

#include "bootstrap/bootstrap.h"
#include "coordinator/backends.h"
#include "coordinator/settings.h"
#include "dispatch/dispatch.h"
#include "health/failure.h"
#include "health/flight.h"
#include "health/signal.h"
#include "health/watchdog.h"
#include "peer_mem/workspace.h"

/** A peer that the watchdog looks after. */
typedef struct {
    tpcomm_t *comm;
    tpc_watch_t *watch; /**< NULL: not watched */
    int32_t rank, pid;
} tpc_peer_watch_t;

/** A listener of rank 0, where late-comers are turned away. */
typedef struct {
    tpcomm_t *comm;
    tpc_watch_t *watch;
    int fd;
} tpc_listener_watch_t;

/** What a path carried; written by the calling thread, read by any. */
typedef struct {
    _Atomic uint64_t calls, bytes, wire_bytes, wait_ns, skew_ns;
} tpc_counters_t;

struct tpcomm {
    int32_t rank, size;
    uint32_t fork_generation; /**< of the process that made it */
    _Atomic int32_t busy;     /**< a thread is inside */
    _Atomic int32_t finalized;
    char name[64];
    tpc_agreed_t agreed;
    tpc_settings_t *settings;
    tpc_bootstrap_t *bootstrap;
    int32_t ranks[TPCOMM_MAX_RANKS]; /**< world rank of each member */
    tpc_workspace_t workspace;
    tpc_failure_t failure;
    tpc_wait_t wait;
    const tpc_backend_t *backend;
    void *backend_state;
    tpc_dispatch_t *dispatch;
    char tuning_origin[256];
    tpc_flight_t flight;
    tpc_counters_t counters[TPC_PATH_END];
    _Atomic uint64_t times_last[TPCOMM_MAX_RANKS];
    uint32_t init_us;
    tpc_peer_watch_t peers[TPCOMM_MAX_RANKS];
    tpc_listener_watch_t listeners[2];
};

/**
 * Make a group of all ranks of a bootstrap. Takes over bootstrap and settings, whatever the result. Collective; fails
 * alike on all ranks.
 */
tpcomm_status_t tpc_comm_create(tpc_bootstrap_t *bootstrap, tpc_settings_t *settings, const char *name,
                                const tpc_deadline_t *deadline, tpcomm_t **comm_p);

/** Free everything that is this process's own; nobody may be inside. */
void tpc_comm_free(tpcomm_t *comm);

/** Record the text of the failure in force; returns its status. */
tpcomm_status_t tpc_comm_failed(const tpcomm_t *comm);

/** Checks that every function which talks to peers begins with: not NULL, not a forked child, not failed. */
tpcomm_status_t tpc_comm_check(const tpcomm_t *comm);

/** Run a checked call; comm->busy is held. */
tpcomm_status_t tpc_comm_run(tpcomm_t *comm, const tpcomm_call_t *call, tpcomm_stream_t stream);

/** Mark a thread as inside. Fails: BUSY. */
tpcomm_status_t tpc_comm_enter(tpcomm_t *comm);
void tpc_comm_leave(tpcomm_t *comm);

#endif
