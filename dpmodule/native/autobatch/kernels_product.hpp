// The matrix product: register tiles over packed or plain panels of B; included after lanes_*.hpp.
#pragma once

namespace {

// One tile: R rows of A against one panel of NV registers.  `tail` is the number of floats in the last register.
template <int R, int NV, bool Full>
inline void tile(const dpmodule::autobatch::Product &p, const float *a, const float *b, std::ptrdiff_t b_row, float *c,
                 const float *bias, int k, bool add, int tail) {
    using L = Lanes;
    typename L::V sum[R][NV];
#pragma GCC unroll 32
    for (int v = 0; v < NV; v++) {
        const bool part = !Full && v == NV - 1;
        typename L::V first = L::set(0.0f);
        if (!add && bias) first = part ? L::load(bias + v * L::count, tail) : L::load(bias + v * L::count);
#pragma GCC unroll 32
        for (int r = 0; r < R; r++) {
            if (add) {
                const float *from = c + r * p.c_row + v * L::count;
                first = part ? L::load(from, tail) : L::load(from);
            }
            sum[r][v] = first;
        }
    }
    for (int j = 0; j < k; j++) {
        typename L::V column[NV];
#pragma GCC unroll 32
        for (int v = 0; v < NV; v++) {
            const bool part = !Full && v == NV - 1 && !p.packed;
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
            if (!Full && v == NV - 1) L::store(to, sum[r][v], tail);
            else L::store(to, sum[r][v]);
        }
    }
}

template <int R, int NV, bool Full>
void rows_down(const dpmodule::autobatch::Product &p, int &i, int m, int j0, const float *b, std::ptrdiff_t b_row,
               int first_k, int k, bool add, int tail) {
    for (; m - i >= R; i += R) {
        tile<R, NV, Full>(p, p.a + i * p.a_row + first_k * p.a_col, b, b_row, p.c + i * p.c_row + j0,
                          p.bias ? p.bias + j0 : nullptr, k, add, tail);
    }
    if constexpr (R > 1) rows_down<(R > 8 ? 8 : R > 4 ? 4 : R > 2 ? 2 : 1), NV, Full>(p, i, m, j0, b, b_row, first_k, k, add, tail);
}

template <int NV>
void panel(const dpmodule::autobatch::Product &p, int j0, const float *b, std::ptrdiff_t b_row, int first_k, int k,
           bool add, int width) {
    constexpr int rows = Lanes::registers / NV > 12 ? 12 : Lanes::registers / NV < 1 ? 1 : Lanes::registers / NV;
    const int tail = width - (NV - 1) * Lanes::count;
    int i = 0;
    if (tail == Lanes::count) rows_down<rows, NV, true>(p, i, p.m, j0, b, b_row, first_k, k, add, tail);
    else rows_down<rows, NV, false>(p, i, p.m, j0, b, b_row, first_k, k, add, tail);
}

void product(const dpmodule::autobatch::Product &p) {
    using namespace dpmodule::autobatch;
    constexpr int lanes = Lanes::count;
    const int vectors = (p.n + lanes - 1) / lanes, panels = panel_count(vectors);
    // a block of B's rows stays in the first or second cache while all rows of A pass
    constexpr int block = 384;
    for (int first = 0; first < p.k || first == 0; first += block) {
        const int k = p.k - first < block ? p.k - first : block;
        const bool add = p.add || first > 0;
        int j0 = 0;
        for (int q = 0; q < panels; q++) {
            const int share = panel_share(vectors, panels, q), wide = share * lanes;
            const int width = p.n - j0 < wide ? p.n - j0 : wide;
            const float *b = !p.packed ? p.b + first * p.b_row + j0 : p.b + static_cast<std::size_t>(j0) * p.k + static_cast<std::size_t>(first) * wide;
            const std::ptrdiff_t b_row = p.packed ? wide : p.b_row;
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
