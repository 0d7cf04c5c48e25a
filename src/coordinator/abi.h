/* SPDX-License-Identifier: Apache-2.0 */
/** Structs that cross the API: taken from callers compiled against an older or newer tpcomm.h, and given back to them.
 */
#ifndef TPC_COORDINATOR_ABI_H
#define TPC_COORDINATOR_ABI_H

#include <stddef.h>

#include "tpcomm.h"

/**
 * Copy a caller's struct (its first word is struct_size) over the defaults in known. A shorter one leaves the rest; a
 * longer one is taken if what this library does not know is zero. Fails: INVALID_ARG (NULL, or a struct_size that
 * cannot be); VERSION.
 */
tpcomm_status_t tpc_struct_in(const char *name, const void *theirs, void *known, size_t known_bytes);

/** Give a struct to the caller: as much as both know; its struct_size stays. Fails: INVALID_ARG. */
tpcomm_status_t tpc_struct_out(const char *name, const void *known, size_t known_bytes, void *theirs);

#endif
