/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Check the cpu workspace's layout for every group size and many limits (C1: gate, capacity and allocation are one
 * function): it stays within the limit, no two areas overlap, every chunk and share has room, lines are aligned.
 */
#include "check.h"
#include "cpu_backend/layout.h"

static void check(int32_t size, uint64_t limit) {
    tpc_agreed_t agreed = {.size = size, .device_kind = TPCOMM_DEVICE_CPU, .workspace_bytes = limit};
    tpc_cpu_layout_t layout;
    CHECK_OK(tpc_cpu_layout(&agreed, &layout));
    CHECK(layout.data_bytes / (size_t)size <= limit);
    CHECK_EQ(layout.data_bytes, (size_t)size * layout.rank_stride);
    if (size == 1) return;
    CHECK(layout.chunk_bytes >= 4096);
    CHECK_EQ(layout.chunk_bytes % TPC_CPU_LINE, 0);
    CHECK_EQ(layout.answer_offset, TPC_CPU_LINE + layout.chunk_bytes);
    CHECK(layout.parity_stride >= layout.answer_offset + TPC_CPU_LINE + layout.share_bytes);
    CHECK_EQ(layout.parity_stride % 4096, 0);
    CHECK_EQ(layout.rank_stride, 2 * layout.parity_stride);
    /* The largest share of a full chunk, for every element size: whole lines a rank. */
    for (size_t element = 1; element <= 8; element *= 2) {
        size_t count = layout.chunk_bytes / element, per_line = TPC_CPU_LINE / element;
        size_t share = ((count + (size_t)size - 1) / (size_t)size + per_line - 1) / per_line * per_line;
        CHECK(share * element <= layout.share_bytes);
    }
}

int main(void) {
    for (int32_t size = 1; size <= TPCOMM_MAX_RANKS; size++)
        for (uint64_t limit = 65536; limit <= (uint64_t)1 << 40; limit = limit * 3 / 2) check(size, limit);
    tpc_agreed_t agreed = {.size = 4, .device_kind = TPCOMM_DEVICE_CPU, .workspace_bytes = 1000};
    tpc_cpu_layout_t layout;
    CHECK_STATUS(tpc_cpu_layout(&agreed, &layout), TPCOMM_ERR_TOO_SMALL);
    CHECK_ERROR_HAS("1000");
    CHECK_ERROR_HAS("TPCOMM_WORKSPACE_BYTES");
    return 0;
}
