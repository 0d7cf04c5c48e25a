/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the library has made and not given back when a process ends well: that process ends badly. What tests make
 * themselves is theirs to leave. (The driver's functions are the library's alone but for one test, which leaves
 * nothing either.)
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime.h"

/* The library's: what its graphs kept goes with the next communicator, or here. How many are kept still. */
extern "C" int32_t tpc_kept_sweep(void);

namespace host_cuda {

struct made_t {
    const char *kind, *file;
    int line;
    size_t bytes;
};
static std::map<const void *, made_t> &left = *new std::map<const void *, made_t>;
static thread_local const char *file;
static thread_local int line;

void made(const void *what, const char *kind, size_t bytes) {
    if (file == nullptr && strstr(kind, "cuMem") != nullptr) file = "src/peer_mem/share_cumem.c";
    if (file != nullptr) left[what] = {kind, file, line, bytes};
    file = nullptr;
    line = 0;
}

void unmade(const void *what) {
    left.erase(what);
}

void nothing_made() {
    file = nullptr;
}

static int look(int status) {
    const char *allowed = getenv("CUDA_ON_HOST_LEFTOVERS");
    if (status != 0 || forked() || allowed != nullptr) return status;
    for (int ms = 0; ms < 1000 && tpc_kept_sweep() > 0; ms++) usleep(1000);
    std::lock_guard<std::mutex> held(lock);
    for (const auto &[what, made] : left)
        fprintf(stderr, "cuda_on_host: left behind: %s of %zu bytes (%p), made in %s:%d\n", made.kind, made.bytes, what,
                made.file, made.line);
    return left.empty() ? status : 1;
}

static void at_exit(int status, void *) {
    if (look(status) == status) return;
    fflush(nullptr);
    _exit(1);
}

void watch_exit() {
    on_exit(at_exit, nullptr);
}

} // namespace host_cuda

extern "C" {

void host_cuda_called_from(const char *file, int line) {
    host_cuda::file = file;
    host_cuda::line = line;
}

/* Ranks that are processes end with it. */
[[noreturn]] void __real__Exit(int status);
[[noreturn]] void __wrap__Exit(int status) {
    __real__Exit(host_cuda::look(status));
}

} /* extern "C" */
