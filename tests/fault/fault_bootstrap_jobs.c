/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Check that jobs of one user on one host keep apart (H4): two at once that differ in job id or port; several
 * communicators of one job, made one after the other or by two threads at once; one after the other at one address,
 * ended in good order, killed, or survived by forked children; and that a second job with the same environment is
 * refused by name while the first goes on.
 */
#include "unit/bootstrap_job.h"

#define TIMEOUT_MS 20000

static void set_rank(int32_t rank, int32_t size) {
    job_set("TPCOMM_RANK", "%d", rank);
    job_set("TPCOMM_SIZE", "%d", size);
}

static tpc_bootstrap_t *meet(void) {
    tpc_bootstrap_t *bootstrap;
    CHECK_OK(job_meet_env(TIMEOUT_MS, &bootstrap));
    return bootstrap;
}

/** Answer late-comers for some time, as the watchdog does. */
static void serve(tpc_bootstrap_t *bootstrap, int ms) {
    int fds[2];
    int32_t count = tpc_bootstrap_listeners(bootstrap, fds);
    uint64_t end_ns = tpc_clock_ns() + (uint64_t)ms * 1000000;
    CHECK_EQ(count, tpc_bootstrap_rank(bootstrap) == 0);
    while (tpc_clock_ns() < end_ns) {
        struct pollfd waited = {.fd = count > 0 ? fds[0] : -1, .events = POLLIN};
        if (poll(&waited, 1, 10) == 1) tpc_bootstrap_serve(bootstrap, fds[0]);
    }
}

/* ------------------------------------------------------------------ two jobs at once */

static void job_of_two(int32_t index, outcome_t *outcome) {
    set_rank(index % 2, 2);
    job_set("TPCOMM_JOB_ID", "%s-%d", getenv("TPCOMM_JOB_ID"), index / 2);
    for (int round = 0; round < 10; round++) {
        tpc_bootstrap_t *bootstrap = meet();
        outcome->nonce = tpc_bootstrap_nonce(bootstrap);
        job_check_met(bootstrap);
        CHECK_EQ(tpc_bootstrap_member(bootstrap, 1 - index % 2)->pid, job_outcomes[index ^ 1].ms);
        tpc_bootstrap_free(bootstrap);
    }
}

static void named_job_of_two(int32_t index, outcome_t *outcome) {
    outcome->ms = (uint64_t)getpid();
    atomic_store(&outcome->stage, 1);
    job_await(index ^ 1, 1);
    job_of_two(index, outcome);
}

/* ------------------------------------------------------------------ one job, several communicators */

static void eight_at_once(int32_t index, outcome_t *outcome) {
    tpc_bootstrap_t *bootstraps[8];
    int32_t fds = job_count_fds();
    (void)outcome;
    set_rank(index, 3);
    for (int i = 0; i < 8; i++) bootstraps[i] = meet();
    for (int i = 0; i < 8; i++) job_check_met(bootstraps[i]);
    for (int i = 0; i < 8; i++)
        for (int j = 0; j < i; j++) CHECK(tpc_bootstrap_nonce(bootstraps[i]) != tpc_bootstrap_nonce(bootstraps[j]));
    for (int i = 0; i < 8; i++) tpc_bootstrap_free(bootstraps[(i * 3 + index) % 8]);
    CHECK_EQ(job_count_fds(), fds);
}

/** Some ranks go on to the next communicator sooner than others let go of the old one, rank 0 included. */
static void again_and_again(int32_t index, outcome_t *outcome) {
    int32_t fds = job_count_fds();
    tpc_deadline_t pause = tpc_deadline_in(TIMEOUT_MS, NULL, NULL);
    (void)outcome;
    set_rank(index, 3);
    for (int round = 0; round < 20; round++) {
        tpc_bootstrap_t *bootstrap = meet();
        job_check_met(bootstrap);
        if (round % 3 == index) CHECK_OK(tpc_deadline_sleep(&pause, 15));
        if (index == 0 && round % 2 == 0) serve(bootstrap, 15);
        tpc_bootstrap_free(bootstrap);
    }
    CHECK_EQ(job_count_fds(), fds);
}

