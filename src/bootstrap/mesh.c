/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The links of a met job: each rank connects to all lower ranks and is connected to by all higher ones, by unix socket
 * within a host and by TCP across hosts. Each link is tried by use: it counts once both sides have greeted each other
 * with the job's nonce and their ranks. Within a host each side sends a descriptor of its process along.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/hook.h"
#include "bootstrap/host.h"
#include "bootstrap/internal.h"

#define CONNECT_NS (UINT64_C(2) * 1000000000)
#define ANSWER_NS  (UINT64_C(10) * 1000000000)
#define PAUSE_NS   (UINT64_C(20) * 1000000)
#define TURN_MS    20
/* Its process may be ending: then rank 0 is about to say so, which is the better text. */
#define REFUSALS_MOST 10

typedef enum { CALL_PAUSED, CALL_CONNECTING, CALL_WAITING, CALL_DONE } call_phase_t;

/** The way to one lower rank. */
typedef struct {
    int32_t rank;
    call_phase_t phase;
    int fd;
    uint64_t since_ns; /**< of the phase */
    int refusals;      /**< of a unix socket, in a row */
    size_t next;       /**< address to try */
    tpc_greeting_reader_t reader;
    bool challenged;
    tpc_greeting_t hello, challenge; /**< sent, and what was asked for then: with a secret */
    char last[160];
} call_t;

typedef struct {
    tpc_bootstrap_t *bootstrap;
    const tpc_peer_t *peers;
    tpc_lobby_t *lobby;
    tpc_mesh_t *mesh;
    int self_pidfd;
    tpc_room_t room; /**< for sockets to lower ranks */
    call_t call[TPCOMM_MAX_RANKS];
} maker_t;

void tpc_mesh_init(tpc_mesh_t *mesh) {
    for (int32_t i = 0; i < TPCOMM_MAX_RANKS; i++) {
        mesh->fd[i] = mesh->pidfd[i] = -1;
        mesh->pid[i] = 0;
    }
    explicit_bzero(mesh->seal, sizeof mesh->seal);
}

void tpc_mesh_free(tpc_mesh_t *mesh) {
    for (int32_t i = 0; i < TPCOMM_MAX_RANKS; i++) {
        /* For its other side it is a link already. */
        if (mesh->fd[i] >= 0) tpc_socket_goodbye(mesh->fd[i], &mesh->seal[i], TPCOMM_OK);
        if (mesh->fd[i] >= 0) close(mesh->fd[i]);
        if (mesh->pidfd[i] >= 0) close(mesh->pidfd[i]);
    }
    tpc_mesh_init(mesh);
}

static bool same_host(const maker_t *maker, int32_t rank) {
    return strcmp(maker->peers[rank].record.host_id, maker->bootstrap->self.host_id) == 0;
}

static bool same_process(const maker_t *maker, int32_t rank) {
    return maker->peers[rank].record.process == maker->bootstrap->self.process;
}

/** Keep a link; what is kept for that rank already is closed. Takes both descriptors. */
static void keep(maker_t *maker, int32_t rank, int fd, int pidfd, bool local) {
    tpc_mesh_t *mesh = maker->mesh;
    if (mesh->fd[rank] >= 0) close(mesh->fd[rank]);
    if (mesh->pidfd[rank] >= 0) close(mesh->pidfd[rank]);
    if (pidfd >= 0 && (!local || same_process(maker, rank))) {
        close(pidfd);
        pidfd = -1;
    }
    mesh->fd[rank] = fd;
    mesh->pidfd[rank] = pidfd;
    mesh->seal[rank] = (tpc_seal_t){.set = false};
    uint32_t uid;
    if (!local || tpc_unix_peer(fd, &mesh->pid[rank], &uid) != 0) mesh->pid[rank] = 0;
}

static void fill(const maker_t *maker, uint16_t kind, int32_t rank, tpc_greeting_t *greeting_p) {
    tpc_greeting_fill(&maker->bootstrap->self, kind, maker->bootstrap->nonce, greeting_p);
    greeting_p->to_rank = rank;
}

static int greet(const maker_t *maker, int fd, const tpc_greeting_t *greeting, bool local) {
    bool passes = local && !same_process(maker, greeting->to_rank);
    return tpc_greeting_send(fd, greeting, "", passes ? maker->self_pidfd : -1);
}

