/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Check that a rank which has too few descriptors to meet the others says so, soon, and that the others name it: with
 * room for every number of them, for rank 0 and for another; processes (fault_resources has threads). All jobs at once.
 */
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "multirank/ranks.h"
#include "multirank/stalls.h"

#define SIZE     3
#define LIMIT_MS 8000
#define SOON_MS  7000

typedef struct {
    int32_t victim;
    int room;
    pid_t pids[SIZE];
} job_t;

/* Fails when the first descriptor above the limit is asked for. */
static void leave_room(int room) {
    struct rlimit limit;
    int highest = 2, fd = dup(2);
    while (fd >= 0 && fd <= highest) fd = dup(fd);
    CHECK(fd >= 0);
    highest = fd; /* the lowest free one */
    close(fd);
    CHECK_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
    limit.rlim_cur = (rlim_t)(highest + room);
    CHECK_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

static void run_rank(const job_t *job, int32_t rank) {
    char name[64];
    tpcomm_t *comm = NULL;
    tpcomm_config_t config = {.struct_size = sizeof config,
                              .device_kind = TPCOMM_DEVICE_CPU,
                              .init_timeout_ms = LIMIT_MS,
                              .workspace_bytes = 65536};
    snprintf(name, sizeof name, "fd-%d-%d-%d", getppid(), job->victim, job->room);
    ranks_set_env(rank, SIZE, name);
    if (rank == job->victim) leave_room(job->room);
    moment_t start = moment_now();
    tpcomm_status_t status = tpcomm_init_env(&config, &comm);
    if (status == TPCOMM_OK) {
        CHECK_OK(tpcomm_finalize(comm));
        CHECK_OK(tpcomm_destroy(comm));
        _Exit(0);
    }
    /* A rank 0 that has no place to listen at can tell nobody. */
    if (rank == job->victim || job->victim != 0) CHECK_WITHIN(start, SOON_MS);
    snprintf(name, sizeof name, "rank %d", job->victim);
    bool room = strstr(tpcomm_last_error(), "Too many open files") != NULL ||
                strstr(tpcomm_last_error(), "room") != NULL || strstr(tpcomm_last_error(), "descriptor") != NULL;
    if (rank == job->victim && !room) FAIL("rank %d, room %d: %s", rank, job->room, tpcomm_last_error());
    if (rank != job->victim && status != TPCOMM_ERR_TIMEOUT) CHECK_ERROR_HAS(name);
    _Exit(2);
}

static void start(job_t *job) {
    for (int32_t r = 0; r < SIZE; r++) {
        fflush(NULL);
        job->pids[r] = fork();
        CHECK(job->pids[r] >= 0);
        if (job->pids[r] == 0) run_rank(job, r);
    }
}

/* Whether it worked: for all ranks or for none. */
static bool end(const job_t *job) {
    int how = 0, ok = 0;
    for (int32_t r = 0; r < SIZE; r++) {
        CHECK_EQ(waitpid(job->pids[r], &how, 0), job->pids[r]);
        CHECK(WIFEXITED(how) && (WEXITSTATUS(how) == 0 || WEXITSTATUS(how) == 2));
        ok += WEXITSTATUS(how) == 0;
    }
    if (ok != 0 && ok != SIZE) FAIL("victim %d, room %d: %d of %d ranks worked", job->victim, job->room, ok, SIZE);
    return ok == SIZE;
}

int main(void) {
    static job_t jobs[] = {{0, 4, {0}}, {0, 6, {0}}, {0, 8, {0}}, {0, 10, {0}}, {0, 12, {0}}, {0, 20, {0}},
                           {1, 3, {0}}, {1, 4, {0}}, {1, 5, {0}}, {1, 6, {0}},  {1, 7, {0}},  {1, 16, {0}}};
    enum { JOBS = sizeof jobs / sizeof jobs[0] };
    int worked = 0;
    stalls_watch();
    ranks_set_hooks("set@refuse_ms:4000"); /* a rank 0 that fails tells those who are late here */
    for (int i = 0; i < JOBS; i++) start(&jobs[i]);
    for (int i = 0; i < JOBS; i++) worked += end(&jobs[i]);
    printf("%d limits failed by name, %d worked\n", JOBS - worked, worked);
    CHECK(worked >= 2 && worked < JOBS - 4);
    return 0;
}
