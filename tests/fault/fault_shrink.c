/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Check that the ranks which are left after a failure make a group without the lost ones, in the same processes (U4):
 * after deaths, rank 0's too, and one that happens while they meet, at whatever moment and whoever sees it first; after
 * a timeout, by a list; and that a list which makes no sense is refused. The new groups compute exactly; the old ones
 * stay broken.
 */
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "multirank/ranks.h"

/* Sum of world ranks over the members, exactly. */
static void check_sum(tpcomm_t *comm, int32_t world_rank) {
    int32_t ranks[TPCOMM_MAX_RANKS], want = 0, x[1000];
    tpcomm_info_t info = {.struct_size = sizeof info};
    CHECK_OK(tpcomm_comm_info(comm, &info));
    CHECK_OK(tpcomm_group_ranks(comm, ranks, TPCOMM_MAX_RANKS));
    for (int32_t r = 0; r < info.size; r++) want += ranks[r] + 1;
    for (int turn = 0; turn < 50; turn++) {
        for (int i = 0; i < 1000; i++) x[i] = (world_rank + 1) * (i + turn);
        CHECK_OK(tpcomm_all_reduce(comm, x, x, 1000, TPCOMM_I32, TPCOMM_SUM, NULL));
        for (int i = 0; i < 1000; i++) CHECK_EQ(x[i], want * (i + turn));
    }
    CHECK_OK(tpcomm_host_barrier(comm, 0));
}

static pid_t start(int32_t rank, int32_t size, const char *job, void (*fn)(int32_t rank)) {
    fflush(NULL);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid != 0) return pid;
    ranks_set_env(rank, size, job);
    fn(rank);
    _Exit(0);
}

static void run(int32_t size, uint32_t killed, void (*fn)(int32_t rank)) {
    static int jobs;
    char job[64];
    pid_t children[TPCOMM_MAX_RANKS];
    snprintf(job, sizeof job, "shrink-%d-%d", getpid(), jobs++);
    for (int32_t r = 0; r < size; r++) children[r] = start(r, size, job, fn);
    for (int32_t r = 0; r < size; r++) {
        int how = 0;
        CHECK_EQ(waitpid(children[r], &how, 0), children[r]);
        bool right = (killed >> r & 1u) != 0 ? WIFSIGNALED(how) && WTERMSIG(how) == SIGKILL : how == 0;
        if (!right) FAIL("rank %d ended with %#x", r, (unsigned)how);
    }
}

/* Ranks that are behind a call in which others still wait. In shared memory. */
static _Atomic int32_t *behind;

static void await_all(int32_t count) {
    atomic_fetch_add(behind, 1);
    for (int ms = 0; atomic_load(behind) < count; ms++) {
        CHECK(ms < 60000);
        usleep(1000);
    }
}

/* Of five, 0 dies, then 3; the rest go on each time, in groups that they made themselves. */
static void deaths(int32_t rank) {
    static const int32_t dies[] = {0, 3};
    tpcomm_config_t config = ranks_config();
    tpcomm_t *comm = NULL, *smaller = NULL;
    CHECK_OK(tpcomm_init_env(&config, &comm));
    check_sum(comm, rank);
    for (int turn = 0; turn < 2; turn++) {
        await_all(turn == 0 ? 5 : 5 + 4);
        if (rank == dies[turn]) raise(SIGKILL);
        tpcomm_status_t status = TPCOMM_OK;
        while (status == TPCOMM_OK) status = tpcomm_barrier(comm, NULL);
        CHECK_EQ(status, TPCOMM_ERR_PEER_DIED);
        uint64_t begun = tpc_clock_ns();
        CHECK_OK(tpcomm_group_shrink(comm, NULL, 0, &smaller));
        if (tpc_clock_ns() - begun > UINT64_C(20000000000)) FAIL("too late");
        CHECK_STATUS(tpcomm_barrier(comm, NULL), TPCOMM_ERR_PEER_DIED);
        CHECK_OK(tpcomm_destroy(comm));
        comm = smaller;
        tpcomm_info_t info = {.struct_size = sizeof info};
        CHECK_OK(tpcomm_comm_info(comm, &info));
        CHECK_EQ(info.size, 4 - turn);
        CHECK(strcmp(info.name, "world") == 0);
        check_sum(comm, rank);
    }
    CHECK_OK(tpcomm_finalize(comm));
    CHECK_OK(tpcomm_destroy(comm));
}

/* Rank 1's end breaks the group; rank 2 ends a little later, when the others may be waiting for it. */
static void death_while_meeting(int32_t rank) {
    tpcomm_config_t config = ranks_config();
    tpcomm_t *comm = NULL, *smaller = NULL;
    CHECK_OK(tpcomm_init_env(&config, &comm));
    CHECK_OK(tpcomm_barrier(comm, NULL));
    if (rank == 1) raise(SIGKILL);
    CHECK_STATUS(tpcomm_barrier(comm, NULL), TPCOMM_ERR_PEER_DIED);
    if (rank == 2) {
        usleep(300000);
        raise(SIGKILL);
    }
    if (rank == 3) usleep(600000); /* sees both losses at once */
    CHECK_OK(tpcomm_group_shrink(comm, NULL, 0, &smaller));
    check_sum(smaller, rank);
    CHECK_OK(tpcomm_finalize(smaller));
    CHECK_OK(tpcomm_destroy(smaller));
    CHECK_OK(tpcomm_destroy(comm));
}

