/* SPDX-License-Identifier: Apache-2.0 */
#include "multirank/status_client.h"

#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "check.h"

#define ANSWER_BYTES (4u << 20)

int status_knock(const char *address) {
    struct sockaddr_un local = {.sun_family = AF_UNIX};
    struct sockaddr_in remote = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    bool tcp = strncmp(address, "tcp:", 4) == 0;
    socklen_t bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(address) + (address[0] != '@'));
    int fd = socket(tcp ? AF_INET : AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(fd >= 0);
    snprintf(local.sun_path, sizeof local.sun_path, "%s", address);
    if (address[0] == '@') local.sun_path[0] = '\0';
    if (tcp) remote.sin_port = htons((uint16_t)atoi(address + 4));
    int err =
        tcp ? connect(fd, (struct sockaddr *)&remote, sizeof remote) : connect(fd, (struct sockaddr *)&local, bytes);
    if (err == 0) return fd;
    close(fd);
    return -1;
}

char *status_read(int fd) {
    char *text = calloc(1, ANSWER_BYTES);
    size_t have = 0;
    CHECK(text != NULL);
    for (uint64_t start = tpc_clock_ns(); tpc_clock_ns() - start < UINT64_C(10000000000);) {
        struct pollfd waited = {.fd = fd, .events = POLLIN};
        if (poll(&waited, 1, 100) != 1) continue;
        ssize_t got = recv(fd, text + have, ANSWER_BYTES - 1 - have, 0);
        if (got <= 0) {
            close(fd);
            return text;
        }
        have += (size_t)got;
    }
    FAIL("no end after 10 s; so far: %s", text);
}

char *status_ask(const char *address, const char *request) {
    int fd = status_knock(address);
    if (fd < 0) FAIL("nobody listens at %s: %s", address, strerror(errno));
    CHECK_EQ(send(fd, request, strlen(request), MSG_NOSIGNAL), (ssize_t)strlen(request));
    if (strchr(request, '\n') == NULL) CHECK_EQ(shutdown(fd, SHUT_WR), 0);
    return status_read(fd);
}
