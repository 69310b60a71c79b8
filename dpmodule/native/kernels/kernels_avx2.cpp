// The kernels for AVX2 with FMA.
#include "kernels.hpp"

#if defined(__x86_64__) && !defined(__clang__)

// Standard headers come before the target pragma: otherwise the linker could keep a copy of an inline function that was
// compiled for this instruction set for the whole program.
#include <immintrin.h>

// gcc 12's headers leave registers undefined on purpose; vectors never cross a call that is not inlined
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wpsabi"
#pragma GCC push_options
#pragma GCC target("avx2,fma")
#include "lanes_avx2.hpp"
#include "kernels_math.hpp"
#include "kernels_product.hpp"
#include "kernels_rows.hpp"
#include "update_rules.hpp"
#pragma GCC pop_options

const dpmodule::vector::Kernels &dpmodule::vector::kernels_avx2() {
    static const Kernels table = KERNELS("avx2");
    return table;
}

#endif
