/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The backend of path nccl: makes one NCCL communicator a group, proves it by use, and hands it the calls.
 *
 * NCCL is fastest for large messages and where kernels of ours cannot reach; its results are not those of the one
 * written order (docs/numerics.md), so a deterministic group has none of it. Its own failures, its deadline
 * (progress.h) and the group's failure all end alike: the group's failure word is set, and every rank aborts its
 * communicator, which lets go of streams and graphs that wait in it. A timer of the watchdog's looks ten times a
 * second, since nobody on the host waits in a call.
 */
#include "nccl_backend/nccl_backend.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/hook.h"
#include "base/log.h"
#include "base/text.h"
#include "health/relay.h"
#include "health/watchdog.h"
#include "nccl_backend/communicator.h"
#include "nccl_backend/progress.h"

#define TICK_MS         100u
#define DESTROY_WAIT_MS 1000u
#define SPINS           64 /* looks at NCCL between two at everything else that ends a wait */

typedef struct {
    tpc_backend_group_t group;
    tpc_nccl_library_t library;
    tpc_nccl_communicator_t *comm;
    tpc_nccl_progress_t progress;
    tpc_cuda_side_t *side; /* NULL: no GPU (test builds), and then: */
    char version[32];
    int32_t host_buffer[2]; /* what a barrier reduces */
    int timer_fd;
    uint32_t fork_generation; /* of the process that made it */
    tpc_watch_t *watch;
    _Atomic int32_t used; /* a call was made since poll looked last */
} state_t;

/* What one rank tells the others of its NCCL. */
typedef struct {
    int32_t version;
    char path[252];
} found_t;

bool tpc_nccl_on_cpu(void) {
    return tpc_hook_value("nccl_on_cpu", 0) != 0;
}

/* ------------------------------------------------------------------ what it can */

static const char *why_not(const tpc_agreed_t *agreed, tpcomm_path_t path, const tpc_call_key_t *key) {
    (void)path;
    if (agreed->device_kind != TPCOMM_DEVICE_CUDA && !tpc_nccl_on_cpu()) return "the group's device is not a GPU";
    if (key->coll > TPCOMM_REDUCE_SCATTER) return "NCCL has no such collective";
    if (tpc_coll_reduces(key->coll) && !tpc_reduction_defined(key->dtype, key->op))
        return "this reduction of this dtype is not defined";
    if (agreed->size == 1) return "a group of one rank has nobody to talk to";
    if (!agreed->nccl) return "NCCL is switched off (TPCOMM_NCCL)";
    if (agreed->shares_device) return "ranks share a GPU, and NCCL takes one rank a GPU";
    if (agreed->deterministic) return "deterministic is on, and NCCL's sums have an order of its own";
    return NULL;
}

static tpcomm_status_t workspace_bytes(const tpc_agreed_t *agreed, size_t *bytes_p) {
    (void)agreed;
    *bytes_p = sizeof(tpc_nccl_control_t);
    return TPCOMM_OK;
}

static const tpc_nccl_dtype_t dtypes[] = {
    [TPCOMM_F32] = TPC_NCCL_FLOAT32, [TPCOMM_F16] = TPC_NCCL_FLOAT16, [TPCOMM_BF16] = TPC_NCCL_BFLOAT16,
    [TPCOMM_I8] = TPC_NCCL_INT8,     [TPCOMM_U8] = TPC_NCCL_UINT8,    [TPCOMM_I32] = TPC_NCCL_INT32,
    [TPCOMM_I64] = TPC_NCCL_INT64,   [TPCOMM_U32] = TPC_NCCL_UINT32,  [TPCOMM_U64] = TPC_NCCL_UINT64,
    [TPCOMM_F64] = TPC_NCCL_FLOAT64,
};

static const tpc_nccl_op_t ops[] = {
    [TPCOMM_SUM] = TPC_NCCL_SUM, [TPCOMM_AVG] = TPC_NCCL_AVG,   [TPCOMM_MAX] = TPC_NCCL_MAX,
    [TPCOMM_MIN] = TPC_NCCL_MIN, [TPCOMM_PROD] = TPC_NCCL_PROD,
};

static void *private_buffer(state_t *state) {
    return state->side != NULL ? tpc_cuda_side_buffer(state->side) : (void *)state->host_buffer;
}

