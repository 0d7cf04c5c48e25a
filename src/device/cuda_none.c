/* SPDX-License-Identifier: Apache-2.0 */
/* device/cuda.h in a build without CUDA: no device is usable. */
#include <stdio.h>
#include <string.h>

#include "device/cuda.h"

void tpc_cuda_probe(int32_t ordinal, tpc_cuda_facts_t *facts_p) {
    (void)ordinal;
    memset(facts_p, 0, sizeof *facts_p);
    snprintf(facts_p->reason, sizeof facts_p->reason, "this build of libtpcomm has no CUDA backend");
}
