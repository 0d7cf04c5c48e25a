/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Check that a failure leaves each rank's last calls in TPCOMM_FLIGHT_DIR, also of a rank that is in no call; that a
 * dump can be had on request beside a call in flight, and by all threads at once; and that a folder that is not there
 * spoils nothing but the dump. fault_flight_command makes the same scenes and gives the files to
 * tools/tpcomm_flight.py.
 */
#include <dirent.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "multirank/ranks.h"

#define SIZE 3

/* ------------------------------------------------------------------ scenes: name, and what rank 0 and 1 are told */

static void reduce(tpcomm_t *comm, size_t count, tpcomm_status_t want) {
    float x[64] = {1};
    tpcomm_call_t call = {.struct_size = sizeof call,
                          .coll = TPCOMM_ALL_REDUCE,
                          .dtype = TPCOMM_F32,
                          .op = TPCOMM_SUM,
                          .in = x,
                          .out = x,
                          .count = count,
                          .tag = 40 + count};
    tpcomm_status_t status = tpcomm_call(comm, &call, NULL);
    if (want <= TPCOMM_OK && status != want)
        FAIL("%s, want %s: %s", tpcomm_status_name(status), tpcomm_status_name(want), tpcomm_last_error());
}

/* Rank 2 is somewhere else when call 7 is due. */
static void missing(tpcomm_t *comm, int32_t rank) {
    for (int i = 0; i < 6; i++) reduce(comm, 8, TPCOMM_OK);
    if (rank != 2) {
        reduce(comm, 8, TPCOMM_ERR_TIMEOUT);
        return;
    }
    for (int32_t r = 0; r < 2; r++) ranks_await_call(comm, r, 7);
    CHECK_OK(tpcomm_set_op_timeout(comm, 1500));
    ranks_await_failure(comm);
}

static void mismatch(tpcomm_t *comm, int32_t rank) {
    for (int i = 0; i < 4; i++) reduce(comm, 8, TPCOMM_OK);
    reduce(comm, rank == 1 ? 16 : 8, TPCOMM_ERR_MISMATCH);
}

static void killed(tpcomm_t *comm, int32_t rank) {
    for (int i = 0; i < 3; i++) reduce(comm, 8, TPCOMM_OK);
    if (rank == 1) {
        ranks_await_call(comm, 0, 4);
        ranks_await_call(comm, 2, 4);
        raise(SIGKILL);
    }
    reduce(comm, 8, TPCOMM_ERR_PEER_DIED);
}

/* Two groups; the one that fails is not the world. */
static void subgroup(tpcomm_t *comm, int32_t rank) {
    tpcomm_t *pair = NULL;
    const int32_t ranks[] = {1, 2};
    CHECK_OK(tpcomm_group_create(comm, ranks, 2, "pair", &pair));
    reduce(comm, 8, TPCOMM_OK);
    if (pair != NULL) {
        reduce(pair, 8, TPCOMM_OK);
        if (rank == 1) CHECK_STATUS(tpcomm_barrier(pair, NULL), TPCOMM_ERR_MISMATCH);
        if (rank == 2) CHECK_STATUS(tpcomm_broadcast(pair, &rank, &rank, 1, TPCOMM_I32, 0, NULL), TPCOMM_ERR_MISMATCH);
        CHECK_OK(tpcomm_destroy(pair));
    }
    CHECK_OK(tpcomm_host_barrier(comm, 0));
    CHECK_OK(tpcomm_finalize(comm)); /* so that nobody's end is the world's failure */
}

static const struct {
    const char *name;
    void (*fn)(tpcomm_t *comm, int32_t rank);
} scenes[] = {{"missing", missing}, {"mismatch", mismatch}, {"killed", killed}, {"subgroup", subgroup}};

static void run_scene(const char *folder, int index) {
    char job[64];
    pid_t children[SIZE];
    snprintf(job, sizeof job, "flight-%d-%d", getpid(), index);
    fflush(NULL);
    for (int32_t rank = 0; rank < SIZE; rank++) {
        children[rank] = fork();
        CHECK(children[rank] >= 0);
        if (children[rank] != 0) continue;
        ranks_set_env(rank, SIZE, job);
        CHECK_EQ(setenv("TPCOMM_FLIGHT_DIR", folder, 1), 0);
        tpcomm_config_t config = ranks_config();
        tpcomm_t *comm = NULL;
        CHECK_OK(tpcomm_init_env(&config, &comm));
        scenes[index].fn(comm, rank);
        CHECK_OK(tpcomm_destroy(comm));
        _Exit(0);
    }
    for (int32_t rank = 0; rank < SIZE; rank++) {
        int how = 0;
        CHECK_EQ(waitpid(children[rank], &how, 0), children[rank]);
        if (WIFSIGNALED(how) && WTERMSIG(how) == SIGKILL && strcmp(scenes[index].name, "killed") == 0) continue;
        if (!WIFEXITED(how) || WEXITSTATUS(how) != 0)
            FAIL("scene %s: rank %d: %#x", scenes[index].name, rank, (unsigned)how);
    }
}

