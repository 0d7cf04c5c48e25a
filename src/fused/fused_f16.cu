/* SPDX-License-Identifier: Apache-2.0 */
#include "instances.cuh"

TPC_FUSED_INSTANCES(f16, __half)
