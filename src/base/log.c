/* SPDX-License-Identifier: Apache-2.0 */
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/env.h"
#include "base/error.h"
#include "base/pattern.h"
#include "base/text.h"

#define LINE_BYTES     2048
#define LEVEL_UNSET    (-1)
#define WRITE_LIMIT_MS 1000

_Atomic int32_t tpc_log_level_now = TPCOMM_LOG_WARN;

/*
 * lock guards everything below and is never held while a user's function runs. A line goes to the function that is
 * current when it starts; running counts such calls by the parity of the function's generation. tpcomm_log_set makes a
 * new generation and waits until the old one's count is 0; setting keeps a second setter out meanwhile, so that at most
 * two generations have calls running.
 */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static tpcomm_log_fn user_fn;
static void *user_arg;
static int32_t user_level = TPCOMM_LOG_WARN;
static unsigned generation;
static unsigned running[2];
static bool setting;
/* From the environment. */
static int32_t env_level = LEVEL_UNSET;
static char subsystems[TPC_ENV_TEXT_BYTES];
static int file_fd = -1;
static bool file_done;

/* This thread is inside the user's function: its own lines go to stderr, lest they call it again for ever. */
static _Thread_local bool inside;
static _Thread_local unsigned inside_generation;

static void fork_prepare(void) {
    pthread_mutex_lock(&lock);
}

static void fork_parent(void) {
    pthread_mutex_unlock(&lock);
}

/** Only the forking thread lives on in the child: calls of other threads will never return there. */
static void fork_child(void) {
    running[0] = running[1] = 0;
    if (inside) running[inside_generation & 1] = 1;
    setting = false;
    pthread_cond_init(&changed, NULL);
    pthread_mutex_unlock(&lock);
}

/** Under lock. */
static void update_level(void) {
    atomic_store_explicit(&tpc_log_level_now, env_level != LEVEL_UNSET ? env_level : user_level, memory_order_relaxed);
}

/** Take what the environment says and is valid; tpc_log_setup is the one to complain. */
static void read_environment(void) {
    char kept_error[TPC_ERROR_BYTES];
    tpc_env_value_t value;
    pthread_atfork(fork_prepare, fork_parent, fork_child);
    snprintf(kept_error, sizeof kept_error, "%s", tpcomm_last_error());
    pthread_mutex_lock(&lock);
    /* The allowed words stand in the order of the levels. */
    if (tpc_env_get(TPC_ENV_LOG, &value) == TPCOMM_OK && value.set) env_level = (int32_t)value.u64;
    if (tpc_env_get(TPC_ENV_LOG_SUBSYS, &value) == TPCOMM_OK) memcpy(subsystems, value.text, sizeof subsystems);
    update_level();
    pthread_mutex_unlock(&lock);
    (void)tpc_error(TPCOMM_OK, "%s", kept_error);
}

static void start(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, read_environment);
}

/** Whether "a, b,c" holds the name; empty holds all. */
static bool is_wanted(const char *list, const char *name) {
    size_t length = strlen(name);
    if (list[strspn(list, ", ")] == '\0') return true;
    while (*list) {
        list += strspn(list, ", ");
        size_t item = strcspn(list, ", ");
        if (item > 0 && item == length && memcmp(list, name, length) == 0) return true;
        list += item;
    }
    return false;
}

static const char *level_name(int32_t level) {
    static const char *const level_names[] = {"NONE", "ERROR", "WARN", "INFO", "DEBUG"};
    return level >= TPCOMM_LOG_NONE && level <= TPCOMM_LOG_DEBUG ? level_names[level] : "?";
}

/**
 * Write all of text, in one piece where the descriptor takes it. A log that nobody reads must neither stop nor end the
 * process: a full pipe loses the line after a while, and the SIGPIPE of a broken one is taken back.
 */
