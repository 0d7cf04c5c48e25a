/* SPDX-License-Identifier: Apache-2.0 */
/** Files of the json module: read whole and bounded, replaced whole or not at all. */
#include "base/json_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"

/* How long the other side of a pipe (say, of a shell's <(...)) may let us wait. */
#define PIPE_LIMIT_MS 30000

static tpcomm_status_t too_long(const char *path, uint64_t bytes, size_t max_bytes) {
    return tpc_error(TPCOMM_ERR_PARSE, "%s: at least %" PRIu64 " bytes long; at most %zu are allowed", path, bytes,
                     max_bytes);
}

/** Read what there is, up to bytes; 0 at the end. */
static tpcomm_status_t read_some(int fd, const char *path, char *to, size_t bytes, size_t *got_p) {
    tpc_deadline_t deadline = tpc_deadline_in(PIPE_LIMIT_MS, NULL, NULL);
    for (;;) {
        ssize_t got = read(fd, to, bytes);
        if (got >= 0) {
            *got_p = (size_t)got;
            return TPCOMM_OK;
        }
        if (errno == EINTR) continue;
        if (errno != EAGAIN) return tpc_error_errno(TPCOMM_ERR_IO, errno, "%s cannot be read", path);
        if (tpc_deadline_poll(&deadline, fd, POLLIN) != TPCOMM_OK)
            return tpc_error(TPCOMM_ERR_IO, "%s: its writer gave nothing for %d s", path, PIPE_LIMIT_MS / 1000);
    }
}

tpcomm_status_t tpc_json_slurp(const char *path, size_t max_bytes, char **text_p, size_t *bytes_p) {
    char *text = NULL;
    size_t bytes = 0, capacity = 0;
    struct stat about;
    tpcomm_status_t status;

    /* O_NONBLOCK: opening a FIFO must not wait for its writer for ever. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (fd < 0) return tpc_error_errno(TPCOMM_ERR_IO, errno, "%s cannot be opened", path);
    if (fstat(fd, &about) != 0) {
        status = tpc_error_errno(TPCOMM_ERR_IO, errno, "%s cannot be examined", path);
        goto close_file;
    }
    if (S_ISREG(about.st_mode) && (uint64_t)about.st_size > max_bytes) {
        status = too_long(path, (uint64_t)about.st_size, max_bytes);
        goto close_file;
    }

    /* The size is a hint only: the file may grow, and that of a pipe or under /proc is 0. */
    capacity = S_ISREG(about.st_mode) ? (size_t)about.st_size + 2 : 65536;
    for (;;) {
        char *grown = realloc(text, capacity);
        if (!grown) {
            status = tpc_error(TPCOMM_ERR_NO_MEMORY, "%s: no memory for %zu bytes", path, capacity);
            goto free_text;
        }
        text = grown;
        size_t got = 1;
        while (got > 0 && bytes + 1 < capacity) {
            status = read_some(fd, path, text + bytes, capacity - 1 - bytes, &got);
            if (status != TPCOMM_OK) goto free_text;
            bytes += got;
            if (bytes > max_bytes) {
                status = too_long(path, bytes, max_bytes);
                goto free_text;
            }
        }
        if (got == 0) break;
        capacity = capacity < SIZE_MAX / 2 ? capacity * 2 : SIZE_MAX;
    }
    close(fd);
    text[bytes] = '\0';
    *text_p = text;
    *bytes_p = bytes;
    return TPCOMM_OK;

free_text:
    free(text);
close_file:
    close(fd);
    return status;
}

static tpcomm_status_t write_all(int fd, const char *path, const char *text, size_t bytes) {
    tpc_deadline_t deadline = tpc_deadline_in(PIPE_LIMIT_MS, NULL, NULL);
    while (bytes > 0) {
        ssize_t written = write(fd, text, bytes);
        if (written < 0 && errno == EINTR) continue;
        if (written < 0 && errno == EAGAIN) {
            if (tpc_deadline_poll(&deadline, fd, POLLOUT) == TPCOMM_OK) continue;
            return tpc_error(TPCOMM_ERR_IO, "%s: its reader took too little for %d s", path, PIPE_LIMIT_MS / 1000);
        }
        if (written < 0) return tpc_error_errno(TPCOMM_ERR_IO, errno, "%s cannot be written", path);
        text += written;
        bytes -= (size_t)written;
    }
    return TPCOMM_OK;
}

