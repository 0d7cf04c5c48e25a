/* SPDX-License-Identifier: Apache-2.0 */
/** The other ranks' side of a meeting: look for rank 0 until it lets us in. */
#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/hook.h"
#include "base/text.h"
#include "bootstrap/internal.h"

#define BACKOFF_FIRST_MS 1
#define BACKOFF_MOST_MS  50
/* Whoever listens at a TCP place may be a stranger that never answers: then the other places get their turn. Rank 0
 * answers at once, and one that is slower (a stopped process, a loaded machine) is asked again, with more patience each
 * time. */
#define PATIENCE_FIRST_MS 50
#define PATIENCE_MOST_MS  8000
#define CONNECT_MS        1000
/* At its own name nobody but rank 0 listens, which may be busy for long. */
#define UNIX_PATIENCE_MS 10000
/* A name that is not known is often not known yet (a cluster's name service lags behind its containers). */
#define RESOLVE_EACH_MS    250
#define RESOLVE_GIVE_UP_MS 10000
#define ADDRESSES_MOST     16

/* ------------------------------------------------------------------ asking */

/** Read count bytes that follow a greeting; false if they do not come. */
static bool read_rest(int fd, char *bytes, size_t count, const tpc_deadline_t *deadline) {
    size_t have = 0;
    int passed_fd = -1;
    while (have < count) {
        ssize_t got = tpc_net_recv(fd, bytes + have, count - have, &passed_fd);
        if (got > 0)
            have += (size_t)got;
        else if (got == 0 || (errno != EAGAIN && errno != EWOULDBLOCK) ||
                 tpc_deadline_poll(deadline, fd, POLLIN) != TPCOMM_OK)
            break;
    }
    if (passed_fd >= 0) close(passed_fd);
    return have == count;
}

/** One greeting from the other side. */
static tpc_ask_t read_greeting(int fd, const tpc_self_t *self, const tpc_deadline_t *deadline,
                               tpc_greeting_reader_t *reader, tpcomm_status_t *status_p) {
    tpc_read_t state;
    while ((state = tpc_greeting_read(reader, fd)) == TPC_READ_MORE) {
        tpcomm_status_t status = tpc_deadline_poll(deadline, fd, POLLIN);
        if (status == TPCOMM_OK) continue;
        *status_p = status;
        return status == TPCOMM_ERR_TIMEOUT ? TPC_ASK_SILENT : TPC_ASK_REFUSED;
    }
    char theirs[32], mine[32];
    if (state == TPC_READ_DONE) return TPC_ASK_JOINED;
    if (state == TPC_READ_STRANGER) return TPC_ASK_STRANGER;
    if (state != TPC_READ_VERSION) return TPC_ASK_CLOSED;
    *status_p = tpc_error(
        TPCOMM_ERR_CONFIG_MISMATCH, "rank %d runs tpcomm %s, rank 0 runs %s: one job needs one version", self->rank,
        tpc_version_text(tpc_library_version(), mine), tpc_version_text(reader->greeting.hello.tpcomm_version, theirs));
    return self->secret.set ? TPC_ASK_UNPROVED : TPC_ASK_REFUSED;
}

static tpc_ask_t unproved(const tpc_self_t *self, const char *why, tpcomm_status_t *status_p) {
    *status_p = tpc_error(TPCOMM_ERR_AUTH,
                          "rank %d: whoever answers cannot prove that it belongs to this job: %s; give all ranks the "
                          "same TPCOMM_SECRET or TPCOMM_SECRET_FILE, or none",
                          self->rank, why);
    return TPC_ASK_UNPROVED;
}

/** Between the greeting and its answer: prove to each other that both know the secret. JOINED: go on. */
static tpc_ask_t prove(int fd, const tpc_self_t *self, const tpc_greeting_t *hello, const tpc_greeting_t *challenge,
                       const tpc_deadline_t *deadline, tpc_greeting_reader_t *reader, tpcomm_status_t *status_p) {
    tpc_greeting_t proof;
    bool right = tpc_proof_challenge_right(&self->secret, hello, challenge);
    tpc_proof_prove(&self->secret, hello, challenge,
                    &proof); /* also where it is of no use: the other side learns why */
    if (tpc_greeting_send(fd, &proof, "", -1) != 0) return TPC_ASK_CLOSED;
    reader->have = 0;
    tpc_ask_t came = read_greeting(fd, self, deadline, reader, status_p);
    if (!right) return unproved(self, "its secret is another", status_p);
    return came;
}

