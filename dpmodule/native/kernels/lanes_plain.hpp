// Four floats as a compiler vector, for any instruction set.
#pragma once
#include <cmath>
#include <cstring>

namespace {

struct Lanes {
    static constexpr int count = 4;
    static constexpr int registers = 8;
    typedef float V __attribute__((vector_size(4 * count)));
    template <class F>
    static V each(V a, F f) {
        return V{f(a[0]), f(a[1]), f(a[2]), f(a[3])};
    }
    static V load(const float *p) { return load(p, count); }
    static V load(const float *p, int n) {
        V v{};
        std::memcpy(&v, p, sizeof(float) * n);
        return v;
    }
    static void store(float *p, V v) { store(p, v, count); }
    static void store(float *p, V v, int n) { std::memcpy(p, &v, sizeof(float) * n); }
    static V set(float x) { return V{x, x, x, x}; }
    static V fma(V a, V b, V c) { return a * b + c; }
    static V add(V a, V b) { return a + b; }
    static V sub(V a, V b) { return a - b; }
    static V mul(V a, V b) { return a * b; }
    static V div(V a, V b) { return a / b; }
    static V max(V a, V b) { return a > b ? a : b; }
    static V min(V a, V b) { return a < b ? a : b; }
    static V sqrt(V a) {
        return each(a, [](float x) { return std::sqrt(x); });
    }
    static V round(V a) {
        return each(a, [](float x) { return std::nearbyint(x); });
    }
    static V abs(V a) {
        return each(a, [](float x) { return std::fabs(x); });
    }
    static V scale(V x, V n) {
        for (int i = 0; i < count; i++) x[i] = std::ldexp(x[i], static_cast<int>(n[i]));
        return x;
    }
    static V where_greater(V a, V b, V yes, V no) { return a > b ? yes : no; }
    static V where_equal(V a, V b, V yes, V no) { return a == b ? yes : no; }
    // Transposes a square tile.
    static void transpose(V (&x)[count]) {
        for (int i = 0; i < count; i++) {
            for (int j = 0; j < i; j++) {
                const float below = x[i][j];
                x[i][j] = x[j][i];
                x[j][i] = below;
            }
        }
    }
    static float sum(V a) { return a[0] + a[1] + a[2] + a[3]; }
    static float largest(V a) {
        float s = a[0];
        for (int i = 1; i < count; i++) s = a[i] > s ? a[i] : s;
        return s;
    }
};

}  // namespace
