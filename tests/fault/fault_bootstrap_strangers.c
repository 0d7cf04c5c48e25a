/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Check that strangers at the door (garbage, half a greeting, silence, a hundred connections, processes that pose as a
 * rank) neither disturb nor stall a meeting, nor the answering of late-comers afterwards.
 */
#include <stddef.h>
#include <sys/un.h>

#include "base/hash.h"
#include "bootstrap/wire.h"
#include "unit/bootstrap_job.h"

#define SIZE      3
#define STRANGERS 3 /* index of the process that plays them */

static uint16_t port;      /**< 0: the unix socket alone */
static char unix_name[64]; /**< where rank 0 of this test listens */
static uint64_t job;

static void set_rank(int32_t rank) {
    job_set("TPCOMM_RANK", "%d", rank);
    job_set("TPCOMM_SIZE", "%d", SIZE);
}

/** The name as docs/launch.md says it: user and hash of the job's text. */
static void find_name(void) {
    static tpc_env_t env;
    tpc_rank_env_t rank_env;
    set_rank(0);
    CHECK_OK(tpc_env_read(&env));
    CHECK_OK(tpc_rank_env_read(&env, &rank_env));
    job = tpc_hash(TPC_HASH_START, rank_env.job, strlen(rank_env.job));
    snprintf(unix_name, sizeof unix_name, "tpcomm-%u-%016llx", (unsigned)geteuid(), (unsigned long long)job);
}

/** A connection as nobody in particular makes it; -1 while nobody listens. */
static int knock(bool tcp) {
    struct sockaddr_un local = {.sun_family = AF_UNIX};
    struct sockaddr_in remote = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    memcpy(local.sun_path + 1, unix_name, strlen(unix_name));
    int fd = socket(tcp ? AF_INET : AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int err = tcp ? connect(fd, (struct sockaddr *)&remote, sizeof remote)
                  : connect(fd, (struct sockaddr *)&local,
                            (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(unix_name)));
    if (err == 0) return fd;
    close(fd);
    return -1;
}

static void say(int fd, const void *bytes, size_t count) {
    (void)!send(fd, bytes, count, MSG_NOSIGNAL);
}

/** A greeting that is right in all but what a row changes. */
static tpc_greeting_t greeting(void) {
    tpc_greeting_t made = {.pid = getpid(), .process = 1};
    memcpy(made.hello.magic, TPC_WIRE_MAGIC, sizeof made.hello.magic);
    made.hello.wire_version = TPC_WIRE_VERSION;
    made.hello.kind = TPC_HELLO_JOIN;
    made.hello.tpcomm_version = TPCOMM_VERSION_NUMBER;
    made.hello.rank = 2;
    made.hello.size = SIZE;
    made.hello.job = job;
    strcpy(made.host_id, "elsewhere");
    return made;
}

/** All sorts of callers at one listener; those that are to stay connected are left open. */
static void disturb(bool tcp) {
    unsigned char noise[4096];
    uint32_t seed = 12345;
    for (size_t i = 0; i < sizeof noise; i++) noise[i] = (unsigned char)((seed = seed * 1664525u + 1013904223u) >> 24);
    tpc_greeting_t made;

    say(knock(tcp), noise, sizeof noise);
    say(knock(tcp), "GET / HTTP/1.1\r\n\r\n", 18);
    say(knock(tcp), "\n", 1);
    close(knock(tcp));
    knock(tcp); /* silence */
    made = greeting();
    say(knock(tcp), &made, 5);
    say(knock(tcp), &made, 32);
    say(knock(tcp), &made, sizeof made.hello);
    say(knock(tcp), &made, sizeof made - 1);
    made.hello.kind = TPC_HELLO_LINK;
    say(knock(tcp), &made, sizeof made);
    made.hello.kind = 999;
    say(knock(tcp), &made, sizeof made);
    made = greeting();
    memset(made.host_id, 'x', sizeof made.host_id);
    say(knock(tcp), &made, sizeof made);
    made = greeting();
    made.text_bytes = UINT32_MAX;
    say(knock(tcp), &made, sizeof made);
    made = greeting();
    made.hello.job ^= 1; /* another job's rank, which may be of any size, rank and version */
    made.hello.rank = -7;
    made.hello.size = 1000;
    say(knock(tcp), &made, sizeof made);
    made.hello.wire_version = 77;
    say(knock(tcp), &made, sizeof made.hello);

    /* As rank 2 itself, and then nothing, garbage, a frame too long, half a frame: none of it counts before a vote. */
    made = greeting();
    int fd = knock(tcp);
    say(fd, &made, sizeof made);
    close(fd);
    fd = knock(tcp);
    say(fd, &made, sizeof made);
    say(fd, noise, sizeof noise);
    poll(NULL, 0, 20);
    close(fd);
    tpc_frame_head_t head = {.magic = TPC_FRAME_MAGIC, .kind = TPC_FRAME_VOTE, .data_bytes = UINT64_MAX};
    fd = knock(tcp);
    say(fd, &made, sizeof made);
    say(fd, &head, sizeof head);
    poll(NULL, 0, 20);
    close(fd);
    head.data_bytes = 1000;
    fd = knock(tcp);
    say(fd, &made, sizeof made);
    say(fd, &head, sizeof head);
    poll(NULL, 0, 20);
    close(fd);

    for (int i = 0; i < 100; i++) knock(tcp);
}

static void stranger(int32_t index, outcome_t *outcome) {
    (void)index;
    for (int ms = 0; knock(false) < 0 || (port != 0 && knock(true) < 0); ms++) {
        if (ms == 20000) FAIL("nobody listens at @%s", unix_name);
        poll(NULL, 0, 1);
    }
    disturb(false);
    if (port != 0) disturb(true);
    atomic_store(&outcome->stage, 1);
    while (atomic_load(&job_outcomes[0].stage) < 2)
        poll(NULL, 0, 1); /* rank 0 has met: a second time, at the idle door */
    disturb(false);
    if (port != 0) disturb(true);
    atomic_store(&outcome->stage, 2);
    while (atomic_load(&job_outcomes[0].stage) < 3) poll(NULL, 0, 1);
}

static void rank(int32_t index, outcome_t *outcome) {
    tpc_bootstrap_t *bootstrap;
    int32_t fds = job_count_fds();
    int listeners[2];
    set_rank(index);
    if (index == 2) job_await(STRANGERS, 1);
    uint64_t start_ns = tpc_clock_ns(), start_cpu_ms = job_cpu_ms();
    job_keep(outcome, job_meet_env(20000, &bootstrap), start_ns);
    if (outcome->status != TPCOMM_OK) FAIL("rank %d: %s", index, outcome->text);
    job_check_met(bootstrap);
    if (job_cpu_ms() - start_cpu_ms > 2000) FAIL("%llu ms of CPU", (unsigned long long)(job_cpu_ms() - start_cpu_ms));
    if (index == 0) {
        atomic_store(&outcome->stage, 2);
        CHECK_EQ(tpc_bootstrap_listeners(bootstrap, listeners), 1);
        for (int ms = 0; ms < 20000 && atomic_load(&job_outcomes[4].stage) < 1; ms++) {
            struct pollfd waited = {.fd = listeners[0], .events = POLLIN};
            if (poll(&waited, 1, 1) == 1) tpc_bootstrap_serve(bootstrap, listeners[0]);
        }
    } else {
        job_await(4, 1);
    }
    job_check_met(bootstrap);
    tpc_bootstrap_free(bootstrap);
    CHECK_EQ(job_count_fds(), fds);
    atomic_store(&outcome->stage, 3);
}

static void late_comer(int32_t index, outcome_t *outcome) {
    tpc_bootstrap_t *bootstrap;
    (void)index;
    set_rank(1);
    job_await(STRANGERS, 2);
    uint64_t start_ns = tpc_clock_ns();
    job_keep(outcome, job_meet_env(15000, &bootstrap), start_ns);
    atomic_store(&outcome->stage, 1);
}

/** Another user has taken the name of the socket, and accepts nobody. */
static void squatter(int32_t index, outcome_t *outcome) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    (void)index;
    CHECK_EQ(setgid(12345), 0);
    CHECK_EQ(setuid(12345), 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* which that took away */
    memcpy(address.sun_path + 1, unix_name, strlen(unix_name));
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    socklen_t length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(unix_name));
    CHECK_EQ(bind(fd, (struct sockaddr *)&address, length), 0);
    CHECK_EQ(listen(fd, 8), 0);
    atomic_store(&outcome->stage, 1);
    for (;;) pause();
}

