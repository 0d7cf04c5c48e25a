/* SPDX-License-Identifier: Apache-2.0 */
/**
 * One thread a process, named "tpcomm-watch", that waits on descriptors for all communicators: pidfds of peers,
 * listeners of rank 0. It exists while anything is watched, and costs nothing while nothing happens.
 */
#ifndef TPC_HEALTH_WATCHDOG_H
#define TPC_HEALTH_WATCHDOG_H

#include <stdbool.h>
#include <stdint.h>

#include "tpcomm.h"

typedef struct tpc_watch tpc_watch_t;

/** When fn is called again. */
typedef enum {
    TPC_WATCH_LEVEL, /**< as long as fd is readable */
    TPC_WATCH_ONCE,
    TPC_WATCH_EDGE /**< whenever more has come, or can be written again; whoever reads it */
} tpc_watch_kind_t;

/**
 * Call fn on the watchdog's thread when fd is readable. fn must not block, add or remove.
 * Fails: NO_MEMORY.
 */
tpcomm_status_t tpc_watchdog_add(int fd, tpc_watch_kind_t kind, void (*fn)(void *arg), void *arg,
                                 tpc_watch_t **watch_p);

/** After it returns fn does not run and never will. NULL is allowed. Not from fn. The fd must still be open. */
void tpc_watchdog_remove(tpc_watch_t *watch);

/** Whether this is the watchdog's own thread, which must not block. */
bool tpc_watchdog_is_me(void);

/** Whether this process is a fork of the one that made `generation` (tpc_fork_generation() at that time). */
uint32_t tpc_fork_generation(void);

#endif
