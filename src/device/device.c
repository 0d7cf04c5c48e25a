/* SPDX-License-Identifier: Apache-2.0 */
#include "device/device.h"

#include "base/error.h"

tpcomm_status_t tpc_device_find(tpcomm_device_kind_t kind, const tpc_device_t **device_p) {
    if (kind == TPCOMM_DEVICE_CUDA)
        return tpc_error(
            TPCOMM_ERR_UNSUPPORTED,
            "device cuda was asked for (TPCOMM_DEVICE or config.device_kind), but this version of libtpcomm "
            "has no CUDA backend; use cpu or auto");
    if (kind != TPCOMM_DEVICE_AUTO && kind != TPCOMM_DEVICE_CPU)
        return tpc_error(TPCOMM_ERR_INVALID_ARG, "config.device_kind is %d; allowed are 0 (auto), 1 (cuda), 2 (cpu)",
                         kind);
    *device_p = &tpc_cpu_device;
    return TPCOMM_OK;
}
