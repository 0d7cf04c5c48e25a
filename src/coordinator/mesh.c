/* SPDX-License-Identifier: Apache-2.0 */
/* The parallel groups of an engine. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "coordinator/abi.h"
#include "coordinator/comm.h"
#include "coordinator/mesh_layout.h"

struct tpcomm_mesh {
    tpc_mesh_shape_t shape;
    int32_t ranks[TPCOMM_MAX_RANKS]; /* world rank of each of its ranks */
    tpcomm_t *groups[TPC_MESH_KINDS];
};

static tpcomm_status_t read_config(const tpcomm_t *world, const tpcomm_mesh_config_t *config, tpcomm_mesh_t *mesh) {
    tpcomm_mesh_config_t known = {0};
    tpcomm_status_t status = tpc_struct_in("tpcomm_mesh_config", config, &known, sizeof known);
    if (status != TPCOMM_OK) return status;
    const int32_t given[] = {known.dp, known.pp, known.cp, known.tp, known.ep};
    static const char *const names[] = {"dp", "pp", "cp", "tp", "ep"};
    for (int i = 0; i < 5; i++)
        if (given[i] < 0 || given[i] > TPCOMM_MAX_RANKS)
            return tpc_error(TPCOMM_ERR_CONFIG, "mesh: %s is %d; allowed are 0 (the default) to %d", names[i], given[i],
                             TPCOMM_MAX_RANKS);
    tpc_mesh_shape_t shape = {.dp = known.dp != 0 ? known.dp : 1,
                              .pp = known.pp != 0 ? known.pp : 1,
                              .cp = known.cp != 0 ? known.cp : 1,
                              .tp = known.tp != 0 ? known.tp : 1};
    int32_t product = shape.dp * shape.pp * shape.cp * shape.tp; /* at most 16^4 */
    if (product != world->size)
        return tpc_error(TPCOMM_ERR_CONFIG, "mesh: dp*pp*cp*tp = %d*%d*%d*%d = %d but world = %d", shape.dp, shape.pp,
                         shape.cp, shape.tp, product, world->size);
    int32_t stage = product / shape.pp;
    shape.ep = known.ep != 0 ? known.ep : stage;
    if (stage % shape.ep != 0)
        return tpc_error(TPCOMM_ERR_CONFIG, "mesh: ep = %d does not divide dp*cp*tp = %d*%d*%d = %d", shape.ep,
                         shape.dp, shape.cp, shape.tp, stage);
    mesh->shape = shape;
    return TPCOMM_OK;
}

/* All ranks ask for the same mesh, or none gets one. mine_status: of reading this rank's config. */
static tpcomm_status_t compare_configs(tpcomm_t *world, const tpcomm_mesh_t *mesh, tpcomm_status_t mine_status) {
    tpc_mesh_shape_t all[TPCOMM_MAX_RANKS];
    tpcomm_status_t status = tpc_comm_exchange(world, "make mesh", mine_status, &mesh->shape, sizeof mesh->shape, all);
    if (status != TPCOMM_OK) return status;
    for (int32_t r = 1; r < world->size; r++)
        if (memcmp(&all[0], &all[r], sizeof all[0]) != 0)
            return tpc_error(
                TPCOMM_ERR_MISMATCH,
                "mesh: rank 0 asks for dp %d pp %d cp %d tp %d ep %d, rank %d for dp %d pp %d cp %d tp %d ep %d",
                all[0].dp, all[0].pp, all[0].cp, all[0].tp, all[0].ep, r, all[r].dp, all[r].pp, all[r].cp, all[r].tp,
                all[r].ep);
    return TPCOMM_OK;
}

/* Said once a group, by its first rank. */
static void warn_of_hosts(const tpcomm_t *world, const tpcomm_t *tp) {
    if (!tpc_comm_spans(tp) || tp->rank != 0) return;
    char text[512];
    int32_t here = 0;
    tpc_comm_where(tp, true, text, sizeof text);
    for (int32_t r = 0; r < world->size; r++) here += world->relay.host[r] == world->relay.here;
    TPC_WARN("mesh",
             "a tp group crosses hosts: %s. Each layer would wait for the network: number the ranks host by "
             "host, and let tp (%d) divide the ranks of a host (%d on this one)",
             text, tp->size, here);
}

