/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Check that ranks on two hosts meet by TPCOMM_ROOT, by MASTER_ADDR with a launcher that holds MASTER_PORT, by unique
 * id and by exchange, that a world of both works, and that what goes wrong between hosts is told (H5). A host is a
 * network namespace; a pair of virtual interfaces joins them.
 */
#include <arpa/inet.h>
#include <linux/if_link.h>
#include <linux/rtnetlink.h>
#include <linux/veth.h>
#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "multirank/ranks.h"
#include "multirank/stalls.h"
#include "unit/bootstrap_job.h"

#define SIZE   3
#define HOST_A 20 /* process that makes host A and starts ranks 0 and 2 there */
#define HOST_B 21 /* ... host B with rank 1 */
#define PORT   27100
/* Where a rank is missing: long enough that nobody else is late. */
#define LIMIT_MS 3000

/* ------------------------------------------------------------------ making two hosts */

static void put_attribute(struct nlmsghdr *message, uint16_t type, const void *bytes, size_t count) {
    struct rtattr *attribute = (struct rtattr *)((char *)message + NLMSG_ALIGN(message->nlmsg_len));
    attribute->rta_type = type;
    attribute->rta_len = (uint16_t)RTA_LENGTH(count);
    if (count > 0) memcpy(RTA_DATA(attribute), bytes, count);
    message->nlmsg_len = (uint32_t)(NLMSG_ALIGN(message->nlmsg_len) + RTA_ALIGN(attribute->rta_len));
}

static struct rtattr *begin_nest(struct nlmsghdr *message, uint16_t type) {
    struct rtattr *nest = (struct rtattr *)((char *)message + NLMSG_ALIGN(message->nlmsg_len));
    put_attribute(message, type, NULL, 0);
    return nest;
}

static void end_nest(struct nlmsghdr *message, struct rtattr *nest) {
    nest->rta_len = (uint16_t)((char *)message + NLMSG_ALIGN(message->nlmsg_len) - (char *)nest);
}

/** ip link add tpc0 type veth peer name tpc0 netns PID. Returns 0 or an errno value. */
static int add_veth(pid_t peer) {
    union {
        struct nlmsghdr header;
        char bytes[1024];
    } request;
    memset(&request, 0, sizeof request);
    request.header.nlmsg_len = NLMSG_LENGTH(sizeof(struct ifinfomsg));
    request.header.nlmsg_type = RTM_NEWLINK;
    request.header.nlmsg_flags = NLM_F_REQUEST | NLM_F_CREATE | NLM_F_EXCL | NLM_F_ACK;
    put_attribute(&request.header, IFLA_IFNAME, "tpc0", 5);
    struct rtattr *info = begin_nest(&request.header, IFLA_LINKINFO);
    put_attribute(&request.header, IFLA_INFO_KIND, "veth", 4);
    struct rtattr *data = begin_nest(&request.header, IFLA_INFO_DATA);
    struct rtattr *other = begin_nest(&request.header, VETH_INFO_PEER);
    request.header.nlmsg_len += (uint32_t)sizeof(struct ifinfomsg);
    put_attribute(&request.header, IFLA_IFNAME, "tpc0", 5);
    uint32_t pid = (uint32_t)peer;
    put_attribute(&request.header, IFLA_NET_NS_PID, &pid, sizeof pid);
    end_nest(&request.header, other);
    end_nest(&request.header, data);
    end_nest(&request.header, info);

    int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
    if (fd < 0) return errno;
    int err = 0;
    union {
        struct nlmsghdr header;
        char bytes[4096];
    } answer;
    if (send(fd, &request, request.header.nlmsg_len, 0) < 0 || recv(fd, &answer, sizeof answer, 0) < 0)
        err = errno;
    else if (answer.header.nlmsg_type == NLMSG_ERROR)
        err = -((struct nlmsgerr *)NLMSG_DATA(&answer.header))->error;
    close(fd);
    return err;
}

static int bring_up(const char *name) {
    struct ifreq request = {.ifr_flags = IFF_UP};
    snprintf(request.ifr_name, sizeof request.ifr_name, "%s", name);
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    int err = fd < 0 || ioctl(fd, SIOCSIFFLAGS, &request) != 0 ? errno : 0;
    if (fd >= 0) close(fd);
    return err;
}

