/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Check that descriptors, threads, mappings and memory are as before after a thousand communicators, groups among them,
 * also where making one fails at each of its steps in turn; and that a process which runs out of descriptors or of
 * address space gets an error that says so, on every rank, and works again when there is room (F10).
 */
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "multirank/ranks.h"

/* Sanitizers keep what was freed, and map more than any limit here. */
#define CYCLES  (TEST_SANITIZED ? 100 : 1000)
#define WARM_UP (TEST_SANITIZED ? 20 : 100)

static long resident_kib(void) {
    FILE *file = fopen("/proc/self/statm", "re");
    long size = 0, resident = 0;
    CHECK(file != NULL);
    CHECK_EQ(fscanf(file, "%ld %ld", &size, &resident), 2);
    fclose(file);
    return resident * (sysconf(_SC_PAGESIZE) / 1024);
}

static tpcomm_config_t small_config(void) {
    tpcomm_config_t config = ranks_config();
    config.workspace_bytes = 65536;
    return config;
}

/* A world of one: one thread plays it all. */
static void one_cycle(int cycle) {
    tpcomm_config_t config = small_config();
    tpcomm_t *comm = NULL, *group = NULL;
    const int32_t ranks[] = {0};
    int32_t x = cycle;
    CHECK_OK(tpcomm_init_local(1, NULL, &config, &comm));
    CHECK_OK(tpcomm_all_reduce(comm, &x, &x, 1, TPCOMM_I32, TPCOMM_SUM, NULL));
    CHECK_EQ(x, cycle);
    if (cycle % 4 == 0) CHECK_OK(tpcomm_group_create(comm, ranks, 1, "group", &group));
    if (cycle % 8 == 0) CHECK_OK(tpcomm_destroy(comm));
    if (group != NULL) CHECK_OK(tpcomm_barrier(group, NULL));
    CHECK_OK(tpcomm_destroy(group));
    if (cycle % 8 != 0) CHECK_OK(tpcomm_destroy(comm));
}

static void two_cycle(int cycle) {
    tpcomm_config_t config = small_config();
    tpcomm_t *comms[2];
    CHECK_OK(tpcomm_init_local(2, NULL, &config, comms));
    if (cycle % 2 == 0) CHECK_OK(tpcomm_abort(comms[0], "enough"));
    for (int r = 0; r < 2; r++) CHECK_OK(tpcomm_destroy(comms[r]));
}

static void failing_cycle(int cycle) {
    static const char *const steps[] = {"settings",        "workspace_create",  "workspace_map",
                                        "workspace_probe", "backend",           "watch",
                                        "team/ready",      "team/map workspace"};
    char hooks[64];
    tpcomm_config_t config = small_config();
    tpcomm_t *comms[2];
    int victim = cycle % 8 == 1 ? 0 : cycle / 8 % 2; /* rank 0 alone creates */
    snprintf(hooks, sizeof hooks, "fail@%s:%d", steps[cycle % 8], victim);
    ranks_set_hooks(hooks);
    CHECK_STATUS(tpcomm_init_local(2, NULL, &config, comms), TPCOMM_ERR_PEER_FAILED);
    ranks_set_hooks("");
}

static void check_flat(const char *what, void (*cycle)(int), int cycles) {
    for (int i = 0; i < WARM_UP; i++) cycle(i);
    resources_t before = resources_now();
    long resident = resident_kib();
    for (int i = 0; i < cycles; i++) cycle(i);
    resources_check_equal(before, what);
    long grown = resident_kib() - resident;
    printf("%s: %d cycles, %ld KiB more resident\n", what, cycles, grown);
    /* One leaked page a cycle would be more. */
    if (!TEST_SANITIZED && grown > 2 * cycles + 512)
        FAIL("%s: %ld KiB more resident after %d cycles", what, grown, cycles);
}

/* ------------------------------------------------------------------ processes */

/* The same processes join, work and leave again and again. */
static void again(int32_t rank, int32_t size, void *arg) {
    tpcomm_config_t config = small_config();
    resources_t before = {0};
    (void)arg;
    for (int cycle = 0; cycle < 40; cycle++) {
        tpcomm_t *comm = NULL, *group = NULL;
        int32_t one = 1;
        CHECK_OK(tpcomm_init_env(&config, &comm));
        CHECK_OK(tpcomm_group_split(comm, rank % 2, 0, "half", &group));
        CHECK_OK(tpcomm_all_reduce(comm, &one, &one, 1, TPCOMM_I32, TPCOMM_SUM, NULL));
        CHECK_EQ(one, size);
        CHECK_OK(tpcomm_finalize(group));
        CHECK_OK(tpcomm_destroy(group));
        CHECK_OK(tpcomm_finalize(comm));
        CHECK_OK(tpcomm_destroy(comm));
        if (cycle == 3) before = resources_now();
    }
    resources_check_equal(before, "processes");
}

