// The beginning of a file in AVX-512: what follows is compiled for it, until `#pragma GCC pop_options`.
//
// Everything of the standard library comes before this: an inline function of it compiled for this instruction set could
// otherwise be the copy that the linker keeps for the whole program.
#pragma once
#include <immintrin.h>

// gcc 12's own headers leave registers undefined on purpose; vectors never cross a call that is not inlined
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wpsabi"
#pragma GCC push_options
#pragma GCC target("avx512f,avx512dq,avx512vl,avx512bw,avx2,fma")
#include "lanes_avx512.hpp"
#include "sweep.hpp"
