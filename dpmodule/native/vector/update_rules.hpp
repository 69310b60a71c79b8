// Steps of trainers, in place and in one pass; included after kernels_rows.hpp.
#pragma once

namespace {

using dpmodule::autobatch::Rule;

template <class F> inline void sweep_all(long size, F body) {
    long j = 0;
    for (; j + Lanes::count <= size; j += Lanes::count) body(j, Lanes::count);
    if (j < size) body(j, static_cast<int>(size - j));
}

// The root that a step is divided by, after `eps` was added under it.
inline V root(V x, V eps) { return Lanes::sqrt(Lanes::add(x, eps)); }

// p becomes p * past + x * now.
inline V mix(float *p, V x, V past, V now, int n) {
    const V mixed = Lanes::fma(get(p, n), past, Lanes::mul(x, now));
    put(p, mixed, n);
    return mixed;
}

void rule(Rule kind, long size, float *w, const float *g, float *const *moments, const float *factors, float scale) {
    using L = Lanes;
    float *m = moments[0], *v = moments[1], *u = moments[2];
    const V k = L::set(scale), a = L::set(factors[0]), rest = L::set(1.0f - factors[0]), b = L::set(factors[1]);
    const V down = L::set(-factors[0]), step = L::set(-factors[1]), last = L::set(-factors[2]), zero = L::set(0.0f);
    const auto gradient = [&](long j, int n) { return L::mul(get(g + j, n), k); };
    const auto move = [&](long j, int n, V x) { put(w + j, L::add(get(w + j, n), x), n); };
    switch (kind) {
        case Rule::Descent:  // rate
            return sweep_all(size, [&](long j, int n) { move(j, n, L::mul(down, gradient(j, n))); });
        case Rule::Momentum:  // momentum, rate
            return sweep_all(size, [&](long j, int n) { move(j, n, mix(m + j, gradient(j, n), a, step, n)); });
        case Rule::Adagrad:  // eps, rate
            return sweep_all(size, [&](long j, int n) {
                const V x = gradient(j, n), total = L::fma(x, x, get(m + j, n));
                put(m + j, total, n);
                move(j, n, L::div(L::mul(step, x), root(total, a)));
            });
        case Rule::RMSProp:  // rho, eps, rate
            return sweep_all(size, [&](long j, int n) {
                const V x = gradient(j, n), mean = mix(m + j, L::mul(x, x), a, rest, n);
                move(j, n, L::div(L::mul(last, x), root(mean, b)));
            });
        case Rule::Adadelta:  // rho, eps
            return sweep_all(size, [&](long j, int n) {
                const V x = gradient(j, n), mean = mix(m + j, L::mul(x, x), a, rest, n);
                const V change = L::sub(zero, L::div(L::mul(x, root(get(v + j, n), b)), root(mean, b)));
                mix(v + j, L::mul(change, change), a, rest, n);
                move(j, n, change);
            });
        case Rule::Adam:  // beta_1, beta_2, rate, eps
        case Rule::Amsgrad: {
            const V others = L::set(1.0f - factors[1]), eps = L::set(factors[3]);
            return sweep_all(size, [&](long j, int n) {
                const V x = gradient(j, n), mean = mix(m + j, x, a, rest, n);
                V square = mix(v + j, L::mul(x, x), b, others, n);
                if (kind == Rule::Amsgrad) {
                    square = L::max(square, get(u + j, n));
                    put(u + j, square, n);
                }
                move(j, n, L::div(L::mul(last, mean), L::add(L::sqrt(square), eps)));
            });
        }
    }
}

}  // namespace
