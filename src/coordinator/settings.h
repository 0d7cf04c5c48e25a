/* SPDX-License-Identifier: Apache-2.0 */
/** A communicator's settings: environment over config struct over defaults, then made equal on all ranks. */
#ifndef TPC_COORDINATOR_SETTINGS_H
#define TPC_COORDINATOR_SETTINGS_H

#include "base/env.h"
#include "bootstrap/bootstrap.h"

typedef struct {
    tpc_env_t env;          /**< as read; a value that is not valid stands as its default (see status) */
    tpcomm_config_t config; /**< the caller's, at this library's size */
    tpcomm_status_t status; /**< of reading: a failure is brought to the vote, so that every rank learns of it */
    char text[1024];        /**< its text */
    /* In force, equal on all ranks after tpc_settings_agree; before that this rank's own. */
    tpcomm_device_kind_t device_kind;
    bool deterministic, share_device, nccl;
    tpcomm_path_t forced_path;
    tpcomm_check_t check;
    char peer_mem[16];
    uint32_t init_timeout_ms, op_timeout_ms;
    uint64_t workspace_bytes;
    char tuning_file[TPC_ENV_TEXT_BYTES];
} tpc_settings_t;

/**
 * Read environment and config (NULL: defaults). Fails only where nobody could be told: out of memory, a config of
 * another version, a TPCOMM_ variable that says who this rank is. The caller frees *settings_p.
 */
tpcomm_status_t tpc_settings_read(const tpcomm_config_t *config, tpc_settings_t **settings_p);

/** Compare with all members and take the leader's. Fails alike on all members, as tpc_agree. */
tpcomm_status_t tpc_settings_agree(tpc_settings_t *settings, tpc_bootstrap_t *bootstrap, const tpc_team_t *team,
                                   const tpc_deadline_t *deadline);

#endif
