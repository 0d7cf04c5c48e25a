/* SPDX-License-Identifier: Apache-2.0 */
/* The only file that names backends: adding one is a line here and a folder. */
#include "coordinator/backends.h"

#include "cpu_backend/cpu_backend.h"
#include "nccl_backend/nccl_backend.h"
#if TPCOMM_HAVE_CUDA
#include "custom_ar/custom_ar.h"
#include "fused/fused.h"
#endif

const tpc_backend_t *const tpc_backends[] = {
    &tpc_cpu_backend,
#if TPCOMM_HAVE_CUDA
    &tpc_custom_ar_backend, &tpc_fused_backend, /* behind the one whose memory it shares */
#endif
    &tpc_nccl_backend,      NULL,
};

const tpc_backend_t *const tpc_host_backend = &tpc_cpu_backend;

bool tpc_backend_serves(const tpc_backend_t *backend, tpcomm_device_kind_t kind) {
    return backend->device_kind == kind || (backend == &tpc_nccl_backend && tpc_nccl_on_cpu());
}

static const tpc_norm_device_t *const norm_devices[] = {
    &tpc_cpu_norm,
#if TPCOMM_HAVE_CUDA
    &tpc_cuda_norm,
#endif
    NULL,
};

const tpc_norm_device_t *tpc_norm_device(tpcomm_device_kind_t device_kind) {
    for (const tpc_norm_device_t *const *device = norm_devices; *device != NULL; device++)
        if ((*device)->device_kind == device_kind) return *device;
    return NULL;
}
