// Steps of optimizers in AVX-512.
#include "update_lanes.hpp"

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)

#include "begin_avx512.hpp"
#include "update_rules.hpp"
#pragma GCC pop_options

dpmodule::vector::Update dpmodule::vector::update_avx512() { return step; }

#else

dpmodule::vector::Update dpmodule::vector::update_avx512() { return nullptr; }

#endif
