// The matrix product: register tiles over panels of B; included after lanes_*.hpp.
#pragma once

namespace {

using dpmodule::vector::Product;

// R rows of A from `column` on, and of C from `to` on.
template <int R>
struct TileRows {
    TileRows(const Product &p, int i, int column, int to) {
#pragma GCC unroll 32
        for (int r = 0; r < R; r++) {
            a[r] = (p.a_rows ? p.a_rows[i + r] : p.a + (i + r) * p.a_row) + column * p.a_col;
            c[r] = (p.c_rows ? p.c_rows[i + r] : p.c + (i + r) * p.c_row) + to;
        }
    }
    const float *a[R];
    float *c[R];
};

// Rows of B, from its column `j0` on.
struct Depth {
    const float *b;
    std::ptrdiff_t b_row;
    const float *const *rows;  // nullptr: at `b`
    int j0, first, count;      // of the sums
};

constexpr int line = Lanes::count > 16 ? Lanes::count : 16;  // floats in a line of the cache, at least a register

// One tile: R rows of A against one panel of NV registers.  `tail` is the number of floats in the last register.
template <int R, int NV, bool Full>
inline void tile(const Product &p, int i, const Depth &depth, bool add, int tail) {
    using L = Lanes;
    const TileRows<R> row(p, i, depth.first, depth.j0);
    const float *bias = p.bias && depth.first == 0 ? p.bias + depth.j0 : nullptr, *b = depth.b;
    typename L::V sum[R][NV];
#pragma GCC unroll 32
    for (int v = 0; v < NV; v++) {
        const bool part = !Full && v == NV - 1;
        typename L::V first = L::set(0.0f);
        if (bias) first = part ? L::load(bias + v * L::count, tail) : L::load(bias + v * L::count);
#pragma GCC unroll 32
        for (int r = 0; r < R; r++) sum[r][v] = first;
    }
    // fetch the results while the sums are computed
#pragma GCC unroll 32
    for (int r = 0; r < R; r++) {
        for (int v = 0; v < NV; v += line / L::count) __builtin_prefetch(row.c[r] + v * L::count, 1);
    }
    std::ptrdiff_t at = 0;
    for (int j = 0; j < depth.count; j++) {
        if (depth.rows) b = depth.rows[j] + depth.j0;
        typename L::V column[NV];
#pragma GCC unroll 32
        for (int v = 0; v < NV; v++) {
            const bool part = !Full && v == NV - 1 && p.layout != dpmodule::vector::Layout::Packed;
            column[v] = part ? L::load(b + v * L::count, tail) : L::load(b + v * L::count);
        }
#pragma GCC unroll 32
        for (int r = 0; r < R; r++) {
            const typename L::V x = L::set(row.a[r][at]);
#pragma GCC unroll 32
            for (int v = 0; v < NV; v++) sum[r][v] = L::fma(x, column[v], sum[r][v]);
        }
        at += p.a_col;
        b += depth.b_row;
    }
#pragma GCC unroll 32
    for (int r = 0; r < R; r++) {
#pragma GCC unroll 32
        for (int v = 0; v < NV; v++) {
            float *to = row.c[r] + v * L::count;
            const bool part = !Full && v == NV - 1;
            if (add) sum[r][v] = L::add(sum[r][v], part ? L::load(to, tail) : L::load(to));
            if (part) L::store(to, sum[r][v], tail);
            else L::store(to, sum[r][v]);
        }
    }
}

// The same for unpacked columns of B, of which square tiles are transposed in registers.
template <int R>
void turned_tile(const Product &p, int i, int j0, int first_k, int k, bool add, int width) {
    using L = Lanes;
    const TileRows<R> row(p, i, first_k, j0);
    const float *b = p.b + j0 * p.b_step + first_k, *bias = p.bias && first_k == 0 ? p.bias + j0 : nullptr;
    typename L::V sum[R], column[L::count];
    for (int r = 0; r < R; r++) sum[r] = bias ? L::load(bias, width) : L::set(0.0f);
    std::ptrdiff_t at = 0;
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
            for (int r = 0; r < R; r++) sum[r] = L::fma(L::set(row.a[r][at]), column[v], sum[r]);
            at += p.a_col;
        }
    }
    for (int r = 0; r < R; r++) {
        L::store(row.c[r], add ? L::add(sum[r], L::load(row.c[r], width)) : sum[r], width);
    }
}

template <int R>
void transposed_rows(const Product &p, int i, int j0, int first, int k, bool add, int width) {
    for (; p.m - i >= R; i += R) turned_tile<R>(p, i, j0, first, k, add, width);
    if constexpr (R > 1) transposed_rows<R - 1>(p, i, j0, first, k, add, width);
}

template <int R, int NV, bool Full>
void rows_down(const Product &p, int i, const Depth &depth, bool add, int tail) {
    for (; p.m - i >= R; i += R) tile<R, NV, Full>(p, i, depth, add, tail);
    if constexpr (R > 1) rows_down<(R > 8 ? 8 : R > 6 ? 6 : R - 1), NV, Full>(p, i, depth, add, tail);
}

template <int NV>
void panel(const Product &p, const Depth &depth, bool add, int width) {
    constexpr int rows = Lanes::registers / NV > 12 ? 12 : Lanes::registers / NV < 1 ? 1 : Lanes::registers / NV;
    const int tail = width - (NV - 1) * Lanes::count;
    if (tail == Lanes::count) rows_down<rows, NV, true>(p, 0, depth, add, tail);
    else rows_down<rows, NV, false>(p, 0, depth, add, tail);
}

