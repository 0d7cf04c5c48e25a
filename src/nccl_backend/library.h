/* SPDX-License-Identifier: Apache-2.0 */
/** NCCL as found on this machine. */
#ifndef TPC_NCCL_LIBRARY_H
#define TPC_NCCL_LIBRARY_H

#include "nccl_backend/api.h"

typedef struct {
    tpc_nccl_api_t api;
    int version; /**< as NCCL counts: 22809 */
    char path[512];
    char text[256]; /**< "NCCL 2.28.9 (/path/libnccl.so.2)" and what it lacks */
} tpc_nccl_library_t;

/**
 * Load it: the given file; else the copy that is loaded already; else the one of pip's nvidia-nccl beside this library;
 * else the system's. Never unloaded again: its threads may outlive a communicator.
 * Fails: UNSUPPORTED, with what was tried, or with version, minimum and file of what cannot be used.
 */
tpcomm_status_t tpc_nccl_load(const char *explicit_path, tpc_nccl_library_t *library_p);

/** "2.28.9" from NCCL's number, in either of the two ways it has counted. */
const char *tpc_nccl_version_text(int version, char text_p[32]);

#endif
