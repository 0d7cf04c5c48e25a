/* SPDX-License-Identifier: Apache-2.0 */
#include "health/status_socket.h"

#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/timerfd.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "health/watchdog.h"

#define CLIENTS          8
#define CLIENT_NS        (UINT64_C(10) * 1000000000) /* for asking and reading, in all */
#define EVENTS_A_TURN    16
#define REQUEST_BYTES    64
#define ANSWER_MAX_BYTES ((size_t)256 << 20)

typedef struct {
    int fd; /* -1: free */
    uint64_t since_ns;
    char request[REQUEST_BYTES];
    size_t have;
    tpc_emit_t answer; /* text NULL: still asking */
    size_t sent;
} client_t;

typedef struct door door_t;

struct tpc_status {
    tpc_status_source_t source;
    door_t *door; /* NULL: its address was its parent's, in a forked child */
    tpc_status_t *next;
};

/* One address. */
struct door {
    door_t *next;
    char *address;
    const char *path; /* of a file to remove; NULL: none */
    dev_t device;
    ino_t inode;
    bool local; /* unix: who asks is known */
    int listener_fd, timer_fd, epoll_fd;
    tpc_watch_t *watch;
    tpc_status_t *sources;
    client_t clients[CLIENTS];
};

/* setup: held while addresses are opened and closed, and over a fork; never by the watchdog's thread. lock: of the
 * sources, for moments. Order: setup, the watchdog's own lock, lock. */
static pthread_mutex_t setup = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static door_t *doors;

enum { EVENT_LISTENER = CLIENTS, EVENT_TIMER };

/* ------------------------------------------------------------------ clients */

static void client_end(door_t *door, client_t *client) {
    /* A forked child may hold the descriptor too, so closing alone does not end the watch. */
    (void)epoll_ctl(door->epoll_fd, EPOLL_CTL_DEL, client->fd, NULL);
    (void)shutdown(client->fd, SHUT_RDWR);
    close(client->fd);
    tpc_emit_free(&client->answer);
    client->fd = -1;
}

static client_t *oldest(door_t *door) {
    client_t *found = NULL;
    for (int i = 0; i < CLIENTS; i++)
        if (door->clients[i].fd >= 0 && (found == NULL || door->clients[i].since_ns < found->since_ns))
            found = &door->clients[i];
    return found;
}

static void answer(const door_t *door, client_t *client) {
    tpc_emit_t *emit = &client->answer;
    client->request[strcspn(client->request, " \t\r\n")] = '\0';
    emit->limit = ANSWER_MAX_BYTES;
    const char *asked = client->request, *comma = "";
    bool json = strcmp(asked, "json") == 0, flight = strcmp(asked, "flight") == 0;
    if (!json && !flight && asked[0] != '\0' && strcmp(asked, "text") != 0) {
        tpc_emit(emit, "unknown request; there are: text, json, flight\n");
        return;
    }
    if (json) tpc_emit(emit, "{\"schema\":\"tpcomm-status/1\",\"worlds\":[");
    pthread_mutex_lock(&lock);
    for (const tpc_status_t *status = door->sources; status != NULL; status = status->next) {
        if (json) {
            tpc_emit(emit, "%s", comma);
            status->source.json(status->source.arg, emit);
            comma = ",\n";
        } else if (flight) {
            status->source.flight(status->source.arg, emit);
        } else {
            status->source.text(status->source.arg, emit);
        }
    }
    pthread_mutex_unlock(&lock);
    if (json) tpc_emit(emit, "]}\n");
    if (emit->text == NULL) tpc_emit(emit, "no groups\n");
}

