/* SPDX-License-Identifier: Apache-2.0 */
/** The launchers: the only way from host code to the kernels. */
#ifndef TPC_CUSTOM_AR_LAUNCH_H
#define TPC_CUSTOM_AR_LAUNCH_H

#include "custom_ar/ar_abi.h"
#include "tpcomm.h"

#ifdef __cplusplus
extern "C" {
#endif

/** A launch's shape; the call headers' warp is added to threads. */
typedef struct {
    int32_t blocks, threads;
} tpc_ar_shape_t;

/**
 * Launch a one-shot kernel: coll is ALL_REDUCE, BROADCAST, ALL_GATHER, or BARRIER (count 0). params->work_threads is
 * set here. Returns a cudaError_t as int.
 */
int tpc_ar_launch_oneshot(tpcomm_coll_t coll, const tpc_ar_params_t *params, tpc_ar_shape_t shape,
                          tpcomm_stream_t stream);

/** Message bytes that a slot of slot_bytes carries: sentinel packets are all data, flag packets half. */
size_t tpc_ar_slot_payload(tpcomm_coll_t coll, tpcomm_dtype_t dtype, size_t slot_bytes);

/** Load every kernel now, so that none is loaded while another waits for a peer. Returns a cudaError_t as int. */
int tpc_ar_load_kernels(void);

/** Blocks of `threads` working threads that one SM holds at once, for the kernel that needs most. Returns a cudaError_t
 * as int. */
int tpc_ar_blocks_per_sm(int32_t threads, int32_t *blocks_p);

#ifdef __cplusplus
}
#endif
#endif
