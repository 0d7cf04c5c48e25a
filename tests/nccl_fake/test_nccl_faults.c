/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Check that NCCL's failures are every rank's (C8, I13, F7): while a group is made they leave nccl out everywhere, with
 * the rank and the reason, or fail the group everywhere where the path was asked for; later they break the group
 * everywhere, with NCCL's own text. Nobody waits for ever: in init, for a rank that does not come, for one that came
 * with another call, for one that was aborted, ended or destroyed, for an abort that does not return.
 */
#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "multirank/stalls.h"
#include "nccl_fake/fake.h"

#define SECONDS 1000000000u

/* ------------------------------------------------------------------ while a group is made */

typedef struct {
    const char *what, *faults;
    tpcomm_status_t asked; /* what init gives where nccl is asked for by name */
    const char *texts[3];
} making_t;

static const making_t makings[] = {
    {"no id", "id@0", TPCOMM_ERR_BACKEND, {"rank 0", "share NCCL's id", "ncclGetUniqueId"}},
    {"refused on one rank", "refuse@1", TPCOMM_ERR_BACKEND, {"rank 1", "join NCCL", "init was to be refused"}},
    {"failed on one rank", "init@0", TPCOMM_ERR_BACKEND, {"rank 0", "join NCCL", "init was to fail"}},
    {"first call fails on one rank", "call@1:1", TPCOMM_ERR_BACKEND, {"rank 1", "prove NCCL", "unhandled cuda error"}},
    {"first call fails later", "async@2:1", TPCOMM_ERR_BACKEND, {"rank 2", "prove NCCL", "a peer was to be lost"}},
    {"the first question fails on one rank",
     "query@1",
     TPCOMM_ERR_BACKEND,
     {"rank 1", "join NCCL", "the question was to fail"}},
    {"first call is wrong", "wrong@1:1", TPCOMM_ERR_BACKEND, {"rank 1", "prove NCCL", "sum of 1 to 3"}},
};

static void goes_without(rank_t *rank) {
    const making_t *making = rank->arg;
    tpcomm_info_t info = fake_info(rank->comm);
    for (int i = 0; i < 3; i++) check_has(info.nccl, making->texts[i]);
    check_sum(rank, TPCOMM_PATH_AUTO);
    check_sum(rank, TPCOMM_PATH_CPU_TWOSHOT);
}

static void fails_to_join(int32_t rank, int32_t size, void *arg) {
    const making_t *making = arg;
    tpcomm_config_t config = ranks_config();
    tpcomm_t *comm = NULL;
    (void)rank, (void)size;
    config.path = TPCOMM_PATH_NCCL;
    CHECK_STATUS(tpcomm_init_env(&config, &comm), making->asked);
    CHECK_ERROR_HAS("asks for nccl");
    for (int i = 0; i < 3; i++) CHECK_ERROR_HAS(making->texts[i]);
}

static void while_made(void) {
    tpcomm_config_t config = ranks_config();
    for (size_t i = 0; i < sizeof makings / sizeof *makings; i++) {
        moment_t start = moment_now();
        fake_use(FAKE, makings[i].faults);
        for (int kind = 0; kind < RANKS_KINDS; kind++) ranks_run(kind, 3, &config, goes_without, (void *)&makings[i]);
        ranks_fork(3, fails_to_join, (void *)&makings[i]);
        if (moment_is_past(start, 30000)) FAIL("%s: a rank waited for a limit", makings[i].what);
    }
}

/* Other versions on two ranks. */
static void versions(int32_t rank, int32_t size, void *arg) {
    bool asked = *(const bool *)arg;
    tpcomm_config_t config = ranks_config();
    rank_t self = {.rank = rank, .size = size};
    if (asked) config.path = TPCOMM_PATH_NCCL;
    CHECK_EQ(setenv("NCCL_FAKE_VERSION", rank == 1 ? "22707" : "22809", 1), 0);
    CHECK_STATUS(tpcomm_init_env(&config, &self.comm), asked ? TPCOMM_ERR_CONFIG_MISMATCH : TPCOMM_OK);
    if (asked) {
        CHECK_ERROR_HAS("rank 0 has 2.28.9");
        CHECK_ERROR_HAS("rank 1 has 2.27.7");
        return;
    }
    tpcomm_info_t info = fake_info(self.comm);
    check_has(info.nccl, "rank 0 has 2.28.9");
    check_has(info.nccl, "rank 1 has 2.27.7");
    check_sum(&self, TPCOMM_PATH_AUTO);
    CHECK_OK(tpcomm_finalize(self.comm));
    CHECK_OK(tpcomm_destroy(self.comm));
}

