/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Check that the end of a process is seen by the others within 2 s, with its rank, wherever it happens (H9, I3): killed
 * inside a collective, between calls, exited without a word; and that a rank which is only stopped is a TIMEOUT that
 * names it. Afterwards the survivors make a new world, and no memory, descriptor or name is left. When all ranks are
 * stopped for longer than the limit, while some wait for another, and go on, nothing has happened.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dirent.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "multirank/ranks.h"
#include "multirank/stalls.h"

/* Entries of this test alone where that can be had: others that run at once have theirs. */
static void own_shm(void) {
    if (unshare(CLONE_NEWNS) != 0) return;
    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0) (void)mount("shm", "/dev/shm", "tmpfs", 0, NULL);
}

static int shm_entries(void) {
    DIR *dir = opendir("/dev/shm");
    if (dir == NULL) return 0;
    int count = 0;
    while (readdir(dir) != NULL) count++;
    closedir(dir);
    return count;
}

/* Fork without waiting: the test kills and reaps itself. */
static pid_t spawn(int32_t rank, int32_t size, const char *job, void (*fn)(int32_t rank, int32_t size)) {
    fflush(NULL);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid != 0) return pid;
    ranks_set_env(rank, size, job);
    fn(rank, size);
    fflush(NULL);
    _Exit(0);
}

static void reap(pid_t pid, bool killed) {
    int how = 0;
    CHECK_EQ(waitpid(pid, &how, 0), pid);
    if (killed ? !WIFSIGNALED(how) : !(WIFEXITED(how) && WEXITSTATUS(how) == 0))
        FAIL("process %d ended with %#x, %s", pid, (unsigned)how, killed ? "expected a signal" : "expected exit 0");
}

static uint32_t op_timeout_ms = 20000;
static tpcomm_status_t expected = TPCOMM_ERR_PEER_DIED;

/* Ranks of a scene that have met: only then its time begins. In shared memory. */
static _Atomic int32_t *met;

static void await_met(int32_t count) {
    for (int ms = 0; atomic_load(met) < count; ms++) {
        CHECK(ms < 60000);
        usleep(1000);
    }
}

static tpcomm_t *meet(void) {
    tpcomm_config_t config = {.struct_size = sizeof config, .init_timeout_ms = 30000, .op_timeout_ms = op_timeout_ms};
    tpcomm_t *comm = NULL;
    CHECK_OK(tpcomm_init_env(&config, &comm));
    atomic_fetch_add(met, 1);
    return comm;
}

/* Beside a rank's calls: the limit is short when all have met and one more thing has happened. */
static void *shorten(void *arg) {
    tpcomm_info_t info = {.struct_size = sizeof info};
    CHECK_OK(tpcomm_comm_info(arg, &info));
    await_met(info.size + 1);
    CHECK_OK(tpcomm_set_op_timeout(arg, 1500));
    return NULL;
}

/* AllReduce until it fails; then the error must be the expected one, name rank 1, and stay. */
static void loop(int32_t rank, int32_t size) {
    static float data[50000];
    tpcomm_t *comm = meet();
    tpcomm_status_t status = TPCOMM_OK;
    pthread_t thread;
    bool shortens = expected == TPCOMM_ERR_TIMEOUT && rank == 0;
    if (shortens) CHECK_EQ(pthread_create(&thread, NULL, shorten, comm), 0);
    for (size_t i = 0; status == TPCOMM_OK; i++)
        status = tpcomm_all_reduce(comm, data, data, i % 2 == 0 ? 16 : 50000, TPCOMM_F32, TPCOMM_SUM, NULL);
    CHECK_STATUS(status, expected);
    CHECK_ERROR_HAS("rank 1");
    CHECK_STATUS(tpcomm_barrier(comm, NULL), expected);
    if (shortens) CHECK_EQ(pthread_join(thread, NULL), 0);
    CHECK_OK(tpcomm_destroy(comm));
    (void)size;
}

