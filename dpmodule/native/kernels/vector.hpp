// Compiler vectors, elementwise functions, and the choice among instruction sets. Files that include this header are
// compiled separately: the functions are inlined into code for several instruction sets.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "instructions.hpp"

#if defined(__x86_64__) && !defined(__clang__)
#include <immintrin.h>
#endif

// none of them is called across files, and all are inlined
#pragma GCC diagnostic ignored "-Wpsabi"

#define DPMODULE_INLINED __attribute__((always_inline))
#define DPMODULE_INLINE inline DPMODULE_INLINED
#ifdef __clang__  // it vectorizes with -O2, too
#define DPMODULE_VECTORIZE
#else
#define DPMODULE_VECTORIZE __attribute__((optimize("O3")))
#endif
#define DPMODULE_AVX2 __attribute__((target("avx2,fma")))
#define DPMODULE_AVX512 __attribute__((target("avx512f,avx512vl,avx512dq,avx2,fma")))

namespace dpmodule {
namespace {

// A vector of `Width` floats.
template <int Width>
struct Vector {
    typedef float Floats __attribute__((vector_size(4 * Width)));  // `using` drops the size in templates
    typedef std::int32_t Ints __attribute__((vector_size(4 * Width)));

    // exp(x) - 1 = part * scale + (scale - 1)
    struct Exponent {
        Floats part, scale;
    };

    // The first `count` elements, padded with zeros; none if negative.
    DPMODULE_INLINE static Floats load(const float *from, std::ptrdiff_t count = Width) {
        Floats found{};
        if (count >= Width) {
            std::memcpy(&found, from, sizeof found);
        } else if (count > 0) {
            std::memcpy(&found, from, sizeof(float) * count);
        }
        return found;
    }

    DPMODULE_INLINE static void store(float *to, const Floats &value, std::ptrdiff_t count = Width) {
        const Floats copy = value;  // memcpy of a part forces the whole array into memory
        if (count >= Width) {
            std::memcpy(to, &value, sizeof value);
        } else if (count > 0) {
            std::memcpy(to, &copy, sizeof(float) * count);
        }
    }

    // For x from -87 to 88; NaN propagates to `part`.
    DPMODULE_INLINE static Exponent exponent(const Floats &x) {
        // 1.5 * 2^23: a sum with it has the nearest integer in its low bits
        constexpr float kRound = 12582912.0f;
        const Floats shifted = x * 1.44269504f + kRound;
        const Floats whole = shifted - kRound;
        // ln 2 in two parts, the first of which is exact in every product here
        const Floats r = (x - whole * 0.693359375f) + whole * 2.12194440e-4f;
        const Floats square = r * r;  // pairs of terms depend less on each other than a chain
        const Floats low = r * (1.0f / 6) + 0.5f, middle = r * (1.0f / 120) + 1.0f / 24;
        const Floats sum = ((r * (1.0f / 5040) + 1.0f / 720) * square + middle) * square + low;
        const Ints bits = (reinterpret_cast<Ints>(shifted) - 0x4b400000 + 127) << 23;
        return {sum * square + r, reinterpret_cast<Floats>(bits)};
    }

    DPMODULE_INLINE static Floats between(const Floats &x, float low, float high) {  // NaN propagates
        const Floats least = Floats{} + low, most = Floats{} + high;
#if defined(__x86_64__) && !defined(__clang__)
        // gcc compares and chooses with two instructions each
        if constexpr (Width == 8) {
            const auto lifted = __builtin_ia32_maxps256(reinterpret_cast<__v8sf>(least), reinterpret_cast<__v8sf>(x));
            return reinterpret_cast<Floats>(__builtin_ia32_minps256(reinterpret_cast<__v8sf>(most), lifted));
        }
#endif
        const Floats lifted = x < least ? least : x;
        return lifted > most ? most : lifted;
    }

    // The sum of all elements.
    DPMODULE_INLINE static float total(const Floats &x) {
        if constexpr (Width == 1) {
            return *reinterpret_cast<const float *>(&x);
        } else {
            typename Vector<Width / 2>::Floats halves[2];
            std::memcpy(halves, &x, sizeof x);
            return Vector<Width / 2>::total(halves[0] + halves[1]);
        }
    }

    // 1 + exp(-x), the divisor of a sigmoid.
    DPMODULE_INLINE static Floats sigmoid_divisor(const Floats &x) {
        const Exponent e = exponent(between(-x, -87.0f, 88.0f));
        return e.part * e.scale + e.scale + 1.0f;
    }

    DPMODULE_INLINE static Floats sigmoid(const Floats &x) { return 1.0f / sigmoid_divisor(x); }

    // Source of the tail of the normal distribution: Abramowitz and Stegun, "Handbook of Mathematical Functions", 1964,
    // 26.2.17, with an absolute error of 7.5e-8.
    DPMODULE_INLINE static Floats gelu(const Floats &x) {
        const Floats positive = x > 0.0f ? x : Floats{}, all = x > 0.0f ? x : -x;
        const Floats size = all > 13.0f ? Floats{} + 13.0f : all;  // where the tail is not subnormal; NaN propagates
        const Floats t = 1.0f / (size * 0.2316419f + 1.0f);
        const Floats low = t * -0.142248368f + 0.127414796f, high = t * -0.726576013f + 0.710706872f;
        const Floats sum = (t * t * 0.530702714f + high) * (t * t) + low;
        const Exponent e = exponent(size * size * -0.5f);
        return positive - (e.part * e.scale + e.scale) * size * (sum * t);  // no product is subnormal, which is slow
    }