static void write_bounded(int fd, const char *text, size_t bytes) {
    sigset_t pipe_signal, before, pending;
    sigemptyset(&pipe_signal);
    sigaddset(&pipe_signal, SIGPIPE);
    sigpending(&pending);
    bool was_pending = sigismember(&pending, SIGPIPE) == 1;
    pthread_sigmask(SIG_BLOCK, &pipe_signal, &before);

    bool broken = false;
    while (bytes > 0) {
        struct pollfd waited = {.fd = fd, .events = POLLOUT};
        int ready = poll(&waited, 1, WRITE_LIMIT_MS);
        if (ready < 0 && errno == EINTR) continue;
        if (ready <= 0) break;
        ssize_t written = write(fd, text, bytes);
        if (written < 0 && errno == EINTR) continue;
        broken = written < 0 && errno == EPIPE;
        if (written <= 0) break;
        text += written;
        bytes -= (size_t)written;
    }

    const struct timespec now = {0};
    while (broken && !was_pending && sigtimedwait(&pipe_signal, NULL, &now) < 0 && errno == EINTR) continue;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

static void write_line(int fd, int32_t level, const char *subsystem, const char *line) {
    char text[LINE_BYTES + 64];
    int length = snprintf(text, sizeof text, "tpcomm %s %s: %s", level_name(level), subsystem, line);
    if (length < 0) return;
    tpc_text_cut(text, sizeof text - 1, (size_t)length);
    size_t bytes = strlen(text);
    text[bytes++] = '\n';
    write_bounded(fd, text, bytes);
}

void tpc_log_write(int32_t level, const char *subsystem, const char *format, ...) {
    int kept_errno = errno;
    start();

    pthread_mutex_lock(&lock);
    bool wanted =
        atomic_load_explicit(&tpc_log_level_now, memory_order_relaxed) >= level && is_wanted(subsystems, subsystem);
    int fd = file_fd >= 0 ? file_fd : STDERR_FILENO;
    tpcomm_log_fn fn = wanted && !inside ? user_fn : NULL;
    void *arg = user_arg;
    unsigned own_generation = generation;
    if (fn) running[own_generation & 1]++;
    pthread_mutex_unlock(&lock);

    if (wanted) {
        char line[LINE_BYTES] = "";
        va_list args;
        va_start(args, format);
        int length = vsnprintf(line, sizeof line, format, args);
        va_end(args);
        if (length > 0) tpc_text_cut(line, sizeof line, (size_t)length);
        tpc_text_clean(line);
        if (fn) {
            inside = true;
            inside_generation = own_generation;
            fn(arg, level, subsystem, line);
            inside = false;
        } else {
            write_line(fd, level, subsystem, line);
        }
    }

    if (fn) {
        pthread_mutex_lock(&lock);
        if (--running[own_generation & 1] == 0) pthread_cond_broadcast(&changed);
        pthread_mutex_unlock(&lock);
    }
    errno = kept_errno;
}

tpcomm_status_t tpcomm_log_set(tpcomm_log_fn fn, void *arg, int32_t level) {
    if (level < TPCOMM_LOG_NONE || level > TPCOMM_LOG_DEBUG)
        return tpc_error(TPCOMM_ERR_INVALID_ARG, "level is %d; allowed are TPCOMM_LOG_NONE (0) to TPCOMM_LOG_DEBUG (4)",
                         level);
    if (inside)
        return tpc_error(TPCOMM_ERR_INVALID_STATE,
                         "tpcomm_log_set called from inside the log function, which it would have to wait for");
    start();

    pthread_mutex_lock(&lock);
    while (setting) pthread_cond_wait(&changed, &lock);
    setting = true;
    unsigned former = generation++;
    user_fn = fn;
    user_arg = arg;
    user_level = level;
    update_level();
    while (running[former & 1] > 0) pthread_cond_wait(&changed, &lock);
    setting = false;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    return TPCOMM_OK;
}

static tpcomm_status_t open_file(const char *pattern, int32_t rank, int *fd_p) {
    char path[1024] = "";
    tpcomm_status_t status = tpc_pattern_expand("TPCOMM_LOG_FILE", pattern, rank, path, sizeof path);
    if (status != TPCOMM_OK) return status;
    /* O_NONBLOCK: a FIFO without a reader is an error here, not a wait. */
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, 0666);
    if (fd < 0) return tpc_error_errno(TPCOMM_ERR_CONFIG, errno, "TPCOMM_LOG_FILE='%s' cannot be opened", path);
    *fd_p = fd;
    return TPCOMM_OK;
}

tpcomm_status_t tpc_log_setup(int32_t rank) {
    start();
    tpc_env_value_t value;
    tpcomm_status_t status = tpc_env_get(TPC_ENV_LOG, &value);
    if (status == TPCOMM_OK) status = tpc_env_get(TPC_ENV_LOG_SUBSYS, &value);
    if (status == TPCOMM_OK) status = tpc_env_get(TPC_ENV_LOG_FILE, &value);
    if (status != TPCOMM_OK) return status;

    pthread_mutex_lock(&lock);
    if (!file_done && value.set) status = open_file(value.text, rank, &file_fd);
    file_done = status == TPCOMM_OK;
    pthread_mutex_unlock(&lock);
    return status;
}
