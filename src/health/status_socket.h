/* SPDX-License-Identifier: Apache-2.0 */
/**
 * A socket at which people and tools ask a living process how its groups are. Served by the watchdog's thread; a few
 * clients at a time, each for a few seconds, none of which can hold up that thread.
 *
 * A client sends one line ("text", "json", "flight"; an empty one or the end of its input means text) and reads to the
 * end. Addresses: a path or "@name" (unix; only this user and root are answered), "tcp:PORT" or "tcp:PORT+N" (this
 * host's loopback: every local user is answered). Several sources of one process may share an address.
 */
#ifndef TPC_HEALTH_STATUS_SOCKET_H
#define TPC_HEALTH_STATUS_SOCKET_H

#include "base/emit.h"
#include "tpcomm.h"

/** Who answers; the functions run on the watchdog's thread and must not wait. */
typedef struct {
    void (*text)(void *arg, tpc_emit_t *emit);
    void (*json)(void *arg, tpc_emit_t *emit);   /**< an object */
    void (*flight)(void *arg, tpc_emit_t *emit); /**< a document */
    void *arg;
} tpc_status_source_t;

typedef struct tpc_status tpc_status_t;

/**
 * Answer at an address from now on. Fails: CONFIG (no such address); ADDR_IN_USE (naming it); IO, NO_MEMORY.
 * @param address  patterns are expanded already.
 */
tpcomm_status_t tpc_status_open(const char *address, const tpc_status_source_t *source, tpc_status_t **status_p);

/** After it returns the source's functions do not run and never will. The last source of an address closes it and
 * removes its file. NULL is allowed. */
void tpc_status_close(tpc_status_t *status);

#endif
