/* SPDX-License-Identifier: Apache-2.0 */
/**
 * NCCL as a peer: called directly, by a communicator of the bench's own, as a program without tpcomm would. Found at
 * run time: TPCOMM_NCCL_PATH, else the one that is loaded already, else the system's. Its communicator is a blocking
 * one: what does not block costs a thread a call.
 */
#ifndef BENCH_PEER_NCCL_H
#define BENCH_PEER_NCCL_H

#include "device.h"

typedef struct bench_nccl bench_nccl_t;

/**
 * A communicator of all ranks of comm. Where there can be none: OK, *nccl_p NULL on all ranks, and missing has why.
 * Collective. Fails: as host messages.
 */
tpcomm_status_t bench_nccl_open(tpcomm_t *comm, const bench_device_t *device, char *missing, size_t bytes,
                                bench_nccl_t **nccl_p);
/** One of this rank alone; NULL with missing likewise. */
void bench_nccl_open_alone(const bench_device_t *device, char *missing, size_t bytes, bench_nccl_t **nccl_p);
/** NULL is allowed. Nothing of it may be running. */
void bench_nccl_close(bench_nccl_t *nccl);
/** "NCCL 2.28.9 (/path)" */
const char *bench_nccl_text(const bench_nccl_t *nccl);

/**
 * Memory of NCCL's, registered with the communicator as a symmetric window; freed with it. As bench_nccl_open where
 * there can be none. Collective.
 */
tpcomm_status_t bench_nccl_window(bench_nccl_t *nccl, uint64_t bytes, char *missing, size_t missing_bytes,
                                  void **memory_p);

/** Why NCCL has no such call; NULL: it has. Static text. */
const char *bench_nccl_why_not(tpcomm_coll_t coll, tpcomm_dtype_t dtype);
/** Enqueue it. Fails: BACKEND. */
tpcomm_status_t bench_nccl_call(bench_nccl_t *nccl, const tpcomm_call_t *call, tpcomm_stream_t stream);

#endif
