/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Check tpcomm_graph_capture_begin and _end (G1): equal captures pass, and calls go on; unequal ones are MISMATCH on
 * every rank with both sides' first difference in the text, before anything is replayed; misuse is INVALID_STATE and
 * changes nothing; a rank that does not come, aborts or dies ends the wait of the others. 2 and 3 ranks, threads and
 * processes. The cpu device captures nothing; a test hook makes it take calls as if it did.
 */
#include <unistd.h>

#include "coordinator/comm.h"
#include "multirank/ranks.h"

static void reduce(rank_t *rank, size_t count) {
    float *data = calloc(count + 1, sizeof *data);
    CHECK(data != NULL);
    for (size_t i = 0; i < count; i++) data[i] = (float)(i % 64 + (size_t)rank->rank);
    CHECK_OK(tpcomm_all_reduce(rank->comm, data, data, count, TPCOMM_F32, TPCOMM_SUM, NULL));
    size_t ranks = (size_t)rank->size, offset = ranks * (ranks - 1) / 2;
    for (size_t i = 0; i < count; i++) CHECK(data[i] == (float)(ranks * (i % 64) + offset));
    free(data);
}

static void equal(rank_t *rank) {
    for (size_t calls = 0; calls <= 161; calls = calls * 6 + 1) {
        CHECK_OK(tpcomm_graph_capture_begin(rank->comm));
        for (size_t k = 0; k < calls; k++) reduce(rank, k * 11 % 500);
        CHECK_OK(tpcomm_graph_capture_end(rank->comm));
        reduce(rank, 1000);
    }
}

/* The cpu device runs the calls, so the rank with one more finds its peer at the end of the bracket. */
static void one_more_call(rank_t *rank) {
    static float data[100];
    CHECK_OK(tpcomm_graph_capture_begin(rank->comm));
    reduce(rank, 100);
    tpcomm_status_t status = rank->rank != 0
                                 ? tpcomm_graph_capture_end(rank->comm)
                                 : tpcomm_all_reduce(rank->comm, data, data, 100, TPCOMM_F32, TPCOMM_SUM, NULL);
    CHECK_EQ(status, TPCOMM_ERR_MISMATCH);
    CHECK_ERROR_HAS("all_reduce seq 2 count 100 f32 sum");
    CHECK_ERROR_HAS("barrier seq 2");
    CHECK_STATUS(tpcomm_graph_capture_end(rank->comm), TPCOMM_ERR_MISMATCH);
}

static void misuse(rank_t *rank) {
    static float data[4];
    CHECK_STATUS(tpcomm_graph_capture_begin(NULL), TPCOMM_ERR_INVALID_ARG);
    CHECK_STATUS(tpcomm_graph_capture_end(NULL), TPCOMM_ERR_INVALID_ARG);
    CHECK_STATUS(tpcomm_graph_capture_end(rank->comm), TPCOMM_ERR_INVALID_STATE);
    CHECK_ERROR_HAS("tpcomm_graph_capture_end without tpcomm_graph_capture_begin");
    CHECK_OK(tpcomm_graph_capture_begin(rank->comm));
    reduce(rank, 5);
    CHECK_STATUS(tpcomm_graph_capture_begin(rank->comm), TPCOMM_ERR_INVALID_STATE);
    CHECK_ERROR_HAS("open already, with 1 calls; brackets do not nest");
    CHECK_STATUS(tpcomm_finalize(rank->comm), TPCOMM_ERR_INVALID_STATE);
    CHECK_ERROR_HAS("tpcomm_graph_capture_end first");
    CHECK_OK(tpcomm_batch_begin());
    CHECK_OK(tpcomm_all_reduce(rank->comm, data, data, 4, TPCOMM_F32, TPCOMM_SUM, NULL));
    CHECK_STATUS(tpcomm_graph_capture_end(rank->comm), TPCOMM_ERR_INVALID_STATE);
    CHECK_ERROR_HAS("an open batch has 1 calls");
    CHECK_OK(tpcomm_batch_end());
    CHECK_OK(tpcomm_graph_capture_end(rank->comm)); /* nothing of that has hurt the bracket */
    CHECK_STATUS(tpcomm_graph_capture_end(rank->comm), TPCOMM_ERR_INVALID_STATE);
    reduce(rank, 5);
    /* An open bracket does not keep a communicator from being destroyed. */
    CHECK_OK(tpcomm_graph_capture_begin(rank->comm));
    CHECK_OK(tpcomm_host_barrier(rank->comm, 0));
    rank->finalized = true;
}

/* ------------------------------------------------------------------ as if captured */

typedef struct {
    uint64_t calls[3]; /* of each rank */
    uint64_t odd_call; /* of the last rank, whose count is another; 0: none */
    const char *text;
} captures_t;

