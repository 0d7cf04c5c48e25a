/* SPDX-License-Identifier: Apache-2.0 */
#include "bootstrap/net.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define BACKLOG 128

typedef union {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
} sockaddr_t;

static const uint8_t mapped_prefix[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
static const uint8_t v6_loopback[16] = {[15] = 1};

static bool is_v4(const tpc_address_t *address) {
    return memcmp(address->ip, mapped_prefix, sizeof mapped_prefix) == 0;
}

static socklen_t to_sockaddr(const tpc_address_t *address, sockaddr_t *out) {
    memset(out, 0, sizeof *out);
    if (is_v4(address)) {
        out->v4.sin_family = AF_INET;
        out->v4.sin_port = htons(address->port);
        memcpy(&out->v4.sin_addr, address->ip + 12, 4);
        return sizeof out->v4;
    }
    out->v6.sin6_family = AF_INET6;
    out->v6.sin6_port = htons(address->port);
    out->v6.sin6_scope_id = address->scope;
    memcpy(&out->v6.sin6_addr, address->ip, 16);
    return sizeof out->v6;
}

static bool from_sockaddr(const struct sockaddr *in, tpc_address_t *address_p) {
    tpc_address_t address = {.port = 0};
    if (in->sa_family == AF_INET) {
        struct sockaddr_in v4;
        memcpy(&v4, in, sizeof v4);
        memcpy(address.ip, mapped_prefix, sizeof mapped_prefix);
        memcpy(address.ip + 12, &v4.sin_addr, 4);
        address.port = ntohs(v4.sin_port);
    } else if (in->sa_family == AF_INET6) {
        struct sockaddr_in6 v6;
        memcpy(&v6, in, sizeof v6);
        memcpy(address.ip, &v6.sin6_addr, 16);
        address.scope = v6.sin6_scope_id;
        address.port = ntohs(v6.sin6_port);
    } else {
        return false;
    }
    *address_p = address;
    return true;
}

const char *tpc_address_text(const tpc_address_t *address, char text[TPC_ADDRESS_TEXT_BYTES]) {
    char ip[INET6_ADDRSTRLEN] = "?";
    if (is_v4(address)) {
        inet_ntop(AF_INET, address->ip + 12, ip, sizeof ip);
        snprintf(text, TPC_ADDRESS_TEXT_BYTES, "%s:%u", ip, address->port);
    } else {
        inet_ntop(AF_INET6, address->ip, ip, sizeof ip);
        snprintf(text, TPC_ADDRESS_TEXT_BYTES, "[%s]:%u", ip, address->port);
    }
    return text;
}

bool tpc_address_is_loopback(const tpc_address_t *address) {
    return is_v4(address) ? address->ip[12] == 127 : memcmp(address->ip, v6_loopback, sizeof v6_loopback) == 0;
}

bool tpc_host_port_parse(const char *text, char *host_p, size_t host_bytes, uint16_t *port_p) {
    const char *colon = strrchr(text, ':');
    if (!colon || colon == text) return false;
    const char *host = text;
    size_t length = (size_t)(colon - text);
    if (text[0] == '[') {
        if (colon[-1] != ']' || length < 3) return false;
        host++;
        length -= 2;
    } else if (memchr(text, ':', length)) {
        return false; /* a bare IPv6 address: which colon ends it cannot be known */
    }
    uint32_t port = 0;
    size_t digits = 0;
    for (const char *c = colon + 1; *c; c++, digits++) {
        if (*c < '0' || *c > '9' || digits == 5) return false;
        port = port * 10 + (uint32_t)(*c - '0');
    }
    if (port == 0 || port > 65535 || length >= host_bytes) return false;
    memcpy(host_p, host, length);
    host_p[length] = '\0';
    *port_p = (uint16_t)port;
    return true;
}

int tpc_tcp_resolve(const char *host, uint16_t port, tpc_address_t *addresses_p, size_t room, size_t *count_p) {
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    struct addrinfo *found;
    int err = getaddrinfo(host, NULL, &hints, &found);
    if (err != 0) return err;
    size_t count = 0;
    for (struct addrinfo *one = found; one && count < room; one = one->ai_next) {
        if (!from_sockaddr(one->ai_addr, &addresses_p[count])) continue;
        addresses_p[count++].port = port;
    }
    freeaddrinfo(found);
    *count_p = count;
    return count > 0 ? 0 : EAI_NONAME;
}

static int listen_at(const sockaddr_t *address, socklen_t length, int *fd_p) {
    int fd = socket(address->any.sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) return errno;
    /* So that a port whose last connections are in TIME_WAIT can be had again; a port somebody listens on still cannot.
     */
    int on = 1, off = 0;
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (address->any.sa_family == AF_INET6) (void)setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    if (bind(fd, &address->any, length) != 0 || listen(fd, BACKLOG) != 0) {
        int err = errno;
        close(fd);
        return err;
    }
    *fd_p = fd;
    return 0;
}

int tpc_tcp_listen(const tpc_address_t *address, int *fd_p) {
    sockaddr_t wanted;
    socklen_t length = to_sockaddr(address, &wanted);
    return listen_at(&wanted, length, fd_p);
}

int tpc_tcp_listen_any(uint16_t port, bool loopback_only, int *fd_p) {
    sockaddr_t v4 = {.v4 = {.sin_family = AF_INET, .sin_port = htons(port)}};
    if (loopback_only) {
        v4.v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        return listen_at(&v4, sizeof v4.v4, fd_p);
    }
    sockaddr_t v6 = {.v6 = {.sin6_family = AF_INET6, .sin6_port = htons(port)}};
    int err = listen_at(&v6, sizeof v6.v6, fd_p);
    /* A machine or container without IPv6 says so in several ways. */
    if (err == EAFNOSUPPORT || err == EADDRNOTAVAIL || err == EPROTONOSUPPORT) err = listen_at(&v4, sizeof v4.v4, fd_p);
    return err;
}

int tpc_tcp_connect(const tpc_address_t *address, int *fd_p) {
    sockaddr_t wanted;
    socklen_t length = to_sockaddr(address, &wanted);
    int fd = socket(wanted.any.sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) return errno;
    int err = connect(fd, &wanted.any, length) == 0 ? 0 : errno;
    if (err == EINTR) err = EINPROGRESS;
    if (err != 0 && err != EINPROGRESS) {
        close(fd);
        return err;
    }
    *fd_p = fd;
    return err;
}

int tpc_tcp_connected(int fd) {
    int err = 0;
    socklen_t length = sizeof err;
    if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &err, &length) != 0) return errno;
    if (err != 0) return err;
    /* A connection to a free port of the ephemeral range may get that port as its own and so reach itself. */
    tpc_address_t local, remote;
    err = tpc_tcp_local(fd, &local);
    if (err == 0) err = tpc_tcp_remote(fd, &remote);
    if (err != 0) return err;
    if (local.port == remote.port && memcmp(local.ip, remote.ip, sizeof local.ip) == 0) return ECONNREFUSED;
    return 0;
}

