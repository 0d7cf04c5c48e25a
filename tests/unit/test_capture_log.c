/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Check that ranks which captured the same agree in one step, that any difference is named with its place and both
 * sides, alike on all ranks, and that long captures take bounded memory (G1): 2 to 4 ranks, captures of up to 40000
 * calls, a difference at every place.
 */
#include <pthread.h>

#include "base/error.h"
#include "check.h"
#include "graph_capture/capture.h"

/* ------------------------------------------------------------------ ranks that are threads, and their all-gather */

enum { RANKS_MAX = 4 };

typedef struct {
    int32_t size;
    pthread_barrier_t barrier;
    unsigned char told[RANKS_MAX][1024];
    int fails_at; /* this step and all after it fail; 0: none */
} meeting_t;

typedef struct {
    meeting_t *meeting;
    int32_t rank;
    int steps;
    tpc_capture_log_t *log;
    tpcomm_status_t status;
    char text[TPC_ERROR_BYTES];
} rank_t;

static tpcomm_status_t exchange(void *arg, const void *mine, size_t bytes, void *all) {
    rank_t *rank = arg;
    meeting_t *meeting = rank->meeting;
    rank->steps++;
    if (meeting->fails_at != 0 && rank->steps >= meeting->fails_at)
        return tpc_error(TPCOMM_ERR_TIMEOUT, "step %d failed", rank->steps);
    CHECK(bytes <= sizeof meeting->told[0]);
    memcpy(meeting->told[rank->rank], mine, bytes);
    pthread_barrier_wait(&meeting->barrier);
    for (int32_t r = 0; r < meeting->size; r++)
        memcpy((unsigned char *)all + (size_t)r * bytes, meeting->told[r], bytes);
    pthread_barrier_wait(&meeting->barrier);
    return TPCOMM_OK;
}

static void *compare(void *arg) {
    rank_t *rank = arg;
    rank->status = tpc_capture_log_compare(rank->log, rank->meeting->size, exchange, rank);
    snprintf(rank->text, sizeof rank->text, "%s", rank->status == TPCOMM_OK ? "" : tpcomm_last_error());
    return NULL;
}

/* Every rank's verdict, which must be the same; the text goes to text_p, and the steps are returned. */
static int verdict(int32_t size, tpc_capture_log_t **logs, int fails_at, tpcomm_status_t want, char *text_p) {
    meeting_t meeting = {.size = size, .fails_at = fails_at};
    rank_t ranks[RANKS_MAX];
    pthread_t threads[RANKS_MAX];
    CHECK_EQ(pthread_barrier_init(&meeting.barrier, NULL, (unsigned)size), 0);
    for (int32_t r = 0; r < size; r++) {
        ranks[r] = (rank_t){.meeting = &meeting, .rank = r, .log = logs[r]};
        CHECK_EQ(pthread_create(&threads[r], NULL, compare, &ranks[r]), 0);
    }
    for (int32_t r = 0; r < size; r++) CHECK_EQ(pthread_join(threads[r], NULL), 0);
    CHECK_EQ(pthread_barrier_destroy(&meeting.barrier), 0);
    for (int32_t r = 0; r < size; r++) {
        if (ranks[r].status != want) FAIL("rank %d: status %d, want %d: %s", r, ranks[r].status, want, ranks[r].text);
        if (strcmp(ranks[r].text, ranks[0].text) != 0)
            FAIL("rank %d says %s, rank 0 %s", r, ranks[r].text, ranks[0].text);
        CHECK_EQ(ranks[r].steps, ranks[0].steps);
    }
    if (text_p != NULL) snprintf(text_p, TPC_ERROR_BYTES, "%s", ranks[0].text);
    return ranks[0].steps;
}

/* ------------------------------------------------------------------ captures */

