/* SPDX-License-Identifier: Apache-2.0 */
/** For tests of src/bootstrap: ranks as forked processes, what came of each, and what a process holds open. */
#ifndef TPC_TESTS_UNIT_BOOTSTRAP_JOB_H
#define TPC_TESTS_UNIT_BOOTSTRAP_JOB_H

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/env.h"
#include "base/error.h"
#include "base/hook.h"
#include "bootstrap/bootstrap.h"
#include "check.h"

#define JOB_MAX 40

/** What one process of a test leaves behind; in memory that all of them share. */
typedef struct {
    tpcomm_status_t status;
    uint64_t nonce, ms;
    char text[TPC_ERROR_BYTES];
    _Atomic int stage;     /**< how far it has come */
    _Atomic int passed[2]; /**< whether this rank has passed the points of job_points */
    tpcomm_unique_id_t id;
} outcome_t;

typedef void (*job_body_t)(int32_t index, outcome_t *outcome);

static outcome_t *job_outcomes; /**< of the running test; a child may look at its sisters' */
static pid_t job_pids[JOB_MAX];

static inline void job_prepare(void) {
    if (!job_outcomes)
        job_outcomes =
            mmap(NULL, JOB_MAX * sizeof *job_outcomes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (job_outcomes == MAP_FAILED) FAIL("mmap: %s", strerror(errno));
    memset(job_outcomes, 0, JOB_MAX * sizeof *job_outcomes);
    fflush(NULL);
}

/** Start one process; it ends when body returns. */
static inline void job_start(int32_t index, job_body_t body) {
    pid_t parent = getpid(), pid = fork();
    if (pid < 0) FAIL("fork: %s", strerror(errno));
    job_pids[index] = pid;
    if (pid != 0) return;
    job_pids[index] = getpid();
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* of a test that failed nothing stays */
    if (getppid() != parent) _Exit(3);
    body(index, &job_outcomes[index]);
    fflush(NULL);
    exit(0);
}

/** Wait for a process, which must end in good order. */
static inline void job_wait(int32_t index) {
    int status;
    while (waitpid(job_pids[index], &status, 0) < 0)
        if (errno != EINTR) FAIL("waitpid: %s", strerror(errno));
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        FAIL("process %d ended with status 0x%x", index, (unsigned)status);
}

static inline void job_run(int32_t n, job_body_t body) {
    job_prepare();
    for (int32_t i = 0; i < n; i++) job_start(i, body);
    for (int32_t i = 0; i < n; i++) job_wait(i);
}

/** Wait until another process has come to a stage; a minute is for ever. */
static inline void job_await(int32_t index, int stage) {
    for (int i = 0; atomic_load(&job_outcomes[index].stage) < stage; i++) {
        if (i == 60000) FAIL("process %d did not come to stage %d", index, stage);
        poll(NULL, 0, 1);
    }
}

/** Points of the library (base/hook.h) that job_watch has named, or NULL. */
static const char *job_points[2];

static inline void job_see(const char *point, int32_t rank) {
    for (int i = 0; i < 2; i++)
        if (job_points[i] && strcmp(point, job_points[i]) == 0 && rank >= 0 && rank < JOB_MAX)
            atomic_store(&job_outcomes[rank].passed[i], 1);
}

/** Before the processes are started: note who passes these points. */
static inline void job_watch(const char *first, const char *second) {
    job_points[0] = first;
    job_points[1] = second;
    tpc_hook_observer = job_see;
}

static inline void job_await_point(int which, int32_t rank) {
    for (int i = 0; atomic_load(&job_outcomes[rank].passed[which]) == 0; i++) {
        if (i == 60000) FAIL("rank %d did not come to point %d", rank, which);
        poll(NULL, 0, 1);
    }
}

static inline void job_keep(outcome_t *outcome, tpcomm_status_t status, uint64_t start_ns) {
    outcome->status = status;
    outcome->ms = (tpc_clock_ns() - start_ns) / 1000000;
    if (status != TPCOMM_OK) snprintf(outcome->text, sizeof outcome->text, "%s", tpcomm_last_error());
}

#define CHECK_OUTCOME(index, want, piece)                                                                              \
    do {                                                                                                               \
        const outcome_t *check_outcome = &job_outcomes[index];                                                         \
        if (check_outcome->status != (want))                                                                           \
            FAIL("process %d: %s, want %s: %s", (int)(index), tpcomm_status_name(check_outcome->status),               \
                 tpcomm_status_name(want), check_outcome->text);                                                       \
        if (!strstr(check_outcome->text, (piece)))                                                                     \
            FAIL("process %d: \"%s\" is not in: %s", (int)(index), (piece), check_outcome->text);                      \
    } while (0)

/** Descriptors this process has open. */
static inline int32_t job_count_fds(void) {
    int32_t count = 0;
    DIR *dir = opendir("/proc/self/fd");
    if (!dir) FAIL("opendir: %s", strerror(errno));
    while (readdir(dir)) count++;
    closedir(dir);
    return count;
}

static inline uint64_t job_cpu_ms(void) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (uint64_t)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000 +
           (uint64_t)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1000;
}

