/* SPDX-License-Identifier: Apache-2.0 */
#include "bootstrap/lobby.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "bootstrap/net.h"

/* How long a connection may take to say who it is. */
#define GREETING_NS   (UINT64_C(5) * 1000000000)
#define EVENTS_A_TURN 32

/* What an epoll event is about: a slot of pending, or a listener. */
enum { UNIX_LISTENER = TPC_LOBBY_PENDING, TCP_LISTENER };

static bool watch(tpc_lobby_t *lobby, int fd, uint64_t what) {
    struct epoll_event event = {.events = EPOLLIN, .data = {.u64 = what}};
    return epoll_ctl(lobby->epoll_fd, EPOLL_CTL_ADD, fd, &event) == 0;
}

/** A forked child may hold the descriptor too, so closing alone does not end the watch. */
static void unwatch(tpc_lobby_t *lobby, int fd) {
    (void)epoll_ctl(lobby->epoll_fd, EPOLL_CTL_DEL, fd, NULL);
}

tpcomm_status_t tpc_lobby_open(tpc_lobby_t *lobby, uint16_t kind) {
    memset(lobby, 0, sizeof *lobby);
    lobby->kind = kind;
    lobby->unix_fd = lobby->tcp_fd = -1;
    for (size_t i = 0; i < TPC_LOBBY_PENDING; i++) lobby->pending[i].fd = -1;
    lobby->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (lobby->epoll_fd < 0)
        return tpc_error_errno(errno == EMFILE || errno == ENFILE || errno == ENOMEM ? TPCOMM_ERR_NO_MEMORY
                                                                                     : TPCOMM_ERR_IO,
                               errno, "epoll_create1");
    return TPCOMM_OK;
}

tpcomm_status_t tpc_lobby_listen(tpc_lobby_t *lobby, int listener_fd, bool local) {
    if (!watch(lobby, listener_fd, local ? UNIX_LISTENER : TCP_LISTENER)) {
        int err = errno;
        close(listener_fd);
        return tpc_error_errno(TPCOMM_ERR_IO, err, "epoll_ctl for a listening socket");
    }
    if (local)
        lobby->unix_fd = listener_fd;
    else
        lobby->tcp_fd = listener_fd;
    return TPCOMM_OK;
}

static void pending_free(tpc_lobby_t *lobby, tpc_pending_t *pending) {
    unwatch(lobby, pending->fd);
    tpc_greeting_reader_end(&pending->reader);
    close(pending->fd);
    pending->fd = -1;
}

static void pending_read(tpc_lobby_t *lobby, tpc_pending_t *pending) {
    pending->state = tpc_greeting_read(&pending->reader, pending->fd);
    const tpc_greeting_t *greeting = &pending->reader.greeting;
    bool whole = pending->state == TPC_READ_DONE, version = pending->state == TPC_READ_VERSION && !pending->asked;
    uint16_t kind = pending->asked ? TPC_HELLO_PROVE : lobby->kind;
    if (pending->state == TPC_READ_MORE) return;
    if ((!whole && !version) || greeting->hello.kind != kind) {
        pending_free(lobby, pending);
        return;
    }
    if (pending->asked) {
        bool right = tpc_proof_right(&lobby->secret, &pending->hello, &pending->challenge, greeting);
        pending->proof = right ? TPC_PROOF_RIGHT : TPC_PROOF_WRONG;
        return;
    }
    bool has_secret = whole && (greeting->flags & TPC_HELLO_HAS_SECRET) != 0;
    if (!lobby->secret.set || !has_secret) {
        pending->proof = lobby->secret.set ? TPC_PROOF_MISSING : has_secret ? TPC_PROOF_UNWANTED : TPC_PROOF_RIGHT;
        return;
    }
    pending->hello = *greeting;
    pending->asked = true;
    pending->state = TPC_READ_MORE;
    pending->reader.have = 0; /* a descriptor that came along stays */
    if (!tpc_proof_challenge(&lobby->secret, &pending->hello, &pending->challenge) ||
        tpc_greeting_send(pending->fd, &pending->challenge, "", -1) != 0)
        pending_free(lobby, pending);
}

/** The slot whose connection has kept silent longest; NULL if there is none. */
static tpc_pending_t *oldest(tpc_lobby_t *lobby) {
    tpc_pending_t *found = NULL;
    for (size_t i = 0; i < TPC_LOBBY_PENDING; i++) {
        tpc_pending_t *one = &lobby->pending[i];
        if (one->fd >= 0 && one->state == TPC_READ_MORE && (!found || one->since_ns < found->since_ns)) found = one;
    }
    return found;
}

/** A free slot, if need be that of the longest silence: whoever belongs here speaks at once. */
static tpc_pending_t *free_slot(tpc_lobby_t *lobby) {
    for (size_t i = 0; i < TPC_LOBBY_PENDING; i++)
        if (lobby->pending[i].fd < 0) return &lobby->pending[i];
    tpc_pending_t *victim = oldest(lobby);
    if (victim) pending_free(lobby, victim);
    return victim;
}

