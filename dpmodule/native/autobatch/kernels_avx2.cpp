// The kernels in AVX2 with FMA.
//
// Everything of the standard library comes before the pragma: an inline function of it compiled for this instruction
// set could otherwise be the copy that the linker keeps for the whole program.
#include "kernels.hpp"

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)

#include <immintrin.h>

// gcc 12's own headers leave registers undefined on purpose; vectors never cross a call that is not inlined
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wpsabi"
#pragma GCC push_options
#pragma GCC target("avx2,fma")
#include "vector/lanes_avx2.hpp"
#include "vector/sweep.hpp"
#include "kernels_math.hpp"
#include "kernels_product.hpp"
#include "kernels_rows.hpp"
#pragma GCC pop_options

namespace dpmodule::autobatch {

const Kernels *kernels_avx2() {
    static const Kernels table = {"avx2", Lanes::count, product, unary, unary_back, binary, binary_back, lstm, lstm_back,
                                  accumulate, add_exactly, sum_rows, axpy, dot, sum, largest, extremes, exp_sum};
    return &table;
}

}  // namespace dpmodule::autobatch

#else

namespace dpmodule::autobatch {
const Kernels *kernels_avx2() { return nullptr; }
}  // namespace dpmodule::autobatch

#endif
