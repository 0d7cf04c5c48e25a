/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Check that a group with two backends takes its calls down either, in any order: every dtype, op and collective by
 * nccl exactly where the values are, beside the cpu device's own paths; choice by a tuning file's sizes, explain and
 * statistics; groups of groups, and across hosts; and where there is no nccl path and why: a group of one, TPCOMM_NCCL
 * off, deterministic on, another device. Nothing stays behind.
 */
#include <arpa/inet.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/status.h"
#include "multirank/pattern.h"
#include "nccl_fake/fake.h"

static void reduction(rank_t *rank, tpcomm_dtype_t dtype, tpcomm_op_t op, size_t count, bool in_place, uint64_t seed) {
    size_t bytes = count * tpcomm_dtype_size(dtype);
    unsigned char *in = malloc(bytes + 1), *out = in_place ? in : malloc(bytes + 1), *want = malloc(bytes + 1);
    CHECK(in && out && want);
    pattern_fill(PATTERN_EXACT, dtype, seed, rank->rank, count, in);
    pattern_result(PATTERN_EXACT, dtype, op, seed, rank->size, count, want);
    tpcomm_call_t call = {.struct_size = sizeof call,
                          .coll = TPCOMM_ALL_REDUCE,
                          .dtype = dtype,
                          .op = op,
                          .path = TPCOMM_PATH_NCCL,
                          .in = in,
                          .out = out,
                          .count = count};
    CHECK_OK(tpcomm_call(rank->comm, &call, NULL));
    if (memcmp(out, want, bytes) != 0)
        FAIL("rank %d of %d: %s %s of %zu by nccl differs", rank->rank, rank->size, tpcomm_dtype_name(dtype),
             tpcomm_op_name(op), count);
    if (!in_place) free(out);
    free(in);
    free(want);
}

static void movement(rank_t *rank, tpcomm_dtype_t dtype, size_t count) {
    size_t bytes = count * tpcomm_dtype_size(dtype), size = (size_t)rank->size;
    unsigned char *in = malloc(bytes * size), *out = malloc(bytes * size), *want = malloc(bytes * size);
    CHECK(in && out && want);
    tpcomm_call_t call = {.struct_size = sizeof call,
                          .coll = TPCOMM_BROADCAST,
                          .dtype = dtype,
                          .path = TPCOMM_PATH_NCCL,
                          .root = rank->size - 1,
                          .in = in,
                          .out = out,
                          .count = count};
    pattern_fill(PATTERN_BITS, dtype, count, rank->rank, count, in);
    pattern_fill(PATTERN_BITS, dtype, count, rank->size - 1, count, want);
    CHECK_OK(tpcomm_call(rank->comm, &call, NULL));
    CHECK(memcmp(out, want, bytes) == 0);

    call.coll = TPCOMM_ALL_GATHER;
    for (int32_t r = 0; r < rank->size; r++)
        pattern_fill(PATTERN_BITS, dtype, count, r, count, want + (size_t)r * bytes);
    CHECK_OK(tpcomm_call(rank->comm, &call, NULL));
    CHECK(memcmp(out, want, bytes * size) == 0);
    free(in);
    free(out);
    free(want);
}

static void scatter(rank_t *rank, size_t count) {
    size_t total = count * (size_t)rank->size;
    float *in = malloc(total * sizeof *in), *out = malloc(count * sizeof *out), *want = malloc(total * sizeof *want);
    CHECK(in && out && want);
    pattern_fill(PATTERN_EXACT, TPCOMM_F32, 5, rank->rank, total, in);
    pattern_result(PATTERN_EXACT, TPCOMM_F32, TPCOMM_SUM, 5, rank->size, total, want);
    tpcomm_call_t call = {.struct_size = sizeof call,
                          .coll = TPCOMM_REDUCE_SCATTER,
                          .dtype = TPCOMM_F32,
                          .op = TPCOMM_SUM,
                          .path = TPCOMM_PATH_NCCL,
                          .in = in,
                          .out = out,
                          .count = count};
    CHECK_OK(tpcomm_call(rank->comm, &call, NULL));
    CHECK(memcmp(out, want + (size_t)rank->rank * count, count * sizeof *out) == 0);
    free(in);
    free(out);
    free(want);
}

