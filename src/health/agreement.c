/* SPDX-License-Identifier: Apache-2.0 */
#include "health/agreement.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"

/* An item as it travels. */
typedef struct {
    unsigned char set;
    char value[TPC_AGREE_VALUE_BYTES];
} wire_item_t;

/* Same data in the same order on every rank, so the same verdict and text. */
static tpcomm_status_t compare(const tpc_team_t *team, const tpc_agree_item_t *items, size_t count,
                               const wire_item_t *all) {
    for (size_t i = 0; i < count; i++) {
        const wire_item_t *leader = &all[i];
        for (int32_t r = 1; r < team->n; r++) {
            const wire_item_t *theirs = &all[(size_t)r * count + i];
            if (!theirs->set || strncmp(theirs->value, leader->value, sizeof theirs->value) == 0) continue;
            return tpc_error(TPCOMM_ERR_CONFIG_MISMATCH, "%s differs: rank %d has '%.*s'%s, rank %d has '%.*s'",
                             items[i].name, team->ranks[0], TPC_AGREE_VALUE_BYTES - 1, leader->value,
                             leader->set ? "" : " (the default)", team->ranks[r], TPC_AGREE_VALUE_BYTES - 1,
                             theirs->value);
        }
    }
    return TPCOMM_OK;
}

tpcomm_status_t tpc_agree(tpc_bootstrap_t *bootstrap, const tpc_team_t *team, const char *step,
                          tpcomm_status_t mine_status, tpc_agree_item_t *items, size_t count,
                          const tpc_deadline_t *deadline) {
    wire_item_t *mine = calloc(count, sizeof *mine);
    wire_item_t *all = calloc(count * (size_t)team->n, sizeof *all);
    tpcomm_status_t status = mine_status;
    if (status == TPCOMM_OK && (mine == NULL || all == NULL)) status = tpc_error(TPCOMM_ERR_NO_MEMORY, "out of memory");
    if (status == TPCOMM_OK) {
        for (size_t i = 0; i < count; i++) {
            mine[i].set = items[i].set;
            memcpy(mine[i].value, items[i].value, strnlen(items[i].value, TPC_AGREE_VALUE_BYTES - 1));
        }
    }
    status = tpc_team_gather(bootstrap, team, step, status, mine, count * sizeof *mine, all, deadline);
    if (status == TPCOMM_OK) status = compare(team, items, count, all);
    for (size_t i = 0; status == TPCOMM_OK && i < count; i++) {
        items[i].leader_set = all[i].set;
        memcpy(items[i].value, all[i].value, sizeof items[i].value);
        items[i].value[sizeof items[i].value - 1] = '\0';
    }
    free(mine);
    free(all);
    return status;
}