/* Rank 1 calls five times, then sleeps until it is killed, or exits. */
static void quiet(int32_t rank, int32_t size) {
    if (rank != 1) {
        loop(rank, size);
        return;
    }
    static float data[50000];
    tpcomm_t *comm = meet();
    for (size_t i = 0; i < 5; i++)
        CHECK_OK(tpcomm_all_reduce(comm, data, data, i % 2 == 0 ? 16 : 50000, TPCOMM_F32, TPCOMM_SUM, NULL));
    if (getenv("TPCOMM_TEST_EXIT") != NULL) _Exit(0);
    for (;;) pause();
}

static void scene(const char *what, void (*fn)(int32_t, int32_t), int32_t size, int signal_number, unsigned after_ms) {
    static int number;
    char job[64];
    pid_t pids[TPCOMM_MAX_RANKS];
    snprintf(job, sizeof job, "death-%d-%d", getpid(), number++);
    atomic_store(met, 0);
    for (int32_t r = 0; r < size; r++) pids[r] = spawn(r, size, job, fn);
    await_met(size);
    usleep(after_ms * 1000u);
    if (signal_number != 0) kill(pids[1], signal_number);
    if (signal_number == SIGSTOP) { /* only now the limit is short: nobody else is late */
        int how = 0;
        CHECK_EQ(waitpid(pids[1], &how, WUNTRACED), pids[1]);
        CHECK(WIFSTOPPED(how));
        atomic_fetch_add(met, 1);
    }
    moment_t start = moment_now();
    for (int32_t r = 0; r < size; r++)
        if (r != 1) reap(pids[r], false);
    uint64_t ms = (tpc_clock_ns() - start.wall_ns) / 1000000u;
    printf("%s, %d ranks: the others knew after %llu ms\n", what, size, (unsigned long long)ms);
    if (signal_number == SIGKILL) CHECK_WITHIN(start, 4000);
    if (signal_number == SIGSTOP) kill(pids[1], SIGKILL);
    reap(pids[1], signal_number != 0);
}

#define STOPPED_SIZE     3
#define STOPPED_LIMIT_MS 2500u

/* When all have met, the others wait for rank 1, which comes late, and meanwhile all are stopped. The exit status tells
 * a result from a limit. */
static void awaited(int32_t rank, int32_t size) {
    float x = 1;
    tpcomm_t *comm = meet();
    await_met(rank == 1 ? size + 2 : size + 1);
    tpcomm_status_t status = tpcomm_all_reduce(comm, &x, &x, 1, TPCOMM_F32, TPCOMM_SUM, NULL);
    if (status == TPCOMM_ERR_TIMEOUT) {
        fprintf(stderr, "%s\n", tpcomm_last_error());
        _Exit(2);
    }
    CHECK_OK(status);
    CHECK_EQ((int)x, size);
    CHECK_OK(tpcomm_finalize(comm));
    CHECK_OK(tpcomm_destroy(comm));
}

