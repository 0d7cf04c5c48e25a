/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Check a world of two hosts with two ranks each, as processes and as threads that say so: groups within a host
 * compute; a group across hosts has host messages of any size and no data path, and says who is where; meshes put tp
 * inside and dp across; a failure, an abort with its reason, a death, a late or different rank is the same on every
 * rank of every host, and in time; nothing is left.
 */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "multirank/ranks.h"
#include "multirank/stalls.h"

#define SIZE    4
#define SOON_MS 4000u

/* What each rank was told, in memory that all of them share. */
static struct {
    _Atomic int32_t arrived[64];
    char text[SIZE][1024];
    tpcomm_status_t status[SIZE];
} * board;

static void meet(int point) {
    atomic_fetch_add(&board->arrived[point], 1);
    for (int ms = 0; atomic_load(&board->arrived[point]) < SIZE; ms++) {
        if (ms > 60000) FAIL("the others did not come to point %d", point);
        usleep(1000);
    }
}

static tpcomm_t *make(tpcomm_t *parent, int32_t a, int32_t b, const char *name) {
    tpcomm_t *group = NULL;
    CHECK_OK(tpcomm_group_create(parent, (int32_t[]){a, b}, 2, name, &group));
    return group;
}

static void end(tpcomm_t *group) {
    if (group == NULL) return;
    CHECK_OK(tpcomm_finalize(group));
    CHECK_OK(tpcomm_destroy(group));
}

static void same_on_all(rank_t *rank, int point, tpcomm_status_t want) {
    tpcomm_error_t error = {.struct_size = sizeof error};
    CHECK_STATUS(tpcomm_async_status(rank->comm, &error), want);
    CHECK_EQ(tpcomm_async_status(rank->comm, NULL), want);
    snprintf(board->text[rank->rank], sizeof board->text[0], "%s", error.text);
    meet(point);
    for (int32_t r = 0; r < SIZE; r++)
        if (strcmp(board->text[r], board->text[0]) != 0)
            FAIL("rank 0 was told: %s; rank %d: %s", board->text[0], r, board->text[r]);
    meet(point + 1);
}

/* ------------------------------------------------------------------ what works */

static void messages(tpcomm_t *comm, int32_t me, int32_t size) {
    static const size_t sizes[] = {0, 1, 4096, 100003, 4500001};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        size_t bytes = sizes[s];
        unsigned char *data = malloc(bytes + 1), *all = malloc(bytes * (size_t)size + 1);
        CHECK(data != NULL && all != NULL);
        for (int32_t root = 0; root < size; root++) {
            for (size_t i = 0; i < bytes; i++) data[i] = (unsigned char)(i * 7 + (i >> 12) + (size_t)me);
            CHECK_OK(tpcomm_host_broadcast(comm, data, bytes, root, 0));
            for (size_t i = 0; i < bytes; i++)
                if (data[i] != (unsigned char)(i * 7 + (i >> 12) + (size_t)root))
                    FAIL("broadcast of %zu at %zu", bytes, i);
        }
        for (int in_place = 0; in_place < 2; in_place++) {
            unsigned char *mine = in_place ? all + bytes * (size_t)me : data;
            for (size_t i = 0; i < bytes; i++) mine[i] = (unsigned char)(i * 3 + (i >> 11) + (size_t)me);
            CHECK_OK(tpcomm_host_all_gather(comm, mine, all, bytes, 30000));
            for (int32_t r = 0; r < size; r++)
                for (size_t i = 0; i < bytes; i++)
                    if (all[(size_t)r * bytes + i] != (unsigned char)(i * 3 + (i >> 11) + (size_t)r))
                        FAIL("all_gather of %zu: rank %d at %zu", bytes, r, i);
        }
        CHECK_OK(tpcomm_host_barrier(comm, 0));
        free(data);
        free(all);
    }
}

