// Blocks of columns of the right matrix are copied, so that what one tile needs lies together whatever the
// strides; a tile of some rows and two vectors of columns then stays in registers while its sums grow.
#include "product.hpp"

#if defined(__GNUC__)

#include <algorithm>
#include <cstring>
#include <memory>
#include <new>

#include "vector/instructions.hpp"

// none of the functions with vectors is called across files, nor left without being inlined
#pragma GCC diagnostic ignored "-Wpsabi"

#define DPMODULE_INLINE inline __attribute__((always_inline))

namespace dpmodule {
namespace {

constexpr std::ptrdiff_t kDepth = 256;  // of a block: what is copied stays in the first cache

template <int Width>
struct Tile {
    typedef float Floats __attribute__((vector_size(4 * Width)));
    static constexpr int kColumns = 2 * Width;

    DPMODULE_INLINE static Floats load(const float *from, std::ptrdiff_t count) {
        Floats found{};
        if (count >= Width) {
            std::memcpy(&found, from, sizeof found);
        } else if (count > 0) {
            std::memcpy(&found, from, sizeof(float) * count);
        }
        return found;
    }

    DPMODULE_INLINE static void store(float *to, const Floats &value, std::ptrdiff_t count) {
        if (count >= Width) {
            std::memcpy(to, &value, sizeof value);
        } else if (count > 0) {
            std::memcpy(to, &value, sizeof(float) * count);
        }
    }

