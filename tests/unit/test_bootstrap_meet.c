/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Check that 1 to 8 ranks meet in each way there is, that each has a link to every other one and knows the facts of it,
 * and that afterwards no descriptor is left.
 */
#include "unit/bootstrap_job.h"

#define LONG_MS 60000 /* nothing takes so long, not on a loaded machine either */

static int32_t size;
static uint16_t port;

static int listen_on(uint16_t wanted) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(wanted)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(fd, (struct sockaddr *)&address, sizeof address) != 0 || listen(fd, 8) != 0)
        FAIL("port %u: %s", wanted, strerror(errno));
    return fd;
}

static void read_env(tpc_env_t *env) {
    CHECK_OK(tpc_env_read(env));
}

/** Meet, look, part; what a rank does in every way in. */
static void finish(outcome_t *outcome, tpcomm_status_t status, tpc_bootstrap_t *bootstrap, uint64_t start_ns,
                   int32_t fds) {
    job_keep(outcome, status, start_ns);
    if (status != TPCOMM_OK) return;
    outcome->nonce = tpc_bootstrap_nonce(bootstrap);
    snprintf(outcome->text, sizeof outcome->text, "%s", tpc_bootstrap_text(bootstrap));
    job_check_met(bootstrap);
    tpc_bootstrap_free(bootstrap);
    CHECK_EQ(job_count_fds(), fds);
}

static void by_env(int32_t index, outcome_t *outcome) {
    int32_t fds = job_count_fds();
    job_set("TPCOMM_RANK", "%d", index);
    job_set("TPCOMM_SIZE", "%d", size);
    tpc_bootstrap_t *bootstrap = NULL;
    uint64_t start_ns = tpc_clock_ns();
    tpcomm_status_t status = job_meet_env(LONG_MS, &bootstrap);
    finish(outcome, status, bootstrap, start_ns, fds);
}

/** As by_env, but each rank says that it is on one of two hosts: half of the links are TCP. */
static void by_env_two_hosts(int32_t index, outcome_t *outcome) {
    job_set("TPCOMM_HOST_ID", "host%d", index % 2);
    by_env(index, outcome);
}

static void by_torchrun(int32_t index, outcome_t *outcome) {
    int32_t fds = job_count_fds();
    job_set("RANK", "%d", index);
    job_set("WORLD_SIZE", "%d", size);
    tpc_bootstrap_t *bootstrap = NULL;
    uint64_t start_ns = tpc_clock_ns();
    tpcomm_status_t status = job_meet_env(LONG_MS, &bootstrap);
    finish(outcome, status, bootstrap, start_ns, fds);
}

static void by_id(int32_t index, outcome_t *outcome) {
    int32_t fds = job_count_fds();
    tpc_env_t env;
    tpc_bootstrap_t *bootstrap = NULL;
    read_env(&env);
    if (index == 0) {
        CHECK_OK(tpc_bootstrap_make_id(&env, &job_outcomes[0].id));
        atomic_store(&outcome->stage, 1);
    }
    job_await(0, 1);
    uint64_t start_ns = tpc_clock_ns();
    tpc_deadline_t deadline = tpc_deadline_in(LONG_MS, NULL, NULL);
    tpcomm_status_t status = tpc_bootstrap_meet_id(&job_outcomes[0].id, index, size, &env, &deadline, &bootstrap);
    finish(outcome, status, bootstrap, start_ns, fds);
}

static void by_id_two_hosts(int32_t index, outcome_t *outcome) {
    job_set("TPCOMM_HOST_ID", "host%d", index % 2);
    by_id(index, outcome);
}

/** The id was made in another process of the host, which has gone. */
static void by_old_id(int32_t index, outcome_t *outcome) {
    /* The two of the maker's door are closed in a forked child that opens one of its own. */
    int32_t fds = job_count_fds() - (index == 0 ? 2 : 0);
    tpc_env_t env;
    tpc_bootstrap_t *bootstrap = NULL;
    read_env(&env);
    uint64_t start_ns = tpc_clock_ns();
    tpc_deadline_t deadline = tpc_deadline_in(LONG_MS, NULL, NULL);
    tpcomm_status_t status =
        tpc_bootstrap_meet_id(&job_outcomes[JOB_MAX - 1].id, index, size, &env, &deadline, &bootstrap);
    finish(outcome, status, bootstrap, start_ns, fds);
}

/** The all-gather of a caller: by memory that all processes share. */
static struct {
    _Atomic int32_t arrived[8];
    char bytes[8][TPCOMM_MAX_RANKS][512];
} * board;

static int32_t failing_rank = -1, failing_call = -1;

/* What the exchange of one rank knows. Where a rank fails, no clock decides how the others end: they wait for whoever
 * comes, and rank 0's time to meet is over once rank 2 has long been there. */
