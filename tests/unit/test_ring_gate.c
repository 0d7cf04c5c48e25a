/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Check that one function divides a rank's device workspace: for every number of ranks and limit, slots and ring stay
 * in the limit, neither is larger than it pays, all kernels can address them, and the ring is refused, with the reason,
 * just where it has no memory; what it does not carry is refused by name.
 */
#include "check.h"
#include "custom_ar/custom_ar.h"
#include "custom_ar/share.h"

static const char *why_not(const tpc_agreed_t *agreed, tpcomm_coll_t coll, tpcomm_dtype_t dtype) {
    tpc_call_key_t key = {.coll = coll, .dtype = dtype, .op = TPCOMM_SUM, .bytes = 1 << 20};
    return tpc_custom_ar_backend.why_not(agreed, TPCOMM_PATH_RING, &key);
}

static void check_limit(const tpc_agreed_t *agreed) {
    size_t slot = tpc_ar_slot_bytes(agreed), bytes = tpc_ar_device_bytes(agreed);
    tpc_ar_ring_t ring = tpc_ar_ring(agreed);
    CHECK(bytes <= agreed->workspace_bytes && bytes < UINT32_MAX);
    CHECK_EQ(bytes == 0, slot == 0);
    const char *refused = why_not(agreed, TPCOMM_ALL_REDUCE, TPCOMM_BF16);
    CHECK_EQ(refused == NULL, ring.blocks > 0);
    if (refused != NULL) CHECK(strstr(refused, "TPCOMM_WORKSPACE_BYTES leaves no room for the ring"));
    if (ring.blocks == 0) {
        CHECK(slot == 0 || bytes == tpc_ar_workspace_bytes(agreed->size, slot));
        return;
    }
    CHECK(ring.blocks >= 16 && ring.blocks <= TPC_AR_MAX_BLOCKS && ring.piece_bytes % 16 == 0);
    CHECK(tpc_ar_ring_bytes(agreed->size, ring) <= agreed->workspace_bytes / 2 && slot >= 256 << 10);
    CHECK_EQ(bytes, tpc_ar_workspace_bytes(agreed->size, slot) + tpc_ar_ring_bytes(agreed->size, ring));
    CHECK(tpc_ar_workspace_bytes(agreed->size, slot) % TPC_AR_RING_LINE == 0);
}

int main(void) {
    tpc_agreed_t agreed = {.device_kind = TPCOMM_DEVICE_CUDA, .topology = TPC_TOPOLOGY_NVLINK};
    int rings = 0, none = 0;
    for (agreed.size = 2; agreed.size <= TPC_AR_MAX_RANKS; agreed.size++) {
        for (uint64_t limit = 65536; limit <= UINT64_C(1) << 40; limit *= 2)
            for (int off = -1; off <= 1; off++) {
                agreed.workspace_bytes = limit + (uint64_t)(int64_t)off;
                check_limit(&agreed);
                *(tpc_ar_ring(&agreed).blocks > 0 ? &rings : &none) += 1;
            }
        agreed.workspace_bytes = 32 << 20; /* the default has room for both */
        CHECK(tpc_ar_ring(&agreed).blocks > 0 && tpc_ar_slot_bytes(&agreed) >= 512 << 10);
    }
    agreed.size = 4;
    for (tpcomm_dtype_t dtype = TPCOMM_F32; dtype <= TPCOMM_F64; dtype++)
        CHECK_EQ(why_not(&agreed, TPCOMM_ALL_REDUCE, dtype) == NULL, dtype <= TPCOMM_BF16);
    CHECK(strstr(why_not(&agreed, TPCOMM_ALL_REDUCE, TPCOMM_I32), "f32, f16 and bf16"));
    CHECK(strstr(why_not(&agreed, TPCOMM_REDUCE_SCATTER, TPCOMM_BF16), "a form of all_reduce"));
    printf("%d limits with a ring, %d without\n", rings, none);
    CHECK(rings > 0 && none > 0);
    return 0;
}
