/* SPDX-License-Identifier: Apache-2.0 */
/** Collectives by NCCL, where it is found at run time: path nccl. */
#ifndef TPC_NCCL_BACKEND_H
#define TPC_NCCL_BACKEND_H

#include "backend/backend.h"

extern const tpc_backend_t tpc_nccl_backend;

/** A test has asked for this backend in groups on the cpu device, with a library that works on host memory. */
bool tpc_nccl_on_cpu(void);

#endif
