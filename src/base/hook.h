/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Test hooks: named points where a test makes a rank fail or wait. Compiled in only where TPC_HOOKS is defined (the
 * library that tests link); otherwise every call is a constant. RANK may be *.
 * TPCOMM_TEST_HOOKS="fail@POINT:RANK;delay@POINT:RANK:MS;set@NAME:VALUE"
 * A point fires every time it is passed; "fail@POINT:RANK:N" from each rank's N-th passing on (1 = first). While the
 * variable cannot be understood, every point fails with INVALID_ARG.
 */
#ifndef TPC_BASE_HOOK_H
#define TPC_BASE_HOOK_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

#ifdef TPC_HOOKS
/** Wait or fail if a hook names this point and rank. Fails: NO_MEMORY "hook: ...". */
tpcomm_status_t tpc_hook(const char *point, int32_t rank);
/** Value set by a hook, else otherwise. */
uint64_t tpc_hook_value(const char *name, uint64_t otherwise);
/** Read TPCOMM_TEST_HOOKS again (after a test's setenv). */
void tpc_hook_reload(void);
/**
 * Told of every point that is passed, before it delays or fails, so that a test can wait until a rank is there. NULL:
 * nobody. Set before there are other threads; forked children keep it.
 */
extern void (*tpc_hook_observer)(const char *point, int32_t rank);
#else
static inline tpcomm_status_t tpc_hook(const char *point, int32_t rank) {
    (void)point, (void)rank;
    return TPCOMM_OK;
}
static inline uint64_t tpc_hook_value(const char *name, uint64_t otherwise) {
    (void)name;
    return otherwise;
}
#endif

#endif
