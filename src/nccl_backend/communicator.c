/* SPDX-License-Identifier: Apache-2.0 */
#include "nccl_backend/communicator.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "device/cuda_side.h"

/* How long a clean end waits for NCCL to have sent everything, before it is destroyed anyway. */
#define FINALIZE_MS 60000u

struct tpc_nccl_communicator {
    tpc_nccl_library_t library;
    tpc_cuda_facts_t facts;
    pthread_mutex_t lock; /* of every call into NCCL, and of the two below */
    tpc_nccl_comm_t comm; /* NULL: not there, or given to the thread that ends it */
    bool ending;
    bool threaded, abort; /* of the ending: it has a thread */
    tpc_nccl_comm_t ended;
    pthread_t thread;
    _Atomic int32_t done;
    _Atomic int32_t references; /* ours and the thread's */
};

static void release(tpc_nccl_communicator_t *comm) {
    if (atomic_fetch_sub(&comm->references, 1) > 1) return;
    pthread_mutex_destroy(&comm->lock);
    free(comm);
}

/* What NCCL says of a failure, on one line. Under lock. */
static tpcomm_status_t failed(const tpc_nccl_communicator_t *comm, tpc_nccl_result_t result, const char *what) {
    const tpc_nccl_api_t *api = &comm->library.api;
    char detail[400] = "";
    const char *last = api->last_error != NULL ? api->last_error(comm->comm) : NULL;
    if (last != NULL && last[0] != '\0') snprintf(detail, sizeof detail, ": %s", last);
    size_t length = strlen(detail);
    while (length > 0 && (detail[length - 1] == '\n' || detail[length - 1] == ' ')) detail[--length] = '\0';
    for (char *c = detail; *c != '\0'; c++)
        if (*c == '\n' || *c == '\t') *c = ' ';
    tpc_text_clean(detail);
    if (comm->facts.usable) tpc_cuda_forget_error();
    return tpc_error(TPCOMM_ERR_BACKEND, "%s: NCCL error %d, %s%s", what, result, api->error_text(result), detail);
}

static tpcomm_status_t ended(void) {
    return tpc_error(TPCOMM_ERR_ABORTED, "the group's NCCL communicator was aborted");
}

tpcomm_status_t tpc_nccl_comm_join(const tpc_nccl_library_t *library, const tpc_nccl_id_t *id, int32_t size,
                                   int32_t rank, const tpc_cuda_facts_t *facts, tpc_nccl_communicator_t **comm_p) {
    tpc_nccl_config_t config;
    memset(&config, 0, sizeof config); /* NCCL reads the padding, too, by its newer definition */
    config.size = sizeof config;
    config.magic = TPC_NCCL_CONFIG_MAGIC;
    config.version = TPC_NCCL_CONFIG_VERSION;
    tpc_nccl_communicator_t *comm = calloc(1, sizeof *comm);
    if (comm == NULL || pthread_mutex_init(&comm->lock, NULL) != 0) {
        free(comm);
        return tpc_error(TPCOMM_ERR_NO_MEMORY, "out of memory");
    }
    comm->library = *library;
    comm->facts = *facts;
    atomic_init(&comm->references, 1);
    tpc_nccl_result_t result = library->api.init(&comm->comm, size, *id, rank, &config);
    tpcomm_status_t status = TPCOMM_OK;
    if (result != TPC_NCCL_SUCCESS && result != TPC_NCCL_IN_PROGRESS)
        status = failed(comm, result, "ncclCommInitRankConfig");
    if (status != TPCOMM_OK) {
        tpc_nccl_comm_free(comm, 0);
        return status;
    }
    *comm_p = comm;
    return TPCOMM_OK;
}

tpcomm_status_t tpc_nccl_comm_settle(tpc_nccl_communicator_t *comm, bool *done_p) {
    tpcomm_status_t status = TPCOMM_OK;
    pthread_mutex_lock(&comm->lock);
    tpc_nccl_result_t state = TPC_NCCL_SUCCESS;
    if (comm->comm == NULL) {
        status = ended();
    } else {
        tpc_nccl_result_t result = comm->library.api.async_error(comm->comm, &state);
        if (result != TPC_NCCL_SUCCESS)
            status = failed(comm, result, "ncclCommGetAsyncError");
        else if (state != TPC_NCCL_SUCCESS && state != TPC_NCCL_IN_PROGRESS)
            status = failed(comm, state, "NCCL has failed");
    }
    pthread_mutex_unlock(&comm->lock);
    *done_p = status == TPCOMM_OK && state == TPC_NCCL_SUCCESS;
    return status;
}

