/* SPDX-License-Identifier: Apache-2.0 */
/** Settings that all ranks must hold equal: gathered, compared alike on every rank, and taken from the leader where
 * unset. */
#ifndef TPC_HEALTH_AGREEMENT_H
#define TPC_HEALTH_AGREEMENT_H

#include "bootstrap/bootstrap.h"

#define TPC_AGREE_VALUE_BYTES 512

typedef struct {
    const char *name;                  /**< equal on all ranks: the order of items is fixed */
    bool set;                          /**< false: this rank takes the leader's */
    char value[TPC_AGREE_VALUE_BYTES]; /**< the value; the default if not set */
    bool leader_set;                   /**< out: the leader had it set */
} tpc_agree_item_t;

/**
 * Make the items equal on all members: a member that has an item unset takes the leader's value (the default where the
 * leader has it unset too). Fails alike on all members: CONFIG_MISMATCH naming the item, the ranks and both values; and
 * as tpc_team_gather, which also carries mine_status.
 */
tpcomm_status_t tpc_agree(tpc_bootstrap_t *bootstrap, const tpc_team_t *team, const char *step,
                          tpcomm_status_t mine_status, tpc_agree_item_t *items, size_t count,
                          const tpc_deadline_t *deadline);

#endif
