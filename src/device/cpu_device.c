/* SPDX-License-Identifier: Apache-2.0 */
/* The cpu device: memory shared through memfds, which have no name and vanish with the last process that holds them. */
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "device/device.h"

static tpcomm_status_t share_create(size_t bytes, int *fd_p) {
    /* A memfd is a file, and growing one past ulimit -f kills the process by SIGXFSZ. */
    struct rlimit limit;
    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY && bytes > limit.rlim_cur)
        return tpc_error(TPCOMM_ERR_NO_MEMORY,
                         "%zu bytes of shared memory are needed, but the file size limit (ulimit -f) is %llu", bytes,
                         (unsigned long long)limit.rlim_cur);
    int fd = memfd_create("tpcomm", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0) {
        tpcomm_status_t status = errno == ENOSYS || errno == EPERM ? TPCOMM_ERR_NO_TRANSPORT : TPCOMM_ERR_NO_MEMORY;
        return tpc_error_errno(status, errno, "cannot make shared memory (memfd_create)");
    }
    /* fallocate, so that memory which cannot be had is an error here and not a SIGBUS at the first touch. Sealed, so
     * that no peer can shrink it under us. */
    int err = posix_fallocate(fd, 0, (off_t)bytes);
    if (err == 0 && fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) err = errno;
    if (err != 0) {
        close(fd);
        return tpc_error_errno(TPCOMM_ERR_NO_MEMORY, err, "cannot reserve %zu bytes of shared memory", bytes);
    }
    *fd_p = fd;
    return TPCOMM_OK;
}

static tpcomm_status_t share_map(int fd, size_t bytes, void **base_p) {
    struct stat info;
    if (fstat(fd, &info) != 0) return tpc_error_errno(TPCOMM_ERR_IO, errno, "cannot look at the shared memory");
    if (info.st_size < 0 || (size_t)info.st_size != bytes)
        return tpc_error(TPCOMM_ERR_PEER_FAILED, "shared memory has %lld bytes, expected %zu", (long long)info.st_size,
                         bytes);
    void *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
    if (base == MAP_FAILED)
        return tpc_error_errno(TPCOMM_ERR_NO_MEMORY, errno, "cannot map %zu bytes of shared memory", bytes);
    *base_p = base;
    return TPCOMM_OK;
}

static void share_unmap(void *base, size_t bytes) {
    munmap(base, bytes);
}

const tpc_device_t tpc_cpu_device = {
    .name = "cpu",
    .kind = TPCOMM_DEVICE_CPU,
    .share_create = share_create,
    .share_map = share_map,
    .share_unmap = share_unmap,
};