/* Data that is only moved travels as bytes, so that its bits stay what they are, whatever NCCL knows of the dtype. */
static tpc_nccl_call_t translate(state_t *state, const tpcomm_call_t *call, tpcomm_stream_t stream) {
    tpc_nccl_call_t made = {.coll = call->coll,
                            .in = call->in,
                            .out = call->out,
                            .count = (size_t)call->count,
                            .root = call->root,
                            .stream = stream};
    if (call->coll == TPCOMM_BARRIER) {
        made.in = made.out = private_buffer(state);
        made.count = 1;
        made.dtype = TPC_NCCL_INT32;
        made.op = TPC_NCCL_MAX;
    } else if (tpc_coll_reduces(call->coll)) {
        made.dtype = dtypes[call->dtype];
        made.op = ops[call->op];
    } else {
        made.dtype = TPC_NCCL_UINT8;
        made.count *= tpcomm_dtype_size(call->dtype);
    }
    return made;
}

/* ------------------------------------------------------------------ making */

static bool has_gpu(const state_t *state) {
    return state->group.agreed.device_kind == TPCOMM_DEVICE_CUDA;
}

static tpcomm_status_t vote(const state_t *state, const char *step, tpcomm_status_t mine, const void *data,
                            size_t bytes, void *all) {
    const tpc_backend_group_t *group = &state->group;
    return tpc_team_gather(group->bootstrap, group->team, step, mine, data, bytes, all, group->deadline);
}

/* The same library everywhere: ranks of different versions do not understand each other, and need not notice. */
static tpcomm_status_t find_library(state_t *state) {
    found_t mine, all[TPCOMM_MAX_RANKS];
    char first[32], other[32];
    memset(&mine, 0, sizeof mine);
    tpcomm_status_t status = tpc_nccl_load(state->group.env->value[TPC_ENV_NCCL_PATH].text, &state->library);
    if (status == TPCOMM_OK && has_gpu(state) && !tpc_cuda_is_primary(&state->group.devices[state->group.rank]))
        status = tpc_error(TPCOMM_ERR_UNSUPPORTED,
                           "the rank is bound to a CUDA context of its caller's, and NCCL works in the primary one");
    if (status == TPCOMM_OK) {
        mine.version = state->library.version;
        snprintf(mine.path, sizeof mine.path, "%.251s", state->library.path);
    }
    status = vote(state, "load NCCL", status, &mine, sizeof mine, all);
    for (int32_t r = 1; status == TPCOMM_OK && r < state->group.agreed.size; r++) {
        all[r].path[sizeof all[r].path - 1] = all[0].path[sizeof all[0].path - 1] = '\0';
        if (all[r].version != all[0].version)
            status = tpc_error(TPCOMM_ERR_CONFIG_MISMATCH, "NCCL differs: rank 0 has %s (%s), rank %d has %s (%s)",
                               tpc_nccl_version_text(all[0].version, first), all[0].path, r,
                               tpc_nccl_version_text(all[r].version, other), all[r].path);
    }
    return status;
}

/* The first rank's id for all. */
static tpcomm_status_t share_id(state_t *state, tpc_nccl_id_t *id_p) {
    const tpc_backend_group_t *group = &state->group;
    tpcomm_status_t status = TPCOMM_OK;
    void *data = id_p;
    size_t bytes = sizeof *id_p;
    if (group->rank == 0) {
        tpc_nccl_result_t result = state->library.api.get_id(id_p);
        if (result != TPC_NCCL_SUCCESS)
            status = tpc_error(TPCOMM_ERR_BACKEND, "ncclGetUniqueId: NCCL error %d, %s", result,
                               state->library.api.error_text(result));
    }
    status =
        tpc_team_broadcast(group->bootstrap, group->team, "share NCCL's id", status, &data, &bytes, group->deadline);
    if (status != TPCOMM_OK || group->rank == 0) return status;
    bool fits = bytes == sizeof *id_p;
    if (fits) memcpy(id_p, data, sizeof *id_p);
    free(data);
    return fits ? TPCOMM_OK : tpc_error(TPCOMM_ERR_PEER_FAILED, "NCCL's id came in %zu bytes", bytes);
}

static bool peer_ended(const state_t *state) {
    for (int32_t r = 0; r < state->group.agreed.size; r++) {
        const tpc_member_t *member = tpc_bootstrap_member(state->group.bootstrap, state->group.team->ranks[r]);
        struct pollfd fd = {.fd = member->pidfd, .events = POLLIN};
        if (member->pidfd >= 0 && poll(&fd, 1, 0) > 0) return true;
    }
    return false;
}

