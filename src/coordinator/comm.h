/* SPDX-License-Identifier: Apache-2.0 */
/** The communicator: one rank's membership of one group, and what the public functions share. */
#ifndef TPC_COORDINATOR_COMM_H
#define TPC_COORDINATOR_COMM_H

#include "coordinator/backend_set.h"
#include "coordinator/world.h"
#include "dispatch/dispatch.h"
#include "graph_capture/capture.h"
#include "graph_capture/kept.h"
#include "health/failure.h"
#include "health/flight.h"
#include "health/relay.h"
#include "health/signal.h"
#include "peer_mem/workspace.h"
#include "topology/pairs.h"

/** What a path carried; written by the calling thread, read by any. */
typedef struct {
    _Atomic uint64_t calls, bytes, wire_bytes;
    _Atomic uint64_t waits, wait_ns, skew_ns; /**< waits: calls that the other two are of */
} tpc_counters_t;

/** One order of calls of a group: the device's collectives, or the host messages. */
typedef struct {
    _Atomic int32_t busy; /**< a thread is inside */
    tpc_wait_t wait;
    _Atomic uint32_t timeout_ms; /**< of the host plane's current call */
    tpc_flight_t flight;
} tpc_plane_t;

struct tpcomm {
    int32_t rank, size;
    uint32_t fork_generation; /**< of the process that made it */
    _Atomic int32_t finalized;
    _Atomic int32_t making; /**< threads that make a group from this one */
    _Atomic int32_t kept;   /**< calls of open batches */
    _Atomic int32_t dumped; /**< its failure has been written to TPCOMM_FLIGHT_DIR */
    char name[64];
    uint64_t id; /**< equal on all members; tells groups of one world apart */
    tpc_agreed_t agreed;
    tpcomm_check_t check; /**< TPCOMM_CHECK, as agreed */
    tpc_world_t *world;
    tpcomm_t *next_group;            /**< of the world; under its lock */
    int32_t ranks[TPCOMM_MAX_RANKS]; /**< world rank of each member */
    int32_t here[TPCOMM_MAX_RANKS];  /**< world rank of each member on this host, which share the workspace */
    int32_t here_size, here_me;
    tpc_relay_t relay; /**< hosts 1: all members are here */
    tpc_workspace_t workspace;
    bool workspace_stays; /**< what workspace.stays points to */
    tpc_failure_t failure;
    tpc_calls_t calls;                          /**< of the device's plane */
    bool notes_calls;                           /**< the workspace has room for them */
    tpc_cuda_facts_t devices[TPCOMM_MAX_RANKS]; /**< of each member; zero on the cpu device */
    tpc_pair_t pairs[TPCOMM_MAX_RANKS];         /**< this rank's GPU with each member's; likewise */
    tpc_plane_t device, host;
    tpc_backend_set_t backends; /**< of the device's plane */
    void *_Atomic host_state;   /**< of tpc_host_backend; NULL: not made */
    tpc_workspace_t host_area;  /**< its part of the workspace */
    tpc_cuda_order_t *order;    /**< of calls over streams; NULL on the cpu device */
    tpc_capture_t capture;      /**< where its calls stand in captured graphs */
    tpc_kept_t graphs;          /**< what these keep: all of it that kernels use */
    tpc_dispatch_t *dispatch;
    char tuning_origin[256];
    tpc_counters_t counters[TPC_PATH_END];
    _Atomic uint64_t times_last[TPCOMM_MAX_RANKS];
    uint32_t init_us;
};

/** What a new group is made from; equal on all members but for me. */
typedef struct {
    const char *name;
    uint64_t id;          /**< also the channel of its team */
    const int32_t *ranks; /**< n world ranks */
    int32_t n, me;
    bool is_world; /**< first group of its world: settings are agreed and the watchdog begins */
} tpc_group_plan_t;

/** Make a group. Takes its own reference of world. Collective over the members; fails alike on all of them. */
tpcomm_status_t tpc_comm_create(tpc_world_t *world, const tpc_group_plan_t *plan, const tpc_deadline_t *deadline,
                                tpcomm_t **comm_p);

/** Free everything that is this process's own, later where graphs keep it; nobody may be inside. */
void tpc_comm_free(tpcomm_t *comm);

/** A process of the world has ended: a failure, if it was a member that had not finalized. On the watchdog's thread. */
void tpc_comm_peer_ended(tpcomm_t *comm, int32_t world_rank, int32_t pid, tpc_peer_end_t how);

/** Whether members are on several hosts: host messages go over the links, and failures by relay. */
static inline bool tpc_comm_spans(const tpcomm_t *comm) {
    return comm->relay.hosts > 1;
}

/**
 * "ranks 0, 1 on host 'a'; 2, 3 on host 'b'", or by world rank. Names that are too long for bytes are shortened to
 * their ends, and hosts that have no room are counted: "; 30 on host 'p'; 1 more host". Returns text.
 */
const char *tpc_comm_where(const tpcomm_t *comm, bool by_world_rank, char *text, size_t bytes);

/** No path carries a call: where that is because nothing carries any in a group that spans hosts, say who is where. */
tpcomm_status_t tpc_comm_refused(const tpcomm_t *comm, tpcomm_status_t status);

