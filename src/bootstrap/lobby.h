/* SPDX-License-Identifier: Apache-2.0 */
/**
 * A lobby: one or two listening sockets and the connections that have not said yet who they are. It hands out those
 * whose greeting is complete and of the wanted kind. Everybody else (port scanners, garbage, silence, half a greeting,
 * other users) costs a slot of bounded number for bounded time and nothing more.
 */
#ifndef TPC_BOOTSTRAP_LOBBY_H
#define TPC_BOOTSTRAP_LOBBY_H

#include <stdbool.h>

#include "bootstrap/greeting.h"
#include "bootstrap/room.h"

#define TPC_LOBBY_PENDING 64

/** What somebody has shown of the job's secret. */
typedef enum {
    TPC_PROOF_RIGHT,    /**< knows it; or neither side has one */
    TPC_PROOF_WRONG,    /**< has another one */
    TPC_PROOF_MISSING,  /**< has none, and this side has */
    TPC_PROOF_UNWANTED, /**< has one, and this side has none */
} tpc_proof_t;

typedef struct {
    int fd; /**< -1: free slot */
    bool local;
    int32_t pid; /**< by the kernel where local, else 0 */
    uint64_t since_ns;
    tpc_read_t state;
    tpc_greeting_reader_t reader;
    bool asked; /**< for a proof: what came first, and what was sent */
    tpc_proof_t proof;
    tpc_greeting_t hello, challenge;
} tpc_pending_t;

typedef struct {
    uint16_t kind; /**< of greeting that is let through */
    tpc_secret_t secret;
    int epoll_fd; /**< readable when tpc_lobby_next may have something to do */
    int unix_fd, tcp_fd;
    tpc_room_t room; /**< for those who knock */
    tpc_pending_t pending[TPC_LOBBY_PENDING];
} tpc_lobby_t;

/** Somebody whose greeting is complete. */
typedef struct {
    int fd;
    bool local;         /**< came by unix socket */
    bool other_version; /**< only greeting.hello is filled */
    int32_t pid;        /**< in this process's namespace where local, else as it said; 0: unknown */
    int passed_fd;      /**< -1: none */
    tpc_greeting_t greeting;
    tpc_proof_t proof;
    const tpc_secret_t *secret; /**< the lobby's, where this guest was asked to prove it; else NULL */
    tpc_greeting_t challenge;
} tpc_guest_t;

/** Fails: IO, NO_MEMORY. */
tpcomm_status_t tpc_lobby_open(tpc_lobby_t *lobby, uint16_t kind);
/** Take over a listening socket; it is closed with the lobby. On failure too. */
tpcomm_status_t tpc_lobby_listen(tpc_lobby_t *lobby, int listener_fd, bool local);
/** Accept and read whatever is there; never waits. True: a guest, who now belongs to the caller. */
bool tpc_lobby_next(tpc_lobby_t *lobby, tpc_guest_t *guest_p);
/** Refuse further connections, also for forked children that hold the listeners, and close. */
void tpc_lobby_close(tpc_lobby_t *lobby);
/** In a forked child: close this process's copies and leave the parent's lobby as it is. */
void tpc_lobby_forget(tpc_lobby_t *lobby);

/** Close the connection, without losing what was just sent on it. */
void tpc_guest_end(tpc_guest_t *guest);

#endif
