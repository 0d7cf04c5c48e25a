/* SPDX-License-Identifier: Apache-2.0 */
#include "bootstrap/door.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bootstrap/host.h"
#include "bootstrap/internal.h"

struct tpc_door {
    tpc_door_t *next; /**< newer ones first */
    char name[TPC_UNIX_NAME_BYTES];
    uint64_t job;
    bool reserved;               /**< for an id that nobody has used yet */
    bool meeting;                /**< one thread has the lobby to itself */
    int32_t members;             /**< the meeting and the bootstraps */
    tpc_bootstrap_t *bootstraps; /**< newest first */
    tpc_lobby_t lobby;
};

/* One lock for the list and for all that is in it but a lobby in a meeting. Nothing waits under it. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static tpc_door_t *doors;
static _Atomic int32_t owner_pid;

/**
 * A forked child starts with an empty list and a lock of its own: its parent's threads, one of which may have held the
 * lock, are not there, and its parent's doors are not its own. owner_pid is negative while a thread of the child sees
 * to that.
 */
static void lock_doors(void) {
    int32_t pid = (int32_t)getpid();
    for (int32_t owner = atomic_load(&owner_pid); owner != pid; owner = atomic_load(&owner_pid)) {
        if (owner == -pid || !atomic_compare_exchange_strong(&owner_pid, &owner, -pid)) {
            (void)poll(NULL, 0, 1);
            continue;
        }
        if (owner != 0) lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
        for (tpc_door_t *door = doors; door;) {
            tpc_door_t *next = door->next;
            tpc_lobby_forget(&door->lobby);
            free(door);
            door = next;
        }
        doors = NULL;
        atomic_store(&owner_pid, pid);
    }
    pthread_mutex_lock(&lock);
}

static void unlock_doors(void) {
    pthread_mutex_unlock(&lock);
}

/** Under lock. */
static tpcomm_status_t door_add(const char *name, uint64_t job, tpc_door_t **door_p) {
    tpc_door_t *door = calloc(1, sizeof *door);
    if (!door) return tpc_error(TPCOMM_ERR_NO_MEMORY, "no memory for a listener");
    tpcomm_status_t status = tpc_lobby_open(&door->lobby, TPC_HELLO_JOIN);
    if (status != TPCOMM_OK) {
        free(door);
        return status;
    }
    snprintf(door->name, sizeof door->name, "%s", name);
    door->job = job;
    door->next = doors;
    doors = door;
    *door_p = door;
    return TPCOMM_OK;
}

/** Under lock. */
static void door_remove(tpc_door_t *door) {
    tpc_door_t **at = &doors;
    while (*at != door) at = &(*at)->next;
    *at = door->next;
    tpc_lobby_close(&door->lobby);
    free(door);
}

static tpc_door_t *door_find(const char *name) {
    tpc_door_t *door = doors;
    while (door && strcmp(door->name, name) != 0) door = door->next;
    return door;
}

tpcomm_status_t tpc_door_enter(const char *name, uint64_t job, const tpc_deadline_t *deadline, tpc_door_t **door_p,
                               bool *fresh_p) {
    for (;;) {
        lock_doors();
        tpcomm_status_t status = TPCOMM_OK;
        tpc_door_t *door = door_find(name);
        bool fresh = !door;
        if (fresh) status = door_add(name, job, &door);
        bool mine = status == TPCOMM_OK && !door->meeting;
        if (mine) {
            door->meeting = true;
            door->reserved = false;
            door->members++;
            *door_p = door;
            *fresh_p = fresh;
        }
        unlock_doors();
        if (mine || status != TPCOMM_OK) return status;
        /* Another thread of this process meets the same job just now: one after the other. */
        status = tpc_deadline_sleep(deadline, 2);
        if (status == TPCOMM_ERR_TIMEOUT)
            return tpc_error(
                status, "another thread of this process has been making a communicator of the same job for %llu ms",
                (unsigned long long)tpc_deadline_elapsed_ms(deadline));
        if (status != TPCOMM_OK) return status;
    }
}

