/* SPDX-License-Identifier: Apache-2.0 */
/**
 * How ranks meet, and the links they keep: the only door of src/bootstrap.
 *
 * Meeting gives every rank a link to every other one: an abstract unix socket on the same host (so that descriptors can
 * be passed), TCP across hosts, a queue between threads of one process. On these links small control messages travel
 * during init and group making; nothing on a hot path. Every wait has the caller's deadline, sees a peer's end, and
 * ends in the same status on every rank of the team.
 */
#ifndef TPC_BOOTSTRAP_H
#define TPC_BOOTSTRAP_H

#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/env.h"
#include "tpcomm.h"

/* ------------------------------------------------------------------ who am I */

/** What a launcher says of this process (rank_env.c). */
typedef struct {
    int32_t rank, size;
    int32_t local_rank, local_size; /**< -1, 0 if the launcher does not say */
    char root[256];                 /**< "host:port" to meet at, exact; "" if none */
    char root_host[256];            /**< host of rank 0 with a base port (MASTER_ADDR/MASTER_PORT); "" if none */
    uint16_t root_base_port;        /**< root_base_port + 1 ... + 16 are tried; 0 if none */
    char job[256];    /**< text that tells jobs of this user on this host apart: launcher's job id and addresses */
    char bind[256];   /**< TPCOMM_BIND */
    char host_id[64]; /**< this host's identity: TPCOMM_HOST_ID, else boot id + network namespace */
    char used[192];   /**< for texts: "torchrun: RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 ..." */
} tpc_rank_env_t;

/**
 * First complete set of TPCOMM_*, torchrun, Open MPI, PMI, Slurm variables. Fails: CONFIG: a set that is begun and not
 * complete (naming what is missing) where no later set is complete; complete sets that disagree in rank or size where
 * none of them can be the inner launcher's (naming both; docs/launch.md); a value that is no number; no set at all
 * (naming `tpcomm-bench run -n 2 -- ./program`). A rank outside size is let through: tpc_bootstrap_meet_env refuses it
 * on all ranks.
 */
tpcomm_status_t tpc_rank_env_read(const tpc_env_t *env, tpc_rank_env_t *rank_env_p);

/** This host's identity: TPCOMM_HOST_ID, else boot id and network namespace. */
void tpc_host_identity(const tpc_env_t *env, char host_id_p[64]);

/* ------------------------------------------------------------------ meeting */

typedef struct tpc_bootstrap tpc_bootstrap_t;

/** Meet as a launcher says. Unix socket where all ranks are on this host, else TCP at root. */
tpcomm_status_t tpc_bootstrap_meet_env(const tpc_rank_env_t *rank_env, const tpc_deadline_t *deadline,
                                       tpc_bootstrap_t **bootstrap_p);

/**
 * Make an id: opens the listeners that rank 0 of this process will use. They are kept until the last communicator met
 * by the id is gone; an id that nobody uses keeps them until the process ends, or 32 newer ones have been made.
 */
tpcomm_status_t tpc_bootstrap_make_id(const tpc_env_t *env, tpcomm_unique_id_t *id_p);
tpcomm_status_t tpc_bootstrap_meet_id(const tpcomm_unique_id_t *id, int32_t rank, int32_t size, const tpc_env_t *env,
                                      const tpc_deadline_t *deadline, tpc_bootstrap_t **bootstrap_p);

/** exchange is called exactly twice on every rank, unless the first call fails or shows that the ranks do not belong
 * together. */
tpcomm_status_t tpc_bootstrap_meet_exchange(int32_t rank, int32_t size, tpcomm_exchange_fn exchange, void *arg,
                                            const tpc_env_t *env, const tpc_deadline_t *deadline,
                                            tpc_bootstrap_t **bootstrap_p);

/**
 * Threads of one process: make the shared meeting place once, then meet from n threads. Each rank meets once; it is out
 * when that fails, when its bootstrap is freed, or, if it cannot meet at all, by tpc_thread_world_leave. The last one
 * out frees the place.
 */
typedef struct tpc_thread_world tpc_thread_world_t;
tpcomm_status_t tpc_thread_world_new(int32_t size, tpc_thread_world_t **world_p);
tpcomm_status_t tpc_bootstrap_meet_threads(tpc_thread_world_t *world, int32_t rank, const tpc_env_t *env,
                                           const tpc_deadline_t *deadline, tpc_bootstrap_t **bootstrap_p);
/** For a rank that will never meet; the others learn it at once. */
void tpc_thread_world_leave(tpc_thread_world_t *world, int32_t rank);

