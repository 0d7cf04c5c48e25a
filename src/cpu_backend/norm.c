/* SPDX-License-Identifier: Apache-2.0 */
#include "cpu_backend/norm.h"

#include <string.h>

#include "base/status.h"
#include "cpu_backend/cpu_backend.h"
#include "cpu_backend/reduce_tables.h"

tpc_norm_fn_t tpc_norm_find(tpcomm_dtype_t dtype, tpcomm_dtype_t weight_dtype) {
    switch (tpc_reduce_isa_now()) {
#if defined(__x86_64__)
    case TPC_REDUCE_AVX512:
        return tpc_norm_find_avx512(dtype, weight_dtype);
    case TPC_REDUCE_AVX2:
        return tpc_norm_find_avx2(dtype, weight_dtype);
#endif
    default:
        return tpc_norm_find_generic(dtype, weight_dtype);
    }
}

tpc_norm_row_t tpc_norm_row(const tpcomm_rms_norm_t *norm, uint64_t index, const void *sum) {
    size_t element = tpcomm_dtype_size(norm->dtype);
    tpc_norm_row_t row = {.sum = sum,
                          .weight = norm->weight,
                          .hidden = (size_t)norm->hidden,
                          .quant = norm->quant,
                          .scale = norm->scale,
                          .eps = norm->eps,
                          .weight_bias = norm->weight_bias};
    if (norm->residual != NULL) row.residual = tpc_norm_at(norm->residual, index, norm->residual_stride, element);
    if (norm->out != NULL) row.out = tpc_norm_at(norm->out, index, norm->out_stride, element);
    if (norm->quantized != NULL) row.quantized = tpc_norm_at(norm->quantized, index, norm->quantized_stride, 1);
    if (norm->quant == TPCOMM_QUANT_F8_TOKEN) row.scale = norm->scale + index;
    return row;
}

static void norm_rows(const tpcomm_rms_norm_t *norm) {
    tpc_norm_fn_t kernel = tpc_norm_find(norm->dtype, norm->weight_dtype);
    size_t element = tpcomm_dtype_size(norm->dtype);
    tpc_float_env_t env;
    tpc_float_env_enter(&env);
    for (uint64_t t = 0; t < norm->tokens; t++) {
        const void *sum = tpc_norm_at(norm->in, t, norm->in_stride, element);
        if (norm->sum != NULL)
            memcpy(tpc_norm_at(norm->sum, t, norm->sum_stride, element), sum, (size_t)norm->hidden * element);
        tpc_norm_row_t row = tpc_norm_row(norm, t, sum);
        kernel(&row);
    }
    tpc_float_env_leave(&env);
}

/* ------------------------------------------------------------------ the norm alone */

static const char *check_stream(tpcomm_stream_t stream) {
    return stream == NULL ? NULL : "on the cpu device it must be NULL";
}

static tpcomm_status_t run(const tpcomm_rms_norm_t *norm, tpcomm_stream_t stream) {
    (void)stream;
    norm_rows(norm);
    return TPCOMM_OK;
}

const tpc_norm_device_t tpc_cpu_norm = {.device_kind = TPCOMM_DEVICE_CPU, .check_stream = check_stream, .run = run};
