/* SPDX-License-Identifier: Apache-2.0 */
#include "fused_oneshot.cuh"
#include "instances.cuh"

TPC_FUSED_INSTANCES(oneshot, f16, __half)