/** Whether a greeting is from this rank of this job to me. */
static bool is_from(const maker_t *maker, const tpc_greeting_t *greeting, uint16_t kind, int32_t rank) {
    return greeting->hello.kind == kind && greeting->hello.job == maker->bootstrap->nonce &&
           greeting->hello.rank == rank && greeting->to_rank == maker->bootstrap->self.rank &&
           greeting->process == maker->peers[rank].record.process;
}

/* ------------------------------------------------------------------ to lower ranks */

/** The addresses of a rank on another host: for rank 0 first the one by which this rank has reached it already. */
static size_t addresses_of(const maker_t *maker, int32_t rank, tpc_address_t addresses_p[TPC_WIRE_ADDRESSES + 1]) {
    const tpc_wire_addresses_t *said = &maker->peers[rank].addresses;
    size_t count = 0;
    int root_fd = maker->bootstrap->links.boxes->box[0].fd;
    if (said->port == 0) return 0;
    if (rank == 0 && tpc_tcp_remote(root_fd, &addresses_p[0]) == 0) addresses_p[count++].port = said->port;
    for (size_t i = 0; i < said->count && i < TPC_WIRE_ADDRESSES; i++) {
        addresses_p[count] = (tpc_address_t){.port = said->port};
        memcpy(addresses_p[count++].ip, said->ip[i], sizeof said->ip[i]);
    }
    return count;
}

static void call_move(call_t *call, call_phase_t phase) {
    call->phase = phase;
    call->since_ns = tpc_clock_awake_ns();
}

static void call_drop(call_t *call, const char *where, const char *why) {
    if (call->fd >= 0) close(call->fd);
    call->fd = -1;
    tpc_greeting_reader_end(&call->reader);
    snprintf(call->last, sizeof call->last, "%.80s: %.70s", where, why);
    call_move(call, CALL_PAUSED);
}

static void call_greet(maker_t *maker, call_t *call, const char *where, bool local) {
    fill(maker, TPC_HELLO_LINK, call->rank, &call->hello);
    call->challenged = false;
    int err = tpc_proof_begin(&maker->bootstrap->self.secret, &call->hello) != TPCOMM_OK ? EIO : 0;
    if (err == 0) err = greet(maker, call->fd, &call->hello, local);
    if (err != 0)
        call_drop(call, where, strerror(err));
    else
        call_move(call, CALL_WAITING);
}

static tpcomm_status_t call_start(maker_t *maker, call_t *call) {
    char where[TPC_ADDRESS_TEXT_BYTES];
    const tpc_record_t *record = &maker->peers[call->rank].record;
    if (same_host(maker, call->rank)) {
        int err = tpc_unix_connect(record->unix_name, &call->fd);
        tpc_room_note(&maker->room, err);
        if (err == 0) {
            call_greet(maker, call, record->unix_name, true);
            return TPCOMM_OK;
        }
        call_drop(call, record->unix_name, strerror(err));
        if (err != ECONNREFUSED || ++call->refusals < REFUSALS_MOST) return TPCOMM_OK;
        return tpc_error(
            TPCOMM_ERR_CONFIG,
            "rank %d (pid %d) says that it is on this host (%s), but its unix socket @%s is not there: two hosts or "
            "containers have one identity. Give each its own TPCOMM_HOST_ID",
            call->rank, record->pid, record->host_id, record->unix_name);
    }
    tpc_address_t addresses[TPC_WIRE_ADDRESSES + 1];
    size_t count = addresses_of(maker, call->rank, addresses);
    if (count == 0)
        return tpc_error(TPCOMM_ERR_NO_TRANSPORT,
                         "rank %d (pid %d) is on another host (%s, this is %s) and has no TCP address", call->rank,
                         record->pid, record->host_id, maker->bootstrap->self.host_id);
    const tpc_address_t *address = &addresses[call->next++ % count];
    int err = tpc_tcp_connect(address, &call->fd);
    tpc_room_note(&maker->room, err);
    if (err == 0 || err == EINPROGRESS)
        call_move(call, CALL_CONNECTING);
    else
        call_drop(call, tpc_address_text(address, where), strerror(err));
    return TPCOMM_OK;
}

