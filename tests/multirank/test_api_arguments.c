/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Check that a wrong argument is refused with a text that names it, before anything is sent, and that the group goes on
 * working; that structs of older and newer callers are taken as the header says; and what is allowed after finalize and
 * in a forked child.
 */
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "multirank/ranks.h"

static float in[64], out[64];

static void refuse(tpcomm_t *comm, tpcomm_call_t call, tpcomm_status_t want, const char *piece) {
    CHECK_STATUS(tpcomm_call(comm, &call, NULL), want);
    CHECK_ERROR_HAS(piece);
    CHECK_OK(tpcomm_async_status(comm, NULL));
}

static tpcomm_call_t good(void) {
    return (tpcomm_call_t){.struct_size = sizeof(tpcomm_call_t),
                           .coll = TPCOMM_ALL_REDUCE,
                           .dtype = TPCOMM_F32,
                           .op = TPCOMM_SUM,
                           .in = in,
                           .out = out,
                           .count = 8};
}

static void calls(tpcomm_t *comm) {
    tpcomm_call_t call;
#define WITH(field, value) (call = good(), call.field = (value), call)
    refuse(comm, WITH(coll, 0), TPCOMM_ERR_INVALID_ARG, "coll is 0");
    refuse(comm, WITH(coll, 99), TPCOMM_ERR_INVALID_ARG, "coll is 99");
    refuse(comm, WITH(dtype, 0), TPCOMM_ERR_INVALID_ARG, "dtype is 0");
    refuse(comm, WITH(dtype, 13), TPCOMM_ERR_INVALID_ARG, "dtype is 13");
    refuse(comm, WITH(op, 0), TPCOMM_ERR_INVALID_ARG, "op is 0");
    refuse(comm, WITH(op, -3), TPCOMM_ERR_INVALID_ARG, "op is -3");
    refuse(comm, WITH(flags, 1), TPCOMM_ERR_INVALID_ARG, "flags");
    refuse(comm, WITH(path, 77), TPCOMM_ERR_INVALID_ARG, "path 77");
    refuse(comm, WITH(path, -1), TPCOMM_ERR_INVALID_ARG, "path -1");
    refuse(comm, WITH(path, 4), TPCOMM_ERR_INVALID_ARG, "path 4"); /* ring: not in this version */
    refuse(comm, WITH(path, TPCOMM_PATH_LOCAL), TPCOMM_ERR_UNSUPPORTED, "group of one");
    refuse(comm, WITH(in, NULL), TPCOMM_ERR_INVALID_ARG, "in is NULL");
    refuse(comm, WITH(out, NULL), TPCOMM_ERR_INVALID_ARG, "out is NULL");
    refuse(comm, WITH(out, in + 1), TPCOMM_ERR_INVALID_ARG, "overlap");
    refuse(comm, WITH(in, out + 7), TPCOMM_ERR_INVALID_ARG, "overlap");
    refuse(comm, WITH(count, UINT64_MAX), TPCOMM_ERR_INVALID_ARG, "count 18446744073709551615");
    refuse(comm, WITH(count, (uint64_t)1 << 62), TPCOMM_ERR_INVALID_ARG, "count");
    refuse(comm, WITH(dtype, TPCOMM_F8_E4M3), TPCOMM_ERR_UNSUPPORTED, "f8_e4m3");
    refuse(comm, WITH(struct_size, 0), TPCOMM_ERR_INVALID_ARG, "struct_size is 0");
    refuse(comm, WITH(struct_size, 3), TPCOMM_ERR_INVALID_ARG, "struct_size is 3");
    call = good();
    call.dtype = TPCOMM_I32;
    call.op = TPCOMM_AVG;
    refuse(comm, call, TPCOMM_ERR_UNSUPPORTED, "avg of i32");
    call = good();
    CHECK_STATUS(tpcomm_call(comm, &call, (tpcomm_stream_t)(uintptr_t)16), TPCOMM_ERR_INVALID_ARG);
    CHECK_ERROR_HAS("stream");
    CHECK_STATUS(tpcomm_call(comm, NULL, NULL), TPCOMM_ERR_INVALID_ARG);
    CHECK_STATUS(tpcomm_call(NULL, &call, NULL), TPCOMM_ERR_INVALID_ARG);
    CHECK_ERROR_HAS("comm is NULL");
}