/** 10.77.0.HOST/24 for tpc0. */
static int give_address(int host) {
    struct ifreq request;
    struct sockaddr_in address = {.sin_family = AF_INET}, mask = {.sin_family = AF_INET};
    memset(&request, 0, sizeof request);
    snprintf(request.ifr_name, sizeof request.ifr_name, "tpc0");
    address.sin_addr.s_addr = htonl(0x0a4d0000u + (uint32_t)host);
    mask.sin_addr.s_addr = htonl(0xffffff00u);
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    memcpy(&request.ifr_addr, &address, sizeof address);
    int err = fd < 0 || ioctl(fd, SIOCSIFADDR, &request) != 0 ? errno : 0;
    memcpy(&request.ifr_netmask, &mask, sizeof mask);
    if (err == 0 && ioctl(fd, SIOCSIFNETMASK, &request) != 0) err = errno;
    if (fd >= 0) close(fd);
    return err;
}

static int enter_namespace(void) {
    if (unshare(CLONE_NEWNET) == 0) return 0;
    return unshare(CLONE_NEWUSER | CLONE_NEWNET) == 0 ? 0 : errno;
}

/* ------------------------------------------------------------------ ranks */

static int32_t host_of(int32_t rank) {
    return rank == 1 ? HOST_B : HOST_A;
}

static void finish(outcome_t *outcome, tpcomm_status_t status, tpc_bootstrap_t *bootstrap, uint64_t start_ns,
                   int32_t fds) {
    job_keep(outcome, status, start_ns);
    if (status == TPCOMM_OK) {
        int32_t me = tpc_bootstrap_rank(bootstrap);
        job_check_met(bootstrap);
        for (int32_t rank = 0; rank < SIZE; rank++) {
            const tpc_member_t *member = tpc_bootstrap_member(bootstrap, rank);
            CHECK_EQ(member->same_host, host_of(rank) == host_of(me));
            CHECK_EQ(member->pid != 0, host_of(rank) == host_of(me));
        }
        outcome->nonce = tpc_bootstrap_nonce(bootstrap);
        snprintf(outcome->text, sizeof outcome->text, "%s", tpc_bootstrap_text(bootstrap));
        tpc_bootstrap_free(bootstrap);
    }
    CHECK_EQ(job_count_fds(), fds);
}

static void by_environment(outcome_t *outcome, uint64_t timeout_ms) {
    int32_t fds = job_count_fds();
    tpc_bootstrap_t *bootstrap = NULL;
    uint64_t start_ns = tpc_clock_ns();
    tpcomm_status_t status = job_meet_env(timeout_ms, &bootstrap);
    finish(outcome, status, bootstrap, start_ns, fds);
}

static void set_own(int32_t rank) {
    job_set("TPCOMM_RANK", "%d", rank);
    job_set("TPCOMM_SIZE", "%d", SIZE);
    job_set("TPCOMM_ROOT", "10.77.0.1:%d", PORT);
}

static void set_torchrun(int32_t rank) {
    job_set("RANK", "%d", rank);
    job_set("WORLD_SIZE", "%d", SIZE);
    job_set("LOCAL_WORLD_SIZE", "%d", rank == 1 ? 1 : 2);
    job_set("MASTER_ADDR", "10.77.0.1");
    job_set("MASTER_PORT", "%d", PORT);
}

static void by_root(int32_t rank, outcome_t *outcome) {
    set_own(rank);
    by_environment(outcome, 20000);
}

static void by_master(int32_t rank, outcome_t *outcome) {
    set_torchrun(rank);
    by_environment(outcome, 20000);
}

static void by_id(int32_t rank, outcome_t *outcome) {
    int32_t fds = job_count_fds();
    tpc_env_t env;
    tpc_bootstrap_t *bootstrap = NULL;
    CHECK_OK(tpc_env_read(&env));
    if (rank == 0) {
        CHECK_OK(tpc_bootstrap_make_id(&env, &outcome->id));
        atomic_store(&outcome->stage, 1);
    }
    job_await(0, 1);
    tpc_deadline_t deadline = tpc_deadline_in(20000, NULL, NULL);
    uint64_t start_ns = tpc_clock_ns();
    tpcomm_status_t status = tpc_bootstrap_meet_id(&job_outcomes[0].id, rank, SIZE, &env, &deadline, &bootstrap);
    finish(outcome, status, bootstrap, start_ns, fds);
}