/** What an answer says. challenge: NULL where there was none. */
static tpc_ask_t understand(int fd, const tpc_self_t *self, const tpc_greeting_t *hello,
                            const tpc_greeting_t *challenge, const tpc_greeting_t *answer,
                            const tpc_deadline_t *deadline, tpcomm_status_t *status_p) {
    char text[TPC_ERROR_BYTES] = "";
    bool known = answer->hello.kind == TPC_HELLO_ANSWER && answer->verdict >= TPC_VERDICT_ACCEPT &&
                 answer->verdict <= TPC_VERDICT_OTHER_JOB;
    if (!known) return TPC_ASK_STRANGER;
    if (!read_rest(fd, text, answer->text_bytes, deadline)) return TPC_ASK_CLOSED;
    if (challenge != NULL && !tpc_proof_sealed(&self->secret, hello, challenge, text, answer))
        return unproved(self, "its answer is not its own", status_p);
    if (challenge == NULL && self->secret.set &&
        (answer->verdict == TPC_VERDICT_ACCEPT || answer->verdict == TPC_VERDICT_REFUSE))
        return unproved(self, "it was given no secret", status_p);
    if (answer->verdict == TPC_VERDICT_ACCEPT) return TPC_ASK_JOINED;
    if (answer->verdict == TPC_VERDICT_RETRY) return TPC_ASK_RETRY;
    *status_p = tpc_error(answer->status < 0 ? answer->status : TPCOMM_ERR_PEER_FAILED, "%s", text);
    return answer->verdict == TPC_VERDICT_OTHER_JOB ? TPC_ASK_OTHER : TPC_ASK_REFUSED;
}

tpc_ask_t tpc_ask(int fd, const tpc_self_t *self, uint64_t job, const tpc_deadline_t *deadline,
                  tpc_greeting_t *answer_p, tpc_seal_t *seal_p, tpcomm_status_t *status_p) {
    tpc_greeting_t hello, challenge;
    *seal_p = (tpc_seal_t){.set = false};
    tpc_greeting_fill(self, TPC_HELLO_JOIN, job, &hello);
    *status_p = tpc_proof_begin(&self->secret, &hello);
    if (*status_p != TPCOMM_OK) return TPC_ASK_REFUSED;
    if (tpc_greeting_send(fd, &hello, "", -1) != 0) return TPC_ASK_CLOSED;
    tpc_greeting_reader_t reader;
    tpc_greeting_reader_start(&reader);
    tpc_ask_t came = read_greeting(fd, self, deadline, &reader, status_p);
    bool challenged = came == TPC_ASK_JOINED && self->secret.set && reader.greeting.hello.kind == TPC_HELLO_CHALLENGE;
    if (challenged) {
        challenge = reader.greeting;
        came = prove(fd, self, &hello, &challenge, deadline, &reader, status_p);
    }
    if (came == TPC_ASK_JOINED) {
        *answer_p = reader.greeting;
        came = understand(fd, self, &hello, challenged ? &challenge : NULL, answer_p, deadline, status_p);
        if (came == TPC_ASK_JOINED && challenged) tpc_seal_begin(&self->secret, &hello, &challenge, true, seal_p);
    }
    tpc_greeting_reader_end(&reader);
    return came;
}

/* ------------------------------------------------------------------ looking */

typedef struct {
    tpc_bootstrap_t *bootstrap;
    const tpc_place_t *place;
    const tpc_deadline_t *deadline;
    uint32_t patience_ms;
    tpc_address_t addresses[ADDRESSES_MOST];
    size_t address_count;
    uint64_t resolved_ns;                 /**< when last tried; 0: never */
    bool other_user[TPC_UNIX_ALTERNATES]; /**< has this name, and with it no business: not asked again */
    bool joined;
    bool silent;   /**< somebody did not answer in this round */
    bool unproved; /**< somebody did not know the job's secret */
    tpc_room_t room;
    char last[256]; /**< what came of it last, for the text of a timeout */
} search_t;

/** The part of a deadline that is at most ms from now. */
static tpc_deadline_t within(const tpc_deadline_t *deadline, uint32_t ms) {
    tpc_deadline_t soon = tpc_deadline_in(ms, deadline->interrupted, deadline->interrupted_arg);
    if (soon.at_ns > deadline->at_ns) soon.at_ns = deadline->at_ns;
    return soon;
}