static void client_turn(door_t *door, client_t *client) {
    while (client->answer.text == NULL) {
        size_t room = sizeof client->request - 1 - client->have;
        ssize_t got = recv(client->fd, client->request + client->have, room, MSG_DONTWAIT);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
        if (got < 0) {
            client_end(door, client);
            return;
        }
        client->have += (size_t)got;
        client->request[client->have] = '\0';
        bool whole = got == 0 || strchr(client->request, '\n') != NULL || client->have == sizeof client->request - 1;
        if (!whole) continue;
        answer(door, client);
        struct epoll_event event = {.events = EPOLLOUT, .data.u64 = (uint64_t)(client - door->clients)};
        if (client->answer.failed || client->answer.text == NULL ||
            epoll_ctl(door->epoll_fd, EPOLL_CTL_MOD, client->fd, &event) != 0) {
            client_end(door, client);
            return;
        }
    }
    while (client->sent < client->answer.used) {
        ssize_t sent = send(client->fd, client->answer.text + client->sent, client->answer.used - client->sent,
                            MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent < 0 && errno == EINTR) continue;
        if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
        if (sent < 0) break;
        client->sent += (size_t)sent;
    }
    client_end(door, client);
}

static void set_timer(const door_t *door, uint64_t ns) {
    struct itimerspec when = {
        .it_value = {.tv_sec = (time_t)(ns / 1000000000u), .tv_nsec = (long)(ns % 1000000000u) + 1}};
    (void)timerfd_settime(door->timer_fd, 0, &when, NULL);
}

static void expire(door_t *door) {
    uint64_t fired, now = tpc_clock_ns();
    (void)!read(door->timer_fd, &fired, sizeof fired);
    for (int i = 0; i < CLIENTS; i++)
        if (door->clients[i].fd >= 0 && now - door->clients[i].since_ns >= CLIENT_NS)
            client_end(door, &door->clients[i]);
    const client_t *next = oldest(door);
    if (next != NULL) set_timer(door, CLIENT_NS - (now - next->since_ns));
}

/* Only this user, who may look into the process anyway, and root. */
static bool is_allowed(const door_t *door, int fd) {
    struct ucred peer;
    socklen_t length = sizeof peer;
    if (!door->local) return true;
    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 && (peer.uid == geteuid() || peer.uid == 0);
}

static void accept_some(door_t *door) {
    for (int turn = 0; turn < CLIENTS; turn++) {
        int fd = accept4(door->listener_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)) {
            /* The listener stays readable; the one who waits there is given up with the next free descriptor. */
            client_t *victim = oldest(door);
            if (victim != NULL)
                client_end(door, victim);
            else
                (void)usleep(1000);
            return;
        }
        if (fd < 0) return;
        client_t *slot = NULL;
        for (int i = 0; i < CLIENTS && slot == NULL; i++)
            if (door->clients[i].fd < 0) slot = &door->clients[i];
        if (slot == NULL) {
            slot = oldest(door);
            client_end(door, slot);
        }
        struct epoll_event event = {.events = EPOLLIN, .data.u64 = (uint64_t)(slot - door->clients)};
        if (!is_allowed(door, fd) || epoll_ctl(door->epoll_fd, EPOLL_CTL_ADD, fd, &event) != 0) {
            close(fd);
            continue;
        }
        bool first = oldest(door) == NULL;
        *slot = (client_t){.fd = fd, .since_ns = tpc_clock_ns()};
        if (first) set_timer(door, CLIENT_NS);
        client_turn(door, slot);
    }
}

/* On the watchdog's thread. */
static void serve(void *arg) {
    door_t *door = arg;
    struct epoll_event events[EVENTS_A_TURN];
    int ready = epoll_wait(door->epoll_fd, events, EVENTS_A_TURN, 0);
    for (int i = 0; i < ready; i++) {
        uint64_t what = events[i].data.u64;
        if (what == EVENT_TIMER)
            expire(door);
        else if (what < CLIENTS && door->clients[what].fd >= 0)
            client_turn(door, &door->clients[what]);
    }
    for (int i = 0; i < ready; i++)
        if (events[i].data.u64 == EVENT_LISTENER) accept_some(door);
}

/* ------------------------------------------------------------------ addresses */

static tpcomm_status_t refuse(const char *address, const char *why) {
    return tpc_error(TPCOMM_ERR_CONFIG,
                     "TPCOMM_STATUS_SOCKET='%s' is not valid: %s; allowed are a path or @name of at most 106 bytes, "
                     "tcp:PORT and tcp:PORT+N",
                     address, why);
}