/* Under lock. */
static tpc_nccl_result_t begin(const tpc_nccl_communicator_t *comm, const tpc_nccl_call_t *call, const char **what_p) {
    const tpc_nccl_api_t *api = &comm->library.api;
    switch (call->coll) {
    case TPCOMM_BROADCAST:
        *what_p = "ncclBroadcast";
        return api->broadcast(call->in, call->out, call->count, call->dtype, call->root, comm->comm, call->stream);
    case TPCOMM_ALL_GATHER:
        *what_p = "ncclAllGather";
        return api->all_gather(call->in, call->out, call->count, call->dtype, comm->comm, call->stream);
    case TPCOMM_REDUCE_SCATTER:
        *what_p = "ncclReduceScatter";
        return api->reduce_scatter(call->in, call->out, call->count, call->dtype, call->op, comm->comm, call->stream);
    default: /* TPCOMM_ALL_REDUCE, and what a barrier is made of */
        *what_p = "ncclAllReduce";
        return api->all_reduce(call->in, call->out, call->count, call->dtype, call->op, comm->comm, call->stream);
    }
}

tpcomm_status_t tpc_nccl_comm_call(tpc_nccl_communicator_t *comm, const tpc_nccl_call_t *call) {
    const char *what = "";
    tpcomm_status_t status = TPCOMM_OK;
    pthread_mutex_lock(&comm->lock);
    if (comm->comm == NULL) {
        status = ended();
    } else {
        tpc_nccl_result_t result = begin(comm, call, &what);
        if (result != TPC_NCCL_SUCCESS && result != TPC_NCCL_IN_PROGRESS) status = failed(comm, result, what);
    }
    pthread_mutex_unlock(&comm->lock);
    return status;
}

/* ------------------------------------------------------------------ ending */

static void finalize(const tpc_nccl_communicator_t *comm) {
    const tpc_nccl_api_t *api = &comm->library.api;
    tpc_deadline_t deadline = tpc_deadline_in(FINALIZE_MS, NULL, NULL);
    tpc_nccl_result_t state = api->finalize(comm->ended);
    while (state == TPC_NCCL_IN_PROGRESS && tpc_deadline_left_ms(&deadline) > 0) {
        tpc_deadline_sleep(&deadline, 1);
        if (api->async_error(comm->ended, &state) != TPC_NCCL_SUCCESS) return;
    }
}

static void *end_main(void *arg) {
    tpc_nccl_communicator_t *comm = arg;
    tpc_cuda_scope_t scope;
    bool entered = comm->facts.usable && tpc_cuda_enter(&comm->facts, &scope) == TPCOMM_OK;
    if (entered) tpc_cuda_relax_thread();
    if (comm->abort) {
        (void)comm->library.api.abort(comm->ended);
    } else {
        if (comm->library.api.finalize != NULL) finalize(comm);
        (void)comm->library.api.destroy(comm->ended);
    }
    if (entered) tpc_cuda_leave(scope);
    atomic_store(&comm->done, 1);
    release(comm);
    return NULL;
}

void tpc_nccl_comm_end(tpc_nccl_communicator_t *comm, bool abort) {
    pthread_mutex_lock(&comm->lock);
    bool first = !comm->ending;
    comm->ending = true;
    if (first) {
        comm->ended = comm->comm;
        comm->comm = NULL;
        comm->abort = abort;
    }
    bool possible = first && comm->ended != NULL && (!abort || comm->library.api.abort != NULL);
    int err = 0;
    if (possible) {
        sigset_t all, before;
        atomic_fetch_add(&comm->references, 1);
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before);
        err = pthread_create(&comm->thread, NULL, end_main, comm);
        pthread_sigmask(SIG_SETMASK, &before, NULL);
        comm->threaded = err == 0;
        if (err == 0)
            pthread_setname_np(comm->thread, "tpcomm-nccl");
        else
            atomic_fetch_sub(&comm->references, 1);
    }
    if (first && comm->ended == NULL) atomic_store(&comm->done, 1);
    pthread_mutex_unlock(&comm->lock);
    if (first && comm->ended != NULL && (!possible || err != 0))
        TPC_WARN("nccl", "an NCCL communicator cannot be ended, and stays: %s",
                 possible ? "no thread could be started" : "this NCCL has no ncclCommAbort");
}

bool tpc_nccl_comm_free(tpc_nccl_communicator_t *comm, uint32_t wait_ms) {
    if (comm == NULL) return true;
    tpc_nccl_comm_end(comm, true);
    pthread_mutex_lock(&comm->lock); /* whoever began the end is out of it */
    bool threaded = comm->threaded;
    pthread_mutex_unlock(&comm->lock);
    tpc_deadline_t deadline = tpc_deadline_in(wait_ms, NULL, NULL);
    while (threaded && atomic_load(&comm->done) == 0 && tpc_deadline_left_ms(&deadline) > 0)
        tpc_deadline_sleep(&deadline, 1);
    bool done = atomic_load(&comm->done) != 0;
    if (threaded && done) pthread_join(comm->thread, NULL);
    if (threaded && !done) pthread_detach(comm->thread);
    release(comm);
    return done;
}

void tpc_nccl_comm_forget(tpc_nccl_communicator_t *comm) {
    free(comm);
}
