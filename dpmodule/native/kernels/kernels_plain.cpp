// The kernels for CPUs without AVX2.
#include "kernels.hpp"

#include "lanes_plain.hpp"
#include "kernels_math.hpp"
#include "kernels_product.hpp"
#include "kernels_rows.hpp"
#include "update_rules.hpp"

const dpmodule::vector::Kernels &dpmodule::vector::kernels_plain() {
    static const Kernels table = KERNELS("plain");
    return table;
}