/* "PORT" or "PORT+N". */
static bool parse_port(const char *text, uint16_t *port_p) {
    unsigned long sum = 0;
    for (int part = 0; part < 2; part++) {
        unsigned long number = 0;
        if (*text < '0' || *text > '9') return false;
        while (*text >= '0' && *text <= '9' && number <= 65535) number = number * 10 + (unsigned long)(*text++ - '0');
        sum += number;
        if (*text == '\0' && sum >= 1 && sum <= 65535) {
            *port_p = (uint16_t)sum;
            return true;
        }
        if (*text++ != '+') return false;
    }
    return false;
}

static int listen_at(const struct sockaddr *address, socklen_t length) {
    int fd = socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), one = 1;
    if (fd < 0) return -1;
    if (address->sa_family == AF_INET) (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(fd, address, length) == 0 && listen(fd, CLIENTS) == 0) return fd;
    int err = errno;
    close(fd);
    errno = err;
    return -1;
}

/* A file left by a process that was killed: nobody answers there. */
static bool is_abandoned(const struct sockaddr_un *address, socklen_t length) {
    struct stat facts;
    if (address->sun_path[0] == '\0' || lstat(address->sun_path, &facts) != 0 || !S_ISSOCK(facts.st_mode)) return false;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    bool abandoned =
        fd >= 0 && connect(fd, (const struct sockaddr *)(const void *)address, length) != 0 && errno == ECONNREFUSED;
    if (fd >= 0) close(fd);
    return abandoned;
}

static tpcomm_status_t listen_unix(door_t *door) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    size_t length = strlen(door->address);
    bool abstract = door->address[0] == '@';
    if (length < (abstract ? 2u : 1u) || length >= sizeof address.sun_path)
        return refuse(door->address, "it is too short or too long");
    memcpy(address.sun_path, door->address, length);
    if (abstract) address.sun_path[0] = '\0';
    socklen_t bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length + (abstract ? 0 : 1));
    const struct sockaddr *general = (const struct sockaddr *)(const void *)&address;
    door->local = true;
    door->listener_fd = listen_at(general, bytes);
    if (door->listener_fd < 0 && errno == EADDRINUSE && is_abandoned(&address, bytes)) {
        (void)unlink(address.sun_path);
        door->listener_fd = listen_at(general, bytes);
    }
    struct stat facts;
    if (door->listener_fd >= 0 && !abstract && lstat(door->address, &facts) == 0) {
        (void)chmod(door->address, 0600);
        door->path = door->address;
        door->device = facts.st_dev;
        door->inode = facts.st_ino;
    }
    return TPCOMM_OK;
}

static tpcomm_status_t listen_tcp(door_t *door) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    uint16_t port;
    if (!parse_port(door->address + 4, &port)) return refuse(door->address, "the port is none");
    address.sin_port = htons(port);
    door->listener_fd = listen_at((const struct sockaddr *)(const void *)&address, sizeof address);
    return TPCOMM_OK;
}

static bool watch(const door_t *door, int fd, uint64_t what) {
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = what};
    return fd >= 0 && epoll_ctl(door->epoll_fd, EPOLL_CTL_ADD, fd, &event) == 0;
}

/* Close what is this process's own. */
static void door_free(door_t *door) {
    for (int i = 0; i < CLIENTS; i++) {
        if (door->clients[i].fd >= 0) close(door->clients[i].fd);
        tpc_emit_free(&door->clients[i].answer);
    }
    if (door->listener_fd >= 0) close(door->listener_fd);
    if (door->timer_fd >= 0) close(door->timer_fd);
    if (door->epoll_fd >= 0) close(door->epoll_fd);
    free(door->address);
    free(door);
}

static void door_close(door_t *door) {
    struct stat facts;
    tpc_watchdog_remove(door->watch);
    for (int i = 0; i < CLIENTS; i++)
        if (door->clients[i].fd >= 0) client_end(door, &door->clients[i]);
    if (door->listener_fd >= 0) (void)shutdown(door->listener_fd, SHUT_RDWR); /* forked children may hold it */
    if (door->path != NULL && lstat(door->path, &facts) == 0 && facts.st_dev == door->device &&
        facts.st_ino == door->inode)
        (void)unlink(door->path);
    door_free(door);
}

