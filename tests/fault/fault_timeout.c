/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Check that a wait which has lasted op_timeout_ms is a failure on every rank, with the call and who was waited for
 * (U1, U2, U6, H10), that all later calls of any kind end at once, and that the same processes then make a new group
 * that works (U4). Also: a raised timeout holds for a wait that has begun, and config.interrupted ends a wait.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "multirank/ranks.h"
#include "multirank/stalls.h"

/* What ranks tell each other beside the library, so that a limit is short only where nothing is left but what is to run
 * into it. In shared memory. */
static struct {
    _Atomic int32_t met;
    _Atomic uint64_t begun_ns[2];
    moment_t limited;
    _Atomic int is_limited;
    bool in_time;
    tpcomm_status_t status[2];
} * board;

static void meet(const rank_t *rank, int32_t times) {
    atomic_fetch_add(&board->met, 1);
    for (int ms = 0; atomic_load(&board->met) < times * rank->size; ms++) {
        CHECK(ms < 60000);
        usleep(1000);
    }
}

static void limit(tpcomm_t *comm, uint32_t ms) {
    board->limited = moment_now();
    atomic_store(&board->is_limited, 1);
    CHECK_OK(tpcomm_set_op_timeout(comm, ms));
}

static moment_t limited(void) {
    CHECK_EQ(atomic_load(&board->is_limited), 1);
    return board->limited;
}

static void late_rank(rank_t *rank) {
    float x[8] = {1};
    for (int i = 0; i < 6; i++) CHECK_OK(tpcomm_all_reduce(rank->comm, x, x, 8, TPCOMM_F32, TPCOMM_SUM, NULL));
    CHECK_OK(tpcomm_barrier(rank->comm, NULL));
    meet(rank, 1);
    if (rank->rank == 2) { /* the others wait for me alone */
        for (int32_t r = 0; r < 2; r++) ranks_await_call(rank->comm, r, 8);
        limit(rank->comm, 1000);
        ranks_await_failure(rank->comm);
    } else {
        atomic_store(&board->begun_ns[rank->rank], tpc_clock_ns());
    }
    moment_t start = moment_now();
    CHECK_STATUS(tpcomm_all_reduce(rank->comm, x, x, 8, TPCOMM_F32, TPCOMM_SUM, NULL), TPCOMM_ERR_TIMEOUT);
    uint64_t end_ns = tpc_clock_ns();
    if (rank->rank == 2) {
        CHECK_WITHIN(start, 500);
    } else {
        uint64_t first = atomic_load(&board->begun_ns[0]), second = atomic_load(&board->begun_ns[1]);
        CHECK(end_ns - (first < second ? first : second) >= 1000000000u);
        CHECK_WITHIN(limited(), 3000);
    }
    CHECK_ERROR_HAS("all_reduce seq 8 count 8 f32 sum");
    CHECK_ERROR_HAS("waiting for rank 2 (last seq 7)");
    CHECK_ERROR_HAS("world");
    CHECK(strstr(tpcomm_last_error(), "memory") == NULL && strstr(tpcomm_last_error(), "shm") == NULL); /* U6 */
    tpcomm_error_t error = {.struct_size = sizeof error};
    CHECK_STATUS(tpcomm_async_status(rank->comm, &error), TPCOMM_ERR_TIMEOUT);
    CHECK_EQ(error.rank, 2);
    CHECK_EQ(error.coll, TPCOMM_ALL_REDUCE);
    CHECK_EQ(error.seq, 8);
    start = moment_now();
    CHECK_STATUS(tpcomm_barrier(rank->comm, NULL), TPCOMM_ERR_TIMEOUT);
    CHECK_STATUS(tpcomm_all_reduce(rank->comm, x, x, 1, TPCOMM_F32, TPCOMM_MAX, NULL), TPCOMM_ERR_TIMEOUT);
    CHECK_WITHIN(start, 1000);
}

/* Calls that do not fit, with the comparison that would tell off: whoever waits for more ends at the deadline, and then
 * all do. */
static void unequal(rank_t *rank) {
    static float x[40000];
    tpcomm_status_t first =
        tpcomm_all_reduce(rank->comm, x, x, rank->rank == 0 ? 40000 : 20000, TPCOMM_F32, TPCOMM_SUM, NULL);
    if (rank->rank == 0) {
        CHECK_EQ(first, TPCOMM_ERR_TIMEOUT);
        CHECK_ERROR_HAS("waiting for rank 1 (last seq 1)");
    } else {
        CHECK_EQ(first, TPCOMM_OK);
        limit(rank->comm, 1500);
        ranks_await_failure(rank->comm);
    }
    CHECK_WITHIN(limited(), 5000);
    moment_t start = moment_now();
    CHECK_STATUS(tpcomm_barrier(rank->comm, NULL), TPCOMM_ERR_TIMEOUT);
    CHECK_WITHIN(start, 1000);
}

/* A failure inside one rank's call is every rank's. */
static void fails_inside(rank_t *rank) {
    float x[8] = {1};
    for (int i = 0; i < 4; i++) CHECK_OK(tpcomm_all_reduce(rank->comm, x, x, 8, TPCOMM_F32, TPCOMM_SUM, NULL));
    tpcomm_status_t fifth = tpcomm_all_reduce(rank->comm, x, x, 8, TPCOMM_F32, TPCOMM_SUM, NULL);
    if (rank->rank == 1) CHECK_EQ(fifth, TPCOMM_ERR_PEER_FAILED); /* the others may have finished theirs */
    CHECK_STATUS(tpcomm_barrier(rank->comm, NULL), TPCOMM_ERR_PEER_FAILED);
    CHECK_ERROR_HAS("rank 1 failed in all_reduce seq 5");
}

