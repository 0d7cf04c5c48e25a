/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Check what is made of the NCCL that is found (A1, A2): version and file of the one in use are told; an explicit path
 * wins over what is loaded and over the system's; optional symbols may be missing; one that is too old, incomplete,
 * truncated, of another machine or not there is left out with version, minimum and file, and is the group's error where
 * the path was asked for. Nothing of it breaks the group's other paths.
 */
#include <unistd.h>

#include "nccl_fake/fake.h"
#include "nccl_backend/library.h"

#define TEXTS 4

typedef struct {
    const char *path, *version; /* NULL: not set */
    bool usable;
    const char *texts[TEXTS]; /* in comm_info's nccl */
} library_t;

static char truncated[64], foreign[64], nothing[64];

static void body(rank_t *rank) {
    const library_t *library = rank->arg;
    tpcomm_info_t info = fake_info(rank->comm);
    for (int i = 0; i < TEXTS && library->texts[i] != NULL; i++) check_has(info.nccl, library->texts[i]);
    check_has(info.paths, library->usable ? "nccl, " : "nccl (");
    check_sum(rank, TPCOMM_PATH_AUTO);
    if (library->usable) check_sum(rank, TPCOMM_PATH_NCCL);
    int32_t value = 0;
    tpcomm_call_t call = {.struct_size = sizeof call,
                          .coll = TPCOMM_ALL_REDUCE,
                          .dtype = TPCOMM_I32,
                          .op = TPCOMM_SUM,
                          .path = TPCOMM_PATH_NCCL,
                          .in = &value,
                          .out = &value,
                          .count = 1};
    tpcomm_decision_t decision = {.struct_size = sizeof decision};
    if (!library->usable) {
        CHECK_STATUS(tpcomm_call(rank->comm, &call, NULL), TPCOMM_ERR_UNSUPPORTED);
        CHECK_ERROR_HAS("path nccl was asked for");
        call.path = TPCOMM_PATH_AUTO;
        CHECK_OK(tpcomm_explain(rank->comm, &call, &decision));
        bool told = false;
        for (int32_t i = 0; i < decision.rejected_count; i++) {
            if (decision.rejected[i].path != TPCOMM_PATH_NCCL) continue;
            told = strstr(decision.rejected[i].why_not, "NCCL") != NULL;
        }
        CHECK(told);
        check_sum(rank, TPCOMM_PATH_AUTO); /* a refused call breaks nothing */
    }
}

static void use(const library_t *library) {
    fake_use(library->path, "");
    if (library->version != NULL)
        CHECK_EQ(setenv("NCCL_FAKE_VERSION", library->version, 1), 0);
    else
        CHECK_EQ(unsetenv("NCCL_FAKE_VERSION"), 0);
}

static void one(const library_t *library) {
    tpcomm_config_t config = ranks_config();
    use(library);
    for (int kind = 0; kind < RANKS_KINDS; kind++) ranks_run(kind, 2, &config, body, (void *)library);
    if (library->usable) return;
    /* Asked for by name, its failure is the group's, with the same text. */
    tpcomm_t *comms[2];
    config.path = TPCOMM_PATH_NCCL;
    CHECK_STATUS(tpcomm_init_local(2, NULL, &config, comms), TPCOMM_ERR_UNSUPPORTED);
    CHECK_ERROR_HAS("asks for nccl");
    for (int i = 0; i < TEXTS && library->texts[i] != NULL; i++) CHECK_ERROR_HAS(library->texts[i]);
}

static void write_file(char *path, const char *from, size_t length, int machine) {
    unsigned char bytes[4096];
    FILE *in = fopen(from, "rbe"), *out;
    CHECK(in != NULL && length <= sizeof bytes);
    CHECK_EQ(fread(bytes, 1, length, in), length);
    fclose(in);
    if (machine != 0) bytes[18] = (unsigned char)machine, bytes[19] = 0; /* e_machine */
    snprintf(path, 64, "/tmp/tpcomm-nccl-%d-%zu-%d.so", (int)getpid(), length, machine);
    CHECK((out = fopen(path, "wbe")) != NULL);
    CHECK_EQ(fwrite(bytes, 1, length, out), length);
    fclose(out);
}

/* Where no path is given: the copy that the process has loaded, else the system's, each told by its own version. */
static void search(int32_t rank, int32_t size, void *arg) {
    (void)size, (void)arg;
    tpcomm_config_t config = ranks_config();
    static const struct { const char *path, *want; } steps[] = {{"", "2.27.7"}, {FAKE, "2.28.9"}, {"", "2.27.7"}};
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        char job[64];
        tpcomm_t *comm = NULL;
        snprintf(job, sizeof job, "search-%d-%zu", (int)getppid(), i);
        ranks_set_env(rank, 2, job);
        fake_use(steps[i].path, "");
        CHECK_OK(tpcomm_init_env(&config, &comm));
        tpcomm_info_t info = fake_info(comm);
        check_has(info.nccl, steps[i].want);
        check_has(info.nccl, steps[i].path[0] != '\0' ? FAKE : "libnccl.so.2");
        CHECK_OK(tpcomm_finalize(comm));
        CHECK_OK(tpcomm_destroy(comm));
    }
}

