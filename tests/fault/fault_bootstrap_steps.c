/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Check that a rank which fails or dies at any step of the meeting is named, with the step, on every rank, well before
 * the deadline; that nothing is left open; and that the same processes can meet afterwards (H7).
 */
#include "unit/bootstrap_job.h"

#define SIZE 3

typedef enum { UNIX, TWO_HOSTS, TCP, ID, EXCHANGE, WAYS } way_t;
static const char *const way_names[WAYS] = {"unix", "two hosts", "tcp", "id", "exchange"};

static way_t way;
static const char *step;
static int32_t victim;

/** The all-gather of a caller, by memory that all processes share. */
static struct {
    _Atomic int32_t arrived[16];
    char bytes[16][SIZE][512];
} * board;

static int32_t exchange(void *arg, const void *mine, void *all, size_t bytes, uint32_t timeout_ms) {
    int32_t *state = arg; /* rank, calls so far */
    int32_t call = state[1]++;
    CHECK(bytes <= sizeof board->bytes[0][0] && call < 16);
    memcpy(board->bytes[call][state[0]], mine, bytes);
    atomic_fetch_add(&board->arrived[call], 1);
    for (uint32_t ms = 0; atomic_load(&board->arrived[call]) < SIZE; ms++) {
        if (ms >= timeout_ms) return 0;
        poll(NULL, 0, 1);
    }
    for (int32_t rank = 0; rank < SIZE; rank++)
        memcpy((char *)all + (size_t)rank * bytes, board->bytes[call][rank], bytes);
    return 1;
}

static int32_t exchange_state[2];

static tpcomm_status_t meet(int32_t index, uint64_t timeout_ms, tpc_bootstrap_t **bootstrap_p) {
    tpc_env_t env;
    tpc_deadline_t deadline = tpc_deadline_in(timeout_ms, NULL, NULL);
    job_set("TPCOMM_RANK", "%d", index);
    job_set("TPCOMM_SIZE", "%d", SIZE);
    if (way == TWO_HOSTS) job_set("TPCOMM_HOST_ID", "host%d", index % 2);
    CHECK_OK(tpc_env_read(&env));
    if (way == ID) {
        int stage = atomic_load(&job_outcomes[index].stage);
        if (index == 0) CHECK_OK(tpc_bootstrap_make_id(&env, &job_outcomes[0].id));
        atomic_store(&job_outcomes[index].stage, stage + 1);
        for (int32_t i = 0; i < SIZE; i++) job_await(i, stage + 1);
        return tpc_bootstrap_meet_id(&job_outcomes[0].id, index, SIZE, &env, &deadline, bootstrap_p);
    }
    if (way == EXCHANGE) {
        exchange_state[0] = index;
        return tpc_bootstrap_meet_exchange(index, SIZE, exchange, exchange_state, &env, &deadline, bootstrap_p);
    }
    return job_meet_env(timeout_ms, bootstrap_p);
}

static void set_hooks(const char *hooks) {
    setenv("TPCOMM_TEST_HOOKS", hooks, 1);
    tpc_hook_reload();
}

static void failing_rank(int32_t index, outcome_t *outcome) {
    char hooks[64];
    tpc_bootstrap_t *bootstrap;
    int32_t fds = job_count_fds();
    snprintf(hooks, sizeof hooks, "fail@%s:%d", step, victim);
    set_hooks(hooks);
    uint64_t start_ns = tpc_clock_ns();
    job_keep(outcome, meet(index, 40000, &bootstrap), start_ns);
    CHECK_EQ(job_count_fds(), fds);

    set_hooks("");
    CHECK_OK(meet(index, 40000, &bootstrap));
    job_check_met(bootstrap);
    tpc_bootstrap_free(bootstrap);
    CHECK_EQ(job_count_fds(), fds);
}

static void check_failure(void) {
    for (int32_t i = 0; i < SIZE; i++) {
        char want[64];
        snprintf(want, sizeof want, "rank %d failed in '", victim);
        CHECK_OUTCOME(i, TPCOMM_ERR_PEER_FAILED, want);
        snprintf(want, sizeof want, "hook: %s fails", step);
        CHECK_OUTCOME(i, TPCOMM_ERR_PEER_FAILED, want);
        CHECK(job_outcomes[i].ms < 20000);
    }
}

/** The victim waits at the step until it is killed; rank 0 then stays until those who are late here have come, too. */
static void dying_rank(int32_t index, outcome_t *outcome) {
    char hooks[64];
    tpc_bootstrap_t *bootstrap;
    int32_t fds = job_count_fds();
    snprintf(hooks, sizeof hooks, "delay@%s:%d:60000;set@refuse_ms:20000", step, victim);
    set_hooks(hooks);
    uint64_t start_ns = tpc_clock_ns();
    job_keep(outcome, meet(index, 40000, &bootstrap), start_ns);
    CHECK_EQ(job_count_fds(), fds);
}

static void check_death(void) {
    for (int32_t i = 0; i < SIZE; i++) {
        char want[64];
        if (i == victim) continue;
        snprintf(want, sizeof want, "rank %d (pid %d) ended", victim, (int)job_pids[victim]);
        CHECK_OUTCOME(i, TPCOMM_ERR_PEER_DIED, want);
        CHECK(job_outcomes[i].ms < 20000);
    }
}