static tpcomm_status_t door_open(const char *address, door_t **door_p) {
    door_t *door = calloc(1, sizeof *door);
    if (door == NULL) return tpc_error(TPCOMM_ERR_NO_MEMORY, "out of memory");
    for (int i = 0; i < CLIENTS; i++) door->clients[i].fd = -1;
    door->listener_fd = door->timer_fd = -1;
    door->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    door->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    door->address = strdup(address);
    tpcomm_status_t status = TPCOMM_OK;
    if (door->epoll_fd < 0 || door->timer_fd < 0 || door->address == NULL)
        status = tpc_error_errno(TPCOMM_ERR_NO_MEMORY, errno, "cannot make a status socket");
    if (status == TPCOMM_OK) status = strncmp(address, "tcp:", 4) == 0 ? listen_tcp(door) : listen_unix(door);
    if (status == TPCOMM_OK && door->listener_fd < 0)
        status = tpc_error_errno(errno == EADDRINUSE ? TPCOMM_ERR_ADDR_IN_USE : TPCOMM_ERR_IO, errno,
                                 "cannot listen at TPCOMM_STATUS_SOCKET='%s'", address);
    if (status == TPCOMM_OK &&
        (!watch(door, door->listener_fd, EVENT_LISTENER) || !watch(door, door->timer_fd, EVENT_TIMER)))
        status = tpc_error_errno(TPCOMM_ERR_NO_MEMORY, errno, "cannot watch the status socket");
    if (status == TPCOMM_OK) status = tpc_watchdog_add(door->epoll_fd, false, serve, door, &door->watch);
    if (status != TPCOMM_OK) {
        door_close(door);
        return status;
    }
    door->next = doors;
    doors = door;
    *door_p = door;
    return TPCOMM_OK;
}

/* ------------------------------------------------------------------ forks */

static void before_fork(void) {
    pthread_mutex_lock(&setup);
}
static void after_fork_in_parent(void) {
    pthread_mutex_unlock(&setup);
}
/* The addresses are the parent's: a child lets go of its copies. What it destroys later finds no door. */
static void after_fork_in_child(void) {
    while (doors != NULL) {
        door_t *door = doors;
        doors = door->next;
        for (tpc_status_t *status = door->sources; status != NULL; status = status->next) status->door = NULL;
        tpc_watchdog_remove(door->watch);
        door_free(door);
    }
    pthread_mutex_unlock(&setup);
}
static void register_fork(void) {
    (void)tpc_fork_generation(); /* the watchdog's first: its lock is then taken after setup */
    pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
}

/* ------------------------------------------------------------------ sources */

tpcomm_status_t tpc_status_open(const char *address, const tpc_status_source_t *source, tpc_status_t **status_p) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, register_fork);
    tpc_status_t *made = malloc(sizeof *made);
    if (made == NULL) return tpc_error(TPCOMM_ERR_NO_MEMORY, "out of memory");
    pthread_mutex_lock(&setup);
    door_t *door = doors;
    while (door != NULL && strcmp(door->address, address) != 0) door = door->next;
    tpcomm_status_t status = door == NULL ? door_open(address, &door) : TPCOMM_OK;
    if (status == TPCOMM_OK) {
        pthread_mutex_lock(&lock);
        *made = (tpc_status_t){.source = *source, .door = door, .next = door->sources};
        door->sources = made;
        pthread_mutex_unlock(&lock);
    }
    pthread_mutex_unlock(&setup);
    if (status != TPCOMM_OK) {
        free(made);
        return status;
    }
    *status_p = made;
    return TPCOMM_OK;
}

void tpc_status_close(tpc_status_t *status) {
    if (status == NULL) return;
    pthread_mutex_lock(&setup);
    door_t *door = status->door;
    if (door != NULL) {
        pthread_mutex_lock(&lock);
        tpc_status_t **link = &door->sources;
        while (*link != status) link = &(*link)->next;
        *link = status->next;
        pthread_mutex_unlock(&lock);
        if (door->sources == NULL) {
            door_t **at = &doors;
            while (*at != door) at = &(*at)->next;
            *at = door->next;
            door_close(door);
        }
    }
    pthread_mutex_unlock(&setup);
    free(status);
}