/* The k-th call of a model's forward pass, as one rank sees it: its own number, tag and times differ. */
static tpc_flight_record_t call_at(uint64_t k, int32_t rank) {
    return (tpc_flight_record_t){.seq = 100 * (uint64_t)rank + k + 7,
                                 .count = 4096 * (k % 3 + 1),
                                 .tag = (uint64_t)rank,
                                 .start_ns = k * 10 + (uint64_t)rank,
                                 .end_ns = k * 10 + 5 + (uint64_t)rank,
                                 .coll = k % 7 == 6 ? TPCOMM_BROADCAST : TPCOMM_ALL_REDUCE,
                                 .dtype = TPCOMM_BF16,
                                 .op = TPCOMM_SUM,
                                 .root = k % 7 == 6 ? 1 : rank, /* looked at by a broadcast alone */
                                 .path = TPCOMM_PATH_ONESHOT};
}

static tpc_capture_log_t *log_of(int32_t rank, uint64_t calls, uint64_t per_graph) {
    tpc_capture_log_t *log = NULL;
    tpc_capture_t capture = {0};
    CHECK_OK(tpc_capture_log_new(&log));
    capture.log = log;
    for (uint64_t k = 0; k < calls; k++) {
        bool first = false;
        tpc_flight_record_t call = call_at(k, rank);
        /* Ids of captures mean nothing between ranks. */
        uint64_t ordinal = per_graph == 0 ? 0 : tpc_capture_next(&capture, 17 + (uint64_t)rank + k / per_graph, &first);
        CHECK(per_graph == 0 || first == (k % per_graph == 0));
        tpc_capture_note(&capture, &call, ordinal);
    }
    CHECK_EQ(log->count, calls);
    CHECK(log->room <= TPC_CAPTURE_CALLS);
    return log;
}

static void free_all(int32_t size, tpc_capture_log_t **logs) {
    for (int32_t r = 0; r < size; r++) tpc_capture_log_free(logs[r]);
}

static void equal_captures(void) {
    static const uint64_t lengths[] = {0, 1, 2, 3, 161, 255, 256, 257, 10000, TPC_CAPTURE_CALLS, 40000};
    for (size_t l = 0; l < sizeof lengths / sizeof *lengths; l++)
        for (int32_t size = 1; size <= RANKS_MAX; size++) {
            tpc_capture_log_t *logs[RANKS_MAX];
            for (int32_t r = 0; r < size; r++) logs[r] = log_of(r, lengths[l], l % 2 == 0 ? 0 : 161);
            CHECK_EQ(verdict(size, logs, 0, TPCOMM_OK, NULL), 1);
            free_all(size, logs);
        }
}

static void number_of_calls(void) {
    tpc_capture_log_t *logs[2] = {log_of(0, 3, 3), log_of(1, 2, 2)};
    char text[TPC_ERROR_BYTES];
    verdict(2, logs, 0, TPCOMM_ERR_MISMATCH, text);
    static const char want[] =
        "rank 0 captured 3 calls in 1 graph, rank 1 captured 2 calls in 1 graph; first difference at call 3: rank 0 "
        "all_reduce count 12288 bf16 sum by oneshot (call 3 of graph 1), rank 1 nothing";
    if (strcmp(text, want) != 0) FAIL("got  %s\nwant %s", text, want);
    free_all(2, logs);

    logs[0] = log_of(0, 0, 0), logs[1] = log_of(1, 1, 0);
    verdict(2, logs, 0, TPCOMM_ERR_MISMATCH, text);
    static const char none[] = "rank 0 captured 0 calls, rank 1 captured 1 call; first difference at call 1: rank 0 "
                               "nothing, rank 1 all_reduce count 4096 bf16 sum by oneshot";
    if (strcmp(text, none) != 0) FAIL("got  %s\nwant %s", text, none);
    free_all(2, logs);

    /* The same calls, in other graphs. */
    logs[0] = log_of(0, 4, 4), logs[1] = log_of(1, 4, 2);
    verdict(2, logs, 0, TPCOMM_ERR_MISMATCH, text);
    CHECK(strstr(text, "rank 0 captured 4 calls in 1 graph, rank 1 captured 4 calls in 2 graphs; first difference at "
                       "call 3: rank 0 all_reduce count 12288 bf16 sum by oneshot (call 3 of graph 1), rank 1 "
                       "all_reduce count 12288 bf16 sum by oneshot (call 1 of graph 2)") != NULL);
    free_all(2, logs);
}

