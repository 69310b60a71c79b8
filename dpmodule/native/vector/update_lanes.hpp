// `update` as each update_*.cpp compiles it for its lanes; nullptr where the compiler does not know them.
#pragma once

#include "update.hpp"

namespace dpmodule::vector {

using Update = void (*)(const UpdateRule &, float *, float *const *, const float *, std::size_t);

Update update_plain();
Update update_avx2();
Update update_avx512();

}  // namespace dpmodule::vector
