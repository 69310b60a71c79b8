// Four floats in portable C++ that compilers turn into whatever the machine has.
#pragma once
#include <cmath>
#include <utility>

namespace {

struct Lanes {
    static constexpr int count = 4;
    static constexpr int registers = 8;
    struct V {
        float x[4];
    };
    template <class F>
    static V each(F f) {
        return {{f(0), f(1), f(2), f(3)}};
    }
    static V load(const float *p) { return {{p[0], p[1], p[2], p[3]}}; }
    static V load(const float *p, int n) {
        return each([=](int i) { return i < n ? p[i] : 0.0f; });
    }
    static void store(float *p, V v) { store(p, v, 4); }
    static void store(float *p, V v, int n) {
        for (int i = 0; i < n; i++) p[i] = v.x[i];
    }
    static V set(float x) { return {{x, x, x, x}}; }
    static V fma(V a, V b, V c) {
        return each([=](int i) { return a.x[i] * b.x[i] + c.x[i]; });
    }
    static V add(V a, V b) {
        return each([=](int i) { return a.x[i] + b.x[i]; });
    }
    static V sub(V a, V b) {
        return each([=](int i) { return a.x[i] - b.x[i]; });
    }
    static V mul(V a, V b) {
        return each([=](int i) { return a.x[i] * b.x[i]; });
    }
    static V div(V a, V b) {
        return each([=](int i) { return a.x[i] / b.x[i]; });
    }
    static V max(V a, V b) {
        return each([=](int i) { return a.x[i] > b.x[i] ? a.x[i] : b.x[i]; });
    }
    static V min(V a, V b) {
        return each([=](int i) { return a.x[i] < b.x[i] ? a.x[i] : b.x[i]; });
    }
    static V sqrt(V a) {
        return each([=](int i) { return std::sqrt(a.x[i]); });
    }
    static V round(V a) {
        return each([=](int i) { return std::nearbyint(a.x[i]); });
    }
    static V abs(V a) {
        return each([=](int i) { return std::fabs(a.x[i]); });
    }
    static V scale(V x, V n) {
        return each([=](int i) { return std::ldexp(x.x[i], static_cast<int>(n.x[i])); });
    }
    static V where_greater(V a, V b, V yes, V no) {
        return each([=](int i) { return a.x[i] > b.x[i] ? yes.x[i] : no.x[i]; });
    }
    static V where_equal(V a, V b, V yes, V no) {
        return each([=](int i) { return a.x[i] == b.x[i] ? yes.x[i] : no.x[i]; });
    }
    // Row i of a square of numbers becomes column i.
    static void transpose(V (&x)[count]) {
        for (int i = 0; i < count; i++) {
            for (int j = 0; j < i; j++) std::swap(x[i].x[j], x[j].x[i]);
        }
    }
    static float sum(V a) { return a.x[0] + a.x[1] + a.x[2] + a.x[3]; }
    static float largest(V a) {
        float s = a.x[0];
        for (float y : a.x) s = y > s ? y : s;
        return s;
    }
};

}  // namespace