static uint64_t calls_of(const tpcomm_t *comm, tpcomm_path_t path) {
    tpcomm_stats_t stats = {.struct_size = sizeof stats};
    for (int32_t i = 0; tpcomm_stats(comm, i, &stats) == TPCOMM_OK; i++)
        if (stats.path == path) return stats.calls;
    FAIL("no statistics of %s", tpcomm_path_name(path));
}

static void everything(rank_t *rank) {
    static const size_t counts[] = {1, 17, 4096, 50001};
    uint64_t seed = 0;
    for (tpcomm_dtype_t dtype = TPCOMM_F32; dtype <= TPCOMM_F64; dtype++)
        for (tpcomm_op_t op = TPCOMM_SUM; op <= TPCOMM_MIN; op++) {
            if (!tpc_reduction_defined(dtype, op)) continue;
            reduction(rank, dtype, op, counts[seed % 4], seed % 3 == 0, seed);
            if (++seed % 4 == 0) check_sum(rank, TPCOMM_PATH_CPU_ONESHOT);
            if (seed % 8 == 1) check_sum(rank, TPCOMM_PATH_CPU_TWOSHOT);
        }
    reduction(rank, TPCOMM_I32, TPCOMM_PROD, 100, false, 1);
    reduction(rank, TPCOMM_BF16, TPCOMM_SUM, 0, false, 1);
    for (tpcomm_dtype_t dtype = TPCOMM_F32; dtype <= TPCOMM_F8_E5M2; dtype++) movement(rank, dtype, 1021);
    scatter(rank, 3001);
    tpcomm_call_t barrier = {.struct_size = sizeof barrier, .coll = TPCOMM_BARRIER, .path = TPCOMM_PATH_NCCL};
    uint64_t before = calls_of(rank->comm, TPCOMM_PATH_NCCL);
    for (int i = 0; i < 20; i++) {
        CHECK_OK(tpcomm_call(rank->comm, &barrier, NULL));
        CHECK_OK(tpcomm_barrier(rank->comm, NULL));
    }
    CHECK_EQ(calls_of(rank->comm, TPCOMM_PATH_NCCL), before + 20);
    tpcomm_call_t average = {.struct_size = sizeof average,
                             .coll = TPCOMM_ALL_REDUCE,
                             .dtype = TPCOMM_I32,
                             .op = TPCOMM_AVG,
                             .path = TPCOMM_PATH_NCCL,
                             .in = &seed,
                             .out = &seed,
                             .count = 1};
    CHECK_STATUS(tpcomm_call(rank->comm, &average, NULL), TPCOMM_ERR_UNSUPPORTED);
    CHECK_ERROR_HAS("not defined");
    for (int32_t r = 0; r < rank->size; r++) {
        tpcomm_rank_info_t info = {.struct_size = sizeof info};
        CHECK_OK(tpcomm_host_barrier(rank->comm, 0));
        CHECK_OK(tpcomm_rank_info(rank->comm, r, &info));
        CHECK(info.seq > 20);
    }

    tpcomm_t *group = NULL; /* a communicator of its own, in the other order */
    int32_t ranks[TPCOMM_MAX_RANKS];
    for (int32_t r = 0; r < rank->size; r++) ranks[r] = rank->size - 1 - r;
    CHECK_OK(tpcomm_group_create(rank->comm, ranks, rank->size, "reversed", &group));
    rank_t inner = {.comm = group, .rank = rank->size - 1 - rank->rank, .size = rank->size};
    movement(&inner, TPCOMM_BF16, 333);
    check_sum(&inner, TPCOMM_PATH_NCCL);
    check_sum(rank, TPCOMM_PATH_NCCL);
    CHECK_OK(tpcomm_finalize(group));
    CHECK_OK(tpcomm_destroy(group));
}

/* nccl from 64 KiB up, by a tuning file. */
static void by_size(rank_t *rank) {
    static _Thread_local float data[65536];
    for (size_t count = 1024; count <= 65536; count *= 2) {
        tpcomm_call_t call = {.struct_size = sizeof call,
                              .coll = TPCOMM_ALL_REDUCE,
                              .dtype = TPCOMM_F32,
                              .op = TPCOMM_SUM,
                              .in = data,
                              .out = data,
                              .count = count};
        tpcomm_decision_t decision = {.struct_size = sizeof decision};
        CHECK_OK(tpcomm_explain(rank->comm, &call, &decision));
        CHECK_EQ(decision.path, count < 16384 ? TPCOMM_PATH_CPU_ONESHOT : TPCOMM_PATH_NCCL);
        uint64_t before = calls_of(rank->comm, decision.path);
        CHECK_OK(tpcomm_call(rank->comm, &call, NULL));
        CHECK_EQ(calls_of(rank->comm, decision.path), before + 1);
    }
}