/* Whether it is known: the machine may take from the job in other ways what the limit leaves for the rest. */
static bool all_stopped(void) {
    static int number;
    char job[64];
    pid_t pids[STOPPED_SIZE];
    int how = 0, late = 0;
    snprintf(job, sizeof job, "stopped-%d-%d", getpid(), number++);
    atomic_store(met, 0);
    for (int32_t r = 0; r < STOPPED_SIZE; r++) pids[r] = spawn(r, STOPPED_SIZE, job, awaited);
    await_met(STOPPED_SIZE);
    uint64_t begun_ns = tpc_clock_ns(); /* before they begin to wait */
    atomic_fetch_add(met, 1);
    usleep(200000);
    for (int32_t r = 0; r < STOPPED_SIZE; r++) CHECK_EQ(kill(pids[r], SIGSTOP), 0);
    for (int32_t r = 0; r < STOPPED_SIZE; r++) CHECK_EQ(waitpid(pids[r], &how, WUNTRACED), pids[r]);
    uint64_t stopped_ns = tpc_clock_ns();
    usleep(3000000);
    uint64_t going_ns = tpc_clock_ns();
    for (int32_t r = 0; r < STOPPED_SIZE; r++) (void)kill(pids[r], SIGCONT);
    atomic_fetch_add(met, 1);
    for (int32_t r = 0; r < STOPPED_SIZE; r++) {
        CHECK_EQ(waitpid(pids[r], &how, 0), pids[r]);
        CHECK(WIFEXITED(how) && (WEXITSTATUS(how) == 0 || WEXITSTATUS(how) == 2));
        late += WEXITSTATUS(how) == 2;
    }
    uint64_t awake_ms = (stopped_ns - begun_ns + tpc_clock_ns() - going_ns) / 1000000u;
    if (late > 0 && awake_ms < STOPPED_LIMIT_MS)
        FAIL("%d ranks gave up in %llu ms, the stop left out", late, (unsigned long long)awake_ms);
    return late == 0;
}

/* I3: start, use, kill all at a random point; again and again. */
static void restart_after_kill(void) {
    uint64_t seed = 3;
    char job[64];
    snprintf(job, sizeof job, "restart-%d", getpid());
    for (int round = 0; round < 20; round++) {
        pid_t pids[2];
        for (int32_t r = 0; r < 2; r++) pids[r] = spawn(r, 2, job, loop);
        usleep((useconds_t)(random_next(&seed) % 60000));
        for (int32_t r = 0; r < 2; r++) kill(pids[r], SIGKILL);
        for (int32_t r = 0; r < 2; r++) waitpid(pids[r], NULL, 0);
    }
}

static void fresh(int32_t rank, int32_t size) {
    tpcomm_t *comm = NULL;
    tpcomm_config_t config = ranks_config();
    CHECK_OK(tpcomm_init_env(&config, &comm));
    CHECK_OK(tpcomm_barrier(comm, NULL));
    CHECK_OK(tpcomm_finalize(comm));
    CHECK_OK(tpcomm_destroy(comm));
    (void)rank, (void)size;
}

int main(void) {
    stalls_watch();
    own_shm();
    int shm_before = shm_entries();
    met = mmap(NULL, sizeof *met, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(met != MAP_FAILED);
    scene("killed in a call", loop, 3, SIGKILL, 300);
    scene("killed in a call", loop, 2, SIGKILL, 300);
    scene("killed between calls", quiet, 3, SIGKILL, 300);
    CHECK_EQ(setenv("TPCOMM_TEST_EXIT", "1", 1), 0);
    scene("exited", quiet, 2, 0, 0);
    CHECK_EQ(unsetenv("TPCOMM_TEST_EXIT"), 0);

    /* A kernel without pidfds: the end of the link tells. */
    ranks_set_hooks("set@no_pidfd:1");
    scene("killed in a call, no pidfd", loop, 3, SIGKILL, 300);
    scene("killed between calls, no pidfd", quiet, 3, SIGKILL, 300);
    ranks_set_hooks("");

    expected = TPCOMM_ERR_TIMEOUT;
    scene("stopped", loop, 3, SIGSTOP, 300);

    op_timeout_ms = STOPPED_LIMIT_MS;
    bool known = false;
    for (int turn = 0; !known && turn < 10; turn++) known = all_stopped();
    CHECK(known);
    expected = TPCOMM_ERR_PEER_DIED;

    restart_after_kill();
    char job[64];
    snprintf(job, sizeof job, "restart-%d", getpid());
    pid_t pids[2];
    for (int32_t r = 0; r < 2; r++) pids[r] = spawn(r, 2, job, fresh);
    for (int32_t r = 0; r < 2; r++) reap(pids[r], false);
    CHECK_EQ(shm_entries(), shm_before);
    return 0;
}
