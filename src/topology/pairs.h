/* SPDX-License-Identifier: Apache-2.0 */
/** How the GPUs of a team stand towards each other: pair by pair, and in one word for the whole team. */
#ifndef TPC_TOPOLOGY_PAIRS_H
#define TPC_TOPOLOGY_PAIRS_H

#include "topology/nvml.h"
#include "topology/topology.h"

typedef enum {
    TPC_PAIR_SELF,
    TPC_PAIR_SAME_GPU,
    TPC_PAIR_NVLINK,   /**< links straight between the two */
    TPC_PAIR_NVSWITCH, /**< links of both end in switches */
    TPC_PAIR_PCIE,     /**< peer access without NVLink */
    TPC_PAIR_NONE      /**< no peer access */
} tpc_pair_kind_t;

typedef struct {
    uint8_t kind;    /**< tpc_pair_kind_t */
    uint8_t nvlinks; /**< between the two; 0: none, or not counted */
    uint8_t level;   /**< of PCIe, as tpc_gpu_sight_t */
    uint8_t reserved;
} tpc_pair_t;

#define TPC_PAIR_TEXT_BYTES 48
/** "nvlink x18 (switch)", "pcie (one switch)", "same gpu", "no peer access". */
const char *tpc_pair_text(const tpc_pair_t *pair, char text_p[TPC_PAIR_TEXT_BYTES]);

/** Members a and b, from all members' rows; symmetric, and the same on every rank. Pure. */
tpc_pair_t tpc_pair_of(const tpc_cuda_facts_t *facts, const tpc_gpu_row_t *rows, int32_t a, int32_t b);

/** The class of n members. Pure. */
tpc_topology_t tpc_topology_of_pairs(const tpc_cuda_facts_t *facts, const tpc_gpu_row_t *rows, int32_t n);

/**
 * Look, tell each other, and conclude; collective, fails alike on all members (as tpc_team_gather). NVML where it is,
 * else what CUDA says of peers.
 * @param mine_p  out: n pairs, this member with each.
 */
tpcomm_status_t tpc_topology_of_gpu_team(tpc_bootstrap_t *bootstrap, const tpc_team_t *team,
                                         const tpc_cuda_facts_t *facts, const char *nvml_path,
                                         const tpc_deadline_t *deadline, tpc_topology_t *topology_p,
                                         tpc_pair_t *mine_p);

#endif
