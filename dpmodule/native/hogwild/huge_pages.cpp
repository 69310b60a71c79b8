#include "huge_pages.hpp"

#include <cstdint>

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace dpmodule::hogwild {

void use_huge_pages(void *memory, std::size_t size) noexcept {
#if defined(__linux__)
    constexpr int collapse = 25;  // MADV_COLLAPSE of Linux 6.1: at once, and it keeps what is there
    constexpr std::uintptr_t page = std::uintptr_t{1} << 21;
    const auto at = reinterpret_cast<std::uintptr_t>(memory);
    const std::uintptr_t begin = (at + page - 1) & ~(page - 1), end = (at + size) & ~(page - 1);
    if (begin < end) (void)madvise(reinterpret_cast<void *>(begin), end - begin, collapse);
#else
    (void)memory, (void)size;
#endif
}

}  // namespace dpmodule::hogwild
