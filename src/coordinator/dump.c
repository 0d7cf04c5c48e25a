/* SPDX-License-Identifier: Apache-2.0 */
/* Flight dumps as files: on request, and where a group has failed. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/log.h"
#include "coordinator/comm.h"
#include "coordinator/report.h"

#define DUMP_MAX_BYTES ((size_t)1 << 30)

static bool write_all(int fd, const char *text, size_t bytes) {
    while (bytes > 0) {
        ssize_t wrote = write(fd, text, bytes);
        if (wrote < 0 && errno == EINTR) continue;
        if (wrote <= 0) return false;
        text += wrote;
        bytes -= (size_t)wrote;
    }
    return true;
}

tpcomm_status_t tpc_report_write(tpc_world_t *world, const char *cause, const char *path) {
    static _Atomic uint32_t number; /* two threads may dump to one path */
    char beside[4096];
    int length = snprintf(beside, sizeof beside, "%s.%d.%u", path, (int)getpid(), atomic_fetch_add(&number, 1));
    if (length < 0 || (size_t)length >= sizeof beside)
        return tpc_error(TPCOMM_ERR_IO, "cannot write the flight dump: its path has more than %zu bytes",
                         sizeof beside);
    tpc_emit_t emit = {.limit = DUMP_MAX_BYTES};
    tpc_report_flight(world, cause, &emit);
    if (emit.failed) {
        tpc_emit_free(&emit);
        return tpc_error(TPCOMM_ERR_NO_MEMORY, "out of memory for a flight dump");
    }
    int fd = open(beside, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOCTTY, 0666);
    bool done = fd >= 0 && write_all(fd, emit.text, emit.used);
    int err = errno;
    if (fd >= 0 && close(fd) != 0 && done) {
        err = errno;
        done = false;
    }
    if (done && rename(beside, path) != 0) {
        err = errno;
        done = false;
    }
    if (!done && fd >= 0) unlink(beside);
    tpc_emit_free(&emit);
    return done ? TPCOMM_OK : tpc_error_errno(TPCOMM_ERR_IO, err, "cannot write the flight dump '%s'", path);
}

void tpc_report_failure(tpc_world_t *world, const char *cause) {
    const char *folder = world->settings->env.value[TPC_ENV_FLIGHT_DIR].text;
    if (folder[0] == '\0') return;
    char path[1024], kept[TPC_ERROR_BYTES];
    snprintf(path, sizeof path, "%s/tpcomm-flight-%016llx-%d.json", folder,
             (unsigned long long)tpc_bootstrap_nonce(world->bootstrap), tpc_bootstrap_rank(world->bootstrap));
    /* The failure itself is what this thread's text should tell. */
    snprintf(kept, sizeof kept, "%s", tpcomm_last_error());
    tpcomm_status_t status = tpc_report_write(world, cause, path);
    if (status == TPCOMM_OK)
        TPC_INFO("flight", "group '%s' failed; this rank's calls are in %s", cause, path);
    else
        TPC_WARN("flight", "%s", tpcomm_last_error());
    (void)tpc_error(status, "%s", kept);
}

tpcomm_status_t tpcomm_flight_dump(tpcomm_t *comm, const char *path) {
    if (comm == NULL) return tpc_error(TPCOMM_ERR_INVALID_ARG, "comm is NULL");
    if (path == NULL || path[0] == '\0') return tpc_error(TPCOMM_ERR_INVALID_ARG, "path is NULL or empty");
    if (comm->fork_generation != tpc_fork_generation())
        return tpc_error(TPCOMM_ERR_INVALID_STATE, "group '%s' belongs to the process this one was forked from",
                         comm->name);
    return tpc_report_write(comm->world, NULL, path);
}