/* One rank of several has one call otherwise, at each place. */
static void one_call(void) {
    enum { CALLS = 37 };
    for (int32_t odd = 0; odd < 3; odd++)
        for (uint64_t at = 0; at < CALLS; at++) {
            tpc_capture_log_t *logs[3];
            for (int32_t r = 0; r < 3; r++) {
                CHECK_OK(tpc_capture_log_new(&logs[r]));
                for (uint64_t k = 0; k < CALLS; k++) {
                    tpc_flight_record_t call = call_at(k, r);
                    if (r == odd && k == at) call.count++;
                    tpc_capture_log_add(logs[r], &call, 0);
                }
            }
            char text[TPC_ERROR_BYTES], want[TPC_ERROR_BYTES];
            int steps = verdict(3, logs, 0, TPCOMM_ERR_MISMATCH, text);
            CHECK(steps <= 9);
            unsigned long long count = 4096 * (at % 3 + 1);
            snprintf(want, sizeof want, "first difference at call %llu: rank 0 %s count %llu",
                     (unsigned long long)at + 1, at % 7 == 6 ? "broadcast" : "all_reduce",
                     odd == 0 ? count + 1 : count);
            if (strstr(text, want) == NULL) FAIL("got %s, want %s in it", text, want);
            snprintf(want, sizeof want, "rank %d %s count %llu", odd == 0 ? 1 : odd,
                     at % 7 == 6 ? "broadcast" : "all_reduce", odd == 0 ? count : count + 1);
            if (strstr(text, want) == NULL) FAIL("got %s, want %s in it", text, want);
            free_all(3, logs);
        }
}

/* Each argument that must be equal; those that may differ are covered by equal_captures. */
static void every_argument(void) {
    for (int which = 0; which < 6; which++) {
        tpc_capture_log_t *logs[2];
        for (int32_t r = 0; r < 2; r++) {
            tpc_flight_record_t call = {.coll = TPCOMM_ALL_REDUCE,
                                        .dtype = TPCOMM_F32,
                                        .op = TPCOMM_SUM,
                                        .count = 8,
                                        .path = TPCOMM_PATH_ONESHOT};
            if (which == 5) call.coll = TPCOMM_BROADCAST;
            if (r == 1 && which == 0) call.coll = TPCOMM_BARRIER;
            if (r == 1 && which == 1) call.dtype = TPCOMM_BF16;
            if (r == 1 && which == 2) call.op = TPCOMM_MAX;
            if (r == 1 && which == 3) call.count = 0;
            if (r == 1 && which == 4) call.path = TPCOMM_PATH_LOCAL;
            if (r == 1 && which == 5) call.root = 1;
            CHECK_OK(tpc_capture_log_new(&logs[r]));
            tpc_capture_log_add(logs[r], &call, 1);
        }
        char text[TPC_ERROR_BYTES];
        verdict(2, logs, 0, TPCOMM_ERR_MISMATCH, text);
        static const char *const want[] = {"rank 1 barrier by",
                                           "rank 1 all_reduce count 8 bf16",
                                           "rank 1 all_reduce count 8 f32 max",
                                           "rank 1 all_reduce count 0",
                                           "rank 1 all_reduce count 8 f32 sum by local",
                                           "rank 1 broadcast count 8 f32 root 1"};
        if (strstr(text, want[which]) == NULL) FAIL("got %s, want %s in it", text, want[which]);
        free_all(2, logs);
    }
}