/** Whether a path means a device or an open descriptor, such as /dev/stdout, whatever that leads to. */
static bool is_special(const char *path) {
    if (strncmp(path, "/dev/", 5) == 0) return strncmp(path, "/dev/shm/", 9) != 0;
    return strncmp(path, "/proc/", 6) == 0;
}

/** A device or pipe is written to; nothing may take its place. */
static tpcomm_status_t write_special(const char *path, const char *text, size_t bytes) {
    int fd = open(path, O_WRONLY | O_APPEND | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (fd < 0) return tpc_error_errno(TPCOMM_ERR_IO, errno, "%s cannot be opened", path);
    tpcomm_status_t status = write_all(fd, path, text, bytes);
    close(fd);
    return status;
}

/** Make a new file beside path. The kernel applies the umask, which a program of several threads cannot ask for. */
static tpcomm_status_t create_beside(const char *path, char temporary[PATH_MAX], int *fd_p) {
    static _Atomic unsigned counter;
    const char *slash = strrchr(path, '/');
    int folder_length = slash ? (int)(slash - path) + 1 : 0;
    for (int attempt = 0; attempt < 100; attempt++) {
        int length = snprintf(temporary, PATH_MAX, "%.*s.tpcomm-%ld-%u-%" PRIx64 ".tmp", folder_length, path,
                              (long)getpid(), atomic_fetch_add(&counter, 1), tpc_clock_ns());
        if (length < 0 || length >= PATH_MAX) return tpc_error(TPCOMM_ERR_IO, "%s: the path is too long", path);
        int fd = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOCTTY, 0666);
        if (fd >= 0) {
            *fd_p = fd;
            return TPCOMM_OK;
        }
        if (errno != EEXIST) break;
    }
    return tpc_error_errno(TPCOMM_ERR_IO, errno, "%s cannot be created beside %s", temporary, path);
}

/** Make the rename itself survive a crash; a file system that cannot has done all it can. */
static void sync_folder(const char *path) {
    char folder[PATH_MAX];
    const char *slash = strrchr(path, '/');
    if (slash)
        snprintf(folder, sizeof folder, "%.*s", (int)(slash - path) + 1, path);
    else
        snprintf(folder, sizeof folder, ".");
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return;
    (void)fsync(fd);
    close(fd);
}

tpcomm_status_t tpc_json_replace_file(const char *path, const char *text, size_t bytes) {
    char target[PATH_MAX], temporary[PATH_MAX];
    struct stat about;
    int fd = -1;

    if (is_special(path)) return write_special(path, text, bytes);
    /* A link stays: what it leads to is replaced. */
    if (lstat(path, &about) == 0 && S_ISLNK(about.st_mode) && stat(path, &about) == 0 && S_ISREG(about.st_mode)) {
        if (!realpath(path, target)) return tpc_error_errno(TPCOMM_ERR_IO, errno, "%s cannot be followed", path);
    } else {
        if (strlen(path) >= sizeof target) return tpc_error(TPCOMM_ERR_IO, "%s: the path is too long", path);
        strcpy(target, path);
    }
    if (stat(target, &about) == 0 && !S_ISREG(about.st_mode)) return write_special(target, text, bytes);

    tpcomm_status_t status = create_beside(target, temporary, &fd);
    if (status != TPCOMM_OK) return status;
    status = write_all(fd, temporary, text, bytes);
    if (status != TPCOMM_OK) goto remove_temporary;
    if (fsync(fd) != 0 && errno != EINVAL && errno != ENOTSUP) {
        status = tpc_error_errno(TPCOMM_ERR_IO, errno, "%s cannot be written", temporary);
        goto remove_temporary;
    }
    if (rename(temporary, target) != 0) {
        status = tpc_error_errno(TPCOMM_ERR_IO, errno, "%s cannot be renamed to %s", temporary, target);
        goto remove_temporary;
    }
    close(fd);
    sync_folder(target);
    return TPCOMM_OK;

remove_temporary:
    close(fd);
    unlink(temporary);
    return status;
}