static void *meet_in_thread(void *arg) {
    tpc_bootstrap_t **bootstrap = arg;
    *bootstrap = meet();
    job_check_met(*bootstrap);
    return NULL;
}

/** Whose threads pair up cannot be known; what must not happen is that one communicator has threads of both. */
static void two_threads_each(int32_t index, outcome_t *outcome) {
    int32_t fds = job_count_fds();
    (void)outcome;
    set_rank(index, 3);
    for (int round = 0; round < 5; round++) {
        pthread_t threads[2];
        tpc_bootstrap_t *bootstraps[2];
        for (int i = 0; i < 2; i++) CHECK_EQ(pthread_create(&threads[i], NULL, meet_in_thread, &bootstraps[i]), 0);
        for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
        CHECK(tpc_bootstrap_nonce(bootstraps[0]) != tpc_bootstrap_nonce(bootstraps[1]));
        for (int i = 0; i < 2; i++) tpc_bootstrap_free(bootstraps[i]);
    }
    CHECK_EQ(job_count_fds(), fds);
}

/* ------------------------------------------------------------------ one after the other */

static void once(int32_t index, outcome_t *outcome) {
    set_rank(index, 2);
    tpc_bootstrap_t *bootstrap = meet();
    job_check_met(bootstrap);
    atomic_store(&outcome->stage, 1);
    if (outcome->nonce == 0) {
        tpc_bootstrap_free(bootstrap);
        return;
    }
    for (;;) pause(); /* to be killed */
}

static void one_after_the_other(void) {
    for (int round = 0; round < 20; round++) {
        job_prepare();
        for (int32_t i = 0; i < 2; i++) job_outcomes[i].nonce = (uint64_t)round % 2;
        for (int32_t i = 0; i < 2; i++) job_start(i, once);
        for (int32_t i = 0; i < 2; i++) {
            job_await(i, 1);
            if (round % 2 == 0) continue;
            kill(job_pids[i], SIGKILL);
        }
        for (int32_t i = 0; i < 2; i++) {
            int status;
            CHECK_EQ(waitpid(job_pids[i], &status, 0), job_pids[i]);
            CHECK_EQ(status, round % 2 == 0 ? 0 : SIGKILL);
        }
    }
}

/** Children that were forked while the communicator lived, and hold all its descriptors, outlive it. */
static void with_children(int32_t index, outcome_t *outcome) {
    pid_t children[3];
    set_rank(index, 2);
    for (int round = 0; round < 3; round++) {
        tpc_bootstrap_t *bootstrap = meet();
        children[round] = fork();
        if (children[round] == 0) {
            /* As a finaliser does: nothing of the parent's may suffer. Or it knows nothing of us. */
            if (round != 1) tpc_bootstrap_free(bootstrap);
            for (;;) pause();
        }
        tpc_deadline_t wait = tpc_deadline_in(TIMEOUT_MS, NULL, NULL);
        CHECK_OK(tpc_deadline_sleep(&wait, 20));
        job_check_met(bootstrap);
        tpc_bootstrap_free(bootstrap);
    }
    pid_t child = fork();
    if (child == 0)
        for (;;) pause(); /* holds what is met next without having freed it */
    outcome->id.bytes[0] = 1;
    memcpy(outcome->text, children, sizeof children);
    memcpy(outcome->text + sizeof children, &child, sizeof child);
    tpc_bootstrap_t *last = meet();
    /* The kernel gives nobody a TCP port on which a process still listens, were it by descent: there the orphan lets
     * go. */
    pid_t orphan = fork();
    if (orphan == 0 && getenv("TPCOMM_ROOT")) tpc_bootstrap_free(last);
    if (orphan == 0) atomic_store(&outcome->passed[0], 1);
    if (orphan == 0)
        for (;;) pause();
    job_await_point(0, index);
    memcpy(outcome->text + sizeof children + sizeof child, &orphan, sizeof orphan);
    job_check_met(last);
    atomic_store(&outcome->stage, 1);
    if (index == 1) tpc_bootstrap_free(last);
    for (;;) pause(); /* rank 0 is killed with its listener open, and held open by the orphan */
}

