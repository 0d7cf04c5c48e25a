/* SPDX-License-Identifier: Apache-2.0 */
/* Check that a call of count 0 with NULL pointers succeeds and counts as a call, for every dtype, op and path (H19). */
#include "base/status.h"
#include "multirank/ranks.h"

static void body(rank_t *rank) {
    uint64_t seq = 0;
    for (tpcomm_dtype_t dtype = TPCOMM_F32; dtype <= TPCOMM_F8_E5M2; dtype++)
        for (tpcomm_op_t op = TPCOMM_SUM; op <= TPCOMM_PROD; op++) {
            tpcomm_status_t want = tpc_reduction_defined(dtype, op) ? TPCOMM_OK : TPCOMM_ERR_UNSUPPORTED;
            CHECK_STATUS(tpcomm_all_reduce(rank->comm, NULL, NULL, 0, dtype, op, NULL), want);
            seq += want == TPCOMM_OK;
        }
    CHECK_OK(tpcomm_barrier(rank->comm, NULL));
    seq++;
    for (int32_t r = 0; r < rank->size; r++) {
        tpcomm_rank_info_t info = {.struct_size = sizeof info};
        CHECK_OK(tpcomm_rank_info(rank->comm, r, &info));
        /* A peer may be in the runner's finalize already. */
        CHECK(info.seq == seq || (r != rank->rank && info.seq == seq + 1));
    }
}

int main(void) {
    tpcomm_config_t config = ranks_config();
    for (int kind = 0; kind < RANKS_KINDS; kind++)
        for (int32_t size = 1; size <= 4; size++) ranks_run(kind, size, &config, body, NULL);
    return 0;
}
