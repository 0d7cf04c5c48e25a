/* SPDX-License-Identifier: Apache-2.0 */
/* The norm alone on a GPU. */
#include "fused/fused.h"
#include "fused/instances.h"
#include "fused/params.h"

/* Rows are short; a few thousand blocks fill any GPU and take turns. */
#define BLOCKS_MOST 4096u

static const char *check_stream(tpcomm_stream_t stream) {
    (void)stream; /* nobody waits for a peer here */
    return NULL;
}

static tpcomm_status_t run(const tpcomm_rms_norm_t *norm, tpcomm_stream_t stream) {
    tpc_norm_params_t params = tpc_norm_params(norm);
    params.rows = norm->tokens;
    tpc_norm_shape_t shape = tpc_norm_shape(norm->hidden, 1);
    int32_t blocks = (int32_t)(norm->tokens < BLOCKS_MOST ? norm->tokens : BLOCKS_MOST);
    return tpc_cuda_error(tpc_norm_launch(&params, shape, blocks, stream), "launch");
}

const tpc_norm_device_t tpc_cuda_norm = {.device_kind = TPCOMM_DEVICE_CUDA, .check_stream = check_stream, .run = run};