/* Until what was begun is done. *stopped_p: another rank has failed or ended, which the next vote tells. */
static tpcomm_status_t settle(state_t *state, const char *what, bool *stopped_p) {
    const tpc_deadline_t *deadline = state->group.deadline;
    for (;;) {
        bool done = false;
        tpcomm_status_t status = tpc_nccl_comm_settle(state->comm, &done);
        if (status != TPCOMM_OK || done) return status;
        *stopped_p = atomic_load(&state->progress.control->stop) != 0 || peer_ended(state);
        if (*stopped_p) return TPCOMM_OK;
        status = tpc_deadline_sleep(deadline, 1);
        if (status == TPCOMM_ERR_INTERRUPTED) return status;
        if (tpc_deadline_left_ms(deadline) == 0)
            return tpc_error(TPCOMM_ERR_TIMEOUT, "NCCL did not end %s within %llu ms", what,
                             (unsigned long long)tpc_deadline_elapsed_ms(deadline));
    }
}

/* Tell the others, who wait inside NCCL, before the vote can. */
static tpcomm_status_t tell(state_t *state, tpcomm_status_t status) {
    if (status != TPCOMM_OK) atomic_store(&state->progress.control->stop, 1);
    return status;
}

static tpcomm_status_t join(state_t *state) {
    const tpc_backend_group_t *group = &state->group;
    static const tpc_cuda_facts_t none;
    tpc_nccl_id_t id;
    bool stopped = false;
    tpcomm_status_t status = share_id(state, &id);
    if (status != TPCOMM_OK) return status;
    const tpc_cuda_facts_t *facts = has_gpu(state) ? &group->devices[group->rank] : &none;
    status = tpc_nccl_comm_join(&state->library, &id, group->agreed.size, group->rank, facts, &state->comm);
    if (status == TPCOMM_OK) status = settle(state, "its init", &stopped);
    return vote(state, "join NCCL's communicator", tell(state, status), NULL, 0, NULL);
}

static tpcomm_status_t sum_of_ranks(state_t *state, bool *stopped_p) {
    const tpc_backend_group_t *group = &state->group;
    int32_t value = group->rank + 1, size = group->agreed.size;
    tpcomm_stream_t stream = state->side != NULL ? tpc_cuda_side_stream(state->side) : NULL;
    tpc_nccl_call_t call = {.coll = TPCOMM_ALL_REDUCE,
                            .in = private_buffer(state),
                            .out = private_buffer(state),
                            .count = 1,
                            .dtype = TPC_NCCL_INT32,
                            .op = TPC_NCCL_SUM,
                            .stream = stream};
    tpcomm_status_t status = TPCOMM_OK;
    state->host_buffer[0] = value;
    if (state->side != NULL) status = tpc_cuda_side_put(state->side, &value, sizeof value, group->deadline);
    if (status == TPCOMM_OK) status = tpc_nccl_comm_call(state->comm, &call);
    if (status == TPCOMM_OK) status = settle(state, "its first all_reduce", stopped_p);
    if (status != TPCOMM_OK || *stopped_p) return status;
    if (state->side != NULL) status = tpc_cuda_side_get(state->side, &value, sizeof value, group->deadline);
    if (state->side == NULL) value = state->host_buffer[0];
    if (status != TPCOMM_OK || value == size * (size + 1) / 2) return status;
    return tpc_error(TPCOMM_ERR_BACKEND, "NCCL's first all_reduce, the sum of 1 to %d, gave %d", size, value);
}

/* A communicator's first collective can fail where its init did not, and on one rank alone. */
static tpcomm_status_t prove(state_t *state) {
    bool stopped = false;
    tpcomm_status_t status = TPCOMM_OK;
    if (has_gpu(state)) status = tpc_cuda_side_new(256, &state->side);
    state->progress.side = state->side;
    if (status == TPCOMM_OK) status = sum_of_ranks(state, &stopped);
    return vote(state, "prove NCCL", tell(state, status), NULL, 0, NULL);
}

static void tick(void *arg);

static tpcomm_status_t start_timer(state_t *state) {
    struct itimerspec every = {.it_interval = {.tv_nsec = TICK_MS * 1000000l}, .it_value = {.tv_nsec = 1000000l}};
    state->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    if (state->timer_fd < 0 || timerfd_settime(state->timer_fd, 0, &every, NULL) != 0)
        return tpc_error_errno(TPCOMM_ERR_NO_MEMORY, errno, "cannot make a timer");
    return tpc_watchdog_add(state->timer_fd, false, tick, state, &state->watch);
}