/* The switch is the group's: off on one rank and on on another is said, not tried. */
static void switched(int32_t rank, int32_t size, void *arg) {
    (void)size, (void)arg;
    tpcomm_config_t config = ranks_config();
    tpcomm_t *comm = NULL;
    CHECK_EQ(setenv("TPCOMM_NCCL", rank == 1 ? "off" : "on", 1), 0);
    CHECK_STATUS(tpcomm_init_env(&config, &comm), TPCOMM_ERR_CONFIG_MISMATCH);
    CHECK_ERROR_HAS("TPCOMM_NCCL");
}

/* NCCL's init hangs on one rank: all ranks give up at init's own limit. */
static void init_hangs(int32_t rank, int32_t size, void *arg) {
    (void)rank, (void)size, (void)arg;
    tpcomm_config_t config = ranks_config();
    tpcomm_t *comm = NULL;
    config.init_timeout_ms = 4000; /* enough for what comes before */
    resources_t before = resources_now();
    uint64_t start = tpc_clock_ns();
    CHECK_STATUS(tpcomm_init_env(&config, &comm), TPCOMM_ERR_TIMEOUT);
    CHECK_ERROR_HAS("NCCL");
    CHECK(tpc_clock_ns() - start < 20ull * SECONDS);
    resources_check_equal(before, "after an init that timed out");
}

/* A process ends while all are in NCCL's init: rank 2's. */
static void init_dies(int32_t rank, int32_t size, void *arg) {
    (void)rank, (void)size, (void)arg;
    tpcomm_config_t config = ranks_config();
    tpcomm_t *comm = NULL;
    CHECK_STATUS(tpcomm_init_env(&config, &comm), TPCOMM_ERR_PEER_DIED);
}

static void fork_dying(void) {
    pid_t child = fork(); /* which has the ranks: one of them ends by a signal, as it is to */
    CHECK(child >= 0);
    if (child != 0) {
        int how = 0;
        CHECK_EQ(waitpid(child, &how, 0), child);
        CHECK(WIFEXITED(how));
        CHECK_EQ(WEXITSTATUS(how), 0);
        return;
    }
    char job[64];
    pid_t ranks[3];
    snprintf(job, sizeof job, "dying-%d", (int)getpid());
    for (int32_t r = 0; r < 3; r++) {
        CHECK((ranks[r] = fork()) >= 0);
        if (ranks[r] != 0) continue;
        ranks_set_env(r, 3, job);
        init_dies(r, 3, NULL);
        _Exit(0);
    }
    for (int32_t r = 0; r < 3; r++) {
        int how = 0;
        CHECK_EQ(waitpid(ranks[r], &how, 0), ranks[r]);
        CHECK(r == 2 ? WIFSIGNALED(how) : WIFEXITED(how) && WEXITSTATUS(how) == 0);
    }
    _Exit(0);
}

/* ------------------------------------------------------------------ later */

static float numbers[100000];

/* Calls of ncclCommAbort in this process so far, with those of the one it was forked from. */
static int aborts_now(void) {
    int (*aborts)(void) = NULL;
    void *fake = dlopen(FAKE, RTLD_NOW | RTLD_NOLOAD);
    if (fake == NULL) return 0;
    void *address = dlsym(fake, "nccl_fake_aborts");
    CHECK(address != NULL);
    memcpy(&aborts, &address, sizeof aborts);
    int count = aborts();
    dlclose(fake);
    return count;
}

static int aborts_before;

/* NCCL's communicator was aborted, though nobody made a call or destroyed the group: what waits in its kernels goes on.
 */
static void check_aborted(void) {
    for (int i = 0; i < 6000 && aborts_now() == aborts_before; i++) usleep(10000);
    CHECK(aborts_now() > aborts_before);
}

