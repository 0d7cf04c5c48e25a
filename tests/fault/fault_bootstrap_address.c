/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Check that an address which is taken ends the meeting at once and by name on all ranks, that a range of ports is
 * searched, and that many jobs which start at once with automatic ports all come up (I7). And that where strangers can
 * reach rank 0 it is said, unless there is a secret or somebody has named the address.
 */
#include "unit/bootstrap_job.h"

static int32_t size = 2;
static uint16_t base;
static bool loopback_v6;

static int listen_on(uint16_t port) {
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(fd, (struct sockaddr *)&address, sizeof address) != 0 || listen(fd, 64) != 0) {
        close(fd);
        return -1;
    }
    return fd;
}

/** Somebody who answers every connection in a language of his own. */
static void speak(int32_t index, outcome_t *outcome) {
    int listener = listen_on(base);
    (void)index;
    CHECK(listener >= 0);
    atomic_store(&outcome->stage, 1);
    for (;;) {
        int fd = accept(listener, NULL, NULL);
        if (fd >= 0 && send(fd, "SSH-2.0-nothing_here\r\n", 22, MSG_NOSIGNAL) < 0) continue;
        poll(NULL, 0, 20);
        if (fd >= 0) close(fd);
    }
}

static void come(int32_t rank, outcome_t *outcome, uint64_t timeout_ms) {
    int32_t fds = job_count_fds();
    tpc_bootstrap_t *bootstrap;
    uint64_t start_ns = tpc_clock_ns();
    job_keep(outcome, job_meet_env(timeout_ms, &bootstrap), start_ns);
    if (outcome->status == TPCOMM_OK) {
        snprintf(outcome->text, sizeof outcome->text, "%s", tpc_bootstrap_text(bootstrap));
        job_check_met(bootstrap);
        tpc_bootstrap_free(bootstrap);
    }
    CHECK_EQ(job_count_fds(), fds);
    (void)rank;
}

static void with_root(int32_t index, outcome_t *outcome) {
    job_set("TPCOMM_RANK", "%d", index);
    job_set("TPCOMM_SIZE", "%d", size);
    job_set("TPCOMM_ROOT", loopback_v6 ? "[::1]:%u" : "127.0.0.1:%u", base);
    come(index, outcome, 30000);
}

static void with_master(int32_t index, outcome_t *outcome) {
    job_set("RANK", "%d", index);
    job_set("WORLD_SIZE", "%d", size);
    job_set("LOCAL_WORLD_SIZE", "1"); /* as on hosts of their own */
    job_set("MASTER_ADDR", "127.0.0.1");
    job_set("MASTER_PORT", "%u", base);
    come(index, outcome, 30000);
}

/* Who may reach rank 0 without a secret. 2130706433 is 127.0.0.1 in the way of a name: not seen to be this host alone.
 */
static const struct {
    const char *master, *bind, *secret;
    bool warned;
} doors[] = {{"2130706433", NULL, NULL, true},
             {"127.0.0.1", NULL, NULL, false},
             {"2130706433", "127.0.0.1", NULL, false},
             {"2130706433", NULL, "a secret of sixteen bytes or more", false}};
static size_t door;
static char log_file[64];

static void at_a_door(int32_t index, outcome_t *outcome) {
    if (index == 0) CHECK(freopen(log_file, "w", stderr) != NULL); /* what it is warned of */
    if (doors[door].bind != NULL) job_set("TPCOMM_BIND", "%s", doors[door].bind);
    if (doors[door].secret != NULL) job_set("TPCOMM_SECRET", "%s", doors[door].secret);
    job_set("RANK", "%d", index);
    job_set("WORLD_SIZE", "%d", size);
    job_set("LOCAL_WORLD_SIZE", "1");
    job_set("MASTER_ADDR", "%s", doors[door].master);
    job_set("MASTER_PORT", "%u", base);
    come(index, outcome, 30000);
}

/** Rank 1 of two, on the host of nobody: it finds a stranger at the address. */
static void alone_with_root(int32_t index, outcome_t *outcome) {
    if (index == 1) with_root(index, outcome);
}

static void with_bind(int32_t index, outcome_t *outcome) {
    if (index == 0) setenv("TPCOMM_BIND", "192.0.2.77", 1); /* TEST-NET: nobody has it */
    with_root(index, outcome);
}

static void with_good_bind(int32_t index, outcome_t *outcome) {
    setenv("TPCOMM_BIND", "127.0.0.1", 1);
    with_root(index, outcome);
}

static void check_all(tpcomm_status_t status, const char *piece) {
    for (int32_t i = 0; i < size; i++) {
        CHECK_OUTCOME(i, status, piece);
        CHECK(job_outcomes[i].ms < 15000);
    }
}

/* A listener that strangers can reach is warned of, unless there is a secret or somebody has named the address. */
static void warned_of_strangers(void) {
    static char said[4096];
    for (door = 0; door < sizeof doors / sizeof *doors; door++) {
        snprintf(log_file, sizeof log_file, "/tmp/tpcomm-door-%d-%zu", (int)getpid(), door);
        job_run(size, at_a_door);
        check_all(TPCOMM_OK, "");
        FILE *file = fopen(log_file, "r");
        said[file != NULL ? fread(said, 1, sizeof said - 1, file) : 0] = '\0';
        if (file != NULL) fclose(file);
        unlink(log_file);
        if ((strstr(said, "there is no secret: whoever reaches it can join") != NULL) != doors[door].warned)
            FAIL("door %zu: %s", door, said);
    }
}

/* ------------------------------------------------------------------ two jobs at one port */