/* A group across hosts carries no data, says so at once and is none the worse. */
static void no_data_path(tpcomm_t *group, const char *where) {
    float x = 1;
    tpcomm_call_t call = {.struct_size = sizeof call,
                          .coll = TPCOMM_ALL_REDUCE,
                          .dtype = TPCOMM_F32,
                          .op = TPCOMM_SUM,
                          .in = &x,
                          .out = &x,
                          .count = 1};
    tpcomm_decision_t decision = {.struct_size = sizeof decision};
    tpcomm_info_t info = {.struct_size = sizeof info};
    CHECK_STATUS(tpcomm_call(group, &call, NULL), TPCOMM_ERR_NO_TRANSPORT);
    CHECK_ERROR_HAS(where);
    CHECK_ERROR_HAS("the ranks are on several hosts and share no memory");
    CHECK_STATUS(tpcomm_explain(group, &call, &decision), TPCOMM_ERR_NO_TRANSPORT);
    CHECK_ERROR_HAS(where);
    CHECK_STATUS(tpcomm_barrier(group, NULL), TPCOMM_ERR_NO_TRANSPORT);
    CHECK_OK(tpcomm_comm_info(group, &info));
    CHECK(strcmp(info.topology, "multi_host") == 0);
    CHECK(strstr(info.paths, "several hosts") != NULL);
    CHECK_OK(tpcomm_async_status(group, NULL));
}

static int32_t sum(tpcomm_t *group, int32_t value) {
    CHECK_OK(tpcomm_all_reduce(group, &value, &value, 1, TPCOMM_I32, TPCOMM_SUM, NULL));
    return value;
}

static void works(rank_t *rank) {
    int32_t me = rank->rank, host = me / 2;
    messages(rank->comm, me, SIZE);
    no_data_path(rank->comm, "ranks 0, 1 on host 'host0'; 2, 3 on host 'host1'");
    for (int32_t r = 0; r < SIZE; r++) {
        tpcomm_rank_info_t info = {.struct_size = sizeof info};
        CHECK_OK(tpcomm_rank_info(rank->comm, r, &info));
        CHECK(strcmp(info.host, r < 2 ? "host0" : "host1") == 0);
        CHECK(info.pid > 0);
    }
    tpcomm_t *tp = make(rank->comm, 2 * host, 2 * host + 1, "tp"), *dp = make(rank->comm, me % 2, me % 2 + 2, "dp");
    for (int i = 0; i < 100; i++) CHECK_EQ(sum(tp, me + i), 4 * host + 1 + 2 * i);
    messages(dp, host, 2);
    no_data_path(dp, "ranks 0 on host 'host0'; 1 on host 'host1'");
    end(dp);
    end(tp);

    tpcomm_mesh_config_t shape = {.struct_size = sizeof shape, .tp = 2, .dp = 2};
    tpcomm_mesh_t *mesh = NULL;
    CHECK_OK(tpcomm_mesh_create(rank->comm, &shape, &mesh));
    CHECK_OK(tpcomm_mesh_group(mesh, "tp", &tp));
    CHECK_OK(tpcomm_mesh_group(mesh, "dp", &dp));
    CHECK_EQ(sum(tp, 1 << me), host == 0 ? 3 : 12);
    int32_t both[2];
    CHECK_OK(tpcomm_host_all_gather(dp, &me, both, sizeof me, 0));
    CHECK_EQ(both[1] - both[0], 2);
    CHECK_OK(tpcomm_mesh_finalize(mesh));
    CHECK_OK(tpcomm_mesh_destroy(mesh));

    tpcomm_t *group = NULL; /* across hosts, in an order that goes to and fro */
    CHECK_OK(tpcomm_group_split(rank->comm, 0, me % 2 * 10 + me, "mixed", &group));
    int32_t all[SIZE], ranks[SIZE];
    CHECK_OK(tpcomm_host_all_gather(group, &me, all, sizeof me, 0));
    CHECK_OK(tpcomm_group_ranks(group, ranks, SIZE));
    CHECK(memcmp(all, ranks, sizeof all) == 0);
    CHECK_EQ(ranks[1], 2);
    end(group);
}

/* ------------------------------------------------------------------ placement */

static void keep_warning(void *arg, int32_t level, const char *subsystem, const char *line) {
    (void)level, (void)subsystem;
    if (strstr(line, "crosses hosts") != NULL) snprintf(arg, 1024, "%s", line);
}

/* The log is the process's: of threads, one is told by another's. */
static void tp_across(rank_t *rank) {
    static char line[1024];
    bool processes = rank->arg != NULL;
    if (processes || rank->rank == 0) CHECK_OK(tpcomm_log_set(keep_warning, line, TPCOMM_LOG_WARN));
    meet(0);
    tpcomm_mesh_config_t shape = {.struct_size = sizeof shape, .tp = 4};
    tpcomm_mesh_t *mesh = NULL;
    CHECK_OK(tpcomm_mesh_create(rank->comm, &shape, &mesh));
    if (rank->rank == 0) {
        if (strstr(line, "world ranks 0, 1 on host 'host0'; 2, 3 on host 'host1'.") == NULL) FAIL("warned: %s", line);
        CHECK(strstr(line, "tp (4)") != NULL && strstr(line, "(2 on this one)") != NULL);
    }
    CHECK_OK(tpcomm_mesh_finalize(mesh));
    CHECK_OK(tpcomm_mesh_destroy(mesh));
    meet(1);
    if (processes || rank->rank == 0) CHECK_OK(tpcomm_log_set(NULL, NULL, TPCOMM_LOG_WARN));
}