static void call_answered(maker_t *maker, call_t *call, const char *where) {
    tpc_read_t state = tpc_greeting_read(&call->reader, call->fd);
    const tpc_secret_t *secret = &maker->bootstrap->self.secret;
    if (state == TPC_READ_MORE) return;
    if (state == TPC_READ_DONE && secret->set && !call->challenged &&
        tpc_proof_challenge_right(secret, &call->hello, &call->reader.greeting)) {
        tpc_greeting_t prove;
        call->challenged = true;
        call->challenge = call->reader.greeting;
        call->reader.have = 0;
        tpc_proof_prove(secret, &call->hello, &call->challenge, &prove);
        int err = tpc_greeting_send(call->fd, &prove, "", -1);
        if (err != 0) call_drop(call, where, strerror(err));
        return;
    }
    bool proved = !secret->set || (call->challenged && tpc_proof_sealed(secret, &call->hello, &call->challenge, "",
                                                                        &call->reader.greeting));
    if (state != TPC_READ_DONE || !proved || !is_from(maker, &call->reader.greeting, TPC_HELLO_LINK_OK, call->rank)) {
        call_drop(call, where, state == TPC_READ_CLOSED ? "the connection was closed" : "somebody else listens there");
        return;
    }
    bool local = same_host(maker, call->rank);
    if (!local) tpc_tcp_tune(call->fd);
    keep(maker, call->rank, call->fd, call->reader.passed_fd, local);
    if (secret->set && !local)
        tpc_seal_begin(secret, &call->hello, &call->challenge, true, &maker->mesh->seal[call->rank]);
    call->fd = call->reader.passed_fd = -1;
    call_move(call, CALL_DONE);
}

/** Look at one call again; events: what poll saw at its socket. */
static tpcomm_status_t call_turn(maker_t *maker, call_t *call, short events) {
    char where[TPC_ADDRESS_TEXT_BYTES] = "";
    tpc_address_t remote;
    uint64_t spent_ns = tpc_clock_awake_since(call->since_ns);
    if (call->phase == CALL_DONE) return TPCOMM_OK;
    if (call->phase == CALL_PAUSED)
        return spent_ns >= PAUSE_NS || call->last[0] == '\0' ? call_start(maker, call) : TPCOMM_OK;
    if (same_host(maker, call->rank))
        snprintf(where, sizeof where, "%s", maker->peers[call->rank].record.unix_name);
    else if (tpc_tcp_remote(call->fd, &remote) == 0)
        (void)tpc_address_text(&remote, where);
    if (call->phase == CALL_CONNECTING && events != 0) {
        int err = tpc_tcp_connected(call->fd);
        if (err != 0)
            call_drop(call, where, strerror(err));
        else
            call_greet(maker, call, where, false);
    } else if (call->phase == CALL_WAITING && events != 0) {
        call_answered(maker, call, where);
    } else if (spent_ns > (call->phase == CALL_CONNECTING ? CONNECT_NS : ANSWER_NS)) {
        call_drop(call, where, "no answer");
    }
    return TPCOMM_OK;
}

/* ------------------------------------------------------------------ from higher ranks */

static void welcome(maker_t *maker, tpc_guest_t *guest) {
    (void)tpc_hook("welcome", maker->bootstrap->self.rank); /* a delay only */
    int32_t rank = guest->greeting.hello.rank;
    const tpc_self_t *self = &maker->bootstrap->self;
    bool ours = guest->proof == TPC_PROOF_RIGHT && !guest->other_version && rank > self->rank && rank < self->size &&
                is_from(maker, &guest->greeting, TPC_HELLO_LINK, rank) && guest->local == same_host(maker, rank);
    tpc_greeting_t answer;
    if (ours) fill(maker, TPC_HELLO_LINK_OK, rank, &answer);
    if (ours && guest->secret != NULL) tpc_proof_seal(guest->secret, &guest->greeting, &guest->challenge, "", &answer);
    if (!ours || greet(maker, guest->fd, &answer, guest->local) != 0) {
        tpc_guest_end(guest);
        return;
    }
    keep(maker, rank, guest->fd, guest->passed_fd, guest->local);
    if (guest->secret != NULL && !guest->local)
        tpc_seal_begin(guest->secret, &guest->greeting, &guest->challenge, false, &maker->mesh->seal[rank]);
}

/* ------------------------------------------------------------------ all */

/** Whether rank 0's verdict is there, or on rank 0: something that makes one. */
static bool is_over(maker_t *maker) {
    tpc_links_t *links = &maker->bootstrap->links;
    const tpc_self_t *self = &maker->bootstrap->self;
    int err;
    tpc_link_pump(links);
    if (self->rank != 0) return tpc_link_state(links, 0, &err) != TPC_LINK_OPEN || tpc_link_peek(links, 0, 0);
    for (int32_t rank = 1; rank < self->size; rank++) {
        const tpc_frame_t *vote = tpc_link_peek(links, rank, 0);
        if (tpc_link_state(links, rank, &err) != TPC_LINK_OPEN || (vote && vote->head.status != TPCOMM_OK)) return true;
    }
    return false;
}

