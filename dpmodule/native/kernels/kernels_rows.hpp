// Elementwise functions over blocks of rows, the LSTM cell and small reductions; included after kernels_math.hpp.
#pragma once

namespace {

using dpmodule::vector::Binary;
using dpmodule::vector::Block;
using dpmodule::vector::LstmRow;
using dpmodule::vector::LstmRowBack;
using dpmodule::vector::Reads;
using dpmodule::vector::Unary;

// y = f(from...)
template <class F, class... From>
inline void map(int rows, int width, F f, Block y, From... from) {
    if (y.stride == width && (... && (from.stride == width))) {
        width *= rows;
        rows = 1;
    }
    for (int i = 0; i < rows; i++) {
        sweep(width, [&](int j, int n) { put(y.at + j, f(get(from.at + j, n)...), n); });
        y.at += y.stride;
        ((from.at += from.stride), ...);
    }
}

// dx (+)= f(dy, a, b); blocks that f does not use may be anything readable
template <class F>
inline void back(int rows, int width, Block dx, bool add, Block dy, Block a, Block b, F f) {
    for (int i = 0; i < rows; i++, dx.at += dx.stride, dy.at += dy.stride, a.at += a.stride, b.at += b.stride) {
        if (add)
            sweep(width, [&](int j, int n) {
                put(dx.at + j, Lanes::add(get(dx.at + j, n), f(get(dy.at + j, n), a.at + j, b.at + j, n)), n);
            });
        else sweep(width, [&](int j, int n) { put(dx.at + j, f(get(dy.at + j, n), a.at + j, b.at + j, n), n); });
    }
}

inline V log_of(V x, int n) {
    // rare: the C library, element by element
    float z[Lanes::count];
    Lanes::store(z, x);
    for (int i = 0; i < n; i++) z[i] = __builtin_logf(z[i]);
    return Lanes::load(z);
}

inline V squared(V x) { return Lanes::mul(x, x); }

constexpr float selu_alpha = 1.67326324235f, selu_scale = 1.05070098735f;

void unary(Unary op, float attr, int rows, int width, Block y, Block x) {
    using L = Lanes;
    const V zero = L::set(0.0f), one = L::set(1.0f), k = L::set(attr);
    switch (op) {
#define BY_LANES(kind, name, reads, value, gradient) \
    case Unary::kind: map(rows, width, [=](V v) { return value; }, y, x); break;
#include "unary_list.hpp"
        default: dpmodule::vector::unary_scalar(op, attr, rows, width, y, x); break;
    }
}

// A zero gradient stays zero where the derivative is infinite, so that unused parts of the loss have no effect.
inline V only_with(V d, V found) { return Lanes::where_equal(d, Lanes::set(0.0f), d, found); }

void unary_back(Unary op, float attr, int rows, int width, Block dx, bool add, Block dy, Block x, Block y) {
    using L = Lanes;
    const V zero = L::set(0.0f), one = L::set(1.0f), k = L::set(attr);
    const auto from = [&](Block p, auto f) {
        back(rows, width, dx, add, dy, p, p,
             [&](V d, const float *a, const float *, int n) { return f(d, get(a, n)); });
    };
    const Block at[] = {x, y, dy};  // by Reads
    switch (op) {
#define BY_LANES(kind, name, reads, value, gradient)                                \
    case Unary::kind:                                                               \
        from(at[static_cast<int>(Reads::reads)],                                    \
             [=]([[maybe_unused]] V d, [[maybe_unused]] V v) { return gradient; }); \
        break;
#define VALUE_BY_NUMBER BY_LANES
#include "unary_list.hpp"
        default: dpmodule::vector::unary_scalar_back(op, attr, rows, width, dx, add, dy, x); break;
    }
}

// The result for a number that remains if it is NaN.
inline V unless_nan(V p, V found) { return Lanes::where_equal(p, p, found, p); }

void binary(Binary op, int rows, int width, Block y, Block a, Block b) {
    using L = Lanes;
    const auto of = [&](auto f) { map(rows, width, f, y, a, b); };
    switch (op) {
        case Binary::Add: of([](V p, V q) { return L::add(p, q); }); break;
        case Binary::Sub: of([](V p, V q) { return L::sub(p, q); }); break;
        case Binary::Mul: of([](V p, V q) { return L::mul(p, q); }); break;
        case Binary::Div: of([](V p, V q) { return L::div(p, q); }); break;
        case Binary::Max: of([](V p, V q) { return unless_nan(p, L::max(p, q)); }); break;
        case Binary::Min: of([](V p, V q) { return unless_nan(p, L::min(p, q)); }); break;
        case Binary::Equal: of([](V p, V q) { return L::where_equal(p, q, L::set(1.0f), L::set(0.0f)); }); break;
        default: dpmodule::vector::binary_scalar(op, rows, width, y, a, b); break;
    }
}

void binary_back(Binary op, int which, int rows, int width, Block dx, bool add, Block dy, Block a, Block b, Block y) {
    using L = Lanes;
    const V zero = L::set(0.0f);
    const auto plain = [&](auto f) {
        back(rows, width, dx, add, dy, dy, dy, [&](V d, const float *, const float *, int) { return f(d); });
    };
    const auto with = [&](Block p, Block q, auto f) {
        back(rows, width, dx, add, dy, p, q,
             [&](V d, const float *s, const float *t, int n) { return f(d, get(s, n), get(t, n)); });
    };
    switch (op) {
        case Binary::Add: plain([](V d) { return d; }); break;
        case Binary::Sub:
            if (which) plain([=](V d) { return L::sub(zero, d); });
            else plain([](V d) { return d; });
            break;
        case Binary::Mul:
            with(which ? a : b, which ? a : b, [](V d, V o, V) { return only_with(d, L::mul(d, o)); });
            break;
        case Binary::Div:
            if (which) with(y, b, [=](V d, V v, V o) { return only_with(d, L::sub(zero, L::div(L::mul(d, v), o))); });
            else with(b, b, [](V d, V o, V) { return only_with(d, L::div(d, o)); });
            break;
        case Binary::Max:  // a wins a tie
            if (which) with(a, b, [=](V d, V p, V q) { return L::where_greater(q, p, d, zero); });
            else with(a, b, [=](V d, V p, V q) { return L::where_greater(q, p, zero, d); });
            break;
        case Binary::Min:
            if (which) with(a, b, [=](V d, V p, V q) { return L::where_greater(p, q, d, zero); });
            else with(a, b, [=](V d, V p, V q) { return L::where_greater(p, q, zero, d); });
            break;
        case Binary::Equal: plain([=](V) { return zero; }); break;
        default: dpmodule::vector::binary_scalar_back(op, which, rows, width, dx, add, dy, a, b); break;
    }
}

void lstm(const LstmRow &row) {
    using L = Lanes;
    const int w = row.width;
    float *i = row.gates, *f = i + w, *o = f + w, *u = o + w;
    const V shift = L::set(row.forget_bias);
    sweep(w, [&](int j, int n) {
        const V gi = logistic_of(get(i + j, n)), gf = logistic_of(L::add(get(f + j, n), shift));
        const V go = logistic_of(get(o + j, n)), gu = tanh_of(get(u + j, n));
        V c = L::mul(gi, gu);
        if (row.c_before) c = L::fma(gf, get(row.c_before + j, n), c);
        put(i + j, gi, n);
        put(f + j, gf, n);
        put(o + j, go, n);
        put(u + j, gu, n);
        put(row.c + j, c, n);
        put(row.h + j, L::mul(go, tanh_of(c)), n);
    });
}

void lstm_back(const LstmRowBack &row) {
    using L = Lanes;
    const int w = row.width;
    const float *i = row.gates, *f = i + w, *o = f + w, *u = o + w;
    float *di = row.dgates, *df = di + w, *do_ = df + w, *du = do_ + w;
    const V one = L::set(1.0f);
    sweep(w, [&](int j, int n) {
        const V gi = get(i + j, n), gf = get(f + j, n), go = get(o + j, n), gu = get(u + j, n);
        // h = o tanh(c): a division is cheaper than the function; if o is zero, so are the products
        const V t = L::where_greater(go, L::set(0.0f), L::div(get(row.h + j, n), go), L::set(0.0f));
        const V dh = get(row.dh + j, n);
        const V d = L::fma(L::mul(dh, go), L::sub(one, L::mul(t, t)), get(row.dc + j, n));
        put(row.dc + j, d, n);
        put(di + j, L::mul(L::mul(d, gu), L::mul(gi, L::sub(one, gi))), n);
        put(do_ + j, L::mul(L::mul(dh, t), L::mul(go, L::sub(one, go))), n);
        put(du + j, L::mul(L::mul(d, gi), L::sub(one, L::mul(gu, gu))), n);
        if (row.c_before) put(df + j, L::mul(L::mul(d, get(row.c_before + j, n)), L::mul(gf, L::sub(one, gf))), n);
        else put(df + j, L::set(0.0f), n);
        if (row.dc_before) put(row.dc_before + j, L::fma(d, gf, get(row.dc_before + j, n)), n);
    });
}

void accumulate(int width, float *y, const float *x) {
    sweep(width, [&](int j, int n) { put(y + j, Lanes::add(get(y + j, n), get(x + j, n)), n); });
}

void axpy(int width, float *y, float a, const float *x) {
    const V k = Lanes::set(a);
    sweep(width, [&](int j, int n) { put(y + j, Lanes::fma(k, get(x + j, n), get(y + j, n)), n); });
}

// A compensated sum: the total, and its rounding error.
struct Exact {
    V total, lost;
    void add(V x) {
        const V found = Lanes::add(total, x), taken = Lanes::sub(found, total);
        const V off = Lanes::add(Lanes::sub(total, Lanes::sub(found, taken)), Lanes::sub(x, taken));
        lost = Lanes::where_equal(off, off, Lanes::add(lost, off), lost);  // infinity has no error
        total = found;
    }
    V all() const { return Lanes::add(total, lost); }
};

constexpr int block = dpmodule::vector::Kernels::block;

// The sum of a row, to which body(offset, n, sum) adds register by register.
template <class F>
inline float total_of(int width, F body) {
    Exact all = {Lanes::set(0.0f), Lanes::set(0.0f)};
    for (int first = 0; first < width; first += block * Lanes::count) {
        const int rest = width - first;
        V s = Lanes::set(0.0f);
        sweep(rest < block * Lanes::count ? rest : block * Lanes::count,
              [&](int j, int n) { s = body(first + j, n, s); });
        all.add(s);
    }
    return Lanes::sum(all.all());
}

void add_exactly(int width, float *y, float *lost, const float *x) {
    sweep(width, [&](int j, int n) {
        Exact sum = {get(y + j, n), get(lost + j, n)};
        sum.add(get(x + j, n));
        put(y + j, sum.total, n);
        put(lost + j, sum.lost, n);
    });
}

// Sums of some registers of each row.
template <int NV>
inline void sum_columns(int rows, float *y, Block x, const int *which, int tail) {
    Exact all[NV];
    for (int v = 0; v < NV; v++) all[v] = {Lanes::set(0.0f), Lanes::set(0.0f)};
    for (int first = 0; first < rows; first += block) {
        V s[NV];
        for (int v = 0; v < NV; v++) s[v] = Lanes::set(0.0f);
        for (int i = first; i < rows && i < first + block; i++) {
            const float *row = x.at + (which ? which[i] : i) * x.stride;
#pragma GCC unroll 4
            for (int v = 0; v < NV; v++)
                s[v] = Lanes::add(s[v], get(row + v * Lanes::count, v == NV - 1 ? tail : Lanes::count));
        }
        for (int v = 0; v < NV; v++) all[v].add(s[v]);
    }
    for (int v = 0; v < NV; v++) {
        float *to = y + v * Lanes::count;
        const int n = v == NV - 1 ? tail : Lanes::count;
        put(to, Lanes::add(get(to, n), all[v].all()), n);
    }
}

void sum_rows(int rows, int width, float *y, Block x, const int *which) {
    for (int j = 0; j < width;) {
        const int rest = width - j;
        if (rest >= 4 * Lanes::count) {
            sum_columns<4>(rows, y + j, {x.at + j, x.stride}, which, Lanes::count);
            j += 4 * Lanes::count;
        } else {
            sum_columns<1>(rows, y + j, {x.at + j, x.stride}, which, rest < Lanes::count ? rest : Lanes::count);
            j += Lanes::count;
        }
    }
}

float dot(int width, const float *x, const float *y) {
    return total_of(width, [&](int j, int n, V s) { return Lanes::fma(get(x + j, n), get(y + j, n), s); });
}

float sum(int width, const float *x) {
    return total_of(width, [&](int j, int n, V s) { return Lanes::add(s, get(x + j, n)); });
}

float largest(int width, const float *x) {
    float best = x[0];
    int j = 0;
    if (width >= Lanes::count) {
        V s = Lanes::load(x);
        for (j = Lanes::count; j + Lanes::count <= width; j += Lanes::count) s = Lanes::max(s, Lanes::load(x + j));
        best = Lanes::largest(s);
    }
    for (; j < width; j++) best = x[j] > best ? x[j] : best;
    return best;
}

void extremes(bool least, int rows, int width, float *y, const float *x) {
    using L = Lanes;
    sweep(width, [&](int j, int n) {
        V best = get(x + j, n);
        for (int i = 1; i < rows; i++) {
            const V v = get(x + static_cast<long>(i) * width + j, n);
            const V found = least ? L::where_greater(best, v, v, best) : L::where_greater(v, best, v, best);
            best = unless_nan(v, found);
        }
        put(y + j, best, n);
    });
}

float exp_sum(int width, float *y, const float *x, float shift) {
    const V k = Lanes::set(shift);
    return total_of(width, [&](int j, int n, V s) {
        const V e = exp_or_nan(Lanes::sub(get(x + j, n), k));
        put(y + j, e, n);
        return Lanes::add(s, n == Lanes::count ? e : get(y + j, n));
    });
}

}  // namespace
