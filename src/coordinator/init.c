/* SPDX-License-Identifier: Apache-2.0 */
/* The ways in: how ranks meet differs, everything after is tpc_comm_create. */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "coordinator/abi.h"
#include "coordinator/comm.h"

/* What a way in knows before it meets. */
typedef struct {
    tpc_settings_t *settings;
    tpc_deadline_t deadline;
    uint64_t start_ns;
} start_t;

static tpcomm_status_t begin(const tpcomm_config_t *config, tpcomm_t **comm, start_t *start_p) {
    if (comm == NULL) return tpc_error(TPCOMM_ERR_INVALID_ARG, "comm is NULL");
    *comm = NULL;
    start_t start = {.start_ns = tpc_clock_ns()};
    tpcomm_status_t status = tpc_settings_read(config, &start.settings);
    if (status != TPCOMM_OK) return status;
    start.deadline = tpc_deadline_in(start.settings->init_timeout_ms, start.settings->config.interrupted,
                                     start.settings->config.interrupted_arg);
    *start_p = start;
    return TPCOMM_OK;
}

/* status: of meeting. */
static tpcomm_status_t finish(start_t *start, tpcomm_status_t status, tpc_bootstrap_t *bootstrap, tpcomm_t **comm) {
    if (status != TPCOMM_OK) {
        free(start->settings);
        return status;
    }
    int32_t rank = tpc_bootstrap_rank(bootstrap);
    tpcomm_status_t log_status = tpc_log_setup(rank); /* its failure is brought to the vote, too */
    if (log_status != TPCOMM_OK && start->settings->status == TPCOMM_OK) {
        start->settings->status = log_status;
        snprintf(start->settings->text, sizeof start->settings->text, "%s", tpcomm_last_error());
    }
    tpcomm_t *made = NULL;
    tpc_world_t *world = NULL;
    int32_t ranks[TPCOMM_MAX_RANKS], size = tpc_bootstrap_size(bootstrap);
    for (int32_t r = 0; r < size; r++) ranks[r] = r;
    tpc_group_plan_t plan = {.name = "world", .ranks = ranks, .n = size, .me = rank, .is_world = true};
    status = tpc_world_new(bootstrap, start->settings, &world);
    if (status != TPCOMM_OK) return status;
    status = tpc_comm_create(world, &plan, &start->deadline, &made);
    tpc_world_release(world);
    if (status != TPCOMM_OK) return status;
    made->init_us = (uint32_t)((tpc_clock_ns() - start->start_ns) / 1000u);
    TPC_INFO("init", "rank %d of %d is up after %u us: %s", made->rank, made->size, made->init_us,
             tpc_bootstrap_text(made->world->bootstrap));
    *comm = made;
    return TPCOMM_OK;
}

static tpcomm_status_t check_rank(int32_t rank, int32_t size) {
    if (size < 1 || size > TPCOMM_MAX_RANKS)
        return tpc_error(TPCOMM_ERR_INVALID_ARG, "size is %d; allowed are 1 to %d", size, TPCOMM_MAX_RANKS);
    if (rank < 0 || rank >= size)
        return tpc_error(TPCOMM_ERR_INVALID_ARG, "rank is %d; with size %d, 0 to %d are allowed", rank, size, size - 1);
    return TPCOMM_OK;
}

tpcomm_status_t tpcomm_init_env(const tpcomm_config_t *config, tpcomm_t **comm) {
    start_t start;
    tpc_rank_env_t rank_env;
    tpc_bootstrap_t *bootstrap = NULL;
    tpcomm_status_t status = begin(config, comm, &start);
    if (status != TPCOMM_OK) return status;
    status = tpc_rank_env_read(&start.settings->env, &rank_env);
    if (status == TPCOMM_OK) status = tpc_bootstrap_meet_env(&rank_env, &start.deadline, &bootstrap);
    return finish(&start, status, bootstrap, comm);
}

tpcomm_status_t tpcomm_unique_id_create(tpcomm_unique_id_t *id) {
    if (id == NULL) return tpc_error(TPCOMM_ERR_INVALID_ARG, "id is NULL");
    tpc_env_t *env = malloc(sizeof *env);
    if (env == NULL) return tpc_error(TPCOMM_ERR_NO_MEMORY, "out of memory");
    tpcomm_status_t status = tpc_env_read(env);
    if (status == TPCOMM_OK) status = tpc_bootstrap_make_id(env, id);
    free(env);
    return status;
}

tpcomm_status_t tpcomm_init_rank(const tpcomm_unique_id_t *id, int32_t rank, int32_t size,
                                 const tpcomm_config_t *config, tpcomm_t **comm) {
    start_t start;
    tpc_bootstrap_t *bootstrap = NULL;
    tpcomm_status_t status = begin(config, comm, &start);
    if (status != TPCOMM_OK) return status;
    status = id == NULL ? tpc_error(TPCOMM_ERR_INVALID_ARG, "id is NULL") : check_rank(rank, size);
    if (status == TPCOMM_OK)
        status = tpc_bootstrap_meet_id(id, rank, size, &start.settings->env, &start.deadline, &bootstrap);
    return finish(&start, status, bootstrap, comm);
}

