/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Check that ranks which cannot make a world end at once or in time, alike, and by name (H8, I13): one that never
 * comes, one that is claimed twice, ranks outside the world, worlds of two sizes, two versions of the library.
 */
#include "unit/bootstrap_job.h"

/* Points that rank 0 passes: a rank has come for good; a rank shows that they do not belong together. */
enum { VOTED, REFUSED };
/* A rank 0 that has failed stays for those who come late, however late they are here; and who has told rank 0 that he
 * waits no more waits for its answer. */
#define PATIENCE "set@refuse_ms:20000;set@last_word_ms:20000"

static int32_t first_size;

static void come(int32_t rank, int32_t size, uint64_t timeout_ms, outcome_t *outcome) {
    tpc_bootstrap_t *bootstrap = NULL;
    int32_t fds = job_count_fds();
    job_set("TPCOMM_RANK", "%d", rank);
    job_set("TPCOMM_SIZE", "%d", size);
    uint64_t start_ns = tpc_clock_ns(), start_cpu_ms = job_cpu_ms();
    job_keep(outcome, job_meet_env(timeout_ms, &bootstrap), start_ns);
    uint64_t cpu_ms = job_cpu_ms() - start_cpu_ms;
    /* A wait that spins would use all of the time it waits. */
    if (outcome->ms > 1000 && cpu_ms > outcome->ms / 4)
        FAIL("%llu ms of CPU in %llu ms", (unsigned long long)cpu_ms, (unsigned long long)outcome->ms);
    if (outcome->status == TPCOMM_OK) {
        job_check_met(bootstrap);
        tpc_bootstrap_free(bootstrap);
    }
    CHECK_EQ(job_count_fds(), fds);
}

/* ------------------------------------------------------------------ one never comes */

#define LIMIT_MS 3000 /* long enough that nobody who comes is late */

static uint16_t port; /**< the first of three; 0: by unix socket */

/** Three jobs at once; in each another rank never comes. */
static void two_of_three(int32_t index, outcome_t *outcome) {
    int32_t missing = index / 3;
    if (index % 3 == missing) return;
    job_set("TPCOMM_JOB_ID", "%s-%d", getenv("TPCOMM_JOB_ID"), missing);
    if (port != 0) job_set("TPCOMM_ROOT", "127.0.0.1:%d", port + missing);
    come(index % 3, 3, LIMIT_MS, outcome);
}

static void never_comes(void) {
    job_run(9, two_of_three);
    for (int32_t missing = 0; missing < 3; missing++) {
        char want[32];
        uint64_t longest_ms = 0;
        snprintf(want, sizeof want, "missing ranks: %d", missing);
        for (int32_t i = 3 * missing; i < 3 * missing + 3; i++) {
            if (i % 3 == missing) continue;
            CHECK_OUTCOME(i, TPCOMM_ERR_TIMEOUT, want);
            CHECK_OUTCOME(i, TPCOMM_ERR_TIMEOUT, "TPCOMM_SIZE=3");
            CHECK(job_outcomes[i].ms < LIMIT_MS + 10000);
            if (job_outcomes[i].ms > longest_ms) longest_ms = job_outcomes[i].ms;
        }
        CHECK(longest_ms >= LIMIT_MS); /* of whoever was there first */
    }
}

/** Rank 1 has less patience than rank 0, and says so: both end then, and know that it is rank 2 who is missing. */
static void impatient(int32_t index, outcome_t *outcome) {
    if (index != 2) come(index, 3, index == 1 ? LIMIT_MS : 60000, outcome);
}

static int32_t ask_to_stop(void *arg) {
    return atomic_load((_Atomic int *)arg) == 1;
}

/** The caller of one rank has had enough while rank 2 is missing: he gets that, the other one a failure at once. */
static int32_t stopping;

static void stopped(int32_t index, outcome_t *outcome) {
    tpc_bootstrap_t *bootstrap;
    int32_t fds = job_count_fds();
    if (index == 2) { /* in its place: the caller's wish, when the others have met */
        job_await_point(VOTED, 1);
        atomic_store(&outcome->stage, 1);
        return;
    }
    job_set("TPCOMM_RANK", "%d", index);
    job_set("TPCOMM_SIZE", "3");
    tpc_deadline_t deadline = tpc_deadline_in(60000, index == stopping ? ask_to_stop : NULL, &job_outcomes[2].stage);
    uint64_t start_ns = tpc_clock_ns();
    job_keep(outcome, job_meet_until(&deadline, &bootstrap), start_ns);
    CHECK_EQ(job_count_fds(), fds);
}

static void patience(void) {
    job_run(3, impatient);
    for (int32_t i = 0; i < 2; i++) {
        CHECK_OUTCOME(i, TPCOMM_ERR_TIMEOUT, "missing ranks: 2");
        CHECK(job_outcomes[i].ms < 20000);
    }
    for (stopping = 0; stopping < 2; stopping++) {
        char want[64];
        job_run(3, stopped);
        snprintf(want, sizeof want, "rank %d failed in 'meet': the caller's interrupted function", stopping);
        CHECK_OUTCOME(stopping, TPCOMM_ERR_INTERRUPTED, "the caller's interrupted function");
        CHECK_OUTCOME(1 - stopping, TPCOMM_ERR_PEER_FAILED, want);
        for (int32_t i = 0; i < 2; i++) CHECK(job_outcomes[i].ms < 20000);
    }
}

/* ------------------------------------------------------------------ claimed twice */

/** Processes 0, 1 and 2 are the ranks, 2 comes late; 3 claims rank 1, or is a second job's rank 0, while they wait. */
static int32_t claimed;

