/* SPDX-License-Identifier: Apache-2.0 */
#include "topology/topology.h"

#include <string.h>

static const char *const names[TPC_TOPOLOGY_COUNT] = {
#define NAME(id, name) [id] = name,
    TPC_TOPOLOGY_LIST(NAME)
#undef NAME
};

const char *tpc_topology_name(tpc_topology_t topology) {
    return (unsigned)topology < TPC_TOPOLOGY_COUNT ? names[topology] : "?";
}

bool tpc_topology_parse(const char *name, tpc_topology_t *topology_p) {
    for (unsigned i = 0; i < TPC_TOPOLOGY_COUNT; i++) {
        if (strcmp(names[i], name) != 0) continue;
        *topology_p = (tpc_topology_t)i;
        return true;
    }
    return false;
}

tpc_topology_t tpc_topology_of_cpu_team(const tpc_bootstrap_t *bootstrap, const tpc_team_t *team, int32_t *odd_p) {
    const char *host = tpc_bootstrap_member(bootstrap, team->ranks[0])->host_id;
    for (int32_t i = 1; i < team->n; i++) {
        if (strcmp(tpc_bootstrap_member(bootstrap, team->ranks[i])->host_id, host) == 0) continue;
        *odd_p = i;
        return TPC_TOPOLOGY_MULTI_HOST;
    }
    return TPC_TOPOLOGY_CPU;
}
