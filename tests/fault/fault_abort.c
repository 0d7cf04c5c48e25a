/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Check that abort and destroy end every wait of every rank at once, with the reason and the rank (H11, F7); that
 * queued calls drain; and that the same works while threads wait inside (W12's peer).
 */
#include <pthread.h>
#include <unistd.h>

#include "multirank/ranks.h"
#include "multirank/stalls.h"

static void abort_while_waiting(rank_t *rank) {
    CHECK_OK(tpcomm_barrier(rank->comm, NULL));
    if (rank->rank == 0) {
        usleep(200000);
        CHECK_OK(tpcomm_abort(rank->comm, "the scheduler gave up on request 17"));
    }
    moment_t start = moment_now();
    CHECK_STATUS(tpcomm_barrier(rank->comm, NULL), TPCOMM_ERR_ABORTED);
    for (int i = 0; i < 1000; i++) /* as an engine that has queued its step */
        CHECK_STATUS(tpcomm_barrier(rank->comm, NULL), TPCOMM_ERR_ABORTED);
    CHECK_WITHIN(start, 2000);
    CHECK_ERROR_HAS("tpcomm_abort by rank 0: the scheduler gave up on request 17");
}

static void long_reason(rank_t *rank) {
    char reason[4096];
    memset(reason, 'x', sizeof reason - 1);
    reason[sizeof reason - 1] = '\0';
    CHECK_OK(tpcomm_barrier(rank->comm, NULL));
    if (rank->rank == 1) CHECK_OK(tpcomm_abort(rank->comm, reason));
    CHECK_STATUS(tpcomm_barrier(rank->comm, NULL), TPCOMM_ERR_ABORTED);
    CHECK_ERROR_HAS("tpcomm_abort by rank 1: xxx");
    CHECK_STATUS(tpcomm_abort(rank->comm, NULL), TPCOMM_OK); /* the first reason stays */
    CHECK_STATUS(tpcomm_barrier(rank->comm, NULL), TPCOMM_ERR_ABORTED);
    CHECK_ERROR_HAS("tpcomm_abort by rank 1: xxx");
}

/* A reason is somebody's text: it cannot make lines, or move a terminal's cursor. */
static void odd_reason(rank_t *rank) {
    tpcomm_error_t error = {.struct_size = sizeof error};
    CHECK_OK(tpcomm_barrier(rank->comm, NULL));
    if (rank->rank == 1) CHECK_OK(tpcomm_abort(rank->comm, "\xff%s\n\x1b[31m d\xc3\xa9lai"));
    CHECK_STATUS(tpcomm_barrier(rank->comm, NULL), TPCOMM_ERR_ABORTED);
    CHECK_STATUS(tpcomm_async_status(rank->comm, &error), TPCOMM_ERR_ABORTED);
    CHECK(strcmp(error.text, "tpcomm_abort by rank 1: ?%s??[31m d\xc3\xa9lai") == 0);
}

static void destroyed_by_peer(int32_t rank, int32_t size, void *arg) {
    (void)size, (void)arg;
    tpcomm_config_t config = ranks_config();
    tpcomm_t *comm = NULL;
    CHECK_OK(tpcomm_init_env(&config, &comm));
    CHECK_OK(tpcomm_barrier(comm, NULL));
    if (rank != 1) {
        CHECK_STATUS(tpcomm_barrier(comm, NULL), TPCOMM_ERR_ABORTED);
        CHECK_ERROR_HAS("rank 1 destroyed its communicator");
    }
    CHECK_OK(tpcomm_destroy(comm));
}

static void *waits_inside(void *comm) {
    CHECK_STATUS(tpcomm_barrier(comm, NULL), TPCOMM_ERR_ABORTED);
    return NULL;
}

/* destroy wakes a thread of its own rank that waits inside, and frees only after it has left. */
static void destroyed_while_inside(void) {
    tpcomm_config_t config = ranks_config();
    resources_t before = resources_now();
    tpcomm_t *comms[2];
    pthread_t thread;
    CHECK_OK(tpcomm_init_local(2, NULL, &config, comms));
    CHECK_EQ(pthread_create(&thread, NULL, waits_inside, comms[0]), 0);
    tpcomm_rank_info_t info = {.struct_size = sizeof info};
    do {
        CHECK_OK(tpcomm_rank_info(comms[0], 0, &info));
    } while (info.seq == 0);
    usleep(50000);
    /* BUSY: the thread had no processor for a second, and nothing was freed. */
    tpcomm_status_t status = TPCOMM_ERR_BUSY;
    for (int i = 0; i < 60 && status == TPCOMM_ERR_BUSY; i++) status = tpcomm_destroy(comms[0]);
    CHECK_OK(status);
    CHECK_EQ(pthread_join(thread, NULL), 0);
    CHECK_STATUS(tpcomm_barrier(comms[1], NULL), TPCOMM_ERR_ABORTED);
    CHECK_OK(tpcomm_destroy(comms[1]));
    resources_check_equal(before, "after destroy");
}

/* Memory is complete before a peer can see it: made, used once and destroyed again and again, one rank late at
 * different points. */
static void short_lives(int32_t rank, int32_t size, void *arg) {
    (void)size, (void)arg;
    tpcomm_config_t config = ranks_config();
    resources_t before = resources_now();
    for (int round = 0; round < 200; round++) { /* H17 */
        tpcomm_t *comm = NULL;
        CHECK_OK(tpcomm_init_env(&config, &comm));
        if (round % 20 == 7 && rank == round / 20 % 2) usleep(20000);
        int32_t x = rank + round;
        CHECK_OK(tpcomm_all_reduce(comm, &x, &x, 1, TPCOMM_I32, TPCOMM_SUM, NULL));
        CHECK_EQ(x, 2 * round + 1);
        if (round % 2 == 0) CHECK_OK(tpcomm_finalize(comm));
        CHECK_OK(tpcomm_destroy(comm));
    }
    resources_check_equal(before, "after 200 lives");
}

int main(void) {
    tpcomm_config_t config = ranks_config();
    stalls_watch();
    for (int kind = 0; kind < RANKS_KINDS; kind++) {
        ranks_run(kind, 3, &config, abort_while_waiting, NULL);
        ranks_run(kind, 2, &config, long_reason, NULL);
        ranks_run(kind, 2, &config, odd_reason, NULL);
    }
    ranks_fork(3, destroyed_by_peer, NULL);
    destroyed_while_inside();
    ranks_fork(2, short_lives, NULL);
    ranks_set_hooks("delay@workspace_map:1:30;delay@team/create workspace:0:30");
    ranks_fork(2, destroyed_by_peer, NULL);
    return 0;
}