/* The group is broken with this status and these texts, everywhere and for good. */
static void check_broken(rank_t *rank, tpcomm_status_t want, const char *const *texts) {
    float value = 0;
    tpcomm_error_t error = {.struct_size = sizeof error};
    ranks_await_failure(rank->comm);
    CHECK_STATUS(tpcomm_async_status(rank->comm, &error), want);
    for (int i = 0; i < 3 && texts[i] != NULL; i++) check_has(error.text, texts[i]);
    check_aborted();
    CHECK_STATUS(call_nccl(rank->comm, &value, 1), want);
    CHECK_STATUS(tpcomm_barrier(rank->comm, NULL), want);
    CHECK_STATUS(tpcomm_host_barrier(rank->comm, 0), want);
}

/* The third collective fails on rank 1: at once, or under way, or in the question how it is. */
typedef struct {
    tpcomm_coll_t coll;
    const char *text, *function;
} breaking_t;

static void breaks(rank_t *rank) {
    const breaking_t *breaking = rank->arg;
    float value = 1, values[3] = {1, 1, 1}, all[3];
    const char *const texts[] = {"rank 1", breaking->text, breaking->function};
    tpcomm_call_t call = {.struct_size = sizeof call,
                          .coll = breaking->coll,
                          .dtype = TPCOMM_F32,
                          .op = TPCOMM_SUM,
                          .path = TPCOMM_PATH_NCCL,
                          .in = values,
                          .out = all,
                          .count = 1};
    if (call.coll == TPCOMM_BARRIER) call.in = call.out = NULL, call.dtype = 0, call.op = 0, call.count = 0;
    CHECK_OK(call_nccl(rank->comm, &value, 1));
    CHECK_OK(tpcomm_host_barrier(rank->comm, 0)); /* all have ended the second */
    CHECK_STATUS(tpcomm_call(rank->comm, &call, NULL), TPCOMM_ERR_BACKEND);
    check_broken(rank, TPCOMM_ERR_BACKEND, texts);
}

/* Rank 2 does not come. */
static void too_few(rank_t *rank) {
    static const char *const texts[] = {"NCCL has not ended it", "rank 2", NULL};
    float value = 1;
    CHECK_OK(tpcomm_host_barrier(rank->comm, 0));
    CHECK_OK(tpcomm_set_op_timeout(rank->comm, 700));
    if (rank->rank != 2) CHECK_STATUS(call_nccl(rank->comm, &value, 1), TPCOMM_ERR_TIMEOUT);
    check_broken(rank, TPCOMM_ERR_TIMEOUT, texts);
}

static void other_call(rank_t *rank) {
    static const char *const texts[] = {"count 100000 ", "count 9 ", "nccl"};
    static _Thread_local float value[100000];
    tpcomm_status_t status = call_nccl(rank->comm, value, rank->rank == 1 ? 100000 : 9);
    CHECK(status == TPCOMM_ERR_MISMATCH || (rank->rank == 0 && status == TPCOMM_OK)); /* the short one may have ended */
    check_broken(rank, TPCOMM_ERR_MISMATCH, texts);
}

/* Two hosts of two ranks each: a difference that no host sees by itself, and a host that does not come. */
static void other_host_calls(rank_t *rank) {
    static const char *const texts[] = {"count 100000 f32 sum by nccl", "count 9 f32 sum by nccl", "called all_reduce"};
    static _Thread_local float value[100000];
    for (int i = 0; i < 100; i++) CHECK_OK(call_nccl(rank->comm, value, 2));
    CHECK_OK(tpcomm_host_barrier(rank->comm, 0)); /* all have ended them: the group is about to break */
    tpcomm_status_t status = call_nccl(rank->comm, value, rank->rank >= 2 ? 100000 : 9);
    CHECK(status == TPCOMM_ERR_MISMATCH || (rank->rank < 2 && status == TPCOMM_OK));
    check_broken(rank, TPCOMM_ERR_MISMATCH, texts);
}

