// The kernels for machines without AVX2.
#include "kernels.hpp"

#include "vector/lanes_plain.hpp"
#include "vector/sweep.hpp"
#include "kernels_math.hpp"
#include "kernels_product.hpp"
#include "kernels_rows.hpp"

namespace dpmodule::autobatch {

const Kernels *kernels_plain() {
    static const Kernels table = {"plain",     Lanes::count, product,   unary,      unary_back,  binary,
                                  binary_back, lstm,         lstm_back, accumulate, add_exactly, sum_rows,
                                  axpy,        dot,          sum,       largest,    extremes,    exp_sum};
    return &table;
}

}  // namespace dpmodule::autobatch
