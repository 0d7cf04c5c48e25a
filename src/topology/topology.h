/* SPDX-License-Identifier: Apache-2.0 */
/** Where the ranks of a team sit towards each other. */
#ifndef TPC_TOPOLOGY_H
#define TPC_TOPOLOGY_H

#include "bootstrap/bootstrap.h"

/** Topology classes; the strings stand in tuning files and tpcomm_comm_info. */
#define TPC_TOPOLOGY_LIST(X)                                                                                           \
    X(TPC_TOPOLOGY_CPU, "cpu")                                                                                         \
    X(TPC_TOPOLOGY_SAME_GPU, "same_gpu")                                                                               \
    X(TPC_TOPOLOGY_NVLINK, "nvlink")                                                                                   \
    X(TPC_TOPOLOGY_PCIE_P2P, "pcie_p2p")                                                                               \
    X(TPC_TOPOLOGY_MIXED, "mixed")                                                                                     \
    X(TPC_TOPOLOGY_MULTI_HOST, "multi_host")

typedef enum {
#define TPC_TOPOLOGY_ID(id, name) id,
    TPC_TOPOLOGY_LIST(TPC_TOPOLOGY_ID)
#undef TPC_TOPOLOGY_ID
        TPC_TOPOLOGY_COUNT
} tpc_topology_t;

const char *tpc_topology_name(tpc_topology_t topology);
/** False if there is no class of that name. */
bool tpc_topology_parse(const char *name, tpc_topology_t *topology_p);

/**
 * Class of a team on the cpu device, from what all members know alike (host identities). odd_p: where the class is
 * multi_host, the index of the first member that is not on the leader's host.
 */
tpc_topology_t tpc_topology_of_cpu_team(const tpc_bootstrap_t *bootstrap, const tpc_team_t *team, int32_t *odd_p);

#endif