/* ------------------------------------------------------------------ limits */

static void set_descriptors(rlim_t value) {
    struct rlimit limit;
    CHECK_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
    limit.rlim_cur = value;
    CHECK_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

static void set_memory(rlim_t value) {
    struct rlimit limit;
    CHECK_EQ(getrlimit(RLIMIT_AS, &limit), 0);
    limit.rlim_cur = value;
    CHECK_EQ(setrlimit(RLIMIT_AS, &limit), 0);
}

/* Only so many descriptors more than there are: at some number it works, below that it fails by name and cleanly. */
static void without_descriptors(void) {
    tpcomm_config_t config = small_config();
    resources_t before = resources_now();
    int failed = 0, worked = 0, open_now = before.fds - 3; /* ".", "..", and the folder that was read */
    CHECK_EQ(setenv("TPCOMM_STATUS_SOCKET", "@tpcomm-resources-test-%p", 1), 0); /* with the watchdog and all */
    for (int room = 0; room < 40 && worked < 3; room++) {
        tpcomm_t *comms[2];
        set_descriptors((rlim_t)(open_now + room));
        tpcomm_status_t status = tpcomm_init_local(2, NULL, &config, comms);
        set_descriptors(1024);
        if (status == TPCOMM_OK) {
            worked++;
            for (int r = 0; r < 2; r++) CHECK_OK(tpcomm_destroy(comms[r]));
        } else {
            failed++;
            if (strstr(tpcomm_last_error(), "Too many open files") == NULL &&
                strstr(tpcomm_last_error(), "descriptor") == NULL)
                FAIL("with %d descriptors: %s: %s", room, tpcomm_status_name(status), tpcomm_last_error());
        }
        resources_check_equal(before, "a limit of descriptors");
    }
    CHECK(failed > 0 && worked == 3);
    printf("%d limits of descriptors failed by name\n", failed);
}

static void without_memory(void) {
    tpcomm_config_t config = ranks_config(); /* 32 MiB a rank */
    resources_t before = resources_now();
    FILE *file = fopen("/proc/self/statm", "re");
    long pages = 0;
    CHECK(file != NULL);
    CHECK_EQ(fscanf(file, "%ld", &pages), 1);
    fclose(file);
    rlim_t now = (rlim_t)pages * (rlim_t)sysconf(_SC_PAGESIZE);
    int failed = 0;
    for (rlim_t mib = 1; mib < 64; mib += 5) {
        tpcomm_t *comms[4];
        set_memory(now + (mib << 20));
        tpcomm_status_t status = tpcomm_init_local(4, NULL, &config, comms);
        set_memory(RLIM_INFINITY);
        if (status == TPCOMM_OK) {
            for (int r = 0; r < 4; r++) CHECK_OK(tpcomm_destroy(comms[r]));
        } else {
            failed++;
            if (strstr(tpcomm_last_error(), "emory") == NULL && strstr(tpcomm_last_error(), "thread") == NULL)
                FAIL("with %d MiB: %s: %s", (int)mib, tpcomm_status_name(status), tpcomm_last_error());
        }
        resources_check_equal(before, "a limit of memory");
    }
    CHECK(failed > 0);
    printf("%d limits of memory failed by name\n", failed);
    tpcomm_t *comm = NULL;
    CHECK_OK(tpcomm_init_local(1, NULL, &config, &comm));
    CHECK_OK(tpcomm_destroy(comm));
}

static void in_child(void (*fn)(void)) {
    fflush(NULL);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        fn();
        fflush(NULL);
        _Exit(0);
    }
    int how = 0;
    CHECK_EQ(waitpid(child, &how, 0), child);
    if (how != 0) FAIL("a child ended with %#x", (unsigned)how);
}

int main(void) {
    ranks_set_hooks("");
    check_flat("worlds of one and their groups", one_cycle, CYCLES);
    check_flat("worlds of two, half of them aborted", two_cycle, CYCLES / 2);
    check_flat("worlds that fail at each step", failing_cycle, CYCLES / 4);
    ranks_fork(2, again, NULL);
    in_child(without_descriptors);
    if (!TEST_SANITIZED) in_child(without_memory);
    return 0;
}