/* Counts around and beyond what memory holds, of every collective and dtype: refused on this rank alone, before
 * anything is sent. */
static void huge_counts(tpcomm_t *comm) {
    static const tpcomm_coll_t colls[] = {TPCOMM_ALL_REDUCE, TPCOMM_BROADCAST, TPCOMM_ALL_GATHER, TPCOMM_REDUCE_SCATTER,
                                          TPCOMM_ALL_GATHER_ROWS};
    tpcomm_info_t info = {.struct_size = sizeof info};
    tpcomm_rank_info_t before = {.struct_size = sizeof before}, after = {.struct_size = sizeof after};
    CHECK_OK(tpcomm_comm_info(comm, &info));
    CHECK_OK(tpcomm_rank_info(comm, info.rank, &before));
    for (size_t c = 0; c < sizeof colls / sizeof *colls; c++)
        for (tpcomm_dtype_t dtype = TPCOMM_F32; dtype <= TPCOMM_F64; dtype++) {
            uint64_t most = (uint64_t)PTRDIFF_MAX / tpcomm_dtype_size(dtype);
            const uint64_t counts[] = {UINT64_MAX,
                                       (uint64_t)1 << 63,
                                       UINT64_MAX / tpcomm_dtype_size(dtype) + 1, /* bytes wrap to next to nothing */
                                       UINT64_MAX / tpcomm_dtype_size(dtype) / (uint64_t)info.size + 1,
                                       most + 1,
                                       most / (uint64_t)info.size + 1,
                                       most / (uint64_t)info.size}; /* 64 bits hold it, but then in and out overlap */
            for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
                tpcomm_call_t call = good();
                if (counts[i] == 0) continue; /* of one byte an element */
                call.coll = colls[c];
                call.dtype = dtype;
                call.count = counts[i];
                call.hidden = colls[c] == TPCOMM_ALL_GATHER_ROWS;
                refuse(comm, call, TPCOMM_ERR_INVALID_ARG, "");
                if (i + 1 == sizeof counts / sizeof *counts) continue;
                call.out = (void *)(uintptr_t)call.in; /* in place, where that is in place */
                refuse(comm, call, TPCOMM_ERR_INVALID_ARG, "");
            }
        }
    CHECK_OK(tpcomm_rank_info(comm, info.rank, &after));
    CHECK_EQ(after.seq, before.seq);
}

/* A caller compiled against a later header: longer struct, the new part zero or not. */
static void longer_struct(tpcomm_t *comm) {
    struct {
        tpcomm_call_t call;
        uint64_t later[2];
    } newer = {.call = good()};
    newer.call.struct_size = sizeof newer;
    CHECK_OK(tpcomm_call(comm, &newer.call, NULL));
    newer.later[1] = 1;
    CHECK_STATUS(tpcomm_call(comm, &newer.call, NULL), TPCOMM_ERR_VERSION);
    CHECK_ERROR_HAS("newer tpcomm.h");
    struct {
        tpcomm_stats_t stats;
        uint64_t later;
    } longer = {.stats = {.struct_size = sizeof longer}, .later = 7};
    CHECK_OK(tpcomm_stats(comm, 0, &longer.stats));
    CHECK_EQ(longer.later, 0);
    CHECK_EQ(longer.stats.struct_size, sizeof longer);
    /* ... and an earlier one: the fields it lacks are the defaults, and are not written. */
    tpcomm_stats_t shorter = {.struct_size = offsetof(tpcomm_stats_t, bytes), .bytes = 99};
    CHECK_OK(tpcomm_stats(comm, 0, &shorter));
    CHECK_EQ(shorter.bytes, 99);
    tpcomm_call_t tagless = good();
    tagless.struct_size = offsetof(tpcomm_call_t, tag);
    CHECK_OK(tpcomm_call(comm, &tagless, NULL));
}

