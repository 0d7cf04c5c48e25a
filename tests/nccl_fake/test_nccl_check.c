/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Check TPCOMM_CHECK where NCCL carries the calls, whose kernels compare nothing (W13): in async a call that
 * differs in collective, count, dtype, op or root breaks the group on all ranks, with both calls in the text, also
 * where one goes by NCCL and the other by another path, and where the two ranks are on different hosts; in sync the
 * same, before anything is sent; in off nobody finds it. In off and async a call makes no system call but for waiting,
 * and compares nothing itself.
 */
#include "base/clock.h"
#include "multirank/mistakes.h"
#include "multirank/silence.h"
#include "nccl_fake/fake.h"

static tpcomm_config_t config_of(tpcomm_check_t check) {
    tpcomm_config_t config = ranks_config();
    config.check = check;
    return config;
}

static void differs(rank_t *rank) {
    mistakes_run(rank, rank->arg, TPCOMM_PATH_NCCL);
}

static void other_path(rank_t *rank) {
    tpcomm_call_t call = MISTAKE_CALL(TPCOMM_ALL_REDUCE, TPCOMM_F32, TPCOMM_SUM, 0, 100);
    tpcomm_path_t path = rank->rank == 1 ? TPCOMM_PATH_CPU_ONESHOT : TPCOMM_PATH_NCCL;
    CHECK_STATUS(mistakes_make(rank->comm, &call, path), TPCOMM_ERR_MISMATCH);
    mistakes_check_broken(rank->comm, "rank 1 called all_reduce seq 1 count 100 f32 sum by cpu_oneshot");
    mistakes_check_broken(rank->comm, "called all_reduce seq 1 count 100 f32 sum by nccl");
}

static void other_order(rank_t *rank) {
    tpcomm_call_t a = MISTAKE_CALL(TPCOMM_ALL_REDUCE, TPCOMM_F32, TPCOMM_SUM, 0, 100),
                  b = MISTAKE_CALL(TPCOMM_ALL_REDUCE, TPCOMM_F32, TPCOMM_SUM, 0, 200);
    (void)mistakes_make(rank->comm, rank->rank == 0 ? &a : &b, TPCOMM_PATH_NCCL);
    (void)mistakes_make(rank->comm, rank->rank == 0 ? &b : &a, TPCOMM_PATH_NCCL);
    mistakes_check_broken(rank->comm, "rank 0 called all_reduce seq 1 count 100 f32 sum by nccl");
    mistakes_check_broken(rank->comm, "called all_reduce seq 1 count 200 f32 sum by nccl");
}

/* A sum here, a maximum there: NCCL does not mind. 350 ms are three of the looks that async takes. */
static void not_compared(rank_t *rank) {
    tpcomm_call_t call = MISTAKE_CALL(TPCOMM_ALL_REDUCE, TPCOMM_F32, rank->rank == 1 ? TPCOMM_MAX : TPCOMM_SUM, 0, 100);
    CHECK_OK(mistakes_make(rank->comm, &call, TPCOMM_PATH_NCCL));
    usleep(350000);
    check_sum(rank, TPCOMM_PATH_NCCL);
    CHECK_OK(tpcomm_async_status(rank->comm, NULL));
}

/* A great many calls in a short time, one of them another, far back when somebody looks. */
static void one_of_many(rank_t *rank) {
    tpcomm_call_t call = MISTAKE_CALL(TPCOMM_ALL_REDUCE, TPCOMM_F32, TPCOMM_SUM, 0, 1);
    for (int i = 0; i < 1500; i++) {
        call.op = rank->rank == 1 && i == 10 ? TPCOMM_MAX : TPCOMM_SUM;
        if (mistakes_make(rank->comm, &call, TPCOMM_PATH_NCCL) != TPCOMM_OK) break;
    }
    mistakes_check_broken(rank->comm,
                          "rank 1"); /* "called ...", or "made different calls" where it is not kept any more */
}