tpcomm_status_t tpc_door_reserve(const char *name, uint64_t job, int listener_fd) {
    lock_doors();
    size_t reserved = 0;
    tpc_door_t *oldest = NULL, *door = NULL;
    for (tpc_door_t *one = doors; one; one = one->next) {
        if (!one->reserved) continue;
        reserved++;
        oldest = one;
    }
    if (reserved >= TPC_DOOR_RESERVED_MAX) door_remove(oldest);
    tpcomm_status_t status = door_add(name, job, &door);
    if (status == TPCOMM_OK) {
        door->reserved = true;
        if (listener_fd >= 0) status = tpc_lobby_listen(&door->lobby, listener_fd, false);
        if (status != TPCOMM_OK) door_remove(door);
    } else if (listener_fd >= 0) {
        close(listener_fd);
    }
    unlock_doors();
    return status;
}

void tpc_door_unreserve(const char *name) {
    lock_doors();
    tpc_door_t *door = door_find(name);
    if (door && door->reserved) door_remove(door);
    unlock_doors();
}

tpc_lobby_t *tpc_door_lobby(tpc_door_t *door) {
    return &door->lobby;
}

void tpc_door_met(tpc_door_t *door, tpc_bootstrap_t *bootstrap) {
    lock_doors();
    door->meeting = false;
    bootstrap->door_next = door->bootstraps;
    door->bootstraps = bootstrap;
    bootstrap->door = door;
    bootstrap->door_fd = fcntl(door->lobby.epoll_fd, F_DUPFD_CLOEXEC, 0);
    unlock_doors();
}

void tpc_door_leave(tpc_door_t *door, tpc_bootstrap_t *bootstrap) {
    lock_doors();
    if (bootstrap) {
        tpc_bootstrap_t **at = &door->bootstraps;
        while (*at != bootstrap) at = &(*at)->door_next;
        *at = bootstrap->door_next;
    } else {
        door->meeting = false;
    }
    if (--door->members == 0) door_remove(door);
    unlock_doors();
}

uint64_t tpc_door_job(const tpc_door_t *door) {
    return door->job;
}

void tpc_door_forget(void) {
    lock_doors();
    unlock_doors();
}

/* ------------------------------------------------------------------ late-comers */

int tpc_guest_answer(tpc_guest_t *guest, const tpc_self_t *self, tpc_verdict_t verdict, uint64_t nonce,
                     tpcomm_status_t status, const char *text) {
    tpc_greeting_t answer;
    tpc_greeting_fill(self, TPC_HELLO_ANSWER, nonce, &answer);
    answer.verdict = (int32_t)verdict;
    answer.status = status;
    if (guest->secret != NULL) tpc_proof_seal(guest->secret, &guest->greeting, &guest->challenge, text, &answer);
    int err = tpc_greeting_send(guest->fd, &answer, text, -1);
    if (verdict != TPC_VERDICT_ACCEPT || err != 0) tpc_guest_end(guest);
    return err;
}

void tpc_guest_refuse_text(const tpc_guest_t *guest, char text_p[TPC_ERROR_BYTES]) {
    static const char *const whys[] = {
        [TPC_PROOF_RIGHT] = "it knows the job's secret",
        [TPC_PROOF_WRONG] = "its secret is not rank 0's",
        [TPC_PROOF_MISSING] = "it was given no secret, and rank 0 was",
        [TPC_PROOF_UNWANTED] = "it was given a secret, and rank 0 was not",
    };
    snprintf(text_p, TPC_ERROR_BYTES,
             "rank %d (pid %d) cannot prove that it belongs to this job: %s; give all ranks the same TPCOMM_SECRET or "
             "TPCOMM_SECRET_FILE, or none",
             guest->greeting.hello.rank, guest->greeting.pid, whys[guest->proof]);
}

