/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Check the mesh's arithmetic: a written table for 32 ranks, and for many shapes up to 64 ranks the groups that
 * transposing the array of all ranks gives, as vLLM makes them: all.reshape(DP, PP, CP, TP); a group of a kind runs
 * along its axis; an EP group along DP, CP and TP of one stage, in that order, ep at a time.
 */
#include <stdbool.h>

#include "check.h"
#include "coordinator/mesh_layout.h"

static void written_table(void) {
    static const char want[] =
        "tp: {0,1,2,3,4,5,6,7} {8,9,10,11,12,13,14,15} {16,17,18,19,20,21,22,23} {24,25,26,27,28,29,30,31}\n"
        "cp: {0} {1} {2} {3} {4} {5} {6} {7} {8} {9} {10} {11} {12} {13} {14} {15} {16} {17} {18} {19} {20} {21} {22} "
        "{23} "
        "{24} {25} {26} {27} {28} {29} {30} {31}\n"
        "pp: {0,8} {1,9} {2,10} {3,11} {4,12} {5,13} {6,14} {7,15} {16,24} {17,25} {18,26} {19,27} {20,28} {21,29} "
        "{22,30} "
        "{23,31}\n"
        "dp: {0,16} {1,17} {2,18} {3,19} {4,20} {5,21} {6,22} {7,23} {8,24} {9,25} {10,26} {11,27} {12,28} {13,29} "
        "{14,30} "
        "{15,31}\n"
        "ep: {0,1,2,3,4,5,6,7,16,17,18,19,20,21,22,23} {8,9,10,11,12,13,14,15,24,25,26,27,28,29,30,31}\n";
    tpc_mesh_shape_t shape = {.dp = 2, .pp = 2, .cp = 1, .tp = 8, .ep = 16};
    char text[2048];
    CHECK_EQ(tpc_mesh_describe(&shape, NULL, text, sizeof text), strlen(want));
    if (strcmp(text, want) != 0) FAIL("got\n%s, want\n%s", text, want);
}

/* The groups of one kind by walking the array in transposed order; every rank must find itself in its group, at its
 * place. */
static void check_kind(const tpc_mesh_shape_t *shape, int kind) {
    int32_t size = tpc_mesh_size(shape), got[64];
    int32_t seen = 0;
    for (int32_t rank = 0; rank < size; rank++) {
        int32_t at[4] = {rank / (shape->pp * shape->cp * shape->tp), rank / (shape->cp * shape->tp) % shape->pp,
                         rank / shape->tp % shape->cp, rank % shape->tp};
        const int32_t extents[4] = {shape->dp, shape->pp, shape->cp, shape->tp};
        int32_t n = tpc_mesh_members(shape, kind, rank, got), want[64], count = 0, place = -1;
        /* All ranks in world order that agree with this one in every coordinate the kind does not run along. */
        for (int32_t other = 0; other < size; other++) {
            int32_t left = other, c[4];
            for (int axis = 3; axis >= 0; axis--) {
                c[axis] = left % extents[axis];
                left /= extents[axis];
            }
            bool same = kind == TPC_MESH_EP ? c[1] == at[1] : true;
            static const int along[] = {[TPC_MESH_TP] = 3, [TPC_MESH_CP] = 2, [TPC_MESH_PP] = 1, [TPC_MESH_DP] = 0};
            for (int axis = 0; axis < 4 && kind != TPC_MESH_EP; axis++)
                same = same && (axis == along[kind] || c[axis] == at[axis]);
            if (!same) continue;
            if (other == rank) place = count;
            want[count++] = other;
        }
        int32_t first = kind == TPC_MESH_EP ? place / shape->ep * shape->ep : 0;
        CHECK_EQ(n, kind == TPC_MESH_EP ? shape->ep : count);
        CHECK(memcmp(got, want + first, (size_t)n * sizeof *got) == 0);
        CHECK_EQ(got[place - first], rank);
        seen += got[0] == rank ? n : 0;
    }
    CHECK_EQ(seen, size); /* the groups part the world */
}

int main(void) {
    written_table();
    int shapes = 0;
    for (int32_t dp = 1; dp <= 8; dp++)
        for (int32_t pp = 1; pp <= 4; pp++)
            for (int32_t cp = 1; cp <= 4; cp++)
                for (int32_t tp = 1; tp <= 8; tp++)
                    for (int32_t ep = 1; ep <= dp * cp * tp; ep++) {
                        tpc_mesh_shape_t shape = {dp, pp, cp, tp, ep};
                        if (tpc_mesh_size(&shape) > 64 || dp * cp * tp % ep != 0) continue;
                        for (int kind = 0; kind < TPC_MESH_KINDS; kind++) check_kind(&shape, kind);
                        shapes++;
                    }
    CHECK(shapes > 500);
    return 0;
}
