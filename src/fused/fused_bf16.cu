/* SPDX-License-Identifier: Apache-2.0 */
#include "instances.cuh"

TPC_FUSED_INSTANCES(bf16, __nv_bfloat16)
