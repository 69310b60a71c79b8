// The kernels in AVX2 with FMA.
#include "kernels.hpp"

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)

#include "vector/begin_avx2.hpp"
#include "kernels_math.hpp"
#include "kernels_product.hpp"
#include "kernels_rows.hpp"
#pragma GCC pop_options

namespace dpmodule::autobatch {

const Kernels *kernels_avx2() {
    static const Kernels table = {"avx2",      Lanes::count, product,   unary,      unary_back,  binary,
                                  binary_back, lstm,         lstm_back, accumulate, add_exactly, sum_rows,
                                  axpy,        dot,          sum,       largest,    extremes,    exp_sum};
    return &table;
}

}  // namespace dpmodule::autobatch

#else

namespace dpmodule::autobatch {
const Kernels *kernels_avx2() { return nullptr; }
}  // namespace dpmodule::autobatch

#endif
