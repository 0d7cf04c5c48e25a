/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TPC_COORDINATOR_BACKENDS_H
#define TPC_COORDINATOR_BACKENDS_H

#include "backend/backend.h"

/** Every backend of this build, in order of preference where the table has no row; NULL at the end. */
extern const tpc_backend_t *const tpc_backends[];

/** Whether a backend is for groups on this kind of device. */
bool tpc_backend_serves(const tpc_backend_t *backend, tpcomm_device_kind_t kind);

/** The one that carries host messages, whatever device a group computes on. */
extern const tpc_backend_t *const tpc_host_backend;

/** The norm alone on a kind of device; NULL where this build has none. */
const tpc_norm_device_t *tpc_norm_device(tpcomm_device_kind_t device_kind);

#endif