typedef struct {
    int32_t rank, calls;
    tpc_deadline_t deadline;
    bool ends;
} exchange_t;

static int32_t exchange(void *arg, const void *mine, void *all, size_t bytes, uint32_t timeout_ms) {
    exchange_t *state = arg;
    int32_t call = state->calls++, come = size - (failing_call == 0 && call == 1);
    CHECK(bytes <= sizeof board->bytes[0][0] && call < 8 && timeout_ms > 0);
    memcpy(board->bytes[call][state->rank], mine, bytes);
    atomic_fetch_add(&board->arrived[call], 1);
    for (uint32_t ms = 0; atomic_load(&board->arrived[call]) < come; ms++) {
        CHECK(ms < LONG_MS);
        poll(NULL, 0, 1);
    }
    if (come < size) return 0;
    for (int32_t rank = 0; rank < size; rank++)
        memcpy((char *)all + (size_t)rank * bytes, board->bytes[call][rank], bytes);
    return state->rank == failing_rank && call == failing_call ? 7 : 1;
}

static int32_t asked(void *arg) {
    exchange_t *state = arg;
    if (failing_call != 1 || state->calls < 2) return 0;
    atomic_fetch_add(&job_outcomes[state->rank].stage, 1);
    if (state->rank == 0 && !state->ends && atomic_load(&job_outcomes[2].stage) >= 5) {
        state->ends = true;
        state->deadline.at_ns = tpc_clock_awake_ns() + 1000000000;
    }
    return 0;
}

static void by_exchange(int32_t index, outcome_t *outcome) {
    int32_t fds = job_count_fds();
    tpc_env_t env;
    tpc_bootstrap_t *bootstrap = NULL;
    read_env(&env);
    uint64_t start_ns = tpc_clock_ns();
    exchange_t state = {.rank = index, .deadline = tpc_deadline_in(LONG_MS, asked, &state)};
    tpcomm_status_t status =
        tpc_bootstrap_meet_exchange(index, size, exchange, &state, &env, &state.deadline, &bootstrap);
    finish(outcome, status, bootstrap, start_ns, fds);
    CHECK_EQ(state.calls, failing_call == 0 && index == failing_rank ? 1 : 2);
    CHECK_EQ(job_count_fds(), fds);
}

static void by_exchange_two_hosts(int32_t index, outcome_t *outcome) {
    job_set("TPCOMM_HOST_ID", "host%d", index % 2);
    by_exchange(index, outcome);
}

static tpc_thread_world_t *thread_world;

static void *thread_rank(void *arg) {
    outcome_t *outcome = arg;
    tpc_env_t env;
    tpc_bootstrap_t *bootstrap = NULL;
    read_env(&env);
    uint64_t start_ns = tpc_clock_ns();
    tpc_deadline_t deadline = tpc_deadline_in(LONG_MS, NULL, NULL);
    tpcomm_status_t status =
        tpc_bootstrap_meet_threads(thread_world, (int32_t)(outcome - job_outcomes), &env, &deadline, &bootstrap);
    job_keep(outcome, status, start_ns);
    if (status != TPCOMM_OK) return NULL;
    outcome->nonce = tpc_bootstrap_nonce(bootstrap);
    job_check_met(bootstrap);
    tpc_bootstrap_free(bootstrap);
    return NULL;
}

static void by_threads(void) {
    pthread_t threads[TPCOMM_MAX_RANKS];
    int32_t fds = job_count_fds();
    job_prepare();
    CHECK_OK(tpc_thread_world_new(size, &thread_world));
    for (int32_t i = 0; i < size; i++) CHECK_EQ(pthread_create(&threads[i], NULL, thread_rank, &job_outcomes[i]), 0);
    for (int32_t i = 0; i < size; i++) pthread_join(threads[i], NULL);
    CHECK_EQ(job_count_fds(), fds);
}

/** Ranks of one process that meet by sockets, as threads that each call init_rank do. */
static void *id_thread(void *arg) {
    outcome_t *outcome = arg;
    tpc_env_t env;
    tpc_bootstrap_t *bootstrap = NULL;
    read_env(&env);
    uint64_t start_ns = tpc_clock_ns();
    tpc_deadline_t deadline = tpc_deadline_in(LONG_MS, NULL, NULL);
    tpcomm_status_t status = tpc_bootstrap_meet_id(&job_outcomes[0].id, (int32_t)(outcome - job_outcomes), size, &env,
                                                   &deadline, &bootstrap);
    job_keep(outcome, status, start_ns);
    if (status != TPCOMM_OK) return NULL;
    outcome->nonce = tpc_bootstrap_nonce(bootstrap);
    job_check_met(bootstrap);
    tpc_bootstrap_free(bootstrap);
    return NULL;
}

