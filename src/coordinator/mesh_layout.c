/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/mesh_layout.h"

#include "base/text.h"

#define LARGEST_MESH 1024

const char *const tpc_mesh_kind_names[TPC_MESH_KINDS] = {"tp", "cp", "pp", "dp", "ep"};

int32_t tpc_mesh_size(const tpc_mesh_shape_t *shape) {
    return shape->dp * shape->pp * shape->cp * shape->tp;
}

/* rank = ((dp * PP + pp) * CP + cp) * TP + tp. Source: vLLM, distributed/parallel_state.py, initialize_model_parallel.
 */
static int32_t rank_at(const tpc_mesh_shape_t *shape, int32_t dp, int32_t pp, int32_t cp, int32_t tp) {
    return ((dp * shape->pp + pp) * shape->cp + cp) * shape->tp + tp;
}

int32_t tpc_mesh_members(const tpc_mesh_shape_t *shape, int kind, int32_t rank, int32_t *ranks_p) {
    const int32_t sizes[TPC_MESH_KINDS] = {shape->tp, shape->cp, shape->pp, shape->dp, shape->ep};
    int32_t tp = rank % shape->tp, cp = rank / shape->tp % shape->cp;
    int32_t pp = rank / (shape->tp * shape->cp) % shape->pp, dp = rank / (shape->tp * shape->cp * shape->pp);
    /* The ranks of a pipeline stage that share experts, in the order dp, cp, tp. */
    int32_t first = ((dp * shape->cp + cp) * shape->tp + tp) / shape->ep * shape->ep;
    for (int32_t i = 0; i < sizes[kind]; i++) {
        int32_t at = first + i;
        switch (kind) {
        case TPC_MESH_TP:
            ranks_p[i] = rank_at(shape, dp, pp, cp, i);
            break;
        case TPC_MESH_CP:
            ranks_p[i] = rank_at(shape, dp, pp, i, tp);
            break;
        case TPC_MESH_PP:
            ranks_p[i] = rank_at(shape, dp, i, cp, tp);
            break;
        case TPC_MESH_DP:
            ranks_p[i] = rank_at(shape, i, pp, cp, tp);
            break;
        default:
            ranks_p[i] = rank_at(shape, at / (shape->cp * shape->tp), pp, at / shape->tp % shape->cp, at % shape->tp);
            break;
        }
    }
    return sizes[kind];
}

size_t tpc_mesh_describe(const tpc_mesh_shape_t *shape, const int32_t *names, char *text, size_t bytes) {
    int32_t ranks[LARGEST_MESH], size = tpc_mesh_size(shape);
    size_t used = 0;
    if (bytes > 0) text[0] = '\0';
    for (int kind = 0; kind < TPC_MESH_KINDS && size <= LARGEST_MESH; kind++) {
        used = tpc_text_append(text, bytes, used, "%s:", tpc_mesh_kind_names[kind]);
        for (int32_t rank = 0; rank < size; rank++) {
            int32_t n = tpc_mesh_members(shape, kind, rank, ranks);
            if (ranks[0] != rank) continue; /* a group is listed once, at its first rank */
            for (int32_t i = 0; i < n; i++)
                used = tpc_text_append(text, bytes, used, "%s%d", i == 0 ? " {" : ",",
                                       names != NULL ? names[ranks[i]] : ranks[i]);
            used = tpc_text_append(text, bytes, used, "}");
        }
        used = tpc_text_append(text, bytes, used, "\n");
    }
    return used;
}