static unsigned char *read_whole(const char *path, size_t *length_p) {
    FILE *in = fopen(path, "rbe");
    CHECK(in != NULL);
    CHECK_EQ(fseek(in, 0, SEEK_END), 0);
    long length = ftell(in);
    CHECK(length > 0);
    rewind(in);
    unsigned char *bytes = malloc((size_t)length);
    CHECK(bytes != NULL);
    CHECK_EQ(fread(bytes, 1, (size_t)length, in), (size_t)length);
    fclose(in);
    *length_p = (size_t)length;
    return bytes;
}

/* A copy of the library in which this function has another name. */
static void without(const char *symbol, const char *path) {
    size_t length = 0, name = strlen(symbol) + 1; /* with its NUL, and behind another's */
    unsigned char *bytes = read_whole(FAKE, &length);
    int found = 0;
    for (size_t i = 1; i + name <= length; i++) {
        if (bytes[i - 1] != 0 || memcmp(bytes + i, symbol, name) != 0) continue;
        bytes[i] = 'x';
        found++;
    }
    CHECK(found > 0);
    FILE *out = fopen(path, "wbe");
    CHECK(out != NULL);
    CHECK_EQ(fwrite(bytes, 1, length, out), length);
    CHECK_EQ(fclose(out), 0);
    free(bytes);
}

/* (A1) Each function in its turn is missing: named where it is needed, and told where it is not. */
static void each_missing(void) {
    static const struct {
        const char *symbol;
        bool needed;
    } rows[] = {
#define ROW(name, symbol, needed, result, arguments) {#symbol, needed},
        TPC_NCCL_LIST(ROW)
#undef ROW
    };
    char path[64], want[80];
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        tpc_nccl_library_t library;
        snprintf(path, sizeof path, "/tmp/tpcomm-nccl-%d-without-%zu.so", (int)getpid(), i);
        without(rows[i].symbol, path);
        tpcomm_status_t status = tpc_nccl_load(path, &library);
        CHECK_EQ(unlink(path), 0);
        CHECK_STATUS(status, rows[i].needed ? TPCOMM_ERR_UNSUPPORTED : TPCOMM_OK);
        snprintf(want, sizeof want, rows[i].needed ? "has no %s" : "without %s", rows[i].symbol);
        check_has(rows[i].needed ? tpcomm_last_error() : library.text, want);
        check_has(rows[i].needed ? tpcomm_last_error() : library.text, path);
    }
    CHECK_EQ(setenv("NCCL_FAKE_FAULTS", "version@0", 1), 0);
    tpc_nccl_library_t library;
    CHECK_STATUS(tpc_nccl_load(FAKE, &library), TPCOMM_ERR_UNSUPPORTED);
    check_has(tpcomm_last_error(), FAKE);
    CHECK_EQ(unsetenv("NCCL_FAKE_FAULTS"), 0);
}

int main(void) {
    char text[32];
    each_missing();
    CHECK(strcmp(tpc_nccl_version_text(22809, text), "2.28.9") == 0);
    CHECK(strcmp(tpc_nccl_version_text(21003, text), "2.10.3") == 0);
    CHECK(strcmp(tpc_nccl_version_text(2804, text), "2.8.4") == 0);

    write_file(truncated, FAKE, 1000, 0);
    write_file(foreign, FAKE, 4096, 0xB7 ^ (sizeof(void *) == 8 ? 0x15 : 0)); /* none that this could be */
    snprintf(nothing, sizeof nothing, "/nonexistent/libnccl.so.2");
    const library_t libraries[] = {
        {FAKE, NULL, true, {"NCCL 2.28.9", FAKE}},
        {FAKE, "21403", true, {"NCCL 2.14.3", FAKE}},
        {FAKE_SMALL, NULL, true, {FAKE_SMALL, "without ncclCommFinalize", "ncclCommAbort"}},
        {FAKE, "21003", false, {"version 2.10.3", "2.14 or newer", FAKE, "load NCCL"}},
        {FAKE, "2804", false, {"version 2.8.4", "2.14 or newer", FAKE}},
        {FAKE_BROKEN, NULL, false, {"2.28.9", "no ncclAllReduce", FAKE_BROKEN}},
        {truncated, NULL, false, {"NCCL cannot be loaded", truncated, "file too short"}},
        {foreign, NULL, false, {"NCCL cannot be loaded", foreign}},
        {nothing, NULL, false, {"NCCL cannot be loaded", nothing, "No such file"}},
    };
    for (size_t i = 0; i < sizeof libraries / sizeof *libraries; i++) one(&libraries[i]);
    CHECK_EQ(unlink(truncated), 0);
    CHECK_EQ(unlink(foreign), 0);
    CHECK_EQ(unsetenv("NCCL_FAKE_VERSION"), 0);
    if (getenv("LD_LIBRARY_PATH") != NULL && strstr(getenv("LD_LIBRARY_PATH"), "nccl_fake_system") != NULL)
        ranks_fork(2, search, NULL);
    else
        FAIL("LD_LIBRARY_PATH does not have the stand-in for the system's NCCL");
    return 0;
}