    // Writes some rows of `result`: those of `begin`, `begin_gap` apart, and the products of `left`, from
    // where it is given, with a copied block. Columns beyond those that there are lie in the copies alone.
    template <int Rows>
    DPMODULE_INLINE static void write(const Matrix &left, const float *block, std::ptrdiff_t depth, const float *begin,
                                      std::ptrdiff_t begin_gap, float *result, std::ptrdiff_t gap,
                                      std::ptrdiff_t columns) {
        Floats sums[Rows][2];
#pragma GCC unroll 8
        for (int r = 0; r < Rows; ++r) {
            sums[r][0] = load(begin + r * begin_gap, columns);
            sums[r][1] = load(begin + r * begin_gap + Width, columns - Width);
        }
        const float *from = left.at;
        for (std::ptrdiff_t k = 0; k < depth; ++k, from += left.column_gap, block += kColumns) {
            const Floats low = load(block, Width), high = load(block + Width, Width);
#pragma GCC unroll 8
            for (int r = 0; r < Rows; ++r) {
                const float factor = from[r * left.row_gap];
                sums[r][0] += low * factor;
                sums[r][1] += high * factor;
            }
        }
#pragma GCC unroll 8
        for (int r = 0; r < Rows; ++r) {
            store(result + r * gap, sums[r][0], columns);
            store(result + r * gap + Width, sums[r][1], columns - Width);
        }
    }
};

typedef float Four __attribute__((vector_size(16)));

#if defined(__clang__)
#define DPMODULE_MIX(first, second, ...) __builtin_shufflevector(first, second, __VA_ARGS__)
#else
typedef int Places __attribute__((vector_size(16)));
#define DPMODULE_MIX(first, second, ...) __builtin_shuffle(first, second, Places{__VA_ARGS__})
#endif

DPMODULE_INLINE Four four(const float *from) {
    Four found;
    std::memcpy(&found, from, sizeof found);
    return found;
}

// Copies four rows of four numbers as columns.
DPMODULE_INLINE void turn_four(const float *from, std::ptrdiff_t gap, float *to, std::ptrdiff_t width) {
    const Four a = four(from), b = four(from + gap), c = four(from + 2 * gap), d = four(from + 3 * gap);
    const Four ac_low = DPMODULE_MIX(a, c, 0, 4, 1, 5), ac_high = DPMODULE_MIX(a, c, 2, 6, 3, 7);
    const Four bd_low = DPMODULE_MIX(b, d, 0, 4, 1, 5), bd_high = DPMODULE_MIX(b, d, 2, 6, 3, 7);
    const Four columns[4] = {DPMODULE_MIX(ac_low, bd_low, 0, 4, 1, 5), DPMODULE_MIX(ac_low, bd_low, 2, 6, 3, 7),
                             DPMODULE_MIX(ac_high, bd_high, 0, 4, 1, 5), DPMODULE_MIX(ac_high, bd_high, 2, 6, 3, 7)};
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) std::memcpy(to + i * width, &columns[i], sizeof columns[i]);
}

// Copies a block of the right matrix row by row, filled up with zeros.
void copy_block(const Matrix &right, std::ptrdiff_t depth, std::ptrdiff_t columns, float *to, std::ptrdiff_t width) {
    if (columns < width) std::memset(to, 0, sizeof(float) * depth * width);
    if (right.column_gap == 1) {
        for (std::ptrdiff_t k = 0; k < depth; ++k) {
            std::memcpy(to + k * width, right.at + k * right.row_gap, sizeof(float) * columns);
        }
        return;
    }
    std::ptrdiff_t first = 0;
    for (; right.row_gap == 1 && first + 4 <= columns; first += 4) {
        const float *from = right.at + first * right.column_gap;
        std::ptrdiff_t k = 0;
        for (; k + 4 <= depth; k += 4) turn_four(from + k, right.column_gap, to + k * width + first, width);
        for (; k < depth; ++k) {
            for (int j = 0; j < 4; ++j) to[k * width + first + j] = from[k + j * right.column_gap];
        }
    }
    for (; first < columns; ++first) {
        const float *from = right.at + first * right.column_gap;
        for (std::ptrdiff_t k = 0; k < depth; ++k) to[k * width + first] = from[k * right.row_gap];
    }
}

template <int Width, int Rows>
DPMODULE_INLINE void multiply_with(const Product &p, float *block) {
    constexpr std::ptrdiff_t kColumns = Tile<Width>::kColumns;
    constexpr float kZeros[kColumns] = {};
    for (std::ptrdiff_t column = 0; column < p.columns; column += kColumns) {
        const std::ptrdiff_t columns = std::min(kColumns, p.columns - column);
        for (std::ptrdiff_t first = 0; first == 0 || first < p.depth; first += kDepth) {
            const std::ptrdiff_t depth = std::min(kDepth, p.depth - first);
            const float *from = p.right.at + first * p.right.row_gap + column * p.right.column_gap;
            const Matrix part{from, p.right.row_gap, p.right.column_gap};
            copy_block(part, depth, columns, block, kColumns);
            Matrix left{p.left.at + first * p.left.column_gap, p.left.row_gap, p.left.column_gap};
            float *result = p.result + column;
            const float *begin = first ? result : p.bias ? p.bias + column : kZeros;
            const std::ptrdiff_t gap = p.columns, begin_gap = first ? gap : 0;
            std::ptrdiff_t row = 0;
            for (; row + Rows <= p.rows; row += Rows) {
                Tile<Width>::template write<Rows>(left, block, depth, begin, begin_gap, result, gap, columns);
                left.at += Rows * left.row_gap;
                begin += Rows * begin_gap;
                result += Rows * gap;
            }
            for (; row < p.rows; ++row) {
                Tile<Width>::template write<1>(left, block, depth, begin, begin_gap, result, gap, columns);
                left.at += left.row_gap;
                begin += begin_gap;
                result += gap;
            }
        }
    }
}

// What is compiled for one instruction set; as many rows at a time as its registers hold.
struct Kernel {
    int width;
    void (*run)(const Product &, float *);
};

void plain(const Product &product, float *block) { multiply_with<4, 4>(product, block); }

#if defined(__x86_64__)
#define DPMODULE_AVX2 __attribute__((target("avx2,fma")))
#define DPMODULE_AVX512 __attribute__((target("avx512f,avx512vl,avx512dq,avx2,fma")))

DPMODULE_AVX2 void avx2(const Product &product, float *block) { multiply_with<8, 4>(product, block); }
DPMODULE_AVX512 void avx512(const Product &product, float *block) { multiply_with<16, 8>(product, block); }

Kernel choose() {
    switch (vector::best_instructions()) {
        case vector::Instructions::Avx512: return {16, avx512};
        case vector::Instructions::Avx2: return {8, avx2};
        default: return {4, plain};
    }
}
#else
Kernel choose() { return {4, plain}; }
#endif

const Kernel &kernel() {
    static const Kernel chosen = choose();
    return chosen;
}

}  // namespace

int vector_width() { return kernel().width; }

bool multiply(const Product &product) {
    const std::ptrdiff_t size = std::min(kDepth, product.depth) * 2 * kernel().width;
    const std::unique_ptr<float[]> block(new (std::nothrow) float[size]);
    if (!block) return false;
    kernel().run(product, block.get());
    return true;
}

}  // namespace dpmodule

#endif