static tpcomm_status_t make_parts(state_t *state) {
    tpcomm_status_t status = find_library(state);
    if (status == TPCOMM_OK) status = join(state);
    if (status == TPCOMM_OK) status = prove(state);
    return status == TPCOMM_OK ? start_timer(state) : status;
}

static void destroy(void *opaque);

static tpcomm_status_t create(const tpc_backend_group_t *group, void **state_p) {
    state_t *state = calloc(1, sizeof *state);
    if (state == NULL) return tpc_error(TPCOMM_ERR_NO_MEMORY, "out of memory");
    state->group = *group;
    state->timer_fd = -1;
    state->fork_generation = tpc_fork_generation();
    tpc_cuda_scope_t scope;
    tpcomm_status_t status = tpc_nccl_progress_init(&state->progress, &state->group, (void *)group->workspace->data);
    for (int32_t r = 0; r < group->agreed.size; r++)
        state->progress.unseen[r] =
            !group->calls->compares && !tpc_bootstrap_member(group->bootstrap, group->team->ranks[r])->same_host;
    bool entered = false;
    if (status == TPCOMM_OK && has_gpu(state)) {
        status = tpc_cuda_enter(&group->devices[group->rank], &scope);
        entered = status == TPCOMM_OK;
    }
    if (status == TPCOMM_OK) status = make_parts(state);
    if (entered) tpc_cuda_leave(scope);
    if (status != TPCOMM_OK) {
        destroy(state);
        return status;
    }
    tpc_nccl_version_text(state->library.version, state->version);
    if (group->rank == 0) TPC_INFO("nccl", "%s", state->library.text);
    *state_p = state;
    return TPCOMM_OK;
}

static void destroy(void *opaque) {
    state_t *state = opaque;
    tpc_cuda_scope_t scope;
    tpc_watchdog_remove(state->watch);
    if (state->timer_fd >= 0) close(state->timer_fd);
    if (state->fork_generation != tpc_fork_generation()) { /* NCCL and the GPU are the parent's */
        tpc_nccl_comm_forget(state->comm);
        free(state);
        return;
    }
    /* Healthy means finalized (tpcomm_destroy): nobody is inside, and NCCL may end in good order. */
    bool healthy = state->watch != NULL && tpc_failure_status(state->group.failure) == TPCOMM_OK;
    if (state->comm != NULL) tpc_nccl_comm_end(state->comm, !healthy);
    bool ended = tpc_nccl_comm_free(state->comm, DESTROY_WAIT_MS);
    if (!ended) TPC_WARN("nccl", "NCCL has not ended a communicator within %u ms; it is left to it", DESTROY_WAIT_MS);
    if (ended && state->side != NULL && tpc_cuda_enter(&state->group.devices[state->group.rank], &scope) == TPCOMM_OK) {
        tpc_cuda_side_free(state->side);
        tpc_cuda_leave(scope);
    }
    tpc_nccl_progress_end(&state->progress);
    free(state);
}

/* ------------------------------------------------------------------ failures */

/* NCCL has failed in a call or by itself: the group's failure, with NCCL's own text. */
static tpcomm_status_t raise_failure(state_t *state, tpcomm_status_t status, const tpc_flight_record_t *record) {
    if (status != TPCOMM_ERR_BACKEND && status != TPCOMM_ERR_INTERRUPTED) return status; /* of the failure in force */
    if (tpc_failure_status(state->group.failure) != TPCOMM_OK) return tpc_failure_status(state->group.failure);
    char call[128] = "", text[480];
    tpc_failure_place_t place = {.rank = state->group.rank};
    if (record != NULL) {
        place.coll = record->coll;
        place.seq = record->seq;
        tpc_flight_text(record, call, sizeof call);
    }
    snprintf(text, sizeof text, "rank %d%s%s: %.320s", state->group.rank, call[0] != '\0' ? " in " : "", call,
             tpcomm_last_error());
    return tpc_failure_raise(state->group.failure, status, place, text);
}

/* Everything that can have gone wrong since the last look; a broken group lets go of what waits in NCCL. */
static void look(state_t *state, bool compares) {
    bool done = false;
    if (tpc_failure_status(state->group.failure) == TPCOMM_OK) {
        tpcomm_status_t status = tpc_nccl_comm_settle(state->comm, &done);
        if (status != TPCOMM_OK) raise_failure(state, status, NULL);
        tpc_nccl_progress_look(&state->progress, compares);
    }
    if (tpc_failure_status(state->group.failure) != TPCOMM_OK) tpc_nccl_comm_end(state->comm, true);
}

