/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Small copies between host and device with a deadline, on a stream of their own and through pinned memory: they wait
 * for nobody's kernels, and nobody waits for them. Compiled only with CUDA; the context is entered by the caller.
 */
#ifndef TPC_DEVICE_CUDA_COPY_H
#define TPC_DEVICE_CUDA_COPY_H

#include <stdbool.h>
#include <stddef.h>

#include "base/clock.h"

typedef struct {
    void *stream;           /**< NULL: not open */
    unsigned char *staging; /**< pinned */
    size_t bytes;           /**< of it: the most that one copy moves */
    bool stuck;             /**< a copy did not end in time: it may still use stream and staging, which stay */
} tpc_cuda_copier_t;

tpcomm_status_t tpc_cuda_copier_open(size_t bytes, tpc_cuda_copier_t *copier_p);
void tpc_cuda_copier_close(tpc_cuda_copier_t *copier);

/** Done when they return. Fails: DEVICE; TIMEOUT, with a text that begins with what; INTERRUPTED. */
tpcomm_status_t tpc_cuda_copy_in(tpc_cuda_copier_t *copier, void *device, const void *host, size_t bytes,
                                 const char *what, const tpc_deadline_t *deadline);
tpcomm_status_t tpc_cuda_copy_out(tpc_cuda_copier_t *copier, void *host, const void *device, size_t bytes,
                                  const char *what, const tpc_deadline_t *deadline);
tpcomm_status_t tpc_cuda_fill(tpc_cuda_copier_t *copier, void *device, unsigned char byte, size_t bytes,
                              const char *what, const tpc_deadline_t *deadline);

#endif
