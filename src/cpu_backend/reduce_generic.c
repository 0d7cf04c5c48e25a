/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels for every processor: 16-byte vectors, which SSE2 and NEON hold in a register and other targets take apart. */
#define VECTOR_BYTES 16
#include "cpu_backend/reduce_vector.h"

#if defined(__aarch64__)
#include <arm_neon.h>

/* Hardware takes f16 in memory order: the first and the second half of the vector, in place of lower and upper. */
#undef f16_widen
INLINE f32x2v f16_widen(u32v words) {
    float16x8_t halves = (float16x8_t)words;
    return (f32x2v){.upper = (f32v)vcvt_high_f32_f16(halves), .lower = (f32v)vcvt_f32_f16(vget_low_f16(halves))};
}

#undef f16_load
INLINE f32x2v f16_load(const void *from) {
    return f16_widen(raw_load(from));
}

#undef f16_narrow
INLINE u32v f16_narrow(f32x2v x) {
    float16x4_t lower = vcvt_f16_f32((float32x4_t)f32_nan_to(x.lower, NAN_F32));
    return (u32v)vcvt_high_f16_f32(lower, (float32x4_t)f32_nan_to(x.upper, NAN_F32));
}
#endif

#include "cpu_backend/reduce_kernels.h"

tpc_reduce_fn_t tpc_reduce_find_generic(tpcomm_dtype_t dtype, tpcomm_op_t op) {
    return reduce_find(dtype, op);
}
