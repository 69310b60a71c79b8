// Arithmetic of the engines and trainers, compiled once per instruction set and selected at first use.
//
// All matrices are row-major blocks of float: `rows` rows of `width` elements, with a stride of `stride` elements.
#pragma once

#include <cstddef>

#include "update.hpp"

// Enumerations with names for Python, which reads the numbers by name.
#define NAMED_ENUM_KIND(kind, name) kind,
#define NAMED_ENUM_NAME(kind, name) name,
// Defines `enum class TYPE : int` and `names_of(TYPE)` from a macro LIST(X) of entries X(enumerator, name).
#define NAMED_ENUM(TYPE, LIST)                       \
    enum class TYPE : int { LIST(NAMED_ENUM_KIND) }; \
    constexpr const char *names_of_##TYPE[] = {LIST(NAMED_ENUM_NAME)};

namespace dpmodule::vector {

enum class Unary : int {
#define BY_LANES(kind, name, reads, value, gradient) kind,
#define BY_NUMBER(kind, name, reads, value, slope) kind,
#define VALUE_BY_NUMBER(kind, name, reads, value, gradient) kind,
#include "unary_list.hpp"
};
constexpr const char *names_of_Unary[] = {
#define BY_LANES(kind, name, reads, value, gradient) name,
#define BY_NUMBER(kind, name, reads, value, slope) name,
#define VALUE_BY_NUMBER(kind, name, reads, value, gradient) name,
#include "unary_list.hpp"
};
// The value that a function's gradient needs in addition to the gradient of its result.
enum class Reads : char { Operand, Result, Neither };
constexpr Reads reads_of_unary[] = {
#define BY_LANES(kind, name, reads, value, gradient) Reads::reads,
#define BY_NUMBER(kind, name, reads, value, slope) Reads::reads,
#define VALUE_BY_NUMBER(kind, name, reads, value, gradient) Reads::reads,
#include "unary_list.hpp"
};
constexpr bool by_output(Unary kind) { return reads_of_unary[static_cast<int>(kind)] == Reads::Result; }
constexpr bool by_input(Unary kind) { return reads_of_unary[static_cast<int>(kind)] == Reads::Operand; }
// clang-format off: a list
#define BINARIES(X) \
    X(Add, "add") X(Sub, "sub") X(Mul, "mul") X(Div, "div") X(Max, "max") X(Min, "min") X(Pow, "pow") \
    X(BinaryLog, "binary_log_loss") X(Equal, "equal")
// clang-format on
NAMED_ENUM(Binary, BINARIES)
// clang-format off: a list
#define REDUCTIONS(X)                                                                      \
    X(Sum, "sum_dim") X(Mean, "mean_dim") X(Max, "max_dim") X(Min, "min_dim")              \
    X(LogSumExp, "logsumexp_dim") X(Deviation, "std_dim") X(Length, "l2_norm")
// clang-format on
NAMED_ENUM(Reduction, REDUCTIONS)
// The factor and summand of the operand; and constants without an operand.
// clang-format off: a list
#define DRAWS(X)                                                                                        \
    X(Dropout, "dropout") X(Noise, "noise") X(Normal, "normal") X(Uniform, "uniform")                   \
    X(Bernoulli, "bernoulli") X(Gumbel, "gumbel") X(DropoutDim, "dropout_dim")                          \
    X(DropoutBatch, "dropout_batch") X(BlockDropout, "block_dropout")
// clang-format on
NAMED_ENUM(Draw, DRAWS)

// A block with a row stride of `stride` elements; a stride of 0 repeats one row.
struct Block {
    float *at = nullptr;
    std::ptrdiff_t stride = 0;
};

inline float *row_of(Block block, int i) { return block.at + i * block.stride; }

enum class Layout : int {
    Packed,   // panels made by `pack`
    Rows,     // rows with a stride
    Columns,  // columns with a stride; only for few rows of C
};

// C (m x n) = A (m x k) B (k x n); A's element (i, j) is a[i * a_row + j * a_col].
//
// An element of C depends only on its row of A and its column of B, bit for bit: not on the number of rows (batched or
// single), and not on B's layout.
struct Product {
    int m, n, k;
    const float *a;
    std::ptrdiff_t a_row, a_col;
    const float *b;
    Layout layout;
    std::ptrdiff_t b_step;  // stride between rows or columns of B
    float *c;
    std::ptrdiff_t c_row;
    const float *bias;  // initial value of each row, nullptr: zeros
    bool add;           // C += that sum
    // Where each row begins, instead of a stride. B's only with Layout::Rows.
    const float *const *a_rows = nullptr, *const *b_rows = nullptr;
    float *const *c_rows = nullptr;
};

struct LstmRow {
    int width;
    float *gates;           // i, f, o, u, concatenated; before and after activation
    const float *c_before;  // nullptr: zeros
    float *h, *c;
    float forget_bias;
};

struct LstmRowBack {
    int width;
    const float *gates, *c_before, *h, *dh;
    float *dc;                  // the part through h is added
    float *dgates, *dc_before;  // dc_before may be nullptr; accumulated
};

// Long sums are computed from sums of at most `block` terms, so that rounding errors do not grow with the length.
struct Kernels {
    static constexpr int block = 64;  // terms of a plain sum
    const char *name;
    int lanes;  // floats in one register
    void (*product)(const Product &);
    // Transpose a matrix to rows of `wide` elements, of which the last register is padded with zeros.
    void (*turn)(int rows, int columns, const float *from, std::ptrdiff_t stride, float *to, int wide);
    // to[j * stride + i] = from[i][j]; a row without an address counts as zeros
    void (*interleave)(int rows, int columns, const float *const *from, float *to, std::ptrdiff_t stride);
    // to[i][j] = from[j * stride + i], or += it; a row without an address is left out
    void (*separate)(int rows, int columns, const float *from, std::ptrdiff_t stride, float *const *to, bool add);
    void (*unary)(Unary, float attr, int rows, int width, Block y, Block x);
    // dx (+)= dy * f'(x or y)
    void (*unary_back)(Unary, float attr, int rows, int width, Block dx, bool add, Block dy, Block x, Block y);
    void (*binary)(Binary, int rows, int width, Block y, Block a, Block b);
    // the gradient with respect to operand `which` (0 or 1)
    void (*binary_back)(Binary, int which, int rows, int width, Block dx, bool add, Block dy, Block a, Block b,
                        Block y);
    void (*lstm)(const LstmRow &);
    void (*lstm_back)(const LstmRowBack &);
    void (*accumulate)(int width, float *y, const float *x);  // y += x
    // y + lost += x, where `lost` compensates the rounding of y
    void (*add_exactly)(int width, float *y, float *lost, const float *x);
    // y += the sum of the rows in `which`, or of the first rows if nullptr
    void (*sum_rows)(int rows, int width, float *y, Block x, const int *which);
    void (*axpy)(int width, float *y, float a, const float *x);  // y += a x
    float (*dot)(int width, const float *x, const float *y);
    float (*sum)(int width, const float *x);
    float (*largest)(int width, const float *x);
    // y = maximum or minimum of each column of contiguous rows; NaN propagates
    void (*extremes)(bool least, int rows, int width, float *y, const float *x);
    // y = exp(x - shift); returns the sum
    float (*exp_sum)(int width, float *y, const float *x, float shift);
    // an optimizer step for `n` elements: see update.hpp
    void (*update)(const UpdateRule &, float *weight, float *const *states, const float *grad, std::size_t n);
};

// Functions computed by the C library, element by element.
void unary_scalar(Unary, float attr, int rows, int width, Block y, Block x);
void unary_scalar_back(Unary, float attr, int rows, int width, Block dx, bool add, Block dy, Block x);
void binary_scalar(Binary, int rows, int width, Block y, Block a, Block b);
void binary_scalar_back(Binary, int which, int rows, int width, Block dx, bool add, Block dy, Block a, Block b);

// Size in floats of a `k` x `n` matrix packed for `product`, and the packing; `transposed`: source is n x k.
std::size_t packed_size(const Kernels &, int k, int n);
void pack(const Kernels &, int k, int n, const float *source, std::ptrdiff_t stride, bool transposed, float *to);
// Width in registers of panel `index` of `count`, which share `vectors` registers.
inline int panel_share(int vectors, int count, int index) { return vectors / count + (index < vectors % count); }
inline int panel_count(int vectors) { return (vectors + 3) / 4; }

// Softmax or log softmax of a row, and its gradient.
void softmax(bool logarithm, int width, const float *x, float *y);
void softmax_back(bool logarithm, int width, const float *y, const float *dy, float *dx);

const Kernels &kernels();  // the best for this CPU

// One for each instruction set.
const Kernels &kernels_avx512();
const Kernels &kernels_avx2();
const Kernels &kernels_plain();

}  // namespace dpmodule::vector
