/* SPDX-License-Identifier: Apache-2.0 */
/**
 * What this library uses of NCCL, declared by ourselves: NCCL is loaded at run time, and built without its header.
 * Names and values are NCCL's; tests/nccl_fake/test_nccl_header.c compares them with nccl.h where there is one.
 */
#ifndef TPC_NCCL_API_H
#define TPC_NCCL_API_H

#include <stddef.h>

#include "tpcomm.h"

/** ncclConfig_t as it was when it came, in 2.14: NCCL reads as much of it as size and version say. */
struct tpc_nccl_config {
    size_t size;
    unsigned int magic, version;
    int blocking;
};

/* A test names NCCL's own types instead, to compare the functions below with theirs. */
#ifndef TPC_NCCL_TYPES
typedef struct ncclComm *tpc_nccl_comm_t;
typedef int tpc_nccl_result_t;
typedef int tpc_nccl_dtype_t;
typedef int tpc_nccl_op_t;
typedef struct {
    char bytes[128];
} tpc_nccl_id_t;
typedef struct tpc_nccl_config tpc_nccl_config_t;
#endif

#define TPC_NCCL_CONFIG_MAGIC   0xcafebeefu
#define TPC_NCCL_CONFIG_VERSION 21400u

enum { TPC_NCCL_SUCCESS = 0, TPC_NCCL_IN_PROGRESS = 7 };

enum { TPC_NCCL_SUM = 0, TPC_NCCL_PROD = 1, TPC_NCCL_MAX = 2, TPC_NCCL_MIN = 3, TPC_NCCL_AVG = 4 };

enum {
    TPC_NCCL_INT8 = 0,
    TPC_NCCL_UINT8 = 1,
    TPC_NCCL_INT32 = 2,
    TPC_NCCL_UINT32 = 3,
    TPC_NCCL_INT64 = 4,
    TPC_NCCL_UINT64 = 5,
    TPC_NCCL_FLOAT16 = 6,
    TPC_NCCL_FLOAT32 = 7,
    TPC_NCCL_FLOAT64 = 8,
    TPC_NCCL_BFLOAT16 = 9
};

/**
 * X(name in our table, NCCL's symbol, needed, result, arguments). Without one that is not needed a feature is off:
 * abort: a communicator that failed is left to itself; finalize: it is destroyed at once; last_error: less in a text.
 */
#define TPC_NCCL_LIST(X)                                                                                               \
    X(get_version, ncclGetVersion, 1, tpc_nccl_result_t, (int *))                                                      \
    X(get_id, ncclGetUniqueId, 1, tpc_nccl_result_t, (tpc_nccl_id_t *))                                                \
    X(init, ncclCommInitRankConfig, 1, tpc_nccl_result_t,                                                              \
      (tpc_nccl_comm_t *, int, tpc_nccl_id_t, int, tpc_nccl_config_t *))                                               \
    X(finalize, ncclCommFinalize, 0, tpc_nccl_result_t, (tpc_nccl_comm_t))                                             \
    X(destroy, ncclCommDestroy, 1, tpc_nccl_result_t, (tpc_nccl_comm_t))                                               \
    X(abort, ncclCommAbort, 0, tpc_nccl_result_t, (tpc_nccl_comm_t))                                                   \
    X(async_error, ncclCommGetAsyncError, 1, tpc_nccl_result_t, (tpc_nccl_comm_t, tpc_nccl_result_t *))                \
    X(error_text, ncclGetErrorString, 1, const char *, (tpc_nccl_result_t))                                            \
    X(last_error, ncclGetLastError, 0, const char *, (tpc_nccl_comm_t))                                                \
    X(all_reduce, ncclAllReduce, 1, tpc_nccl_result_t,                                                                 \
      (const void *, void *, size_t, tpc_nccl_dtype_t, tpc_nccl_op_t, tpc_nccl_comm_t, tpcomm_stream_t))               \
    X(broadcast, ncclBroadcast, 1, tpc_nccl_result_t,                                                                  \
      (const void *, void *, size_t, tpc_nccl_dtype_t, int, tpc_nccl_comm_t, tpcomm_stream_t))                         \
    X(all_gather, ncclAllGather, 1, tpc_nccl_result_t,                                                                 \
      (const void *, void *, size_t, tpc_nccl_dtype_t, tpc_nccl_comm_t, tpcomm_stream_t))                              \
    X(reduce_scatter, ncclReduceScatter, 1, tpc_nccl_result_t,                                                         \
      (const void *, void *, size_t, tpc_nccl_dtype_t, tpc_nccl_op_t, tpc_nccl_comm_t, tpcomm_stream_t))

typedef struct {
#define TPC_NCCL_MEMBER(name, symbol, needed, result, arguments) result(*name) arguments;
    TPC_NCCL_LIST(TPC_NCCL_MEMBER)
#undef TPC_NCCL_MEMBER
} tpc_nccl_api_t;

#endif