static struct {
    _Atomic int32_t arrived[2];
    char bytes[2][SIZE][512];
} * board;

static int32_t exchange(void *arg, const void *mine, void *all, size_t bytes, uint32_t timeout_ms) {
    int32_t *state = arg; /* rank, calls so far */
    int32_t call = state[1]++;
    memcpy(board->bytes[call][state[0]], mine, bytes);
    atomic_fetch_add(&board->arrived[call], 1);
    for (uint32_t ms = 0; atomic_load(&board->arrived[call]) < SIZE; ms++) {
        if (ms == timeout_ms) return 0;
        poll(NULL, 0, 1);
    }
    for (int32_t rank = 0; rank < SIZE; rank++)
        memcpy((char *)all + (size_t)rank * bytes, board->bytes[call][rank], bytes);
    return 1;
}

static void by_exchange(int32_t rank, outcome_t *outcome) {
    int32_t fds = job_count_fds(), state[2] = {rank, 0};
    tpc_env_t env;
    tpc_bootstrap_t *bootstrap = NULL;
    CHECK_OK(tpc_env_read(&env));
    tpc_deadline_t deadline = tpc_deadline_in(20000, NULL, NULL);
    uint64_t start_ns = tpc_clock_ns();
    tpcomm_status_t status = tpc_bootstrap_meet_exchange(rank, SIZE, exchange, state, &env, &deadline, &bootstrap);
    finish(outcome, status, bootstrap, start_ns, fds);
}

/* What goes wrong. */

/** Two containers that were told one identity: the link by unix socket cannot be, and nobody waits for it. */
static void one_identity(int32_t rank, outcome_t *outcome) {
    setenv("TPCOMM_HOST_ID", "the same", 1);
    by_root(rank, outcome);
}

/** As the launcher of hosts does, with no place to meet at. */
static void no_place(int32_t rank, outcome_t *outcome) {
    set_torchrun(rank);
    unsetenv("MASTER_ADDR");
    moment_t start = moment_now();
    by_environment(outcome, 20000);
    CHECK_WITHIN(start, 5000);
}

/** Nothing says that there are two hosts: each meets on its own, and the text says what to set. */
static void unknown_hosts(int32_t rank, outcome_t *outcome) {
    set_own(rank);
    unsetenv("TPCOMM_ROOT");
    by_environment(outcome, LIMIT_MS);
}

static void missing_rank(int32_t rank, outcome_t *outcome) {
    set_own(rank);
    if (rank != 1) by_environment(outcome, LIMIT_MS);
}

/** PORT is held on host A by somebody silent. */
static void taken(int32_t rank, outcome_t *outcome) {
    set_own(rank);
    by_environment(outcome, LIMIT_MS);
}

/** Rank 1 ends when the others are behind this place: before, they might be told of its death too early. */
static void end_first(int32_t rank, outcome_t *outcome) {
    atomic_store(&outcome->stage, 1);
    if (rank != 1) return;
    job_await(0, 1);
    job_await(2, 1);
    _Exit(0);
}

/** The rank of the other host ends when all have met. */
static void dies(int32_t rank, outcome_t *outcome) {
    static const int32_t ranks[SIZE] = {0, 1, 2};
    tpc_bootstrap_t *bootstrap;
    set_own(rank);
    CHECK_OK(job_meet_env(20000, &bootstrap));
    job_check_met(bootstrap);
    end_first(rank, outcome);
    tpc_team_t world = {.channel = 0, .ranks = ranks, .n = SIZE, .me = rank};
    tpc_deadline_t deadline = tpc_deadline_in(30000, NULL, NULL);
    uint64_t start_ns = tpc_clock_ns();
    job_keep(outcome, tpc_team_gather(bootstrap, &world, "later", TPCOMM_OK, NULL, 0, NULL, &deadline), start_ns);
    tpc_bootstrap_free(bootstrap);
}

