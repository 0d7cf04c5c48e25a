/* SPDX-License-Identifier: Apache-2.0 */
/** Abstract unix sockets: no file that outlives a process, one name space for each network namespace, descriptors can
 * be passed. */
#include "bootstrap/net.h"

#include <errno.h>
#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define BACKLOG 128

static socklen_t abstract_address(const char *name, struct sockaddr_un *address) {
    size_t length = strnlen(name, TPC_UNIX_NAME_BYTES - 1);
    memset(address, 0, sizeof *address);
    address->sun_family = AF_UNIX;
    memcpy(address->sun_path + 1, name, length);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + length);
}

static int unix_socket(int *fd_p) {
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) return errno;
    *fd_p = fd;
    return 0;
}

int tpc_unix_listen(const char *name, int *fd_p) {
    struct sockaddr_un address;
    socklen_t length = abstract_address(name, &address);
    int fd = -1;
    int err = unix_socket(&fd);
    if (err) return err;
    if (bind(fd, (struct sockaddr *)&address, length) != 0 || listen(fd, BACKLOG) != 0) {
        err = errno;
        close(fd);
        return err;
    }
    *fd_p = fd;
    return 0;
}

int tpc_unix_connect(const char *name, int *fd_p) {
    struct sockaddr_un address;
    socklen_t length = abstract_address(name, &address);
    int fd = -1;
    int err = unix_socket(&fd);
    if (err) return err;
    while (connect(fd, (struct sockaddr *)&address, length) != 0) {
        if (errno == EINTR) continue;
        err = errno;
        close(fd);
        return err;
    }
    *fd_p = fd;
    return 0;
}

int tpc_unix_peer(int fd, int32_t *pid_p, uint32_t *uid_p) {
    struct ucred peer;
    socklen_t length = sizeof peer;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0) return errno;
    *pid_p = peer.pid;
    *uid_p = peer.uid;
    return 0;
}

bool tpc_unix_abandoned(int32_t pid) {
    return pid > 0 && kill(pid, 0) != 0 && errno == ESRCH;
}

/** Room for the control message of one descriptor, aligned as the macros want it. */
typedef union {
    struct cmsghdr align;
    char bytes[CMSG_SPACE(sizeof(int))];
} control_t;

ssize_t tpc_net_send(int fd, struct iovec *pieces, size_t count, int passed_fd) {
    control_t control;
    struct msghdr message = {.msg_iov = pieces, .msg_iovlen = count};
    if (passed_fd >= 0) {
        memset(&control, 0, sizeof control);
        message.msg_control = control.bytes;
        message.msg_controllen = sizeof control.bytes;
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(sizeof passed_fd);
        memcpy(CMSG_DATA(header), &passed_fd, sizeof passed_fd);
    }
    ssize_t sent;
    do sent = sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    while (sent < 0 && errno == EINTR);
    return sent;
}

ssize_t tpc_net_recv(int fd, void *bytes, size_t count, int *passed_fd_p) {
    control_t control;
    struct iovec piece = {.iov_base = bytes, .iov_len = count};
    struct msghdr message = {
        .msg_iov = &piece, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof control.bytes};
    ssize_t got;
    do got = recvmsg(fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    while (got < 0 && errno == EINTR);
    if (got < 0) return got;
    for (struct cmsghdr *header = CMSG_FIRSTHDR(&message); header; header = CMSG_NXTHDR(&message, header)) {
        if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
        size_t fds = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < fds; i++) {
            int passed;
            memcpy(&passed, CMSG_DATA(header) + i * sizeof(int), sizeof passed);
            if (*passed_fd_p < 0)
                *passed_fd_p = passed;
            else
                close(passed);
        }
    }
    return got;
}
