/* SPDX-License-Identifier: Apache-2.0 */
/** CUDA as the layers above need it: this process's device, its facts, and errors as statuses. Compiled only with CUDA.
 */
#ifndef TPC_DEVICE_CUDA_H
#define TPC_DEVICE_CUDA_H

#include <stdbool.h>
#include <stdint.h>

#include "tpcomm.h"

/** The device a rank computes on; plain bytes, exchanged between ranks. */
typedef struct {
    int32_t usable;  /**< 0: reason says why not */
    int32_t ordinal; /**< in this process */
    int32_t arch;    /**< compute capability, 90 for 9.0 */
    int32_t sms;
    uint8_t uuid[16];
    char bus_id[16]; /**< "0000:0f:00.0": what tells devices apart, whatever CUDA_VISIBLE_DEVICES says */
    char name[64];
    char reason[256];
} tpc_cuda_facts_t;

/**
 * Facts of a device, proved by use: its context, a kernel image of this library, memory. Never fails: usable says it.
 * @param ordinal  -1: the calling thread's current device.
 */
void tpc_cuda_probe(int32_t ordinal, tpc_cuda_facts_t *facts_p);

/** Record the text of a CUDA error: "what: cudaErrorX (text)". error is a cudaError_t; 0 gives OK. Status DEVICE, or
 * NO_MEMORY. */
tpcomm_status_t tpc_cuda_error(int error, const char *what);

/** Make ordinal the calling thread's device; leave gives the caller's back. Cheap where they are the same. */
typedef struct {
    int32_t before; /**< -1: nothing to give back */
} tpc_cuda_scope_t;
tpcomm_status_t tpc_cuda_enter(int32_t ordinal, tpc_cuda_scope_t *scope_p);
void tpc_cuda_leave(tpc_cuda_scope_t scope);

/** Pin host memory for the GPU and count its users: threads of one process may share it. device_p: its device address.
 */
tpcomm_status_t tpc_cuda_pin(void *base, size_t bytes, void **device_p);
void tpc_cuda_unpin(void *base);

#endif
