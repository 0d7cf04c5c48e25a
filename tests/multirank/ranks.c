/* SPDX-License-Identifier: Apache-2.0 */
#include "multirank/ranks.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/hook.h"

const char *ranks_hold_root(void) {
    static char root[64];
    static int holder = -1;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof address;
    int yes = 1;
    if (holder >= 0) close(holder);
    holder = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(holder >= 0);
    CHECK_EQ(setsockopt(holder, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes), 0);
    CHECK_EQ(bind(holder, (struct sockaddr *)&address, sizeof address), 0);
    CHECK_EQ(getsockname(holder, (struct sockaddr *)&address, &bytes), 0);
    snprintf(root, sizeof root, "127.0.0.1:%d", ntohs(address.sin_port));
    return root;
}

const char *ranks_kind_name(int kind) {
    return kind == RANKS_THREADS ? "threads" : "processes";
}

tpcomm_config_t ranks_config(void) {
    return (tpcomm_config_t){.struct_size = sizeof(tpcomm_config_t),
                             .device_kind = TPCOMM_DEVICE_CPU,
                             .init_timeout_ms = 60000,
                             .op_timeout_ms = 60000};
}

static void run_rank(rank_t *rank, rank_fn fn) {
    fn(rank);
    if (!rank->finalized && tpcomm_async_status(rank->comm, NULL) == TPCOMM_OK) CHECK_OK(tpcomm_finalize(rank->comm));
}

/* ------------------------------------------------------------------ threads */

typedef struct {
    pthread_t thread;
    rank_t rank;
    rank_fn fn;
} thread_t;

static void *thread_main(void *arg) {
    thread_t *thread = arg;
    run_rank(&thread->rank, thread->fn);
    return NULL;
}

static void run_threads(int32_t size, const tpcomm_config_t *config, rank_fn fn, void *arg) {
    tpcomm_t *comms[TPCOMM_MAX_RANKS];
    thread_t threads[TPCOMM_MAX_RANKS];
    CHECK_OK(tpcomm_init_local(size, NULL, config, comms));
    for (int32_t r = 0; r < size; r++) {
        threads[r] = (thread_t){.rank = {.comm = comms[r], .rank = r, .size = size, .arg = arg}, .fn = fn};
        CHECK_EQ(pthread_create(&threads[r].thread, NULL, thread_main, &threads[r]), 0);
    }
    for (int32_t r = 0; r < size; r++) CHECK_EQ(pthread_join(threads[r].thread, NULL), 0);
    for (int32_t r = 0; r < size; r++) CHECK_OK(tpcomm_destroy(comms[r]));
}

/* ------------------------------------------------------------------ processes */

static void set_number(const char *name, int32_t value) {
    char text[16];
    snprintf(text, sizeof text, "%d", value);
    CHECK_EQ(setenv(name, text, 1), 0);
}

void ranks_set_env(int32_t rank, int32_t size, const char *job) {
    set_number("TPCOMM_RANK", rank);
    set_number("TPCOMM_SIZE", size);
    set_number("TPCOMM_LOCAL_RANK", rank);
    set_number("TPCOMM_LOCAL_SIZE", size);
    CHECK_EQ(setenv("TPCOMM_JOB_ID", job, 1), 0);
}

void ranks_set_hooks(const char *hooks) {
    CHECK_EQ(setenv("TPCOMM_TEST_HOOKS", hooks, 1), 0);
    tpc_hook_reload();
}

void ranks_fork(int32_t size, void (*fn)(int32_t rank, int32_t size, void *arg), void *arg) {
    static int jobs;
    char job[64];
    pid_t children[TPCOMM_MAX_RANKS];
    snprintf(job, sizeof job, "test-%d-%d", getpid(), jobs++);
    fflush(NULL);
    for (int32_t r = 0; r < size; r++) {
        children[r] = fork();
        CHECK(children[r] >= 0);
        if (children[r] == 0) {
            ranks_set_env(r, size, job);
            fn(r, size, arg);
            fflush(NULL);
            _Exit(0);
        }
    }
    bool good = true;
    for (int32_t r = 0; r < size; r++) {
        int how = 0;
        CHECK_EQ(waitpid(children[r], &how, 0), children[r]);
        if (WIFEXITED(how) && WEXITSTATUS(how) == 0) continue;
        fprintf(stderr, "rank %d ended with %s %d\n", r, WIFEXITED(how) ? "status" : "signal",
                WIFEXITED(how) ? WEXITSTATUS(how) : WTERMSIG(how));
        good = false;
    }
    if (!good) FAIL("a rank failed");
}

