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
    int32_t reserved;
    uint64_t context; /**< the CUcontext this rank is bound to: means something in its own process alone */
    uint8_t uuid[16];
    char bus_id[16]; /**< "0000:0f:00.0": what tells devices apart, whatever CUDA_VISIBLE_DEVICES says */
    char name[64];
    char reason[256];
} tpc_cuda_facts_t;

/**
 * Facts of a device, proved by use of its context. Never fails: usable says it. The caller's current context and its
 * cudaGetLastError stay as they are.
 * @param ordinal  the device, by its primary context; -1: the calling thread's current context or, where it has none,
 * the primary one of its current device.
 */
void tpc_cuda_probe(int32_t ordinal, tpc_cuda_facts_t *facts_p);

/** Record the text of a CUDA error: "what: cudaErrorX (text)". error is a cudaError_t; 0 gives OK. Status DEVICE, or
 * NO_MEMORY. */
tpcomm_status_t tpc_cuda_error_number(int error, const char *what);
/* Compilers do not agree on the sign of an enum. */
#ifndef TPC_HOOKS
#define tpc_cuda_error(error, what) tpc_cuda_error_number((int)(error), (what))
#else
/** Test builds: whether the call into CUDA that stands here is the one that set@cuda_fails:N names (the N-th since it
 * was set), and so is not made. */
bool tpc_cuda_fails(void);
/** How many such places this process has come to since then. */
uint64_t tpc_cuda_calls(void);
#define TPC_CUDA_UNKNOWN            999 /* cudaErrorUnknown, CUDA_ERROR_UNKNOWN */
#define tpc_cuda_error(error, what) tpc_cuda_error_number(tpc_cuda_fails() ? TPC_CUDA_UNKNOWN : (int)(error), (what))
#endif

/**
 * Make the rank's context the calling thread's current one; leave gives the caller's back. Cheap where they are the
 * same. Fails: INVALID_STATE in a forked child, which must not touch its parent's CUDA.
 */
typedef struct {
    bool pushed, relaxed;
    int mode; /**< of the thread's captures, where it is relaxed meanwhile */
} tpc_cuda_scope_t;
tpcomm_status_t tpc_cuda_enter(const tpc_cuda_facts_t *facts, tpc_cuda_scope_t *scope_p);
/** The same where memory is made and freed, or streams are waited for: that ends nobody's capture, whatever this
 * thread and others are just capturing. */
tpcomm_status_t tpc_cuda_enter_relaxed(const tpc_cuda_facts_t *facts, tpc_cuda_scope_t *scope_p);
void tpc_cuda_leave(tpc_cuda_scope_t scope);

/** Whether the rank is bound to its device's primary context, which is the only one that some libraries work in. */
bool tpc_cuda_is_primary(const tpc_cuda_facts_t *facts);

/** After a foreign library's failure: what it left in cudaGetLastError is not the caller's to find. */
void tpc_cuda_forget_error(void);

/** Whether a kernel may reach theirs from mine's device: 1, 0; -1: theirs is not visible to this process. */
int32_t tpc_cuda_peer_access(const tpc_cuda_facts_t *mine, const tpc_cuda_facts_t *theirs);
/** Whether the driver has native atomics between the two, which it has over NVLink and not over PCIe. As above. */
int32_t tpc_cuda_peer_atomics(const tpc_cuda_facts_t *mine, const tpc_cuda_facts_t *theirs);

/** Pin host memory for the GPU and count its users: threads of one process may share it. device_p: its device address.
 */
tpcomm_status_t tpc_cuda_pin(void *base, size_t bytes, void **device_p);
void tpc_cuda_unpin(void *base);

#endif
