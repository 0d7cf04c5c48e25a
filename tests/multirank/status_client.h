/* SPDX-License-Identifier: Apache-2.0 */
/** A client of status sockets (TPCOMM_STATUS_SOCKET). */
#ifndef TPC_TESTS_STATUS_CLIENT_H
#define TPC_TESTS_STATUS_CLIENT_H

/** Connect to a path, @name or tcp:PORT; -1 if that is refused. */
int status_knock(const char *address);

/** Everything up to the end, within 10 s; the caller frees. Closes fd. */
char *status_read(int fd);

/** Send a request and return the answer; the caller frees. */
char *status_ask(const char *address, const char *request);

#endif
