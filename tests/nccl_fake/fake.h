/* SPDX-License-Identifier: Apache-2.0 */
/** Groups on the cpu device that use the stand-in for NCCL. */
#ifndef TPC_TESTS_FAKE_H
#define TPC_TESTS_FAKE_H

#include "multirank/ranks.h"

/** From now on: groups try this library, which fails as told ("": not at all). */
static inline void fake_use(const char *path, const char *faults) {
    ranks_set_hooks("set@nccl_on_cpu:1");
    CHECK_EQ(setenv("TPCOMM_NCCL_PATH", path, 1), 0);
    CHECK_EQ(setenv("NCCL_FAKE_FAULTS", faults, 1), 0);
}

static inline tpcomm_info_t fake_info(const tpcomm_t *comm) {
    tpcomm_info_t info = {.struct_size = sizeof info};
    CHECK_OK(tpcomm_comm_info(comm, &info));
    return info;
}

static inline void check_has(const char *text, const char *piece) {
    if (strstr(text, piece) == NULL) FAIL("\"%s\" does not have \"%s\"", text, piece);
}

/** An all_reduce of one number by a path, that must come out right. */
static inline void check_sum(rank_t *rank, tpcomm_path_t path) {
    int32_t value = rank->rank + 1;
    tpcomm_call_t call = {.struct_size = sizeof call,
                          .coll = TPCOMM_ALL_REDUCE,
                          .dtype = TPCOMM_I32,
                          .op = TPCOMM_SUM,
                          .path = path,
                          .in = &value,
                          .out = &value,
                          .count = 1};
    CHECK_OK(tpcomm_call(rank->comm, &call, NULL));
    CHECK_EQ(value, rank->size * (rank->size + 1) / 2);
}

/** An all_reduce of count f32 by nccl; its status. */
static inline tpcomm_status_t call_nccl(tpcomm_t *comm, float *data, size_t count) {
    tpcomm_call_t call = {.struct_size = sizeof call,
                          .coll = TPCOMM_ALL_REDUCE,
                          .dtype = TPCOMM_F32,
                          .op = TPCOMM_SUM,
                          .path = TPCOMM_PATH_NCCL,
                          .in = data,
                          .out = data,
                          .count = count};
    return tpcomm_call(comm, &call, NULL);
}

#endif