/** A host message between hosts (host_links.c): the failure, if any, is the group's. */
tpcomm_status_t tpc_host_links_run(tpcomm_t *comm, const tpcomm_call_t *call, uint32_t timeout_ms,
                                   const tpc_flight_record_t *record);

/** The members as a team whose waits end with the group, on a channel named by what. */
tpc_team_t tpc_links_team(tpcomm_t *comm, const char *what);

/** A step of such a team has failed. What all members were told alike becomes the group's failure. Returns the status
 * in force; where the failure is this rank's own (memory), that. */
tpcomm_status_t tpc_links_failed(tpcomm_t *comm, tpcomm_status_t status, const tpc_flight_record_t *record);

/** Record the text of the failure in force; returns its status. The first time this rank's calls are dumped. */
tpcomm_status_t tpc_comm_failed(tpcomm_t *comm);

/** Not NULL, not a forked child, not finalized. */
tpcomm_status_t tpc_comm_check_owner(const tpcomm_t *comm);

/** Checks that every function which talks to peers begins with: not NULL, not a forked child, not failed. */
tpcomm_status_t tpc_comm_check(tpcomm_t *comm);

/** What is known of waits so far: of calls when they returned, and of what kernels have noted. Any thread. */
typedef struct {
    uint64_t calls; /**< that the rest is of */
    uint64_t wait_ns, skew_ns;
} tpc_comm_waits_t;
tpc_comm_waits_t tpc_comm_waits(const tpcomm_t *comm, tpcomm_path_t path);
uint64_t tpc_comm_times_last(const tpcomm_t *comm, int32_t rank);

/** Run a call whose arguments are checked; comm->device.busy is held. norm: of a call with one, every default filled
 * in; else NULL. */
tpcomm_status_t tpc_comm_run(tpcomm_t *comm, const tpcomm_call_t *call, const tpcomm_rms_norm_t *norm,
                             tpcomm_stream_t stream);

/** A call is about to be captured: its ordinal in the graph, which keeps the group's memory from its first one on. */
tpcomm_status_t tpc_comm_captures(tpcomm_t *comm, const tpc_cuda_call_t *where, uint64_t *ordinal_p);

/** Last call of the device plane that a rank is known to have begun (on cuda: to have enqueued). Any thread. */
uint64_t tpc_comm_rank_seq(const tpcomm_t *comm, int32_t rank);

/** A call that has begun did not end well: the group is broken, on every rank. Returns the status in force. */
tpcomm_status_t tpc_comm_break(tpcomm_t *comm, const char *plane, const tpc_flight_record_t *record,
                               tpcomm_status_t status);

/** What a call cost, into its flight record. */
void tpc_comm_note(tpc_flight_record_t *record, const tpc_outcome_t *outcome);

/** Mark a thread as inside. Fails: BUSY. */
tpcomm_status_t tpc_comm_enter(tpcomm_t *comm, tpc_plane_t *plane);
void tpc_comm_leave(tpc_plane_t *plane);

/**
 * All-gather of small blobs that is also a vote (tpc_team_gather), on a channel apart from collectives and host
 * messages. Ends with comm. Collective over comm.
 */
tpcomm_status_t tpc_comm_exchange(tpcomm_t *comm, const char *step, tpcomm_status_t mine_status, const void *mine,
                                  size_t bytes, void *all);
/** As tpcomm_group_create, of what the members have begun together already, so that one which has its group may have
 * destroyed parent by now. */
tpcomm_status_t tpc_group_make(tpcomm_t *parent, const int32_t *ranks, int32_t n, const char *name, tpcomm_t **group_p);

/** Whether this thread has a batch open; if so, the call is kept for its end. Fails: NO_MEMORY. */
tpcomm_status_t tpc_batch_take(tpcomm_t *comm, const tpcomm_call_t *call, const tpcomm_rms_norm_t *norm,
                               tpcomm_stream_t stream, bool *taken_p);

/** Whether no open batch has calls of comm. Fails: INVALID_STATE. */
tpcomm_status_t tpc_batch_check_none(const tpcomm_t *comm);

/** Run a host message whose arguments are checked. timeout_ms 0: op_timeout_ms. */
tpcomm_status_t tpc_comm_host_run(tpcomm_t *comm, const tpcomm_call_t *call, uint32_t timeout_ms);

/** Run a call whose arguments are checked: enter, tpc_comm_run, leave. */
tpcomm_status_t tpc_comm_run_now(tpcomm_t *comm, const tpcomm_call_t *call, const tpcomm_rms_norm_t *norm,
                                 tpcomm_stream_t stream);

/** What is between a call's checks and its run: take it into the batch, or run it now. */
tpcomm_status_t tpc_comm_submit(tpcomm_t *comm, const tpcomm_call_t *call, const tpcomm_rms_norm_t *norm,
                                tpcomm_stream_t stream);

/** A call with a norm that no backend carries: a reduction, where there is one, then the norm; as one call. */
tpcomm_status_t tpc_comm_run_composed(tpcomm_t *comm, const tpc_request_t *request, tpc_outcome_t *outcome_p);

#endif
