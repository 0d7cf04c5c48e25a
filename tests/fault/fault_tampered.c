/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Check that a job with a secret believes nothing of somebody who sits on the way between its hosts: a frame that is
 * changed, repeated or put in is AUTH on both sides, in init and later, and what is only carried on works as ever.
 */
#include "bootstrap/wire.h"
#include "coordinator/comm.h"
#include "unit/bootstrap_job.h"

#define SECRET "a secret that nobody sees"
#define TEXT   "changed, repeated, left out or moved on the way"

enum { FLIP, REPEAT, NOTHING, MODES };
static const char *const modes[MODES] = {"changed", "repeated", "untouched"};

/* What rank 1 says after its greeting and its proof: frames alone. */
enum { GREETINGS = 2 * sizeof(tpc_greeting_t) };

/* Rank 0 is bound to another address of the loopback than the one where all look for it. */
#define SOUGHT "127.0.0.1"
#define BOUND  "127.0.0.2"
static uint16_t port;
static int proxy_mode;

static struct sockaddr_in address_of(const char *host) {
    return (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = inet_addr(host)};
}

static int new_socket(void) {
    int yes = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(fd >= 0);
    CHECK_EQ(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes), 0);
    return fd;
}

/* Everything both ways, until both sides are done; once, what the caller says behind its greetings is meddled with.
 * False: it came at the wrong moment, and comes again. */
static bool carry(int caller, int host, int mode) {
    static unsigned char bytes[65536];
    size_t said = 0;
    bool meddled = false;
    struct pollfd polls[2] = {{.fd = caller, .events = POLLIN}, {.fd = host, .events = POLLIN}};
    const int fds[2] = {caller, host};
    while (polls[0].fd >= 0 || polls[1].fd >= 0) {
        CHECK(poll(polls, 2, 30000) > 0);
        for (int from = 0; from < 2; from++) {
            if (polls[from].fd < 0 || polls[from].revents == 0) continue;
            ssize_t got = recv(fds[from], bytes, sizeof bytes, 0);
            if (got <= 0) {
                shutdown(fds[1 - from], SHUT_WR);
                polls[from].fd = -1;
                continue;
            }
            bool now = from == 0 && said >= GREETINGS && !meddled && mode != NOTHING;
            if (now && mode == FLIP) bytes[got / 2] ^= 1;
            for (int times = 0; times < (now && mode == REPEAT ? 2 : 1); times++)
                (void)send(fds[1 - from], bytes, (size_t)got, MSG_NOSIGNAL);
            meddled |= now;
            if (from == 0) said += (size_t)got;
        }
    }
    return mode == NOTHING ? said > GREETINGS : meddled;
}

static void proxy(void) {
    struct sockaddr_in here = address_of(SOUGHT), there = address_of(BOUND);
    int listener = new_socket();
    CHECK_EQ(bind(listener, (struct sockaddr *)&here, sizeof here), 0);
    CHECK_EQ(listen(listener, 8), 0);
    atomic_store(&job_outcomes[2].stage, 1);
    for (bool over = false; !over;) {
        int caller = accept4(listener, NULL, NULL, SOCK_CLOEXEC), host = new_socket();
        CHECK(caller >= 0);
        if (connect(host, (struct sockaddr *)&there, sizeof there) == 0) over = carry(caller, host, proxy_mode);
        close(host);
        close(caller);
    }
    close(listener);
}

static void set_rank(int32_t index) {
    job_set("TPCOMM_RANK", "%d", index);
    job_set("TPCOMM_SIZE", "%d", 2);
    job_set("TPCOMM_HOST_ID", "host-%d", index);
    job_set("TPCOMM_SECRET", "%s", SECRET);
    job_set("TPCOMM_ROOT", SOUGHT ":%u", port);
}

static void behind_proxy(int32_t index, outcome_t *outcome) {
    tpc_bootstrap_t *bootstrap;
    if (index == 2) {
        proxy();
        return;
    }
    job_await(2, 1);
    set_rank(index);
    if (index == 0) job_set("TPCOMM_BIND", BOUND);
    if (index == 1) job_set("TPCOMM_TEST_HOOKS", "set@no_unix:1"); /* this is one host, after all */
    tpc_hook_reload();
    uint64_t start_ns = tpc_clock_ns();
    job_keep(outcome, job_meet_env(20000, &bootstrap), start_ns);
    if (outcome->status != TPCOMM_OK) return;
    job_check_met(bootstrap);
    tpc_bootstrap_free(bootstrap);
}

static void check_proxy(int mode) {
    job_set_unique_id("proxy");
    proxy_mode = mode;
    job_run(3, behind_proxy);
    for (int32_t i = 0; i < 2; i++)
        CHECK_OUTCOME(i, mode == NOTHING ? TPCOMM_OK : TPCOMM_ERR_AUTH, mode == NOTHING ? "" : TEXT);
    printf("frames %s: after %llu and %llu ms\n", modes[mode], (unsigned long long)job_outcomes[0].ms,
           (unsigned long long)job_outcomes[1].ms);
}

/* Something on rank 1's link, by whoever has no keys; rank 0 notices, and says so. */
static void injected(int32_t index, outcome_t *outcome) {
    static const unsigned char junk[400] = "a frame of somebody's own making";
    tpcomm_t *comm = NULL;
    tpcomm_error_t error = {.struct_size = sizeof error};
    tpcomm_config_t config = {.struct_size = sizeof config,
                              .device_kind = TPCOMM_DEVICE_CPU,
                              .init_timeout_ms = 20000,
                              .op_timeout_ms = 20000};
    int32_t all[2], mine = 10 + index;
    set_rank(index);
    CHECK_OK(tpcomm_init_env(&config, &comm));
    for (int i = 0; i < 50; i++) {
        CHECK_OK(tpcomm_host_all_gather(comm, &mine, all, sizeof mine, 0));
        CHECK(all[0] == 10 && all[1] == 11);
    }
    if (index == 1) {
        int fd = tpc_bootstrap_socket(comm->world->bootstrap, 0);
        CHECK_EQ(send(fd, junk, sizeof junk, MSG_NOSIGNAL), (ssize_t)sizeof junk);
    }
    for (int ms = 0; tpcomm_async_status(comm, &error) == TPCOMM_OK; ms++) {
        CHECK(ms < 20000);
        poll(NULL, 0, 1);
    }
    outcome->status = error.status;
    snprintf(outcome->text, sizeof outcome->text, "%s", error.text);
    CHECK_STATUS(tpcomm_host_barrier(comm, 0), error.status);
    CHECK_OK(tpcomm_destroy(comm));
}

int main(void) {
    job_clean_environment();
    port = job_find_ports(5, 2);
    for (int mode = 0; mode < MODES; mode++) check_proxy(mode);
    job_set_unique_id("injected");
    job_run(2, injected);
    for (int32_t i = 0; i < 2; i++) CHECK_OUTCOME(i, TPCOMM_ERR_AUTH, TEXT);
    printf("put in later: %s\n", job_outcomes[0].text);
    return 0;
}
