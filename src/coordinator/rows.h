/* SPDX-License-Identifier: Apache-2.0 */
/** Checks of calls on rows that tpcomm_call and tpcomm_explain share. */
#ifndef TPC_COORDINATOR_ROWS_H
#define TPC_COORDINATOR_ROWS_H

#include "tpcomm.h"

/** hidden, dtype and count of a call on rows, whose dtype is one. Fails: INVALID_ARG, UNSUPPORTED. */
tpcomm_status_t tpc_rows_check(const tpcomm_call_t *call);

#endif
