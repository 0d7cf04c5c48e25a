/* SPDX-License-Identifier: Apache-2.0 */
/** Checks of calls on rows that tpcomm_call and tpcomm_explain share. */
#ifndef TPC_COORDINATOR_ROWS_H
#define TPC_COORDINATOR_ROWS_H

#include "coordinator/check.h"

/** hidden, dtype and count of a call on rows, whose dtype is one. Fails: INVALID_ARG, UNSUPPORTED. */
tpcomm_status_t tpc_rows_check(const tpcomm_call_t *call);

/** What a call with a norm, whose arguments are checked, reads and writes on this rank. */
void tpc_rows_ranges(const tpcomm_t *comm, tpcomm_coll_t coll, const tpcomm_rms_norm_t *norm,
                     tpc_call_ranges_t *ranges_p);

#endif
