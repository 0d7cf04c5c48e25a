/* SPDX-License-Identifier: Apache-2.0 */
/** The kernels of one dtype, as the others of this folder see them. */
#ifndef TPC_FUSED_INSTANCES_H
#define TPC_FUSED_INSTANCES_H

#include "fused_abi.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum { TPC_FUSED_ONESHOT, TPC_FUSED_TWOSHOT, TPC_FUSED_FORMS } tpc_fused_form_t;

/** Rows that one launch carries; gate and capacity both come from here. Two-shot has slots of half the size, each of
 * one owner's rows. */
static inline uint64_t tpc_fused_rows(tpc_fused_form_t form, int32_t size, uint64_t slot_bytes, uint64_t row_bytes) {
    return form == TPC_FUSED_TWOSHOT ? slot_bytes / 2 / row_bytes * (uint64_t)size : slot_bytes / row_bytes;
}

/** Kernels that differ in how much of an SM they take. */
typedef enum {
    TPC_FUSED_FAST,    /**< rows that are aligned, of 8 ranks at most, of 1 or 2 vectors a thread */
    TPC_FUSED_EARLY,   /**< the same of dependent launches, 16-bit elements alone */
    TPC_FUSED_GENERAL, /**< any rows, any number of ranks; of 2 or 4 vectors a thread */
    TPC_FUSED_KINDS
} tpc_fused_kind_t;

/** The kind that such a launch takes with so many vectors a thread. */
static inline tpc_fused_kind_t tpc_fused_kind(const tpc_ar_params_t *p, const tpc_norm_params_t *n, int32_t vectors) {
    if (p->size > 8 || vectors > 2 || !tpc_norm_is_aligned(n)) return TPC_FUSED_GENERAL;
    return p->early && n->dtype != TPCOMM_F32 ? TPC_FUSED_EARLY : TPC_FUSED_FAST;
}

/** One form's kernels of one dtype. A launcher returns a cudaError_t as int; kernel is for the runtime's questions. */
typedef struct {
    const void *(*kernel)(tpc_fused_kind_t kind, int32_t size, int32_t vectors); /**< NULL: there is none */
    int (*launch)(const tpc_ar_params_t *params, const tpc_norm_params_t *norm, tpc_norm_shape_t shape, int32_t blocks,
                  tpcomm_stream_t stream);
} tpc_fused_instances_t;

extern const tpc_fused_instances_t tpc_fused_oneshot_f32, tpc_fused_oneshot_f16, tpc_fused_oneshot_bf16,
    tpc_fused_twoshot_f32, tpc_fused_twoshot_f16, tpc_fused_twoshot_bf16;

static inline const tpc_fused_instances_t *tpc_fused_instances(tpc_fused_form_t form, tpcomm_dtype_t dtype) {
    if (form == TPC_FUSED_TWOSHOT)
        return dtype == TPCOMM_F32   ? &tpc_fused_twoshot_f32
               : dtype == TPCOMM_F16 ? &tpc_fused_twoshot_f16
                                     : &tpc_fused_twoshot_bf16;
    return dtype == TPCOMM_F32   ? &tpc_fused_oneshot_f32
           : dtype == TPCOMM_F16 ? &tpc_fused_oneshot_f16
                                 : &tpc_fused_oneshot_bf16;
}

/** The norm alone. */
const void *tpc_norm_kernel(tpcomm_dtype_t dtype, bool aligned, int32_t vectors);
int tpc_norm_launch(const tpc_norm_params_t *norm, tpc_norm_shape_t shape, int32_t blocks, tpcomm_stream_t stream);

#ifdef __cplusplus
}
#endif
#endif
