/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Check that a rank which has no memory for a control message, to be sent or to be kept, from any one on, is told of on
 * all ranks at once, by name, and not waited for until the limit, nor called dead (H7, F7): in init, and while a group
 * is made; processes of one host and of two, threads.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "multirank/ranks.h"

#define SIZE     3
#define LIMIT_MS 40000
#define SOON_MS  15000

typedef struct {
    const char *point;
    int32_t victim, passing;
    const char *root; /* NULL: one host */
} fault_t;

/* Ranks that know how it ended: before that nobody destroys what others may still wait in. In shared memory. */
static _Atomic int32_t *know;

static void await_all(void) {
    atomic_fetch_add(know, 1);
    for (int ms = 0; atomic_load(know) < SIZE; ms++) {
        CHECK(ms < LIMIT_MS);
        usleep(1000);
    }
}

/* Whether this rank saw nothing of the fault. */
static bool use(tpcomm_t *comm, tpcomm_status_t status, const fault_t *fault, int32_t rank) {
    static const int32_t all[SIZE] = {0, 1, 2};
    char name[32];
    tpcomm_t *group = NULL;
    snprintf(name, sizeof name, "rank %d", fault->victim);
    if (status == TPCOMM_OK) status = tpcomm_group_create(comm, all, SIZE, "all", &group);
    if (status != TPCOMM_OK && rank != fault->victim) {
        if (status != TPCOMM_ERR_ABORTED) CHECK_STATUS(status, TPCOMM_ERR_PEER_FAILED);
        CHECK_ERROR_HAS(name);
    }
    await_all();
    CHECK_OK(tpcomm_destroy(group));
    return status == TPCOMM_OK;
}

/* Its exit code tells whether the fault was beyond all messages. */
static void process(int32_t rank, int32_t size, void *arg) {
    const fault_t *fault = arg;
    char hooks[64], host[16];
    (void)size;
    /* A rank 0 that fails tells those who are late here. */
    snprintf(hooks, sizeof hooks, "set@refuse_ms:10000;fail@%s:%d:%d", fault->point,
             strcmp(fault->point, "link_send") == 0 ? rank : 0, fault->passing);
    snprintf(host, sizeof host, "host%d", rank % 2);
    if (fault->root != NULL) {
        setenv("TPCOMM_ROOT", fault->root, 1);
        setenv("TPCOMM_HOST_ID", host, 1);
        setenv("TPCOMM_SECRET", "the secret of this test", 1);
    }
    resources_t before = resources_now();
    tpcomm_config_t config = {.struct_size = sizeof config,
                              .device_kind = TPCOMM_DEVICE_CPU,
                              .init_timeout_ms = LIMIT_MS,
                              .op_timeout_ms = LIMIT_MS};
    tpcomm_t *comm = NULL;
    uint64_t start_ns = tpc_clock_ns();
    ranks_set_hooks(rank == fault->victim ? hooks : "set@refuse_ms:10000");
    tpcomm_status_t status = tpcomm_init_env(&config, &comm);
    bool whole = use(comm, status, fault, rank);
    CHECK(tpc_clock_ns() - start_ns < SOON_MS * UINT64_C(1000000));
    CHECK_OK(tpcomm_destroy(comm));
    ranks_set_hooks("");
    resources_check_equal(before, fault->point);
    if (!whole && rank == 0) {
        int fd = (int)strtol(getenv("TPCOMM_TEST_PIPE"), NULL, 10);
        CHECK_EQ(write(fd, "x", 1), 1);
    }
}

/* Whether rank 0 saw the fault. */
static bool run_processes(fault_t *fault, bool hosts) {
    int ends[2];
    char text[16], seen;
    CHECK_EQ(pipe(ends), 0);
    atomic_store(know, 0);
    snprintf(text, sizeof text, "%d", ends[1]);
    setenv("TPCOMM_TEST_PIPE", text, 1);
    fault->root = hosts ? ranks_hold_root() : NULL;
    ranks_fork(SIZE, process, fault);
    close(ends[1]);
    bool saw = read(ends[0], &seen, 1) == 1;
    close(ends[0]);
    return saw;
}

typedef struct {
    const fault_t *fault;
    tpcomm_t *comm;
    int32_t rank;
    bool whole;
} thread_rank_t;

static void *thread_main(void *arg) {
    thread_rank_t *rank = arg;
    rank->whole = use(rank->comm, TPCOMM_OK, rank->fault, rank->rank);
    return NULL;
}

static bool run_threads(const fault_t *fault) {
    char hooks[64];
    tpcomm_t *comms[SIZE];
    pthread_t threads[SIZE];
    thread_rank_t ranks[SIZE];
    resources_t before = resources_now();
    tpcomm_config_t config = {
        .struct_size = sizeof config, .device_kind = TPCOMM_DEVICE_CPU, .init_timeout_ms = LIMIT_MS};
    uint64_t start_ns = tpc_clock_ns();
    snprintf(hooks, sizeof hooks, "fail@%s:%d:%d", fault->point, fault->victim, fault->passing);
    ranks_set_hooks(hooks);
    atomic_store(know, 0);
    bool saw = tpcomm_init_local(SIZE, NULL, &config, comms) != TPCOMM_OK;
    for (int32_t r = 0; !saw && r < SIZE; r++) {
        ranks[r] = (thread_rank_t){fault, comms[r], r, false};
        CHECK_EQ(pthread_create(&threads[r], NULL, thread_main, &ranks[r]), 0);
    }
    for (int32_t r = 0; !saw && r < SIZE; r++) CHECK_EQ(pthread_join(threads[r], NULL), 0);
    bool whole = !saw && ranks[0].whole;
    for (int32_t r = 0; r < SIZE; r++) CHECK_OK(tpcomm_destroy(comms[r]));
    CHECK(tpc_clock_ns() - start_ns < SOON_MS * UINT64_C(1000000));
    ranks_set_hooks("");
    resources_check_equal(before, fault->point);
    return !whole;
}

int main(void) {
    know = mmap(NULL, sizeof *know, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(know != MAP_FAILED);
    for (int32_t victim = 0; victim < SIZE; victim++) {
        fault_t fault = {.point = "link_send", .victim = victim, .passing = 1};
        while (run_threads(&fault)) fault.passing++;
        printf("threads: rank %d sends %d messages\n", victim, fault.passing - 1);
        CHECK(fault.passing > 5);
    }
    for (int i = 0; i < 4; i++)
        for (int32_t victim = 0; victim < SIZE; victim++) {
            bool hosts = i / 2 == 1;
            fault_t fault = {.point = i % 2 == 0 ? "link_send" : "link_receive", .victim = victim, .passing = 1};
            while (run_processes(&fault, hosts)) fault.passing += hosts ? 7 : 3;
            printf("%s: %s of rank %d: beyond message %d\n", hosts ? "two hosts" : "one host", fault.point, victim,
                   fault.passing - 1);
            CHECK(fault.passing > 5);
        }
    return 0;
}
