/* SPDX-License-Identifier: Apache-2.0 */
/** What a kind of device gives the layers above: memory that the ranks of one host can share. One table of functions a
 * kind. */
#ifndef TPC_DEVICE_H
#define TPC_DEVICE_H

#include <stddef.h>

#include "tpcomm.h"

typedef struct {
    const char *name; /**< "cpu" */
    tpcomm_device_kind_t kind;
    /**
     * Make zero-filled memory that other processes can map by its descriptor (CLOEXEC, of fixed size). It has no name
     * anywhere. Fails: NO_MEMORY; NO_TRANSPORT where the system has no such memory.
     */
    tpcomm_status_t (*share_create)(size_t bytes, int *fd_p);
    /** Map it. Fails: NO_MEMORY; PEER_FAILED if the descriptor is not of that size. */
    tpcomm_status_t (*share_map)(int fd, size_t bytes, void **base_p);
    void (*share_unmap)(void *base, size_t bytes);
} tpc_device_t;

extern const tpc_device_t tpc_cpu_device;

#endif