static void introspection(tpcomm_t *comm) {
    tpcomm_info_t info = {.struct_size = sizeof info};
    tpcomm_rank_info_t rank_info = {.struct_size = sizeof rank_info};
    tpcomm_stats_t stats = {.struct_size = sizeof stats};
    tpcomm_error_t error = {.struct_size = sizeof error};
    CHECK_OK(tpcomm_comm_info(comm, &info));
    CHECK_STATUS(tpcomm_comm_info(comm, NULL), TPCOMM_ERR_INVALID_ARG);
    CHECK_STATUS(tpcomm_rank_info(comm, -1, &rank_info), TPCOMM_ERR_INVALID_ARG);
    CHECK_STATUS(tpcomm_rank_info(comm, 2, &rank_info), TPCOMM_ERR_INVALID_ARG);
    CHECK_STATUS(tpcomm_stats(comm, 99, &stats), TPCOMM_ERR_INVALID_ARG);
    CHECK_STATUS(tpcomm_stats(comm, -1, &stats), TPCOMM_ERR_INVALID_ARG);
    CHECK_OK(tpcomm_async_status(comm, &error));
    CHECK_EQ(error.rank, -1);
    CHECK(error.text[0] == '\0');
    CHECK_STATUS(tpcomm_set_op_timeout(comm, 0), TPCOMM_ERR_INVALID_ARG);
    CHECK_OK(tpcomm_set_op_timeout(comm, 59000));
    CHECK_OK(tpcomm_comm_info(comm, &info));
    CHECK_EQ(info.op_timeout_ms, 59000);
    CHECK_STATUS(tpcomm_note_waits(NULL, TPCOMM_ON), TPCOMM_ERR_INVALID_ARG);
    CHECK_STATUS(tpcomm_note_waits(comm, TPCOMM_DEFAULT), TPCOMM_ERR_INVALID_ARG);
    CHECK_STATUS(tpcomm_note_waits(comm, 3), TPCOMM_ERR_INVALID_ARG);
    CHECK_OK(tpcomm_note_waits(comm, TPCOMM_ON));
    CHECK_OK(tpcomm_note_waits(comm, TPCOMM_OFF));
}

static void body(rank_t *rank) {
    if (rank->rank == 0) calls(rank->comm);
    if (rank->rank == 0) huge_counts(rank->comm);
    CHECK_OK(tpcomm_barrier(rank->comm, NULL)); /* the peer never noticed */
    if (rank->rank == 0) introspection(rank->comm);
}

static void lone_body(rank_t *rank) {
    longer_struct(rank->comm);
    rank->finalized = true;
    CHECK_OK(tpcomm_finalize(rank->comm));
    CHECK_STATUS(tpcomm_barrier(rank->comm, NULL), TPCOMM_ERR_INVALID_STATE);
    CHECK_STATUS(tpcomm_finalize(rank->comm), TPCOMM_ERR_INVALID_STATE);
    tpcomm_info_t info = {.struct_size = sizeof info};
    CHECK_OK(tpcomm_comm_info(rank->comm, &info));
}

static void *call_in_thread(void *comm) {
    CHECK_OK(tpcomm_barrier(comm, NULL));
    return NULL;
}

/* A second thread in one communicator is told so at once (H16); a forked child too, and its destroy harms nobody. */
static void misuse(void) {
    tpcomm_config_t config = ranks_config();
    tpcomm_t *comms[2];
    pthread_t thread;
    CHECK_OK(tpcomm_init_local(2, NULL, &config, comms));
    CHECK_EQ(pthread_create(&thread, NULL, call_in_thread, comms[0]), 0);
    tpcomm_rank_info_t info = {.struct_size = sizeof info};
    do {
        CHECK_OK(tpcomm_rank_info(comms[0], 0, &info));
    } while (info.seq == 0); /* until the thread is inside */
    CHECK_STATUS(tpcomm_barrier(comms[0], NULL), TPCOMM_ERR_BUSY);
    CHECK_OK(tpcomm_barrier(comms[1], NULL));
    CHECK_EQ(pthread_join(thread, NULL), 0);

    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        CHECK_STATUS(tpcomm_barrier(comms[0], NULL), TPCOMM_ERR_INVALID_STATE);
        CHECK_ERROR_HAS("fork");
        /* What it asks for would come about in its parent's job. */
        CHECK_STATUS(tpcomm_set_op_timeout(comms[0], 1), TPCOMM_ERR_INVALID_STATE);
        CHECK_STATUS(tpcomm_note_waits(comms[0], TPCOMM_ON), TPCOMM_ERR_INVALID_STATE);
        CHECK_STATUS(tpcomm_abort(comms[0], "of a child"), TPCOMM_ERR_INVALID_STATE);
        CHECK_ERROR_HAS("fork");
        CHECK_OK(tpcomm_destroy(comms[0]));
        CHECK_OK(tpcomm_destroy(comms[1]));
        _Exit(0);
    }
    int how = 0;
    CHECK_EQ(waitpid(child, &how, 0), child);
    CHECK(WIFEXITED(how) && WEXITSTATUS(how) == 0);
    CHECK_OK(tpcomm_async_status(comms[0], NULL));
    tpcomm_info_t facts = {.struct_size = sizeof facts};
    CHECK_OK(tpcomm_comm_info(comms[0], &facts));
    CHECK_EQ(facts.op_timeout_ms, config.op_timeout_ms);
    CHECK_EQ(pthread_create(&thread, NULL, call_in_thread, comms[0]), 0);
    CHECK_OK(tpcomm_barrier(comms[1], NULL));
    CHECK_EQ(pthread_join(thread, NULL), 0);
    CHECK_OK(tpcomm_destroy(comms[0]));
    CHECK_OK(tpcomm_destroy(comms[1]));
}