static void write_table(const char *path, const char *version) {
    FILE *file = fopen(path, "we");
    CHECK(file != NULL);
    fprintf(
        file,
        "{\"schema\": \"tpcomm-tuning/1\", \"device\": \"cpu\", \"nccl_version\": \"%s\", \"rows\": ["
        "{\"coll\": \"all_reduce\", \"topology\": \"cpu\", \"ranks\": 2, \"bytes_max\": 65535, \"path\": "
        "\"cpu_oneshot\"},"
        "{\"coll\": \"all_reduce\", \"topology\": \"cpu\", \"ranks\": 2, \"bytes_min\": 65536, \"path\": \"nccl\"}]}",
        version);
    CHECK_EQ(fclose(file), 0);
}

/* A table measured beside another NCCL is refused, on every rank alike. */
static void measured_elsewhere(int32_t rank, int32_t size, void *arg) {
    (void)rank, (void)size;
    tpcomm_config_t config = ranks_config();
    tpcomm_t *comm = NULL;
    config.tuning_file = arg;
    CHECK_STATUS(tpcomm_init_env(&config, &comm), TPCOMM_ERR_CONFIG);
    CHECK_ERROR_HAS((const char *)arg);
    CHECK_ERROR_HAS("measured with NCCL 2.27.3, but this group uses NCCL 2.28.9");
}

static void without(rank_t *rank) {
    tpcomm_info_t info = fake_info(rank->comm);
    check_has(info.nccl, rank->arg);
    check_has(info.paths, rank->arg);
    int32_t value = 0;
    tpcomm_call_t call = {.struct_size = sizeof call,
                          .coll = TPCOMM_ALL_REDUCE,
                          .dtype = TPCOMM_I32,
                          .op = TPCOMM_SUM,
                          .path = TPCOMM_PATH_NCCL,
                          .in = &value,
                          .out = &value,
                          .count = 1};
    CHECK_STATUS(tpcomm_call(rank->comm, &call, NULL), TPCOMM_ERR_UNSUPPORTED);
    CHECK_ERROR_HAS((const char *)rank->arg);
    check_sum(rank, TPCOMM_PATH_AUTO);
}

static void forced(rank_t *rank) {
    uint64_t before = calls_of(rank->comm, TPCOMM_PATH_NCCL);
    check_sum(rank, TPCOMM_PATH_AUTO);
    CHECK_EQ(calls_of(rank->comm, TPCOMM_PATH_NCCL), before + 1);
    check_sum(rank, TPCOMM_PATH_CPU_ONESHOT); /* the call's own path wins */
    CHECK_EQ(calls_of(rank->comm, TPCOMM_PATH_NCCL), before + 1);
}

/* A port of the loopback, held by a socket that does not listen, so that nobody else is given it; returns the socket.
 */
static int hold_port(char *root, size_t bytes) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), yes = 1;
    CHECK(fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) == 0);
    CHECK_EQ(bind(fd, (struct sockaddr *)&address, length), 0);
    CHECK_EQ(getsockname(fd, (struct sockaddr *)&address, &length), 0);
    snprintf(root, bytes, "127.0.0.1:%d", ntohs(address.sin_port));
    return fd;
}

