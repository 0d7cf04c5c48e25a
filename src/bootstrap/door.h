/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Doors: where rank 0 of a job listens, kept in one list for the process. A door outlives the meeting it was opened
 * for: it stays as long as a bootstrap that was met there, so that late-comers are answered by name, and further
 * meetings of the same job (a second communicator, or a new one after the first failed) use it again. A door made for a
 * unique id waits for its rank 0.
 */
#ifndef TPC_BOOTSTRAP_DOOR_H
#define TPC_BOOTSTRAP_DOOR_H

#include "base/clock.h"
#include "bootstrap/bootstrap.h"
#include "bootstrap/lobby.h"

typedef struct tpc_door tpc_door_t;

/** At most this many ids that nobody has used are kept open; the oldest goes first. */
#define TPC_DOOR_RESERVED_MAX 32

/**
 * Begin a meeting at the door of this name: the process's own, once no other meeting is on there, else a new one
 * without listeners (*fresh_p). job is what greetings must name. Ended by tpc_door_met or tpc_door_leave(door, NULL).
 * Fails: TIMEOUT, INTERRUPTED, NO_MEMORY, IO.
 */
tpcomm_status_t tpc_door_enter(const char *name, uint64_t job, const tpc_deadline_t *deadline, tpc_door_t **door_p,
                               bool *fresh_p);

/** A door that waits for an id's first meeting; keeps listener_fd (-1: none) for TCP. Fails: NO_MEMORY, IO; closes it
 * then. */
tpcomm_status_t tpc_door_reserve(const char *name, uint64_t job, int listener_fd);

/** Close a door that still waits for its first meeting. */
void tpc_door_unreserve(const char *name);

/** During a meeting: whoever has come. */
tpc_lobby_t *tpc_door_lobby(tpc_door_t *door);
uint64_t tpc_door_job(const tpc_door_t *door);

/** The meeting is over; bootstrap belongs to the door until it leaves. */
void tpc_door_met(tpc_door_t *door, tpc_bootstrap_t *bootstrap);

/** A bootstrap goes, or (NULL) the meeting failed. The last one out closes the door. */
void tpc_door_leave(tpc_door_t *door, tpc_bootstrap_t *bootstrap);

/** In a forked child: close the copies of its parent's doors. */
void tpc_door_forget(void);

/** Between meetings: answer and send away whoever is there. Any thread. */
void tpc_door_serve(tpc_door_t *door);

/** Why a guest whose proof is not right is refused. */
void tpc_guest_refuse_text(const tpc_guest_t *guest, char text_p[TPC_ERROR_BYTES]);

/** Answer a guest. ACCEPT: nonce goes along and guest->fd stays open; all others: it is closed. Returns 0 or an errno
 * value. */
int tpc_guest_answer(tpc_guest_t *guest, const tpc_self_t *self, tpc_verdict_t verdict, uint64_t nonce,
                     tpcomm_status_t status, const char *text);

#endif
