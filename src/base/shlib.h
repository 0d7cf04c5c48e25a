/* SPDX-License-Identifier: Apache-2.0 */
/** Libraries loaded at run time into a table of function pointers: explicit path, or names; the error has all tried. */
#ifndef TPC_BASE_SHLIB_H
#define TPC_BASE_SHLIB_H

#include <stdbool.h>
#include <stddef.h>

#include "tpcomm.h"

/** One symbol: where its address goes, and whether the library is useless without it. */
typedef struct {
    const char *name;
    size_t offset; /**< of the pointer in the table */
    bool required;
} tpc_shlib_symbol_t;

typedef struct {
    const char *what;         /**< for messages: "cJSON" */
    const char *const *names; /**< sonames to try in order, NULL at the end */
    bool loaded_first;        /**< a copy that the process has loaded already wins over the order of names */
    bool deepbind;            /**< the library must use its own symbols, not the server's (not under sanitizers) */
    bool stays;               /**< it has threads or thread-local memory of its own, whose end it must not miss */
    const tpc_shlib_symbol_t *symbols;
    size_t symbol_count;
} tpc_shlib_desc_t;

typedef struct {
    void *handle;
    char path[512]; /**< the file really loaded, by dladdr */
} tpc_shlib_t;

/**
 * Open a library and fill table.
 * @param explicit_path  "" or NULL: search by desc->names; else only this file.
 * Fails: UNSUPPORTED, with dlerror of every path tried, or the first missing required symbol and the file. Missing
 * optional symbols stay NULL.
 */
tpcomm_status_t tpc_shlib_open(const tpc_shlib_desc_t *desc, const char *explicit_path, void *table,
                               tpc_shlib_t *lib_p);

void tpc_shlib_close(tpc_shlib_t *lib);

#endif
