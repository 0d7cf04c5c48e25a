/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Check who is said to be late: of every collective on every path of the cpu device, in each mode of TPCOMM_CHECK, the
 * rank that comes last is counted on all ranks and no other, each call's record names it, and who waited has it in the
 * sums by path. The late rank calls once it has seen the others inside, so no clock decides.
 */
#include <sys/stat.h>
#include <unistd.h>

#include "multirank/ranks.h"

#define RANKS 3
#define COUNT 600

static _Atomic(tpcomm_t *) comms[RANKS];

static uint64_t seq_of(tpcomm_t *comm, int32_t rank) {
    tpcomm_rank_info_t info = {.struct_size = sizeof info};
    CHECK_OK(tpcomm_rank_info(comm, rank, &info));
    return info.seq;
}

static void await_others(int32_t me, uint64_t seq) {
    for (int32_t r = 0; r < RANKS; r++)
        for (int ms = 0; r != me && (comms[r] == NULL || seq_of(comms[r], r) < seq); ms++) {
            if (ms > 30000) FAIL("rank %d does not come to call %llu", r, (unsigned long long)seq);
            usleep(1000);
        }
}

static tpcomm_stats_t stats_of(const tpcomm_t *comm, tpcomm_path_t path) {
    tpcomm_stats_t stats = {.struct_size = sizeof stats};
    for (int32_t i = 0; tpcomm_stats(comm, i, &stats) == TPCOMM_OK; i++)
        if (stats.path == path) return stats;
    FAIL("no statistics of %s", tpcomm_path_name(path));
}

/* The records of a dump that say who was last; all of them must say late. */
static int count_last(tpcomm_t *comm, int32_t rank, int32_t late) {
    char path[64], *text = NULL;
    struct stat about;
    int found = 0;
    snprintf(path, sizeof path, "/tmp/tpcomm-stragglers-%d-%d.json", (int)getpid(), rank);
    CHECK_OK(tpcomm_flight_dump(comm, path));
    CHECK_EQ(stat(path, &about), 0);
    FILE *file = fopen(path, "r");
    CHECK(file != NULL && (text = calloc(1, (size_t)about.st_size + 1)) != NULL);
    CHECK_EQ(fread(text, 1, (size_t)about.st_size, file), about.st_size);
    fclose(file);
    unlink(path);
    char *end = strstr(text, "\"plane\":\"host\"");
    CHECK(end != NULL);
    *end = '\0';
    for (char *at = text; (at = strstr(at, "\"last_rank\":")) != NULL; at++) {
        CHECK_EQ(strtol(at + 12, NULL, 10), late);
        found++;
    }
    free(text);
    return found;
}

static void late(rank_t *rank) {
    static _Thread_local float in[RANKS * COUNT], out[RANKS * COUNT];
    static const struct {
        tpcomm_coll_t coll;
        tpcomm_path_t path;
    } calls[] = {{TPCOMM_ALL_REDUCE, TPCOMM_PATH_CPU_ONESHOT},
                 {TPCOMM_ALL_REDUCE, TPCOMM_PATH_CPU_TWOSHOT},
                 {TPCOMM_BROADCAST, 0},
                 {TPCOMM_ALL_GATHER, 0},
                 {TPCOMM_REDUCE_SCATTER, 0},
                 {TPCOMM_BARRIER, 0}};
    enum { CALLS = sizeof calls / sizeof *calls };
    int32_t late_rank = *(const int32_t *)rank->arg;
    comms[rank->rank] = rank->comm;
    for (uint64_t turn = 0; turn < 3; turn++)
        for (uint64_t c = 0; c < CALLS; c++) {
            tpcomm_call_t call = {.struct_size = sizeof call,
                                  .coll = calls[c].coll,
                                  .path = calls[c].path,
                                  .dtype = TPCOMM_F32,
                                  .op = TPCOMM_SUM,
                                  .root = 1,
                                  .in = in,
                                  .out = out,
                                  .count = COUNT};
            if (rank->rank == late_rank) await_others(late_rank, turn * CALLS + c + 1);
            CHECK_OK(tpcomm_call(rank->comm, &call, NULL));
        }
    for (int32_t r = 0; r < RANKS; r++) {
        tpcomm_rank_info_t info = {.struct_size = sizeof info};
        CHECK_OK(tpcomm_rank_info(rank->comm, r, &info));
        CHECK_EQ(info.times_last, r == late_rank ? 3 * CALLS : 0);
    }
    CHECK_EQ(count_last(rank->comm, rank->rank, late_rank), 3 * CALLS);
    for (int i = 0; i < 2; i++) {
        tpcomm_stats_t stats = stats_of(rank->comm, calls[i].path);
        CHECK(stats.skew_ns > 0 && stats.calls >= 3);
        CHECK_EQ(stats.waits, stats.calls);
        if (rank->rank != late_rank && stats.wait_ns == 0) FAIL("%s: no wait", tpcomm_path_name(calls[i].path));
    }
    CHECK_OK(tpcomm_host_barrier(rank->comm, 0)); /* nobody looks at a communicator that is gone */
}

int main(void) {
    for (tpcomm_check_t check = TPCOMM_CHECK_OFF; check <= TPCOMM_CHECK_SYNC; check++)
        for (int32_t late_rank = 0; late_rank < RANKS; late_rank++) {
            tpcomm_config_t config = ranks_config();
            config.check = check;
            for (int r = 0; r < RANKS; r++) comms[r] = NULL;
            ranks_run(RANKS_THREADS, RANKS, &config, late, &late_rank);
        }
    return 0;
}
