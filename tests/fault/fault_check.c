/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Check TPCOMM_CHECK on the cpu device (W13): in every mode a call that differs in collective, count, dtype, op or
 * root is named on both sides on all ranks, and so are calls in another order. sync also refuses, before anything is
 * sent, memory that the process cannot read or write, and two ranks of a process in the same memory, with both ranges,
 * and the group goes on; waits end as they always do; results are what they are without it; while a stream is captured
 * nobody waits. In off and async nothing of that is on a call's way, and no system call but for waiting.
 */
#include <sys/mman.h>

#include "base/clock.h"
#include "multirank/mistakes.h"
#include "multirank/silence.h"

#define PAGE 4096u

static tpcomm_config_t config_of(tpcomm_check_t check) {
    tpcomm_config_t config = ranks_config();
    config.check = check;
    return config;
}

/* ------------------------------------------------------------------ what differs */

static void differs(rank_t *rank) {
    mistakes_run(rank, rank->arg, TPCOMM_PATH_AUTO);
}

static void other_path(rank_t *rank) {
    bool odd = rank->rank == 1;
    tpcomm_call_t call = MISTAKE_CALL(TPCOMM_ALL_REDUCE, TPCOMM_F32, TPCOMM_SUM, 0, 100);
    tpcomm_path_t path = odd ? TPCOMM_PATH_CPU_TWOSHOT : TPCOMM_PATH_CPU_ONESHOT;
    CHECK_STATUS(mistakes_make(rank->comm, &call, path), TPCOMM_ERR_MISMATCH);
    CHECK_ERROR_HAS("by cpu_oneshot");
    CHECK_ERROR_HAS("by cpu_twoshot");
}

static void other_order(rank_t *rank) {
    tpcomm_call_t a = MISTAKE_CALL(TPCOMM_ALL_REDUCE, TPCOMM_F32, TPCOMM_SUM, 0, 100),
                  b = MISTAKE_CALL(TPCOMM_ALL_REDUCE, TPCOMM_F32, TPCOMM_SUM, 0, 200);
    CHECK_STATUS(mistakes_make(rank->comm, rank->rank == 0 ? &a : &b, 0), TPCOMM_ERR_MISMATCH);
    CHECK_STATUS(mistakes_make(rank->comm, rank->rank == 0 ? &b : &a, 0), TPCOMM_ERR_MISMATCH);
    CHECK_ERROR_HAS("rank 0 called all_reduce seq 1 count 100 f32 sum");
    CHECK_ERROR_HAS("called all_reduce seq 1 count 200 f32 sum");
}

/* ------------------------------------------------------------------ sync: buffers */

/* Refused with these pieces; the group is as before, and nobody was told. */
static void refuse(tpcomm_t *comm, tpcomm_call_t call, const void *in, void *out, const char *a, const char *b) {
    call.in = in;
    call.out = out;
    CHECK_STATUS(tpcomm_call(comm, &call, NULL), TPCOMM_ERR_INVALID_ARG);
    CHECK_ERROR_HAS(a);
    CHECK_ERROR_HAS(b);
    CHECK_OK(tpcomm_async_status(comm, NULL));
}

