/* SPDX-License-Identifier: Apache-2.0 */
/** Rank 0's side of a meeting: listen, let in, refuse by name. */
#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/hook.h"
#include "base/log.h"
#include "base/text.h"
#include "bootstrap/host.h"
#include "bootstrap/internal.h"

/* How long a failed rank 0 stays to tell those who come late. */
#define REFUSE_MS 1000
/* How long the holder of a name may take to answer who it is. */
#define HOLDER_MS 3000
/* A port or name may be held for a moment by a process on its way out, or by an outgoing connection. */
#define TAKEN_TURNS   5
#define TAKEN_WAIT_MS 10
/* How long somebody may hold a rank without a word before another one may have it. */
#define VOTE_NS (UINT64_C(5) * 1000000000)
/* How long the right one may take to come after somebody without the secret came for its rank. */
#define SENT_AWAY_NS (UINT64_C(3) * 1000000000)
/* A process that ends closes its sockets a little sooner than it can be seen to have ended. */
#define ENDING_MS 50

/* ------------------------------------------------------------------ listening */

static tpcomm_status_t listen_failed(int err, const char *where) {
    bool scarce = err == EMFILE || err == ENFILE || err == ENOMEM || err == ENOBUFS;
    /* EADDRNOTAVAIL: TPCOMM_BIND, or a loopback TPCOMM_ROOT, names what this host does not have. */
    tpcomm_status_t status = scarce ? TPCOMM_ERR_NO_MEMORY : err == EADDRNOTAVAIL ? TPCOMM_ERR_CONFIG : TPCOMM_ERR_IO;
    return tpc_error_errno(status, err, "cannot listen at %s", where);
}

const char *tpc_place_unix_name(const tpc_place_t *place, int alternate, char name[TPC_UNIX_NAME_BYTES]) {
    if (alternate == 0)
        snprintf(name, TPC_UNIX_NAME_BYTES, "%s", place->unix_name);
    else
        snprintf(name, TPC_UNIX_NAME_BYTES, "%.50s#%d", place->unix_name, alternate);
    return name;
}

typedef enum { HELD_BY_JOB, HELD_BY_OTHER_USER, HELD_BY_NOBODY, HELD_NO_MORE } holder_t;

/** Somebody else has the name: who? *status_p and the text are set for HELD_BY_JOB. */
static holder_t ask_holder(const char *name, const tpc_place_t *place, const tpc_self_t *self,
                           const tpc_deadline_t *deadline, tpcomm_status_t *status_p) {
    int fd;
    int err = tpc_unix_connect(name, &fd);
    if (err == ECONNREFUSED) return HELD_BY_NOBODY;
    if (err != 0) {
        *status_p = tpc_error_errno(TPCOMM_ERR_ADDR_IN_USE, err, "unix socket @%s is taken, and does not answer", name);
        return HELD_BY_JOB;
    }
    int32_t pid = 0;
    uint32_t uid = 0;
    if (tpc_unix_peer(fd, &pid, &uid) != 0 || uid != (uint32_t)geteuid() || tpc_unix_abandoned(pid)) {
        close(fd);
        return uid != (uint32_t)geteuid() ? HELD_BY_OTHER_USER : HELD_BY_NOBODY;
    }
    tpc_deadline_t soon = tpc_deadline_in(HOLDER_MS, deadline->interrupted, deadline->interrupted_arg);
    if (soon.at_ns > deadline->at_ns) soon.at_ns = deadline->at_ns;
    tpc_greeting_t answer;
    tpc_seal_t seal; /* of a connection that ends here */
    tpc_ask_t came = tpc_ask(fd, self, place->job, &soon, &answer, &seal, status_p);
    close(fd);
    if (came == TPC_ASK_REFUSED) return HELD_BY_JOB;
    if (came == TPC_ASK_CLOSED || came == TPC_ASK_RETRY) return HELD_NO_MORE;
    if (came == TPC_ASK_UNPROVED)
        *status_p =
            tpc_error(TPCOMM_ERR_ADDR_IN_USE, "unix socket @%s is taken by pid %d, whose secret is another", name, pid);
    else if (came == TPC_ASK_OTHER)
        *status_p = tpc_error_prefix(TPCOMM_ERR_ADDR_IN_USE, "unix socket @%s is taken", name);
    else
        *status_p =
            tpc_error(TPCOMM_ERR_ADDR_IN_USE,
                      "unix socket @%s is taken by pid %d, which does not answer: this job already runs here. Two jobs "
                      "at once need a TPCOMM_JOB_ID (or launcher's job id, or port) each",
                      name, pid);
    return HELD_BY_JOB;
}