tpcomm_status_t tpcomm_init_exchange(int32_t rank, int32_t size, tpcomm_exchange_fn exchange, void *arg,
                                     const tpcomm_config_t *config, tpcomm_t **comm) {
    start_t start;
    tpc_bootstrap_t *bootstrap = NULL;
    tpcomm_status_t status = begin(config, comm, &start);
    if (status != TPCOMM_OK) return status;
    status = exchange == NULL ? tpc_error(TPCOMM_ERR_INVALID_ARG, "exchange is NULL") : check_rank(rank, size);
    if (status == TPCOMM_OK)
        status =
            tpc_bootstrap_meet_exchange(rank, size, exchange, arg, &start.settings->env, &start.deadline, &bootstrap);
    return finish(&start, status, bootstrap, comm);
}

/* ------------------------------------------------------------------ threads of this process */

/* Init is collective, so each rank needs a thread for as long as it lasts. */
typedef struct {
    pthread_t thread;
    tpc_thread_world_t *world;
    int32_t rank;
    tpcomm_config_t config;
    tpcomm_t *comm;
    tpcomm_status_t status;
    char text[TPC_ERROR_BYTES];
} local_rank_t;

static void *join_local(void *arg) {
    local_rank_t *local = arg;
    start_t start;
    tpc_bootstrap_t *bootstrap = NULL;
    local->status = begin(&local->config, &local->comm, &start);
    if (local->status == TPCOMM_OK) {
        local->status =
            tpc_bootstrap_meet_threads(local->world, local->rank, &start.settings->env, &start.deadline, &bootstrap);
        local->status = finish(&start, local->status, bootstrap, &local->comm);
    } else {
        tpc_thread_world_leave(local->world, local->rank);
    }
    if (local->status != TPCOMM_OK) snprintf(local->text, sizeof local->text, "%s", tpcomm_last_error());
    return NULL;
}

static tpcomm_status_t join_all(local_rank_t *locals, int32_t n) {
    int32_t started = 0;
    int err = 0;
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    while (started < n && (err = pthread_create(&locals[started].thread, NULL, join_local, &locals[started])) == 0)
        started++;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    for (int32_t r = started; r < n; r++) tpc_thread_world_leave(locals[r].world, r);
    for (int32_t r = 0; r < started; r++) pthread_join(locals[r].thread, NULL);
    if (err != 0) return tpc_error_errno(TPCOMM_ERR_NO_MEMORY, err, "cannot start a thread for rank %d", started);
    for (int32_t r = 0; r < n; r++)
        if (locals[r].status != TPCOMM_OK) return tpc_error(locals[r].status, "%s", locals[r].text);
    return TPCOMM_OK;
}

/* What rank r's thread is given: the caller's config with its own device. */
static void give_device(const int32_t *devices, int32_t n, int32_t r, tpcomm_config_t *config) {
    if (devices == NULL) {
        if (config->device == 0) config->device = r + 1;
        return;
    }
    config->device = devices[r] + 1;
    for (int32_t i = 0; i < n; i++)
        for (int32_t j = 0; j < i; j++)
            if (devices[i] == devices[j] && config->share_device == TPCOMM_DEFAULT) config->share_device = TPCOMM_ON;
}

tpcomm_status_t tpcomm_init_local(int32_t n, const int32_t *devices, const tpcomm_config_t *config, tpcomm_t **comms) {
    if (comms == NULL) return tpc_error(TPCOMM_ERR_INVALID_ARG, "comms is NULL");
    tpcomm_config_t known = {.struct_size = sizeof known};
    tpcomm_status_t status = check_rank(0, n);
    if (status == TPCOMM_OK && config != NULL) status = tpc_struct_in("tpcomm_config", config, &known, sizeof known);
    if (status != TPCOMM_OK) return status;
    known.struct_size = sizeof known;
    for (int32_t r = 0; r < n; r++) comms[r] = NULL;
    tpc_thread_world_t *world = NULL;
    local_rank_t *locals = calloc((size_t)n, sizeof *locals);
    if (locals == NULL) return tpc_error(TPCOMM_ERR_NO_MEMORY, "out of memory");
    status = tpc_thread_world_new(n, &world);
    if (status == TPCOMM_OK) {
        for (int32_t r = 0; r < n; r++) {
            locals[r].world = world;
            locals[r].rank = r;
            locals[r].config = known;
            give_device(devices, n, r, &locals[r].config);
        }
        status = join_all(locals, n);
    }
    for (int32_t r = 0; r < n; r++) {
        if (status == TPCOMM_OK)
            comms[r] = locals[r].comm;
        else if (locals[r].comm != NULL)
            tpc_comm_free(locals[r].comm);
    }
    free(locals);
    return status;
}
