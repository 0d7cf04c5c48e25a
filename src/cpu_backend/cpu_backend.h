/* SPDX-License-Identifier: Apache-2.0 */
/** Collectives between processes or threads of one host through shared memory: paths cpu_oneshot, cpu_twoshot,
 * fused_oneshot, local. And the norm alone. */
#ifndef TPC_CPU_BACKEND_H
#define TPC_CPU_BACKEND_H

#include "backend/backend.h"

extern const tpc_backend_t tpc_cpu_backend;
extern const tpc_norm_device_t tpc_cpu_norm;

#endif
