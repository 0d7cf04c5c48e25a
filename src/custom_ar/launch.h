/* SPDX-License-Identifier: Apache-2.0 */
/** The launchers: the only way from host code to the kernels. */
#ifndef TPC_CUSTOM_AR_LAUNCH_H
#define TPC_CUSTOM_AR_LAUNCH_H

#include <stdbool.h>

#include "custom_ar/ar_abi.h"
#include "tpcomm.h"

#ifdef __cplusplus
extern "C" {
#endif

/** A launch's shape; the call headers' warp is added to threads. */
typedef struct {
    int32_t blocks, threads;
    int32_t vectors; /**< 16-byte vectors that a thread has in flight at once: 1 or 2 */
} tpc_ar_shape_t;

/** What is launched: a collective by one form. A barrier is a one-shot all_reduce of count 0. */
typedef struct {
    tpcomm_coll_t coll;
    bool twoshot; /**< all_reduce alone; reduce_scatter has one form */
    bool ring;    /**< all_reduce of f32, f16, bf16 alone; not with twoshot */
} tpc_ar_form_t;

/** Bytes of the message (of a rank's part: all_gather, reduce_scatter) that one launch carries; a ring's, any. */
size_t tpc_ar_capacity(tpc_ar_form_t form, tpcomm_dtype_t dtype, int32_t size, size_t slot_bytes);

/** Bytes that a packet carries. */
size_t tpc_ar_packet_payload(tpc_ar_form_t form, tpcomm_dtype_t dtype);

/**
 * Launch one kernel. work_threads and how the message is divided are set here, in params itself (in_stride of a
 * reduce_scatter by the caller). Of a ring, all ranks have as many blocks, and threads are whole warps. Returns a
 * cudaError_t as int.
 */
int tpc_ar_launch(tpc_ar_form_t form, tpc_ar_params_t *params, tpc_ar_shape_t shape, tpcomm_stream_t stream);

/** Kernels that differ in how much of an SM they take. */
typedef enum {
    TPC_AR_ONESHOT_1, /**< by vectors in flight */
    TPC_AR_ONESHOT_2,
    TPC_AR_ONESHOT_EARLY, /**< of dependent launches; one vector */
    TPC_AR_ONESHOT_GENERAL,
    TPC_AR_TWOSHOT_FAST,
    TPC_AR_TWOSHOT_EARLY,
    TPC_AR_TWOSHOT_GENERAL,
    TPC_AR_RAW,
    TPC_AR_RING_FAST, /**< the last two have threads of their own number */
    TPC_AR_RING_GENERAL,
    TPC_AR_KINDS
} tpc_ar_kind_t;

/** The kind that such a launch takes; of params in, out, count, in_stride, size, dtype, op, early matter. */
tpc_ar_kind_t tpc_ar_kind(tpc_ar_form_t form, const tpc_ar_params_t *params, int32_t vectors);

/** Kernels of aligned messages: their threads have whole vectors, and the warp beside them has the tail. */
bool tpc_ar_is_fast(tpc_ar_kind_t kind);

enum { TPC_AR_KERNELS_MAX = 8 };
/** The kernels of a kind that a group of size ranks may launch, for the CUDA runtime's questions; how many. */
size_t tpc_ar_kernels(tpc_ar_kind_t kind, int32_t size, const void *kernels[TPC_AR_KERNELS_MAX]);

/* One family each, in a file of its own; the two above choose. */
int tpc_ar_launch_oneshot(const tpc_ar_params_t *params, tpc_ar_kind_t kind, tpc_ar_shape_t shape,
                          tpcomm_stream_t stream);
int tpc_ar_launch_twoshot(const tpc_ar_params_t *params, tpc_ar_kind_t kind, tpc_ar_shape_t shape, bool gathers,
                          tpcomm_stream_t stream);
int tpc_ar_launch_ring(const tpc_ar_params_t *params, tpc_ar_kind_t kind, tpc_ar_shape_t shape, tpcomm_stream_t stream);
int tpc_ar_launch_raw(tpc_ar_form_t form, const tpc_ar_params_t *params, tpc_ar_shape_t shape, uint32_t element,
                      tpcomm_stream_t stream);
size_t tpc_ar_oneshot_kernels(tpc_ar_kind_t kind, int32_t size, const void *kernels[TPC_AR_KERNELS_MAX]);
size_t tpc_ar_twoshot_kernels(tpc_ar_kind_t kind, int32_t size, const void *kernels[TPC_AR_KERNELS_MAX]);
size_t tpc_ar_ring_kernels(tpc_ar_kind_t kind, int32_t size, const void *kernels[TPC_AR_KERNELS_MAX]);
size_t tpc_ar_raw_kernels(const void *kernels[TPC_AR_KERNELS_MAX]);

#ifdef __cplusplus
}
#endif
#endif
