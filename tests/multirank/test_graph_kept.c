/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Check that a communicator which captured graphs outlive leaves its memory mapped and its group broken until they are
 * gone, and that capture, destroy, init again leaves nothing behind: no mapping, descriptor or thread, 100 times (M1).
 * The cpu device captures nothing; a test hook makes it take calls as if it did, and the test lets go for the graphs.
 */
#include "coordinator/comm.h"
#include "multirank/ranks.h"

enum { RANKS = 2, CYCLES = 100 };

static void *finalize(void *comm) {
    CHECK_OK(tpcomm_finalize(comm));
    return NULL;
}

/* Each rank captures three calls; the group ends as it should, or not. */
static void cycle(bool graphs_first, bool finalizes) {
    tpcomm_config_t config = ranks_config();
    tpcomm_t *comms[RANKS];
    static float data[64];
    CHECK_OK(tpcomm_init_local(RANKS, NULL, &config, comms));
    for (int r = 0; r < RANKS; r++) {
        for (int k = 0; k < 3; k++) CHECK_OK(tpcomm_all_reduce(comms[r], data, data, 64, TPCOMM_F32, TPCOMM_SUM, NULL));
        CHECK_EQ(comms[r]->graphs.graphs, 1); /* one graph, however many calls */
        if (graphs_first) tpc_kept_drop(&comms[r]->graphs);
    }
    for (int r = 0; r < RANKS && finalizes; r++) finalize(comms[r]);
    for (int r = 0; r < RANKS; r++) CHECK_OK(tpcomm_destroy(comms[r]));
    if (graphs_first) return;
    CHECK_EQ(tpc_kept_sweep(), RANKS);
    for (int r = 0; r < RANKS; r++) {
        /* What a kernel in a graph looks at. */
        CHECK_EQ(tpc_failure_status(&comms[r]->failure), TPCOMM_ERR_ABORTED);
        tpc_kept_drop(&comms[r]->graphs);
    }
}

int main(void) {
    ranks_set_hooks("set@capture:1");
    cycle(true, true); /* what is made once for the process */
    CHECK_EQ(tpc_kept_sweep(), 0);
    resources_t before = resources_now();
    for (int i = 0; i < CYCLES; i++) {
        cycle(i % 2 == 0, i % 4 < 2);
        if (i % 10 == 9) {
            CHECK_EQ(tpc_kept_sweep(), 0);
            resources_check_equal(before, "after ten cycles");
        }
    }
    return 0;
}