static tpcomm_status_t listen_unix(const tpc_place_t *place, const tpc_self_t *self, const tpc_deadline_t *deadline,
                                   tpc_lobby_t *lobby) {
    char name[TPC_UNIX_NAME_BYTES];
    int refused_turns = 0;
    for (int alternate = 0; alternate < TPC_UNIX_ALTERNATES;) {
        int fd;
        tpc_place_unix_name(place, alternate, name);
        int err = tpc_unix_listen(name, &fd);
        if (err == 0) return tpc_lobby_listen(lobby, fd, true);
        if (err != EADDRINUSE) {
            char where[TPC_UNIX_NAME_BYTES + 16];
            snprintf(where, sizeof where, "unix socket @%s", name);
            return listen_failed(err, where);
        }
        tpcomm_status_t status;
        holder_t holder = ask_holder(name, place, self, deadline, &status);
        if (holder == HELD_BY_JOB) return status;
        if (holder == HELD_BY_OTHER_USER || (holder == HELD_BY_NOBODY && ++refused_turns == TAKEN_TURNS)) {
            refused_turns = 0;
            alternate++;
            continue;
        }
        status = tpc_deadline_sleep(deadline, TAKEN_WAIT_MS);
        if (status == TPCOMM_ERR_TIMEOUT) break;
        if (status != TPCOMM_OK) return status;
    }
    return tpc_error(TPCOMM_ERR_ADDR_IN_USE,
                     "unix socket @%s is taken: processes forked from earlier runs, or of other users, hold it",
                     place->unix_name);
}

/** The address that TPCOMM_BIND, or a host that is this machine's loopback, asks for; *any_p: listen on all. */
static tpcomm_status_t bind_address(const tpc_place_t *place, tpc_address_t *address_p, bool *any_p) {
    const char *host = place->host;
    bool loopback = strncmp(host, "127.", 4) == 0 || strcmp(host, "::1") == 0 || strcmp(host, "localhost") == 0;
    const char *wanted = place->bind[0] != '\0' ? place->bind : loopback ? host : NULL;
    *any_p = !wanted;
    if (!wanted) return TPCOMM_OK;
    size_t count;
    int err = tpc_tcp_resolve(wanted, 0, address_p, 1, &count);
    if (err == 0) return TPCOMM_OK;
    char quoted[TPC_TEXT_QUOTE_BYTES];
    return tpc_error(TPCOMM_ERR_CONFIG, "%s='%s' is no address of this host: %s",
                     place->bind[0] != '\0' ? "TPCOMM_BIND" : "host", tpc_text_quote(quoted, wanted, strlen(wanted)),
                     gai_strerror(err));
}

/** Nobody has said that only friends reach this host, and whoever reaches it can ask to join. */
static void warn_of_strangers(const tpc_place_t *place, const tpc_self_t *self, bool any,
                              const tpc_address_t *address) {
    if (self->secret.set || place->exact || place->bind[0] != '\0' || (!any && tpc_address_is_loopback(address)))
        return;
    TPC_WARN(
        "bootstrap",
        "rank 0 listens for the ranks of other hosts (%s) and there is no secret: whoever reaches it can join. Give "
        "all ranks a TPCOMM_SECRET_FILE, or name rank 0's address in TPCOMM_ROOT or TPCOMM_BIND",
        place->text);
}

