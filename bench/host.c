/* SPDX-License-Identifier: Apache-2.0 */
/** Facts about the machine, for header and manifest. */
#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "manifest.h"

/** First "key : value" line of a /proc file. */
static void read_key(const char *path, const char *key, char *value_p, size_t bytes) {
    char line[512];
    size_t key_bytes = strlen(key);
    FILE *file = fopen(path, "re");
    if (!file) return;
    while (fgets(line, sizeof line, file)) {
        const char *colon = strchr(line, ':');
        if (strncmp(line, key, key_bytes) != 0 || !colon || !strchr(" \t:", line[key_bytes])) continue;
        colon += 1 + strspn(colon + 1, " \t");
        snprintf(value_p, bytes, "%.*s", (int)strcspn(colon, "\n"), colon);
        break;
    }
    fclose(file);
}

void bench_host_read(bench_host_t *host_p) {
    struct utsname names;
    memset(host_p, 0, sizeof *host_p);
    if (uname(&names) == 0) {
        snprintf(host_p->host, sizeof host_p->host, "%.64s", names.nodename);
        snprintf(host_p->kernel, sizeof host_p->kernel, "%.64s", names.release);
        snprintf(host_p->machine, sizeof host_p->machine, "%.64s", names.machine);
    }
    read_key("/proc/cpuinfo", "model name", host_p->cpu, sizeof host_p->cpu);
    long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    if (page > 0) host_p->page_bytes = (uint64_t)page;
    if (pages > 0 && page > 0) host_p->memory_bytes = (uint64_t)pages * (uint64_t)page;
}

const char *bench_variable(size_t i) {
    static const char *const prefixes[] = {"TPCOMM_", "CUDA_", "NCCL_"};
    for (char **entry = environ; *entry; entry++) {
        const char *secret = strstr(*entry, "SECRET"), *equals = strchr(*entry, '=');
        if (!equals || (secret && secret < equals)) continue;
        for (size_t k = 0; k < sizeof prefixes / sizeof prefixes[0]; k++)
            if (strncmp(*entry, prefixes[k], strlen(prefixes[k])) == 0 && i-- == 0) return *entry;
    }
    return NULL;
}