/* Two hosts, told apart by what they say of themselves: NCCL alone joins them. */
static void two_hosts(int32_t rank, int32_t size, void *arg) {
    tpcomm_config_t config = ranks_config();
    rank_t self = {.rank = rank, .size = size};
    CHECK_EQ(setenv("TPCOMM_HOST_ID", rank < 2 ? "left" : "right", 1), 0);
    CHECK_EQ(setenv("TPCOMM_LOCAL_SIZE", "2", 1), 0);
    CHECK_EQ(setenv("TPCOMM_LOCAL_RANK", rank % 2 == 0 ? "0" : "1", 1), 0);
    CHECK_EQ(setenv("TPCOMM_ROOT", arg, 1), 0);
    CHECK_OK(tpcomm_init_env(&config, &self.comm));
    tpcomm_info_t info = fake_info(self.comm);
    CHECK(strcmp(info.topology, "multi_host") == 0);
    check_has(info.nccl, "NCCL 2.");
    check_sum(&self, TPCOMM_PATH_AUTO);
    CHECK_EQ(calls_of(self.comm, TPCOMM_PATH_NCCL), 1);
    movement(&self, TPCOMM_BF16, 70001);
    scatter(&self, 5000);
    tpcomm_t *group = NULL;
    CHECK_OK(tpcomm_group_split(self.comm, rank / 2, 0, "host", &group));
    rank_t inner = {.comm = group, .rank = rank % 2, .size = 2};
    check_sum(&inner, TPCOMM_PATH_CPU_ONESHOT);
    check_sum(&inner, TPCOMM_PATH_NCCL);
    CHECK_OK(tpcomm_finalize(group));
    CHECK_OK(tpcomm_destroy(group));
    CHECK_OK(tpcomm_host_barrier(self.comm, 0));
    float value = 1;
    if (rank == 3) CHECK_OK(tpcomm_abort(self.comm, "from afar"));
    CHECK_STATUS(call_nccl(self.comm, &value, 1), TPCOMM_ERR_ABORTED);
    CHECK_ERROR_HAS("from afar");
    CHECK_OK(tpcomm_destroy(self.comm));
}

/* A forked child frees its own and touches nothing of NCCL's; its parent goes on. */
static void forked(rank_t *rank) {
    check_sum(rank, TPCOMM_PATH_NCCL);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        CHECK_OK(tpcomm_destroy(rank->comm));
        _Exit(0);
    }
    int how = 0;
    CHECK_EQ(waitpid(child, &how, 0), child);
    CHECK(WIFEXITED(how) && WEXITSTATUS(how) == 0);
    check_sum(rank, TPCOMM_PATH_NCCL);
}

int main(void) {
    tpcomm_config_t config = ranks_config();
    char table[64], root[32];
    fake_use(FAKE, "");
    tpcomm_t *warm[2]; /* what a process keeps after its first use of NCCL is kept once */
    CHECK_OK(tpcomm_init_local(2, NULL, &config, warm));
    for (int r = 0; r < 2; r++) CHECK_OK(tpcomm_destroy(warm[r]));
    resources_t before = resources_now();
    for (int kind = 0; kind < RANKS_KINDS; kind++)
        for (int32_t size = 2; size <= 4; size++) ranks_run(kind, size, &config, everything, NULL);
    resources_check_equal(before, "after groups with nccl");

    ranks_run(RANKS_PROCESSES, 2, &config, forked, NULL);
    int port = hold_port(root, sizeof root);
    ranks_fork(4, two_hosts, root);
    close(port);

    snprintf(table, sizeof table, "/tmp/tpcomm-nccl-%d.json", (int)getpid());
    write_table(table, "2.28.9");
    config.tuning_file = table;
    ranks_run(RANKS_PROCESSES, 2, &config, by_size, NULL);
    write_table(table, "2.27.3");
    ranks_fork(2, measured_elsewhere, table);
    CHECK_EQ(unlink(table), 0);
    config.tuning_file = NULL;

    config.path = TPCOMM_PATH_NCCL;
    ranks_run(RANKS_THREADS, 3, &config, forced, NULL);
    config.path = TPCOMM_PATH_AUTO;

    ranks_run(RANKS_THREADS, 1, &config, without, "group of one");
    config.deterministic = TPCOMM_ON;
    ranks_run(RANKS_THREADS, 2, &config, without, "deterministic is on");
    config.deterministic = TPCOMM_DEFAULT;
    CHECK_EQ(setenv("TPCOMM_NCCL", "off", 1), 0);
    ranks_run(RANKS_PROCESSES, 2, &config, without, "NCCL is switched off (TPCOMM_NCCL)");
    config.path = TPCOMM_PATH_NCCL;
    CHECK_STATUS(tpcomm_init_local(2, NULL, &config, warm), TPCOMM_ERR_CONFIG);
    CHECK_ERROR_HAS("switched off");
    CHECK_EQ(unsetenv("TPCOMM_NCCL"), 0);
    ranks_set_hooks(""); /* without the hook: a group on the cpu device has no such path */
    CHECK_STATUS(tpcomm_init_local(2, NULL, &config, warm), TPCOMM_ERR_CONFIG);
    CHECK_ERROR_HAS("no such path");
    resources_check_equal(before, "at the end");
    return 0;
}