/* Of five, 4 is lost, and 3 at some moment in which the others meet: some of them know of it sooner than others. */
#define SCENES 40
static bool by_death;
static int scene;
static void some_moment(int32_t rank) {
    tpcomm_config_t config = ranks_config();
    tpcomm_t *comm = NULL, *smaller = NULL;
    uint64_t random = (uint64_t)scene * 100 + (uint64_t)rank;
    CHECK_OK(tpcomm_init_env(&config, &comm));
    CHECK_OK(tpcomm_barrier(comm, NULL));
    while (rank < 4 && tpcomm_async_status(comm, NULL) == TPCOMM_OK) usleep(100);
    usleep((useconds_t)(random_next(&random) % (rank < 3 ? 2000 : 3000)));
    if (rank >= 3 && by_death) raise(SIGKILL);
    if (rank < 3) {
        CHECK_OK(tpcomm_group_shrink(comm, NULL, 0, &smaller));
        check_sum(smaller, rank);
        CHECK_OK(tpcomm_finalize(smaller));
    }
    CHECK_OK(tpcomm_destroy(smaller));
    CHECK_OK(tpcomm_destroy(comm));
}

/* Rank 1 of three is late; the others go on without it. */
static void late(rank_t *rank) {
    tpcomm_t *smaller = NULL;
    const int32_t lost[] = {1}, self[] = {rank->rank}, twice[] = {1, 1}, outside[] = {3}, all[] = {0, 1, 2};
    CHECK_STATUS(tpcomm_group_shrink(rank->comm, self, 1, &smaller), TPCOMM_ERR_INVALID_ARG);
    CHECK_STATUS(tpcomm_group_shrink(rank->comm, outside, 1, &smaller), TPCOMM_ERR_INVALID_ARG);
    CHECK_STATUS(tpcomm_group_shrink(rank->comm, all, 3, &smaller), TPCOMM_ERR_INVALID_ARG);
    CHECK_STATUS(tpcomm_group_shrink(rank->comm, NULL, 1, &smaller), TPCOMM_ERR_INVALID_ARG);
    CHECK_STATUS(tpcomm_group_shrink(rank->comm, lost, 0, &smaller), TPCOMM_ERR_INVALID_ARG);
    CHECK_STATUS(tpcomm_group_shrink(NULL, NULL, 0, &smaller), TPCOMM_ERR_INVALID_ARG);
    CHECK_STATUS(tpcomm_group_shrink(rank->comm, NULL, 0, NULL), TPCOMM_ERR_INVALID_ARG);
    CHECK_OK(tpcomm_set_op_timeout(rank->comm, 500));
    if (rank->rank == 1) {
        ranks_await_failure(rank->comm);
        CHECK_STATUS(tpcomm_barrier(rank->comm, NULL), TPCOMM_ERR_TIMEOUT);
        return;
    }
    CHECK_STATUS(tpcomm_barrier(rank->comm, NULL), TPCOMM_ERR_TIMEOUT);
    CHECK_OK(tpcomm_group_shrink(rank->comm, rank->rank == 0 ? lost : twice, rank->rank == 0 ? 1 : 2, &smaller));
    check_sum(smaller, rank->rank);
    CHECK_STATUS(tpcomm_barrier(rank->comm, NULL), TPCOMM_ERR_TIMEOUT);
    CHECK_OK(tpcomm_finalize(smaller));
    CHECK_OK(tpcomm_destroy(smaller));
}

/* Nobody is lost: the same group again, beside the one that there is; rank 1 alone leaves another one out. */
static void nobody(rank_t *rank) {
    tpcomm_t *again = NULL;
    CHECK_OK(tpcomm_group_shrink(rank->comm, NULL, 0, &again));
    check_sum(again, rank->rank);
    check_sum(rank->comm, rank->rank);
    CHECK_OK(tpcomm_finalize(again));
    CHECK_OK(tpcomm_destroy(again));
}

static void other_lists(rank_t *rank) {
    tpcomm_t *smaller = NULL;
    const int32_t lost[] = {2};
    if (rank->rank == 2) return;
    tpcomm_status_t status =
        tpcomm_group_shrink(rank->comm, rank->rank == 0 ? lost : NULL, rank->rank == 0 ? 1 : 0, &smaller);
    if (status != TPCOMM_ERR_MISMATCH) CHECK_EQ(status, TPCOMM_ERR_TIMEOUT); /* whoever looks again finds nobody */
    CHECK(smaller == NULL);
}

int main(void) {
    tpcomm_config_t config = ranks_config();
    behind = mmap(NULL, sizeof *behind, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(behind != MAP_FAILED);
    run(5, 1u << 0 | 1u << 3, deaths);
    run(4, 1u << 1 | 1u << 2, death_while_meeting);
    for (scene = 0; scene < SCENES; scene++) {
        by_death = scene % 2 == 0;
        run(5, by_death ? 1u << 3 | 1u << 4 : 0, some_moment);
    }
    for (int kind = 0; kind < RANKS_KINDS; kind++) {
        ranks_run(kind, 3, &config, late, NULL);
        ranks_run(kind, 3, &config, nobody, NULL);
    }
    config.init_timeout_ms = 4000;
    ranks_run(RANKS_THREADS, 3, &config, other_lists, NULL);
    return 0;
}