/** One connection, which is kept if it is the right one. OK: look on, or joined. */
static tpcomm_status_t try_connected(search_t *search, int fd, bool local, const char *where) {
    tpc_bootstrap_t *bootstrap = search->bootstrap;
    tpc_deadline_t patience = within(search->deadline, local ? UNIX_PATIENCE_MS : search->patience_ms);
    tpc_greeting_t answer;
    tpc_seal_t seal;
    tpcomm_status_t status = TPCOMM_OK;
    tpc_ask_t came = tpc_ask(fd, &bootstrap->self, search->place->job, &patience, &answer, &seal, &status);
    if (came == TPC_ASK_JOINED) {
        if (!local) tpc_tcp_tune(fd);
        bootstrap->nonce = answer.hello.job;
        bootstrap->process[0] = answer.process;
        bootstrap->said_pid[0] = answer.pid;
        tpc_link_attach(&bootstrap->links, 0, fd, -1, local ? NULL : &seal);
        explicit_bzero(&seal, sizeof seal);
        search->joined = true;
        return TPCOMM_OK;
    }
    close(fd);
    const char *what = "";
    switch (came) {
    case TPC_ASK_REFUSED:
        return status;
    case TPC_ASK_UNPROVED:
        /* Where rank 0's place is not exact, this may be anybody's program. */
        if (search->place->exact || local) return status;
        search->unproved = true;
        what = "whoever listens there does not know this job's secret";
        break;
    case TPC_ASK_OTHER:
        if (search->place->exact || local) return tpc_error_prefix(TPCOMM_ERR_ADDR_IN_USE, "%s", where);
        what = "another job listens there";
        break;
    case TPC_ASK_STRANGER:
        if (search->place->exact || local)
            return tpc_error(TPCOMM_ERR_ADDR_IN_USE, "%s: a program that is not tpcomm listens at %s",
                             search->place->text, where);
        what = "a program that is not tpcomm listens there";
        break;
    case TPC_ASK_SILENT:
        search->silent = true;
        what = "whoever listens there does not answer: rank 0 is busy or stopped, or it is not tpcomm";
        break;
    case TPC_ASK_RETRY:
        what = "rank 0 still holds an earlier communicator of this job, or makes another one";
        break;
    default:
        what = "the connection was closed without an answer";
        break;
    }
    snprintf(search->last, sizeof search->last, "%.100s: %s", where, what);
    return TPCOMM_OK;
}

static tpcomm_status_t try_unix(search_t *search) {
    char name[TPC_UNIX_NAME_BYTES], where[TPC_UNIX_NAME_BYTES + 16];
    if (tpc_hook_value("no_unix", 0) != 0) return TPCOMM_OK; /* as from another host */
    for (int alternate = 0; alternate < TPC_UNIX_ALTERNATES; alternate++) {
        int fd;
        if (search->other_user[alternate]) continue;
        int err = tpc_unix_connect(tpc_place_unix_name(search->place, alternate, name), &fd);
        tpc_room_note(&search->room, err);
        if (err == ECONNREFUSED) continue;
        snprintf(where, sizeof where, "unix socket @%s", name);
        if (err != 0) {
            snprintf(search->last, sizeof search->last, "%s: %s", where, strerror(err));
            return TPCOMM_OK;
        }
        int32_t pid = 0;
        uint32_t uid = 0;
        if (tpc_unix_peer(fd, &pid, &uid) != 0 || uid != (uint32_t)geteuid() || tpc_unix_abandoned(pid)) {
            search->other_user[alternate] = uid != (uint32_t)geteuid();
            close(fd);
            continue;
        }
        return try_connected(search, fd, true, where);
    }
    if (search->place->first_port == 0) snprintf(search->last, sizeof search->last, "nobody listens there");
    return TPCOMM_OK;
}

/** Addresses of the place. OK with none: not known yet. */
static tpcomm_status_t resolve(search_t *search) {
    const tpc_place_t *place = search->place;
    if (place->host[0] == '\0') {
        memcpy(search->addresses, place->addresses, sizeof place->addresses);
        search->address_count = place->address_count;
        return TPCOMM_OK;
    }
    uint64_t now = tpc_clock_ns();
    if (search->resolved_ns != 0 && now - search->resolved_ns < RESOLVE_EACH_MS * UINT64_C(1000000)) return TPCOMM_OK;
    search->resolved_ns = now;
    size_t count;
    tpc_address_t addresses[ADDRESSES_MOST];
    int err = tpc_tcp_resolve(place->host, 0, addresses, ADDRESSES_MOST, &count);
    if (err == 0) {
        memcpy(search->addresses, addresses, sizeof addresses);
        search->address_count = count;
        return TPCOMM_OK;
    }
    char quoted[TPC_TEXT_QUOTE_BYTES];
    (void)tpc_text_quote(quoted, place->host, strlen(place->host));
    snprintf(search->last, sizeof search->last, "host '%s': %s", quoted, gai_strerror(err));
    if (err != EAI_AGAIN && tpc_deadline_elapsed_ms(search->deadline) > RESOLVE_GIVE_UP_MS)
        return tpc_error(TPCOMM_ERR_CONFIG, "%s: the host '%s' of rank 0 is not known: %s", place->text, quoted,
                         gai_strerror(err));
    return TPCOMM_OK;
}