static void in_one_process_again(int32_t rank, int32_t size, void *arg) {
    (void)arg;
    resources_t before = resources_now();
    for (int round = 0; round < 3; round++) {
        tpcomm_config_t config = {.struct_size = sizeof config, .init_timeout_ms = 30000, .op_timeout_ms = 300};
        tpcomm_t *comm = NULL;
        CHECK_OK(tpcomm_init_env(&config, &comm));
        if (rank == 0) ranks_await_failure(comm);
        CHECK_STATUS(tpcomm_barrier(comm, NULL), TPCOMM_ERR_TIMEOUT);
        CHECK_OK(tpcomm_destroy(comm));
        resources_check_equal(before, "after a timeout");
    }
    tpcomm_t *comm = NULL;
    tpcomm_config_t config = ranks_config();
    CHECK_OK(tpcomm_init_env(&config, &comm));
    int32_t one = 1;
    CHECK_OK(tpcomm_all_reduce(comm, &one, &one, 1, TPCOMM_I32, TPCOMM_SUM, NULL));
    CHECK_EQ(one, size);
    CHECK_OK(tpcomm_finalize(comm));
    CHECK_OK(tpcomm_destroy(comm));
}

/* A limit is raised while rank 0 waits: in time, where less than the old one has passed since before the wait. */
static void longer_while_waiting(rank_t *rank) {
    CHECK_OK(tpcomm_barrier(rank->comm, NULL));
    meet(rank, 1);
    if (rank->rank == 0) {
        meet(rank, 2);
        board->status[0] = tpcomm_barrier(rank->comm, NULL);
        return;
    }
    uint64_t before_ns = tpc_clock_ns();
    limit(rank->comm, 1000);
    meet(rank, 2);
    ranks_await_call(rank->comm, 0, 2);
    usleep(300000);
    board->status[1] = tpcomm_set_op_timeout(rank->comm, 30000);
    board->in_time = tpc_clock_ns() - before_ns < 1000000000u;
    if (board->in_time) usleep(1700000);
    if (board->status[1] == TPCOMM_OK) board->status[1] = tpcomm_barrier(rank->comm, NULL);
}

/* Where the machine stopped for so long that it was not raised in time, nothing is known. */
static void check_longer(int kind, const tpcomm_config_t *config) {
    for (int turn = 0; turn < 20; turn++) {
        memset(board, 0, sizeof *board);
        ranks_run(kind, 2, config, longer_while_waiting, NULL);
        if (!board->in_time) continue;
        for (int r = 0; r < 2; r++) CHECK_EQ(board->status[r], TPCOMM_OK);
        return;
    }
    FAIL("this machine stops all the time");
}

static _Atomic int asked;
static int32_t stop_please(void *arg) {
    return *(int *)arg != 0 && ++asked > 2;
}

static void *wait_forever(void *arg) {
    CHECK_STATUS(tpcomm_barrier(arg, NULL), TPCOMM_ERR_INTERRUPTED);
    CHECK_ERROR_HAS("interrupted");
    return NULL;
}

static void interrupted(void) {
    int active = 0;
    tpcomm_t *comms[2];
    tpcomm_config_t config = ranks_config();
    config.interrupted = stop_please;
    config.interrupted_arg = &active;
    CHECK_OK(tpcomm_init_local(2, NULL, &config, comms));
    active = 1;
    pthread_t thread;
    CHECK_EQ(pthread_create(&thread, NULL, wait_forever, comms[0]), 0);
    CHECK_EQ(pthread_join(thread, NULL), 0);
    CHECK_STATUS(tpcomm_barrier(comms[1], NULL), TPCOMM_ERR_INTERRUPTED);
    CHECK_OK(tpcomm_destroy(comms[0]));
    CHECK_OK(tpcomm_destroy(comms[1]));
}

int main(void) {
    tpcomm_config_t config = ranks_config();
    stalls_watch();
    board = mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(board != MAP_FAILED);
    for (int kind = 0; kind < RANKS_KINDS; kind++) {
        ranks_set_hooks("");
        memset(board, 0, sizeof *board);
        ranks_run(kind, 3, &config, late_rank, NULL);
        check_longer(kind, &config);
    }
    tpcomm_config_t small = config;
    small.workspace_bytes = 65536;
    ranks_set_hooks("set@no_compare:1");
    for (int kind = 0; kind < RANKS_KINDS; kind++) /* threads race there by their caller's fault */
        if (!TEST_TSAN || kind != RANKS_THREADS) {
            memset(board, 0, sizeof *board);
            ranks_run(kind, 2, &small, unequal, NULL);
        }
    ranks_set_hooks("fail@reduce:1:5");
    ranks_run(RANKS_PROCESSES, 2, &config, fails_inside, NULL);
    ranks_run(RANKS_PROCESSES, 3, &config, fails_inside, NULL);
    ranks_set_hooks("");
    ranks_fork(2, in_one_process_again, NULL);
    interrupted();
    return 0;
}
