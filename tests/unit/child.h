/* SPDX-License-Identifier: Apache-2.0 */
/** For tests of what happens once per process: run a function in a child of its own and look at what it wrote to
 * stderr. */
#ifndef TPC_TESTS_UNIT_CHILD_H
#define TPC_TESTS_UNIT_CHILD_H

#include <errno.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

#define CHILD_OUTPUT_BYTES 65536

/** Run body in a child, which must exit with 0; output gets its stderr. */
static inline void child_run(void (*body)(void), char output[CHILD_OUTPUT_BYTES]) {
    int ends[2];
    if (pipe(ends) != 0) FAIL("pipe: %s", strerror(errno));
    pid_t pid = fork();
    if (pid < 0) FAIL("fork: %s", strerror(errno));
    if (pid == 0) {
        dup2(ends[1], STDERR_FILENO);
        close(ends[0]);
        close(ends[1]);
        body();
        exit(0);
    }
    close(ends[1]);
    size_t used = 0;
    for (;;) {
        ssize_t got = read(ends[0], output + used, CHILD_OUTPUT_BYTES - 1 - used);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) break;
        used += (size_t)got;
    }
    output[used] = '\0';
    close(ends[0]);
    int status;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) continue;
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        FAIL("child ended with status 0x%x: %s", (unsigned)status, output);
}

#endif