/* The same of calls with a norm, whose rows are arguments too. */
static void every_argument_of_rows(void) {
    static const char *const want[] = {"hidden 64", "weight f32", "eps 0.5",
                                       "bias 1",    "f8_token",   "without out and sum"};
    for (int which = 0; which < 6; which++) {
        tpc_capture_log_t *logs[2];
        for (int32_t r = 0; r < 2; r++) {
            float weight[64] = {0};
            tpcomm_rms_norm_t norm = {.struct_size = sizeof norm,
                                      .dtype = TPCOMM_BF16,
                                      .weight_dtype = TPCOMM_BF16,
                                      .hidden = 32,
                                      .tokens = 4,
                                      .eps = 0.25f,
                                      .in = weight,
                                      .out = weight,
                                      .in_stride = 32,
                                      .out_stride = 32,
                                      .sum_stride = 32};
            if (r == 1 && which == 0) norm.hidden = 64, norm.tokens = 2, norm.in_stride = 64, norm.out_stride = 64;
            if (r == 1 && which == 1) norm.weight_dtype = TPCOMM_F32;
            if (r == 1 && which == 2) norm.eps = 0.5f;
            if (r == 1 && which == 3) norm.weight_bias = 1;
            if (r == 1 && which == 4) norm.quant = TPCOMM_QUANT_F8_TOKEN;
            if (r == 1 && which == 5) norm.out = NULL;
            tpc_flight_record_t call = {.coll = TPCOMM_ALL_REDUCE_RMS_NORM,
                                        .dtype = TPCOMM_BF16,
                                        .op = TPCOMM_SUM,
                                        .count = 128, /* the same, whatever the rows */
                                        .path = TPCOMM_PATH_FUSED_ONESHOT,
                                        .rows = tpc_rows_of(&norm, false)};
            CHECK_OK(tpc_capture_log_new(&logs[r]));
            tpc_capture_log_add(logs[r], &call, 1);
        }
        char text[TPC_ERROR_BYTES];
        verdict(2, logs, 0, TPCOMM_ERR_MISMATCH, text);
        const char *theirs = strstr(text, "rank 1 all_reduce_rms_norm");
        if (theirs == NULL || strstr(theirs, want[which]) == NULL) FAIL("got %s, want %s of rank 1", text, want[which]);
        free_all(2, logs);
    }
}

/* A difference behind what is kept is found, and said to be there. */
static void long_captures(void) {
    tpc_capture_log_t *logs[2] = {log_of(0, 40000, 161), log_of(1, 39999, 161)};
    char text[TPC_ERROR_BYTES];
    CHECK(verdict(2, logs, 0, TPCOMM_ERR_MISMATCH, text) <= 18);
    CHECK(strstr(text,
                 "rank 0 captured 40000 calls in 249 graphs, rank 1 captured 39999 calls in 249 graphs; the first "
                 "16384 calls are equal, what follows was not kept") != NULL);
    free_all(2, logs);

    /* One rank has kept all it captured, and the other goes on. */
    logs[0] = log_of(0, TPC_CAPTURE_CALLS, 0), logs[1] = log_of(1, TPC_CAPTURE_CALLS + 1, 0);
    verdict(2, logs, 0, TPCOMM_ERR_MISMATCH, text);
    CHECK(strstr(text, "the first 16384 calls are equal") != NULL);
    free_all(2, logs);
}

/* Whatever step fails, the ranks end alike. */
static void failing_exchange(void) {
    for (int step = 1; step <= 8; step++) {
        tpc_capture_log_t *logs[2] = {log_of(0, 60, 0), log_of(1, 61, 0)};
        char text[TPC_ERROR_BYTES], want[32];
        CHECK_EQ(verdict(2, logs, step, TPCOMM_ERR_TIMEOUT, text), step);
        snprintf(want, sizeof want, "step %d failed", step);
        CHECK(strcmp(text, want) == 0);
        free_all(2, logs);
    }
}

int main(void) {
    equal_captures();
    number_of_calls();
    one_call();
    every_argument();
    every_argument_of_rows();
    long_captures();
    failing_exchange();
    return 0;
}