/** A world of both hosts: data within one, messages across, and what is told of a rank that ends. */
static void by_communicator(int32_t rank, outcome_t *outcome) {
    int32_t fds = job_count_fds(), ranks[2] = {0, 2}, sum = 1 << rank, all[SIZE];
    tpcomm_config_t config = {.struct_size = sizeof config, .device_kind = TPCOMM_DEVICE_CPU, .init_timeout_ms = 20000};
    tpcomm_t *world = NULL, *tp = NULL;
    set_own(rank);
    CHECK_OK(tpcomm_init_env(&config, &world));
    CHECK_OK(tpcomm_host_all_gather(world, &rank, all, sizeof rank, 0));
    for (int32_t r = 0; r < SIZE; r++) CHECK_EQ(all[r], r);
    CHECK_OK(tpcomm_group_create(world, ranks, 2, "tp", &tp));
    if (tp != NULL) {
        CHECK_OK(tpcomm_all_reduce(tp, &sum, &sum, 1, TPCOMM_I32, TPCOMM_SUM, NULL));
        CHECK_EQ(sum, 5);
        CHECK_OK(tpcomm_finalize(tp));
        CHECK_OK(tpcomm_destroy(tp));
    }
    CHECK_STATUS(tpcomm_all_reduce(world, &sum, &sum, 1, TPCOMM_I32, TPCOMM_SUM, NULL), TPCOMM_ERR_NO_TRANSPORT);
    CHECK_OK(tpcomm_host_barrier(world, 0));
    end_first(rank, outcome);
    moment_t start = moment_now();
    ranks_await_failure(world);
    job_keep(outcome, tpcomm_host_barrier(world, 0), start.wall_ns);
    CHECK_WITHIN(start, 4000);
    CHECK_OK(tpcomm_destroy(world));
    CHECK_EQ(job_count_fds(), fds);
}

/* ------------------------------------------------------------------ trials */

static void all_met(void) {
    for (int32_t rank = 0; rank < SIZE; rank++) {
        CHECK_OUTCOME(rank, TPCOMM_OK, "");
        CHECK(job_outcomes[rank].nonce == job_outcomes[0].nonce && job_outcomes[0].nonce != 0);
    }
}

static void all_refused(void) {
    for (int32_t rank = 0; rank < SIZE; rank++) {
        CHECK_OUTCOME(rank, TPCOMM_ERR_CONFIG, "TPCOMM_HOST_ID");
        CHECK(job_outcomes[rank].ms < 15000);
    }
}

static void all_without_place(void) {
    for (int32_t rank = 0; rank < SIZE; rank++) CHECK_OUTCOME(rank, TPCOMM_ERR_CONFIG, "TPCOMM_ROOT");
}

static void all_apart(void) {
    for (int32_t rank = 0; rank < SIZE; rank++) {
        CHECK_OUTCOME(rank, TPCOMM_ERR_TIMEOUT, rank == 1 ? "missing ranks: 0" : "missing ranks: 1");
        CHECK_OUTCOME(rank, TPCOMM_ERR_TIMEOUT, "If the ranks are on several hosts, set TPCOMM_ROOT");
    }
}

static void one_missing(void) {
    CHECK_OUTCOME(0, TPCOMM_ERR_TIMEOUT, "missing ranks: 1");
    CHECK_OUTCOME(2, TPCOMM_ERR_TIMEOUT, "missing ranks: 1");
}

/** On rank 0's host at once; from afar a silent holder looks as a busy rank 0 does. */
static void all_told_of_port(void) {
    CHECK_OUTCOME(0, TPCOMM_ERR_ADDR_IN_USE, "port 27100 is taken");
    CHECK_OUTCOME(2, TPCOMM_ERR_ADDR_IN_USE, "port 27100 is taken");
    CHECK_OUTCOME(1, TPCOMM_ERR_TIMEOUT, "10.77.0.1:27100: whoever listens there does not answer");
}

static void death_told(void) {
    for (int32_t rank = 0; rank < SIZE; rank += 2) {
        CHECK_OUTCOME(rank, TPCOMM_ERR_PEER_DIED, "rank 1");
        CHECK(job_outcomes[rank].ms < 15000);
    }
}

static const struct {
    const char *name;
    job_body_t body;
    void (*check)(void);
    bool held; /**< a launcher's agent on host A holds PORT, a stranger PORT + 1 */
} trials[] = {
    {"TPCOMM_ROOT", by_root, all_met, false},
    {"MASTER_ADDR", by_master, all_met, true},
    {"unique id", by_id, all_met, false},
    {"exchange", by_exchange, all_met, false},
    {"one identity", one_identity, all_refused, false},
    {"no place", no_place, all_without_place, false},
    {"unknown hosts", unknown_hosts, all_apart, false},
    {"missing rank", missing_rank, one_missing, false},
    {"port taken", taken, all_told_of_port, true},
    {"death", dies, death_told, false},
    {"communicator", by_communicator, death_told, false},
};
#define TRIALS (int)(sizeof trials / sizeof trials[0])