tpcomm_status_t tpcomm_mesh_create(tpcomm_t *world, const tpcomm_mesh_config_t *config, tpcomm_mesh_t **mesh_p) {
    if (mesh_p == NULL) return tpc_error(TPCOMM_ERR_INVALID_ARG, "mesh is NULL");
    *mesh_p = NULL;
    tpcomm_status_t status = tpc_comm_check(world);
    if (status != TPCOMM_OK) return status;
    tpcomm_mesh_t *mesh = calloc(1, sizeof *mesh);
    if (mesh == NULL) return tpc_error(TPCOMM_ERR_NO_MEMORY, "out of memory");
    memcpy(mesh->ranks, world->ranks, sizeof mesh->ranks);
    status = compare_configs(world, mesh, read_config(world, config, mesh));
    for (int kind = 0; kind < TPC_MESH_KINDS && status == TPCOMM_OK; kind++) {
        int32_t ranks[TPCOMM_MAX_RANKS], n = tpc_mesh_members(&mesh->shape, kind, world->rank, ranks);
        status = tpc_group_make(world, ranks, n, tpc_mesh_kind_names[kind], &mesh->groups[kind]);
    }
    if (status != TPCOMM_OK) {
        char text[TPC_ERROR_BYTES];
        snprintf(text, sizeof text, "%s", tpcomm_last_error());
        tpcomm_mesh_destroy(mesh);
        return tpc_error(status, "%s", text);
    }
    warn_of_hosts(world, mesh->groups[TPC_MESH_TP]);
    *mesh_p = mesh;
    return TPCOMM_OK;
}

tpcomm_status_t tpcomm_mesh_group(const tpcomm_mesh_t *mesh, const char *kind, tpcomm_t **group) {
    if (mesh == NULL || kind == NULL || group == NULL)
        return tpc_error(TPCOMM_ERR_INVALID_ARG, "%s is NULL", mesh == NULL ? "mesh" : kind == NULL ? "kind" : "group");
    for (int i = 0; i < TPC_MESH_KINDS; i++) {
        if (strcmp(tpc_mesh_kind_names[i], kind) != 0) continue;
        *group = mesh->groups[i];
        return TPCOMM_OK;
    }
    return tpc_error(TPCOMM_ERR_INVALID_ARG, "a mesh has no group '%.40s'; there are tp, cp, pp, dp, ep", kind);
}

tpcomm_status_t tpcomm_mesh_text(const tpcomm_mesh_t *mesh, char *text, size_t bytes) {
    if (mesh == NULL || text == NULL || bytes == 0)
        return tpc_error(TPCOMM_ERR_INVALID_ARG, "mesh or text is NULL, or text has no room");
    size_t used = tpc_mesh_describe(&mesh->shape, mesh->ranks, text, bytes);
    if (used < bytes) return TPCOMM_OK;
    return tpc_error(TPCOMM_ERR_TOO_SMALL, "the text needs %zu bytes, the buffer has %zu", used + 1, bytes);
}

tpcomm_status_t tpcomm_mesh_finalize(tpcomm_mesh_t *mesh) {
    if (mesh == NULL) return tpc_error(TPCOMM_ERR_INVALID_ARG, "mesh is NULL");
    tpcomm_status_t first = TPCOMM_OK;
    char text[TPC_ERROR_BYTES];
    for (int kind = 0; kind < TPC_MESH_KINDS; kind++) {
        tpcomm_status_t status = tpcomm_finalize(mesh->groups[kind]);
        if (status == TPCOMM_OK || first != TPCOMM_OK) continue;
        first = status;
        snprintf(text, sizeof text, "%s", tpcomm_last_error());
    }
    return first == TPCOMM_OK ? TPCOMM_OK : tpc_error(first, "%s", text);
}

tpcomm_status_t tpcomm_mesh_destroy(tpcomm_mesh_t *mesh) {
    if (mesh == NULL) return TPCOMM_OK;
    for (int kind = TPC_MESH_KINDS - 1; kind >= 0; kind--) {
        tpcomm_status_t status = tpcomm_destroy(mesh->groups[kind]);
        if (status != TPCOMM_OK) return status; /* BUSY: nothing more is freed; call again */
        mesh->groups[kind] = NULL;
    }
    free(mesh);
    return TPCOMM_OK;
}
