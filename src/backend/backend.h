/* SPDX-License-Identifier: Apache-2.0 */
/**
 * A backend carries collectives over one kind of transport, by one or more paths. Dispatch and the coordinator see this
 * interface alone. A backend is one `const` table at the end of its file with every slot filled, so nobody tests for
 * NULL.
 */
#ifndef TPC_BACKEND_H
#define TPC_BACKEND_H

#include "base/env.h"
#include "base/rows.h"
#include "base/status.h"
#include "device/cuda_order.h"
#include "health/calls.h"
#include "health/signal.h"
#include "peer_mem/workspace.h"
#include "topology/topology.h"

/** Facts about a group that all its ranks hold equal (compared at group making): the only input of a choice beside the
 * call. */
typedef struct {
    int32_t size;
    tpcomm_device_kind_t device_kind;
    tpc_topology_t topology;
    bool deterministic;
    bool nccl;                 /**< TPCOMM_NCCL: it may be used */
    bool shares_device;        /**< two ranks or more compute on one GPU */
    tpcomm_path_t forced_path; /**< 0: none */
    uint64_t workspace_bytes;  /**< limit per rank */
    const char *peer_mem;      /**< the word of TPCOMM_PEER_MEM */
} tpc_agreed_t;

/** What a choice may look at of a call. */
typedef struct {
    tpcomm_coll_t coll;
    tpcomm_dtype_t dtype;
    tpcomm_op_t op;
    uint64_t bytes;
    bool capturing;
    int32_t hidden;     /**< calls on rows: elements of one; else 0 */
    uint32_t obstacles; /**< calls with a norm: TPC_ROWS_STRIDED, NO_ROOM, UNEQUAL (base/rows.h) */
} tpc_call_key_t;

typedef struct tpc_backend tpc_backend_t;

/** What a backend is given when a group is made. Lives as long as the backend's state. */
typedef struct {
    tpc_agreed_t agreed;
    int32_t rank;
    const char *plane; /**< in front of a call in texts: "" for the device's, "host " for host messages */
    /* Making a backend's state may be collective: every step is a vote of the team (tpc_team_gather). */
    tpc_bootstrap_t *bootstrap;
    const tpc_team_t *team;
    const tpc_deadline_t *deadline;  /**< team and deadline: only while create runs */
    const tpc_env_t *env;            /**< this rank's variables, as read when its world was made */
    const tpc_cuda_facts_t *devices; /**< of each rank; zero on the cpu device */
    tpc_workspace_t *workspace;      /**< workspace->data: the bytes the backend asked for, on pages of their own */
    tpc_cuda_order_t *order;         /**< of the group's calls over streams; NULL on the cpu device */
    const tpc_wait_t *wait;
    tpc_failure_t *failure;
    tpc_calls_t *calls; /**< what the ranks have called; noted where a backend asks for it */
    /** State of a backend that was made before, for this group; NULL: it is not there. Only while create runs. */
    void *(*state_of)(const void *made, const tpc_backend_t *backend);
    const void *made;
} tpc_backend_group_t;

/** One call, checked and decided. */
typedef struct {
    const tpcomm_call_t *call;
    const tpcomm_rms_norm_t *norm; /**< of a call with a norm, every default filled in; else NULL */
    tpcomm_path_t path;
    uint64_t bytes;
    /* For texts, and what peers compare: the call as its caller made it, of which *call may be a part. */
    const tpc_flight_record_t *record;
    tpcomm_stream_t stream;
    bool capturing;   /**< the stream is being captured */
    uint64_t ordinal; /**< of the group's call in that capture, from 1; 0: none */
} tpc_request_t;

/** What a call cost, from the path itself. */
typedef struct {
    uint64_t wire_bytes; /**< written for peers */
    uint64_t wait_ns;    /**< waiting for peers */
    uint64_t skew_ns;    /**< last arrival minus first */
    uint64_t begun_ns;   /**< the last arrival, by tpc_clock_ns; 0: not known */
    int32_t last_rank;   /**< who arrived last; -1: not known */
} tpc_outcome_t;

/** Of calls that ran on a device. */
typedef struct {
    uint64_t calls, wait_ns;
} tpc_waits_t;

