/* SPDX-License-Identifier: Apache-2.0 */
/** Which ranks form which parallel group: arithmetic alone, for any size of world. */
#ifndef TPC_COORDINATOR_MESH_LAYOUT_H
#define TPC_COORDINATOR_MESH_LAYOUT_H

#include <stddef.h>
#include <stdint.h>

enum { TPC_MESH_TP, TPC_MESH_CP, TPC_MESH_PP, TPC_MESH_DP, TPC_MESH_EP, TPC_MESH_KINDS };
extern const char *const tpc_mesh_kind_names[TPC_MESH_KINDS];

/** All 1 or more; ep divides dp * cp * tp. */
typedef struct {
    int32_t dp, pp, cp, tp, ep;
} tpc_mesh_shape_t;

/** Ranks of a whole mesh. */
int32_t tpc_mesh_size(const tpc_mesh_shape_t *shape);

/** Members of rank's group of a kind, in group order; returns how many. ranks_p: room for the mesh's size. */
int32_t tpc_mesh_members(const tpc_mesh_shape_t *shape, int kind, int32_t rank, int32_t *ranks_p);

/** A line a kind: "tp: {0,1} {2,3}". names: numbers that stand for the mesh's ranks; NULL: their own. Returns what the
 * text needs, as tpc_text_append. At most 1024 ranks. */
size_t tpc_mesh_describe(const tpc_mesh_shape_t *shape, const int32_t *names, char *text, size_t bytes);

#endif