static void survived_by_children(void) {
    job_prepare();
    for (int32_t i = 0; i < 2; i++) job_start(i, with_children);
    for (int32_t i = 0; i < 2; i++) job_await(i, 1);
    for (int32_t i = 0; i < 2; i++) {
        int status;
        kill(job_pids[i], SIGKILL);
        CHECK_EQ(waitpid(job_pids[i], &status, 0), job_pids[i]);
    }
    tpc_deadline_t wait = tpc_deadline_in(TIMEOUT_MS, NULL, NULL);
    CHECK_OK(tpc_deadline_sleep(&wait, 20));
    pid_t left[2][5];
    for (int32_t i = 0; i < 2; i++) memcpy(left[i], job_outcomes[i].text, sizeof left[i]);
    job_run(2, once);
    for (int32_t i = 0; i < 2; i++)
        for (int j = 0; j < 5; j++) kill(left[i][j], SIGKILL);
}

/* ------------------------------------------------------------------ the same environment twice */

static void first_job(int32_t index, outcome_t *outcome) {
    set_rank(index, 2);
    tpc_bootstrap_t *bootstrap = meet();
    outcome->ms = (uint64_t)getpid();
    atomic_store(&outcome->stage, 1);
    while (atomic_load(&job_outcomes[0].stage) < 2) serve(bootstrap, 5);
    job_check_met(bootstrap);
    tpc_bootstrap_free(bootstrap);
}

static void second_job(int32_t index, outcome_t *outcome) {
    tpc_bootstrap_t *bootstrap;
    set_rank(index - 2, 2);
    uint64_t start_ns = tpc_clock_ns();
    job_keep(outcome, job_meet_env(60000, &bootstrap), start_ns);
}

static void same_environment(void) {
    job_prepare();
    for (int32_t i = 0; i < 2; i++) job_start(i, first_job);
    for (int32_t i = 0; i < 2; i++) job_await(i, 1);
    for (int32_t i = 2; i < 4; i++) job_start(i, second_job);
    for (int32_t i = 2; i < 4; i++) job_wait(i);
    atomic_store(&job_outcomes[0].stage, 2);
    for (int32_t i = 0; i < 2; i++) job_wait(i);
    for (int32_t i = 2; i < 4; i++) {
        char want[64];
        snprintf(want, sizeof want, "rank %d is pid %d", i - 2, (int)job_pids[i - 2]);
        CHECK_OUTCOME(i, TPCOMM_ERR_ADDR_IN_USE, want);
        CHECK_OUTCOME(i, TPCOMM_ERR_ADDR_IN_USE, "already runs");
        CHECK(job_outcomes[i].ms < 20000); /* by name, not by the deadline */
    }
}

static void run_all(void) {
    job_prepare();
    for (int32_t i = 0; i < 4; i++) job_start(i, named_job_of_two);
    for (int32_t i = 0; i < 4; i++) job_wait(i);
    CHECK(job_outcomes[0].nonce == job_outcomes[1].nonce && job_outcomes[2].nonce == job_outcomes[3].nonce);
    CHECK(job_outcomes[0].nonce != job_outcomes[2].nonce);
    printf("two jobs\n");
    job_run(3, eight_at_once);
    printf("eight communicators\n");
    job_run(3, again_and_again);
    printf("twenty one after the other\n");
    job_run(3, two_threads_each);
    printf("two threads each\n");
    one_after_the_other();
    printf("twenty jobs, half of them killed\n");
    survived_by_children();
    printf("forked children\n");
    same_environment();
    printf("the same environment twice\n");
}

int main(void) {
    char address[64];
    job_clean_environment();
    job_set_unique_id("jobs");
    run_all();
    snprintf(address, sizeof address, "127.0.0.1:%d", job_find_ports(2, 1));
    setenv("TPCOMM_ROOT", address, 1);
    /* Two jobs at one port cannot be; the rest can. */
    job_run(3, eight_at_once);
    job_run(3, again_and_again);
    job_run(3, two_threads_each);
    one_after_the_other();
    survived_by_children();
    same_environment();
    return 0;
}
