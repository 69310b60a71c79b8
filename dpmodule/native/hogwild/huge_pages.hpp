// Large pages for large tables: rows are read in no order, and with pages of 4 KiB most of them first cost a walk through
// the page tables, a fifth of all time.
#pragma once

#include <cstddef>

namespace dpmodule::hogwild {

// Ask for large pages where some memory lies, whatever it holds. Where the system cannot, nothing happens.
void use_huge_pages(void *memory, std::size_t size) noexcept;

}  // namespace dpmodule::hogwild
