/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The backends of one group: those for its kind of device, each with a state of its own. One that cannot serve the
 * group is left out on all ranks, and its reason is kept for explain and comm_info.
 */
#ifndef TPC_COORDINATOR_BACKEND_SET_H
#define TPC_COORDINATOR_BACKEND_SET_H

#include "coordinator/backends.h"

#define TPC_BACKENDS_MAX 4

typedef struct {
    int32_t count;
    const tpc_backend_t
        *list[TPC_BACKENDS_MAX + 1];        /**< in order of preference, NULL at the end: as dispatch wants it */
    const char *why_not[TPC_BACKENDS_MAX];  /**< NULL: made, or to be made */
    char text[TPC_BACKENDS_MAX][256];       /**< where why_not is not static */
    void *_Atomic state[TPC_BACKENDS_MAX];  /**< NULL: not made (yet) */
    tpc_workspace_t area[TPC_BACKENDS_MAX]; /**< its part of the workspace */
    size_t bytes[TPC_BACKENDS_MAX];
} tpc_backend_set_t;

/** Those for the group's kind of device. One whose paths carry no call at all in such a group has its why_not. Pure. */
void tpc_backend_set_choose(tpc_backend_set_t *set, const tpc_agreed_t *agreed);

/** The backend that has a path; NULL: none has. */
const tpc_backend_t *tpc_backend_set_of_path(const tpc_backend_set_t *set, tpcomm_path_t path, int32_t *index_p);

/** Bytes of workspace they want in all. Pure. Fails: TOO_SMALL. */
tpcomm_status_t tpc_backend_set_plan(tpc_backend_set_t *set, const tpc_agreed_t *agreed, size_t *bytes_p);

/**
 * Make them. group->workspace is where their part begins; name: the group's, for the log. Collective; fails alike on
 * all ranks: a failure that is not about a backend; all were left out; the forced path's was.
 */
tpcomm_status_t tpc_backend_set_make(tpc_backend_set_t *set, const tpc_backend_group_t *group, const char *name);

/** In the reverse order of making. */
void tpc_backend_set_destroy(tpc_backend_set_t *set);

/** Which were made, a bit each; equal on all ranks. */
uint64_t tpc_backend_set_made(const tpc_backend_set_t *set);

/** Whether calls are noted (health/calls.h) in a group with those that are made or may be. */
bool tpc_backend_set_notes(const tpc_backend_set_t *set);

/** What one of them works with, or why it was not made; "" where there is none. */
const char *tpc_backend_set_describe(const tpc_backend_set_t *set, int32_t index);
/** Version of the library behind a path; "": our own code, or none that was made has it. */
const char *tpc_backend_set_version(const tpc_backend_set_t *set, tpcomm_path_t path);

/** NULL where the path can carry such calls in this group, else why not. */
const char *tpc_backend_set_why_not(const tpc_backend_set_t *set, const tpc_agreed_t *agreed, tpcomm_path_t path,
                                    const tpc_call_key_t *key);

/** Of all that were made; see backend.h. */
void tpc_backend_set_wake(tpc_backend_set_t *set);
void tpc_backend_set_outlived(tpc_backend_set_t *set);
void tpc_backend_set_poll(const tpc_backend_set_t *set);
tpcomm_status_t tpc_backend_set_timeout(tpc_backend_set_t *set, uint32_t timeout_ms);
tpcomm_status_t tpc_backend_set_note_waits(tpc_backend_set_t *set, bool on);
tpc_waits_t tpc_backend_set_waits(const tpc_backend_set_t *set, tpcomm_path_t path);
uint64_t tpc_backend_set_times_last(const tpc_backend_set_t *set, int32_t rank);
const char *tpc_backend_set_check_stream(const tpc_backend_set_t *set, tpcomm_stream_t stream);
uint64_t tpc_backend_set_rank_seq(const tpc_backend_set_t *set, int32_t rank);
uint64_t tpc_backend_set_device_bytes(const tpc_backend_set_t *set);

#endif