/* ------------------------------------------------------------------ what fails */

/* Three seconds, so that nobody else is late. */
static void late(rank_t *rank) {
    CHECK_OK(tpcomm_host_barrier(rank->comm, 0));
    meet(2);
    if (rank->rank == 3) ranks_await_failure(rank->comm);
    CHECK_STATUS(tpcomm_host_barrier(rank->comm, 3000), TPCOMM_ERR_TIMEOUT);
    CHECK_ERROR_HAS("'host barrier seq 2' ended after");
    CHECK_ERROR_HAS("missing ranks: 3");
    same_on_all(rank, 0, TPCOMM_ERR_TIMEOUT);
}

static void different(rank_t *rank) {
    char x[16] = {0};
    CHECK_STATUS(tpcomm_host_broadcast(rank->comm, x, rank->rank == 2 ? 16 : 8, 0, 0), TPCOMM_ERR_MISMATCH);
    CHECK_ERROR_HAS("host broadcast seq 1 count 8 u8 root 0");
    CHECK_ERROR_HAS("host broadcast seq 1 count 16 u8 root 0");
    same_on_all(rank, 0, TPCOMM_ERR_MISMATCH);
}

/* One aborts; the others wait in a message, compute, or do nothing at all. */
static void aborted(rank_t *rank) {
    meet(0);
    moment_t start = moment_now();
    if (rank->rank == 3) {
        usleep(200000);
        CHECK_OK(tpcomm_abort(rank->comm, "out of patience"));
    } else if (rank->rank == 1) {
        while (tpcomm_async_status(rank->comm, NULL) == TPCOMM_OK) usleep(1000);
    } else {
        CHECK_STATUS(tpcomm_host_barrier(rank->comm, 0), TPCOMM_ERR_ABORTED);
    }
    CHECK_WITHIN(start, SOON_MS);
    CHECK_STATUS(tpcomm_host_barrier(rank->comm, 0), TPCOMM_ERR_ABORTED);
    CHECK_ERROR_HAS("tpcomm_abort by rank 3: out of patience");
    same_on_all(rank, 1, TPCOMM_ERR_ABORTED);
}

/* Several at once, on both hosts: one account counts. */
static void at_once(rank_t *rank) {
    char reason[32];
    snprintf(reason, sizeof reason, "reason of rank %d", rank->rank);
    CHECK_OK(tpcomm_host_barrier(rank->comm, 0));
    meet(0);
    if (rank->rank != 0) CHECK_OK(tpcomm_abort(rank->comm, reason));
    while (tpcomm_async_status(rank->comm, NULL) == TPCOMM_OK) usleep(100);
    same_on_all(rank, 1, TPCOMM_ERR_ABORTED);
}

/* Only groups with a member that failed are broken. */
static void of_one_group(rank_t *rank) {
    int32_t me = rank->rank;
    tpcomm_t *dp = make(rank->comm, me % 2, me % 2 + 2, "dp");
    if (me == 2) CHECK_OK(tpcomm_abort(dp, "only this one"));
    if (me % 2 == 0) {
        CHECK_STATUS(tpcomm_host_barrier(dp, 0), TPCOMM_ERR_ABORTED);
        CHECK_ERROR_HAS("only this one");
        CHECK_OK(tpcomm_destroy(dp));
    } else {
        CHECK_OK(tpcomm_host_barrier(dp, 0));
        end(dp);
    }
    CHECK_OK(tpcomm_host_barrier(rank->comm, 0));
    dp = make(rank->comm, me % 2, me % 2 + 2, "dp"); /* and can be made again */
    CHECK_OK(tpcomm_host_barrier(dp, 0));
    end(dp);
    CHECK_OK(tpcomm_host_barrier(rank->comm, 0));
}

static void destroyed(rank_t *rank) {
    tpcomm_t *group = NULL;
    CHECK_OK(tpcomm_group_split(rank->comm, 0, rank->rank, "all", &group));
    meet(0); /* all have it */
    if (rank->rank == 2) {
        CHECK_OK(tpcomm_destroy(group));
    } else {
        CHECK_STATUS(tpcomm_host_barrier(group, 0), TPCOMM_ERR_ABORTED);
        CHECK_ERROR_HAS("rank 2 destroyed its communicator without finalizing");
        CHECK_OK(tpcomm_destroy(group));
    }
    CHECK_OK(tpcomm_host_barrier(rank->comm, 0));
}