struct tpc_backend {
    const char *name;
    tpcomm_device_kind_t device_kind;
    bool notes_calls; /**< its device compares no calls: the host notes those of groups that have it (health/calls.h) */
    const tpcomm_path_t *paths; /**< those it has, 0 at the end */
    /** What it works with in this group, for tpcomm_comm_info: "avx512", or a library with version and path. */
    const char *(*describe)(const void *state);
    /** Version of the library it works with, as tuning files name it: "2.28.9"; "": its own code, which has this
     * library's. */
    const char *(*version)(const void *state);
    /** NULL where the path can carry such calls in such a group, else why not (static text). Pure. */
    const char *(*why_not)(const tpc_agreed_t *agreed, tpcomm_path_t path, const tpc_call_key_t *key);
    /** Bytes of workspace->data it wants in such a group. Pure. Fails: TOO_SMALL where the limit leaves too little. */
    tpcomm_status_t (*workspace_bytes)(const tpc_agreed_t *agreed, size_t *bytes_p);
    /**
     * Make its state for a group; may be collective, and fails alike on all ranks. UNSUPPORTED, BACKEND and
     * NO_TRANSPORT say that this backend cannot serve the group: it is left out, and others carry the calls. Everything
     * else is the group's failure.
     */
    tpcomm_status_t (*create)(const tpc_backend_group_t *group, void **state_p);
    void (*destroy)(void *state);
    /** Wake every rank that sleeps in a wait of this group. Any thread. */
    void (*wake)(void *state);
    /**
     * The group is broken and is destroyed, but graphs outlive it: their kernels must end at once, where they have
     * everything they wait for, too. At destroy, once.
     */
    void (*outlived)(void *state);
    /** Make a failure that the backend alone has noticed the group's (failure.h). Any thread; cheap. */
    void (*poll)(void *state);
    /** The limit of each wait has changed, for whoever does not read it where the host does. */
    tpcomm_status_t (*set_timeout)(void *state, uint32_t timeout_ms);
    /**
     * Of a device that carries calls long after they were made, and again in each replay of a graph: note how long each
     * waits, or no more; what was noted of a path's calls; and in how many a rank came last. Others' waits are known
     * when a call returns (tpc_outcome_t), or not at all: the three below. The two that tell: any thread; cheap.
     */
    tpcomm_status_t (*note_waits)(void *state, bool on);
    tpc_waits_t (*waits)(const void *state, tpcomm_path_t path);
    uint64_t (*times_last)(const void *state, int32_t rank);
    /** NULL if calls may be made on this stream, else why not (static text). */
    const char *(*check_stream)(void *state, tpcomm_stream_t stream);
    /** Last call that a rank is known to have begun. Any thread. */
    uint64_t (*rank_seq)(void *state, int32_t rank);
    /** Device memory that this rank holds for its peers to write; what a library keeps to itself is not known. */
    uint64_t (*device_bytes)(const void *state);
    /** Carry one call. On a GPU: the device is current, and the stream is behind the group's call before. */
    tpcomm_status_t (*run)(void *state, const tpc_request_t *request, tpc_outcome_t *outcome_p);
};

/** For backends of this library's own code. */
static inline const char *tpc_backend_own_version(const void *state) {
    (void)state;
    return "";
}

static inline tpcomm_status_t tpc_backend_notes_no_waits(void *state, bool on) {
    (void)state, (void)on;
    return TPCOMM_OK;
}

static inline tpc_waits_t tpc_backend_no_waits(const void *state, tpcomm_path_t path) {
    (void)state, (void)path;
    return (tpc_waits_t){0, 0};
}

static inline uint64_t tpc_backend_nobody_last(const void *state, int32_t rank) {
    (void)state, (void)rank;
    return 0;
}

/** The norm of rows alone, on one kind of device; in is the sum, and goes to sum as well where that is given. Checked
 * arguments, every default filled in. */
typedef struct {
    tpcomm_device_kind_t device_kind;
    const char *(*check_stream)(tpcomm_stream_t stream); /**< NULL if calls may be made on it, else why not */
    tpcomm_status_t (*run)(const tpcomm_rms_norm_t *norm, tpcomm_stream_t stream);
} tpc_norm_device_t;

#endif