/* All ranks of a host call alike. */
static void other_host(rank_t *rank) {
    const mistake_t *mistake = rank->arg;
    tpcomm_call_t first = MISTAKE_CALL(TPCOMM_ALL_REDUCE, TPCOMM_I32, TPCOMM_SUM, 0, 1);
    bool is_odd = rank->rank >= 2;
    CHECK_OK(mistakes_make(rank->comm, &first, TPCOMM_PATH_NCCL));
    CHECK_OK(tpcomm_host_barrier(rank->comm, 0)); /* all have ended it: the group is about to break */
    (void)mistakes_make(rank->comm, is_odd ? &mistake->odd : &mistake->usual, TPCOMM_PATH_NCCL);
    mistakes_check_broken(rank->comm, mistake->odd_text);
    mistakes_check_broken(rank->comm, mistake->usual_text);
}

static void works(rank_t *rank) {
    for (int i = 0; i < 20; i++) {
        check_sum(rank, TPCOMM_PATH_NCCL);
        check_sum(rank, TPCOMM_PATH_AUTO);
    }
    /* Of NCCL's calls only sync knows who came last. */
    uint64_t last = 0;
    for (int32_t r = 0; r < rank->size; r++) {
        tpcomm_rank_info_t info = {.struct_size = sizeof info};
        CHECK_OK(tpcomm_rank_info(rank->comm, r, &info));
        last += info.times_last;
    }
    CHECK_EQ(last, *(const tpcomm_check_t *)rank->arg == TPCOMM_CHECK_SYNC ? 40 : 20);
}

static void says(rank_t *rank) {
    tpcomm_call_t call = MISTAKE_CALL(TPCOMM_ALL_REDUCE, TPCOMM_F32, TPCOMM_SUM, 0, 100);
    char text[4096];
    call.path = TPCOMM_PATH_NCCL;
    CHECK_OK(tpcomm_explain_text(rank->comm, &call, text, sizeof text));
    check_has(text, rank->arg);
}

static void call(rank_t *rank) {
    static float data[1000];
    for (int i = 0; i < 300; i++) CHECK_OK(call_nccl(rank->comm, data, 1000));
}

static void silent(rank_t *rank) {
    silence_run(rank, call);
}

int main(void) {
    tpcomm_config_t config;
    fake_use(FAKE, "");
    for (tpcomm_check_t check = TPCOMM_CHECK_ASYNC; check <= TPCOMM_CHECK_SYNC; check++) {
        config = config_of(check);
        for (int kind = 0; kind < RANKS_KINDS; kind++) {
            for (size_t m = 0; m < MISTAKES; m++) /* each as threads, every third as processes, too */
                if (kind == RANKS_THREADS || m % 3 == 0)
                    ranks_run(kind, 3, &config, differs, (void *)(uintptr_t)&mistakes[m]);
            ranks_run(kind, 2, &config, other_path, NULL);
            ranks_run(kind, 2, &config, other_order, NULL);
            ranks_run(kind, 3, &config, works, &check);
        }
        ranks_run(RANKS_PROCESSES, 2, &config, one_of_many, NULL);
    }
    ranks_set_hooks("set@nccl_on_cpu:1;set@threads_per_host:2");
    for (tpcomm_check_t check = TPCOMM_CHECK_ASYNC; check <= TPCOMM_CHECK_SYNC; check++) {
        config = config_of(check);
        for (size_t m = 0; m < MISTAKES; m += check == TPCOMM_CHECK_SYNC ? 3 : 1)
            ranks_run(RANKS_THREADS, 4, &config, other_host, (void *)(uintptr_t)&mistakes[m]);
    }
    ranks_set_hooks("set@nccl_on_cpu:1;fail@check_together:*;fail@check_ranges:*");
    for (tpcomm_check_t check = TPCOMM_CHECK_OFF; check <= TPCOMM_CHECK_ASYNC; check++) {
        config = config_of(check);
        ranks_run(RANKS_PROCESSES, 2, &config, silent, NULL);
    }
    fake_use(FAKE, "");
    ranks_run(RANKS_THREADS, 2, &config, says, "check async: the hosts compare the ranks' calls beside them");
    config = config_of(TPCOMM_CHECK_OFF);
    ranks_run(RANKS_THREADS, 2, &config, says, "check off: nothing compares the ranks' calls");
    ranks_run(RANKS_PROCESSES, 2, &config, not_compared, NULL);
    return 0;
}