/* ------------------------------------------------------------------ running */

static const char *root;

/* Who has all that a message brought may go at once; the others still get theirs. */
static void gone_behind_message(rank_t *rank) {
    for (int turn = 0; turn < 18; turn++) {
        tpcomm_t *group = NULL;
        int32_t data = rank->rank == 1 ? 100 + turn : 0, all[SIZE];
        CHECK_OK(tpcomm_group_create(rank->comm, (int32_t[]){0, 1, 2, 3}, SIZE, "passing", &group));
        if (turn % 3 == 0)
            CHECK_OK(tpcomm_host_barrier(group, 0));
        else if (turn % 3 == 1)
            CHECK_OK(tpcomm_host_broadcast(group, &data, sizeof data, 1, 0));
        else
            CHECK_OK(tpcomm_host_all_gather(group, &data, all, sizeof data, 0));
        CHECK(turn % 3 != 1 || data == 100 + turn);
        CHECK_OK(tpcomm_destroy(group));
    }
}

static void join_as(int32_t rank, tpcomm_t **comm_p) {
    char host[16];
    snprintf(host, sizeof host, "host%d", rank / 2);
    CHECK_EQ(setenv("TPCOMM_HOST_ID", host, 1), 0);
    CHECK_EQ(setenv("TPCOMM_ROOT", root, 1), 0);
    unsetenv("TPCOMM_LOCAL_RANK"); /* a launcher on several hosts would say other numbers, or none */
    unsetenv("TPCOMM_LOCAL_SIZE");
    tpcomm_config_t config = ranks_config();
    CHECK_OK(tpcomm_init_env(&config, comm_p));
}

static void process(int32_t rank, int32_t size, void *arg) {
    rank_fn fn = *(rank_fn *)arg;
    resources_t before = resources_now();
    rank_t self = {.rank = rank, .size = size, .arg = arg};
    join_as(rank, &self.comm);
    fn(&self);
    if (tpcomm_async_status(self.comm, NULL) == TPCOMM_OK) CHECK_OK(tpcomm_finalize(self.comm));
    CHECK_OK(tpcomm_destroy(self.comm));
    resources_check_equal(before, "after a world of two hosts");
}

static void scene(const char *name, rank_fn fn) {
    tpcomm_config_t config = ranks_config();
    uint64_t start = tpc_clock_ns();
    root = ranks_hold_root();
    memset(board, 0, sizeof *board);
    ranks_fork(SIZE, process, &fn);
    memset(board, 0, sizeof *board);
    resources_t before = resources_now();
    ranks_set_hooks("set@threads_per_host:2");
    ranks_run(RANKS_THREADS, SIZE, &config, fn, NULL);
    ranks_set_hooks("");
    resources_check_equal(before, "after threads of two hosts");
    printf("%s: %llu ms\n", name, (unsigned long long)((tpc_clock_ns() - start) / 1000000u));
    fflush(stdout);
}

/* ------------------------------------------------------------------ names */

#define MANY 9

/* Long names, alike but for their ends, with what no text should hold: each text is whole to its end. */
static void names(int32_t rank, int32_t size, void *arg) {
    tpcomm_t *world = NULL;
    char host[96];
    float x = 1;
    (void)size, (void)arg;
    snprintf(host, sizeof host, "cluster-of-many-racks.a-building.a-town\n.example.org-node-%03d", rank);
    CHECK(strlen(host) < 64);
    CHECK_EQ(setenv("TPCOMM_HOST_ID", host, 1), 0);
    CHECK_EQ(setenv("TPCOMM_ROOT", root, 1), 0);
    unsetenv("TPCOMM_LOCAL_RANK");
    unsetenv("TPCOMM_LOCAL_SIZE");
    tpcomm_config_t config = ranks_config();
    CHECK_OK(tpcomm_init_env(&config, &world));
    CHECK_STATUS(tpcomm_all_reduce(world, &x, &x, 1, TPCOMM_F32, TPCOMM_SUM, NULL), TPCOMM_ERR_NO_TRANSPORT);
    CHECK(strchr(tpcomm_last_error(), '\n') == NULL);
    CHECK_ERROR_HAS("group 'world' spans hosts (ranks 0 on host '...");
    CHECK_ERROR_HAS("; 8 on host '...");
    CHECK_ERROR_HAS("'): ");
    CHECK_ERROR_HAS("the ranks are on several hosts and share no memory");
    for (int32_t r = 0; r < MANY; r++) {
        tpcomm_rank_info_t info = {.struct_size = sizeof info};
        CHECK_OK(tpcomm_rank_info(world, r, &info));
        CHECK(strncmp(info.host, "cluster-of-many-racks.a-building.a-town?.", 41) == 0);
        CHECK(strchr(info.host, '\n') == NULL);
    }
    CHECK_OK(tpcomm_host_barrier(world, 0)); /* the group goes on */
    CHECK_OK(tpcomm_async_status(world, NULL));
    CHECK_OK(tpcomm_finalize(world));
    CHECK_OK(tpcomm_destroy(world));
}

