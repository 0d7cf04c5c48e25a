/* SPDX-License-Identifier: Apache-2.0 */
#include "base/shlib.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

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

static void *open_any(const tpc_shlib_desc_t *desc, const char *explicit_path, char *reasons, size_t bytes) {
    int flags = RTLD_NOW | RTLD_LOCAL;
    if (desc->deepbind && !has_sanitizer()) flags |= RTLD_DEEPBIND;
    if (explicit_path && *explicit_path) {
        void *handle = dlopen(explicit_path, flags);
        if (!handle) add_reason(reasons, bytes, explicit_path, dlerror());
        return handle;
    }
    for (const char *const *name = desc->names; *name; name++) {
        void *handle = dlopen(*name, flags);
        if (handle) return handle;
        add_reason(reasons, bytes, *name, dlerror());
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