static tpcomm_status_t listen_tcp(const tpc_place_t *place, const tpc_self_t *self, const tpc_deadline_t *deadline,
                                  tpc_lobby_t *lobby) {
    tpc_address_t address = {.port = 0};
    bool any;
    tpcomm_status_t status = bind_address(place, &address, &any);
    if (status != TPCOMM_OK) return status;
    warn_of_strangers(place, self, any, &address);
    for (uint32_t port = place->first_port; port <= place->last_port; port++) {
        int fd, err = EADDRINUSE;
        for (int turn = 0; err == EADDRINUSE && turn < (place->exact ? TAKEN_TURNS : 1); turn++) {
            if (turn > 0 && tpc_deadline_sleep(deadline, TAKEN_WAIT_MS) != TPCOMM_OK) break;
            address.port = (uint16_t)port;
            err = any ? tpc_tcp_listen_any((uint16_t)port, false, &fd) : tpc_tcp_listen(&address, &fd);
        }
        if (err == 0) return tpc_lobby_listen(lobby, fd, false);
        char where[TPC_ADDRESS_TEXT_BYTES + 16] = "";
        if (any)
            snprintf(where, sizeof where, "TCP port %u", port);
        else
            (void)tpc_address_text(&address, where);
        if (err != EADDRINUSE && err != EACCES) return listen_failed(err, where);
        if (place->exact && err == EACCES) return listen_failed(err, where);
    }
    if (place->exact)
        return tpc_error(
            TPCOMM_ERR_ADDR_IN_USE,
            "%s: port %u is taken on this host, by another program or a process forked from an earlier run; "
            "give TPCOMM_ROOT a free one",
            place->text, place->first_port);
    return tpc_error(TPCOMM_ERR_ADDR_IN_USE,
                     "%s: all of the ports %u to %u are taken on this host; set TPCOMM_ROOT to a free one", place->text,
                     place->first_port, place->last_port);
}

tpcomm_status_t tpc_root_open(const tpc_place_t *place, const tpc_self_t *self, const tpc_deadline_t *deadline,
                              tpc_door_t **door_p) {
    bool fresh;
    *door_p = NULL;
    tpc_door_t *door;
    tpcomm_status_t status = tpc_door_enter(place->unix_name, place->job, deadline, &door, &fresh);
    if (status != TPCOMM_OK) return status;
    tpc_lobby_t *lobby = tpc_door_lobby(door);
    if (lobby->unix_fd < 0) status = listen_unix(place, self, deadline, lobby);
    if (status != TPCOMM_OK) {
        tpc_door_leave(door, NULL);
        return status;
    }
    lobby->secret = self->secret;
    *door_p = door;
    if (place->first_port != 0 && lobby->tcp_fd < 0) status = listen_tcp(place, self, deadline, lobby);
    return status;
}

/* ------------------------------------------------------------------ letting in */

typedef struct {
    tpc_bootstrap_t *bootstrap;
    tpc_lobby_t *lobby;
    uint64_t job;
    bool told[TPCOMM_MAX_RANKS]; /**< refused, and so knows how it ends */
    uint64_t let_in_ns[TPCOMM_MAX_RANKS];
    int32_t unproved; /**< came over the network without the job's secret, and were sent away */
    char unproved_text[TPC_ERROR_BYTES];
    uint64_t sent_away_ns[TPCOMM_MAX_RANKS]; /**< when somebody of this host was who claimed that rank; 0: never */
    bool misses_secret;                      /**< such a rank is missing still */
    bool died, withdrawn; /**< one has, or waits no more: there is nothing to wait for but those who come late */
    int32_t told_outside; /**< the same of ranks of a world of this size that are outside it: others are missing */
} meeting_t;

