/* SPDX-License-Identifier: Apache-2.0 */
/** The kernels of each instruction set, one file each; for reduce.c and norm.c alone, which ask what the processor has.
 */
#ifndef TPC_CPU_BACKEND_REDUCE_TABLES_H
#define TPC_CPU_BACKEND_REDUCE_TABLES_H

#include "cpu_backend/norm.h"
#include "cpu_backend/reduce.h"

/** NULL where there is no such kernel. */
tpc_reduce_fn_t tpc_reduce_find_generic(tpcomm_dtype_t dtype, tpcomm_op_t op);
tpc_reduce_fn_t tpc_reduce_find_avx2(tpcomm_dtype_t dtype, tpcomm_op_t op);
tpc_reduce_fn_t tpc_reduce_find_avx512(tpcomm_dtype_t dtype, tpcomm_op_t op);

tpc_norm_fn_t tpc_norm_find_generic(tpcomm_dtype_t dtype, tpcomm_dtype_t weight_dtype);
tpc_norm_fn_t tpc_norm_find_avx2(tpcomm_dtype_t dtype, tpcomm_dtype_t weight_dtype);
tpc_norm_fn_t tpc_norm_find_avx512(tpcomm_dtype_t dtype, tpcomm_dtype_t weight_dtype);

#endif