/* ------------------------------------------------------------------ checks of this program alone */

static char *slurp(const char *path) {
    FILE *file = fopen(path, "rb");
    CHECK(file != NULL);
    char *text = calloc(1, 1 << 20);
    CHECK(text != NULL);
    CHECK(fread(text, 1, (1 << 20) - 1, file) > 0);
    fclose(file);
    return text;
}

static int count_files(const char *folder, char *one_p, size_t bytes) {
    DIR *dir = opendir(folder);
    CHECK(dir != NULL);
    int count = 0;
    for (const struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        if (entry->d_name[0] == '.') continue;
        CHECK(strncmp(entry->d_name, "tpcomm-flight-", 14) == 0);
        CHECK(strcmp(entry->d_name + strlen(entry->d_name) - 5, ".json") == 0);
        snprintf(one_p, bytes, "%s/%s", folder, entry->d_name);
        count++;
    }
    closedir(dir);
    return count;
}

static void empty(const char *folder) {
    char path[512];
    while (count_files(folder, path, sizeof path) > 0) CHECK_EQ(unlink(path), 0);
}

static void check_scene(const char *folder, int index, int files, const char *piece) {
    char path[512];
    run_scene(folder, index);
    CHECK_EQ(count_files(folder, path, sizeof path), files);
    char *text = slurp(path);
    CHECK(strncmp(text, "{\"schema\":\"tpcomm-flight/1\",", 28) == 0);
    if (strstr(text, piece) == NULL) FAIL("%s has no %s:\n%s", path, piece, text);
    free(text);
    empty(folder);
}

static _Atomic int stop;

static void *dump_often(void *arg) {
    const rank_t *rank = arg;
    char path[512];
    snprintf(path, sizeof path, "%s/tpcomm-flight-request.json", (const char *)rank->arg);
    int dumps = 0;
    for (; atomic_load(&stop) == 0 || dumps == 0; dumps++) CHECK_OK(tpcomm_flight_dump(rank->comm, path));
    char *text = slurp(path);
    CHECK(strstr(text, "\"cause\":null") != NULL);
    free(text);
    return NULL;
}

/* Both ranks and two more threads write one path while calls run. */
static void on_request(rank_t *rank) {
    pthread_t thread;
    CHECK_EQ(pthread_create(&thread, NULL, dump_often, rank), 0);
    for (int i = 0; i < 2000; i++) reduce(rank->comm, 8, TPCOMM_OK);
    atomic_store(&stop, 1);
    CHECK_EQ(pthread_join(thread, NULL), 0);
}

static void check_request(char *folder) {
    tpcomm_config_t config = ranks_config();
    char path[512];
    CHECK_EQ(setenv("TPCOMM_FLIGHT_RECORDS", "16", 1), 0);
    ranks_run(RANKS_THREADS, 2, &config, on_request, folder);
    CHECK_EQ(unsetenv("TPCOMM_FLIGHT_RECORDS"), 0);
    CHECK_EQ(count_files(folder, path, sizeof path), 1);
    empty(folder);
    tpcomm_t *comm = NULL;
    CHECK_OK(tpcomm_init_local(1, NULL, &config, &comm));
    CHECK_STATUS(tpcomm_flight_dump(comm, NULL), TPCOMM_ERR_INVALID_ARG);
    CHECK_STATUS(tpcomm_flight_dump(NULL, "x"), TPCOMM_ERR_INVALID_ARG);
    CHECK_STATUS(tpcomm_flight_dump(comm, "/nonexistent/folder/dump.json"), TPCOMM_ERR_IO);
    CHECK_ERROR_HAS("/nonexistent/folder/dump.json");
    CHECK_STATUS(tpcomm_flight_dump(comm, folder),
                 TPCOMM_ERR_IO); /* a folder is no file, and nothing is left beside it */
    CHECK_OK(tpcomm_destroy(comm));
}

int main(int argc, char **argv) {
    if (argc == 3) { /* for fault_flight_command */
        for (int i = 0; i < (int)(sizeof scenes / sizeof scenes[0]); i++)
            if (strcmp(scenes[i].name, argv[2]) == 0) run_scene(argv[1], i);
        return 0;
    }
    char folder[] = "/tmp/tpcomm-flight-test-XXXXXX";
    CHECK(mkdtemp(folder) != NULL);
    check_scene(folder, 0, 3, "\"seq\":6,");
    check_scene(folder, 1, 3, "TPCOMM_ERR_MISMATCH");
    check_scene(folder, 2, 2, "ended without finalizing");
    check_scene(folder, 3, 2, "\"cause\":\"pair\"");
    check_request(folder);
    CHECK_EQ(rmdir(folder), 0);
    run_scene("/nonexistent/folder", 1); /* told in the log, and the failure is what it was */
    return 0;
}
