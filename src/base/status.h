/* SPDX-License-Identifier: Apache-2.0 */
/** Names, sizes and texts of the public sets (status, dtype, op, coll, path), from one X-macro list each. */
#ifndef TPC_BASE_STATUS_H
#define TPC_BASE_STATUS_H

#include <stdbool.h>

#include "tpcomm.h"

/** X(public constant, name, bytes of one element, is it a float type) */
#define TPC_DTYPE_LIST(X)                                                                                              \
    X(TPCOMM_F32, "f32", 4, 1)                                                                                         \
    X(TPCOMM_F16, "f16", 2, 1)                                                                                         \
    X(TPCOMM_BF16, "bf16", 2, 1)                                                                                       \
    X(TPCOMM_I8, "i8", 1, 0)                                                                                           \
    X(TPCOMM_U8, "u8", 1, 0)                                                                                           \
    X(TPCOMM_I32, "i32", 4, 0)                                                                                         \
    X(TPCOMM_I64, "i64", 8, 0)                                                                                         \
    X(TPCOMM_U32, "u32", 4, 0)                                                                                         \
    X(TPCOMM_U64, "u64", 8, 0)                                                                                         \
    X(TPCOMM_F64, "f64", 8, 1)                                                                                         \
    X(TPCOMM_F8_E4M3, "f8_e4m3", 1, 1)                                                                                 \
    X(TPCOMM_F8_E5M2, "f8_e5m2", 1, 1)

/** X(public constant, name) */
#define TPC_OP_LIST(X)                                                                                                 \
    X(TPCOMM_SUM, "sum")                                                                                               \
    X(TPCOMM_AVG, "avg")                                                                                               \
    X(TPCOMM_MAX, "max")                                                                                               \
    X(TPCOMM_MIN, "min")                                                                                               \
    X(TPCOMM_PROD, "prod")

/** X(public constant, name) */
#define TPC_COLL_LIST(X)                                                                                               \
    X(TPCOMM_ALL_REDUCE, "all_reduce")                                                                                 \
    X(TPCOMM_BARRIER, "barrier")                                                                                       \
    X(TPCOMM_BROADCAST, "broadcast")                                                                                   \
    X(TPCOMM_ALL_GATHER, "all_gather")                                                                                 \
    X(TPCOMM_REDUCE_SCATTER, "reduce_scatter")                                                                         \
    X(TPCOMM_ALL_REDUCE_RMS_NORM, "all_reduce_rms_norm")                                                               \
    X(TPCOMM_REDUCE_SCATTER_RMS_NORM, "reduce_scatter_rms_norm")                                                       \
    X(TPCOMM_ALL_GATHER_ROWS, "all_gather_rows")

/** X(public constant, name) */
#define TPC_PATH_LIST(X)                                                                                               \
    X(TPCOMM_PATH_AUTO, "auto")                                                                                        \
    X(TPCOMM_PATH_ONESHOT, "oneshot")                                                                                  \
    X(TPCOMM_PATH_TWOSHOT, "twoshot")                                                                                  \
    X(TPCOMM_PATH_NCCL, "nccl")                                                                                        \
    X(TPCOMM_PATH_FUSED_ONESHOT, "fused_oneshot")                                                                      \
    X(TPCOMM_PATH_FUSED_TWOSHOT, "fused_twoshot")                                                                      \
    X(TPCOMM_PATH_UNFUSED, "unfused")                                                                                  \
    X(TPCOMM_PATH_CPU_ONESHOT, "cpu_oneshot")                                                                          \
    X(TPCOMM_PATH_CPU_TWOSHOT, "cpu_twoshot")                                                                          \
    X(TPCOMM_PATH_LOCAL, "local")                                                                                      \
    X(TPCOMM_PATH_RING, "ring")

/** One more than the greatest path constant: the size of arrays indexed by path. */
#define TPC_PATH_END 12

/** The same of collectives. */
#define TPC_COLL_END 19

/** Look a name up; false if there is none such. Case matters. */
bool tpc_dtype_parse(const char *name, tpcomm_dtype_t *dtype_p);
bool tpc_op_parse(const char *name, tpcomm_op_t *op_p);
bool tpc_coll_parse(const char *name, tpcomm_coll_t *coll_p);
bool tpc_path_parse(const char *name, tpcomm_path_t *path_p);

bool tpc_dtype_is_float(tpcomm_dtype_t dtype);

/** Whether a collective normalises the rows it has summed. */
static inline bool tpc_coll_norms(tpcomm_coll_t coll) {
    return coll == TPCOMM_ALL_REDUCE_RMS_NORM || coll == TPCOMM_REDUCE_SCATTER_RMS_NORM;
}

/** Whether a collective has rows (its hidden is looked at). */
static inline bool tpc_coll_has_rows(tpcomm_coll_t coll) {
    return tpc_coll_norms(coll) || coll == TPCOMM_ALL_GATHER_ROWS;
}

/** Whether a path carries calls with a norm, and them alone. */
static inline bool tpc_path_norms(tpcomm_path_t path) {
    return path == TPCOMM_PATH_FUSED_ONESHOT || path == TPCOMM_PATH_FUSED_TWOSHOT || path == TPCOMM_PATH_UNFUSED;
}

/** Whether a collective computes (its op is looked at; that of a norm is SUM). */
static inline bool tpc_coll_reduces(tpcomm_coll_t coll) {
    return coll == TPCOMM_ALL_REDUCE || coll == TPCOMM_REDUCE_SCATTER || tpc_coll_norms(coll);
}

/** Whether a collective has buffers (its dtype and count are looked at). */
static inline bool tpc_coll_moves_data(tpcomm_coll_t coll) {
    return coll != TPCOMM_BARRIER;
}

/** Whether DESIGN's numbers contract defines op for dtype (docs/numerics.md): the one place that knows it. */
bool tpc_reduction_defined(tpcomm_dtype_t dtype, tpcomm_op_t op);

#endif
