/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels for x86-64 with AVX2 and F16C. */
#define VECTOR_BYTES 32
#include "cpu_backend/reduce_vector.h"

#include <immintrin.h>

#undef f32_nan_to
INLINE f32v f32_nan_to(f32v x, uint32_t nan_bits) {
    __m256 nan = _mm256_castsi256_ps(_mm256_set1_epi32((int)nan_bits));
    return (f32v)_mm256_blendv_ps(nan, (__m256)x, _mm256_cmp_ps((__m256)x, (__m256)x, _CMP_ORD_Q));
}

#undef f64_nan_to
INLINE f64v f64_nan_to(f64v x, uint64_t nan_bits) {
    __m256d nan = _mm256_castsi256_pd(_mm256_set1_epi64x((long long)nan_bits));
    return (f64v)_mm256_blendv_pd(nan, (__m256d)x, _mm256_cmp_pd((__m256d)x, (__m256d)x, _CMP_ORD_Q));
}

/* Rounds all 16-bit lanes at once: kept is the upper half of each number, cut its lower half, in the same lane. One is
   added to kept where cut is over one half (0x8000), or equal to it and kept is odd; unsigned, so by way of the flipped
   sign. */
#undef bf16_narrow
INLINE u32v bf16_narrow(f32x2v x) {
    __m256i upper = (__m256i)f32_nan_to(x.upper, NAN_F32_BF16), lower = (__m256i)f32_nan_to(x.lower, NAN_F32_BF16);
    __m256i kept = _mm256_blend_epi16(_mm256_srli_epi32(lower, 16), upper, 0xAA);
    __m256i cut = _mm256_blend_epi16(lower, _mm256_slli_epi32(upper, 16), 0xAA);
    cut = _mm256_or_si256(cut, _mm256_and_si256(kept, _mm256_set1_epi16(1)));
    __m256i flipped = _mm256_xor_si256(cut, _mm256_set1_epi16(INT16_MIN));
    __m256i up = _mm256_cmpgt_epi16(flipped, _mm256_setzero_si256());
    return (u32v)_mm256_sub_epi16(kept, up);
}

/* Hardware takes f16 in memory order: the first and the second half of the vector, in place of lower and upper. */
#undef f16_load
INLINE f32x2v f16_load(const void *from) {
    const __m128i_u *halves = (const __m128i_u *)from;
    return (f32x2v){.upper = (f32v)_mm256_cvtph_ps(_mm_loadu_si128(halves + 1)),
                    .lower = (f32v)_mm256_cvtph_ps(_mm_loadu_si128(halves))};
}

#undef f16_widen
INLINE f32x2v f16_widen(u32v words) {
    return f16_load(&words);
}

INLINE __m128i f16_narrow_half(f32v x) {
    return _mm256_cvtps_ph((__m256)f32_nan_to(x, NAN_F32), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

#undef f16_narrow
INLINE u32v f16_narrow(f32x2v x) {
    return (u32v)_mm256_set_m128i(f16_narrow_half(x.upper), f16_narrow_half(x.lower));
}

#include "cpu_backend/reduce_kernels.h"

tpc_reduce_fn_t tpc_reduce_find_avx2(tpcomm_dtype_t dtype, tpcomm_op_t op) {
    return reduce_find(dtype, op);
}