/** Nothing of the machine this runs on: neither its launcher's variables nor ours. */
static inline void job_clean_environment(void) {
    static const char *const names[] = {"RANK",
                                        "WORLD_SIZE",
                                        "LOCAL_RANK",
                                        "LOCAL_WORLD_SIZE",
                                        "MASTER_ADDR",
                                        "MASTER_PORT",
                                        "TORCHELASTIC_RUN_ID",
                                        "TORCHELASTIC_RESTART_COUNT",
                                        "OMPI_COMM_WORLD_RANK",
                                        "OMPI_COMM_WORLD_SIZE",
                                        "OMPI_COMM_WORLD_LOCAL_RANK",
                                        "OMPI_COMM_WORLD_LOCAL_SIZE",
                                        "PMIX_NAMESPACE",
                                        "OMPI_MCA_ess_base_jobid",
                                        "PMI_RANK",
                                        "PMI_SIZE",
                                        "PMI_FD",
                                        "PMI_JOBID",
                                        "MPI_LOCALRANKID",
                                        "MPI_LOCALNRANKS",
                                        "SLURM_PROCID",
                                        "SLURM_NTASKS",
                                        "SLURM_STEP_NUM_TASKS",
                                        "SLURM_LOCALID",
                                        "SLURM_JOB_ID",
                                        "SLURM_STEP_ID",
                                        "SLURM_RESTART_COUNT",
                                        "SLURM_NODEID",
                                        "SLURM_NNODES",
                                        "SLURM_STEP_NUM_NODES",
                                        "SLURM_NTASKS_PER_NODE",
                                        "SLURM_STEP_TASKS_PER_NODE",
                                        "TPCOMM_TEST_HOOKS"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) unsetenv(names[i]);
    for (int i = 0; i < TPC_ENV_COUNT; i++) unsetenv(tpc_env_table[i].name);
}

static inline void job_set(const char *name, const char *format, ...) __attribute__((format(printf, 2, 3)));

static inline void job_set(const char *name, const char *format, ...) {
    char text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    setenv(name, text, 1);
}

/** Meet as the environment says. */
static inline tpcomm_status_t job_meet_until(const tpc_deadline_t *deadline, tpc_bootstrap_t **bootstrap_p) {
    static _Thread_local tpc_env_t env;
    tpc_rank_env_t rank_env;
    tpcomm_status_t status = tpc_env_read(&env);
    if (status == TPCOMM_OK) status = tpc_rank_env_read(&env, &rank_env);
    if (status == TPCOMM_OK) status = tpc_bootstrap_meet_env(&rank_env, deadline, bootstrap_p);
    return status;
}

static inline tpcomm_status_t job_meet_env(uint64_t timeout_ms, tpc_bootstrap_t **bootstrap_p) {
    tpc_deadline_t deadline = tpc_deadline_in(timeout_ms, NULL, NULL);
    return job_meet_until(&deadline, bootstrap_p);
}

/**
 * The first of count TCP ports that are free now. Each test has a region of its own (0 to 5) below the range that the
 * kernel hands out by itself, so that tests that run at once do not take each other's.
 */
static inline uint16_t job_find_ports(int region, int count) {
    for (int turn = 0;; turn++) {
        int first = 20000 + region * 2000 + (getpid() + turn) % (2000 / count) * count, free_ports = 0;
        for (int i = 0; i < count; i++) {
            struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)(first + i))};
            int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
            free_ports += bind(fd, (struct sockaddr *)&address, sizeof address) == 0;
            close(fd);
        }
        if (free_ports == count) return (uint16_t)first;
        if (turn == 2000) FAIL("no %d free ports in region %d", count, region);
    }
}

/** A name that no other run of a test has. */
static inline void job_set_unique_id(const char *what) {
    job_set("TPCOMM_JOB_ID", "%s-%d-%llu", what, (int)getpid(), (unsigned long long)tpc_clock_ns());
}

/** Whether all members know the same things, by a gather over the links that this must be able to do. */
static inline void job_check_met(tpc_bootstrap_t *bootstrap) {
    int32_t size = tpc_bootstrap_size(bootstrap), me = tpc_bootstrap_rank(bootstrap), ranks[TPCOMM_MAX_RANKS];
    for (int32_t i = 0; i < size; i++) ranks[i] = i;
    tpc_team_t world = {.channel = 0, .ranks = ranks, .n = size, .me = me};
    tpc_deadline_t deadline = tpc_deadline_in(60000, NULL, NULL);
    struct {
        uint64_t nonce;
        int64_t pid, rank;
    } mine = {tpc_bootstrap_nonce(bootstrap), getpid(), me}, all[TPCOMM_MAX_RANKS];
    CHECK_OK(tpc_team_gather(bootstrap, &world, "check", TPCOMM_OK, &mine, sizeof mine, all, &deadline));
    for (int32_t i = 0; i < size; i++) {
        const tpc_member_t *member = tpc_bootstrap_member(bootstrap, i);
        CHECK(all[i].nonce == mine.nonce);
        CHECK_EQ(all[i].rank, i);
        CHECK_EQ(member->rank, i);
        CHECK_EQ(member->same_process, all[i].pid == mine.pid);
        if (member->same_host) CHECK_EQ(member->pid, all[i].pid);
        CHECK_EQ(member->pidfd >= 0, member->same_host && !member->same_process);
    }
}

#endif