static void other_host_missing(rank_t *rank) {
    static const char *const texts[] = {"NCCL has not ended it", "rank 2 (last seq 1), rank 3 (last seq 1)", NULL};
    float value = 1;
    CHECK_OK(call_nccl(rank->comm, &value, 1));
    CHECK_OK(tpcomm_host_barrier(rank->comm, 0));
    CHECK_OK(tpcomm_set_op_timeout(rank->comm, 3000)); /* each host has heard of the other's first call by then */
    if (rank->rank < 2) CHECK_STATUS(call_nccl(rank->comm, &value, 1), TPCOMM_ERR_TIMEOUT);
    check_broken(rank, TPCOMM_ERR_TIMEOUT, texts);
}

static void aborted(rank_t *rank) {
    static const char *const texts[] = {"rank 0", "enough", NULL};
    float value = 1;
    moment_t start = moment_now();
    if (rank->rank == 0) {
        usleep(200000);
        CHECK_OK(tpcomm_abort(rank->comm, "enough"));
    }
    CHECK_STATUS(call_nccl(rank->comm, &value, 1), TPCOMM_ERR_ABORTED);
    CHECK_WITHIN(start, 5000);
    check_broken(rank, TPCOMM_ERR_ABORTED, texts);
}

static void died(int32_t rank, int32_t size, void *arg) {
    (void)arg;
    tpcomm_config_t config = ranks_config();
    rank_t self = {.rank = rank, .size = size};
    CHECK_OK(tpcomm_init_env(&config, &self.comm));
    check_sum(&self, TPCOMM_PATH_NCCL);
    CHECK_OK(tpcomm_host_barrier(self.comm, 0));
    if (rank == 1) _Exit(0);
    CHECK_STATUS(call_nccl(self.comm, numbers, 100000), TPCOMM_ERR_PEER_DIED);
    CHECK_OK(tpcomm_destroy(self.comm));
}

static void left(int32_t rank, int32_t size, void *arg) {
    (void)arg;
    tpcomm_config_t config = ranks_config();
    rank_t self = {.rank = rank, .size = size};
    resources_t before = resources_now();
    CHECK_OK(tpcomm_init_env(&config, &self.comm));
    check_sum(&self, TPCOMM_PATH_NCCL);
    CHECK_OK(tpcomm_host_barrier(self.comm, 0));
    if (rank == 0) CHECK_STATUS(call_nccl(self.comm, numbers, 100000), TPCOMM_ERR_ABORTED);
    CHECK_OK(tpcomm_destroy(self.comm));
    resources_check_equal(before, "after destroy without finalize");
}

/* An abort that never returns costs destroy its second, and no more; the thread is left to NCCL. */
static void stuck(int32_t rank, int32_t size, void *arg) {
    (void)size, (void)arg;
    tpcomm_config_t config = ranks_config();
    tpcomm_t *comm = NULL;
    CHECK_OK(tpcomm_init_env(&config, &comm));
    CHECK_OK(tpcomm_host_barrier(comm, 0));
    if (rank == 1) CHECK_OK(tpcomm_abort(comm, NULL));
    CHECK_STATUS(call_nccl(comm, numbers, 10), TPCOMM_ERR_ABORTED);
    moment_t start = moment_now();
    CHECK_OK(tpcomm_destroy(comm));
    CHECK_WITHIN(start, 10000);
}

/* Without ncclCommAbort a failed communicator is left to itself, and nobody hangs. */
static void cannot_abort(rank_t *rank) {
    float value = 1;
    CHECK_OK(tpcomm_host_barrier(rank->comm, 0));
    if (rank->rank == 0) CHECK_OK(tpcomm_abort(rank->comm, NULL));
    CHECK_STATUS(call_nccl(rank->comm, &value, 1), TPCOMM_ERR_ABORTED);
}

/* NCCL's finalize and destroy fail on two ranks: nobody's result, and nothing stays behind. */
static void ends_anyway(rank_t *rank) {
    for (int i = 0; i < 3; i++) check_sum(rank, TPCOMM_PATH_NCCL);
}

static int32_t say_stop(void *arg) {
    return *(const int *)arg;
}

