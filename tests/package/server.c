/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Check that the shared library lives in somebody's process: a server that exports functions of cJSON's names of its
 * own, which are never called; two copies of the library at once, each with communicators of its own; dlclose while
 * nothing of ours is left to run, and a second dlopen.
 *
 * usage: package_server LIBTPCOMM.SO
 */
#include <dlfcn.h>
#include <pthread.h>
#include <unistd.h>

#include "tpcomm.h"

#define tpcomm_last_error() "" /* nothing here is linked to the library */
#include "check.h"

#define OWN(name)                                                                                                      \
    __attribute__((visibility("default"))) void *name(void);                                                           \
    __attribute__((visibility("default"))) void *name(void) {                                                          \
        FAIL("the server's own " #name " was called");                                                                 \
    }
OWN(cJSON_ParseWithLengthOpts)
OWN(cJSON_ParseWithLength)
OWN(cJSON_Parse)
OWN(cJSON_Delete)
OWN(cJSON_CreateObject)
OWN(cJSON_malloc)
OWN(cJSON_InitHooks)

typedef struct {
    void *handle;
    const char *(*last_error)(void);
    tpcomm_status_t (*init_local)(int32_t, const int32_t *, const tpcomm_config_t *, tpcomm_t **);
    tpcomm_status_t (*all_reduce)(tpcomm_t *, const void *, void *, size_t, tpcomm_dtype_t, tpcomm_op_t,
                                  tpcomm_stream_t);
    tpcomm_status_t (*finalize)(tpcomm_t *);
    tpcomm_status_t (*destroy)(tpcomm_t *);
} library_t;

static void find(const library_t *library, const char *name, void *function_p) {
    void *address = dlsym(library->handle, name);
    CHECK(address != NULL);
    memcpy(function_p, &address, sizeof address);
}

static library_t load(const char *path, int flags) {
    library_t library = {.handle = dlopen(path, RTLD_NOW | flags)};
    if (library.handle == NULL) FAIL("%s", dlerror());
    find(&library, "tpcomm_last_error", &library.last_error);
    find(&library, "tpcomm_init_local", &library.init_local);
    find(&library, "tpcomm_all_reduce", &library.all_reduce);
    find(&library, "tpcomm_finalize", &library.finalize);
    find(&library, "tpcomm_destroy", &library.destroy);
    return library;
}

typedef struct {
    const library_t *library;
    tpcomm_t *comm;
    int32_t rank, add;
} part_t;

static void *take_part(void *arg) {
    part_t *part = arg;
    for (int turn = 0; turn < 200; turn++) {
        int32_t x = part->rank + turn + part->add;
        tpcomm_status_t status = part->library->all_reduce(part->comm, &x, &x, 1, TPCOMM_I32, TPCOMM_SUM, NULL);
        if (status != TPCOMM_OK) FAIL("%d: %s", status, part->library->last_error());
        CHECK_EQ(x, 1 + 2 * (turn + part->add));
    }
    CHECK_EQ(part->library->finalize(part->comm), TPCOMM_OK);
    return NULL;
}

/* Groups of every library at once. */
static void work(const library_t *libraries, int count, const char *tuning) {
    part_t parts[4];
    pthread_t threads[4];
    tpcomm_config_t config = {
        .struct_size = sizeof config, .device_kind = TPCOMM_DEVICE_CPU, .tuning_file = tuning, .op_timeout_ms = 30000};
    for (int i = 0; i < count; i++) {
        tpcomm_t *comms[2];
        tpcomm_status_t status = libraries[i].init_local(2, NULL, &config, comms);
        if (status != TPCOMM_OK) FAIL("%d: %s", status, libraries[i].last_error());
        for (int32_t r = 0; r < 2; r++) parts[2 * i + r] = (part_t){&libraries[i], comms[r], r, 1000 * i};
    }
    for (int i = 0; i < 2 * count; i++) CHECK_EQ(pthread_create(&threads[i], NULL, take_part, &parts[i]), 0);
    for (int i = 0; i < 2 * count; i++) CHECK_EQ(pthread_join(threads[i], NULL), 0);
    for (const part_t *part = parts; part < parts + 2 * count; part++)
        CHECK_EQ(part->library->destroy(part->comm), TPCOMM_OK);
}

static void copy_file(const char *from, const char *to) {
    char buffer[65536];
    FILE *in = fopen(from, "rb"), *out = fopen(to, "wb");
    CHECK(in != NULL && out != NULL);
    for (size_t got; (got = fread(buffer, 1, sizeof buffer, in)) > 0;) CHECK_EQ(fwrite(buffer, 1, got, out), got);
    fclose(in);
    CHECK_EQ(fclose(out), 0);
}

int main(int argc, char **argv) {
    char folder[] = "/tmp/tpcomm-server-test-XXXXXX", second[64], tuning[64];
    CHECK(argc == 2 && mkdtemp(folder) != NULL);
    snprintf(second, sizeof second, "%s/second.so", folder);
    snprintf(tuning, sizeof tuning, "%s/tuning.json", folder);
    copy_file(argv[1], second);
    FILE *file = fopen(tuning, "w");
    CHECK(file != NULL);
    fputs("{\"schema\": \"tpcomm-tuning/1\", \"device\": \"cpu\", \"library_version\": \"0.1\", \"rows\": []}", file);
    CHECK_EQ(fclose(file), 0);
    CHECK_EQ(setenv("TPCOMM_STATUS_SOCKET", "@tpcomm-server-test-%p-%r", 1), 0); /* so that there is a thread */
    CHECK_EQ(setenv("TPCOMM_LOG", "error", 1), 0); /* the second copy finds the address taken, and says so */

    library_t libraries[2] = {load(argv[1], RTLD_GLOBAL), load(second, RTLD_LOCAL)};
    CHECK(libraries[0].init_local != libraries[1].init_local);
    for (int turn = 0; turn < 5; turn++) work(libraries, 2, tuning);
    for (int i = 0; i < 2; i++) CHECK_EQ(dlclose(libraries[i].handle), 0);
    usleep(20000); /* a thread that was still on its way out is out */
    library_t again = load(argv[1], RTLD_LOCAL);
    work(&again, 1, tuning);
    CHECK_EQ(dlclose(again.handle), 0);
    CHECK_EQ(unlink(second), 0);
    CHECK_EQ(unlink(tuning), 0);
    CHECK_EQ(rmdir(folder), 0);
    return 0;
}
