/* SPDX-License-Identifier: Apache-2.0 */
/** Calls of which one rank makes another than the rest, each different in one thing, and how both are named. */
#ifndef TPC_TESTS_MISTAKES_H
#define TPC_TESTS_MISTAKES_H

#include <unistd.h>

#include "multirank/ranks.h"

typedef struct {
    const char *what;
    tpcomm_call_t usual, odd;
    const char *usual_text, *odd_text; /* after "rank R called " */
} mistake_t;

#define MISTAKE_COUNT 4096u
#define MISTAKE_CALL(coll_, dtype_, op_, root_, count_)                                                                \
    {                                                                                                                  \
        .struct_size = sizeof(tpcomm_call_t), .coll = (coll_), .dtype = (dtype_), .op = (op_), .root = (root_),        \
        .count = (count_)                                                                                              \
    }

/* Every buffer has room for two ranks' parts of MISTAKE_COUNT + 1 elements of 8 bytes. */
static const mistake_t mistakes[] = {
    {"collective", MISTAKE_CALL(TPCOMM_ALL_REDUCE, TPCOMM_F32, TPCOMM_SUM, 0, MISTAKE_COUNT),
     MISTAKE_CALL(TPCOMM_BROADCAST, TPCOMM_F32, 0, 0, MISTAKE_COUNT), "all_reduce seq 2 count 4096 f32 sum",
     "broadcast seq 2 count 4096 f32 root 0"},
    {"barrier", MISTAKE_CALL(TPCOMM_ALL_REDUCE, TPCOMM_F32, TPCOMM_SUM, 0, MISTAKE_COUNT),
     MISTAKE_CALL(TPCOMM_BARRIER, 0, 0, 0, 0), "all_reduce seq 2 count 4096 f32 sum", "barrier seq 2"},
    {"count", MISTAKE_CALL(TPCOMM_ALL_REDUCE, TPCOMM_F32, TPCOMM_SUM, 0, MISTAKE_COUNT),
     MISTAKE_CALL(TPCOMM_ALL_REDUCE, TPCOMM_F32, TPCOMM_SUM, 0, MISTAKE_COUNT + 1),
     "all_reduce seq 2 count 4096 f32 sum", "all_reduce seq 2 count 4097 f32 sum"},
    {"dtype", MISTAKE_CALL(TPCOMM_ALL_REDUCE, TPCOMM_F16, TPCOMM_SUM, 0, MISTAKE_COUNT),
     MISTAKE_CALL(TPCOMM_ALL_REDUCE, TPCOMM_BF16, TPCOMM_SUM, 0, MISTAKE_COUNT), "all_reduce seq 2 count 4096 f16 sum",
     "all_reduce seq 2 count 4096 bf16 sum"},
    {"dtype of what only moves", MISTAKE_CALL(TPCOMM_ALL_GATHER, TPCOMM_F32, 0, 0, MISTAKE_COUNT),
     MISTAKE_CALL(TPCOMM_ALL_GATHER, TPCOMM_I32, 0, 0, MISTAKE_COUNT), "all_gather seq 2 count 4096 f32",
     "all_gather seq 2 count 4096 i32"},
    {"op", MISTAKE_CALL(TPCOMM_REDUCE_SCATTER, TPCOMM_F32, TPCOMM_SUM, 0, MISTAKE_COUNT),
     MISTAKE_CALL(TPCOMM_REDUCE_SCATTER, TPCOMM_F32, TPCOMM_MAX, 0, MISTAKE_COUNT),
     "reduce_scatter seq 2 count 4096 f32 sum", "reduce_scatter seq 2 count 4096 f32 max"},
    {"root", MISTAKE_CALL(TPCOMM_BROADCAST, TPCOMM_F64, 0, 0, MISTAKE_COUNT),
     MISTAKE_CALL(TPCOMM_BROADCAST, TPCOMM_F64, 0, 1, MISTAKE_COUNT), "broadcast seq 2 count 4096 f64 root 0",
     "broadcast seq 2 count 4096 f64 root 1"},
};
#define MISTAKES (sizeof mistakes / sizeof *mistakes)

/** Make a call with buffers of this thread's own. */
static inline tpcomm_status_t mistakes_make(tpcomm_t *comm, const tpcomm_call_t *call, tpcomm_path_t path) {
    static _Thread_local double in[3 * (MISTAKE_COUNT + 1)], out[3 * (MISTAKE_COUNT + 1)];
    tpcomm_call_t made = *call;
    made.in = in;
    made.out = out;
    made.path = path;
    return tpcomm_call(comm, &made, NULL);
}

/** The group breaks within some seconds; the text of it has this piece. */
static inline void mistakes_check_broken(tpcomm_t *comm, const char *piece) {
    tpcomm_error_t error = {.struct_size = sizeof error};
    for (int i = 0; i < 1000 && tpcomm_async_status(comm, NULL) == TPCOMM_OK; i++) usleep(10000);
    CHECK_STATUS(tpcomm_async_status(comm, &error), TPCOMM_ERR_MISMATCH);
    if (strstr(error.text, piece) == NULL) FAIL("\"%s\" does not have \"%s\"", error.text, piece);
    CHECK_STATUS(tpcomm_barrier(comm, NULL), TPCOMM_ERR_MISMATCH);
    CHECK_STATUS(tpcomm_host_barrier(comm, 0), TPCOMM_ERR_MISMATCH);
}

/** All call once alike; then the last rank makes the odd call. Every rank is told both. */
static inline void mistakes_run(rank_t *rank, const mistake_t *mistake, tpcomm_path_t path) {
    tpcomm_call_t first = MISTAKE_CALL(TPCOMM_ALL_REDUCE, TPCOMM_I32, TPCOMM_SUM, 0, 1);
    char odd[128];
    bool is_odd = rank->rank == rank->size - 1;
    CHECK_OK(mistakes_make(rank->comm, &first, path));
    CHECK_OK(tpcomm_host_barrier(rank->comm, 0)); /* all have ended it: the group is about to break */
    tpcomm_status_t status = mistakes_make(rank->comm, is_odd ? &mistake->odd : &mistake->usual, path);
    /* By NCCL a rank may find its call enqueued, and ended, before it is compared. */
    if (path != TPCOMM_PATH_NCCL || status != TPCOMM_OK) CHECK_STATUS(status, TPCOMM_ERR_MISMATCH);
    snprintf(odd, sizeof odd, "rank %d called %s", rank->size - 1, mistake->odd_text);
    mistakes_check_broken(rank->comm, odd);
    mistakes_check_broken(rank->comm, mistake->usual_text);
}

#endif
