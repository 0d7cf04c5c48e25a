/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Check that a rank which waits long sleeps: its thread, and the watchdog's, use next to no processor while a peer is
 * two seconds late, in a collective and in a host message; and that more ranks than processors make progress (F13,
 * H14).
 */
#include <sys/resource.h>
#include <unistd.h>

#include "base/clock.h"
#include "multirank/ranks.h"

static double cpu_seconds(int who) {
    struct rusage usage;
    CHECK_EQ(getrusage(who, &usage), 0);
    return (double)usage.ru_utime.tv_sec + (double)usage.ru_stime.tv_sec +
           (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

static void late_peer(rank_t *rank) {
    CHECK_OK(tpcomm_barrier(rank->comm, NULL));
    for (int host = 0; host < 2; host++) {
        if (rank->rank == 1) usleep(2000000);
        double before = cpu_seconds(RUSAGE_SELF);
        uint64_t begun_ns = tpc_clock_ns();
        if (host)
            CHECK_OK(tpcomm_host_barrier(rank->comm, 0));
        else
            CHECK_OK(tpcomm_barrier(rank->comm, NULL));
        double used = cpu_seconds(RUSAGE_SELF) - before;
        double waited = (double)(tpc_clock_ns() - begun_ns) / 1e9;
        /* Of 2 s, or of as long as it took: rank 1 may be later still. */
        if (rank->rank != 1 && used > 0.1 * (waited > 2 ? waited : 2))
            FAIL("rank %d used %.3f s of processor in %.3f s of waiting", rank->rank, used, waited);
    }
}

static void crowd(rank_t *rank) {
    for (int i = 0; i < 200; i++) {
        int32_t x = i, sum = 0;
        CHECK_OK(tpcomm_all_reduce(rank->comm, &x, &sum, 1, TPCOMM_I32, TPCOMM_SUM, NULL));
        CHECK_EQ(sum, i * rank->size);
    }
}

int main(void) {
    tpcomm_config_t config = ranks_config();
    ranks_run(RANKS_PROCESSES, 3, &config, late_peer, NULL);
    for (int kind = 0; kind < RANKS_KINDS; kind++) ranks_run(kind, 16, &config, crowd, NULL);
    return 0;
}