/** Close the links and free; local, never blocks. */
void tpc_bootstrap_free(tpc_bootstrap_t *bootstrap);

/* ------------------------------------------------------------------ facts */

typedef struct {
    int32_t rank;
    int32_t pid;      /**< in this process's pid namespace; 0 if it cannot be seen from here */
    int32_t said_pid; /**< in its own, as it says: for texts */
    int pidfd; /**< readable when the process has ended; -1: same process, other host, or not supported. Owned by the
                  bootstrap */
    bool same_process, same_host;
    char host_id[64];
} tpc_member_t;

int32_t tpc_bootstrap_rank(const tpc_bootstrap_t *bootstrap);
int32_t tpc_bootstrap_size(const tpc_bootstrap_t *bootstrap);
const tpc_member_t *tpc_bootstrap_member(const tpc_bootstrap_t *bootstrap, int32_t rank);
/** Whether a rank cannot be talked to any more: its process has ended, it freed its bootstrap, or the connection
 * failed. */
bool tpc_bootstrap_gone(tpc_bootstrap_t *bootstrap, int32_t rank);
/** Random, equal on all ranks of the job, different between jobs. */
uint64_t tpc_bootstrap_nonce(const tpc_bootstrap_t *bootstrap);
/** How the ranks met, for texts: "unix socket @tpcomm-0-..., torchrun: RANK=..."  */
const char *tpc_bootstrap_text(const tpc_bootstrap_t *bootstrap);

/**
 * Rank 0 keeps its listeners so that late-comers are refused by name at once. Descriptors to poll for reading (rank 0
 * of a met job only); call serve when one is readable: it answers and closes whatever is waiting there, does not wait
 * for anybody, and may run on any thread.
 */
int32_t tpc_bootstrap_listeners(const tpc_bootstrap_t *bootstrap, int fds_p[2]);
void tpc_bootstrap_serve(tpc_bootstrap_t *bootstrap, int listener_fd);

/* ------------------------------------------------------------------ notes */

/*
 * A note is a word to one member that nobody waits for. Notes of a link come in order, and before its end. For whoever
 * watches: descriptors to poll; attend when one is ready, then take the notes and look at the peers.
 */

/** A descriptor that is readable when a note has come or a link has ended, until attend. Fails: NO_MEMORY. */
tpcomm_status_t tpc_bootstrap_attention(tpc_bootstrap_t *bootstrap, int *fd_p);
/** The socket of a link, to be watched for edges (EPOLLET): another thread may read it. -1: ranks are threads. */
int tpc_bootstrap_socket(const tpc_bootstrap_t *bootstrap, int32_t rank);
/** Read and write what can be without waiting, unless another thread is about to. Any thread. */
void tpc_bootstrap_attend(tpc_bootstrap_t *bootstrap);

void tpc_bootstrap_note(tpc_bootstrap_t *bootstrap, int32_t rank, uint64_t channel, const void *note, size_t bytes);
/** The next note of this length from rank; others are dropped. False: none. */
bool tpc_bootstrap_next_note(tpc_bootstrap_t *bootstrap, int32_t rank, uint64_t *channel_p, void *note_p, size_t bytes);

typedef enum {
    TPC_PEER_HERE,
    TPC_PEER_LEFT,    /**< let go of the job in good order */
    TPC_PEER_ENDED,   /**< its link has ended without that; forked children of its can hide it */
    TPC_PEER_FAILED,  /**< said that it cannot go on with its link to here */
    TPC_PEER_NO_ROOM, /**< this rank has no memory for the link */
    TPC_PEER_FORGED   /**< what came from it, or to it from here, had a wrong seal (seal.h) */
} tpc_peer_end_t;
/** How the link to a rank is, once its last note has been taken. */
tpc_peer_end_t tpc_bootstrap_peer(tpc_bootstrap_t *bootstrap, int32_t rank);

/* ------------------------------------------------------------------ talking */

/** An ordered subset of the world that exchanges messages of its own. Equal on all its members but for me. */
typedef struct {
    uint64_t channel;     /**< tells the messages of this team from other teams': 0 is the world's */
    const int32_t *ranks; /**< n world ranks in group order; ranks[0] leads */
    int32_t n;
    int32_t me; /**< my index in ranks */
    /**
     * The members come here for one step after the other whatever became of those before, each when its caller says
     * so, and somebody may leave one out. So a step belongs to those who are at it at one time, and its name is what
     * tells whether two of them mean the same; what is left of a step that somebody missed is recognised and dropped.
     * false: whoever comes late for a step that has failed is told of that failure.
     */
    bool again;
    /** Asked at every turn of a wait (20 ms); a failure, with its text, is this member's. May be NULL. */
    tpcomm_status_t (*check)(void *arg);
    void *check_arg;
} tpc_team_t;

