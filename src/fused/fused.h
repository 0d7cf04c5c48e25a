/* SPDX-License-Identifier: Apache-2.0 */
/** Calls with a norm on GPUs, in one kernel (paths fused_oneshot, fused_twoshot); and the norm alone. */
#ifndef TPC_FUSED_H
#define TPC_FUSED_H

#include "backend/backend.h"

/** It shares custom_ar's memory, and is there where custom_ar is. */
extern const tpc_backend_t tpc_fused_backend;
extern const tpc_norm_device_t tpc_cuda_norm;

#endif
