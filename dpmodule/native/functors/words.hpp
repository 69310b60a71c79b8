// Words of a text one after the other, 64 characters at a time.
//
// Reading a number to its end before looking for the next one makes a chain of steps that each wait for the one before. Here
// a bit for every blank of a block tells at once where its words end, and the processor converts several side by side.
#pragma once

#include <cstddef>
#include <cstdint>
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace dpmodule {

class Words {
  public:
#if defined(__SSE2__)
    static constexpr bool available = true;
#else
    static constexpr bool available = false;
#endif

    Words(const char *at, const char *limit) noexcept : limit_(limit) { restart(at); }

    // Go on from another place.
    void restart(const char *at) noexcept {
        block_ = at;
        end_ = at - 1;
        blanks_ = 0;
        near_end_ = !load();
    }

    // Step to the next word, which may be empty; false near the end of the text, which is not for this class.
    bool next() noexcept {
        begin_ = end_ + 1;
        while (blanks_ == 0) {
            if (near_end_) return false;
            block_ += size;
            near_end_ = !load();
        }
        end_ = block_ + __builtin_ctzll(blanks_);
        blanks_ &= blanks_ - 1;
        return true;
    }

    const char *begin() const noexcept { return begin_; }
    const char *end() const noexcept { return end_; }  // the blank or control character behind the word
    std::size_t left() const noexcept { return static_cast<std::size_t>(limit_ - end_); }

  private:
    static constexpr std::ptrdiff_t size = 64;
    static constexpr std::ptrdiff_t margin = 8;  // a word of one block is read eight characters at a time

    bool load() noexcept {
        if (!available || limit_ - block_ < size + margin) return false;
#if defined(__SSE2__)
        const __m128i space = _mm_set1_epi8(' ');
        for (int i = 0; i < 4; ++i) {
            const __m128i text = _mm_loadu_si128(reinterpret_cast<const __m128i *>(block_ + 16 * i));
            const __m128i is_blank = _mm_cmpeq_epi8(_mm_min_epu8(text, space), text);
            blanks_ |= static_cast<std::uint64_t>(static_cast<unsigned>(_mm_movemask_epi8(is_blank))) << (16 * i);
        }
#endif
        return true;
    }

    const char *limit_;
    const char *block_ = nullptr, *begin_ = nullptr, *end_ = nullptr;
    std::uint64_t blanks_ = 0;
    bool near_end_ = false;
};

}  // namespace dpmodule