static int hold(uint16_t port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(fd, (struct sockaddr *)&address, sizeof address) != 0 || listen(fd, 8) != 0)
        FAIL("port %u: %s", port, strerror(errno));
    return fd;
}

/** The ranks of one host, trial by trial; both hosts begin and end each together. */
static void run_trials(int32_t index, outcome_t *outcome) {
    int32_t other = index == HOST_A ? HOST_B : HOST_A;
    for (int trial = 0; trial < TRIALS; trial++) {
        int held[2] = {-1, -1};
        if (index == HOST_A) {
            memset(job_outcomes, 0, SIZE * sizeof *job_outcomes);
            memset(board, 0, sizeof *board);
            held[0] = trials[trial].held ? hold(PORT) : -1;
            held[1] = trials[trial].held ? hold(PORT + 1) : -1;
        }
        atomic_store(&outcome->stage, 10 + 2 * trial);
        job_await(other, 10 + 2 * trial);
        for (int32_t rank = 0; rank < SIZE; rank++)
            if (host_of(rank) == index) job_start(rank, trials[trial].body);
        for (int32_t rank = 0; rank < SIZE; rank++)
            if (host_of(rank) == index) job_wait(rank);
        atomic_store(&outcome->stage, 11 + 2 * trial);
        job_await(other, 11 + 2 * trial);
        for (int i = 0; i < 2; i++)
            if (held[i] >= 0) close(held[i]);
        if (index != HOST_A) continue;
        printf("%s: %llu ms\n", trials[trial].name, (unsigned long long)job_outcomes[0].ms);
        fflush(stdout);
        trials[trial].check();
    }
}

/** Stages: 1 the namespace is there, 2 the interface, 3 its address. outcome->status is an errno value. */
static void host_b(int32_t index, outcome_t *outcome) {
    outcome->status = enter_namespace();
    atomic_store(&outcome->stage, 1);
    job_await(HOST_A, 2);
    if (job_outcomes[HOST_A].status == 0) outcome->status = bring_up("lo");
    if (outcome->status == 0) outcome->status = give_address(2);
    if (outcome->status == 0) outcome->status = bring_up("tpc0");
    atomic_store(&outcome->stage, 3);
    job_await(HOST_A, 3);
    if (outcome->status == 0 && job_outcomes[HOST_A].status == 0) run_trials(index, outcome);
}

static void host_a(int32_t index, outcome_t *outcome) {
    outcome->status = enter_namespace();
    if (outcome->status != 0) return;
    job_start(HOST_B, host_b); /* in the same user namespace */
    job_await(HOST_B, 1);
    outcome->status = job_outcomes[HOST_B].status;
    if (outcome->status == 0) outcome->status = add_veth(job_pids[HOST_B]);
    if (outcome->status == 0) outcome->status = bring_up("lo");
    if (outcome->status == 0) outcome->status = give_address(1);
    if (outcome->status == 0) outcome->status = bring_up("tpc0");
    atomic_store(&outcome->stage, 2);
    job_await(HOST_B, 3);
    if (outcome->status == 0) outcome->status = job_outcomes[HOST_B].status;
    atomic_store(&outcome->stage, 3);
    if (outcome->status == 0) run_trials(index, outcome);
    job_wait(HOST_B);
}

int main(void) {
    job_clean_environment();
    job_set_unique_id("hosts");
    /* Rank 0 tells who is late here how it ended, and is waited for by who gives up. */
    job_set("TPCOMM_TEST_HOOKS", "set@refuse_ms:20000;set@last_word_ms:20000");
    stalls_watch();
    board = mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(board != MAP_FAILED);
    job_prepare();
    job_start(HOST_A, host_a);
    job_wait(HOST_A);
    if (job_outcomes[HOST_A].status != 0)
        SKIP("two network namespaces and a link between them are not to be had here: %s",
             strerror(job_outcomes[HOST_A].status));
    return 0;
}
