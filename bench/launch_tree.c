/* SPDX-License-Identifier: Apache-2.0 */
#include "launch_tree.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/** State, parent and group of a process. false: it is gone. */
static bool read_stat(const char *pid, char *state_p, long *parent_p, long *group_p) {
    char path[64], text[1024];
    int length = snprintf(path, sizeof path, "/proc/%s/stat", pid);
    if (length < 0 || (size_t)length >= sizeof path) return false;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return false;
    ssize_t got = read(fd, text, sizeof text - 1);
    close(fd);
    if (got <= 0) return false;
    text[got] = '\0';
    /* "pid (name) state ppid pgrp ...": the name may hold anything, so its end is the last parenthesis. */
    const char *rest = strrchr(text, ')');
    return rest && sscanf(rest + 1, " %c %ld %ld", state_p, parent_p, group_p) == 3;
}

static bool is_ours(long parent, long group, const pid_t *groups, int32_t count) {
    if (parent == (long)getpid()) return true;
    for (int32_t i = 0; i < count; i++)
        if (groups[i] > 0 && group == (long)groups[i]) return true;
    return false;
}

static int signal_groups(const pid_t *groups, int32_t count, int signal) {
    for (int32_t i = 0; i < count; i++)
        if (groups[i] > 0 && signal) kill(-groups[i], signal);
    return 0;
}

int bench_tree_signal(const pid_t *groups, int32_t count, int signal) {
    DIR *proc = opendir("/proc");
    if (!proc) return signal_groups(groups, count, signal);
    int living = 0;
    for (const struct dirent *entry; (entry = readdir(proc));) {
        char state;
        long parent, group;
        if (!isdigit((unsigned char)entry->d_name[0]) || !read_stat(entry->d_name, &state, &parent, &group)) continue;
        if (state == 'Z' || state == 'X' || !is_ours(parent, group, groups, count)) continue;
        living++;
        if (signal) kill((pid_t)strtol(entry->d_name, NULL, 10), signal);
    }
    closedir(proc);
    return living;
}
