/* SPDX-License-Identifier: Apache-2.0 */
/** What the files of src/bootstrap share: the bootstrap itself and the steps of a meeting. */
#ifndef TPC_BOOTSTRAP_INTERNAL_H
#define TPC_BOOTSTRAP_INTERNAL_H

#include <sys/types.h>

#include "bootstrap/bootstrap.h"
#include "bootstrap/door.h"
#include "bootstrap/greeting.h"
#include "bootstrap/link.h"
#include "bootstrap/lobby.h"
#include "bootstrap/net.h"

struct tpc_bootstrap {
    tpc_self_t self;
    pid_t owner_pid; /**< a forked child must not touch its parent's sockets */
    uint64_t nonce;
    tpc_member_t member[TPCOMM_MAX_RANKS];
    uint64_t process[TPCOMM_MAX_RANKS]; /**< tokens */
    int32_t said_pid[TPCOMM_MAX_RANKS]; /**< as each rank says: for texts about ranks of other hosts */
    int32_t world_ranks[TPCOMM_MAX_RANKS];
    tpc_team_t world;
    tpc_links_t links;
    _Atomic uint64_t votes;           /**< numbers the votes that this rank sends */
    int attention_fd;                 /**< an eventfd, told of notes and of links that end; -1: there is none */
    tpc_door_t *door;                 /**< rank 0: where the job was met */
    tpc_bootstrap_t *door_next;       /**< the next one that was met at the same door */
    int door_fd;                      /**< a copy of its own, so that several can be watched by one epoll set; or -1 */
    tpc_thread_world_t *thread_world; /**< ranks are threads: holds the mailboxes */
    char text[256];
};

/** Where rank 0 is to be found. */
typedef struct {
    char unix_name[TPC_UNIX_NAME_BYTES]; /**< "": not on this host */
    char host[256];                      /**< TCP: a name to resolve; "": addresses below */
    uint16_t first_port, last_port;      /**< 0: no TCP */
    bool loopback_only;                  /**< all ranks are on this machine, whatever their host identities are */
    bool exact;                          /**< the one port is the user's word: whoever else holds it is an error */
    char bind[256];                      /**< rank 0 listens there; "": everywhere */
    tpc_address_t addresses[TPC_WIRE_ADDRESSES];
    size_t address_count;
    uint64_t job;
    const char *hint; /**< one more sentence where rank 0 cannot be found; may be "" */
    char text[256];   /**< for messages */
    char label[256];  /**< tpc_bootstrap_text of whoever has met here */
} tpc_place_t;

/* ------------------------------------------------------------------ bootstrap.c */

tpcomm_status_t tpc_bootstrap_new(const tpc_self_t *self, tpc_bootstrap_t **bootstrap_p);
/** Facts of one member, from what it said and what its link shows. Takes pidfd; the one that was there is closed. */
void tpc_bootstrap_set_member(tpc_bootstrap_t *bootstrap, int32_t rank, const tpc_record_t *record, int32_t local_pid,
                              int pidfd);

/* ------------------------------------------------------------------ id.c */

/** A new id; with_tcp: ranks of other hosts can use it. Its listeners wait in this process. */
tpcomm_status_t tpc_id_make(const tpc_env_t *env, bool with_tcp, tpcomm_unique_id_t *id_p);
/** Give up the listeners of an id that nobody has met by. */
void tpc_id_forget(const tpcomm_unique_id_t *id);

/* ------------------------------------------------------------------ threads.c */

/** One rank is out; the last one frees the world. */
void tpc_thread_world_release(tpc_thread_world_t *world);

/* ------------------------------------------------------------------ meet.c, root.c, join.c, mesh.c */

/** Check rank and size and meet at place. */
tpcomm_status_t tpc_meet(const tpc_place_t *place, int32_t rank, int32_t size, const char *host_id,
                         const tpc_deadline_t *deadline, tpc_bootstrap_t **bootstrap_p);

/**
 * Rank 0: begin a meeting and listen at place. On failure *door_p is NULL, or a door where at least the ranks of this
 * host can be told, by tpc_root_collect.
 */
tpcomm_status_t tpc_root_open(const tpc_place_t *place, const tpc_self_t *self, const tpc_deadline_t *deadline,
                              tpc_door_t **door_p);