static void first_job(int32_t index, outcome_t *outcome) {
    tpc_bootstrap_t *bootstrap;
    job_set("TPCOMM_RANK", "%d", index);
    job_set("TPCOMM_SIZE", "%d", size);
    job_set("TPCOMM_ROOT", "127.0.0.1:%u", base);
    CHECK_OK(job_meet_env(20000, &bootstrap));
    atomic_store(&outcome->stage, 1);
    job_await(0, 2);
    job_check_met(bootstrap);
    tpc_bootstrap_free(bootstrap);
}

static void second_job(int32_t index, outcome_t *outcome) {
    job_set("TPCOMM_JOB_ID", "another");
    with_root(index - 2, outcome);
}

static void two_jobs(void) {
    job_prepare();
    for (int32_t i = 0; i < 2; i++) job_start(i, first_job);
    for (int32_t i = 0; i < 2; i++) job_await(i, 1);
    for (int32_t i = 2; i < 4; i++) job_start(i, second_job);
    for (int32_t i = 2; i < 4; i++) job_wait(i);
    atomic_store(&job_outcomes[0].stage, 2);
    for (int32_t i = 0; i < 2; i++) job_wait(i);
    for (int32_t i = 2; i < 4; i++) {
        char port[16];
        snprintf(port, sizeof port, "%u", base);
        CHECK_OUTCOME(i, TPCOMM_ERR_ADDR_IN_USE, port);
    }
}

/* ------------------------------------------------------------------ many jobs at once */

static void one_of_many(int32_t index, outcome_t *outcome) {
    tpc_env_t env;
    tpc_bootstrap_t *bootstrap;
    int32_t root = index & ~1, fds = job_count_fds();
    CHECK_OK(tpc_env_read(&env));
    if (index == root) {
        CHECK_OK(tpc_bootstrap_make_id(&env, &outcome->id));
        atomic_store(&outcome->stage, 1);
    }
    job_await(root, 1);
    job_set("TPCOMM_HOST_ID", index == root ? "a" : "b"); /* so that the port is used */
    if (index != root) CHECK_OK(tpc_env_read(&env));
    tpc_deadline_t deadline = tpc_deadline_in(30000, NULL, NULL);
    uint64_t start_ns = tpc_clock_ns();
    job_keep(outcome, tpc_bootstrap_meet_id(&job_outcomes[root].id, index - root, 2, &env, &deadline, &bootstrap),
             start_ns);
    if (outcome->status != TPCOMM_OK) return;
    outcome->nonce = tpc_bootstrap_nonce(bootstrap);
    job_check_met(bootstrap);
    tpc_bootstrap_free(bootstrap);
    CHECK_EQ(job_count_fds(), fds);
}

static void many_jobs(void) {
    job_run(32, one_of_many);
    for (int32_t i = 0; i < 32; i++) {
        CHECK_OUTCOME(i, TPCOMM_OK, "");
        CHECK((job_outcomes[i].nonce == job_outcomes[i & ~1].nonce));
        for (int32_t j = 0; j < (i & ~1); j++) CHECK(job_outcomes[i].nonce != job_outcomes[j].nonce);
    }
}

int main(void) {
    char text[64];
    job_clean_environment();
    job_set_unique_id("address");
    job_set("TPCOMM_TEST_HOOKS", "set@refuse_ms:20000"); /* a rank 0 that failed tells those who are late here */
    base = job_find_ports(1, 20);                        /* and 16 behind it */

    size = 3;
    int fd = listen_on(base);
    job_run(size, with_root);
    snprintf(text, sizeof text, "port %u is taken", base);
    check_all(TPCOMM_ERR_ADDR_IN_USE, text);
    close(fd);
    job_run(size, with_root);
    check_all(TPCOMM_OK, "");
    printf("a silent holder\n");

    size = 2;
    job_prepare();
    job_start(JOB_MAX - 1, speak);
    job_await(JOB_MAX - 1, 1);
    for (int32_t i = 0; i < 2; i++) job_start(i, alone_with_root);
    for (int32_t i = 0; i < 2; i++) job_wait(i);
    CHECK_OUTCOME(1, TPCOMM_ERR_ADDR_IN_USE, "is not tpcomm");
    kill(job_pids[JOB_MAX - 1], SIGKILL);
    waitpid(job_pids[JOB_MAX - 1], NULL, 0);
    printf("a speaking holder\n");

    size = 3;
    int held[17];
    for (uint16_t i = 1; i <= 16; i++) held[i] = listen_on((uint16_t)(base + i));
    job_run(size, with_master);
    snprintf(text, sizeof text, "all of the ports %u to %u are taken", base + 1, base + 16);
    check_all(TPCOMM_ERR_ADDR_IN_USE, text);
    close(held[16]);
    job_run(size, with_master);
    check_all(TPCOMM_OK, "");
    for (uint16_t i = 1; i < 16; i++) close(held[i]);
    printf("a range of ports\n");

    job_run(size, with_bind);
    check_all(TPCOMM_ERR_CONFIG, "192.0.2.77");
    job_run(size, with_good_bind);
    check_all(TPCOMM_OK, "");
    printf("TPCOMM_BIND\n");

    size = 2;
    warned_of_strangers();
    printf("a door that strangers can reach\n");
    two_jobs();
    printf("two jobs at one port\n");
    many_jobs();
    printf("sixteen jobs at once\n");

    loopback_v6 = true;
    int v6 = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in6 address = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    if (v6 < 0 || bind(v6, (struct sockaddr *)&address, sizeof address) != 0) {
        printf("this machine has no IPv6: not tried\n");
        return 0;
    }
    close(v6);
    job_run(size, with_root);
    check_all(TPCOMM_OK, "TPCOMM_ROOT=[::1]:");
    printf("IPv6\n");
    return 0;
}
