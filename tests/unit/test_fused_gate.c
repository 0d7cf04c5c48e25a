/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Check that the gate of the fused paths on GPUs is what a launch carries, to the byte, for every number of ranks,
 * limit of memory and width of rows: a path is refused just where not one row fits, and the fullest launch ends in its
 * half of the workspace.
 */
#include "check.h"
#include "custom_ar/share.h"
#include "fused/fused.h"
#include "fused/instances.h"

static void check_width(const tpc_agreed_t *agreed, tpcomm_path_t path, tpcomm_dtype_t dtype, int32_t hidden) {
    tpc_call_key_t key = {.coll = TPCOMM_ALL_REDUCE_RMS_NORM, .dtype = dtype, .op = TPCOMM_SUM, .hidden = hidden};
    const char *why_not = tpc_fused_backend.why_not(agreed, path, &key);
    bool twoshot = path == TPCOMM_PATH_FUSED_TWOSHOT;
    uint64_t slot = tpc_ar_slot_bytes(agreed), row = (uint64_t)hidden * tpcomm_dtype_size(dtype);
    uint64_t rows = tpc_fused_rows(twoshot ? TPC_FUSED_TWOSHOT : TPC_FUSED_ONESHOT, agreed->size, slot, row);
    uint64_t room = twoshot ? slot / 2 : slot, peers = (uint64_t)agreed->size - 1;
    if ((why_not == NULL) != (row <= room))
        FAIL("%s, %d ranks, slots of %llu, rows of %llu: %s", tpcomm_path_name(path), agreed->size,
             (unsigned long long)slot, (unsigned long long)row, why_not ? why_not : "taken");
    if (why_not != NULL) {
        CHECK(strstr(why_not, "larger than a slot") != NULL && rows == 0);
        return;
    }
    uint64_t of_owner = twoshot ? (rows + peers) / (peers + 1) : rows; /* the most that one slot holds */
    uint64_t end = (twoshot ? peers * room : 0) + (peers - 1) * room + of_owner * row;
    CHECK(rows > 0 && of_owner * row <= room && room % 16 == 0);
    CHECK(end <= tpc_ar_half_bytes(agreed->size, slot));
    CHECK((of_owner + 1) * row > room);
}

int main(void) {
    static const tpcomm_path_t paths[] = {TPCOMM_PATH_FUSED_ONESHOT, TPCOMM_PATH_FUSED_TWOSHOT};
    tpc_agreed_t agreed = {.device_kind = TPCOMM_DEVICE_CUDA, .topology = TPC_TOPOLOGY_SAME_GPU};
    int checked = 0;
    for (agreed.size = 2; agreed.size <= TPC_AR_MAX_RANKS; agreed.size++)
        for (agreed.workspace_bytes = 65536; agreed.workspace_bytes <= 64u << 20; agreed.workspace_bytes *= 2) {
            if (tpc_ar_slot_bytes(&agreed) == 0) continue;
            for (int32_t hidden = 8; hidden <= 16384; hidden += hidden < 256 ? 8 : 248)
                for (int p = 0; p < 2; p++, checked += 2) {
                    check_width(&agreed, paths[p], TPCOMM_F32, hidden);
                    check_width(&agreed, paths[p], TPCOMM_BF16, hidden);
                }
        }
    agreed.size = 2;
    tpc_call_key_t key = {.coll = TPCOMM_REDUCE_SCATTER_RMS_NORM, .dtype = TPCOMM_F32, .op = TPCOMM_SUM, .hidden = 8};
    CHECK(tpc_fused_backend.why_not(&agreed, TPCOMM_PATH_FUSED_ONESHOT, &key) == NULL);
    const char *why_not = tpc_fused_backend.why_not(&agreed, TPCOMM_PATH_FUSED_TWOSHOT, &key);
    CHECK(why_not != NULL && strstr(why_not, "one phase") != NULL);
    printf("%d widths\n", checked);
    CHECK(checked > 0);
    return 0;
}
