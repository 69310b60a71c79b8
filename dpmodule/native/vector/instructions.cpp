#include "instructions.hpp"

#include <cstdlib>
#include <cstring>

namespace dpmodule::vector {
namespace {

Instructions choose() {
    const char *wish = std::getenv("DPMODULE_ISA");
#if defined(__x86_64__) && defined(__GNUC__)
    __builtin_cpu_init();
    const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
                        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bw");
    if (avx512 && (!wish || !std::strcmp(wish, "avx512"))) return Instructions::Avx512;
    if (avx2 && (!wish || std::strcmp(wish, "plain"))) return Instructions::Avx2;
#endif
    (void)wish;
    return Instructions::Plain;
}

}  // namespace

Instructions best_instructions() {
    static const Instructions chosen = choose();
    return chosen;
}

Instructions instructions() {
#if defined(__clang__)
    return Instructions::Plain;
#else
    return best_instructions();
#endif
}

}  // namespace dpmodule::vector