/**
 * All-gather of equal-sized blobs that is also a vote: every member says how it fared up to here and all leave with one
 * verdict.
 * @param step   names what has just been done or tried ("create segment"); equal on all members, checked.
 * @param mine_status  OK, or this rank's failure, whose text is this thread's last error.
 * @param mine, bytes  the blob (ignored where mine_status is a failure); bytes equal on all members, checked (0
 * allowed).
 * @param all    out: n * bytes in team order; written only where OK is returned.
 * Returns OK if every member said OK. Else the same status on all members, text recorded on all: the failure of the
 * lowest failing index, as "rank 1 failed in 'create segment': <its text>". A failure of the kinds INVALID_ARG,
 * UNSUPPORTED, VERSION, CONFIG, PARSE and of the -40 class keeps its status on all members; every other becomes
 * PEER_FAILED (but the rank whose caller asked to be INTERRUPTED gets that). A leader that fails need not wait for the
 * others. Ranks in texts are indexes of the team. In a team of one the failure stays as it is. A member that does not
 * arrive: TIMEOUT "... missing ranks: 2, 5" on all that did; one that ends: PEER_DIED naming it; one that freed its
 * bootstrap: ABORTED. The channel can be used again after each of these. Members other than the leader give the leader
 * 1 s more than the deadline, so that they learn its verdict.
 *
 * Every vote has a number that its verdict names, so nobody takes an answer for another's; who stops waiting withdraws
 * his vote by that number.
 */
tpcomm_status_t tpc_team_gather(tpc_bootstrap_t *bootstrap, const tpc_team_t *team, const char *step,
                                tpcomm_status_t mine_status, const void *mine, size_t bytes, void *all,
                                const tpc_deadline_t *deadline);

/**
 * As tpc_team_gather, of one member's blob: all gets the bytes of the member at index root, on which mine is looked at.
 */
tpcomm_status_t tpc_team_pass(tpc_bootstrap_t *bootstrap, const tpc_team_t *team, const char *step, int32_t root,
                              const void *mine, size_t bytes, void *all, const tpc_deadline_t *deadline);

/**
 * A vote of rank's that waits here for a leader who is elsewhere: in a step of this name, on another channel than one.
 * Its blob is copied if it has bytes bytes. False: there is none.
 */
bool tpc_team_elsewhere(tpc_bootstrap_t *bootstrap, int32_t rank, uint64_t but_channel, const char *step, void *blob_p,
                        size_t bytes, uint64_t *channel_p);
/** End the waiting of all whose votes are here, on a channel where I do not lead: with status and my last text. */
void tpc_team_refuse(tpc_bootstrap_t *bootstrap, uint64_t channel, tpcomm_status_t status);

/** The leader's bytes to all (any length up to 16 MiB; the others' *bytes_p is set; they free *data_p). Votes as
 * tpc_team_gather. */
tpcomm_status_t tpc_team_broadcast(tpc_bootstrap_t *bootstrap, const tpc_team_t *team, const char *step,
                                   tpcomm_status_t mine_status, void **data_p, size_t *bytes_p,
                                   const tpc_deadline_t *deadline);

/**
 * The leader's descriptor to all; every other member gets a descriptor of its own (CLOEXEC) in *fd_p, which is not
 * written on the leader. All members must be on one host. Votes as tpc_team_gather; on failure no descriptor is left
 * open.
 */
tpcomm_status_t tpc_team_broadcast_fd(tpc_bootstrap_t *bootstrap, const tpc_team_t *team, const char *step,
                                      tpcomm_status_t mine_status, int leader_fd, int *fd_p,
                                      const tpc_deadline_t *deadline);

/**
 * Every member's descriptor to every member in another process, which gets one of its own (CLOEXEC) in fds_p[i]; -1 for
 * members of the own process. All members must be on one host. Votes as tpc_team_gather; on failure no descriptor is
 * left open.
 */
tpcomm_status_t tpc_team_exchange_fd(tpc_bootstrap_t *bootstrap, const tpc_team_t *team, const char *step,
                                     tpcomm_status_t mine_status, int mine_fd, int *fds_p,
                                     const tpc_deadline_t *deadline);

#endif
