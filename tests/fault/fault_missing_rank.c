/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Check that an init which cannot come about ends in time and says who is missing or wrong (H8): a rank that never
 * comes, a rank claimed twice, a rank out of range, worlds of different sizes in one job.
 */
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "multirank/ranks.h"

static tpcomm_status_t join(uint32_t timeout_ms, tpcomm_t **comm_p) {
    tpcomm_config_t config = {.struct_size = sizeof config, .init_timeout_ms = timeout_ms};
    return tpcomm_init_env(&config, comm_p);
}

typedef struct {
    int missing;
    uint64_t begun; /* before any rank was there: the limit of whoever was there first ends it for all */
} scene_t;

static void two_of_three(int32_t rank, int32_t size, void *arg) {
    const scene_t *scene = arg;
    int missing = scene->missing;
    (void)size;
    if (rank == missing) return;
    tpcomm_t *comm = NULL;
    CHECK_STATUS(join(1500, &comm), TPCOMM_ERR_TIMEOUT);
    uint64_t ms = (tpc_clock_ns() - scene->begun) / 1000000u;
    if (ms < 1500 || ms > 4500) FAIL("rank %d gave up after %llu ms", rank, (unsigned long long)ms);
    char text[32];
    snprintf(text, sizeof text, missing == 0 ? "rank 0" : "missing ranks: %d", missing);
    CHECK_ERROR_HAS(text);
}

/* A stranger process claims a rank that is taken: it alone is refused, by name and at once; the job goes on. */
static void claimed_twice(int32_t rank, int32_t size, void *arg) {
    (void)arg;
    tpcomm_t *comm = NULL;
    if (rank == 2) { /* comes second for rank 1, then as itself */
        usleep(300000);
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
    ranks_set_hooks("delay@welcome:1:4000");
    CHECK_STATUS(join(1500, &comm), TPCOMM_ERR_TIMEOUT);
    if (rank == 1) return;
    CHECK_ERROR_HAS("no link between rank 2 and these ranks");
    CHECK_ERROR_HAS(": 1 (pid");
    CHECK(strstr(tpcomm_last_error(), "1, 2") == NULL);
}

int main(void) {
    for (int missing = 0; missing < 3; missing++) {
        scene_t scene = {missing, tpc_clock_ns()};
        ranks_fork(3, two_of_three, &scene);
    }
    ranks_fork(3, hangs_between_links, NULL);
    ranks_fork(3, claimed_twice, NULL);
    ranks_fork(1, out_of_range, NULL);
    ranks_fork(2, different_sizes, NULL);
    return 0;
}
