/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Check that every way in makes a world that works and leaves nothing behind: launcher variables, unique id, the
 * caller's all-gather, threads; one after the other, several at once in one job, and again after destroy without
 * finalize.
 */
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include "multirank/ranks.h"

static void use(tpcomm_t *comm, int32_t rank, int32_t size, int32_t salt) {
    int32_t in = rank + salt, out = -1;
    CHECK_OK(tpcomm_all_reduce(comm, &in, &out, 1, TPCOMM_I32, TPCOMM_SUM, NULL));
    CHECK_EQ(out, size * (size - 1) / 2 + salt * size);
}

/* ------------------------------------------------------------------ launcher variables */

static void by_env(int32_t rank, int32_t size, void *arg) {
    (void)arg;
    tpcomm_config_t config = ranks_config();
    resources_t before = resources_now();
    for (int round = 0; round < 20; round++) { /* destroy and init again in the same processes */
        tpcomm_t *comm = NULL;
        CHECK_OK(tpcomm_init_env(&config, &comm));
        tpcomm_info_t info = {.struct_size = sizeof info};
        CHECK_OK(tpcomm_comm_info(comm, &info));
        CHECK_EQ(info.rank, rank);
        CHECK_EQ(info.size, size);
        CHECK(strstr(info.launcher, "TPCOMM_RANK") != NULL);
        use(comm, rank, size, round);
        CHECK_OK(tpcomm_finalize(comm));
        CHECK_OK(tpcomm_destroy(comm));
    }
    resources_check_equal(before, "after 20 worlds");
    enum { AT_ONCE = 8 }; /* H4 */
    tpcomm_t *comms[AT_ONCE];
    for (int i = 0; i < AT_ONCE; i++) CHECK_OK(tpcomm_init_env(&config, &comms[i]));
    for (int round = 0; round < 50; round++)
        for (int i = 0; i < AT_ONCE; i++) use(comms[i], rank, size, i * 100 + round);
    for (int i = 0; i < AT_ONCE; i++) CHECK_OK(tpcomm_finalize(comms[i]));
    for (int i = 0; i < AT_ONCE; i++) CHECK_OK(tpcomm_destroy(comms[i]));
    resources_check_equal(before, "after 8 worlds at once");
}

/* ------------------------------------------------------------------ unique id, sent through a pipe */

typedef struct {
    int pipe[2];
} id_arg_t;

static void by_id(int32_t rank, int32_t size, void *arg) {
    id_arg_t *ids = arg;
    tpcomm_unique_id_t id;
    tpcomm_t *comm = NULL;
    tpcomm_config_t config = ranks_config();
    if (rank == 0) {
        CHECK_OK(tpcomm_unique_id_create(&id));
        for (int32_t r = 1; r < size; r++) CHECK_EQ(write(ids->pipe[1], &id, sizeof id), (ssize_t)sizeof id);
    } else {
        CHECK_EQ(read(ids->pipe[0], &id, sizeof id), (ssize_t)sizeof id);
    }
    CHECK_OK(tpcomm_init_rank(&id, rank, size, &config, &comm));
    use(comm, rank, size, 5);
    CHECK_OK(tpcomm_finalize(comm));
    CHECK_OK(tpcomm_destroy(comm));
}

/* ------------------------------------------------------------------ the caller's all-gather, over socket pairs to rank
 * 0 */

typedef struct {
    int pair[TPCOMM_MAX_RANKS][2]; /* [r][0]: rank 0's end, [r][1]: rank r's */
    int32_t rank, size;
    int calls;
} gather_t;

static void read_all(int fd, void *to, size_t bytes) {
    for (size_t done = 0; done < bytes;) {
        ssize_t got = read(fd, (char *)to + done, bytes - done);
        CHECK(got > 0);
        done += (size_t)got;
    }
}

static int32_t gather(void *arg, const void *mine, void *all, size_t bytes, uint32_t timeout_ms) {
    gather_t *g = arg;
    CHECK(timeout_ms > 0);
    g->calls++;
    if (g->rank == 0) {
        memcpy(all, mine, bytes);
        for (int32_t r = 1; r < g->size; r++) read_all(g->pair[r][0], (char *)all + (size_t)r * bytes, bytes);
        for (int32_t r = 1; r < g->size; r++)
            CHECK_EQ(write(g->pair[r][0], all, bytes * (size_t)g->size), (ssize_t)(bytes * (size_t)g->size));
    } else {
        CHECK_EQ(write(g->pair[g->rank][1], mine, bytes), (ssize_t)bytes);
        read_all(g->pair[g->rank][1], all, bytes * (size_t)g->size);
    }
    return 1;
}

static int32_t broken_gather(void *arg, const void *mine, void *all, size_t bytes, uint32_t timeout_ms) {
    (void)arg, (void)mine, (void)all, (void)bytes, (void)timeout_ms;
    return 0;
}

static void by_exchange(int32_t rank, int32_t size, void *arg) {
    gather_t g = *(gather_t *)arg;
    g.rank = rank;
    g.size = size;
    tpcomm_t *comm = NULL;
    tpcomm_config_t config = ranks_config();
    CHECK_STATUS(tpcomm_init_exchange(rank, size, broken_gather, NULL, &config, &comm), TPCOMM_ERR_BACKEND);
    CHECK_OK(tpcomm_init_exchange(rank, size, gather, &g, &config, &comm));
    CHECK(g.calls > 0 && g.calls <= 4);
    use(comm, rank, size, 9);
    CHECK_OK(tpcomm_finalize(comm));
    CHECK_OK(tpcomm_destroy(comm));
}

/* ------------------------------------------------------------------ threads */

static void by_threads(rank_t *rank) {
    use(rank->comm, rank->rank, rank->size, 3);
}

int main(void) {
    tpcomm_config_t config = ranks_config();
    for (int32_t size = 1; size <= 8; size *= 2) {
        ranks_fork(size, by_env, NULL);
        id_arg_t ids;
        CHECK_EQ(pipe(ids.pipe), 0);
        ranks_fork(size, by_id, &ids);
        close(ids.pipe[0]);
        close(ids.pipe[1]);
        if (size > 1) {
            gather_t g = {0};
            for (int32_t r = 1; r < size; r++) CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, g.pair[r]), 0);
            ranks_fork(size, by_exchange, &g);
            for (int32_t r = 1; r < size; r++) {
                close(g.pair[r][0]);
                close(g.pair[r][1]);
            }
        }
        resources_t before = resources_now();
        for (int round = 0; round < 5; round++) ranks_run(RANKS_THREADS, size, &config, by_threads, NULL);
        resources_check_equal(before, "after worlds of threads");
    }
    return 0;
}
