/* SPDX-License-Identifier: Apache-2.0 */
/** Collectives by kernels over peer-mapped device memory: paths oneshot and local on the cuda device. */
#ifndef TPC_CUSTOM_AR_H
#define TPC_CUSTOM_AR_H

#include "backend/backend.h"

extern const tpc_backend_t tpc_custom_ar_backend;

#endif