static void interrupted(int32_t rank, int32_t size, void *arg) {
    (void)size, (void)arg;
    int stop = 0;
    tpcomm_config_t config = ranks_config();
    tpcomm_t *comm = NULL;
    config.interrupted = say_stop;
    config.interrupted_arg = &stop;
    CHECK_OK(tpcomm_init_env(&config, &comm));
    CHECK_OK(tpcomm_host_barrier(comm, 0));
    stop = rank == 0;
    if (rank == 0) CHECK_STATUS(call_nccl(comm, numbers, 10), TPCOMM_ERR_INTERRUPTED);
    if (rank == 0) CHECK_ERROR_HAS("config.interrupted asked to stop");
    while (tpcomm_async_status(comm, NULL) == TPCOMM_OK) usleep(10000);
    CHECK_STATUS(tpcomm_async_status(comm, NULL), TPCOMM_ERR_INTERRUPTED);
    CHECK_OK(tpcomm_destroy(comm));
}

static void on_all_kinds(int32_t size, rank_fn fn, void *arg) {
    tpcomm_config_t config = ranks_config();
    resources_t before = resources_now();
    for (int kind = 0; kind < RANKS_KINDS; kind++) {
        aborts_before = aborts_now();
        ranks_run(kind, size, &config, fn, arg);
    }
    resources_check_equal(before, "after a broken group");
}

int main(void) {
    tpcomm_config_t config = ranks_config();
    bool asked = false;
    stalls_watch();
    while_made();
    fake_use(FAKE, "");
    ranks_fork(3, versions, &asked);
    asked = true;
    ranks_fork(3, versions, &asked);
    ranks_fork(2, switched, NULL);
    fake_use(FAKE, "hang@1");
    ranks_fork(2, init_hangs, NULL);
    fake_use(FAKE, "hang@0;hang@1;die@2");
    fork_dying();

    static const breaking_t each[] = {{TPCOMM_ALL_REDUCE, "this collective was to fail", "ncclAllReduce"},
                                      {TPCOMM_BROADCAST, "this collective was to fail", "ncclBroadcast"},
                                      {TPCOMM_ALL_GATHER, "this collective was to fail", "ncclAllGather"},
                                      {TPCOMM_REDUCE_SCATTER, "this collective was to fail", "ncclReduceScatter"},
                                      {TPCOMM_BARRIER, "this collective was to fail", "ncclAllReduce"}};
    for (int how = 0; how < 3; how++)
        for (size_t i = 0; i < sizeof each / sizeof *each; i++) {
            static const char *const faults[] = {"call@1:3", "async@1:3", "query@1:3"};
            breaking_t breaking = each[i];
            if (how == 1) breaking.text = "a peer was to be lost", breaking.function = NULL;
            if (how == 2) breaking.text = "the question was to fail", breaking.function = "ncclCommGetAsyncError";
            fake_use(FAKE, faults[how]);
            if (i == 0)
                on_all_kinds(3, breaks, &breaking);
            else
                ranks_run(RANKS_PROCESSES, 3, &config, breaks, &breaking);
        }
    fake_use(FAKE, "final@0;destroy@1");
    on_all_kinds(3, ends_anyway, NULL);
    fake_use(FAKE, "aborted@0;aborted@1");
    on_all_kinds(2, aborted, NULL);
    fake_use(FAKE, "");
    on_all_kinds(3, too_few, NULL);
    on_all_kinds(2, other_call, NULL);
    ranks_set_hooks("set@nccl_on_cpu:1;set@threads_per_host:2");
    aborts_before = aborts_now();
    ranks_run(RANKS_THREADS, 4, &config, other_host_calls, NULL);
    aborts_before = aborts_now();
    ranks_run(RANKS_THREADS, 4, &config, other_host_missing, NULL);
    fake_use(FAKE, "");
    on_all_kinds(2, aborted, NULL);
    ranks_fork(2, died, NULL);
    ranks_fork(2, left, NULL);
    ranks_fork(2, interrupted, NULL);
    fake_use(FAKE, "abort@0");
    ranks_fork(2, stuck, NULL);
    fake_use(FAKE_SMALL, "");
    ranks_run(RANKS_PROCESSES, 2, &config, cannot_abort, NULL);
    return 0;
}
