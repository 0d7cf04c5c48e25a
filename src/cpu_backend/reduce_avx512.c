/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels for x86-64 with AVX-512 F, BW, DQ and VL (Skylake-SP, Zen 4 and newer). */
#define VECTOR_BYTES 64
#include "cpu_backend/reduce_vector.h"

#include <immintrin.h>

#undef raw_load_part
INLINE u32v raw_load_part(const void *from, size_t bytes) {
    return (u32v)_mm512_maskz_loadu_epi8(~UINT64_C(0) >> (VECTOR_BYTES - bytes), from);
}

#undef raw_store_part
INLINE void raw_store_part(void *to, u32v v, size_t bytes) {
    _mm512_mask_storeu_epi8(to, ~UINT64_C(0) >> (VECTOR_BYTES - bytes), (__m512i)v);
}

/* vfixupimm: the table has a digit per class of number, quiet NaN and signalling NaN being the last two: 1 takes the
   number as it is, 0 what the destination holds. */
#define FIXUP_NAN 0x11111100

#undef f32_nan_to
INLINE f32v f32_nan_to(f32v x, uint32_t nan_bits) {
    __m512 nan = _mm512_castsi512_ps(_mm512_set1_epi32((int)nan_bits));
    return (f32v)_mm512_fixupimm_ps(nan, (__m512)x, _mm512_set1_epi32(FIXUP_NAN), 0);
}

#undef f64_nan_to
INLINE f64v f64_nan_to(f64v x, uint64_t nan_bits) {
    __m512d nan = _mm512_castsi512_pd(_mm512_set1_epi64((long long)nan_bits));
    return (f64v)_mm512_fixupimm_pd(nan, (__m512d)x, _mm512_set1_epi64(FIXUP_NAN), 0);
}

/* Rounds all 16-bit lanes at once: kept is the upper half of each number, cut its lower half, in the same lane. One is
   added to kept where cut is over one half (0x8000), or equal to it and kept is odd. */
#undef bf16_narrow
INLINE u32v bf16_narrow(f32x2v x) {
    const __mmask32 odd_lanes = 0xAAAAAAAA;
    __m512i upper = (__m512i)f32_nan_to(x.upper, NAN_F32_BF16), lower = (__m512i)f32_nan_to(x.lower, NAN_F32_BF16);
    __m512i kept = _mm512_mask_mov_epi16(_mm512_srli_epi32(lower, 16), odd_lanes, upper);
    __m512i cut = _mm512_mask_mov_epi16(lower, odd_lanes, _mm512_slli_epi32(upper, 16));
    cut = _mm512_ternarylogic_epi32(cut, kept, _mm512_set1_epi16(1), 0xF8); /* cut | (kept & 1) */
    __mmask32 up = _mm512_cmpgt_epu16_mask(cut, _mm512_set1_epi16(INT16_MIN));
    return (u32v)_mm512_mask_add_epi16(kept, up, kept, _mm512_set1_epi16(1));
}

/* Hardware takes f16 in memory order: the first and the second half of the vector, in place of lower and upper. */
#undef f16_load
INLINE f32x2v f16_load(const void *from) {
    const __m256i_u *halves = (const __m256i_u *)from;
    return (f32x2v){.upper = (f32v)_mm512_cvtph_ps(_mm256_loadu_si256(halves + 1)),
                    .lower = (f32v)_mm512_cvtph_ps(_mm256_loadu_si256(halves))};
}

#undef f16_widen
INLINE f32x2v f16_widen(u32v words) {
    return f16_load(&words);
}

/* Masked: a lane with a NaN keeps the canonical one. */
INLINE __m256i f16_narrow_half(f32v x) {
    __mmask16 is_number = _mm512_cmp_ps_mask((__m512)x, (__m512)x, _CMP_ORD_Q);
    return _mm512_mask_cvtps_ph(_mm256_set1_epi16(0x7FFF), is_number, (__m512)x,
                                _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

#undef f16_narrow
INLINE u32v f16_narrow(f32x2v x) {
    __m512i lower = _mm512_castsi256_si512(f16_narrow_half(x.lower));
    return (u32v)_mm512_inserti64x4(lower, f16_narrow_half(x.upper), 1);
}

#include "cpu_backend/reduce_kernels.h"

tpc_reduce_fn_t tpc_reduce_find_avx512(tpcomm_dtype_t dtype, tpcomm_op_t op) {
    return reduce_find(dtype, op);
}
