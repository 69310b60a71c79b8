// Blocks of columns of the right matrix are copied, so that the data of a tile is contiguous for any strides; a tile of
// some rows and two vectors of columns is then accumulated in registers.
#include "product.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <new>

#include "layer_functions.hpp"
#include "parallel.hpp"
#include "small.hpp"
#include "vector.hpp"

namespace dpmodule {
namespace {

constexpr std::ptrdiff_t kLine = 16;                 // elements per cache line
constexpr std::ptrdiff_t kDepth = 256;               // depth of a block, whose copy fits in the L1 cache
constexpr std::ptrdiff_t kRowBlock = 192;            // rows of a block of the left matrix, which fits in the L2 cache
constexpr std::ptrdiff_t kCopyGap = kDepth + kLine;  // between rows of its copy
constexpr std::ptrdiff_t kCollision = 512;  // rows whose distance is a multiple of it share lines of the L1 cache
constexpr std::ptrdiff_t kResultCollision = 1024;  // the same for rows of the result
constexpr std::ptrdiff_t kShallow = 8;             // depth of products that take less time than writing them
constexpr int kFewInTile = 3;                      // rows for which two vectors have too few additions at a time
constexpr std::ptrdiff_t kMinCollided = 64;        // columns for which copying the left matrix pays
constexpr std::ptrdiff_t kMinWork = 1 << 19;       // minimal multiplications per thread, to outweigh its wake-up
constexpr std::ptrdiff_t kMinRows =
    16;  // minimal rows per thread of a chain of layers, whose weights each thread reads

template <int Width>
struct Tile {
    using V = Vector<Width>;
    using Floats = typename V::Floats;
    static constexpr int kColumns = 2 * Width;

