/* SPDX-License-Identifier: Apache-2.0 */
#include "nccl_backend/library.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/shlib.h"
#include "base/text.h"

/* Communicators that do not block came with it: without them a rank whose peers never come cannot be taken back out of
 * NCCL's init. (AVG and bf16 are older, 2.10.) */
#define OLDEST      21400
#define OLDEST_TEXT "2.14"

#define SONAME "libnccl.so.2"

const char *tpc_nccl_version_text(int version, char text_p[32]) {
    int unit = version >= 10000 ? 10000 : 1000; /* 2.8.4 is 2804, 2.10.3 is 21003 */
    snprintf(text_p, 32, "%d.%d.%d", version / unit, version % unit / 100, version % 100);
    return text_p;
}

/* pip puts libtpcomm into site-packages/tpcomm and NCCL into site-packages/nvidia/nccl/lib. "" if it is not there. */
static void pip_path(char *path, size_t bytes) {
    static const char anchor;
    Dl_info info;
    path[0] = '\0';
    if (dladdr(&anchor, &info) == 0 || info.dli_fname == NULL) return;
    const char *slash = strrchr(info.dli_fname, '/');
    int folder = slash != NULL ? (int)(slash - info.dli_fname) : 0;
    if (folder == 0) return;
    int length = snprintf(path, bytes, "%.*s/../nvidia/nccl/lib/" SONAME, folder, info.dli_fname);
    if (length < 0 || (size_t)length >= bytes || access(path, R_OK) != 0) path[0] = '\0';
}

/* The first symbol that is needed and not there; NULL: all are. */
static const char *missing(const tpc_nccl_api_t *api) {
#define CHECK_SYMBOL(name, symbol, needed, result, arguments)                                                          \
    if (needed && api->name == NULL) return #symbol;
    TPC_NCCL_LIST(CHECK_SYMBOL)
#undef CHECK_SYMBOL
    return NULL;
}

static void describe(tpc_nccl_library_t *library) {
    char version[32];
    size_t used = tpc_text_append(library->text, sizeof library->text, 0, "NCCL %s (%s)",
                                  tpc_nccl_version_text(library->version, version), library->path);
#define ADD_MISSING(name, symbol, needed, result, arguments)                                                           \
    if (!needed && library->api.name == NULL)                                                                          \
        used = tpc_text_append(library->text, sizeof library->text, used, ", without %s", #symbol);
    TPC_NCCL_LIST(ADD_MISSING)
#undef ADD_MISSING
    tpc_text_cut(library->text, sizeof library->text, used);
}

tpcomm_status_t tpc_nccl_load(const char *explicit_path, tpc_nccl_library_t *library_p) {
    /* Only the version is asked of any file: a file that lacks more is first of all an old one. */
    static const tpc_shlib_symbol_t symbols[] = {
#define SYMBOL(name, symbol, needed, result, arguments) {#symbol, offsetof(tpc_nccl_api_t, name), false},
        TPC_NCCL_LIST(SYMBOL)
#undef SYMBOL
    };
    char pip[512];
    pip_path(pip, sizeof pip);
    const char *names[3] = {pip[0] != '\0' ? pip : SONAME, pip[0] != '\0' ? SONAME : NULL, NULL};
    const tpc_shlib_desc_t desc = {.what = "NCCL",
                                   .names = names,
                                   .loaded_first = true,
                                   .symbols = symbols,
                                   .symbol_count = sizeof symbols / sizeof *symbols};
    tpc_nccl_library_t library;
    memset(&library, 0, sizeof library);
    tpc_shlib_t lib;
    tpcomm_status_t status = tpc_shlib_open(&desc, explicit_path, &library.api, &lib);
    if (status != TPCOMM_OK) return status;
    snprintf(library.path, sizeof library.path, "%s", lib.path);
    char version[32];
    const char *lacks = library.api.get_version == NULL ? "ncclGetVersion" : NULL;
    if (lacks == NULL && library.api.get_version(&library.version) != TPC_NCCL_SUCCESS) library.version = 0;
    tpc_nccl_version_text(library.version, version);
    if (lacks != NULL)
        status = tpc_error(TPCOMM_ERR_UNSUPPORTED, "NCCL cannot be used: %s has no %s", library.path, lacks);
    else if (library.version < OLDEST)
        status = tpc_error(TPCOMM_ERR_UNSUPPORTED,
                           "NCCL cannot be used: %s is version %s, and " OLDEST_TEXT
                           " or newer is needed (communicators that do not block)",
                           library.path, version);
    else if ((lacks = missing(&library.api)) != NULL)
        status = tpc_error(TPCOMM_ERR_UNSUPPORTED, "NCCL cannot be used: %s, version %s, has no %s", library.path,
                           version, lacks);
    if (status != TPCOMM_OK) {
        tpc_shlib_close(&lib);
        return status;
    }
    describe(&library);
    *library_p = library;
    return TPCOMM_OK;
}
