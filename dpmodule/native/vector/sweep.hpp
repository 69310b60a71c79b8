// Passes over numbers, a register at a time; included after one of the lanes_*.hpp. No own headers: see begin_avx2.hpp.
#pragma once

namespace {

using V = Lanes::V;

// Calls body(offset, n) for every register of a row; n == Lanes::count but for the last.
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

}  // namespace
