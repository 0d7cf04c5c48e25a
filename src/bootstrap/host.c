/* SPDX-License-Identifier: Apache-2.0 */
#include "bootstrap/host.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/text.h"
#include "base/hook.h"
#include "bootstrap/bootstrap.h"

#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif

tpcomm_status_t tpc_random(void *bytes, size_t count) {
    unsigned char *next = bytes;
    while (count > 0) {
        ssize_t got = getrandom(next, count, 0);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return tpc_error_errno(TPCOMM_ERR_IO, errno, "getrandom");
        next += got;
        count -= (size_t)got;
    }
    return TPCOMM_OK;
}

tpcomm_status_t tpc_process_token(uint64_t *token_p) {
    /* Two words that belong together: a reader that sees its own pid sees the token stored before it. */
    static _Atomic uint64_t token;
    static _Atomic int32_t token_pid;
    static _Atomic int32_t making_pid;
    int32_t pid = (int32_t)getpid();
    while (atomic_load(&token_pid) != pid) {
        int32_t other = atomic_load(&making_pid);
        if (other == pid || !atomic_compare_exchange_strong(&making_pid, &other, pid)) {
            (void)poll(NULL, 0, 1); /* another thread is drawing it: a system call's time */
            continue;
        }
        uint64_t drawn;
        tpcomm_status_t status = tpc_random(&drawn, sizeof drawn);
        if (status != TPCOMM_OK) {
            atomic_store(&making_pid, 0);
            return status;
        }
        atomic_store(&token, drawn);
        atomic_store(&token_pid, pid);
    }
    *token_p = atomic_load(&token);
    return TPCOMM_OK;
}

int tpc_pidfd_open(int32_t pid) {
    if (tpc_hook_value("no_pidfd", 0) != 0) return -1; /* as a kernel before 5.3 */
    return pid > 0 ? (int)syscall(SYS_pidfd_open, pid, 0) : -1;
}

bool tpc_pidfd_ended(int pidfd, int ms) {
    struct pollfd waited = {.fd = pidfd, .events = POLLIN};
    return pidfd >= 0 && poll(&waited, 1, ms) == 1 && (waited.revents & POLLIN) != 0;
}

/** The kernel's random id of this boot, without the newline; false where /proc does not say. */
static bool read_boot_id(char *text, size_t bytes) {
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    if (fd < 0) return false;
    ssize_t got = read(fd, text, bytes - 1);
    close(fd);
    if (got <= 0) return false;
    text[got] = '\0';
    text[strcspn(text, "\n")] = '\0';
    return text[0] != '\0';
}

void tpc_host_identity(const tpc_env_t *env, char host_id_p[64]) {
    const tpc_env_value_t *given = &env->value[TPC_ENV_HOST_ID];
    if (given->set) {
        snprintf(host_id_p, 64, "%.63s", given->text);
        tpc_text_clean(host_id_p); /* it stands in texts */
        if (strcmp(host_id_p, given->text) == 0) return;
        /* Two long names that begin alike stay two, and so do two that read alike. */
        size_t length = strlen(host_id_p) < 46 ? strlen(host_id_p) : 46;
        snprintf(host_id_p + length, 64 - length, "~%016llx",
                 (unsigned long long)tpc_hash(TPC_HASH_START, given->text, strlen(given->text)));
        tpc_text_clean(host_id_p); /* where a character was cut */
        return;
    }
    /* Two containers of one machine share its boot but, with network namespaces of their own, no abstract socket. */
    char boot_id[40];
    struct stat net;
    if (read_boot_id(boot_id, sizeof boot_id) && stat("/proc/self/ns/net", &net) == 0) {
        snprintf(host_id_p, 64, "%.39s:%llu", boot_id, (unsigned long long)net.st_ino);
        return;
    }
    struct utsname name;
    snprintf(host_id_p, 64, "name:%.58s", uname(&name) == 0 ? name.nodename : "unknown");
}
