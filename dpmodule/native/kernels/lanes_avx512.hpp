// Sixteen floats in an AVX-512 register; included after the target pragma of kernels_avx512.cpp.
#pragma once

namespace {

struct Lanes {
    static constexpr int count = 16;
    static constexpr int registers = 24;  // accumulators; with 28, gcc stores one in every step of the product
    using V = __m512;
    static V load(const float *p) { return _mm512_loadu_ps(p); }
    static V load(const float *p, int n) { return _mm512_maskz_loadu_ps(mask(n), p); }
    static void store(float *p, V v) { _mm512_storeu_ps(p, v); }
    static void store(float *p, V v, int n) { _mm512_mask_storeu_ps(p, mask(n), v); }
    static V set(float x) { return _mm512_set1_ps(x); }
    static V fma(V a, V b, V c) { return _mm512_fmadd_ps(a, b, c); }
    static V add(V a, V b) { return _mm512_add_ps(a, b); }
    static V sub(V a, V b) { return _mm512_sub_ps(a, b); }
    static V mul(V a, V b) { return _mm512_mul_ps(a, b); }
    static V div(V a, V b) { return _mm512_div_ps(a, b); }
    static V max(V a, V b) { return _mm512_max_ps(a, b); }
    static V min(V a, V b) { return _mm512_min_ps(a, b); }
    static V sqrt(V a) { return _mm512_sqrt_ps(a); }
    static V round(V a) { return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
    static V abs(V a) { return _mm512_abs_ps(a); }
    // x * 2^n for an integral n
    static V scale(V x, V n) { return _mm512_scalef_ps(x, n); }
    static V where_greater(V a, V b, V yes, V no) {
        return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_GT_OQ), no, yes);
    }
    static V where_equal(V a, V b, V yes, V no) {
        return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ), no, yes);
    }
    static float sum(V a) { return _mm512_reduce_add_ps(a); }
    static float largest(V a) { return _mm512_reduce_max_ps(a); }
    // Transposes a square tile.
    static void transpose(V (&x)[count]) {
        V t[count];
        // within each quarter of the registers, then quarters
#pragma GCC unroll 16
        for (int i = 0; i < count; i += 4) {
            const __m512d a = pair(_mm512_unpacklo_ps(x[i], x[i + 1])),
                          b = pair(_mm512_unpacklo_ps(x[i + 2], x[i + 3]));
            const __m512d c = pair(_mm512_unpackhi_ps(x[i], x[i + 1])),
                          d = pair(_mm512_unpackhi_ps(x[i + 2], x[i + 3]));
            t[i] = _mm512_castpd_ps(_mm512_unpacklo_pd(a, b));
            t[i + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(a, b));
            t[i + 2] = _mm512_castpd_ps(_mm512_unpacklo_pd(c, d));
            t[i + 3] = _mm512_castpd_ps(_mm512_unpackhi_pd(c, d));
        }
#pragma GCC unroll 16
        for (int i = 0; i < 4; i++) {
            const V a = _mm512_shuffle_f32x4(t[i], t[i + 4], 0x88), b = _mm512_shuffle_f32x4(t[i + 8], t[i + 12], 0x88);
            const V c = _mm512_shuffle_f32x4(t[i], t[i + 4], 0xdd), d = _mm512_shuffle_f32x4(t[i + 8], t[i + 12], 0xdd);
            x[i] = _mm512_shuffle_f32x4(a, b, 0x88);
            x[i + 4] = _mm512_shuffle_f32x4(c, d, 0x88);
            x[i + 8] = _mm512_shuffle_f32x4(a, b, 0xdd);
            x[i + 12] = _mm512_shuffle_f32x4(c, d, 0xdd);
        }
    }

  private:
    static __m512d pair(V x) { return _mm512_castps_pd(x); }
    static __mmask16 mask(int n) { return static_cast<__mmask16>((1u << n) - 1u); }
};

}  // namespace