int tpc_tcp_local(int fd, tpc_address_t *address_p) {
    sockaddr_t address;
    socklen_t length = sizeof address;
    if (getsockname(fd, &address.any, &length) != 0) return errno;
    return from_sockaddr(&address.any, address_p) ? 0 : EAFNOSUPPORT;
}

int tpc_tcp_remote(int fd, tpc_address_t *address_p) {
    sockaddr_t address;
    socklen_t length = sizeof address;
    if (getpeername(fd, &address.any, &length) != 0) return errno;
    return from_sockaddr(&address.any, address_p) ? 0 : EAFNOSUPPORT;
}

void tpc_tcp_tune(int fd) {
    /* A host that lost its power is noticed after 10 + 3 * 5 seconds of silence. */
    int on = 1, idle_s = 10, interval_s = 5, probes = 3;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    (void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof idle_s);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval_s, sizeof interval_s);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
}

size_t tpc_tcp_interfaces(tpc_address_t *addresses_p, size_t room) {
    struct ifaddrs *interfaces;
    size_t count = 0;
    if (getifaddrs(&interfaces) != 0) return 0;
    for (int v4_turn = 1; v4_turn >= 0; v4_turn--) {
        for (struct ifaddrs *one = interfaces; one && count < room; one = one->ifa_next) {
            tpc_address_t address;
            if (!one->ifa_addr || !(one->ifa_flags & IFF_UP) || (one->ifa_flags & IFF_LOOPBACK)) continue;
            if (!from_sockaddr(one->ifa_addr, &address) || is_v4(&address) != (v4_turn == 1)) continue;
            if (!is_v4(&address) && address.ip[0] == 0xfe && (address.ip[1] & 0xc0) == 0x80) continue;
            addresses_p[count++] = address;
        }
    }
    freeifaddrs(interfaces);
    return count;
}