/** Rank 0 opens the unix socket first: if it is on this host, that is there by now, and better, since it shows deaths.
 */
static tpcomm_status_t try_reached(search_t *search, int fd, const char *where) {
    tpcomm_status_t status = search->place->unix_name[0] != '\0' ? try_unix(search) : TPCOMM_OK;
    if (status == TPCOMM_OK && !search->joined) return try_connected(search, fd, false, where);
    close(fd);
    return status;
}

static tpcomm_status_t try_address(search_t *search, const tpc_address_t *address) {
    char where[TPC_ADDRESS_TEXT_BYTES];
    int fd;
    (void)tpc_address_text(address, where);
    int err = tpc_tcp_connect(address, &fd);
    tpc_room_note(&search->room, err);
    if (err != 0 && err != EINPROGRESS) {
        snprintf(search->last, sizeof search->last, "%s: %s", where, strerror(err));
        return TPCOMM_OK;
    }
    tpc_deadline_t soon = within(search->deadline, CONNECT_MS);
    tpcomm_status_t status = tpc_deadline_poll(&soon, fd, POLLOUT);
    if (status == TPCOMM_ERR_TIMEOUT) err = ETIMEDOUT;
    if (status == TPCOMM_OK) err = tpc_tcp_connected(fd);
    if (status == TPCOMM_OK && err == 0) return try_reached(search, fd, where);
    close(fd);
    if (status != TPCOMM_OK && status != TPCOMM_ERR_TIMEOUT) return status;
    snprintf(search->last, sizeof search->last, "%s: %s", where, strerror(err));
    return TPCOMM_OK;
}

static tpcomm_status_t try_tcp(search_t *search) {
    const tpc_place_t *place = search->place;
    if (place->first_port == 0) return TPCOMM_OK;
    tpcomm_status_t status = resolve(search);
    for (uint32_t port = place->first_port; status == TPCOMM_OK && port <= place->last_port; port++) {
        for (size_t i = 0; status == TPCOMM_OK && i < search->address_count; i++) {
            tpc_address_t address = search->addresses[i];
            address.port = (uint16_t)port;
            status = try_address(search, &address);
            if (search->joined || tpc_deadline_left_ms(search->deadline) == 0) return status;
        }
    }
    return status;
}

tpcomm_status_t tpc_join(tpc_bootstrap_t *bootstrap, const tpc_place_t *place, const tpc_deadline_t *deadline) {
    search_t search = {.bootstrap = bootstrap, .place = place, .deadline = deadline, .patience_ms = PATIENCE_FIRST_MS};
    for (uint32_t backoff_ms = BACKOFF_FIRST_MS;;) {
        tpcomm_status_t status = place->unix_name[0] != '\0' ? try_unix(&search) : TPCOMM_OK;
        if (status == TPCOMM_OK && !search.joined) status = try_tcp(&search);
        if (status == TPCOMM_OK && !search.joined) status = tpc_room_check(&search.room, bootstrap->self.rank);
        if (status != TPCOMM_OK || search.joined) return status;
        if (search.silent && search.patience_ms < PATIENCE_MOST_MS) search.patience_ms *= 2;
        search.silent = false;
        status = tpc_deadline_sleep(deadline, backoff_ms);
        if (status == TPCOMM_ERR_TIMEOUT)
            return tpc_error(search.unproved ? TPCOMM_ERR_AUTH : status,
                             "rank 0 was not reached at %s for %llu ms (missing ranks: 0); last: %s%s%s", place->text,
                             (unsigned long long)tpc_deadline_elapsed_ms(deadline), search.last,
                             place->hint[0] != '\0' ? ". " : "", place->hint);
        if (status != TPCOMM_OK) return status;
        if (backoff_ms < BACKOFF_MOST_MS) backoff_ms *= 2;
    }
}