/** Somebody came who shows that the ranks do not belong together: the same end for him and for the job. */
static tpcomm_status_t refuse_all(meeting_t *meeting, tpc_guest_t *guest, tpcomm_status_t status) {
    int32_t rank = guest->greeting.hello.rank;
    if (rank >= 0 && rank < meeting->bootstrap->self.size)
        meeting->told[rank] = true;
    else if (guest->greeting.hello.size == meeting->bootstrap->self.size)
        meeting->told_outside++;
    (void)tpc_guest_answer(guest, &meeting->bootstrap->self, TPC_VERDICT_REFUSE, 0, status, tpcomm_last_error());
    (void)tpc_hook("refused", 0); /* tests see it */
    return status;
}

/** What about a guest shows that the ranks do not belong together. */
static tpcomm_status_t check_guest(const tpc_bootstrap_t *bootstrap, const tpc_guest_t *guest) {
    const tpc_hello_t *hello = &guest->greeting.hello;
    int32_t size = bootstrap->self.size, my_pid = bootstrap->said_pid[0];
    char theirs[32], mine[32];
    if (guest->other_version)
        return tpc_error(TPCOMM_ERR_CONFIG_MISMATCH,
                         "rank %d runs tpcomm %s, rank 0 (pid %d) runs %s: one job needs one version", hello->rank,
                         tpc_version_text(hello->tpcomm_version, theirs), my_pid,
                         tpc_version_text(tpc_library_version(), mine));
    if (hello->size != size)
        return tpc_error(TPCOMM_ERR_INVALID_ARG,
                         "rank %d (pid %d) was started with size %d, rank 0 (pid %d) with size %d", hello->rank,
                         guest->greeting.pid, hello->size, my_pid, size);
    if (hello->rank < 0 || hello->rank >= size)
        return tpc_error(TPCOMM_ERR_INVALID_ARG, "rank %d (pid %d) is outside the world of %d ranks, which are 0 to %d",
                         hello->rank, guest->greeting.pid, size, size - 1);
    return TPCOMM_OK;
}

/** Whether a rank is taken. Whoever belongs here votes at once; who does not may hold it for a moment only. */
static bool is_held(meeting_t *meeting, int32_t rank) {
    tpc_links_t *links = &meeting->bootstrap->links;
    int err;
    if (rank == 0) return true;
    tpc_link_pump(links); /* the one who has it may just have gone */
    if (tpc_link_state(links, rank, &err) != TPC_LINK_OPEN) return false;
    return tpc_link_peek(links, rank, meeting->bootstrap->world.channel) ||
           tpc_clock_awake_since(meeting->let_in_ns[rank]) < VOTE_NS;
}

static void let_in(meeting_t *meeting, tpc_guest_t *guest) {
    tpc_bootstrap_t *bootstrap = meeting->bootstrap;
    int32_t rank = guest->greeting.hello.rank;
    int *pidfd = &bootstrap->member[rank].pidfd;
    if (tpc_guest_answer(guest, &bootstrap->self, TPC_VERDICT_ACCEPT, bootstrap->nonce, TPCOMM_OK, "") != 0) return;
    if (guest->passed_fd >= 0) close(guest->passed_fd);
    tpc_link_detach(&bootstrap->links, rank);
    if (*pidfd >= 0) close(*pidfd);
    *pidfd = guest->local ? tpc_pidfd_open(guest->pid) : -1;
    bootstrap->process[rank] = guest->greeting.process;
    bootstrap->said_pid[rank] = guest->greeting.pid;
    meeting->let_in_ns[rank] = tpc_clock_awake_ns();
    tpc_seal_t seal = {.set = false};
    if (guest->secret != NULL && !guest->local)
        tpc_seal_begin(guest->secret, &guest->greeting, &guest->challenge, false, &seal);
    tpc_link_attach(&bootstrap->links, rank, guest->fd, *pidfd, &seal);
    explicit_bzero(&seal, sizeof seal);
}

/**
 * Somebody without the job's secret. Anybody may come so, and the right one may be about to: the job goes on. But where
 * a process of this user came for a rank, and no other has for a while, the ranks are set up wrongly.
 */
