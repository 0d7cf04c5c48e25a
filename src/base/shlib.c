/* SPDX-License-Identifier: Apache-2.0 */
#include "base/shlib.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/text.h"

/** Append "; piece" to a list of reasons, cutting what does not fit. */
static void add_reason(char *reasons, size_t bytes, const char *name, const char *reason) {
    size_t used = strlen(reasons);
    /* dlerror mostly begins with the name; say it once. */
    bool named = reason && strncmp(reason, name, strlen(name)) == 0;
    int length = snprintf(reasons + used, bytes - used, "%s%s%s%s", used ? "; " : "", named ? "" : name,
                          named ? "" : ": ", reason ? reason : "unknown reason");
    if (length > 0) tpc_text_cut(reasons + used, bytes - used, (size_t)length);
}

/**
 * Sanitizer runtimes end the process on a dlopen with RTLD_DEEPBIND, so it is left out wherever one is loaded: also
 * where only the program was built with it.
 */
static bool has_sanitizer(void) {
    static const char *const runtimes[] = {"__asan_init", "__tsan_init", "__msan_init", "__lsan_init"};
    for (size_t i = 0; i < sizeof runtimes / sizeof runtimes[0]; i++)
        if (dlsym(RTLD_DEFAULT, runtimes[i])) return true;
    return false;
}

/**
 * What the loader must not be asked: it would wait for ever for the writer of a pipe, and end this process with SIGBUS
 * where the file has been cut short, since it maps what the headers promise. NULL: nothing of the kind; everything else
 * it tells itself.
 */
static const char *not_loadable(const char *path, char text[96]) {
    ElfW(Ehdr) head;
    ElfW(Phdr) segment;
    struct stat stat;
    const char *why = NULL;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return NULL;
    bool known = fstat(fd, &stat) == 0;
    if (known && !S_ISREG(stat.st_mode)) why = "it is no regular file";
    bool readable = known && pread(fd, &head, sizeof head, 0) == (ssize_t)sizeof head &&
                    memcmp(head.e_ident, ELFMAG, SELFMAG) == 0 && head.e_phentsize == sizeof segment;
    for (unsigned i = 0; readable && why == NULL && i < head.e_phnum; i++) {
        uint64_t at = (uint64_t)head.e_phoff + i * sizeof segment, size = (uint64_t)stat.st_size;
        bool whole = at <= INT64_MAX - sizeof segment &&
                     pread(fd, &segment, sizeof segment, (off_t)at) == (ssize_t)sizeof segment;
        if (whole && (segment.p_filesz <= size && segment.p_offset <= size - segment.p_filesz)) continue;
        snprintf(text, 96, "file too short: it has %llu bytes and lacks part of segment %u", (unsigned long long)size,
                 i);
        why = text;
    }
    close(fd);
    return why;
}

static void *open_file(const char *path, int flags, char *reasons, size_t bytes) {
    char text[96];
    const char *why = strchr(path, '/') != NULL ? not_loadable(path, text) : NULL;
    void *handle = why == NULL ? dlopen(path, flags) : NULL;
    if (handle == NULL) add_reason(reasons, bytes, path, why != NULL ? why : dlerror());
    return handle;
}

static void *open_any(const tpc_shlib_desc_t *desc, const char *explicit_path, char *reasons, size_t bytes) {
    int flags = RTLD_NOW | RTLD_LOCAL;
    if (desc->deepbind && !has_sanitizer()) flags |= RTLD_DEEPBIND;
    if (desc->stays) flags |= RTLD_NODELETE;
    if (explicit_path && *explicit_path) return open_file(explicit_path, flags, reasons, bytes);
    for (const char *const *name = desc->names; desc->loaded_first && *name; name++) {
        void *handle = dlopen(*name, flags | RTLD_NOLOAD);
        if (handle) return handle;
    }
    for (const char *const *name = desc->names; *name; name++) {
        void *handle = open_file(*name, flags, reasons, bytes);
        if (handle) return handle;
    }
    return NULL;
}

/** The file that holds address; the name that was asked for where the loader does not know. */
static void find_file(const void *address, const char *asked, char *path, size_t bytes) {
    Dl_info info;
    if (address && dladdr(address, &info) && info.dli_fname) asked = info.dli_fname;
    int length = snprintf(path, bytes, "%s", asked);
    if (length > 0) tpc_text_cut(path, bytes, (size_t)length);
}

tpcomm_status_t tpc_shlib_open(const tpc_shlib_desc_t *desc, const char *explicit_path, void *table,
                               tpc_shlib_t *lib_p) {
    char reasons[TPC_ERROR_BYTES] = "";
    tpc_shlib_t lib = {.handle = NULL};
    lib.handle = open_any(desc, explicit_path, reasons, sizeof reasons);
    if (!lib.handle) return tpc_error(TPCOMM_ERR_UNSUPPORTED, "%s cannot be loaded: %s", desc->what, reasons);

    const void *known = NULL;
    const char *missing = NULL;
    for (size_t i = 0; i < desc->symbol_count; i++) {
        const void *address = dlsym(lib.handle, desc->symbols[i].name);
        if (address && !known) known = address;
        if (!address && desc->symbols[i].required && !missing) missing = desc->symbols[i].name;
    }
    find_file(known, explicit_path && *explicit_path ? explicit_path : desc->names[0], lib.path, sizeof lib.path);
    if (missing) {
        dlclose(lib.handle);
        return tpc_error(TPCOMM_ERR_UNSUPPORTED, "%s cannot be used: %s has no %s", desc->what, lib.path, missing);
    }

    for (size_t i = 0; i < desc->symbol_count; i++) {
        void *address = dlsym(lib.handle, desc->symbols[i].name);
        memcpy((char *)table + desc->symbols[i].offset, &address, sizeof address);
    }
    *lib_p = lib;
    return TPCOMM_OK;
}

void tpc_shlib_close(tpc_shlib_t *lib) {
    if (lib->handle) dlclose(lib->handle);
    *lib = (tpc_shlib_t){.handle = NULL};
}