/* ------------------------------------------------------------------ a process that dies */

static void survivor(int32_t rank, int32_t size, void *arg) {
    tpcomm_t *world = NULL;
    (void)size, (void)arg;
    join_as(rank, &world);
    tpcomm_t *tp = make(world, rank / 2 * 2, rank / 2 * 2 + 1, "tp"), *dp = make(world, rank % 2, rank % 2 + 2, "dp"),
             *firsts = make(world, 0, 2, "firsts"), *cross = make(world, 0, 3, "cross");
    CHECK_OK(tpcomm_host_barrier(world, 0));
    meet(0); /* nobody is in it any more */
    if (rank == 3) {
        kill(getpid(), SIGKILL);
        for (;;) pause();
    }
    moment_t start = moment_now();
    /* Nobody calls anything here but rank 0: the others are told all the same. */
    if (rank == 0) {
        CHECK_STATUS(tpcomm_host_barrier(world, 0), TPCOMM_ERR_PEER_DIED);
        CHECK_ERROR_HAS("rank 3");
        CHECK_STATUS(tpcomm_host_barrier(cross, 0), TPCOMM_ERR_PEER_DIED);
    }
    tpcomm_t *broken[] = {world, rank == 2 ? tp : rank == 1 ? dp : NULL};
    for (int i = 0; i < 2; i++) {
        if (broken[i] == NULL) continue;
        while (tpcomm_async_status(broken[i], NULL) == TPCOMM_OK) {
            CHECK_WITHIN(start, SOON_MS);
            usleep(1000);
        }
        CHECK_STATUS(tpcomm_async_status(broken[i], NULL), TPCOMM_ERR_PEER_DIED);
    }
    CHECK_WITHIN(start, SOON_MS);
    if (rank < 2) CHECK_EQ(sum(tp, rank), 1); /* without the one who died */
    if (firsts != NULL) CHECK_OK(tpcomm_host_barrier(firsts, 0));
    if (rank < 2) end(tp);
    if (rank % 2 == 0) end(dp);
    end(firsts);
    if (rank == 2) CHECK_OK(tpcomm_destroy(tp));
    if (rank % 2 == 1) CHECK_OK(tpcomm_destroy(dp));
    CHECK_OK(tpcomm_destroy(cross));
    CHECK_OK(tpcomm_destroy(world));
}

static void death(void) {
    char job[64];
    pid_t pids[SIZE];
    snprintf(job, sizeof job, "hosts-death-%d", getpid());
    root = ranks_hold_root();
    memset(board, 0, sizeof *board);
    fflush(NULL);
    for (int32_t r = 0; r < SIZE; r++) {
        pids[r] = fork();
        CHECK(pids[r] >= 0);
        if (pids[r] != 0) continue;
        ranks_set_env(r, SIZE, job);
        survivor(r, SIZE, NULL);
        fflush(NULL);
        _Exit(0);
    }
    for (int32_t r = 0; r < SIZE; r++) {
        int how = 0;
        CHECK_EQ(waitpid(pids[r], &how, 0), pids[r]);
        if (r != 3) CHECK(WIFEXITED(how) && WEXITSTATUS(how) == 0);
    }
}

int main(void) {
    board = mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(board != MAP_FAILED);
    stalls_watch();
    scene("works", works);
    scene("tp across", tp_across);
    scene("late", late);
    scene("different", different);
    scene("aborted", aborted);
    for (int i = 0; i < 5; i++) scene("at once", at_once);
    scene("of one group", of_one_group);
    scene("destroyed", destroyed);
    scene("gone behind a message", gone_behind_message);
    root = ranks_hold_root();
    ranks_fork(MANY, names, NULL);
    death();
    return 0;
}