static tpcomm_status_t too_late(maker_t *maker, const tpc_deadline_t *deadline) {
    char missing[512] = "";
    for (int32_t rank = 0, used = 0; rank < maker->bootstrap->self.size && used < (int32_t)sizeof missing - 1; rank++) {
        if (rank == maker->bootstrap->self.rank || maker->mesh->fd[rank] >= 0) continue;
        const char *last = rank < maker->bootstrap->self.rank ? maker->call[rank].last : "";
        int wrote = snprintf(missing + used, sizeof missing - (size_t)used, "%s%d (pid %d)%s%s", used > 0 ? ", " : "",
                             rank, maker->peers[rank].record.pid, last[0] != '\0' ? " at " : "", last);
        used += wrote;
    }
    return tpc_error(TPCOMM_ERR_TIMEOUT, "no link between rank %d and these ranks after %llu ms: %s",
                     maker->bootstrap->self.rank, (unsigned long long)tpc_deadline_elapsed_ms(deadline), missing);
}

static tpcomm_status_t run(maker_t *maker, const tpc_deadline_t *deadline) {
    const tpc_self_t *self = &maker->bootstrap->self;
    short events[TPCOMM_MAX_RANKS] = {0};
    tpc_turns_begin();
    for (;;) {
        tpc_guest_t guest;
        tpcomm_status_t status = TPCOMM_OK;
        for (int32_t rank = 0; rank < self->rank && status == TPCOMM_OK; rank++)
            status = call_turn(maker, &maker->call[rank], events[rank]);
        if (status != TPCOMM_OK) return status;
        while (tpc_lobby_next(maker->lobby, &guest)) welcome(maker, &guest);

        status = tpc_room_check(&maker->lobby->room, self->rank);
        if (status == TPCOMM_OK) status = tpc_room_check(&maker->room, self->rank);
        if (status != TPCOMM_OK) return status;
        int32_t made = 0;
        for (int32_t rank = 0; rank < self->size; rank++) made += rank != self->rank && maker->mesh->fd[rank] >= 0;
        if (made == self->size - 1 || is_over(maker)) return TPCOMM_OK;

        struct pollfd polls[1 + TPCOMM_MAX_RANKS + 2 * TPCOMM_MAX_RANKS];
        size_t count = 1 + (size_t)self->rank;
        polls[0] = (struct pollfd){.fd = maker->lobby->epoll_fd, .events = POLLIN};
        for (int32_t rank = 0; rank < self->rank; rank++) {
            const call_t *call = &maker->call[rank];
            short wanted = call->phase == CALL_CONNECTING ? POLLOUT : POLLIN;
            polls[1 + rank] = (struct pollfd){.fd = call->fd, .events = wanted};
        }
        size_t links = tpc_link_polls(&maker->bootstrap->links, polls + count);
        status = tpc_poll_turn(deadline, polls, count + links, TURN_MS);
        if (status == TPCOMM_ERR_TIMEOUT) return too_late(maker, deadline);
        if (status != TPCOMM_OK) return status;
        for (int32_t rank = 0; rank < self->rank; rank++) events[rank] = polls[1 + rank].revents;
    }
}

tpcomm_status_t tpc_mesh_make(tpc_bootstrap_t *bootstrap, tpc_lobby_t *lobby, const tpc_peer_t *peers,
                              const tpc_deadline_t *deadline, tpc_mesh_t *mesh) {
    maker_t maker = {.bootstrap = bootstrap,
                     .peers = peers,
                     .lobby = lobby,
                     .mesh = mesh,
                     .self_pidfd = tpc_pidfd_open((int32_t)getpid())};
    for (int32_t rank = 0; rank < TPCOMM_MAX_RANKS; rank++) {
        maker.call[rank].rank = rank;
        maker.call[rank].fd = -1;
        tpc_greeting_reader_start(&maker.call[rank].reader);
    }
    tpcomm_status_t status = run(&maker, deadline);
    for (int32_t rank = 0; rank < TPCOMM_MAX_RANKS; rank++) {
        if (maker.call[rank].fd >= 0) close(maker.call[rank].fd);
        tpc_greeting_reader_end(&maker.call[rank].reader);
    }
    if (maker.self_pidfd >= 0) close(maker.self_pidfd);
    return status;
}
