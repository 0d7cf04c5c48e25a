/* SPDX-License-Identifier: Apache-2.0 */
/* The only file that names backends: adding one is a line here and a folder. */
#include "coordinator/backends.h"

#include "cpu_backend/cpu_backend.h"

const tpc_backend_t *const tpc_backends[] = {&tpc_cpu_backend, NULL};
const tpc_backend_t *const tpc_host_backend = &tpc_cpu_backend;