/** Whether the process that is rank of a met job has ended. Its link is looked at, not read: that is for others. */
static bool holder_ended(const tpc_bootstrap_t *bootstrap, int32_t rank) {
    if (rank == bootstrap->self.rank) return false;
    if (tpc_pidfd_ended(bootstrap->member[rank].pidfd, 0)) return true;
    struct pollfd link = {.fd = bootstrap->links.boxes->box[rank].fd, .events = POLLRDHUP};
    return poll(&link, 1, 0) == 1 && (link.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
}

/** What a late-comer is told. text is written for REFUSE. */
static tpc_verdict_t judge(const tpc_door_t *door, const tpc_guest_t *guest, tpcomm_status_t *status_p,
                           char text[TPC_ERROR_BYTES]) {
    const tpc_hello_t *hello = &guest->greeting.hello;
    const tpc_bootstrap_t *newest = door->bootstraps;
    char theirs[32], mine[32];
    /* Between two meetings of a thread that is about to begin the next one. */
    if (!newest) return TPC_VERDICT_RETRY;
    if (guest->proof != TPC_PROOF_RIGHT && hello->job != door->job) {
        snprintf(text, TPC_ERROR_BYTES, "another job listens there");
        return TPC_VERDICT_OTHER_JOB;
    }
    if (guest->proof != TPC_PROOF_RIGHT && !(guest->other_version && guest->local)) {
        *status_p = TPCOMM_ERR_AUTH;
        tpc_guest_refuse_text(guest, text);
        return TPC_VERDICT_REFUSE;
    }
    if (hello->job != door->job) {
        snprintf(text, TPC_ERROR_BYTES, "a job of pid %d (%s) listens there", newest->said_pid[0], newest->text);
        return TPC_VERDICT_OTHER_JOB;
    }
    if (guest->other_version) {
        *status_p = TPCOMM_ERR_CONFIG_MISMATCH;
        snprintf(text, TPC_ERROR_BYTES, "rank %d runs tpcomm %s, rank 0 (pid %d) runs %s: one job needs one version",
                 hello->rank, tpc_version_text(hello->tpcomm_version, theirs), newest->said_pid[0],
                 tpc_version_text(tpc_library_version(), mine));
        return TPC_VERDICT_REFUSE;
    }
    bool in_range = hello->rank >= 0 && hello->rank < newest->self.size;
    for (const tpc_bootstrap_t *one = newest; in_range && one; one = one->door_next) {
        /* A rank of the job that is ahead of rank 0 on the way to the next communicator, or that was started anew. */
        if (hello->rank < one->self.size && one->process[hello->rank] == guest->greeting.process)
            return TPC_VERDICT_RETRY;
        if (hello->rank < one->self.size && holder_ended(one, hello->rank)) return TPC_VERDICT_RETRY;
    }
    if (hello->size != newest->self.size || !in_range) {
        *status_p = TPCOMM_ERR_INVALID_ARG;
        snprintf(text, TPC_ERROR_BYTES, "rank %d of %d (pid %d) came to a job of %d ranks, whose rank 0 is pid %d (%s)",
                 hello->rank, hello->size, guest->greeting.pid, newest->self.size, newest->said_pid[0], newest->text);
        return TPC_VERDICT_REFUSE;
    }
    *status_p = TPCOMM_ERR_ADDR_IN_USE;
    snprintf(text, TPC_ERROR_BYTES,
             "this job already runs here: its rank %d is pid %d, rank 0 is pid %d (%s). Two jobs at once need a "
             "TPCOMM_JOB_ID (or launcher's job id, or port) each",
             hello->rank, newest->said_pid[hello->rank], newest->said_pid[0], newest->text);
    return TPC_VERDICT_REFUSE;
}

void tpc_door_serve(tpc_door_t *door) {
    tpc_guest_t guest;
    lock_doors();
    bool meeting = door->meeting;
    while (!meeting && tpc_lobby_next(&door->lobby, &guest)) {
        char text[TPC_ERROR_BYTES] = "";
        tpcomm_status_t status = TPCOMM_OK;
        tpc_verdict_t verdict = judge(door, &guest, &status, text);
        tpc_self_t self = door->bootstraps ? door->bootstraps->self : (tpc_self_t){.rank = 0};
        (void)tpc_guest_answer(&guest, &self, verdict, 0, status, text);
    }
    unlock_doors();
    /* The meeting's own thread answers; the descriptor may stay readable until it does. */
    if (meeting) (void)poll(NULL, 0, 2);
}
