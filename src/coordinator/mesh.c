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

enum { KIND_TP, KIND_CP, KIND_PP, KIND_DP, KIND_EP, KIND_COUNT };
static const char *const kind_names[KIND_COUNT] = {"tp", "cp", "pp", "dp", "ep"};

struct tpcomm_mesh {
    int32_t size;
    int32_t of_kind[KIND_COUNT]; /* ranks in a group of each kind */
    int32_t dp, pp, cp, tp;
    tpcomm_t *groups[KIND_COUNT];
};

/* rank = ((dp * PP + pp) * CP + cp) * TP + tp. Sources: vLLM, distributed/parallel_state.py, initialize_model_parallel.
 */
static int32_t rank_at(const tpcomm_mesh_t *mesh, int32_t dp, int32_t pp, int32_t cp, int32_t tp) {
    return ((dp * mesh->pp + pp) * mesh->cp + cp) * mesh->tp + tp;
}

/* Members of rank's group of a kind, in group order; returns how many. */
static int32_t members(const tpcomm_mesh_t *mesh, int kind, int32_t rank, int32_t ranks_p[TPCOMM_MAX_RANKS]) {
    int32_t tp = rank % mesh->tp, cp = rank / mesh->tp % mesh->cp, pp = rank / (mesh->tp * mesh->cp) % mesh->pp;
    int32_t dp = rank / (mesh->tp * mesh->cp * mesh->pp), n = mesh->of_kind[kind];
    /* Place of this rank among the ranks of its stage that share experts, in the order dp, cp, tp. */
    int32_t ep_first = ((dp * mesh->cp + cp) * mesh->tp + tp) / n * n;
    for (int32_t i = 0; i < n; i++) {
        int32_t at = ep_first + i;
        switch (kind) {
        case KIND_TP:
            ranks_p[i] = rank_at(mesh, dp, pp, cp, i);
            break;
        case KIND_CP:
            ranks_p[i] = rank_at(mesh, dp, pp, i, tp);
            break;
        case KIND_PP:
            ranks_p[i] = rank_at(mesh, dp, i, cp, tp);
            break;
        case KIND_DP:
            ranks_p[i] = rank_at(mesh, i, pp, cp, tp);
            break;
        default:
            ranks_p[i] = rank_at(mesh, at / (mesh->cp * mesh->tp), pp, at / mesh->tp % mesh->cp, at % mesh->tp);
            break;
        }
    }
    return n;
}

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
    mesh->size = world->size;
    mesh->dp = known.dp != 0 ? known.dp : 1;
    mesh->pp = known.pp != 0 ? known.pp : 1;
    mesh->cp = known.cp != 0 ? known.cp : 1;
    mesh->tp = known.tp != 0 ? known.tp : 1;
    int32_t product = mesh->dp * mesh->pp * mesh->cp * mesh->tp; /* at most 16^4 */
    if (product != world->size)
        return tpc_error(TPCOMM_ERR_CONFIG, "mesh: dp*pp*cp*tp = %d*%d*%d*%d = %d but world = %d", mesh->dp, mesh->pp,
                         mesh->cp, mesh->tp, product, world->size);
    int32_t stage = product / mesh->pp, ep = known.ep != 0 ? known.ep : stage;
    if (stage % ep != 0)
        return tpc_error(TPCOMM_ERR_CONFIG, "mesh: ep = %d does not divide dp*cp*tp = %d*%d*%d = %d", ep, mesh->dp,
                         mesh->cp, mesh->tp, stage);
    const int32_t of_kind[KIND_COUNT] = {mesh->tp, mesh->cp, mesh->pp, mesh->dp, ep};
    memcpy(mesh->of_kind, of_kind, sizeof of_kind);
    return TPCOMM_OK;
}

/* All ranks ask for the same mesh, or none gets one. mine_status: of reading this rank's config. */
static tpcomm_status_t compare_configs(tpcomm_t *world, const tpcomm_mesh_t *mesh, tpcomm_status_t mine_status) {
    int32_t all[TPCOMM_MAX_RANKS][5];
    const int32_t mine[5] = {mesh->dp, mesh->pp, mesh->cp, mesh->tp, mesh->of_kind[KIND_EP]};
    tpcomm_status_t status = tpc_comm_exchange(world, "make mesh", mine_status, mine, sizeof mine, all);
    if (status != TPCOMM_OK) return status;
    for (int32_t r = 1; r < world->size; r++)
        if (memcmp(all[0], all[r], sizeof all[0]) != 0)
            return tpc_error(
                TPCOMM_ERR_MISMATCH,
                "mesh: rank 0 asks for dp %d pp %d cp %d tp %d ep %d, rank %d for dp %d pp %d cp %d tp %d ep %d",
                all[0][0], all[0][1], all[0][2], all[0][3], all[0][4], r, all[r][0], all[r][1], all[r][2], all[r][3],
                all[r][4]);
    return TPCOMM_OK;
}

