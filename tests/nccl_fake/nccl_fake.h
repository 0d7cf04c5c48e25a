/* SPDX-License-Identifier: Apache-2.0 */
/** The part of NCCL's interface that the stand-in has, in its own words. */
#ifndef TPC_TESTS_NCCL_FAKE_H
#define TPC_TESTS_NCCL_FAKE_H

#include <stddef.h>

typedef struct ncclComm *ncclComm_t;

typedef struct {
    char bytes[128];
} ncclUniqueId;

typedef struct {
    size_t size;
    unsigned magic, version;
    int blocking;
} fake_config_t;

enum {
    FAKE_SUCCESS = 0,
    FAKE_CUDA_ERROR = 1,
    FAKE_SYSTEM_ERROR = 2,
    FAKE_INVALID_ARGUMENT = 4,
    FAKE_INVALID_USAGE = 5,
    FAKE_REMOTE_ERROR = 6,
    FAKE_IN_PROGRESS = 7
};

enum { FAKE_SUM = 0, FAKE_PROD = 1, FAKE_MAX = 2, FAKE_MIN = 3, FAKE_AVG = 4 };

enum {
    FAKE_INT8 = 0,
    FAKE_UINT8 = 1,
    FAKE_INT32 = 2,
    FAKE_UINT32 = 3,
    FAKE_INT64 = 4,
    FAKE_UINT64 = 5,
    FAKE_FLOAT16 = 6,
    FAKE_FLOAT32 = 7,
    FAKE_FLOAT64 = 8,
    FAKE_BFLOAT16 = 9
};

#endif
