/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Check what is left when one of three processes that share a GPU is killed or stopped: the others are told who, leave
 * their calls in flight dumps from which tools/tpcomm_flight.py names the culprit, and go on in a smaller group, with
 * exact sums, in the same processes (U4); a stopped process that goes on is told that the group has failed. The same
 * dumps for a rank that does not come and for different calls. When all of them are stopped for longer than the limit,
 * while kernels wait, and go on, nothing has happened: the results are exact.
 * usage: test_gpu_death [SCENE]
 */
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gpu/gpu_ranks.h"

enum { SIZE = 3, COUNT = 1000 };

static _Atomic int *stage; /* shared by all */

static void until(int value) {
    for (int ms = 0; atomic_load(stage) < value; ms++) {
        CHECK(ms < 30000);
        usleep(1000);
    }
}

static void make(gpu_rank_t *rank, uint32_t op_timeout_ms) {
    tpcomm_config_t config = gpu_config();
    config.device = 1;
    config.op_timeout_ms = op_timeout_ms;
    gpu_set_up(rank, 0);
    CHECK_OK(tpcomm_init_env(&config, &rank->comm));
    for (uint64_t seed = 1; seed <= 6; seed++)
        gpu_all_reduce(rank, rank->in, rank->out, TPCOMM_F32, seed, COUNT, "before");
    gpu_together(rank);
}

/* Until the other ranks have enqueued this call. */
static void await_calls(const gpu_rank_t *rank, uint64_t seq) {
    for (int32_t r = 0; r < SIZE; r++) {
        tpcomm_rank_info_t info = {.struct_size = sizeof info};
        for (int ms = 0; r != rank->rank && info.seq < seq; ms++) {
            CHECK_OK(tpcomm_rank_info(rank->comm, r, &info));
            CHECK(ms < 20000);
            usleep(1000);
        }
    }
}

/* The survivors' own group, without rank 1. Nothing runs when it is made. */
static void go_on(gpu_rank_t *rank, const int32_t *lost, int32_t n) {
    tpcomm_t *broken = rank->comm;
    tpcomm_error_t failure = {.struct_size = sizeof failure};
    tpcomm_status_t status = tpcomm_async_status(broken, &failure);
    gpu_rank_t smaller = *rank;
    CHECK_OK(tpcomm_group_shrink(broken, lost, n, &smaller.comm));
    smaller.rank = rank->rank == 0 ? 0 : 1;
    smaller.size = SIZE - 1;
    gpu_together(&smaller);
    for (uint64_t seed = 1; seed <= 50; seed++)
        gpu_all_reduce(&smaller, smaller.in, smaller.out, TPCOMM_F32, seed, COUNT, "in the smaller group");
    CHECK_STATUS(tpcomm_barrier(broken, rank->stream), status);
    gpu_together(&smaller);
    CHECK_OK(tpcomm_finalize(smaller.comm));
    CHECK_OK(tpcomm_destroy(smaller.comm));
}

/* ------------------------------------------------------------------ scenes */

static void killed(gpu_rank_t *rank) {
    char piece[64];
    make(rank, 60000);
    tpcomm_rank_info_t victim = {.struct_size = sizeof victim};
    CHECK_OK(tpcomm_rank_info(rank->comm, 1, &victim));
    snprintf(piece, sizeof piece, "pid %d", (int)victim.pid);
    if (rank->rank == 1) {
        await_calls(rank, 7);
        raise(SIGKILL);
    }
    for (int i = 0; i < 40; i++) (void)gpu_enqueue(rank, COUNT);
    gpu_await_failure(rank, TPCOMM_ERR_PEER_DIED, "rank 1", piece);
    go_on(rank, NULL, 0);
}

static void stopped(gpu_rank_t *rank) {
    static const int32_t lost[] = {1};
    make(rank, 1500);
    if (rank->rank == 1) {
        raise(SIGSTOP); /* the parent wakes us once the others have a group without us */
        gpu_await_failure(rank, TPCOMM_ERR_TIMEOUT, "waiting for rank 1 (last seq 6", NULL);
        return;
    }
    (void)gpu_enqueue(rank, COUNT);
    gpu_await_failure(rank, TPCOMM_ERR_TIMEOUT, "waiting for rank 1 (last seq 6", NULL);
    go_on(rank, lost, 1);
    atomic_fetch_add(stage, 1);
}

/* The parent stops all of us while the kernels of ranks 0 and 1 wait, which no clock of the device knows. */
static void all_stopped(gpu_rank_t *rank) {
    make(rank, 2000);
    if (rank->rank == 2)
        until(3);
    else
        atomic_fetch_add(stage, 1);
    for (uint64_t seed = 7; seed <= 20; seed++)
        gpu_all_reduce(rank, rank->in, rank->out, TPCOMM_F32, seed, COUNT, "after all were stopped");
    gpu_together(rank);
    CHECK_OK(tpcomm_finalize(rank->comm));
}

static void missing(gpu_rank_t *rank) {
    make(rank, 1500);
    if (rank->rank == 2) { /* in its own code, where it makes no call: it leaves its calls all the same */
        sleep(4);
        return;
    }
    (void)gpu_enqueue(rank, COUNT);
    gpu_await_failure(rank, TPCOMM_ERR_TIMEOUT, "waiting for rank 2 (last seq 6", NULL);
}

