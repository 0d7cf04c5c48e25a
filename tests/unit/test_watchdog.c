/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Check the watchdog: a watch fires once or every time, never after its removal, whoever else comes and goes; the
 * thread exists only while something is watched, has its name and no signals; a forked child starts from nothing and
 * disturbs nobody.
 */
#include <dirent.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/hook.h"
#include "check.h"
#include "health/watchdog.h"

static _Atomic int fired[4];

static void fire(void *arg) {
    atomic_fetch_add((_Atomic int *)arg, 1);
}
static void fire_and_read(void *arg) {
    char byte;
    int *fd = arg;
    if (read(*fd, &byte, 1) == 1) atomic_fetch_add(&fired[1], 1);
}

static void await_count(_Atomic int *count, int want) {
    for (int i = 0; i < 5000 && atomic_load(count) < want; i++) usleep(1000);
    CHECK_EQ(atomic_load(count), want);
}

/* Whether a thread of this name lives here; its blocked signals, if asked. */
static bool thread_there(const char *name, unsigned long long *blocked_p) {
    bool found = false;
    DIR *dir = opendir("/proc/self/task");
    CHECK(dir != NULL);
    for (struct dirent *entry; !found && (entry = readdir(dir)) != NULL;) {
        char path[300], line[256];
        snprintf(path, sizeof path, "/proc/self/task/%s/status", entry->d_name);
        FILE *file = fopen(path, "re");
        if (file == NULL) continue;
        while (fgets(line, sizeof line, file) != NULL) {
            if (strncmp(line, "Name:\t", 6) == 0) found = strncmp(line + 6, name, strlen(name)) == 0;
            if (found && blocked_p != NULL) sscanf(line, "SigBlk:\t%llx", blocked_p);
        }
        fclose(file);
    }
    closedir(dir);
    return found;
}

static void await_gone(void) {
    for (int i = 0; i < 5000 && thread_there("tpcomm-watch", NULL); i++) usleep(1000);
    CHECK(!thread_there("tpcomm-watch", NULL));
}

/* An event of a watch that is removed meanwhile is not that of another which the allocator puts in its place. */
static void another_at_its_place(int readable) {
    tpc_watch_t *stays = NULL, *goes = NULL, *comes = NULL;
    int quiet[2];
    CHECK_EQ(pipe(quiet), 0);
    CHECK_EQ(setenv("TPCOMM_TEST_HOOKS", "delay@watchdog:0:300", 1), 0);
    tpc_hook_reload();
    atomic_store(&fired[3], 0);
    CHECK_OK(tpc_watchdog_add(quiet[0], TPC_WATCH_LEVEL, fire, &fired[3], &stays)); /* so that the thread does */
    CHECK_OK(tpc_watchdog_add(readable, TPC_WATCH_ONCE, fire, &fired[2], &goes));
    usleep(100000); /* the thread has seen it, and is on its way */
    tpc_watchdog_remove(goes);
    CHECK_OK(tpc_watchdog_add(quiet[1], TPC_WATCH_ONCE, fire, &fired[3], &comes));
    usleep(400000);
    CHECK_EQ(atomic_load(&fired[3]), 0);
    tpc_watchdog_remove(comes);
    tpc_watchdog_remove(stays);
    CHECK_EQ(unsetenv("TPCOMM_TEST_HOOKS"), 0);
    tpc_hook_reload();
    await_gone();
    close(quiet[0]);
    close(quiet[1]);
}

int main(void) {
    int once[2], often[2];
    tpc_watch_t *first = NULL, *second = NULL;
    CHECK_EQ(pipe(once), 0);
    CHECK_EQ(pipe(often), 0);
    CHECK(!thread_there("tpcomm-watch", NULL));
    CHECK_OK(tpc_watchdog_add(once[0], true, fire, &fired[0], &first));
    unsigned long long blocked = 0;
    CHECK(thread_there("tpcomm-watch", &blocked));
    CHECK((blocked >> (SIGTERM - 1) & 1) && (blocked >> (SIGUSR1 - 1) & 1));
    CHECK_OK(tpc_watchdog_add(often[0], false, fire_and_read, &often[0], &second));
    CHECK_EQ(write(once[1], "x", 1), 1); /* stays readable: still only once */
    await_count(&fired[0], 1);
    for (int i = 1; i <= 3; i++) {
        CHECK_EQ(write(often[1], "x", 1), 1);
        await_count(&fired[1], i);
    }
    tpc_watchdog_remove(first);

    pid_t child = fork();
    if (child == 0) {
        tpc_watchdog_remove(second); /* the parent's: must not touch its epoll set */
        tpc_watch_t *own = NULL;
        CHECK_OK(tpc_watchdog_add(once[0], true, fire, &fired[2], &own));
        await_count(&fired[2], 1);
        tpc_watchdog_remove(own);
        _Exit(0);
    }
    int how = 0;
    CHECK_EQ(waitpid(child, &how, 0), child);
    CHECK(WIFEXITED(how) && WEXITSTATUS(how) == 0);
    CHECK_EQ(write(often[1], "x", 1), 1);
    await_count(&fired[1], 4);

    tpc_watchdog_remove(second);
    await_gone();
    CHECK_EQ(write(often[1], "x", 1), 1);
    usleep(20000);
    CHECK_EQ(atomic_load(&fired[1]), 4);
    CHECK_STATUS(tpc_watchdog_add(-1, true, fire, &fired[3], &first), TPCOMM_ERR_NO_MEMORY);
    await_gone();
    another_at_its_place(once[0]);
    for (int i = 0; i < 200; i++) { /* made and ended again and again */
        CHECK_OK(tpc_watchdog_add(often[0], true, fire, &fired[3], &first));
        tpc_watchdog_remove(first);
    }
    await_gone();
    return 0;
}