static void accept_all(tpc_lobby_t *lobby, int listener_fd, bool local) {
    for (int turn = 0; turn < EVENTS_A_TURN; turn++) {
        int fd = accept4(listener_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0 && tpc_room_is_want(errno)) {
            /* The listener stays readable: make room, or at least do not spin. */
            tpc_pending_t *victim = oldest(lobby);
            tpc_room_note(&lobby->room, errno);
            if (victim)
                pending_free(lobby, victim);
            else
                (void)poll(NULL, 0, 10);
            return;
        }
        if (fd < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
        if (fd >= 0) tpc_room_note(&lobby->room, 0);
        if (fd < 0) continue; /* EINTR, or this one connection was gone before it was accepted */

        int32_t pid = 0;
        uint32_t uid = 0;
        tpc_pending_t *slot = NULL;
        if (!local || (tpc_unix_peer(fd, &pid, &uid) == 0 && uid == (uint32_t)geteuid())) slot = free_slot(lobby);
        if (!slot || !watch(lobby, fd, (uint64_t)(slot - lobby->pending))) {
            close(fd);
            continue;
        }
        *slot = (tpc_pending_t){.fd = fd, .local = local, .pid = pid, .since_ns = tpc_clock_awake_ns()};
        tpc_greeting_reader_start(&slot->reader);
        if (!local) tpc_tcp_tune(fd);
        pending_read(lobby, slot);
    }
}

static void pump(tpc_lobby_t *lobby) {
    struct epoll_event events[EVENTS_A_TURN];
    int ready;
    do ready = epoll_wait(lobby->epoll_fd, events, EVENTS_A_TURN, 0);
    while (ready < 0 && errno == EINTR);
    /* Those that are there already come before new ones, whose number a stranger can choose. */
    for (int i = 0; i < ready; i++) {
        if (events[i].data.u64 >= TPC_LOBBY_PENDING) continue;
        tpc_pending_t *pending = &lobby->pending[events[i].data.u64];
        if (pending->fd >= 0 && pending->state == TPC_READ_MORE) pending_read(lobby, pending);
    }
    for (size_t i = 0; i < TPC_LOBBY_PENDING; i++) {
        tpc_pending_t *one = &lobby->pending[i];
        if (one->fd >= 0 && one->state == TPC_READ_MORE && tpc_clock_awake_since(one->since_ns) > GREETING_NS)
            pending_free(lobby, one);
    }
    for (int i = 0; i < ready; i++) {
        if (events[i].data.u64 == UNIX_LISTENER) accept_all(lobby, lobby->unix_fd, true);
        if (events[i].data.u64 == TCP_LISTENER) accept_all(lobby, lobby->tcp_fd, false);
    }
}

static bool take(tpc_lobby_t *lobby, tpc_guest_t *guest_p) {
    tpc_pending_t *first = NULL;
    for (size_t i = 0; i < TPC_LOBBY_PENDING; i++) {
        tpc_pending_t *one = &lobby->pending[i];
        if (one->fd < 0 || one->state == TPC_READ_MORE) continue;
        if (!first || one->since_ns < first->since_ns) first = one;
    }
    if (!first) return false;
    unwatch(lobby, first->fd);
    *guest_p = (tpc_guest_t){
        .fd = first->fd,
        .local = first->local,
        .other_version = first->state == TPC_READ_VERSION,
        .pid = first->local                    ? first->pid
               : first->state == TPC_READ_DONE ? (first->asked ? first->hello.pid : first->reader.greeting.pid)
                                               : 0,
        .passed_fd = first->reader.passed_fd,
        .greeting = first->asked ? first->hello : first->reader.greeting,
        .proof = first->proof,
        .secret = first->asked ? &lobby->secret : NULL,
        .challenge = first->challenge,
    };
    first->fd = -1;
    return true;
}

bool tpc_lobby_next(tpc_lobby_t *lobby, tpc_guest_t *guest_p) {
    if (take(lobby, guest_p)) return true;
    pump(lobby);
    return take(lobby, guest_p);
}

static void close_fd(int *fd) {
    if (*fd >= 0) close(*fd);
    *fd = -1;
}

void tpc_lobby_forget(tpc_lobby_t *lobby) {
    for (size_t i = 0; i < TPC_LOBBY_PENDING; i++) {
        if (lobby->pending[i].fd >= 0) tpc_greeting_reader_end(&lobby->pending[i].reader);
        close_fd(&lobby->pending[i].fd);
    }
    close_fd(&lobby->unix_fd);
    close_fd(&lobby->tcp_fd);
    close_fd(&lobby->epoll_fd);
    tpc_secret_wipe(&lobby->secret);
}

void tpc_lobby_close(tpc_lobby_t *lobby) {
    int listeners[2] = {lobby->unix_fd, lobby->tcp_fd};
    for (size_t i = 0; i < 2; i++) {
        if (listeners[i] < 0) continue;
        unwatch(lobby, listeners[i]);
        (void)shutdown(listeners[i], SHUT_RDWR);
        /* Where a forked child holds the listener, whoever waits in its queue would wait for ever. */
        int fd;
        while ((fd = accept4(listeners[i], NULL, NULL, SOCK_CLOEXEC)) >= 0) close(fd);
    }
    tpc_lobby_forget(lobby);
}

void tpc_guest_end(tpc_guest_t *guest) {
    /* Closing a TCP socket with unread bytes resets it, and a reset overtakes the answer. */
    char unread[256];
    (void)shutdown(guest->fd, SHUT_WR);
    for (int i = 0; i < 16 && recv(guest->fd, unread, sizeof unread, MSG_DONTWAIT) > 0; i++) continue;
    if (guest->passed_fd >= 0) close(guest->passed_fd);
    close(guest->fd);
    guest->fd = guest->passed_fd = -1;
}