static void rank_or_claimant(int32_t index, outcome_t *outcome) {
    if (index == 2) job_await(3, 1);
    if (index == 3) job_await_point(VOTED, 1);
    come(index == 3 ? claimed : index, index == 3 && claimed == 0 ? 5 : 3, 20000, outcome);
    atomic_store(&outcome->stage, 1);
}

static void claimed_twice(void) {
    for (claimed = 0; claimed < 2; claimed++) {
        char want[64];
        job_run(4, rank_or_claimant);
        for (int32_t i = 0; i < 3; i++) CHECK_OUTCOME(i, TPCOMM_OK, "");
        snprintf(want, sizeof want, "rank %d of this job is pid %d already", claimed, (int)job_pids[claimed]);
        CHECK_OUTCOME(3, TPCOMM_ERR_ADDR_IN_USE, want);
        CHECK(job_outcomes[3].ms < 10000);
    }
}

/* ------------------------------------------------------------------ outside the world */

static int32_t bad_rank, order;

/** Who comes last waits for what rank 0 has seen of the two others; rank 0 itself, for some time. */
static void come_last(int32_t index) {
    if (index != order) return;
    if (index == 0) poll(NULL, 0, 100);
    if (index == 1) job_await_point(REFUSED, 0);
    if (index == 2) job_await_point(VOTED, 1);
}

static void one_outside(int32_t index, outcome_t *outcome) {
    come_last(index);
    come(index == 2 ? bad_rank : index, 3, 30000, outcome);
}

/** The others cannot be complete without the one that is no rank: none waits for its deadline, whoever comes last. */
static void outside(void) {
    static const int32_t ranks[] = {3, 65535};
    for (size_t i = 0; i < sizeof ranks / sizeof ranks[0]; i++) {
        bad_rank = ranks[i];
        for (order = 0; order < 3; order++) {
            char want[64];
            job_run(3, one_outside);
            snprintf(want, sizeof want, "rank %d", bad_rank);
            for (int32_t r = 0; r < 3; r++) {
                CHECK_OUTCOME(r, TPCOMM_ERR_INVALID_ARG, want);
                CHECK_OUTCOME(r, TPCOMM_ERR_INVALID_ARG, "outside the world of 3 ranks");
                CHECK(job_outcomes[r].ms < 15000);
            }
        }
    }
}

/** The same by id, where a rank may be negative too. */
static void outside_by_id(int32_t index, outcome_t *outcome) {
    tpc_env_t env;
    tpc_bootstrap_t *bootstrap;
    CHECK_OK(tpc_env_read(&env));
    if (index == 0) {
        CHECK_OK(tpc_bootstrap_make_id(&env, &outcome->id));
        atomic_store(&outcome->stage, 1);
    }
    job_await(0, 1);
    uint64_t start_ns = tpc_clock_ns();
    tpc_deadline_t deadline = tpc_deadline_in(30000, NULL, NULL);
    job_keep(outcome,
             tpc_bootstrap_meet_id(&job_outcomes[0].id, index == 2 ? -1 : index, 3, &env, &deadline, &bootstrap),
             start_ns);
}

/* ------------------------------------------------------------------ two sizes, two versions */

static void two_sizes(int32_t index, outcome_t *outcome) {
    come_last(index);
    come(index, index == 2 ? 5 - first_size : first_size, 30000, outcome);
}

static void two_versions(int32_t index, outcome_t *outcome) {
    job_set("TPCOMM_TEST_HOOKS", PATIENCE ";set@library_version:%d", index == order ? 305 : TPCOMM_VERSION_NUMBER);
    tpc_hook_reload();
    come(index, 3, 30000, outcome);
}

static void differ(void) {
    for (order = 0; order < 3; order++) {
        /* Rank 2 says 2 where the others say 3; or 3 where they say 2, and comes before they are complete. */
        for (first_size = 3; first_size >= (order == 1 ? 2 : 3); first_size--) {
            job_run(3, two_sizes);
            for (int32_t r = 0; r < 3; r++) {
                CHECK_OUTCOME(r, TPCOMM_ERR_INVALID_ARG, "size 2");
                CHECK_OUTCOME(r, TPCOMM_ERR_INVALID_ARG, "size 3");
                CHECK(job_outcomes[r].ms < 15000);
            }
        }
        job_run(3, two_versions);
        for (int32_t r = 0; r < 3; r++) {
            char text[32];
            CHECK_OUTCOME(r, TPCOMM_ERR_CONFIG_MISMATCH, "0.3.5");
            snprintf(text, sizeof text, "%d.%d.%d", TPCOMM_VERSION_MAJOR, TPCOMM_VERSION_MINOR, TPCOMM_VERSION_PATCH);
            CHECK_OUTCOME(r, TPCOMM_ERR_CONFIG_MISMATCH, text);
            CHECK(job_outcomes[r].ms < 15000);
        }
    }
}

int main(void) {
    char address[64];
    job_watch("voted", "refused");
    for (int way = 0; way < 2; way++) {
        job_clean_environment();
        job_set_unique_id("ranks");
        job_set("TPCOMM_TEST_HOOKS", PATIENCE);
        if (way == 1) port = job_find_ports(3, 3);
        snprintf(address, sizeof address, "127.0.0.1:%d", port);
        if (way == 1) setenv("TPCOMM_ROOT", address, 1);
        never_comes();
        patience();
        claimed_twice();
        outside();
        differ();
        printf("%s\n", way == 0 ? "unix" : "tcp");
    }
    job_clean_environment();
    job_set("TPCOMM_TEST_HOOKS", PATIENCE);
    job_run(3, outside_by_id);
    for (int32_t r = 0; r < 3; r++) {
        CHECK_OUTCOME(r, TPCOMM_ERR_INVALID_ARG, "rank -1");
        CHECK(job_outcomes[r].ms < 15000);
    }
    return 0;
}
