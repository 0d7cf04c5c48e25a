/* SPDX-License-Identifier: Apache-2.0 */
#include "cpu_backend/layout.h"

#include "base/error.h"

_Static_assert(sizeof(tpc_cpu_announcement_t) == TPC_CPU_LINE, "one cache line");
_Static_assert(sizeof(tpc_cpu_answer_t) == TPC_CPU_LINE, "one cache line");

#define PAGE_BYTES     4096u
#define LARGEST_CHUNK  131072u /* two parities of a few ranks stay in a core's L2 (1 to 2 MiB on today's servers) */
#define SMALLEST_CHUNK 4096u

static size_t round_up(size_t value, size_t unit) {
    return (value + unit - 1) / unit * unit;
}

static tpc_cpu_layout_t layout_for(int32_t size, size_t chunk) {
    tpc_cpu_layout_t layout = {.chunk_bytes = chunk};
    if (size > 1) {
        /* A share is rounded up to whole lines, hence the one more. */
        layout.share_bytes = round_up(chunk / (size_t)size, TPC_CPU_LINE) + TPC_CPU_LINE;
        layout.answer_offset = TPC_CPU_LINE + chunk;
        layout.parity_stride = round_up(layout.answer_offset + TPC_CPU_LINE + layout.share_bytes, PAGE_BYTES);
    }
    layout.rank_stride = 2 * layout.parity_stride;
    layout.data_bytes = (size_t)size * layout.rank_stride;
    return layout;
}

tpcomm_status_t tpc_cpu_layout(const tpc_agreed_t *agreed, tpc_cpu_layout_t *layout_p) {
    for (size_t chunk = LARGEST_CHUNK; chunk >= SMALLEST_CHUNK; chunk /= 2) {
        tpc_cpu_layout_t layout = layout_for(agreed->size, chunk);
        if (layout.data_bytes / (size_t)agreed->size > agreed->workspace_bytes) continue;
        *layout_p = layout;
        return TPCOMM_OK;
    }
    return tpc_error(TPCOMM_ERR_TOO_SMALL,
                     "TPCOMM_WORKSPACE_BYTES is %llu, but a group of %d ranks needs %zu bytes per rank",
                     (unsigned long long)agreed->workspace_bytes, agreed->size,
                     layout_for(agreed->size, SMALLEST_CHUNK).data_bytes / (size_t)agreed->size);
}
