// Loops over registers, and elementary functions; included after one of the lanes_*.hpp. Includes no headers: see
// kernels_avx2.cpp.
#pragma once

namespace {

using V = Lanes::V;

// Calls body(offset, n) for every register of a row; n == Lanes::count except for the last.
template <class Size, class F>
inline void sweep(Size size, F body) {
    Size j = 0;
    for (; j + Lanes::count <= size; j += Lanes::count) body(j, Lanes::count);
    if (j < size) body(j, static_cast<int>(size - j));
}

inline V get(const float *p, int n) { return n == Lanes::count ? Lanes::load(p) : Lanes::load(p, n); }
inline void put(float *p, V v, int n) {
    if (n == Lanes::count) Lanes::store(p, v);
    else Lanes::store(p, v, n);
}

inline V exp_of(V x) {
    // 2^n e^r with |r| <= ln 2 / 2; ln 2 in two parts, so that r keeps its last bits.  Relative error under 2e-7.
    using L = Lanes;
    x = L::min(L::max(x, L::set(-87.3365f)), L::set(88.7228f));  // results stay normal numbers
    const V n = L::round(L::mul(x, L::set(1.44269504f)));
    V r = L::fma(n, L::set(-0.693359375f), x);
    r = L::fma(n, L::set(2.12194440e-4f), r);
    V p = L::set(1.9875691500e-4f);
    p = L::fma(p, r, L::set(1.3981999507e-3f));
    p = L::fma(p, r, L::set(8.3334519073e-3f));
    p = L::fma(p, r, L::set(4.1665795894e-2f));
    p = L::fma(p, r, L::set(1.6666665459e-1f));
    p = L::fma(p, r, L::set(5.0000001201e-1f));
    return L::scale(L::fma(L::mul(r, r), p, L::add(r, L::set(1.0f))), n);
}

inline V exp_or_nan(V x) {
    // restores NaN, infinity and zero, which min and max above remove
    using L = Lanes;
    const V big = L::where_greater(x, L::set(88.7228f), L::set(__builtin_inff()), exp_of(x));
    return L::where_equal(x, x, L::where_greater(L::set(-87.3365f), x, L::set(0.0f), big), x);
}

inline V logistic_of(V x) {
    using L = Lanes;
    const V one = L::set(1.0f);
    return L::where_equal(x, x, L::div(one, L::add(one, exp_of(L::sub(L::set(0.0f), x)))), x);
}

inline V tanh_of(V x) {
    using L = Lanes;
    const V one = L::set(1.0f), size = L::abs(x), z = L::mul(x, x);
    V p = L::set(-5.70498872745e-3f);
    p = L::fma(p, z, L::set(2.06390887954e-2f));
    p = L::fma(p, z, L::set(-5.37397155531e-2f));
    p = L::fma(p, z, L::set(1.33314422036e-1f));
    p = L::fma(p, z, L::set(-3.33332819422e-1f));
    const V small = L::fma(L::mul(p, z), x, x);
    const V large = L::sub(one, L::div(L::set(2.0f), L::add(exp_of(L::add(size, size)), one)));
    const V signed_large = L::where_greater(x, L::set(0.0f), large, L::sub(L::set(0.0f), large));
    return L::where_equal(x, x, L::where_greater(size, L::set(0.625f), signed_large, small), x);
}

}  // namespace
