/* SPDX-License-Identifier: Apache-2.0 */
/**
 * What a library that works on the caller's streams needs beside them: a small buffer on the device, a stream of its
 * own, and two words that a stream writes and the host reads without asking CUDA. The rank's context is entered by the
 * caller.
 */
#ifndef TPC_DEVICE_CUDA_SIDE_H
#define TPC_DEVICE_CUDA_SIDE_H

#include "base/clock.h"
#include "device/cuda.h"

typedef struct tpc_cuda_side tpc_cuda_side_t;

/** Fails: DEVICE, NO_MEMORY, UNSUPPORTED. */
tpcomm_status_t tpc_cuda_side_new(size_t bytes, tpc_cuda_side_t **side_p);
/** NULL is allowed. Nothing may use it any more. */
void tpc_cuda_side_free(tpc_cuda_side_t *side);

/** The buffer and the stream. */
void *tpc_cuda_side_buffer(const tpc_cuda_side_t *side);
tpcomm_stream_t tpc_cuda_side_stream(const tpc_cuda_side_t *side);

/** Bytes into the buffer and out of it, in the stream's order; done when they return. Fails: DEVICE, TIMEOUT,
 * INTERRUPTED. */
tpcomm_status_t tpc_cuda_side_put(tpc_cuda_side_t *side, const void *from, size_t bytes,
                                  const tpc_deadline_t *deadline);
tpcomm_status_t tpc_cuda_side_get(tpc_cuda_side_t *side, void *to, size_t bytes, const tpc_deadline_t *deadline);

/** Write word 0 or 1 when the stream gets there. Asynchronous. Fails: DEVICE, UNSUPPORTED. */
tpcomm_status_t tpc_cuda_side_mark(tpc_cuda_side_t *side, tpcomm_stream_t stream, int word, uint32_t value);
/** What a word holds. Any thread; no call of CUDA. */
uint32_t tpc_cuda_side_word(const tpc_cuda_side_t *side, int word);

/** For a thread of ours: whatever it does in CUDA disturbs no capture of the caller's. */
void tpc_cuda_relax_thread(void);

#endif