void product(const Product &p) {
    using namespace dpmodule::vector;
    constexpr int lanes = Lanes::count;
    const int vectors = (p.n + lanes - 1) / lanes, panels = panel_count(vectors);
    // a block of B's rows stays in the L1 or L2 cache for all rows of A
    constexpr int block = 128;
    // for so many rows of A it pays to copy the rows of B, which would evict each other from the L1 cache
    constexpr int worth_copying = 64;
    alignas(64) float copy[block * 4 * lanes];
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
                             : p.b_rows ? nullptr
                                        : p.b + first * p.b_step + j0;
            Depth depth{b, packed ? wide : p.b_step, p.b_rows ? p.b_rows + first : nullptr, j0, first, k};
            if (!packed && width == wide && p.m >= worth_copying) {
                for (int j = 0; j < k; j++) {
                    const float *row = depth.rows ? depth.rows[j] + j0 : b + j * p.b_step;
                    for (int v = 0; v < wide; v += lanes) Lanes::store(copy + j * wide + v, Lanes::load(row + v));
                }
                depth = {copy, wide, nullptr, j0, first, k};
            }
            switch (share) {
                case 4: panel<4>(p, depth, add, width); break;
                case 3: panel<3>(p, depth, add, width); break;
                case 2: panel<2>(p, depth, add, width); break;
                default: panel<1>(p, depth, add, width); break;
            }
            j0 += wide;
        }
    }
}

void turn(int rows, int columns, const float *from, std::ptrdiff_t stride, float *to, int wide) {
    using L = Lanes;
    for (int j = 0; j < rows; j += L::count, from += L::count * stride, to += L::count) {
        for (int i = 0; i < columns; i += L::count) {
            const int deep = columns - i < L::count ? columns - i : L::count;
            typename L::V tile[L::count];
#pragma GCC unroll 16
            for (int v = 0; v < L::count; v++) tile[v] = v < rows - j ? get(from + v * stride + i, deep) : L::set(0.0f);
            L::transpose(tile);
#pragma GCC unroll 16
            for (int v = 0; v < L::count; v++) {
                if (v < deep) L::store(to + static_cast<std::ptrdiff_t>(i + v) * wide, tile[v]);
            }
        }
    }
}

// Columns and rows below which moving single numbers is faster than transposing a tile.
constexpr int few_columns = 4, few_rows = 2;

// Returns where a tile begins: the last of several overlaps the one before it, since partial stores are slow.
int begin_of_tile(int at, int size, int few) {
    const int left = size - at;
    return left < Lanes::count && left >= few && size >= Lanes::count ? size - Lanes::count : at;
}

// Copies numbers that are a step apart to others.
void copy_numbers(const float *from, std::ptrdiff_t step, float *to, std::ptrdiff_t to_step, int count) {
    if (count == Lanes::count) {
#pragma GCC unroll 16
        for (int u = 0; u < Lanes::count; u++) to[u * to_step] = from[u * step];
        return;
    }
    for (int u = 0; u < count; u++) to[u * to_step] = from[u * step];
}

void interleave(int rows, int columns, const float *const *from, float *to, std::ptrdiff_t stride) {
    using L = Lanes;
    for (int next = 0; next < rows; next += L::count) {
        const int i = begin_of_tile(next, rows, few_rows), high = rows - i < L::count ? rows - i : L::count;
        for (int j = 0; j < columns; j += L::count) {
            const int wide = columns - j < L::count ? columns - j : L::count;
            float *const at = to + j * stride + i;
            if (wide < few_columns || high < few_rows) {
                for (int v = 0; v < high; v++) {
                    const float *const row = from[i + v];
                    if (row) copy_numbers(row + j, 1, at + v, stride, wide);
                    for (int u = 0; !row && u < wide; u++) at[u * stride + v] = 0.0f;
                }
                continue;
            }
            typename L::V tile[L::count];
#pragma GCC unroll 16
            for (int v = 0; v < L::count; v++)
                tile[v] = v < high && from[i + v] ? get(from[i + v] + j, wide) : L::set(0.0f);
            L::transpose(tile);
#pragma GCC unroll 16
            for (int u = 0; u < L::count; u++) {
                if (u < wide) put(at + u * stride, tile[u], high);
            }
        }
    }
}

void separate(int rows, int columns, const float *from, std::ptrdiff_t stride, float *const *to, bool add) {
    using L = Lanes;
    for (int i = 0; i < rows; i += L::count) {
        const int high = rows - i < L::count ? rows - i : L::count;
        for (int next = 0; next < columns; next += L::count) {
            const int j = add ? next : begin_of_tile(next, columns, few_columns);
            const int wide = columns - j < L::count ? columns - j : L::count;
            const float *const at = from + j * stride + i;
            if (wide < few_columns || high < few_rows) {
                for (int v = 0; v < high; v++) {
                    float *const row = to[i + v];
                    if (row && !add) copy_numbers(at + v, stride, row + j, 1, wide);
                    for (int u = 0; row && add && u < wide; u++) row[j + u] += at[u * stride + v];
                }
                continue;
            }
            typename L::V tile[L::count];
#pragma GCC unroll 16
            for (int u = 0; u < L::count; u++) tile[u] = u < wide ? get(at + u * stride, high) : L::set(0.0f);
            L::transpose(tile);
#pragma GCC unroll 16
            for (int v = 0; v < L::count; v++) {
                if (v >= high || !to[i + v]) continue;
                float *const row = to[i + v] + j;
                put(row, add ? L::add(get(row, wide), tile[v]) : tile[v], wide);
            }
        }
    }
}

}  // namespace