static void send_away(meeting_t *meeting, tpc_guest_t *guest) {
    const tpc_bootstrap_t *bootstrap = meeting->bootstrap;
    const tpc_hello_t *hello = &guest->greeting.hello;
    char text[TPC_ERROR_BYTES] = "another job listens there";
    if (hello->job != meeting->job) {
        (void)tpc_guest_answer(guest, &bootstrap->self, TPC_VERDICT_OTHER_JOB, 0, TPCOMM_OK, text);
        return;
    }
    tpc_guest_refuse_text(guest, text);
    meeting->unproved++;
    snprintf(meeting->unproved_text, sizeof meeting->unproved_text, "%s", text);
    if (guest->local && hello->rank > 0 && hello->rank < bootstrap->self.size)
        meeting->sent_away_ns[hello->rank] = tpc_clock_awake_ns();
    (void)tpc_guest_answer(guest, &bootstrap->self, TPC_VERDICT_REFUSE, 0, TPCOMM_ERR_AUTH, text);
}

/** One who came. Fails where the job has to. */
static tpcomm_status_t welcome(meeting_t *meeting, tpc_guest_t *guest) {
    const tpc_bootstrap_t *bootstrap = meeting->bootstrap;
    const tpc_hello_t *hello = &guest->greeting.hello;
    char text[TPC_ERROR_BYTES];
    /* Of another version only the hello is known; on this host it is told, over the network it may be anybody's. */
    if (guest->proof != TPC_PROOF_RIGHT && !(guest->other_version && guest->local)) {
        send_away(meeting, guest);
        return TPCOMM_OK;
    }
    if (hello->job != meeting->job) {
        snprintf(text, sizeof text, "a job of pid %d (%s) listens there", bootstrap->said_pid[0], bootstrap->text);
        (void)tpc_guest_answer(guest, &bootstrap->self, TPC_VERDICT_OTHER_JOB, 0, TPCOMM_OK, text);
        return TPCOMM_OK;
    }
    /* A second rank 0 is a second job, and what it says of its size or version is not about this one. */
    tpcomm_status_t status = hello->rank == 0 ? TPCOMM_OK : check_guest(bootstrap, guest);
    if (status != TPCOMM_OK) return refuse_all(meeting, guest, status);
    if (!is_held(meeting, hello->rank)) {
        let_in(meeting, guest);
    } else if (hello->rank != 0 && bootstrap->process[hello->rank] == guest->greeting.process) {
        /* Another thread of that process, for another communicator of the same job: one after the other. */
        (void)tpc_guest_answer(guest, &bootstrap->self, TPC_VERDICT_RETRY, 0, TPCOMM_OK, "");
    } else {
        snprintf(text, sizeof text,
                 "rank %d of this job is pid %d already (%s): two processes were given one rank, or the job was "
                 "started twice",
                 hello->rank, bootstrap->said_pid[hello->rank], bootstrap->text);
        (void)tpc_guest_answer(guest, &bootstrap->self, TPC_VERDICT_REFUSE, 0, TPCOMM_ERR_ADDR_IN_USE, text);
    }
    return TPCOMM_OK;
}

/** Ranks that have come for good: a rank counts from its first vote on, before that it may yet think better of it. */
static int32_t count_present(meeting_t *meeting) {
    tpc_links_t *links = &meeting->bootstrap->links;
    int32_t present = meeting->told_outside;
    tpc_link_pump(links);
    for (int32_t rank = 1; rank < meeting->bootstrap->self.size; rank++) {
        int err;
        tpc_link_state_t state = tpc_link_state(links, rank, &err);
        bool voted = tpc_link_peek(links, rank, meeting->bootstrap->world.channel) != NULL;
        if (voted) (void)tpc_hook("voted", rank); /* tests see it */
        bool gone = state != TPC_LINK_OPEN && state != TPC_LINK_NONE;
        bool forged = state == TPC_LINK_BROKEN && err == EBADMSG; /* it has proved who it is: somebody is between us */
        bool failed = (state == TPC_LINK_BROKEN && err == ENOMEM) || (state == TPC_LINK_LEFT && err != 0);
        bool died =
            gone && (voted || forged || failed || tpc_pidfd_ended(meeting->bootstrap->member[rank].pidfd, ENDING_MS));
        meeting->died |= died;
        meeting->withdrawn |= tpc_link_withdrawn(links, rank, meeting->bootstrap->world.channel);
        if (gone && !died) tpc_link_detach(links, rank);
        uint64_t away_ns = meeting->sent_away_ns[rank];
        bool sent_away = !voted && away_ns != 0 && tpc_clock_awake_since(away_ns) >= SENT_AWAY_NS;
        if (sent_away) meeting->misses_secret = true;
        if (voted || died || meeting->told[rank] || sent_away) present++;
    }
    return present;
}

