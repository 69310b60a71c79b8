// Chooses instructions and kernels, and packs matrices for them.
#include "kernels.hpp"

#include <cstdlib>
#include <cstring>

#include "instructions.hpp"

namespace dpmodule::vector {
namespace {

Instructions choose_instructions() {
    const char *wish = std::getenv("DPMODULE_ISA");
#if defined(__x86_64__)
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

const Kernels &choose_kernels() {
#if defined(__x86_64__) && !defined(__clang__)
    switch (best_instructions()) {
        case Instructions::Avx512: return kernels_avx512();
        case Instructions::Avx2: return kernels_avx2();
        default: break;
    }
#endif
    return kernels_plain();
}

}  // namespace

Instructions best_instructions() {
    static const Instructions chosen = choose_instructions();
    return chosen;
}

const Kernels &kernels() {
    static const Kernels &chosen = choose_kernels();
    return chosen;
}

std::size_t packed_size(const Kernels &kernel, int k, int n) {
    const int vectors = (n + kernel.lanes - 1) / kernel.lanes;
    return static_cast<std::size_t>(vectors) * kernel.lanes * k;
}

void pack(const Kernels &kernel, int k, int n, const float *source, std::ptrdiff_t stride, bool transposed, float *to) {
    const int vectors = (n + kernel.lanes - 1) / kernel.lanes, panels = panel_count(vectors);
    int j0 = 0;
    for (int q = 0; q < panels; q++) {
        const int wide = panel_share(vectors, panels, q) * kernel.lanes, width = n - j0 < wide ? n - j0 : wide;
        if (transposed) {
            // sixteen columns at a time: their target lines stay in the cache while the rows pass
            for (int i0 = 0; i0 < k; i0 += 16) {
                const int columns = k - i0 < 16 ? k - i0 : 16;
                for (int j = 0; j < wide; j++) {
                    float *row = to + static_cast<std::size_t>(i0) * wide + j;
                    const float *from = source + (j0 + j) * stride + i0;
                    for (int i = 0; i < columns; i++)
                        row[static_cast<std::size_t>(i) * wide] = j < width ? from[i] : 0.0f;
                }
            }
        } else {
            for (int i = 0; i < k; i++) {
                float *row = to + static_cast<std::size_t>(i) * wide;
                std::memcpy(row, source + i * stride + j0, sizeof(float) * width);
                for (int j = width; j < wide; j++) row[j] = 0.0f;
            }
        }
        to += static_cast<std::size_t>(wide) * k;
        j0 += wide;
    }
}

}  // namespace dpmodule::vector
