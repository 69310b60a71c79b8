// Steps of optimizers in AVX2 with FMA.
//
// Everything of the standard library comes before the pragma: an inline function of it compiled for this instruction
// set could otherwise be the copy that the linker keeps for the whole program.
#include "update_lanes.hpp"

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)

#include <immintrin.h>

// gcc 12's own headers leave registers undefined on purpose; vectors never cross a call that is not inlined
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wpsabi"
#pragma GCC push_options
#pragma GCC target("avx2,fma")
#include "lanes_avx2.hpp"
#include "sweep.hpp"
#include "update_rules.hpp"
#pragma GCC pop_options

dpmodule::vector::Update dpmodule::vector::update_avx2() { return step; }

#else

dpmodule::vector::Update dpmodule::vector::update_avx2() { return nullptr; }

#endif
