/* SPDX-License-Identifier: Apache-2.0 */
#include "cpu_backend/norm_kernels.h"

tpc_norm_fn_t tpc_norm_find_avx2(tpcomm_dtype_t dtype, tpcomm_dtype_t weight_dtype) {
    return norm_find(dtype, weight_dtype);
}