static void by_id_threads(void) {
    pthread_t threads[TPCOMM_MAX_RANKS];
    tpc_env_t env;
    int32_t fds = job_count_fds();
    job_prepare();
    read_env(&env);
    CHECK_OK(tpc_bootstrap_make_id(&env, &job_outcomes[0].id));
    for (int32_t i = 0; i < size; i++) CHECK_EQ(pthread_create(&threads[i], NULL, id_thread, &job_outcomes[i]), 0);
    for (int32_t i = 0; i < size; i++) pthread_join(threads[i], NULL);
    CHECK_EQ(job_count_fds(), fds);
}

static void check_all(const char *way, const char *text) {
    uint64_t most_ms = 0;
    for (int32_t i = 0; i < size; i++) {
        CHECK_OUTCOME(i, TPCOMM_OK, size > 1 ? text : "");
        CHECK(job_outcomes[i].nonce == job_outcomes[0].nonce);
        if (job_outcomes[i].ms > most_ms) most_ms = job_outcomes[i].ms;
    }
    CHECK(job_outcomes[0].nonce != 0);
    printf("%d by %s: %llu ms\n", size, way, (unsigned long long)most_ms);
}

int main(void) {
    static const int32_t sizes[] = {1, 2, 3, 4, 5, 7, 8, 16};
    job_clean_environment();
    board = mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(board != MAP_FAILED);
    port = job_find_ports(0, 20);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        size = sizes[i];
        job_clean_environment();
        job_set_unique_id("unix");
        job_run(size, by_env);
        check_all("unix socket", "unix socket @tpcomm-");
        job_run(size, by_env_two_hosts);
        check_all("unix socket, two hosts", "unix socket @tpcomm-");

        job_set("TPCOMM_ROOT", "127.0.0.1:%u", port);
        job_run(size, by_env);
        check_all("TPCOMM_ROOT", "TPCOMM_ROOT=127.0.0.1:");
        job_run(size, by_env_two_hosts);
        check_all("TPCOMM_ROOT, two hosts", "TPCOMM_ROOT=127.0.0.1:");

        /* As under torchrun, whose agent holds MASTER_PORT; the first port behind it is somebody else's too. */
        job_clean_environment();
        job_set("MASTER_ADDR", "127.0.0.1");
        job_set("MASTER_PORT", "%u", port);
        int agent = listen_on(port), stranger = listen_on((uint16_t)(port + 1));
        job_run(size, by_torchrun);
        check_all("MASTER_ADDR", "MASTER_ADDR=127.0.0.1 ports");
        close(agent);
        close(stranger);

        /* No address at all: one host, by the unix socket of the bare variables (and a name against other runs of this
         * test). */
        job_clean_environment();
        job_set_unique_id("bare");
        job_run(size, by_torchrun);
        check_all("bare RANK and WORLD_SIZE", "unix socket @tpcomm-");

        job_run(size, by_id);
        check_all("id", "unique id, unix socket");
        job_run(size, by_id_two_hosts);
        check_all("id, two hosts", "unique id");
        by_threads();
        check_all("threads", "");
        by_id_threads();
        check_all("id, threads", "");

        memset(board, 0, sizeof *board);
        job_run(size, by_exchange);
        check_all("exchange", "unique id, unix socket");
        memset(board, 0, sizeof *board);
        job_run(size, by_exchange_two_hosts);
        check_all("exchange, two hosts", "unique id");
    }

    size = 3;
    /* An exchange that fails on one rank fails on it; the others end by their deadline or with it. */
    for (failing_call = 0; failing_call < 2; failing_call++) {
        failing_rank = 1;
        memset(board, 0, sizeof *board);
        job_run(size, by_exchange);
        CHECK_OUTCOME(1, TPCOMM_ERR_BACKEND, "exchange returned 7");
        for (int32_t i = 0; i < size; i += 2) {
            if (failing_call == 0)
                CHECK_OUTCOME(i, TPCOMM_ERR_BACKEND, "exchange returned 0, not 1, in call 2 of 2");
            else
                CHECK_OUTCOME(i, TPCOMM_ERR_TIMEOUT, "missing ranks: 1");
        }
    }

    /* An id whose maker is no rank: still good for one host. */
    failing_rank = failing_call = -1;
    tpc_env_t env;
    read_env(&env);
    job_prepare();
    CHECK_OK(tpc_bootstrap_make_id(&env, &job_outcomes[JOB_MAX - 1].id));
    for (int32_t i = 0; i < size; i++) job_start(i, by_old_id);
    for (int32_t i = 0; i < size; i++) job_wait(i);
    check_all("an id of another process", "unique id, unix socket");
    return 0;
}
