/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Check that an init which cannot come about ends in time and says who is missing or wrong (H8): a rank that never
 * comes, a rank claimed twice, a rank out of range, worlds of different sizes in one job.
 */
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/hook.h"
#include "multirank/ranks.h"
#include "multirank/stalls.h"

static tpcomm_status_t join(uint32_t timeout_ms, tpcomm_t **comm_p) {
    tpcomm_config_t config = {.struct_size = sizeof config, .init_timeout_ms = timeout_ms};
    return tpcomm_init_env(&config, comm_p);
}

/* Limits are long enough that nobody who comes is late, and all that wait for one do so at once. */
#define MISSING_MS 4000

typedef struct {
    int missing;
    moment_t begun; /* before any rank was there: the limit of whoever was there first ends it for all */
} scene_t;

static void two_of_three(int32_t rank, int32_t size, void *arg) {
    const scene_t *scene = arg;
    int missing = scene->missing;
    (void)size;
    if (rank == missing) return;
    tpcomm_t *comm = NULL;
    CHECK_STATUS(join(MISSING_MS, &comm), TPCOMM_ERR_TIMEOUT);
    CHECK(tpc_clock_ns() - scene->begun.wall_ns >= MISSING_MS * UINT64_C(1000000));
    CHECK_WITHIN(scene->begun, MISSING_MS + 3000);
    char text[32];
    snprintf(text, sizeof text, missing == 0 ? "rank 0" : "missing ranks: %d", missing);
    CHECK_ERROR_HAS(text);
}

static _Atomic int32_t *there; /* whether rank 1 has come to rank 0 for good; shared by all processes */

static void see(const char *point, int32_t rank) {
    if (rank == 1 && strcmp(point, "voted") == 0) atomic_store(there, 1);
}

/* A stranger process claims a rank that is taken: it alone is refused, by name and at once; the job goes on. */
static void claimed_twice(int32_t rank, int32_t size, void *arg) {
    (void)arg;
    tpcomm_t *comm = NULL;
    if (rank == 2) { /* comes second for rank 1, then as itself */
        for (int ms = 0; atomic_load(there) == 0; ms++) {
            CHECK(ms < 60000);
            usleep(1000);
        }
        CHECK_EQ(setenv("TPCOMM_RANK", "1", 1), 0);
        uint64_t start = tpc_clock_ns();
        CHECK_STATUS(join(20000, &comm), TPCOMM_ERR_ADDR_IN_USE);
        CHECK(tpc_clock_ns() - start < 10000000000u);
        CHECK_ERROR_HAS("rank 1");
        CHECK_ERROR_HAS("pid");
        CHECK_EQ(setenv("TPCOMM_RANK", "2", 1), 0);
    }
    CHECK_OK(join(20000, &comm));
    int32_t one = 1;
    CHECK_OK(tpcomm_all_reduce(comm, &one, &one, 1, TPCOMM_I32, TPCOMM_SUM, NULL));
    CHECK_EQ(one, size);
    CHECK_OK(tpcomm_finalize(comm));
    CHECK_OK(tpcomm_destroy(comm));
}

static void out_of_range(int32_t rank, int32_t size, void *arg) {
    (void)rank, (void)size, (void)arg;
    static const char *const wrong[] = {"5", "3", "-1", "1x", "99999999999999999999"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        CHECK_EQ(setenv("TPCOMM_RANK", wrong[i], 1), 0);
        tpcomm_t *comm = NULL;
        tpcomm_status_t status = join(20000, &comm);
        CHECK(status == TPCOMM_ERR_INVALID_ARG || status == TPCOMM_ERR_CONFIG);
        CHECK_ERROR_HAS(wrong[i]);
    }
}

static void different_sizes(int32_t rank, int32_t size, void *arg) {
    (void)size, (void)arg;
    if (rank == 1) {
        CHECK_EQ(setenv("TPCOMM_SIZE", "3", 1), 0);
        CHECK_EQ(setenv("TPCOMM_LOCAL_SIZE", "3", 1), 0);
    }
    tpcomm_t *comm = NULL;
    uint64_t start = tpc_clock_ns();
    tpcomm_status_t status = join(20000, &comm);
    CHECK(status == TPCOMM_ERR_CONFIG_MISMATCH || status == TPCOMM_ERR_INVALID_ARG);
    CHECK(tpc_clock_ns() - start < 10000000000u);
    CHECK_ERROR_HAS("3");
    CHECK_ERROR_HAS("2");
}

/* Rank 1 hangs when it has its link to rank 0, and rank 2 waits for one to it: nobody but rank 1 is missed. */
static void hangs_between_links(int32_t rank, int32_t size, void *arg) {
    (void)size, (void)arg;
    tpcomm_t *comm = NULL;
    ranks_set_hooks("delay@welcome:1:7000;set@sooner_ms:3000;set@last_word_ms:20000");
    CHECK_STATUS(join(6000, &comm), TPCOMM_ERR_TIMEOUT);
    if (rank == 1) return;
    CHECK_ERROR_HAS("no link between rank 2 and these ranks");
    CHECK_ERROR_HAS(": 1 (pid");
    CHECK(strstr(tpcomm_last_error(), "1, 2") == NULL);
}

static pid_t begin(void (*fn)(int32_t rank, int32_t size, void *arg), int missing) {
    fflush(NULL);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid != 0) return pid;
    scene_t scene = {missing, moment_now()};
    ranks_fork(3, fn, &scene);
    _Exit(0);
}

int main(void) {
    pid_t waiting[4];
    stalls_watch();
    there = mmap(NULL, sizeof *there, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(there != MAP_FAILED);
    ranks_set_hooks("set@last_word_ms:20000"); /* rank 0 knows who is missing, however late it is itself */
    for (int missing = 0; missing < 3; missing++) waiting[missing] = begin(two_of_three, missing);
    waiting[3] = begin(hangs_between_links, -1);
    for (int i = 0; i < 4; i++) {
        int how = 0;
        CHECK_EQ(waitpid(waiting[i], &how, 0), waiting[i]);
        if (how != 0) FAIL("scene %d ended with %#x", i, (unsigned)how);
    }
    ranks_set_hooks("");
    tpc_hook_observer = see;
    ranks_fork(3, claimed_twice, NULL);
    ranks_fork(1, out_of_range, NULL);
    ranks_fork(2, different_sizes, NULL);
    return 0;
}