    // Writes some rows of `result`, up to four vectors wide: the initial rows `begin`, with stride `begin_gap`, plus
    // the products of `left` with one or two copied blocks. Padding columns exist only in the copies.
    template <int Rows, int Vectors>
    DPMODULE_INLINE static void write(const Matrix &left, const float *block, std::ptrdiff_t block_gap,
                                      std::ptrdiff_t depth, const float *begin, std::ptrdiff_t begin_gap, float *result,
                                      std::ptrdiff_t gap, std::ptrdiff_t columns, bool rectified) {
        Floats sums[Rows][Vectors];
#pragma GCC unroll 8
        for (int r = 0; r < Rows; ++r) {
#pragma GCC unroll 4
            for (int v = 0; v < Vectors; ++v) {
                sums[r][v] = V::load(begin + r * begin_gap + v * Width, columns - v * Width);
            }
        }
        const float *from = left.at;
        for (std::ptrdiff_t k = 0; k < depth; k += kLine) {
#pragma GCC unroll 8
            for (int r = 0; r < Rows; ++r) __builtin_prefetch(from + (Rows + r) * left.row_gap);  // the next rows
            const float *const end = block + std::min(kLine, depth - k) * kColumns;
            for (; block < end; from += left.column_gap, block += kColumns) {
                Floats part[Vectors];
#pragma GCC unroll 4
                for (int v = 0; v < Vectors; ++v) part[v] = V::load(block + v / 2 * block_gap + v % 2 * Width);
#pragma GCC unroll 8
                for (int r = 0; r < Rows; ++r) {
                    const float factor = from[r * left.row_gap];
#pragma GCC unroll 4
                    for (int v = 0; v < Vectors; ++v) sums[r][v] += part[v] * factor;
                }
            }
        }
#pragma GCC unroll 8
        for (int r = 0; r < Rows; ++r) {
#pragma GCC unroll 4
            for (int v = 0; v < Vectors; ++v) {
                Floats &sum = sums[r][v];
                if (rectified) sum = sum < 0.0f ? Floats{} : sum;  // NaN stays
                V::store(result + r * gap + v * Width, sum, columns - v * Width);
            }
        }
    }
};

// Transposes a 4 x 4 tile.
DPMODULE_INLINE void turn_four(const float *from, std::ptrdiff_t gap, float *to, std::ptrdiff_t width) {
    const Four a = four(from), b = four(from + gap), c = four(from + 2 * gap), d = four(from + 3 * gap);
    const Four ac_low = DPMODULE_MIX(a, c, 0, 4, 1, 5), ac_high = DPMODULE_MIX(a, c, 2, 6, 3, 7);
    const Four bd_low = DPMODULE_MIX(b, d, 0, 4, 1, 5), bd_high = DPMODULE_MIX(b, d, 2, 6, 3, 7);
    const Four columns[4] = {DPMODULE_MIX(ac_low, bd_low, 0, 4, 1, 5), DPMODULE_MIX(ac_low, bd_low, 2, 6, 3, 7),
                             DPMODULE_MIX(ac_high, bd_high, 0, 4, 1, 5), DPMODULE_MIX(ac_high, bd_high, 2, 6, 3, 7)};
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) std::memcpy(to + i * width, &columns[i], sizeof columns[i]);
}

// Calls `Tile::write` for `rows` rows, from 1 to `Most`.
template <int Width, int Vectors, int Most, class... Arguments>
DPMODULE_INLINE void write_tile(std::ptrdiff_t rows, const Arguments &...arguments) {
    if (rows == Most) {
        Tile<Width>::template write<Most, Vectors>(arguments...);
    } else if constexpr (Most > 1) {
        write_tile<Width, Vectors, Most - 1>(rows, arguments...);
    }
}

// The contribution of one block of the right matrix, or of two packed ones, to a product, for some rows. `left` has the
// columns that belong to the block. Tiles have at most `Most` rows, and sizes that differ by at most one: the latency
// of additions makes a tile of one row as slow as one of many.
template <int Width, int Most, int Vectors>
DPMODULE_INLINE void multiply_block(const Product &p, const Matrix &left, const float *block, std::ptrdiff_t column,
                                    std::ptrdiff_t first, std::ptrdiff_t depth, std::ptrdiff_t row,
                                    std::ptrdiff_t end) {
    static constexpr float kZeros[Vectors * Width] = {};
    const std::ptrdiff_t columns = p.columns - column, gap = p.columns, begin_gap = first ? gap : 0,
                         block_gap = Tile<Width>::kColumns * p.depth;
    const bool rectified = p.function == LayerFunction::Clamp && first + depth == p.depth;
    const float *from = left.at;
    for (std::ptrdiff_t tiles = (end - row + Most - 1) / Most; tiles; --tiles) {
        const std::ptrdiff_t rows = (end - row + tiles - 1) / tiles;
        float *result = p.result + row * gap + column;
        const float *begin = first ? result : p.bias ? p.bias + column : kZeros;
        write_tile<Width, Vectors, Most>(rows, Matrix{from, left.row_gap, left.column_gap}, block, block_gap, depth,
                                         begin, begin_gap, result, gap, columns, rectified);
        row += rows;
        from += rows * left.row_gap;
    }
}

// Columns of a product, starting with a block.
struct Columns {
    std::ptrdiff_t first, end;
};

// Returns true if rows of the left matrix evict each other from the L1 cache, so that a copy pays.
bool rows_collide(const Product &p) {
    return p.packed && p.left.column_gap == 1 && p.left.row_gap % kCollision == 0 && p.columns >= kMinCollided;
}

// Returns true if writing a panel of columns takes longer than computing it: its lines evict each other.
bool results_collide(const Product &p) { return p.depth <= kShallow && p.columns % kResultCollision == 0; }

// Applies a function that products have not applied yet to rows of results, which are still in the cache.
void apply(LayerFunction function, float *results, std::ptrdiff_t rows, std::ptrdiff_t gap, std::ptrdiff_t columns) {
    if (function > LayerFunction::Clamp) run_best<InPlace>(Applied{function}, results, rows, gap, columns);
}

struct ColumnsOfProduct {
    // The right matrix is copied into `memory` block by block, unless it is packed. Computes as many rows at a time as
    // the registers can hold.
    template <int Width>
    DPMODULE_INLINE static void run(const Product &p, const Columns &part, float *memory) {
        constexpr int kRows = Width == 16 ? 8 : Width == 8 ? 6 : 4;
        constexpr std::ptrdiff_t kColumns = Tile<Width>::kColumns;
        const std::ptrdiff_t most = !p.packed ? p.rows : results_collide(p) ? kRows : kRowBlock;
        const bool copies_left = rows_collide(p);
        for (std::ptrdiff_t row = 0; row < p.rows; row += most) {
            const std::ptrdiff_t end = std::min(row + most, p.rows);
            for (std::ptrdiff_t first = 0; first == 0 || first < p.depth; first += kDepth) {
                const std::ptrdiff_t depth = std::min(kDepth, p.depth - first);
                Matrix left{p.left.at + row * p.left.row_gap + first * p.left.column_gap, p.left.row_gap,
                            p.left.column_gap};
                if (copies_left) {
                    for (std::ptrdiff_t i = row; i < end; ++i) {
                        std::memcpy(memory + (i - row) * kCopyGap, left.at + (i - row) * left.row_gap,
                                    sizeof(float) * depth);
                    }
                    left = {memory, kCopyGap, 1};
                }
                for (std::ptrdiff_t column = part.first; column < part.end; column += kColumns) {
                    const float *block = memory;
                    if (p.packed) {
                        block = p.packed + column * p.depth + first * kColumns;
                        if (end - row <= kFewInTile && std::min(part.end, p.columns) - column > 3 * Width) {
                            multiply_block<Width, kFewInTile, 4>(p, left, block, column, first, depth, row, end);
                            column += kColumns;
                            continue;
                        }
                    } else {
                        const float *from = p.right.at + first * p.right.row_gap + column * p.right.column_gap;
                        if (p.columns - column < kColumns) std::memset(memory, 0, sizeof(float) * depth * kColumns);
                        copy_block({from, p.right.row_gap, p.right.column_gap}, depth,
                                   std::min(kColumns, p.columns - column), memory, kColumns);
                    }
                    if (p.columns - column > Width) {
                        multiply_block<Width, kRows, 2>(p, left, block, column, first, depth, row, end);
                    } else {
                        multiply_block<Width, kRows, 1>(p, left, block, column, first, depth, row, end);
                    }
                }
            }
            apply(p.function, p.result + row * p.columns + part.first, end - row, p.columns,
                  std::min(part.end, p.columns) - part.first);
        }
    }
};

// A chain of layers for some rows; `memory` holds two intermediate results.
void run_layers(const Dense &run, std::ptrdiff_t first, std::ptrdiff_t rows, float *memory, std::ptrdiff_t most_units,
                int threads) {
    const float *data = run.data + first * run.row_gap;
    std::ptrdiff_t gap = run.row_gap;
    for (std::ptrdiff_t i = 0; i < run.count; ++i) {
        const DenseLayer &layer = run.layers[i];
        const bool is_last = i + 1 == run.count;
        float *made = is_last ? run.result + first * layer.units : memory + i % 2 * rows * most_units;
        if (run.rows <= kFewRows) {
            multiply_few_rows({rows, layer.units, layer.features, data, gap, layer.weight, layer.features, layer.bias,
                               made, threads, layer.function == LayerFunction::Clamp});
            apply(layer.function, made, rows, layer.units, layer.units);
        } else {
            const Matrix left{data, gap, 1}, none{};
            multiply({rows, layer.units, layer.features, left, none, layer.bias, made, layer.weight, layer.function,
                      threads});
        }
        data = made;
        gap = layer.units;
    }
}

std::ptrdiff_t block_width() { return 2 * best_width(); }

// Returns how many threads have enough to do.
std::ptrdiff_t useful_threads(const Product &p) {
    return std::min<std::ptrdiff_t>(p.threads, p.rows * p.columns * p.depth / kMinWork);
}

// Packs the right matrix, and multiplies it with blocks of rows that stay in the cache.
bool multiply_many_rows(const Product &product) {
    const std::unique_ptr<float[]> packed(new (std::nothrow) float[packed_size(product.columns, product.depth)]);
    if (!packed) return false;
    pack(product.right, product.columns, product.depth, packed.get());
    std::atomic<bool> done{true};
    const std::ptrdiff_t parts = std::min(product.rows / kMinRows, useful_threads(product));
    parallel_ranges(product.rows, parts, [&](std::ptrdiff_t first, std::ptrdiff_t end) {
        Product part = product;
        part.rows = end - first;
        part.left.at += first * product.left.row_gap;
        part.result += first * product.columns;
        part.packed = packed.get();
        part.threads = 1;
        if (!multiply(part)) done = false;
    });
    return done;
}

}  // namespace

