/* SPDX-License-Identifier: Apache-2.0 */
/**
 * For how long this process has had no descriptor, or no memory, for a connection. A moment's want is waited out, for
 * other threads may be about to close some; a lasting one is a failure of this rank's, and is to be told as one, before
 * the deadline makes it somebody's absence.
 */
#ifndef TPC_BOOTSTRAP_ROOM_H
#define TPC_BOOTSTRAP_ROOM_H

#include <errno.h>
#include <stdbool.h>

#include "base/clock.h"

#define TPC_ROOM_WAIT_NS (UINT64_C(1) * 1000000000)

typedef struct {
    int err;           /**< 0: there is room */
    uint64_t since_ns; /**< tpc_clock_awake_ns */
} tpc_room_t;

static inline bool tpc_room_is_want(int err) {
    return err == EMFILE || err == ENFILE || err == ENOBUFS || err == ENOMEM;
}

/** How an attempt to have a connection went: 0 or an errno value. */
static inline void tpc_room_note(tpc_room_t *room, int err) {
    if (!tpc_room_is_want(err))
        room->err = 0;
    else if (room->err == 0)
        *room = (tpc_room_t){err, tpc_clock_awake_ns()};
}

/** OK, or NO_MEMORY where there has been none for long. */
static inline tpcomm_status_t tpc_room_check(const tpc_room_t *room, int32_t rank) {
    if (room->err == 0 || tpc_clock_awake_since(room->since_ns) < TPC_ROOM_WAIT_NS) return TPCOMM_OK;
    return tpc_error_errno(TPCOMM_ERR_NO_MEMORY, room->err, "rank %d has no room for its connections to other ranks",
                           rank);
}

#endif
