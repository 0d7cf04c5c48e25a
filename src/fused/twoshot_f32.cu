/* SPDX-License-Identifier: Apache-2.0 */
#include "fused_twoshot.cuh"
#include "instances.cuh"

TPC_FUSED_INSTANCES(twoshot, f32, float)
