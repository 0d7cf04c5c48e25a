/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Check how a group chooses a way of sharing device memory, with ways that work on host memory: the best that works for
 * all; the next for all where one rank fails, at every step; a pair whose bytes do not arrive; a proof that hangs; no
 * descriptor or mapping left behind. Ranks as processes (by descriptor), as threads (by address), and both in one
 * group.
 */
#include "base/log.h"
#include "peer_mem/device_memory.h"
#include "unit/bootstrap_job.h"

enum { SIZE = 3, BYTES = 4096 + SIZE * 65536, OFFSET = 4096 };

/* ------------------------------------------------------------------ ways that work on host memory */

static tpcomm_status_t fake_create(tpc_share_t *share, tpc_share_offer_t *offer_p, int *fd_p) {
    int fd = memfd_create("fake device", MFD_CLOEXEC);
    CHECK(fd >= 0);
    CHECK_EQ(ftruncate(fd, (off_t)share->bytes), 0);
    share->own = mmap(NULL, share->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(share->own != MAP_FAILED);
    offer_p->address = (uint64_t)(uintptr_t)share->own;
    offer_p->bytes = share->bytes;
    if (share->several_processes)
        *fd_p = fd;
    else
        close(fd);
    return TPCOMM_OK;
}

static tpcomm_status_t fake_open(const tpc_share_t *share, const tpc_cuda_facts_t *theirs, bool same_process,
                                 const tpc_share_offer_t *offer, int fd, void **pointer_p) {
    (void)theirs;
    if (same_process) {
        *pointer_p = (void *)(uintptr_t)offer->address;
        return TPCOMM_OK;
    }
    CHECK(fd >= 0);
    *pointer_p = mmap(NULL, share->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(*pointer_p != MAP_FAILED);
    return TPCOMM_OK;
}

static void fake_settle(tpc_share_t *share) {
    (void)share;
}

static void fake_close(const tpc_share_t *share, void *pointer, bool same_process) {
    if (!same_process) CHECK_EQ(munmap(pointer, share->bytes), 0);
}

static void fake_destroy(tpc_share_t *share) {
    if (share->own != NULL) CHECK_EQ(munmap(share->own, share->bytes), 0);
    share->own = NULL;
}

static tpcomm_status_t fake_copy_in(tpc_cuda_copier_t *copier, void *device, const void *host, size_t bytes,
                                    const char *what, const tpc_deadline_t *deadline) {
    (void)copier, (void)what, (void)deadline;
    memcpy(device, host, bytes);
    return TPCOMM_OK;
}

static tpcomm_status_t fake_copy_out(tpc_cuda_copier_t *copier, void *host, const void *device, size_t bytes,
                                     const char *what, const tpc_deadline_t *deadline) {
    return fake_copy_in(copier, host, device, bytes, what, deadline);
}

static tpcomm_status_t fake_fill(tpc_cuda_copier_t *copier, void *device, unsigned char byte, size_t bytes,
                                 const char *what, const tpc_deadline_t *deadline) {
    (void)copier, (void)what, (void)deadline;
    memset(device, byte, bytes);
    return TPCOMM_OK;
}

static tpcomm_status_t fake_copier_open(size_t bytes, tpc_cuda_copier_t *copier_p) {
    *copier_p = (tpc_cuda_copier_t){.bytes = bytes};
    return TPCOMM_OK;
}

static void fake_copier_close(tpc_cuda_copier_t *copier) {
    (void)copier;
}

#define FAKE                                                                                                           \
    .passes_fd = true, .create = fake_create, .open = fake_open, .settle = fake_settle, .close = fake_close,           \
    .destroy = fake_destroy, .copy_in = fake_copy_in, .copy_out = fake_copy_out, .fill = fake_fill,                    \
    .copier_open = fake_copier_open, .copier_close = fake_copier_close

static const tpc_share_method_t first = {.name = "first", .asked_by = "cumem", .scope = TPC_SHARE_ANYWHERE, FAKE};
static const tpc_share_method_t between = {
    .name = "between", .asked_by = "cudaipc", .scope = TPC_SHARE_BETWEEN_PROCESSES, FAKE};
static const tpc_share_method_t within = {
    .name = "within", .asked_by = "cudaipc", .scope = TPC_SHARE_WITHIN_PROCESS, FAKE};
static const tpc_share_method_t *const methods[] = {&first, &between, &within, NULL};

/* ------------------------------------------------------------------ one group */

typedef struct {
    const char *only, *hooks;
    const char *processes, *threads; /* the way that ranks of each kind end with; NULL: none */
    const char *error;               /* piece of the text */
} row_t;
static row_t row;

static _Atomic uint64_t *users; /* in memory of all ranks */
static _Atomic int *lines;      /* log lines about a second way, of all ranks */

static void count_line(void *arg, int32_t level, const char *subsystem, const char *line) {
    (void)arg;
    if (level <= TPCOMM_LOG_WARN && strcmp(subsystem, "peer_mem") == 0 && strstr(line, "in place of first") != NULL)
        atomic_fetch_add(lines, 1);
}

static tpc_device_memory_t memories[SIZE]; /* of threads */

static void one_group(tpc_bootstrap_t *bootstrap, const char *want) {
    static const int32_t ranks[SIZE] = {0, 1, 2};
    static const tpc_cuda_facts_t facts[SIZE];
    tpc_team_t team = {.channel = 5, .ranks = ranks, .n = SIZE, .me = tpc_bootstrap_rank(bootstrap)};
    tpc_deadline_t deadline = tpc_deadline_in(60000, NULL, NULL);
    tpc_device_memory_t memory;
    tpc_device_memory_plan_t plan = {
        .methods = methods, .only = row.only, .bytes = BYTES, .probe_offset = OFFSET, .users = users};
    tpcomm_status_t status = tpc_device_memory_open(bootstrap, &team, facts, &plan, &deadline, &memory);
    if (want == NULL) {
        CHECK_STATUS(status, TPCOMM_ERR_NO_TRANSPORT);
        CHECK_ERROR_HAS(row.error);
        return;
    }
    CHECK_OK(status);
    if (strcmp(memory.method->name, want) != 0) FAIL("by %s, want %s", memory.method->name, want);
    for (size_t i = 0; i < BYTES; i++)
        if (memory.own[i] != 0xFF) FAIL("rank %d: byte %zu of a new memory is %02x", team.me, i, memory.own[i]);
    CHECK_OK(tpc_team_gather(bootstrap, &team, "looked", TPCOMM_OK, NULL, 0, NULL, &deadline));
    for (int32_t r = 0; r < SIZE; r++) memory.mapped[r][team.me] = (unsigned char)(10 * team.me + r);
    CHECK_OK(tpc_team_gather(bootstrap, &team, "written", TPCOMM_OK, NULL, 0, NULL, &deadline));
    for (int32_t r = 0; r < SIZE; r++) CHECK_EQ(memory.own[r], 10 * r + team.me);
    CHECK_OK(tpc_team_gather(bootstrap, &team, "read", TPCOMM_OK, NULL, 0, NULL, &deadline));
    if (memory.method->scope != TPC_SHARE_WITHIN_PROCESS) {
        tpc_device_memory_close(&memory);
        return;
    }
    /* One thread closes all, one after the other: whoever is last frees what the others have left. */
    memories[team.me] = memory;
    CHECK_OK(tpc_team_gather(bootstrap, &team, "kept", TPCOMM_OK, NULL, 0, NULL, &deadline));
    for (int32_t r = 0; r < SIZE && team.me == 1; r++) tpc_device_memory_close(&memories[r]);
    CHECK_OK(tpc_team_gather(bootstrap, &team, "closed", TPCOMM_OK, NULL, 0, NULL, &deadline));
}

/* ------------------------------------------------------------------ ranks */

static int count_maps(void) {
    FILE *file = fopen("/proc/self/maps", "re");
    char line[1024];
    int count = 0;
    CHECK(file != NULL);
    while (fgets(line, sizeof line, file) != NULL) count += strstr(line, "memfd:fake device") != NULL;
    fclose(file);
    return count;
}

static void as_process(int32_t index, outcome_t *outcome) {
    tpc_bootstrap_t *bootstrap;
    (void)outcome;
    job_set("TPCOMM_RANK", "%d", index);
    job_set("TPCOMM_SIZE", "%d", SIZE);
    CHECK_OK(tpcomm_log_set(count_line, NULL, TPCOMM_LOG_WARN));
    CHECK_OK(job_meet_env(60000, &bootstrap));
    int fds = job_count_fds();
    one_group(bootstrap, row.processes);
    one_group(bootstrap, row.processes); /* the channel is as good as new */
    CHECK_EQ(job_count_fds(), fds);
    CHECK_EQ(count_maps(), 0);
    tpc_bootstrap_free(bootstrap);
}

typedef struct {
    pthread_t thread;
    tpc_thread_world_t *world;
    int32_t rank;
} thread_t;

static void *as_thread(void *arg) {
    static _Thread_local tpc_env_t env;
    thread_t *thread = arg;
    tpc_bootstrap_t *bootstrap;
    tpc_deadline_t deadline = tpc_deadline_in(60000, NULL, NULL);
    CHECK_OK(tpc_env_read(&env));
    CHECK_OK(tpc_bootstrap_meet_threads(thread->world, thread->rank, &env, &deadline, &bootstrap));
    one_group(bootstrap, row.threads);
    one_group(bootstrap, row.threads);
    tpc_bootstrap_free(bootstrap);
    return NULL;
}

/* A process with two ranks, and one with the third: by address between the first two, by descriptor to the third. */
static void *as_part(void *arg) {
    static _Thread_local tpc_env_t env;
    static _Thread_local tpc_rank_env_t rank_env;
    thread_t *thread = arg;
    tpc_bootstrap_t *bootstrap;
    tpc_deadline_t deadline = tpc_deadline_in(60000, NULL, NULL);
    CHECK_OK(tpc_env_read(&env));
    CHECK_OK(tpc_rank_env_read(&env, &rank_env));
    rank_env.rank = thread->rank;
    CHECK_OK(tpc_bootstrap_meet_env(&rank_env, &deadline, &bootstrap));
    CHECK_EQ(tpc_bootstrap_member(bootstrap, 1)->same_process, thread->rank < 2);
    one_group(bootstrap, row.processes);
    one_group(bootstrap, row.processes);
    tpc_bootstrap_free(bootstrap);
    return NULL;
}

static void as_both(int32_t index, outcome_t *outcome) {
    thread_t threads[2];
    (void)outcome;
    job_set("TPCOMM_RANK", "0");
    job_set("TPCOMM_SIZE", "%d", SIZE);
    CHECK_OK(tpcomm_log_set(count_line, NULL, TPCOMM_LOG_WARN));
    int first = index == 0 ? 0 : 2, last = index == 0 ? 1 : 2, fds = job_count_fds();
    for (int r = first; r <= last; r++) {
        threads[r - first] = (thread_t){.rank = r};
        CHECK_EQ(pthread_create(&threads[r - first].thread, NULL, as_part, &threads[r - first]), 0);
    }
    for (int r = first; r <= last; r++) CHECK_EQ(pthread_join(threads[r - first].thread, NULL), 0);
    CHECK_EQ(job_count_fds(), fds);
    CHECK_EQ(count_maps(), 0);
}

static void as_threads(int32_t index, outcome_t *outcome) {
    thread_t threads[SIZE];
    tpc_thread_world_t *world;
    (void)index, (void)outcome;
    CHECK_OK(tpcomm_log_set(count_line, NULL, TPCOMM_LOG_WARN));
    CHECK_OK(tpc_thread_world_new(SIZE, &world));
    for (int32_t r = 0; r < SIZE; r++) {
        threads[r] = (thread_t){.world = world, .rank = r};
        CHECK_EQ(pthread_create(&threads[r].thread, NULL, as_thread, &threads[r]), 0);
    }
    for (int32_t r = 0; r < SIZE; r++) CHECK_EQ(pthread_join(threads[r].thread, NULL), 0);
    CHECK_EQ(count_maps(), 0);
}

static void try_row(void) {
    int changes = row.processes != NULL && strcmp(row.processes, "between") == 0 && strcmp(row.only, "auto") == 0;
    /* Memory that a peer still has mapped stays: here each waits for it, however late it is. */
    job_set("TPCOMM_TEST_HOOKS", "set@close_wait_ms:60000%s%s", row.hooks[0] != '\0' ? ";" : "", row.hooks);
    tpc_hook_reload();
    for (int kind = 0; kind < 3; kind++) {
        atomic_store(lines, 0);
        if (kind == 0) job_run(SIZE, as_process);
        if (kind == 1) job_run(1, as_threads);
        if (kind == 2) job_run(2, as_both);
        /* One line a job, not one a rank; two groups were made. (Without a second way none is announced.) */
        if (row.error == NULL && atomic_load(lines) != 2 * changes)
            FAIL("hooks '%s': %d log lines, want %d", row.hooks, atomic_load(lines), 2 * changes);
        for (int32_t r = 0; r < SIZE; r++) CHECK_EQ(users[r], 0);
    }
}

static void try(const char *only, const char *hooks, const char *processes, const char *threads, const char *error) {
    row = (row_t){only, hooks, processes, threads, error};
    try_row();
}

int main(void) {
    job_clean_environment();
    job_set_unique_id("device-memory");
    users = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(users != MAP_FAILED);
    lines = (void *)(users + TPCOMM_MAX_RANKS);
    try("auto", "", "first", "first", NULL);
    try("cumem", "", "first", "first", NULL);
    try("cudaipc", "", "between", "within", NULL);
    /* One rank fails the first way: the second for all, whichever rank and step. */
    try("auto", "fail@device_memory/first:2", "between", "within", NULL);
    try("auto", "fail@device_memory/first:0", "between", "within", NULL);
    /* No way left: every reason is told. */
    try("auto", "fail@device_memory:1", NULL, NULL, "first: rank 1 failed in 'share device memory'");
    try("cumem", "fail@device_memory/first:1", NULL, NULL, "the ranks cannot share device memory: first: rank 1");
    try("auto", "fail@device_map:2", NULL, NULL, "rank 2 failed in 'map device memory'");
    try("auto", "fail@device_probe:0", NULL, NULL, "rank 0 failed in 'write to device memory'");
    try("auto", "fail@team/exchange device memory:1", NULL, "first", "rank 1 failed in 'exchange device memory'");
    /* The driver says yes and the bytes do not arrive (0 -> 1), or only one way (2 -> 0). */
    try("auto", "set@break_pair:1", NULL, NULL, "pair 0 -> 1: ");
    try("auto", "set@break_pair:64", NULL, NULL, "pair 2 -> 0: ");
    /* A proof that never ends is given up. */
    try("auto", "set@probe_hang:1;set@probe_limit_ms:50", NULL, NULL,
        "rank 1 failed in 'write to device memory': the "
        "proof of peer access did not end within");
    return 0;
}