static void run_death(job_body_t body) {
    job_prepare();
    job_watch(step, NULL);
    for (int32_t i = 0; i < SIZE; i++) job_start(i, body);
    if (step)
        job_await_point(0, victim);
    else
        for (int32_t i = 0; i < SIZE; i++) job_await(i, 100);
    kill(job_pids[victim], SIGKILL);
    for (int32_t i = 0; i < SIZE; i++) {
        int status;
        if (i == victim)
            CHECK_EQ(waitpid(job_pids[i], &status, 0), job_pids[i]);
        else
            job_wait(i);
    }
}

/* ------------------------------------------------------------------ later */

/** The victim is killed after all have met (stage 100), while a child that it forked holds all its sockets: the others
 * see it all the same.
 */
static void dying_later(int32_t index, outcome_t *outcome) {
    static const int32_t ranks[SIZE] = {0, 1, 2};
    tpc_bootstrap_t *bootstrap;
    CHECK_OK(meet(index, 40000, &bootstrap));
    tpc_team_t world = {.channel = 0, .ranks = ranks, .n = SIZE, .me = index};
    if (index == victim) {
        pid_t child = fork();
        if (child == 0)
            for (;;) pause();
        memcpy(outcome->id.bytes, &child, sizeof child);
        atomic_store(&outcome->stage, 100);
        for (;;) pause();
    }
    atomic_store(&outcome->stage, 100);
    uint64_t start_ns = tpc_clock_ns();
    tpc_deadline_t deadline = tpc_deadline_in(40000, NULL, NULL);
    job_keep(outcome, tpc_team_gather(bootstrap, &world, "later", TPCOMM_OK, NULL, 0, NULL, &deadline), start_ns);
    tpc_bootstrap_free(bootstrap);
}

/* ------------------------------------------------------------------ threads */

static tpc_thread_world_t *thread_world;

static void *thread_rank(void *arg) {
    static tpc_env_t env;
    outcome_t *outcome = arg;
    tpc_bootstrap_t *bootstrap;
    tpc_deadline_t deadline = tpc_deadline_in(40000, NULL, NULL);
    uint64_t start_ns = tpc_clock_ns();
    int32_t index = (int32_t)(outcome - job_outcomes);
    job_keep(outcome, tpc_bootstrap_meet_threads(thread_world, index, &env, &deadline, &bootstrap), start_ns);
    if (outcome->status == TPCOMM_OK) tpc_bootstrap_free(bootstrap);
    return NULL;
}

/** Rank absent, if it is one, never meets. */
static void run_threads(int32_t absent) {
    pthread_t threads[SIZE];
    job_prepare();
    CHECK_OK(tpc_thread_world_new(SIZE, &thread_world));
    for (int32_t i = 0; i < SIZE; i++)
        if (i != absent) CHECK_EQ(pthread_create(&threads[i], NULL, thread_rank, &job_outcomes[i]), 0);
    if (absent >= 0) tpc_thread_world_leave(thread_world, absent);
    for (int32_t i = 0; i < SIZE; i++)
        if (i != absent) pthread_join(threads[i], NULL);
}

static void check_threads(void) {
    static const char *const steps[] = {"connect", "team/meet"};
    for (size_t s = 0; s < sizeof steps / sizeof steps[0]; s++) {
        for (victim = 0; victim < SIZE; victim++) {
            char hooks[64];
            step = steps[s];
            snprintf(hooks, sizeof hooks, "fail@%s:%d", step, victim);
            set_hooks(hooks);
            run_threads(-1);
            check_failure();
        }
    }
    set_hooks("");
    for (victim = 0; victim < SIZE; victim++) {
        run_threads(victim);
        for (int32_t i = 0; i < SIZE; i++)
            if (i != victim) CHECK_OUTCOME(i, TPCOMM_ERR_ABORTED, "has left");
    }
    run_threads(-1);
    for (int32_t i = 0; i < SIZE; i++) CHECK_OUTCOME(i, TPCOMM_OK, "");
}

int main(void) {
    static const char *const steps[] = {"connect", "team/meet", "team/addresses", "mesh", "team/mesh"};
    char address[64];
    board = mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(board != MAP_FAILED);
    snprintf(address, sizeof address, "127.0.0.1:%d", job_find_ports(4, 1));
    job_clean_environment();
    check_threads();
    step = NULL; /* behind all of them */
    for (victim = 0; victim < SIZE; victim++) {
        pid_t child;
        job_set_unique_id("later");
        run_death(dying_later);
        memcpy(&child, job_outcomes[victim].id.bytes, sizeof child);
        kill(child, SIGKILL);
        check_death();
    }
    for (way = UNIX; way < WAYS; way++) {
        job_clean_environment();
        job_set_unique_id("steps");
        if (way == TCP) setenv("TPCOMM_ROOT", address, 1);
        for (size_t s = 0; s < sizeof steps / sizeof steps[0]; s++) {
            step = steps[s];
            if (strcmp(step, "team/addresses") == 0 && way != TWO_HOSTS) continue; /* only then there is that step */
            for (victim = 0; victim < SIZE; victim++) {
                memset(board, 0, sizeof *board);
                job_run(SIZE, failing_rank);
                check_failure();
                if (way == EXCHANGE || strcmp(step, "connect") == 0) continue;
                memset(board, 0, sizeof *board);
                run_death(dying_rank);
                check_death();
            }
        }
        printf("%s\n", way_names[way]);
    }
    return 0;
}
