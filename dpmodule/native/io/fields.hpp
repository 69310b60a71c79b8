// Where the fields of a text in commas and lines end, 64 characters at a time.
//
// Reading a number to its end before looking for the next one makes a chain of steps that each wait for the one before. With
// the ends known ahead, the processor converts several numbers side by side.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace dpmodule::io {

class Fields {
  public:
    Fields(const char *at, const char *limit) noexcept : block_(at), following_(at), limit_(limit) {}

    // Step to the next comma or end of a line; the limit, once and again, when there is none.
    const char *next() noexcept {
        while (ends_ == 0) {
            if (following_ == limit_) return limit_;
            block_ = following_;
            const std::ptrdiff_t count = std::min(limit_ - block_, size);
            following_ += count;
            ends_ = count == size ? whole() : slowly(count);
        }
        const char *end = block_ + __builtin_ctzll(ends_);
        ends_ &= ends_ - 1;
        return end;
    }

  private:
    static constexpr std::ptrdiff_t size = 64;

    std::uint64_t slowly(std::ptrdiff_t count) const noexcept {
        std::uint64_t found = 0;
        for (std::ptrdiff_t i = 0; i < count; ++i) {
            found |= static_cast<std::uint64_t>(block_[i] == ',' || block_[i] == '\n') << i;
        }
        return found;
    }

    std::uint64_t whole() const noexcept {
#if defined(__SSE2__)
        const __m128i comma = _mm_set1_epi8(','), newline = _mm_set1_epi8('\n');
        std::uint64_t found = 0;
        for (int i = 0; i < 4; ++i) {
            const __m128i text = _mm_loadu_si128(reinterpret_cast<const __m128i *>(block_ + 16 * i));
            const __m128i is_end = _mm_or_si128(_mm_cmpeq_epi8(text, comma), _mm_cmpeq_epi8(text, newline));
            found |= static_cast<std::uint64_t>(static_cast<unsigned>(_mm_movemask_epi8(is_end))) << (16 * i);
        }
        return found;
#else
        return slowly(size);
#endif
    }

    const char *block_, *following_, *limit_;
    std::uint64_t ends_ = 0;
};

}  // namespace dpmodule::io
