// Arithmetic of the engines and of trainers, compiled once per instruction set and chosen when it is first asked for.
//
// All matrices are row-major blocks of float: `rows` rows of `width` numbers, `stride` numbers from row to row.
#pragma once

#include <cstddef>

#include "update.hpp"

// Enumerations whose enumerators have names in Python, by which it learns their numbers.
#define NAMED_ENUM_KIND(kind, name) kind,
#define NAMED_ENUM_NAME(kind, name) name,
// `enum class TYPE : int` and `names_of(TYPE)`, of a macro LIST(X) that is a row of X(enumerator, name).
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
// What the gradient of a function is computed from, beside that of its result.
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
// By what the operand is multiplied, what is added to it; and without an operand.
// clang-format off: a list
#define DRAWS(X)                                                                                        \
    X(Dropout, "dropout") X(Noise, "noise") X(Normal, "normal") X(Uniform, "uniform")                   \
    X(Bernoulli, "bernoulli") X(Gumbel, "gumbel") X(DropoutDim, "dropout_dim")                          \
    X(DropoutBatch, "dropout_batch") X(BlockDropout, "block_dropout")
// clang-format on
NAMED_ENUM(Draw, DRAWS)

// A block whose rows lie `stride` numbers apart; a stride of 0 repeats one row.
struct Block {
    float *at = nullptr;
    std::ptrdiff_t stride = 0;
};

inline float *row_of(Block block, int i) { return block.at + i * block.stride; }

enum class Layout : int {
    Packed,   // panels made by `pack`
    Rows,     // rows, some numbers apart
    Columns,  // columns, some numbers apart: for few rows of C only
};

// C (m x n) = A (m x k) B (k x n); A's element (i, j) is a[i * a_row + j * a_col].
//
// What an element of C becomes depends on its row of A and its column of B only, to the last bit: not on the other rows
// (batched or alone), and not on B's layout.
struct Product {
    int m, n, k;
    const float *a;
    std::ptrdiff_t a_row, a_col;
    const float *b;
    Layout layout;
    std::ptrdiff_t b_step;  // from one row or column of B to the next
    float *c;
    std::ptrdiff_t c_row;
    const float *bias;  // begins the sum of each row, nullptr: zeros
    bool add;           // C += that sum
};

struct LstmRow {
    int width;
    float *gates;           // i, f, o, u one after the other; before and after activation
    const float *c_before;  // nullptr: zeros
    float *h, *c;
    float forget_bias;
};

struct LstmRowBack {
    int width;
    const float *gates, *c_before, *h, *dh;
    float *dc;                  // gains what comes by way of h
    float *dgates, *dc_before;  // dc_before may be nullptr; it is added to
};

// Sums of any length are made of sums of so few terms that rounding does not grow with it.
struct Kernels {
    static constexpr int block = 64;  // terms that are simply added
    const char *name;
    int lanes;  // floats in one register
    void (*product)(const Product &);
    void (*unary)(Unary, float attr, int rows, int width, Block y, Block x);
    // dx (+)= dy * f'(x or y)
    void (*unary_back)(Unary, float attr, int rows, int width, Block dx, bool add, Block dy, Block x, Block y);
    void (*binary)(Binary, int rows, int width, Block y, Block a, Block b);
    // the gradient towards operand `which` (0 or 1)
    void (*binary_back)(Binary, int which, int rows, int width, Block dx, bool add, Block dy, Block a, Block b,
                        Block y);
    void (*lstm)(const LstmRow &);
    void (*lstm_back)(const LstmRowBack &);
    void (*accumulate)(int width, float *y, const float *x);  // y += x
    // y + lost += x, where `lost` keeps what rounding takes from y
    void (*add_exactly)(int width, float *y, float *lost, const float *x);
    // y += the sum of rows: of those that `which` numbers, or with nullptr of the first ones
    void (*sum_rows)(int rows, int width, float *y, Block x, const int *which);
    void (*axpy)(int width, float *y, float a, const float *x);  // y += a x
    float (*dot)(int width, const float *x, const float *y);
    float (*sum)(int width, const float *x);
    float (*largest)(int width, const float *x);
    // y = of each column of rows that lie one after the other the largest number, or the least; NaN where there is one
    void (*extremes)(bool least, int rows, int width, float *y, const float *x);
    // y = exp(x - shift); returns the sum
    float (*exp_sum)(int width, float *y, const float *x, float shift);
    // a step of an optimizer for `n` numbers: see update.hpp
    void (*update)(const UpdateRule &, float *weight, float *const *states, const float *grad, std::size_t n);
};

// Functions for which the kernels call the C library, number by number.
void unary_each_number(Unary, float attr, int rows, int width, Block y, Block x);
void unary_each_number_back(Unary, float attr, int rows, int width, Block dx, bool add, Block dy, Block x);
void binary_each_number(Binary, int rows, int width, Block y, Block a, Block b);
void binary_each_number_back(Binary, int which, int rows, int width, Block dx, bool add, Block dy, Block a, Block b);

// Size in floats of `k` x `n` packed for `product`, and the packing; `transposed`: source is n x k.
std::size_t packed_size(const Kernels &, int k, int n);
void pack(const Kernels &, int k, int n, const float *source, std::ptrdiff_t stride, bool transposed, float *to);
// Width in registers of panel `index` of `count` that share `vectors` registers.
inline int panel_share(int vectors, int count, int index) { return vectors / count + (index < vectors % count); }
inline int panel_count(int vectors) { return (vectors + 3) / 4; }

// Softmax of a row, or its logarithm, and the gradient of its operand.
void softmax(bool logarithm, int width, const float *x, float *y);
void softmax_back(bool logarithm, int width, const float *y, const float *dy, float *dx);

const Kernels &kernels();  // the best for this CPU, for which the compiler knows registers

// Of one instruction set each.
const Kernels &kernels_avx512();
const Kernels &kernels_avx2();
const Kernels &kernels_plain();

}  // namespace dpmodule::vector
