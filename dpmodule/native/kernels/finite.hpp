// Looks for numbers that are NaN or infinite.
#pragma once

#include <cstddef>

namespace dpmodule {

// Says whether all of some float32 numbers are finite.
bool all_finite(const float *at, std::ptrdiff_t count);

}  // namespace dpmodule
