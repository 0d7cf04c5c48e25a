/* SPDX-License-Identifier: Apache-2.0 */
#include "health/watchdog.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/error.h"
#include "base/hook.h"

struct tpc_watch {
    uint64_t id; /* what the kernel gives back: an address could be another watch's by then */
    int fd;
    tpc_watch_kind_t kind;
    void (*fn)(void *arg);
    void *arg;
    uint32_t generation;
    tpc_watch_t *next;
};

/* Everything under lock; the thread holds it while it runs a watch's fn, which is what makes remove wait for fn. */
static struct {
    pthread_mutex_t lock;
    uint64_t ids; /* given so far; 0 is the request to stop */
    tpc_watch_t *watches;
    int epoll_fd, stop_fd;
    pthread_t thread;
} dog = {.lock = PTHREAD_MUTEX_INITIALIZER, .epoll_fd = -1, .stop_fd = -1};

static _Atomic uint32_t generation;

/* A child has neither the thread nor a claim on its descriptors; it starts from nothing. The parent's fork happens with
 * the lock held, so that the child never finds it held by a thread that does not exist there. */
static void before_fork(void) {
    pthread_mutex_lock(&dog.lock);
}
static void after_fork_in_parent(void) {
    pthread_mutex_unlock(&dog.lock);
}
static void after_fork_in_child(void) {
    atomic_fetch_add(&generation, 1);
    if (dog.epoll_fd >= 0) close(dog.epoll_fd);
    if (dog.stop_fd >= 0) close(dog.stop_fd);
    dog.epoll_fd = dog.stop_fd = -1;
    dog.watches = NULL;
    pthread_mutex_unlock(&dog.lock);
}
static void register_fork(void) {
    pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
}

uint32_t tpc_fork_generation(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, register_fork);
    return atomic_load_explicit(&generation, memory_order_relaxed);
}

static _Thread_local bool is_me;

bool tpc_watchdog_is_me(void) {
    return is_me;
}

static void *run(void *arg) {
    is_me = true;
    int epoll_fd = ((int *)arg)[0], stop_fd = ((int *)arg)[1];
    free(arg);
    for (;;) {
        struct epoll_event events[16];
        int n = epoll_wait(epoll_fd, events, 16, -1);
        if (n < 0 && errno != EINTR) return NULL;
        (void)tpc_hook("watchdog", 0);
        pthread_mutex_lock(&dog.lock);
        for (int i = 0; i < n; i++) {
            if (events[i].data.u64 == 0) { /* stop: whoever asked has already forgotten us */
                pthread_mutex_unlock(&dog.lock);
                close(epoll_fd);
                close(stop_fd);
                return NULL;
            }
            tpc_watch_t *watch = dog.watches;
            while (watch != NULL && watch->id != events[i].data.u64) watch = watch->next;
            if (watch == NULL) continue; /* removed after epoll_wait saw it */
            if (watch->kind == TPC_WATCH_ONCE) epoll_ctl(epoll_fd, EPOLL_CTL_DEL, watch->fd, NULL);
            watch->fn(watch->arg);
        }
        pthread_mutex_unlock(&dog.lock);
    }
}

static tpcomm_status_t start(void) {
    int *fds = malloc(2 * sizeof *fds);
    int epoll_fd = epoll_create1(EPOLL_CLOEXEC), stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    struct epoll_event event = {.events = EPOLLIN};
    int err = 0;
    if (fds == NULL || epoll_fd < 0 || stop_fd < 0 || epoll_ctl(epoll_fd, EPOLL_CTL_ADD, stop_fd, &event) != 0) {
        err = errno;
    } else {
        fds[0] = epoll_fd;
        fds[1] = stop_fd;
        /* The thread inherits the mask: no signal of the process is ever delivered to it. */
        sigset_t all, before;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before);
        err = pthread_create(&dog.thread, NULL, run, fds);
        pthread_sigmask(SIG_SETMASK, &before, NULL);
    }
    if (err != 0) {
        free(fds);
        if (epoll_fd >= 0) close(epoll_fd);
        if (stop_fd >= 0) close(stop_fd);
        return tpc_error_errno(TPCOMM_ERR_NO_MEMORY, err, "cannot start the watchdog thread");
    }
    pthread_setname_np(dog.thread, "tpcomm-watch");
    dog.epoll_fd = epoll_fd;
    dog.stop_fd = stop_fd;
    return TPCOMM_OK;
}

/* Under lock, with nothing left to watch: tell the thread to end. The caller joins it after unlocking. */
static pthread_t stop(void) {
    uint64_t one = 1;
    ssize_t wrote = write(dog.stop_fd, &one, sizeof one); /* an eventfd at 0 takes it at once */
    (void)wrote;
    dog.epoll_fd = dog.stop_fd = -1; /* the thread closes them */
    return dog.thread;
}

static void unlink_watch(tpc_watch_t *watch) {
    for (tpc_watch_t **link = &dog.watches; *link != NULL; link = &(*link)->next) {
        if (*link != watch) continue;
        *link = watch->next;
        return;
    }
}

tpcomm_status_t tpc_watchdog_add(int fd, tpc_watch_kind_t kind, void (*fn)(void *arg), void *arg,
                                 tpc_watch_t **watch_p) {
    tpc_watch_t *watch = malloc(sizeof *watch);
    if (watch == NULL) return tpc_error(TPCOMM_ERR_NO_MEMORY, "out of memory");
    *watch = (tpc_watch_t){.fd = fd, .kind = kind, .fn = fn, .arg = arg, .generation = tpc_fork_generation()};
    struct epoll_event event = {.events = EPOLLIN};
    if (kind == TPC_WATCH_EDGE) event.events |= EPOLLOUT | EPOLLET | EPOLLRDHUP;
    pthread_t thread;
    bool join = false;

    pthread_mutex_lock(&dog.lock);
    tpcomm_status_t status = dog.epoll_fd < 0 ? start() : TPCOMM_OK;
    if (status == TPCOMM_OK) {
        event.data.u64 = watch->id = ++dog.ids;
        watch->next = dog.watches;
        dog.watches = watch;
        if (epoll_ctl(dog.epoll_fd, EPOLL_CTL_ADD, fd, &event) != 0) {
            status = tpc_error_errno(TPCOMM_ERR_NO_MEMORY, errno, "cannot watch descriptor %d", fd);
            unlink_watch(watch);
            join = dog.watches == NULL;
            if (join) thread = stop();
        }
    }
    pthread_mutex_unlock(&dog.lock);

    if (join) pthread_join(thread, NULL);
    if (status != TPCOMM_OK) {
        free(watch);
        return status;
    }
    *watch_p = watch;
    return TPCOMM_OK;
}

void tpc_watchdog_remove(tpc_watch_t *watch) {
    if (watch == NULL) return;
    if (watch->generation != tpc_fork_generation()) { /* the parent's, which still needs its epoll set as it is */
        free(watch);
        return;
    }
    pthread_t thread;
    pthread_mutex_lock(&dog.lock);
    unlink_watch(watch);
    epoll_ctl(dog.epoll_fd, EPOLL_CTL_DEL, watch->fd, NULL); /* already gone for a watch that fired once */
    bool join = dog.watches == NULL;
    if (join) thread = stop();
    pthread_mutex_unlock(&dog.lock);
    if (join) pthread_join(thread, NULL);
    free(watch);
}
