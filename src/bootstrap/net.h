/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Sockets: abstract unix (unix.c) and TCP (tcp.c). All are non-blocking and CLOEXEC. These functions return 0 or an
 * errno value and record no text: their callers try several places and know what to say about each.
 */
#ifndef TPC_BOOTSTRAP_NET_H
#define TPC_BOOTSTRAP_NET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "bootstrap/wire.h"

/* ------------------------------------------------------------------ unix */

/** Room for a name without the leading NUL that makes it abstract. */
#define TPC_UNIX_NAME_BYTES 64

int tpc_unix_listen(const char *name, int *fd_p);
/** EAGAIN: the listener's queue is full. ECONNREFUSED: nobody listens. */
int tpc_unix_connect(const char *name, int *fd_p);
/** Who made the other end: pid in this process's namespace (0 if not visible) and effective user. */
int tpc_unix_peer(int fd, int32_t *pid_p, uint32_t *uid_p);
/** Whether the process that made a listening socket is gone: a child forked from it holds the socket and will never
 * serve it. */
bool tpc_unix_abandoned(int32_t pid);

/** sendmsg without SIGPIPE; passed_fd -1: none, else it goes with the first byte. Returns bytes, or -1 with errno. */
ssize_t tpc_net_send(int fd, struct iovec *pieces, size_t count, int passed_fd);
/**
 * recvmsg; a descriptor that comes along is stored in *passed_fd_p unless there is one already; all others are closed.
 * Where this process has no room for descriptors, none comes.
 */
ssize_t tpc_net_recv(int fd, void *bytes, size_t count, int *passed_fd_p);

/* ------------------------------------------------------------------ tcp */

typedef struct {
    uint8_t ip[16]; /**< IPv4 mapped into IPv6 */
    uint32_t scope; /**< of a link-local address */
    uint16_t port;
} tpc_address_t;

#define TPC_ADDRESS_TEXT_BYTES 80

/** "10.0.0.1:29501" or "[fd00::1]:29501". Returns text. */
const char *tpc_address_text(const tpc_address_t *address, char text[TPC_ADDRESS_TEXT_BYTES]);
bool tpc_address_is_loopback(const tpc_address_t *address);

/** Split "host:port" or "[v6]:port"; false unless the port is 1 to 65535 and the host fits. */
bool tpc_host_port_parse(const char *text, char *host_p, size_t host_bytes, uint16_t *port_p);

/** Addresses of a host name or number. Returns 0 or an EAI_ value (gai_strerror). May block as long as the resolver
 * does. */
int tpc_tcp_resolve(const char *host, uint16_t port, tpc_address_t *addresses_p, size_t room, size_t *count_p);

/** Listen on one address (port 0: any). */
int tpc_tcp_listen(const tpc_address_t *address, int *fd_p);
/** Listen on all addresses, IPv6 and IPv4, or on loopback alone. */
int tpc_tcp_listen_any(uint16_t port, bool loopback_only, int *fd_p);

/** Start to connect: 0 or EINPROGRESS with *fd_p set, or what went wrong. */
int tpc_tcp_connect(const tpc_address_t *address, int *fd_p);
/** After the socket became writable: 0 if it is connected to somebody else (TCP can connect to itself). */
int tpc_tcp_connected(int fd);
int tpc_tcp_local(int fd, tpc_address_t *address_p);
int tpc_tcp_remote(int fd, tpc_address_t *address_p);
/** Small messages at once; a silent host is noticed. */
void tpc_tcp_tune(int fd);

/** This host's addresses that others may reach: interfaces that are up, IPv4 first, no loopback, no link-local. */
size_t tpc_tcp_interfaces(tpc_address_t *addresses_p, size_t room);

#endif