static void different(gpu_rank_t *rank) {
    make(rank, 60000);
    (void)gpu_enqueue(rank, rank->rank == 1 ? 16 : 8);
    gpu_await_failure(rank, TPCOMM_ERR_MISMATCH, "count 8", "count 16");
}

static const struct {
    const char *name;
    gpu_fn fn;
    const char *found, *also; /* in what tpcomm_flight.py prints; NULL: nothing fails, and no rank dumps anything */
} scenes[] = {{"killed", killed, "device calls: call 7: not called by rank 1\n", "dumps of 2, none of rank 1"},
              {"stopped", stopped, "device calls: call 7: not called by rank 1\n", "3 ranks; dumps of 3"},
              {"all_stopped", all_stopped, NULL, NULL},
              {"missing", missing, "device calls: call 7: not called by rank 2\n", "TPCOMM_ERR_TIMEOUT"},
              {"different", different, "device calls: call 7: the ranks made different calls: count differs\n",
               "rank 1: all_reduce count 16 f32 sum"}};

/* ------------------------------------------------------------------ */

static pid_t start(size_t s, int32_t r, const char *job, const char *folder) {
    fflush(NULL);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid != 0) return pid;
    gpu_rank_t rank = {.rank = r, .size = SIZE, .room = 1 << 20};
    ranks_set_env(r, SIZE, job);
    CHECK_EQ(setenv("TPCOMM_FLIGHT_DIR", folder, 1), 0);
    scenes[s].fn(&rank);
    CHECK_OK(tpcomm_destroy(rank.comm));
    gpu_free(&rank);
    fflush(NULL);
    _Exit(0);
}

static void reap(size_t s, int32_t r, pid_t pid) {
    int how = 0;
    CHECK_EQ(waitpid(pid, &how, 0), pid);
    bool right = scenes[s].fn == killed && r == 1 ? WIFSIGNALED(how) && WTERMSIG(how) == SIGKILL : how == 0;
    if (!right) FAIL("%s: rank %d ended with %#x", scenes[s].name, r, (unsigned)how);
}

/* tools/tpcomm_flight.py says that the ranks differ, and where. */
static void check_dumps(size_t s, const char *folder) {
    static char text[65536];
    char command[512];
    snprintf(command, sizeof command, "python3 '%s/tpcomm_flight.py' --calls 1 %s 2>&1", TPC_TOOLS, folder);
    FILE *pipe = popen(command, "r");
    CHECK(pipe != NULL);
    size_t bytes = fread(text, 1, sizeof text - 1, pipe);
    text[bytes] = '\0';
    int how = pclose(pipe);
    if (!WIFEXITED(how) || WEXITSTATUS(how) != 1 || strstr(text, scenes[s].found) == NULL ||
        strstr(text, scenes[s].also) == NULL)
        FAIL("%s: tpcomm_flight.py (%#x) does not say '%s' and '%s', but:\n%s", scenes[s].name, (unsigned)how,
             scenes[s].found, scenes[s].also, text);
}

static void stop_all(const pid_t *pids) {
    int how = 0;
    until(2);
    usleep(300000); /* the kernels are in their waits */
    for (int32_t r = 0; r < SIZE; r++) CHECK_EQ(kill(pids[r], SIGSTOP), 0);
    for (int32_t r = 0; r < SIZE; r++) {
        CHECK_EQ(waitpid(pids[r], &how, WUNTRACED), pids[r]);
        if (!WIFSTOPPED(how)) FAIL("rank %d ended with %#x before it was stopped", (int)r, (unsigned)how);
    }
    sleep(5);
    for (int32_t r = 0; r < SIZE; r++) CHECK_EQ(kill(pids[r], SIGCONT), 0);
    atomic_store(stage, 3);
}

static void run(size_t s) {
    char folder[] = "/tmp/tpcomm-gpu-death-XXXXXX", job[64], command[96];
    pid_t pids[SIZE];
    int how = 0;
    CHECK(mkdtemp(folder) != NULL);
    snprintf(job, sizeof job, "gpu-death-%s-%d", scenes[s].name, (int)getpid());
    atomic_store(stage, 0);
    for (int32_t r = 0; r < SIZE; r++) pids[r] = start(s, r, job, folder);
    if (scenes[s].fn == stopped) {
        CHECK_EQ(waitpid(pids[1], &how, WUNTRACED), pids[1]);
        if (!WIFSTOPPED(how)) FAIL("rank 1 ended with %#x before it was stopped", (unsigned)how);
        until(2);
        CHECK_EQ(kill(pids[1], SIGCONT), 0);
    }
    if (scenes[s].fn == all_stopped) stop_all(pids);
    for (int32_t r = 0; r < SIZE; r++) reap(s, r, pids[r]);
    if (scenes[s].found != NULL) {
        check_dumps(s, folder);
        snprintf(command, sizeof command, "rm -rf %s", folder);
        CHECK_EQ(system(command), 0);
    } else {
        CHECK_EQ(rmdir(folder), 0);
    }
    printf("%s: as told\n", scenes[s].name);
    fflush(stdout);
}

int main(int argc, char **argv) {
    gpu_need();
    stage = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(stage != MAP_FAILED);
    for (size_t s = 0; s < sizeof scenes / sizeof *scenes; s++)
        if (argc < 2 || strcmp(argv[1], scenes[s].name) == 0) run(s);
    printf("ok\n");
    return 0;
}