    DPMODULE_INLINE static Floats tanh(const Floats &x) {
        const Exponent e = exponent(between(x + x, -40.0f, 40.0f));
        const Floats minus_one = e.part * e.scale + (e.scale - 1.0f);
        return minus_one / (minus_one + 2.0f);
    }

    // tanh as a quotient of polynomials with a relative error of 4e-7, and exact from 9 on, for gates. The coefficients
    // minimise the error to tanh(x) * (1 + 4e-7 * (x / 9)^8), which exceeds 1 there.
    DPMODULE_INLINE static Floats quick_tanh(const Floats &given) {
        const Floats x = between(given, -9.0f, 9.0f), square = x * x;
        const Floats above =
            (((square * 1.3392925e-8f + 2.06312179e-5f) * square + 3.49681242e-3f) * square + 0.13382031f) * square;
        const Floats below =
            (((square * 7.79028369e-7f + 3.28770955e-4f) * square + 2.58815549e-2f) * square + 0.46715346f) * square;
        return between((x * above + x) / (below + 1.0f), -1.0f, 1.0f);
    }

    DPMODULE_INLINE static Floats quick_sigmoid(const Floats &x) { return quick_tanh(x * 0.5f) * 0.5f + 0.5f; }
};

// Four numbers, and a vector of chosen ones among two of them.
typedef float Four __attribute__((vector_size(16)));

#if defined(__clang__)
#define DPMODULE_MIX(first, second, ...) __builtin_shufflevector(first, second, __VA_ARGS__)
#else
typedef int Places __attribute__((vector_size(16)));
#define DPMODULE_MIX(first, second, ...) __builtin_shuffle(first, second, Places{__VA_ARGS__})
#endif

// The elements of a vector at some places.
template <class Floats, class Ints>
DPMODULE_INLINE Floats chosen(const Floats &x, const Ints &places) {
#if defined(__clang__)
    Floats found;
    for (std::size_t i = 0; i < sizeof x / sizeof places[0]; ++i) found[i] = x[places[i]];
    return found;
#else
    return __builtin_shuffle(x, places);
#endif
}

DPMODULE_INLINE Four four(const float *from) {
    Four found;
    std::memcpy(&found, from, sizeof found);
    return found;
}

// Calls `work.at<Width>(i)` for vectors with all of `count` numbers, which are at least `Least`. The last vector may
// overlap the one before.
template <int Width, int Least = 1, class Work>
DPMODULE_INLINE void all_vectors(std::ptrdiff_t count, const Work &work) {
    if (count >= Width) {
        for (std::ptrdiff_t i = 0; i < count; i += Width)
            work.template at<Width>(i < count - Width ? i : count - Width);
    } else if constexpr (Width > Least) {
        all_vectors<(Width > 4 ? Width / 2 : 1), Least>(count, work);
    }
}

// Calls body(index, number of an accumulator, elements to skip) for all vectors of at least `Width` elements. The last
// one may overlap the one before, whose elements are then to be skipped in sums.
template <int Width, class Body>
DPMODULE_INLINE void each_vector(std::ptrdiff_t begin, std::ptrdiff_t count, const Body &body) {
    const std::ptrdiff_t end = begin + count;
    std::ptrdiff_t i = begin;
    for (; i + 4 * Width <= end; i += 4 * Width) {
#pragma GCC unroll 4
        for (int k = 0; k < 4; ++k) body(i + k * Width, k, 0);
    }
    for (; i + Width <= end; i += Width) body(i, 0, 0);
    if (i < end) body(end - Width, 0, static_cast<int>(Width - (end - i)));
}

// The elements of a vector, with zeros in place of the first ones.
template <int Width>
DPMODULE_INLINE typename Vector<Width>::Floats without(const typename Vector<Width>::Floats &x, int skip) {
    typename Vector<Width>::Ints places;
#pragma GCC unroll 16
    for (int i = 0; i < Width; ++i) places[i] = i;
    return places >= skip ? x : typename Vector<Width>::Floats{};
}

template <int Width>
DPMODULE_INLINE double total(const typename Vector<Width>::Floats (&sums)[4]) {
    return Vector<Width>::total((sums[0] + sums[1]) + (sums[2] + sums[3]));
}

template <class Kernel, class... Given>
auto run_plain(const Given &...given) {
    return Kernel::template run<4>(given...);
}

#if defined(__x86_64__)
template <class Kernel, class... Given>
DPMODULE_AVX2 auto run_avx2(const Given &...given) {
    return Kernel::template run<8>(given...);
}

template <class Kernel, class... Given>
DPMODULE_AVX512 auto run_avx512(const Given &...given) {
    return Kernel::template run<16>(given...);
}
#endif

// Calls `Kernel::run<Width>`, inlined, for the best instruction set of this processor, with vectors of `Width` floats.
template <class Kernel, class... Given>
auto run_best(const Given &...given) {
#if defined(__x86_64__)
    switch (vector::best_instructions()) {
        case vector::Instructions::Avx512: return run_avx512<Kernel>(given...);
        case vector::Instructions::Avx2: return run_avx2<Kernel>(given...);
        default: break;
    }
#endif
    return run_plain<Kernel>(given...);
}

// The `Width` with which `run_best` calls a kernel.
inline int best_width() {
    switch (vector::best_instructions()) {
        case vector::Instructions::Avx512: return 16;
        case vector::Instructions::Avx2: return 8;
        default: return 4;
    }
}

}  // namespace
}  // namespace dpmodule