static const captures_t captures[] = {
    {{3, 3, 3}, 0, NULL},
    {{10000, 10000, 10000}, 0, NULL},
    {{3, 2, 3},
     0,
     "tpcomm_graph_capture_end: rank 0 captured 3 calls in 1 graph, rank 1 captured 2 calls in 1 graph; first "
     "difference at call 3: rank 0 all_reduce count 4096 f32 sum by cpu_oneshot (call 3 of graph 1), rank 1 nothing"},
    {{0, 161, 161}, 0, "rank 0 captured 0 calls, rank 1 captured 161 calls in 1 graph; first difference at call 1"},
    {{161, 161, 161},
     77,
     "first difference at call 77: rank 0 all_reduce count 4096 f32 sum by cpu_oneshot (call 77 of graph 1), rank "},
    {{10000, 10000, 10000}, 10000, "first difference at call 10000: rank 0 all_reduce count 4096"},
};

static void captured(rank_t *rank) {
    static float data[4096];
    const captures_t *capture = rank->arg;
    CHECK_OK(tpcomm_graph_capture_begin(rank->comm));
    for (uint64_t k = 1; k <= capture->calls[rank->rank]; k++) {
        bool odd = k == capture->odd_call && rank->rank == rank->size - 1;
        CHECK_OK(tpcomm_all_reduce(rank->comm, data, data, odd ? 4095 : 4096, TPCOMM_F32, TPCOMM_SUM, NULL));
    }
    if (capture->text == NULL) {
        CHECK_OK(tpcomm_graph_capture_end(rank->comm));
        CHECK_OK(tpcomm_host_barrier(rank->comm, 0));
        return;
    }
    CHECK_STATUS(tpcomm_graph_capture_end(rank->comm), TPCOMM_ERR_MISMATCH);
    CHECK_ERROR_HAS(capture->text);
    if (capture->odd_call != 0) CHECK_ERROR_HAS("count 4095");
    /* For good. */
    tpcomm_error_t error = {.struct_size = sizeof error};
    CHECK_STATUS(tpcomm_async_status(rank->comm, &error), TPCOMM_ERR_MISMATCH);
    CHECK_STATUS(tpcomm_graph_capture_begin(rank->comm), TPCOMM_ERR_MISMATCH);
    CHECK_STATUS(tpcomm_host_barrier(rank->comm, 0), TPCOMM_ERR_MISMATCH);
}

/* ------------------------------------------------------------------ ranks that do not come */

static void wait_until_broken(rank_t *rank) {
    while (tpcomm_async_status(rank->comm, NULL) == TPCOMM_OK) usleep(1000);
}

static void missing(rank_t *rank) {
    CHECK_OK(tpcomm_graph_capture_begin(rank->comm));
    CHECK_OK(tpcomm_barrier(rank->comm, NULL));
    if (rank->rank == 1) {
        /* Past the end's own barrier, but not at the exchange. */
        CHECK_OK(tpcomm_barrier(rank->comm, NULL));
        wait_until_broken(rank);
    }
    rank->comm->world->settings->init_timeout_ms = 1500; /* now that all are here */
    CHECK_STATUS(tpcomm_graph_capture_end(rank->comm), TPCOMM_ERR_TIMEOUT);
    CHECK_ERROR_HAS("tpcomm_graph_capture_end");
    CHECK_ERROR_HAS("missing ranks: 1");
}

static void aborted(rank_t *rank) {
    CHECK_OK(tpcomm_graph_capture_begin(rank->comm));
    reduce(rank, 3);
    if (rank->rank == 1) CHECK_OK(tpcomm_abort(rank->comm, "no memory for this graph"));
    CHECK_STATUS(tpcomm_graph_capture_end(rank->comm), TPCOMM_ERR_ABORTED);
    CHECK_ERROR_HAS("no memory for this graph");
    CHECK_STATUS(tpcomm_graph_capture_begin(rank->comm), TPCOMM_ERR_ABORTED);
}

static void dead(rank_t *rank) {
    CHECK_OK(tpcomm_graph_capture_begin(rank->comm));
    reduce(rank, 3);
    if (rank->rank == rank->size - 1) _Exit(0);
    CHECK_STATUS(tpcomm_graph_capture_end(rank->comm), TPCOMM_ERR_PEER_DIED);
}

int main(void) {
    tpcomm_config_t config = ranks_config();
    for (int kind = 0; kind < RANKS_KINDS; kind++)
        for (int32_t size = 1; size <= 3; size++) {
            printf("%d %s\n", size, ranks_kind_name(kind));
            fflush(stdout);
            ranks_run(kind, size, &config, equal, NULL);
            if (size == 1) continue;
            ranks_run(kind, size, &config, one_more_call, NULL);
            ranks_run(kind, size, &config, aborted, NULL);
            if (size == 2) {
                ranks_run(kind, size, &config, misuse, NULL);
                ranks_run(kind, size, &config, missing, NULL);
            }
            if (kind == RANKS_PROCESSES) ranks_run(kind, size, &config, dead, NULL);
            ranks_set_hooks("set@capture:1");
            for (size_t c = 0; c < sizeof captures / sizeof *captures; c++)
                ranks_run(kind, size, &config, captured, (void *)&captures[c]);
            ranks_set_hooks("");
        }
    return 0;
}
