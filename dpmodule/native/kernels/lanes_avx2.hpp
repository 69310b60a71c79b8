// Eight floats in an AVX2 register; included after the target pragma of kernels_avx2.cpp.
#pragma once

namespace {

struct Lanes {
    static constexpr int count = 8;
    static constexpr int registers = 12;
    using V = __m256;
    static V load(const float *p) { return _mm256_loadu_ps(p); }
    static V load(const float *p, int n) { return _mm256_maskload_ps(p, mask(n)); }
    static void store(float *p, V v) { _mm256_storeu_ps(p, v); }
    static void store(float *p, V v, int n) { _mm256_maskstore_ps(p, mask(n), v); }
    static V set(float x) { return _mm256_set1_ps(x); }
    static V fma(V a, V b, V c) { return _mm256_fmadd_ps(a, b, c); }
    static V add(V a, V b) { return _mm256_add_ps(a, b); }
    static V sub(V a, V b) { return _mm256_sub_ps(a, b); }
    static V mul(V a, V b) { return _mm256_mul_ps(a, b); }
    static V div(V a, V b) { return _mm256_div_ps(a, b); }
    static V max(V a, V b) { return _mm256_max_ps(a, b); }
    static V min(V a, V b) { return _mm256_min_ps(a, b); }
    static V sqrt(V a) { return _mm256_sqrt_ps(a); }
    static V round(V a) { return _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
    static V abs(V a) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), a); }
    static V scale(V x, V n) {
        // in two steps, so that both factors stay in the exponent's range
        const __m256i whole = _mm256_cvtps_epi32(n), half = _mm256_srai_epi32(whole, 1);
        return _mm256_mul_ps(_mm256_mul_ps(x, power(half)), power(_mm256_sub_epi32(whole, half)));
    }
    static V where_greater(V a, V b, V yes, V no) { return _mm256_blendv_ps(no, yes, _mm256_cmp_ps(a, b, _CMP_GT_OQ)); }
    static V where_equal(V a, V b, V yes, V no) { return _mm256_blendv_ps(no, yes, _mm256_cmp_ps(a, b, _CMP_EQ_OQ)); }
    static float sum(V a) {
        float x[count], s = 0;
        _mm256_storeu_ps(x, a);
        for (float y : x) s += y;
        return s;
    }
    static float largest(V a) {
        float x[count];
        _mm256_storeu_ps(x, a);
        float s = x[0];
        for (float y : x) s = y > s ? y : s;
        return s;
    }
    // Transposes a square tile.
    static void transpose(V (&x)[count]) {
        V t[count];
        // within each half of the registers, then halves
#pragma GCC unroll 8
        for (int i = 0; i < count; i += 4) {
            const V a = _mm256_unpacklo_ps(x[i], x[i + 1]), b = _mm256_unpacklo_ps(x[i + 2], x[i + 3]);
            const V c = _mm256_unpackhi_ps(x[i], x[i + 1]), d = _mm256_unpackhi_ps(x[i + 2], x[i + 3]);
            t[i] = _mm256_shuffle_ps(a, b, 0x44);
            t[i + 1] = _mm256_shuffle_ps(a, b, 0xee);
            t[i + 2] = _mm256_shuffle_ps(c, d, 0x44);
            t[i + 3] = _mm256_shuffle_ps(c, d, 0xee);
        }
#pragma GCC unroll 8
        for (int i = 0; i < 4; i++) {
            x[i] = _mm256_permute2f128_ps(t[i], t[i + 4], 0x20);
            x[i + 4] = _mm256_permute2f128_ps(t[i], t[i + 4], 0x31);
        }
    }

  private:
    static __m256 power(__m256i n) {
        return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(n, _mm256_set1_epi32(127)), 23));
    }
    static __m256i mask(int n) {
        return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
    }
};

}  // namespace