/* On the watchdog's thread. */
static void tick(void *arg) {
    state_t *state = arg;
    uint64_t times;
    ssize_t got = read(state->timer_fd, &times, sizeof times);
    (void)got; /* nothing to read: somebody was faster */
    if (state->group.failure->relay != NULL) tpc_relay_calls(state->group.failure->relay);
    look(state, true);
}

static void poll_now(void *opaque) {
    state_t *state = opaque;
    if (atomic_load_explicit(&state->used, memory_order_relaxed) == 0) return; /* the timer sees the rest */
    atomic_store_explicit(&state->used, 0, memory_order_relaxed);
    look(state, false); /* the timer compares: not on the way of a call */
}

static void wake(void *opaque) {
    (void)opaque; /* the timer ends NCCL's waits on every rank; a host that waits in a call looks for itself */
}

static void outlived(void *opaque) {
    (void)opaque; /* its timer finds the failure */
}

/* ------------------------------------------------------------------ calls */

/* NCCL enqueues on a thread of its own; the caller's stream must not go on before it has. */
static tpcomm_status_t finish(state_t *state) {
    const tpc_wait_t *wait = state->group.wait;
    for (uint64_t asked_ns = tpc_clock_ns();;) {
        for (int i = 0; i < SPINS; i++) {
            bool done = false;
            tpcomm_status_t status = tpc_nccl_comm_settle(state->comm, &done);
            if (status != TPCOMM_OK || done) return status;
            sched_yield();
        }
        tpc_nccl_progress_look(&state->progress, false);
        tpcomm_status_t status = tpc_failure_status(state->group.failure);
        if (status != TPCOMM_OK) return status;
        if (wait->interrupted == NULL || tpc_clock_ns() - asked_ns < TICK_MS * 1000000u) continue;
        asked_ns = tpc_clock_ns();
        if (wait->interrupted(wait->interrupted_arg) != 0)
            return tpc_error(TPCOMM_ERR_INTERRUPTED, "config.interrupted asked to stop");
    }
}

static tpcomm_status_t run(void *opaque, const tpc_request_t *request, tpc_outcome_t *outcome_p) {
    state_t *state = opaque;
    *outcome_p = (tpc_outcome_t){.last_rank = -1}; /* what NCCL writes for whom it does not tell */
    if (request->bytes == 0 && request->call->coll != TPCOMM_BARRIER) return TPCOMM_OK;
    tpc_nccl_call_t call = translate(state, request->call, request->stream);
    tpc_nccl_progress_begin(&state->progress, request);
    tpcomm_status_t status = tpc_nccl_comm_call(state->comm, &call);
    if (status == TPCOMM_OK) status = finish(state);
    tpc_nccl_progress_ended(&state->progress, request);
    atomic_store_explicit(&state->used, 1, memory_order_relaxed);
    return status == TPCOMM_OK ? status : raise_failure(state, status, request->record);
}

static tpcomm_status_t set_timeout(void *opaque, uint32_t timeout_ms) {
    (void)opaque, (void)timeout_ms; /* read where the host reads it */
    return TPCOMM_OK;
}

static const char *check_stream(void *opaque, tpcomm_stream_t stream) {
    (void)opaque, (void)stream;
    return NULL;
}

static uint64_t device_bytes(const void *opaque) {
    (void)opaque;
    return 0;
}

static uint64_t rank_seq(void *opaque, int32_t rank) {
    const state_t *state = opaque;
    return tpc_calls_last_seq(state->group.calls, rank);
}

static const char *describe(const void *opaque) {
    const state_t *state = opaque;
    return state->library.text;
}

static const char *version(const void *opaque) {
    const state_t *state = opaque;
    return state->version;
}

static const tpcomm_path_t paths[] = {TPCOMM_PATH_NCCL, 0};

const tpc_backend_t tpc_nccl_backend = {
    .name = "nccl",
    .device_kind = TPCOMM_DEVICE_CUDA,
    .paths = paths,
    .notes_calls = true,
    .describe = describe,
    .version = version,
    .why_not = why_not,
    .workspace_bytes = workspace_bytes,
    .create = create,
    .destroy = destroy,
    .wake = wake,
    .outlived = outlived,
    .poll = poll_now,
    .set_timeout = set_timeout,
    .note_waits = tpc_backend_notes_no_waits,
    .waits = tpc_backend_no_waits,
    .times_last = tpc_backend_nobody_last,
    .check_stream = check_stream,
    .rank_seq = rank_seq,
    .device_bytes = device_bytes,
    .run = run,
};
