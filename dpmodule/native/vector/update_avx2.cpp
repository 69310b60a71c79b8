// Steps of optimizers in AVX2 with FMA.
#include "update_lanes.hpp"

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)

#include "begin_avx2.hpp"
#include "update_rules.hpp"
#pragma GCC pop_options

dpmodule::vector::Update dpmodule::vector::update_avx2() { return step; }

#else

dpmodule::vector::Update dpmodule::vector::update_avx2() { return nullptr; }

#endif
