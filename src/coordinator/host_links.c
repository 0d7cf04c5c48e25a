/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Host messages between hosts: steps of the group's members over their links (bootstrap.h), on a channel of their own.
 * A step's name tells the call, so that members at different calls are a MISMATCH that names both. Long messages go in
 * pieces, each a step with the call's whole limit.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/hook.h"
#include "coordinator/comm.h"

/* Of what a step brings to each member. */
#define PIECE_BYTES ((size_t)4 << 20)

/* How a step ends because the group broke meanwhile: a status that no step has by itself. Members who hear of that
 * first must not take it for the reason, which is on its way to them. */
#define GROUP_BROKE TPCOMM_ERR_BACKEND
#define REASON_MS   2000

/* A wait ends with the group, too. */
static tpcomm_status_t group_failed(void *arg) {
    const tpcomm_t *comm = arg;
    return tpc_failure_status(&comm->failure) == TPCOMM_OK ? TPCOMM_OK : tpc_error(GROUP_BROKE, "the group is broken");
}

/* How long a member whom somebody has left goes on waiting for the leader's verdict. */
#define LEFT_GRACE_MS 1000

typedef struct {
    tpcomm_t *comm;
    tpc_patience_t patience; /* with somebody who has left */
} listener_t;

/*
 * Who has a message's end may destroy the group at once, and word of that overtakes the leader's verdict on its way to
 * the others. So where nothing is wrong but that somebody has left they wait for the verdict: the leader, who does not,
 * has sent it already, or ends the step as soon as it hears of the same.
 */
static tpcomm_status_t message_failed(void *arg) {
    listener_t *listener = arg;
    const tpcomm_t *comm = listener->comm;
    bool waits = comm->rank != 0 && tpc_failure_is_leaving(&comm->failure);
    return waits && !tpc_patience_is_over(&listener->patience, LEFT_GRACE_MS) ? TPCOMM_OK
                                                                              : group_failed(listener->comm);
}

static void await_reason(const tpcomm_t *comm) {
    tpc_deadline_t deadline = tpc_deadline_in(REASON_MS, NULL, NULL);
    while (tpc_failure_status(&comm->failure) == TPCOMM_OK && tpc_deadline_left_ms(&deadline) > 0)
        tpc_deadline_sleep(&deadline, 1);
}

typedef struct {
    tpcomm_t *comm;
    tpc_team_t team;
    const tpcomm_call_t *call;
    char step[96];
    uint32_t timeout_ms;
} message_t;

static tpc_deadline_t deadline_of(const message_t *message) {
    const tpc_wait_t *wait = &message->comm->host.wait;
    return tpc_deadline_in(message->timeout_ms, wait->interrupted, wait->interrupted_arg);
}

static tpcomm_status_t broadcast(const message_t *message) {
    const tpcomm_call_t *call = message->call;
    unsigned char *data = call->out;
    size_t done = 0;
    do {
        size_t left = (size_t)call->count - done, piece = left < PIECE_BYTES ? left : PIECE_BYTES;
        tpc_deadline_t deadline = deadline_of(message);
        tpcomm_status_t status =
            tpc_team_pass(message->comm->world->bootstrap, &message->team, message->step, call->root,
                          piece > 0 ? data + done : NULL, piece, piece > 0 ? data + done : NULL, &deadline);
        if (status != TPCOMM_OK) return status;
        done += piece;
    } while (done < (size_t)call->count);
    return TPCOMM_OK;
}

static tpcomm_status_t all_gather(const message_t *message) {
    const tpcomm_call_t *call = message->call;
    const unsigned char *in = call->in;
    size_t n = (size_t)message->comm->size, count = (size_t)call->count, most = PIECE_BYTES / n, done = 0;
    unsigned char *all = call->out, *pieces = count > most ? malloc(most * n) : NULL;
    tpcomm_status_t status = TPCOMM_OK;
    if (count > most && pieces == NULL)
        return tpc_error(TPCOMM_ERR_NO_MEMORY, "no memory for %zu bytes of a message between hosts", most * n);
    do {
        size_t piece = count - done < most ? count - done : most;
        tpc_deadline_t deadline = deadline_of(message);
        status = tpc_team_gather(message->comm->world->bootstrap, &message->team, message->step, TPCOMM_OK,
                                 piece > 0 ? in + done : NULL, piece, pieces != NULL ? pieces : all, &deadline);
        for (size_t r = 0; status == TPCOMM_OK && pieces != NULL && r < n; r++)
            memcpy(all + r * count + done, pieces + r * piece, piece);
        done += piece;
    } while (status == TPCOMM_OK && done < count);
    free(pieces);
    return status;
}

static tpcomm_status_t barrier(const message_t *message) {
    tpc_deadline_t deadline = deadline_of(message);
    return tpc_team_gather(message->comm->world->bootstrap, &message->team, message->step, TPCOMM_OK, NULL, 0, NULL,
                           &deadline);
}

tpc_team_t tpc_links_team(tpcomm_t *comm, const char *what) {
    return (tpc_team_t){.channel = tpc_hash(comm->id, what, strlen(what)),
                        .ranks = comm->ranks,
                        .n = comm->size,
                        .me = comm->rank,
                        .check = group_failed,
                        .check_arg = comm};
}

tpcomm_status_t tpc_links_failed(tpcomm_t *comm, tpcomm_status_t status, const tpc_flight_record_t *record) {
    char reason[480];
    /* What the members were told alike; a failure of this rank's own (memory) is said by the caller. */
    bool shared = status <= TPCOMM_ERR_ABORTED || status == TPCOMM_ERR_INTERRUPTED;
    if (!shared) return status;
    if (status == GROUP_BROKE) await_reason(comm);
    snprintf(reason, sizeof reason, "%.470s", tpcomm_last_error());
    tpc_failure_place_t place = {.rank = -1, .coll = record->coll, .seq = record->seq};
    return tpc_failure_raise(&comm->failure, status, place, reason);
}

tpcomm_status_t tpc_host_links_run(tpcomm_t *comm, const tpcomm_call_t *call, uint32_t timeout_ms,
                                   const tpc_flight_record_t *record) {
    char text[128];
    message_t message = {.comm = comm, .team = tpc_links_team(comm, "host"), .call = call, .timeout_ms = timeout_ms};
    listener_t listener = {.comm = comm};
    message.team.check = message_failed;
    message.team.check_arg = &listener;
    snprintf(message.step, sizeof message.step, "host %.80s", tpc_flight_text(record, text, sizeof text));
    tpcomm_status_t status = tpc_hook("host_links", comm->rank);
    if (status == TPCOMM_OK)
        status = call->coll == TPCOMM_BARRIER     ? barrier(&message)
                 : call->coll == TPCOMM_BROADCAST ? broadcast(&message)
                                                  : all_gather(&message);
    return status == TPCOMM_OK ? TPCOMM_OK : tpc_links_failed(comm, status, record);
}