static void warn_of_hosts(const tpcomm_t *tp) {
    const tpc_bootstrap_t *bootstrap = tp->world->bootstrap;
    for (int32_t i = 1; i < tp->size; i++) {
        const tpc_member_t *first = tpc_bootstrap_member(bootstrap, tp->ranks[0]);
        const tpc_member_t *other = tpc_bootstrap_member(bootstrap, tp->ranks[i]);
        if (strcmp(first->host_id, other->host_id) == 0) continue;
        TPC_WARN(
            "mesh",
            "the tp group of world ranks %d and %d crosses hosts ('%s', '%s'): number the ranks host by host, or let "
            "tp divide the ranks of a host",
            tp->ranks[0], tp->ranks[i], first->host_id, other->host_id);
        return;
    }
}

tpcomm_status_t tpcomm_mesh_create(tpcomm_t *world, const tpcomm_mesh_config_t *config, tpcomm_mesh_t **mesh_p) {
    if (mesh_p == NULL) return tpc_error(TPCOMM_ERR_INVALID_ARG, "mesh is NULL");
    *mesh_p = NULL;
    tpcomm_status_t status = tpc_comm_check(world);
    if (status != TPCOMM_OK) return status;
    tpcomm_mesh_t *mesh = calloc(1, sizeof *mesh);
    if (mesh == NULL) return tpc_error(TPCOMM_ERR_NO_MEMORY, "out of memory");
    status = compare_configs(world, mesh, read_config(world, config, mesh));
    for (int kind = 0; kind < KIND_COUNT && status == TPCOMM_OK; kind++) {
        int32_t ranks[TPCOMM_MAX_RANKS], n = members(mesh, kind, world->rank, ranks);
        status = tpcomm_group_create(world, ranks, n, kind_names[kind], &mesh->groups[kind]);
    }
    if (status != TPCOMM_OK) {
        char text[TPC_ERROR_BYTES];
        snprintf(text, sizeof text, "%s", tpcomm_last_error());
        tpcomm_mesh_destroy(mesh);
        return tpc_error(status, "%s", text);
    }
    warn_of_hosts(mesh->groups[KIND_TP]);
    *mesh_p = mesh;
    return TPCOMM_OK;
}

tpcomm_status_t tpcomm_mesh_group(const tpcomm_mesh_t *mesh, const char *kind, tpcomm_t **group) {
    if (mesh == NULL || kind == NULL || group == NULL)
        return tpc_error(TPCOMM_ERR_INVALID_ARG, "%s is NULL", mesh == NULL ? "mesh" : kind == NULL ? "kind" : "group");
    for (int i = 0; i < KIND_COUNT; i++) {
        if (strcmp(kind_names[i], kind) != 0) continue;
        *group = mesh->groups[i];
        return TPCOMM_OK;
    }
    return tpc_error(TPCOMM_ERR_INVALID_ARG, "a mesh has no group '%.40s'; there are tp, cp, pp, dp, ep", kind);
}

tpcomm_status_t tpcomm_mesh_text(const tpcomm_mesh_t *mesh, char *text, size_t bytes) {
    if (mesh == NULL || text == NULL || bytes == 0)
        return tpc_error(TPCOMM_ERR_INVALID_ARG, "mesh or text is NULL, or text has no room");
    size_t used = 0;
    text[0] = '\0';
    for (int kind = 0; kind < KIND_COUNT; kind++) {
        used = tpc_text_append(text, bytes, used, "%s:", kind_names[kind]);
        for (int32_t rank = 0; rank < mesh->size; rank++) {
            int32_t ranks[TPCOMM_MAX_RANKS] = {0}, n = members(mesh, kind, rank, ranks);
            if (ranks[0] != rank) continue; /* a group is listed once, at its first rank */
            for (int32_t i = 0; i < n; i++)
                used = tpc_text_append(text, bytes, used, "%s%d", i == 0 ? " {" : ",", ranks[i]);
            used = tpc_text_append(text, bytes, used, "}");
        }
        used = tpc_text_append(text, bytes, used, "\n");
    }
    if (used < bytes) return TPCOMM_OK;
    return tpc_error(TPCOMM_ERR_TOO_SMALL, "the text needs %zu bytes, the buffer has %zu", used + 1, bytes);
}

tpcomm_status_t tpcomm_mesh_finalize(tpcomm_mesh_t *mesh) {
    if (mesh == NULL) return tpc_error(TPCOMM_ERR_INVALID_ARG, "mesh is NULL");
    tpcomm_status_t first = TPCOMM_OK;
    char text[TPC_ERROR_BYTES];
    for (int kind = 0; kind < KIND_COUNT; kind++) {
        tpcomm_status_t status = tpcomm_finalize(mesh->groups[kind]);
        if (status == TPCOMM_OK || first != TPCOMM_OK) continue;
        first = status;
        snprintf(text, sizeof text, "%s", tpcomm_last_error());
    }
    return first == TPCOMM_OK ? TPCOMM_OK : tpc_error(first, "%s", text);
}

tpcomm_status_t tpcomm_mesh_destroy(tpcomm_mesh_t *mesh) {
    if (mesh == NULL) return TPCOMM_OK;
    for (int kind = KIND_COUNT - 1; kind >= 0; kind--) {
        tpcomm_status_t status = tpcomm_destroy(mesh->groups[kind]);
        if (status != TPCOMM_OK) return status; /* BUSY: nothing more is freed; call again */
        mesh->groups[kind] = NULL;
    }
    free(mesh);
    return TPCOMM_OK;
}
