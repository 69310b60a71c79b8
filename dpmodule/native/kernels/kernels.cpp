// Selects instructions and kernels, and packs matrices.
#include "kernels.hpp"

#include <cmath>
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
            kernel.turn(width, k, source + j0 * stride, stride, to, wide);
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

void softmax(bool logarithm, int width, const float *x, float *y) {
    const float top = kernels().largest(width, x), total = kernels().exp_sum(width, y, x, top);
    const float shift = top + std::log(total), scale = 1.0f / total;
    if (logarithm) kernels().unary(Unary::Shift, -shift, 1, width, {y, width}, {const_cast<float *>(x), width});
    else
        for (int j = 0; j < width; j++) y[j] *= scale;
}

void softmax_back(bool logarithm, int width, const float *y, const float *dy, float *dx) {
    if (logarithm) {
        const float total = kernels().sum(width, dy);
        kernels().exp_sum(width, dx, y, 0.0f);
        for (int j = 0; j < width; j++) dx[j] = dy[j] - dx[j] * total;
    } else {
        const float mean = kernels().dot(width, y, dy);
        for (int j = 0; j < width; j++) dx[j] = y[j] * (dy[j] - mean);
    }
}

}  // namespace dpmodule::vector