/**
 * Rank 0: let the others in, until each has sent its first vote or the deadline is over (OK: tpc_team_gather says who
 * is missing); their links are attached then. Fails where somebody came who shows that the ranks do not belong
 * together, or with mine_status: all who come within a moment have been told then.
 */
tpcomm_status_t tpc_root_collect(tpc_bootstrap_t *bootstrap, tpc_door_t *door, tpcomm_status_t mine_status,
                                 const tpc_deadline_t *deadline);

/** Others: find rank 0 and be let in; its link is attached then, and the nonce known. */
tpcomm_status_t tpc_join(tpc_bootstrap_t *bootstrap, const tpc_place_t *place, const tpc_deadline_t *deadline);

/**
 * Where rank 0 listens when the names before are held by sockets that nobody serves: copies in forked children, another
 * user's. Returns name.
 */
#define TPC_UNIX_ALTERNATES 16
const char *tpc_place_unix_name(const tpc_place_t *place, int alternate, char name[TPC_UNIX_NAME_BYTES]);

/** What came of asking to be let in. */
typedef enum {
    TPC_ASK_JOINED,
    TPC_ASK_SILENT,   /**< connected; no answer in time */
    TPC_ASK_CLOSED,   /**< connected; closed without an answer */
    TPC_ASK_RETRY,    /**< come again */
    TPC_ASK_OTHER,    /**< another job; text recorded */
    TPC_ASK_STRANGER, /**< no tpcomm there */
    TPC_ASK_REFUSED,  /**< status and text recorded */
    TPC_ASK_UNPROVED, /**< whoever answers does not know this rank's secret; AUTH and text recorded */
} tpc_ask_t;

/** Send a JOIN greeting on a connected socket and read the answer. INTERRUPTED counts as REFUSED. */
tpc_ask_t tpc_ask(int fd, const tpc_self_t *self, uint64_t job, const tpc_deadline_t *deadline,
                  tpc_greeting_t *answer_p, tpc_seal_t *seal_p, tpcomm_status_t *status_p);

/** What mesh.c needs of a rank. */
typedef struct {
    tpc_record_t record;
    tpc_wire_addresses_t addresses; /**< of ranks on other hosts */
} tpc_peer_t;

/** The links of the met job. */
typedef struct {
    int fd[TPCOMM_MAX_RANKS], pidfd[TPCOMM_MAX_RANKS]; /**< -1: none */
    int32_t pid[TPCOMM_MAX_RANKS];                     /**< by the kernel, where the link is a unix socket */
    tpc_seal_t seal[TPCOMM_MAX_RANKS];                 /**< of links between hosts, where there is a secret */
} tpc_mesh_t;

void tpc_mesh_init(tpc_mesh_t *mesh);
/**
 * Connect to all lower ranks and be connected to by all higher ones. OK also where the links to rank 0 show that it is
 * over.
 */
tpcomm_status_t tpc_mesh_make(tpc_bootstrap_t *bootstrap, tpc_lobby_t *lobby, const tpc_peer_t *peers,
                              const tpc_deadline_t *deadline, tpc_mesh_t *mesh);
void tpc_mesh_free(tpc_mesh_t *mesh);

/* ------------------------------------------------------------------ team.c */

/** The first step of every meeting. */
#define TPC_STEP_MEET "meet"

/**
 * As tpc_team_gather, but the first failure that the leader hears of ends it: for steps in which ranks wait for each
 * other.
 */
tpcomm_status_t tpc_team_gather_urgent(tpc_bootstrap_t *bootstrap, const tpc_team_t *team, const char *step,
                                       tpcomm_status_t mine_status, const void *mine, size_t bytes, void *all,
                                       const tpc_deadline_t *deadline);

/**
 * The leader ends a step that not all members have come to: the failure to each that has a link, what is still to come
 * of them for this step is thrown away. Returns the status that all get; this thread's text stays.
 */
tpcomm_status_t tpc_team_fail(tpc_bootstrap_t *bootstrap, const tpc_team_t *team, const char *step,
                              tpcomm_status_t status);

/** "rank 1 (world rank 3, pid 12)", for texts; the world rank only where it differs from index. Returns text. */
const char *tpc_team_who(const tpc_bootstrap_t *bootstrap, const tpc_team_t *team, int32_t index, char text[64]);

#endif
