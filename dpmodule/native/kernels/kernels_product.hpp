// The matrix product: register tiles over panels of B; included after lanes_*.hpp.
#pragma once

namespace {

// One tile: R rows of A against one panel of NV registers.  `tail` is the number of floats in the last register.
template <int R, int NV, bool Full>
inline void tile(const dpmodule::vector::Product &p, const float *a, const float *b, std::ptrdiff_t b_row, float *c,
                 const float *bias, int k, bool add, int tail) {
    using L = Lanes;
    typename L::V sum[R][NV];
#pragma GCC unroll 32
    for (int v = 0; v < NV; v++) {
        const bool part = !Full && v == NV - 1;
        typename L::V first = L::set(0.0f);
        if (bias) first = part ? L::load(bias + v * L::count, tail) : L::load(bias + v * L::count);
#pragma GCC unroll 32
        for (int r = 0; r < R; r++) sum[r][v] = first;
    }
    for (int j = 0; j < k; j++) {
        typename L::V column[NV];
#pragma GCC unroll 32
        for (int v = 0; v < NV; v++) {
            const bool part = !Full && v == NV - 1 && p.layout != dpmodule::vector::Layout::Packed;
            column[v] = part ? L::load(b + v * L::count, tail) : L::load(b + v * L::count);
        }
#pragma GCC unroll 32
        for (int r = 0; r < R; r++) {
            const typename L::V x = L::set(a[r * p.a_row]);
#pragma GCC unroll 32
            for (int v = 0; v < NV; v++) sum[r][v] = L::fma(x, column[v], sum[r][v]);
        }
        a += p.a_col;
        b += b_row;
    }
#pragma GCC unroll 32
    for (int r = 0; r < R; r++) {
#pragma GCC unroll 32
        for (int v = 0; v < NV; v++) {
            float *to = c + r * p.c_row + v * L::count;
            const bool part = !Full && v == NV - 1;
            if (add) sum[r][v] = L::add(sum[r][v], part ? L::load(to, tail) : L::load(to));
            if (part) L::store(to, sum[r][v], tail);
            else L::store(to, sum[r][v]);
        }
    }
}

// The same for unpacked columns of B, of which square tiles are transposed in registers.
template <int R>
void turned_tile(const dpmodule::vector::Product &p, const float *a, const float *b, float *c, const float *bias, int k,
                 bool add, int width) {
    using L = Lanes;
    typename L::V sum[R], column[L::count];
    for (int r = 0; r < R; r++) sum[r] = bias ? L::load(bias, width) : L::set(0.0f);
    for (int first = 0; first < k; first += L::count) {
        const int deep = k - first < L::count ? k - first : L::count;
        if (deep == L::count && width == L::count) {
#pragma GCC unroll 16
            for (int v = 0; v < L::count; v++) column[v] = L::load(b + v * p.b_step + first);
        } else {
#pragma GCC unroll 16
            for (int v = 0; v < L::count; v++)
                column[v] = v < width ? L::load(b + v * p.b_step + first, deep) : L::set(0.0f);
        }
        L::transpose(column);
#pragma GCC unroll 16
        for (int v = 0; v < L::count; v++) {
            if (v == deep) break;
            for (int r = 0; r < R; r++) sum[r] = L::fma(L::set(a[r * p.a_row]), column[v], sum[r]);
            a += p.a_col;
        }
    }
    for (int r = 0; r < R; r++) {
        float *to = c + r * p.c_row;
        L::store(to, add ? L::add(sum[r], L::load(to, width)) : sum[r], width);
    }
}

template <int R>
void transposed_rows(const dpmodule::vector::Product &p, int i, int j0, int first, int k, bool add, int width) {
    const float *b = p.b + j0 * p.b_step + first, *bias = p.bias && first == 0 ? p.bias + j0 : nullptr;
    for (; p.m - i >= R; i += R) {
        turned_tile<R>(p, p.a + i * p.a_row + first * p.a_col, b, p.c + i * p.c_row + j0, bias, k, add, width);
    }
    if constexpr (R > 1) transposed_rows<R - 1>(p, i, j0, first, k, add, width);
}

template <int R, int NV, bool Full>
void rows_down(const dpmodule::vector::Product &p, int &i, int m, int j0, const float *b, std::ptrdiff_t b_row,
               int first_k, int k, bool add, int tail) {
    for (; m - i >= R; i += R) {
        tile<R, NV, Full>(p, p.a + i * p.a_row + first_k * p.a_col, b, b_row, p.c + i * p.c_row + j0,
                          p.bias && first_k == 0 ? p.bias + j0 : nullptr, k, add, tail);
    }
    if constexpr (R > 1)
        rows_down<(R > 8 ? 8 : R > 6 ? 6 : R - 1), NV, Full>(p, i, m, j0, b, b_row, first_k, k, add, tail);
}

template <int NV>
void panel(const dpmodule::vector::Product &p, int j0, const float *b, std::ptrdiff_t b_row, int first_k, int k,
           bool add, int width) {
    constexpr int rows = Lanes::registers / NV > 12 ? 12 : Lanes::registers / NV < 1 ? 1 : Lanes::registers / NV;
    const int tail = width - (NV - 1) * Lanes::count;
    int i = 0;
    if (tail == Lanes::count) rows_down<rows, NV, true>(p, i, p.m, j0, b, b_row, first_k, k, add, tail);
    else rows_down<rows, NV, false>(p, i, p.m, j0, b, b_row, first_k, k, add, tail);
}

void product(const dpmodule::vector::Product &p) {
    using namespace dpmodule::vector;
    constexpr int lanes = Lanes::count;
    const int vectors = (p.n + lanes - 1) / lanes, panels = panel_count(vectors);
    // a block of B's rows stays in the L1 or L2 cache for all rows of A
    constexpr int block = 128;
    for (int first = 0; first < p.k || first == 0; first += block) {
        const int k = p.k - first < block ? p.k - first : block;
        const bool add = p.add || first > 0;
        int j0 = 0;
        if (p.layout == Layout::Columns) {
            for (; j0 < p.n; j0 += lanes)
                transposed_rows<3>(p, 0, j0, first, k, add, p.n - j0 < lanes ? p.n - j0 : lanes);
            continue;
        }
        for (int q = 0; q < panels; q++) {
            const int share = panel_share(vectors, panels, q), wide = share * lanes;
            const int width = p.n - j0 < wide ? p.n - j0 : wide;
            const bool packed = p.layout == Layout::Packed;
            const float *b = packed ? p.b + static_cast<std::size_t>(j0) * p.k + static_cast<std::size_t>(first) * wide
                                    : p.b + first * p.b_step + j0;
            const std::ptrdiff_t b_row = packed ? wide : p.b_step;
            switch (share) {
                case 4: panel<4>(p, j0, b, b_row, first, k, add, width); break;
                case 3: panel<3>(p, j0, b, b_row, first, k, add, width); break;
                case 2: panel<2>(p, j0, b, b_row, first, k, add, width); break;
                default: panel<1>(p, j0, b, b_row, first, k, add, width); break;
            }
            j0 += wide;
        }
    }
}

}  // namespace