void copy_block(const Matrix &right, std::ptrdiff_t depth, std::ptrdiff_t columns, float *to, std::ptrdiff_t width) {
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

int vector_width() { return best_width(); }

bool multiply(const Product &product) {
    const bool is_long = product.rows > kRowBlock || (product.rows > kLine && results_collide(product));
    if (!product.packed && is_long) return multiply_many_rows(product);
    const std::ptrdiff_t width = block_width();
    const std::ptrdiff_t copied = !product.packed         ? std::min(kDepth, product.depth) * width
                                  : rows_collide(product) ? std::min(kRowBlock, product.rows) * kCopyGap
                                                          : 0;
    const std::ptrdiff_t blocks = (product.columns + width - 1) / width;
    const std::ptrdiff_t parts = std::max<std::ptrdiff_t>(1, std::min(blocks, useful_threads(product)));
    const std::unique_ptr<float[]> copies(new (std::nothrow) float[parts * copied]);  // one block for each part
    if (!copies) return false;
    parallel_for(parts, static_cast<int>(parts), [&](std::ptrdiff_t part) {
        const auto begin = [&](std::ptrdiff_t i) { return std::min(product.columns, blocks * i / parts * width); };
        run_best<ColumnsOfProduct>(product, Columns{begin(part), begin(part + 1)}, copies.get() + part * copied);
    });
    return true;
}

std::ptrdiff_t packed_size(std::ptrdiff_t columns, std::ptrdiff_t depth) {
    const std::ptrdiff_t width = block_width();
    return (columns + width - 1) / width * width * depth;
}

void pack(const Matrix &right, std::ptrdiff_t columns, std::ptrdiff_t depth, float *to) {
    const std::ptrdiff_t width = block_width();
    for (std::ptrdiff_t column = 0; column < columns; column += width, to += width * depth) {
        const Matrix part{right.at + column * right.column_gap, right.row_gap, right.column_gap};
        if (columns - column < width) std::fill_n(to, depth * width, 0.0f);
        copy_block(part, depth, std::min(width, columns - column), to, width);
    }
}

bool dense(const Dense &run) {
    std::ptrdiff_t most = 0, work = 0;
    for (std::ptrdiff_t i = 0; i < run.count; ++i) {
        if (i + 1 < run.count) most = std::max(most, run.layers[i].units);
        work += run.rows * run.layers[i].units * run.layers[i].features;
    }
    const std::ptrdiff_t of_sample = 2 * most * run.rows;
    const std::unique_ptr<float[]> memory(new (std::nothrow) float[run.samples * of_sample]);
    if (!memory) return false;
    const std::ptrdiff_t parts = std::min({std::ptrdiff_t{run.threads}, run.samples, run.samples * work / kMinWork});
    const std::ptrdiff_t threads = parts > 1 ? 1 : run.threads;  // of each sample
    const auto run_sample = [&](std::ptrdiff_t i) {
        Dense part = run;
        part.data += i * run.sample_gap;
        part.result += i * run.rows * run.layers[run.count - 1].units;
        float *own = memory.get() + i * of_sample;
        if (threads == 1 || std::min(run.rows / kMinRows, work / kMinWork) < threads) {
            run_layers(part, 0, run.rows, own, most, static_cast<int>(threads));  // which share a layer's columns
        } else {
            parallel_ranges(run.rows, threads, [&](std::ptrdiff_t first, std::ptrdiff_t end) {
                run_layers(part, first, end - first, own + 2 * most * first, most, 1);
            });
        }
    };
    parallel_ranges(run.samples, parts, [&](std::ptrdiff_t first, std::ptrdiff_t end) {
        for (std::ptrdiff_t i = first; i < end; ++i) run_sample(i);
    });
    return true;
}

}  // namespace dpmodule