/** Until all are there or told, the deadline is over, or (unless it has already) somebody died or the job has to fail.
 */
static tpcomm_status_t collect(meeting_t *meeting, bool failed, const tpc_deadline_t *deadline) {
    tpc_turns_begin();
    for (;;) {
        tpc_guest_t guest;
        while (tpc_lobby_next(meeting->lobby, &guest)) {
            tpcomm_status_t status = welcome(meeting, &guest);
            if (status != TPCOMM_OK && !failed) return status;
        }
        tpcomm_status_t room = tpc_room_check(&meeting->lobby->room, 0);
        if (room != TPCOMM_OK && !failed) return room;
        bool all = count_present(meeting) >= meeting->bootstrap->self.size - 1;
        /* Who waits no more wants to hear why, and does not wait for that for long. */
        if (all || meeting->withdrawn || (meeting->died && !failed)) return TPCOMM_OK;
        struct pollfd polls[1 + 2 * TPCOMM_MAX_RANKS];
        polls[0] = (struct pollfd){.fd = meeting->lobby->epoll_fd, .events = POLLIN};
        size_t count = 1 + tpc_link_polls(&meeting->bootstrap->links, polls + 1);
        tpcomm_status_t status = tpc_poll_turn(deadline, polls, count, 100);
        if (status != TPCOMM_OK) return status == TPCOMM_ERR_TIMEOUT ? TPCOMM_OK : status;
    }
}

tpcomm_status_t tpc_root_collect(tpc_bootstrap_t *bootstrap, tpc_door_t *door, tpcomm_status_t mine_status,
                                 const tpc_deadline_t *deadline) {
    meeting_t meeting = {.bootstrap = bootstrap, .lobby = tpc_door_lobby(door), .job = tpc_door_job(door)};
    tpcomm_status_t status = mine_status;
    if (status == TPCOMM_OK) status = collect(&meeting, false, deadline);
    if (status == TPCOMM_OK && meeting.unproved > 0 && (meeting.misses_secret || tpc_deadline_left_ms(deadline) == 0))
        status =
            tpc_error(TPCOMM_ERR_AUTH, "ranks are missing after %llu ms, and %d callers were sent away; the last: %s",
                      (unsigned long long)tpc_deadline_elapsed_ms(deadline), meeting.unproved, meeting.unproved_text);
    /* Those who have not come yet would look for rank 0 until their deadline. */
    char text[TPC_ERROR_BYTES];
    snprintf(text, sizeof text, "%s", tpcomm_last_error());
    tpc_deadline_t soon = tpc_deadline_in(tpc_hook_value("refuse_ms", REFUSE_MS), NULL, NULL);
    if (soon.at_ns > deadline->at_ns) soon.at_ns = deadline->at_ns;
    if (status == TPCOMM_OK && meeting.died) (void)collect(&meeting, true, &soon);
    if (status == TPCOMM_OK) return TPCOMM_OK; /* the first vote tells all who are there */
    if (status != TPCOMM_ERR_INTERRUPTED) (void)collect(&meeting, true, &soon);
    (void)tpc_error(status, "%s", text);
    return tpc_team_fail(bootstrap, &bootstrap->world, TPC_STEP_MEET, status);
}