static void init_arguments(void) {
    tpcomm_t *comm = (void *)1;
    tpcomm_unique_id_t id = {{0}};
    tpcomm_config_t config = ranks_config();
    CHECK_STATUS(tpcomm_init_env(NULL, &comm), TPCOMM_ERR_CONFIG); /* no launcher */
    CHECK(comm == NULL);
    CHECK_ERROR_HAS("tpcomm-bench run");
    CHECK_STATUS(tpcomm_init_env(NULL, NULL), TPCOMM_ERR_INVALID_ARG);
    CHECK_STATUS(tpcomm_init_rank(&id, 0, 0, NULL, &comm), TPCOMM_ERR_INVALID_ARG);
    CHECK_STATUS(tpcomm_init_rank(&id, 2, 2, NULL, &comm), TPCOMM_ERR_INVALID_ARG);
    CHECK_STATUS(tpcomm_init_rank(&id, -1, 2, NULL, &comm), TPCOMM_ERR_INVALID_ARG);
    CHECK_STATUS(tpcomm_init_rank(&id, 0, TPCOMM_MAX_RANKS + 1, NULL, &comm), TPCOMM_ERR_INVALID_ARG);
    CHECK_STATUS(tpcomm_init_rank(NULL, 0, 2, NULL, &comm), TPCOMM_ERR_INVALID_ARG);
    CHECK_STATUS(tpcomm_init_rank(&id, 0, 2, NULL, &comm), TPCOMM_ERR_INVALID_ARG); /* no id of ours */
    CHECK_STATUS(tpcomm_init_exchange(0, 2, NULL, NULL, NULL, &comm), TPCOMM_ERR_INVALID_ARG);
    CHECK_STATUS(tpcomm_init_local(0, NULL, NULL, &comm), TPCOMM_ERR_INVALID_ARG);
    CHECK_STATUS(tpcomm_unique_id_create(NULL), TPCOMM_ERR_INVALID_ARG);
    CHECK_OK(tpcomm_destroy(NULL));
    config.struct_size = 1;
    CHECK_STATUS(tpcomm_init_local(1, NULL, &config, &comm), TPCOMM_ERR_INVALID_ARG);
    config = ranks_config();
    config.device_kind = TPCOMM_DEVICE_CUDA;
    CHECK_STATUS(tpcomm_init_local(1, NULL, &config, &comm), TPCOMM_ERR_UNSUPPORTED);
    CHECK_ERROR_HAS("cuda");
    config = ranks_config();
    config.device_kind = 9;
    CHECK_STATUS(tpcomm_init_local(1, NULL, &config, &comm), TPCOMM_ERR_INVALID_ARG);
    config = ranks_config();
    config.workspace_bytes = 1;
    CHECK_STATUS(tpcomm_init_local(2, NULL, &config, (tpcomm_t *[2]){0}), TPCOMM_ERR_CONFIG);
    CHECK_ERROR_HAS("workspace_bytes");
    config = ranks_config();
    config.deterministic = 3;
    CHECK_STATUS(tpcomm_init_local(1, NULL, &config, &comm), TPCOMM_ERR_INVALID_ARG);
}

int main(void) {
    tpcomm_config_t config = ranks_config();
    resources_t before = resources_now();
    ranks_run(RANKS_THREADS, 2, &config, body, NULL);
    ranks_run(RANKS_THREADS, 1, &config, lone_body, NULL);
    misuse();
    init_arguments();
    resources_check_equal(before, "after everything");
    return 0;
}