static void beside_squatter(int32_t index, outcome_t *outcome) {
    tpc_bootstrap_t *bootstrap;
    set_rank(index);
    uint64_t start_ns = tpc_clock_ns();
    job_keep(outcome, job_meet_env(20000, &bootstrap), start_ns);
    if (outcome->status != TPCOMM_OK) return;
    job_check_met(bootstrap);
    tpc_bootstrap_free(bootstrap);
}

static void run_squatter(void) {
    int32_t other = JOB_MAX - 1;
    if (geteuid() != 0) {
        printf("another user: not tried, this one cannot become one\n");
        return;
    }
    find_name();
    job_prepare();
    job_start(other, squatter);
    job_await(other, 1);
    for (int32_t i = 0; i < SIZE; i++) job_start(i, beside_squatter);
    for (int32_t i = 0; i < SIZE; i++) job_wait(i);
    for (int32_t i = 0; i < SIZE; i++) CHECK_OUTCOME(i, TPCOMM_OK, "");
    kill(job_pids[other], SIGKILL);
    waitpid(job_pids[other], NULL, 0);
    printf("another user\n");
}

static void run(void) {
    find_name();
    job_prepare();
    for (int32_t i = 0; i < SIZE; i++) job_start(i, rank);
    job_start(STRANGERS, stranger);
    job_start(4, late_comer);
    for (int32_t i = 0; i < 5; i++) job_wait(i);
    CHECK_OUTCOME(4, TPCOMM_ERR_ADDR_IN_USE, "rank 1 is pid");
}

int main(void) {
    job_clean_environment();
    job_set_unique_id("strangers");
    run();
    printf("unix\n");
    run_squatter();
    port = job_find_ports(5, 1);
    job_set("TPCOMM_ROOT", "127.0.0.1:%u", port);
    run();
    printf("tcp\n");
    /* With a secret, which the strangers lack and the late-comer has. */
    job_set("TPCOMM_SECRET", "sesame, open, sesame");
    job_set_unique_id("strangers");
    port = job_find_ports(5, 1);
    job_set("TPCOMM_ROOT", "127.0.0.1:%u", port);
    run();
    printf("tcp, with a secret\n");
    return 0;
}
