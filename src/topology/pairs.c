/* SPDX-License-Identifier: Apache-2.0 */
#include "topology/pairs.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"

const char *tpc_pair_text(const tpc_pair_t *pair, char text_p[TPC_PAIR_TEXT_BYTES]) {
    static const char *const levels[] = {"same board",  "one PCIe switch", "several PCIe switches",
                                         "host bridge", "one NUMA node",   "across sockets"};
    const char *level = pair->level < sizeof levels / sizeof levels[0] ? levels[pair->level] : "?";
    char count[16] = "";
    if (pair->nvlinks > 0) snprintf(count, sizeof count, " x%u", pair->nvlinks);
    switch (pair->kind) {
    case TPC_PAIR_SELF:
        return strcpy(text_p, "self");
    case TPC_PAIR_SAME_GPU:
        return strcpy(text_p, "same gpu");
    case TPC_PAIR_NVLINK:
        snprintf(text_p, TPC_PAIR_TEXT_BYTES, "nvlink%s", count);
        return text_p;
    case TPC_PAIR_NVSWITCH:
        snprintf(text_p, TPC_PAIR_TEXT_BYTES, "nvlink%s (switch)", count);
        return text_p;
    case TPC_PAIR_PCIE:
        snprintf(text_p, TPC_PAIR_TEXT_BYTES, "pcie (%s)", level);
        return text_p;
    default:
        return strcpy(text_p, "no peer access");
    }
}

static bool same_device(const tpc_cuda_facts_t *a, const tpc_cuda_facts_t *b) {
    return memcmp(a->uuid, b->uuid, sizeof a->uuid) == 0;
}

static uint8_t smaller(uint8_t a, uint8_t b) {
    return a < b ? a : b;
}

/* Of two ranks' views: the worse one where both know, else that of the one who knows. */
static uint8_t links_of(const tpc_gpu_row_t *a, const tpc_gpu_row_t *b, uint8_t by_a, uint8_t by_b) {
    if (a->by_nvml && b->by_nvml) return smaller(by_a, by_b);
    return a->by_nvml ? by_a : b->by_nvml ? by_b : 0;
}

tpc_pair_t tpc_pair_of(const tpc_cuda_facts_t *facts, const tpc_gpu_row_t *rows, int32_t a, int32_t b) {
    tpc_pair_t pair = {.kind = TPC_PAIR_SELF};
    if (a == b) return pair;
    pair.kind = TPC_PAIR_SAME_GPU;
    if (same_device(&facts[a], &facts[b])) return pair;
    const tpc_gpu_row_t *row_a = &rows[a], *row_b = &rows[b];
    const tpc_gpu_sight_t *ab = &row_a->to[b], *ba = &row_b->to[a];
    pair.kind = TPC_PAIR_NONE;
    if (ab->access == 0 || ba->access == 0) return pair;
    if (memcmp(facts[a].bus_id, facts[b].bus_id, sizeof facts[a].bus_id) == 0) return pair; /* two parts of one GPU */
    pair.kind = TPC_PAIR_NVLINK;
    pair.nvlinks = links_of(row_a, row_b, ab->direct, ba->direct);
    if (pair.nvlinks > 0) return pair;
    pair.kind = TPC_PAIR_NVSWITCH;
    pair.nvlinks = smaller(row_a->switched, row_b->switched);
    if (pair.nvlinks > 0) return pair;
    pair.kind = TPC_PAIR_NVLINK;
    if (!row_a->by_nvml && !row_b->by_nvml && ab->atomics == 1 && ba->atomics == 1) return pair;
    pair.kind = TPC_PAIR_PCIE;
    pair.level = ab->level > ba->level ? ab->level : ba->level;
    return pair;
}

tpc_topology_t tpc_topology_of_pairs(const tpc_cuda_facts_t *facts, const tpc_gpu_row_t *rows, int32_t n) {
    int32_t count[TPC_PAIR_NONE + 1] = {0}, pairs = n * (n - 1) / 2;
    for (int32_t a = 0; a < n; a++)
        for (int32_t b = 0; b < a; b++) count[tpc_pair_of(facts, rows, a, b).kind]++;
    if (count[TPC_PAIR_SAME_GPU] == pairs) return TPC_TOPOLOGY_SAME_GPU;
    if (count[TPC_PAIR_NVLINK] + count[TPC_PAIR_NVSWITCH] == pairs) return TPC_TOPOLOGY_NVLINK;
    if (count[TPC_PAIR_PCIE] == pairs) return TPC_TOPOLOGY_PCIE_P2P;
    return TPC_TOPOLOGY_MIXED;
}

/* What CUDA knows of the peers that this process sees: first hand on access, and all there is without NVML. */
static void ask_cuda(const tpc_cuda_facts_t *facts, int32_t me, int32_t n, tpc_gpu_row_t *row) {
    for (int32_t r = 0; r < n; r++) {
        if (same_device(&facts[r], &facts[me])) continue;
        int32_t access = tpc_cuda_peer_access(&facts[me], &facts[r]);
        if (access >= 0) row->to[r].access = (int8_t)access;
        if (access > 0 && !row->by_nvml) row->to[r].atomics = tpc_cuda_peer_atomics(&facts[me], &facts[r]) == 1;
    }
}

tpcomm_status_t tpc_topology_of_gpu_team(tpc_bootstrap_t *bootstrap, const tpc_team_t *team,
                                         const tpc_cuda_facts_t *facts, const char *nvml_path,
                                         const tpc_deadline_t *deadline, tpc_topology_t *topology_p,
                                         tpc_pair_t *mine_p) {
    tpc_gpu_row_t mine, rows[TPCOMM_MAX_RANKS];
    int32_t differs = 0;
    memset(rows, 0, sizeof rows);
    for (int32_t r = 0; r < team->n; r++) differs += !same_device(&facts[r], &facts[0]);
    if (differs > 0) { /* else nobody needs to ask; all members see that alike */
        tpc_nvml_look(nvml_path, facts, team->me, team->n, &mine);
        ask_cuda(facts, team->me, team->n, &mine);
        /* What was found under another host's bus ids is a card of this one. */
        for (int32_t r = 0; r < team->n; r++)
            if (!tpc_bootstrap_member(bootstrap, team->ranks[r])->same_host)
                mine.to[r] = (tpc_gpu_sight_t){.access = 0};
        tpcomm_status_t status =
            tpc_team_gather(bootstrap, team, "look at links", TPCOMM_OK, &mine, sizeof mine, rows, deadline);
        if (status != TPCOMM_OK) return status;
    }
    *topology_p = tpc_topology_of_pairs(facts, rows, team->n);
    for (int32_t r = 0; r < team->n; r++) mine_p[r] = tpc_pair_of(facts, rows, team->me, r);
    for (int32_t r = 0; r < team->n && team->me == 0 && differs > 0; r++)
        if (r == 0 || !rows[r].by_nvml)
            TPC_INFO("topology", "rank %d: topology %s, %s %s", r, tpc_topology_name(*topology_p),
                     rows[r].by_nvml ? "by" : "without NVML, by CUDA's word on peers:", rows[r].source);
    return TPCOMM_OK;
}
