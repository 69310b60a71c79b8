// In-place optimizer steps; included after kernels_math.hpp. update.hpp describes the formulas.
#pragma once

namespace {

using dpmodule::vector::UpdateRule;

inline V number(double x) { return Lanes::set(static_cast<float>(x)); }

// A running mean with decay `share`.
struct Mean {
    V share, rest;
    explicit Mean(double kept) : share(number(kept)), rest(number(1 - kept)) {}
    V mix(float *p, V x, int n) const {
        const V mixed = Lanes::fma(get(p, n), share, Lanes::mul(x, rest));
        put(p, mixed, n);
        return mixed;
    }
};

// Clips to [-size, size]; NaN stays NaN, since it is the second operand.
struct Clip {
    bool on;
    V low, high;
    explicit Clip(double size) : on(size > 0), low(number(-size)), high(number(size)) {}
    V of(V x) const { return on ? Lanes::min(high, Lanes::max(low, x)) : x; }
};

// `is_bare`: without weight decay and gradient clipping, which are then not checked for each register.
template <bool is_bare>
void step_of(const UpdateRule &rule, float *w, float *const *states, const float *g, std::size_t size) {
    using L = Lanes;
    using Kind = UpdateRule::Kind;
    const int count = dpmodule::vector::state_count(rule.kind);
    float *const first = count > 0 ? states[0] : nullptr, *const second = count > 1 ? states[1] : nullptr;
    float *const third = count > 2 ? states[2] : nullptr;
    const V scale = number(rule.rescale_grad), wd = number(rule.wd), down = number(-rule.lr),
            eps = number(rule.epsilon);
    const bool decays = !is_bare && rule.wd != 0;  // otherwise an infinite parameter would give NaN
    const Clip clip(is_bare ? 0 : rule.clip_gradient), weights(rule.clip_weights);
    const auto rescaled = [&](std::size_t j, int n) { return L::mul(get(g + j, n), scale); };
    const auto decayed = [&](V x, V now) { return decays ? L::fma(wd, now, x) : x; };
    const auto late = [&](std::size_t j, int n) { return clip.of(rescaled(j, n)); };
    const auto early = [&](std::size_t j, int n, V now) { return clip.of(decayed(rescaled(j, n), now)); };
    const auto root = [&](V x) { return L::sqrt(L::add(x, eps)); };
    switch (rule.kind) {
        case Kind::Sgd:
            return sweep(size, [&](std::size_t j, int n) {
                const V now = get(w + j, n);
                put(w + j, L::fma(down, decayed(late(j, n), now), now), n);
            });
        case Kind::Momentum: {
            const V keep = number(rule.momentum);
            return sweep(size, [&](std::size_t j, int n) {
                const V now = get(w + j, n);
                const V change = L::fma(keep, get(first + j, n), L::mul(down, decayed(late(j, n), now)));
                put(first + j, change, n);
                put(w + j, L::add(now, change), n);
            });
        }
        case Kind::AdaGrad:
            return sweep(size, [&](std::size_t j, int n) {
                const V x = late(j, n), now = get(w + j, n), total = L::fma(x, x, get(first + j, n));
                put(first + j, total, n);
                put(w + j, L::fma(down, decayed(L::div(x, root(total)), now), now), n);
            });
        case Kind::PlainAdaGrad:
            return sweep(size, [&](std::size_t j, int n) {
                const V now = get(w + j, n), x = decayed(late(j, n), now), total = L::fma(x, x, get(first + j, n));
                put(first + j, total, n);
                put(w + j, L::fma(down, L::div(x, L::add(L::sqrt(total), eps)), now), n);
            });
        case Kind::Adam:
        case Kind::AmsGrad: {
            const Mean mean1(rule.beta1), mean2(rule.beta2);
            const auto adam = [&](std::size_t j, int n, auto greatest) {
                const V now = get(w + j, n), x = early(j, n, now), slope = mean1.mix(first + j, x, n);
                const V square = greatest(mean2.mix(second + j, L::mul(x, x), n));
                put(w + j, L::add(now, L::div(L::mul(down, slope), L::add(L::sqrt(square), eps))), n);
            };
            if (!third) return sweep(size, [&](std::size_t j, int n) { adam(j, n, [](V square) { return square; }); });
            return sweep(size, [&](std::size_t j, int n) {
                adam(j, n, [&](V square) {
                    const V found = L::max(square, get(third + j, n));
                    put(third + j, found, n);
                    return found;
                });
            });
        }
        case Kind::RmsProp: {
            const Mean mean(rule.gamma1);
            return sweep(size, [&](std::size_t j, int n) {
                const V now = get(w + j, n), x = early(j, n, now), square = mean.mix(first + j, L::mul(x, x), n);
                put(w + j, weights.of(L::fma(down, L::div(x, root(square)), now)), n);
            });
        }
        case Kind::Centered: {
            const Mean mean(rule.gamma1);
            const V keep = number(rule.gamma2);
            return sweep(size, [&](std::size_t j, int n) {
                const V now = get(w + j, n), x = early(j, n, now), square = mean.mix(first + j, L::mul(x, x), n);
                const V middle = mean.mix(second + j, x, n), spread = L::sub(square, L::mul(middle, middle));
                const V change = L::fma(keep, get(third + j, n), L::mul(down, L::div(x, root(spread))));
                put(third + j, change, n);
                put(w + j, weights.of(L::add(now, change)), n);
            });
        }
        case Kind::AdaDelta: {
            const Mean mean(rule.gamma1);
            return sweep(size, [&](std::size_t j, int n) {
                const V x = late(j, n), now = get(w + j, n), square = mean.mix(first + j, L::mul(x, x), n);
                const V change = L::div(L::mul(x, root(get(second + j, n))), root(square));
                mean.mix(second + j, L::mul(change, change), n);
                put(w + j, L::sub(now, decayed(change, now)), n);
            });
        }
        case Kind::Ftrl: {
            if (rule.lr == 0) return;
            const V inverse = number(1 / rule.lr), beta = number(rule.beta);
            const V high = number(rule.lamda1), low = number(-rule.lamda1);
            return sweep(size, [&](std::size_t j, int n) {
                const V x = late(j, n), now = get(w + j, n), before = get(second + j, n);
                const V total = L::fma(x, x, before), after = L::sqrt(total);
                const V grown = L::mul(L::sub(after, L::sqrt(before)), inverse);
                const V lead = L::sub(L::add(get(first + j, n), x), L::mul(grown, now));
                put(first + j, lead, n);
                put(second + j, total, n);
                const V beyond = L::sub(L::min(high, L::max(low, lead)), lead);  // 0 within lamda1 of 0
                put(w + j, L::div(beyond, L::fma(L::add(beta, after), inverse, wd)), n);
            });
        }
    }
}

void step(const UpdateRule &rule, float *w, float *const *states, const float *g, std::size_t size) {
    const bool is_bare = rule.wd == 0 && !(rule.clip_gradient > 0);
    (is_bare ? step_of<true> : step_of<false>)(rule, w, states, g, size);
}

}  // namespace

// The kernel table of one instruction set.
#define KERNELS(name)                                                                         \
    {name,   Lanes::count, product, turn,      interleave, separate,    unary,    unary_back, \
     binary, binary_back,  lstm,    lstm_back, accumulate, add_exactly, sum_rows, axpy,       \
     dot,    sum,          largest, extremes,  exp_sum,    step}