static void buffers(rank_t *rank) {
    tpcomm_call_t sum = MISTAKE_CALL(TPCOMM_ALL_REDUCE, TPCOMM_F32, TPCOMM_SUM, 0, PAGE),
                  gather = MISTAKE_CALL(TPCOMM_ALL_GATHER, TPCOMM_F32, 0, 0, 100),
                  scatter = MISTAKE_CALL(TPCOMM_REDUCE_SCATTER, TPCOMM_F32, TPCOMM_SUM, 0, 100),
                  send = MISTAKE_CALL(TPCOMM_BROADCAST, TPCOMM_F32, 0, 1, PAGE);
    /* Four pages and eight: to read and write; to read; not even that; and none. */
    char *base = mmap(NULL, 40 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(base != MAP_FAILED);
    char *good = base, *fixed = base + 8 * PAGE, *closed = base + 16 * PAGE, *none = base + 24 * PAGE,
         *last = base + 32 * PAGE;
    char text[128];
    CHECK_EQ(mprotect(fixed, 8 * PAGE, PROT_READ), 0);
    CHECK_EQ(mprotect(closed, 8 * PAGE, PROT_NONE), 0);
    CHECK_EQ(munmap(none, 8 * PAGE), 0);
    if (rank->rank == 0) {
        snprintf(text, sizeof text, "out [%p, +16384)", (void *)fixed);
        refuse(rank->comm, sum, good, fixed, text, "may not write it at");
        snprintf(text, sizeof text, "in [%p, +16384)", (void *)closed);
        refuse(rank->comm, sum, closed, last, text, "may not read it at");
        snprintf(text, sizeof text, "nothing is mapped at %p", (void *)none);
        refuse(rank->comm, sum, none, last, "in [", text);
        refuse(rank->comm, sum, closed + 7 * PAGE, last, "in [",
               "may not read it at"); /* where it begins to be wrong */
        snprintf(text, sizeof text, "out [%p, +16384): this process may not write it at %p", (void *)(good + 6 * PAGE),
                 (void *)fixed);
        refuse(rank->comm, sum, last, good + 6 * PAGE, text, "(mapped r-");
        /* Overlaps that are neither apart nor in place, in every mode. */
        refuse(rank->comm, sum, good, good + 4, "in [", "overlap");
        refuse(rank->comm, gather, good + 4, good, "in [", "(the smaller at rank * count elements of the larger)");
        refuse(rank->comm, scatter, good, good + 400, "out [", "(the smaller at rank * count elements of the larger)");
        refuse(rank->comm, send, good, fixed, "out [", "may not write it at");
    }
    send.in = rank->rank == 1 ? fixed : none; /* looked at on root alone */
    send.out = good;
    CHECK_OK(tpcomm_call(rank->comm, &send, NULL));
    sum.in = fixed;
    sum.out = last;
    CHECK_OK(tpcomm_call(rank->comm, &sum, NULL));
    gather.in = good + (size_t)rank->rank * 400;
    gather.out = good;
    CHECK_OK(tpcomm_call(rank->comm, &gather, NULL));
    scatter.in = good;
    scatter.out = good + (size_t)rank->rank * 400;
    CHECK_OK(tpcomm_call(rank->comm, &scatter, NULL));
    float here[600] = {0}; /* the stack of a thread, or of the process */
    CHECK_OK(tpcomm_all_reduce(rank->comm, here, here, 600, TPCOMM_F32, TPCOMM_SUM, NULL));
    CHECK_EQ(munmap(base, 24 * PAGE), 0);
    CHECK_EQ(munmap(last, 8 * PAGE), 0);
}

static void norm_buffers(rank_t *rank) {
    enum { HIDDEN = 64, ROWS = 16 };
    static _Thread_local float in[ROWS * HIDDEN], out[ROWS * HIDDEN], residual[ROWS * HIDDEN], weight[HIDDEN];
    char *fixed = mmap(NULL, 2 * PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(fixed != MAP_FAILED);
    for (int i = 0; i < HIDDEN; i++) weight[i] = 1;
    for (int i = 0; i < ROWS * HIDDEN; i++) in[i] = 1;
    tpcomm_rms_norm_t norm = {.struct_size = sizeof norm,
                              .dtype = TPCOMM_F32,
                              .hidden = HIDDEN,
                              .tokens = ROWS,
                              .eps = 1e-5f,
                              .in = in,
                              .weight = weight,
                              .residual = fixed,
                              .out = out};
    if (rank->rank == 0) {
        CHECK_STATUS(tpcomm_all_reduce_rms_norm(rank->comm, &norm, NULL), TPCOMM_ERR_INVALID_ARG);
        CHECK_ERROR_HAS("residual [");
        CHECK_ERROR_HAS("may not write it at");
    }
    norm.residual = residual;
    norm.weight = (const float *)(const void *)fixed; /* zeros, that are only read: by two ranks at once, too */
    CHECK_OK(tpcomm_all_reduce_rms_norm(rank->comm, &norm, NULL));
    CHECK(residual[0] == (float)rank->size && out[5] == 0);
    norm.eps = rank->rank == 0 ? 1e-5f : 1e-6f;
    CHECK_STATUS(tpcomm_all_reduce_rms_norm(rank->comm, &norm, NULL), TPCOMM_ERR_MISMATCH);
    CHECK_ERROR_HAS("rank 0 called all_reduce_rms_norm seq 2");
    CHECK_ERROR_HAS("eps 9.99999997e-07");
    CHECK_EQ(munmap(fixed, 2 * PAGE), 0);
}

/* Threads of one process in one buffer. */
static float common[3000];

static void same_memory(rank_t *rank) {
    float mine[1000] = {0}, more[1000] = {0};
    char text[160];
    for (int turn = 0; turn < 2; turn++) {
        CHECK_STATUS(tpcomm_all_reduce(rank->comm, mine, common, 1000, TPCOMM_F32, TPCOMM_SUM, NULL),
                     TPCOMM_ERR_INVALID_ARG);
        snprintf(text, sizeof text, "rank 0's out [%p, +4000) and rank 1's out [%p, +4000) overlap", (void *)common,
                 (void *)common);
        CHECK_ERROR_HAS(text);
        CHECK_OK(tpcomm_async_status(rank->comm, NULL));
        CHECK_OK(tpcomm_all_reduce(rank->comm, mine, more, 1000, TPCOMM_F32, TPCOMM_SUM, NULL));
    }
    if (rank->rank < 2) CHECK_OK(tpcomm_all_reduce(rank->comm, common, mine, 1000, TPCOMM_F32, TPCOMM_SUM, NULL));
    if (rank->rank == 2)
        CHECK_OK(tpcomm_all_reduce(rank->comm, common + 500, mine, 1000, TPCOMM_F32, TPCOMM_SUM, NULL));
    /* What rank 1 only reads, rank 0 writes. */
    float *out = rank->rank == 0 ? common + 999 : more;
    CHECK_STATUS(
        tpcomm_all_reduce(rank->comm, rank->rank == 1 ? common : mine, out, 1000, TPCOMM_F32, TPCOMM_SUM, NULL),
        TPCOMM_ERR_INVALID_ARG);
    snprintf(text, sizeof text, "rank 0's out [%p, +4000) and rank 1's in [%p, +4000) overlap", (void *)(common + 999),
             (void *)common);
    CHECK_ERROR_HAS(text);
    CHECK_OK(tpcomm_barrier(rank->comm, NULL));
}

/* ------------------------------------------------------------------ sync: waits and results */

static void missing(rank_t *rank) {
    float x = 1;
    CHECK_OK(tpcomm_barrier(rank->comm, NULL));
    if (rank->rank == 1) {
        while (tpcomm_async_status(rank->comm, NULL) == TPCOMM_OK) usleep(1000);
    } else {
        uint64_t start = tpc_clock_ns();
        CHECK_OK(tpcomm_set_op_timeout(rank->comm, 300));
        CHECK_STATUS(tpcomm_all_reduce(rank->comm, &x, &x, 1, TPCOMM_F32, TPCOMM_SUM, NULL), TPCOMM_ERR_TIMEOUT);
        CHECK(tpc_clock_ns() - start < 20000000000u);
    }
    CHECK_STATUS(tpcomm_barrier(rank->comm, NULL), TPCOMM_ERR_TIMEOUT);
    CHECK_ERROR_HAS("TPCOMM_CHECK=sync");
    CHECK_ERROR_HAS("missing ranks: 1");
}

static void aborted(rank_t *rank) {
    float x = 1;
    if (rank->rank == 1) {
        usleep(100000);
        CHECK_OK(tpcomm_abort(rank->comm, "enough"));
    } else {
        CHECK_STATUS(tpcomm_all_reduce(rank->comm, &x, &x, 1, TPCOMM_F32, TPCOMM_SUM, NULL), TPCOMM_ERR_ABORTED);
        CHECK_ERROR_HAS("enough");
    }
    CHECK_STATUS(tpcomm_barrier(rank->comm, NULL), TPCOMM_ERR_ABORTED);
}

static void died(int32_t rank, int32_t size, void *arg) {
    (void)size, (void)arg;
    tpcomm_config_t config = config_of(TPCOMM_CHECK_SYNC);
    tpcomm_t *comm = NULL;
    float x = 1;
    CHECK_OK(tpcomm_init_env(&config, &comm));
    CHECK_OK(tpcomm_barrier(comm, NULL));
    if (rank == 1) _Exit(0);
    CHECK_STATUS(tpcomm_all_reduce(comm, &x, &x, 1, TPCOMM_F32, TPCOMM_SUM, NULL), TPCOMM_ERR_PEER_DIED);
    CHECK_OK(tpcomm_destroy(comm));
}

/* A call that fails on one rank while it agrees (memory): every rank's failure. */
static void fails(rank_t *rank) {
    float x = 1;
    CHECK_STATUS(tpcomm_all_reduce(rank->comm, &x, &x, 1, TPCOMM_F32, TPCOMM_SUM, NULL), TPCOMM_ERR_PEER_FAILED);
    CHECK_ERROR_HAS("rank 1 failed in all_reduce seq 1");
    CHECK_ERROR_HAS("hook: check_together");
}

static void works(rank_t *rank) {
    int32_t size = rank->size, me = rank->rank, all[8], one = me + 1;
    tpcomm_info_t info = {.struct_size = sizeof info};
    CHECK_OK(tpcomm_comm_info(rank->comm, &info));
    CHECK_EQ(info.check, *(const tpcomm_check_t *)rank->arg);
    for (int i = 0; i < 50; i++) {
        int32_t sum = one + i;
        CHECK_OK(tpcomm_all_reduce(rank->comm, &sum, &sum, 1, TPCOMM_I32, TPCOMM_SUM, NULL));
        CHECK_EQ(sum, size * (size + 1) / 2 + size * i);
        CHECK_OK(tpcomm_all_gather(rank->comm, &one, all, 1, TPCOMM_I32, NULL));
        for (int32_t r = 0; r < size; r++) CHECK_EQ(all[r], r + 1);
        CHECK_OK(tpcomm_host_barrier(rank->comm, 0));
        CHECK_OK(tpcomm_barrier(rank->comm, NULL));
    }
    CHECK_OK(tpcomm_all_reduce(rank->comm, NULL, NULL, 0, TPCOMM_I32, TPCOMM_SUM, NULL));
    tpcomm_t *group = NULL;
    CHECK_OK(tpcomm_group_split(rank->comm, me % 2, 0, "half", &group));
    int32_t both[2] = {me, me};
    CHECK_OK(tpcomm_batch_begin()); /* in one order for all, whatever each calls first */
    CHECK_OK(tpcomm_all_reduce(me == 0 ? group : rank->comm, &both[me == 0], &both[me == 0], 1, TPCOMM_I32, TPCOMM_MAX,
                               NULL));
    CHECK_OK(tpcomm_all_reduce(me == 0 ? rank->comm : group, &both[me != 0], &both[me != 0], 1, TPCOMM_I32, TPCOMM_MAX,
                               NULL));
    CHECK_OK(tpcomm_batch_end());
    CHECK_EQ(both[0], size - 1);
    CHECK_EQ(both[1], (size - 1) % 2 == me % 2 ? size - 1 : size - 2);
    CHECK_OK(tpcomm_graph_capture_begin(rank->comm));
    CHECK_OK(tpcomm_barrier(rank->comm, NULL));
    CHECK_OK(tpcomm_graph_capture_end(rank->comm));
    CHECK_OK(tpcomm_finalize(group));
    CHECK_OK(tpcomm_destroy(group));
}

static void says(rank_t *rank) {
    tpcomm_call_t call = MISTAKE_CALL(TPCOMM_ALL_REDUCE, TPCOMM_F32, TPCOMM_SUM, 0, 100);
    char text[4096];
    CHECK_OK(tpcomm_explain_text(rank->comm, &call, text, sizeof text));
    if (strstr(text, rank->arg) == NULL) FAIL("\"%s\" does not have \"%s\"", text, (const char *)rank->arg);
}

/* As if captured: only rank 0 calls, and nobody waits for the other. */
static void captured(rank_t *rank) {
    float x = 1;
    if (rank->rank == 0) {
        for (int i = 0; i < 3; i++) CHECK_OK(tpcomm_all_reduce(rank->comm, &x, &x, 1, TPCOMM_F32, TPCOMM_SUM, NULL));
        CHECK_STATUS(tpcomm_all_reduce(rank->comm, &x, (float *)(uintptr_t)64, 1, TPCOMM_F32, TPCOMM_SUM, NULL),
                     TPCOMM_ERR_INVALID_ARG);
        CHECK_ERROR_HAS("nothing is mapped at 0x40");
    }
    CHECK_OK(tpcomm_host_barrier(rank->comm, 0));
}

/* ------------------------------------------------------------------ off and async: nothing on the way */

static void call(rank_t *rank) {
    static float data[100000];
    for (int i = 0; i < 200; i++) {
        CHECK_OK(tpcomm_all_reduce(rank->comm, data, data, i % 4 == 0 ? 100000 : 1000, TPCOMM_F32, TPCOMM_SUM, NULL));
        CHECK_OK(tpcomm_broadcast(rank->comm, data, data, 1000, TPCOMM_F32, i % 2, NULL));
        CHECK_OK(tpcomm_barrier(rank->comm, NULL));
    }
}

static void silent(rank_t *rank) {
    silence_run(rank, call);
}

int main(void) {
    tpcomm_config_t config;
    for (tpcomm_check_t check = TPCOMM_CHECK_OFF; check <= TPCOMM_CHECK_SYNC; check++) {
        config = config_of(check);
        for (int kind = 0; kind < RANKS_KINDS; kind++) {
            for (size_t m = 0; m < MISTAKES; m++) ranks_run(kind, 3, &config, differs, (void *)(uintptr_t)&mistakes[m]);
            ranks_run(kind, 2, &config, other_order, NULL);
            ranks_run(kind, 2, &config, other_path, NULL);
            ranks_run(kind, 3, &config, works, &check);
        }
    }
    config = config_of(TPCOMM_CHECK_SYNC);
    for (int kind = 0; kind < RANKS_KINDS; kind++) {
        ranks_run(kind, 2, &config, buffers, NULL);
        ranks_run(kind, 3, &config, norm_buffers, NULL);
        ranks_set_hooks("set@last_word_ms:20000"); /* of rank 0, which knows who is missing, however late it is */
        ranks_run(kind, 3, &config, missing, NULL);
        ranks_set_hooks("");
        ranks_run(kind, 3, &config, aborted, NULL);
    }
    ranks_run(RANKS_THREADS, 3, &config, same_memory, NULL);
    ranks_fork(3, died, NULL);
    ranks_run(RANKS_THREADS, 2, &config, says, "check sync: the ranks agree on each call before it begins");
    ranks_set_hooks("fail@check_together:1");
    ranks_run(RANKS_PROCESSES, 3, &config, fails, NULL);
    ranks_set_hooks("set@capture:7;fail@check_together:*");
    ranks_run(RANKS_PROCESSES, 2, &config, captured, NULL);

    /* Whoever passes one of these points fails. */
    ranks_set_hooks("fail@check_together:*;fail@check_ranges:*");
    for (tpcomm_check_t check = 0; check <= TPCOMM_CHECK_ASYNC; check++) {
        config = config_of(check);
        ranks_run(RANKS_PROCESSES, 2, &config, silent, NULL);
    }
    ranks_set_hooks("");
    ranks_run(RANKS_THREADS, 2, &config, says, "check async: the path compares each call itself");
    config = config_of(TPCOMM_CHECK_OFF);
    ranks_run(RANKS_THREADS, 2, &config, says, "check off: the path compares each call itself");
    config.check = 4;
    tpcomm_t *comm = NULL;
    CHECK_STATUS(tpcomm_init_local(1, NULL, &config, &comm), TPCOMM_ERR_INVALID_ARG);
    CHECK_ERROR_HAS("config.check is 4; allowed are 0 (default), 1 (off), 2 (async), 3 (sync)");
    return 0;
}