typedef struct {
    const tpcomm_config_t *config;
    rank_fn fn;
    void *arg;
} process_t;

static void process_main(int32_t rank, int32_t size, void *arg) {
    const process_t *process = arg;
    rank_t self = {.rank = rank, .size = size, .arg = process->arg};
    CHECK_OK(tpcomm_init_env(process->config, &self.comm));
    run_rank(&self, process->fn);
    CHECK_OK(tpcomm_destroy(self.comm));
}

void ranks_run(int kind, int32_t size, const tpcomm_config_t *config, rank_fn fn, void *arg) {
    if (kind == RANKS_THREADS) {
        run_threads(size, config, fn, arg);
        return;
    }
    process_t process = {.config = config, .fn = fn, .arg = arg};
    ranks_fork(size, process_main, &process);
}

/* ------------------------------------------------------------------ waiting */

void ranks_await_call(tpcomm_t *comm, int32_t rank, uint64_t seq) {
    tpcomm_rank_info_t info = {.struct_size = sizeof info};
    for (int ms = 0; info.seq < seq; ms++) {
        CHECK_OK(tpcomm_rank_info(comm, rank, &info));
        if (ms == 60000) FAIL("rank %d has not begun call %llu", rank, (unsigned long long)seq);
        usleep(1000);
    }
}

void ranks_await_failure(tpcomm_t *comm) {
    for (int ms = 0; tpcomm_async_status(comm, NULL) == TPCOMM_OK; ms++) {
        if (ms == 60000) FAIL("the group has not failed");
        usleep(1000);
    }
}

/* ------------------------------------------------------------------ resources */

static int count_entries(const char *path) {
    DIR *dir = opendir(path);
    CHECK(dir != NULL);
    int count = 0;
    while (readdir(dir) != NULL) count++;
    closedir(dir);
    return count;
}

/* A joined thread's entry in /proc outlives the join by a moment; its flags say that it is ending (PF_EXITING of
   include/linux/sched.h, the ninth field of proc_pid_stat(5), set before a joiner is woken). */
static bool thread_is_ending(const char *tid) {
    enum { EXITING = 0x4 };
    char path[300], line[512] = "";
    unsigned flags = 0;
    snprintf(path, sizeof path, "/proc/self/task/%s/stat", tid);
    FILE *file = fopen(path, "re");
    if (file == NULL) return true; /* ended since the folder was read */
    bool read = fgets(line, sizeof line, file) != NULL;
    fclose(file);
    if (!read) return true;
    const char *after_name = strrchr(line, ')');
    CHECK(after_name != NULL);
    CHECK_EQ(sscanf(after_name, ") %*c %*d %*d %*d %*d %*d %u", &flags), 1);
    return (flags & EXITING) != 0;
}

static int count_threads(void) {
    DIR *dir = opendir("/proc/self/task");
    CHECK(dir != NULL);
    int count = 0;
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;)
        if (entry->d_name[0] != '.' && !thread_is_ending(entry->d_name)) count++;
    closedir(dir);
    return count;
}

static int count_maps(void) {
    FILE *file = fopen("/proc/self/maps", "re");
    CHECK(file != NULL);
    char line[1024];
    int count = 0;
    while (fgets(line, sizeof line, file) != NULL)
        if (strstr(line, "memfd:tpcomm") != NULL) count++;
    fclose(file);
    return count;
}

static void *nothing(void *arg) {
    return arg;
}

resources_t resources_now(void) {
    /* ThreadSanitizer starts a thread of its own with a process's first one, which must not pass for one of ours. */
    static pid_t warm;
    if (warm != getpid()) {
        pthread_t thread;
        CHECK_EQ(pthread_create(&thread, NULL, nothing, NULL), 0);
        CHECK_EQ(pthread_join(thread, NULL), 0);
        warm = getpid();
    }
    return (resources_t){.fds = count_entries("/proc/self/fd"), .maps = count_maps(), .threads = count_threads()};
}

void resources_check_equal(resources_t before, const char *what) {
    resources_t after = resources_now();
    /* A thread that nobody joins ends a moment later than what it was for; half a minute is for ever. */
    for (int i = 0; i < 30000 && after.threads > before.threads; i++) {
        usleep(1000);
        after = resources_now();
    }
    if (after.fds != before.fds || after.maps != before.maps || after.threads != before.threads)
        FAIL("%s: descriptors %d -> %d, mappings of ours %d -> %d, threads %d -> %d", what, before.fds, after.fds,
             before.maps, after.maps, before.threads, after.threads);
}

uint64_t random_next(uint64_t *state) {
    uint64_t x = (*state += 0x9e3779b97f4a7c15u);
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}
