// CRC-32C (Castagnoli), the checksum of record formats, iSCSI and ext4.
#pragma once

#include <cstddef>
#include <cstdint>

namespace dpmodule {

// Continue a checksum over more bytes; begin with 0. By the processor's instruction where it has one.
std::uint32_t crc32c(std::uint32_t value, const unsigned char *data, std::size_t size) noexcept;

// The same by tables, on any processor.
std::uint32_t crc32c_by_table(std::uint32_t value, const unsigned char *data, std::size_t size) noexcept;

// How crc32c computes here: "sse4.2", "arm" or "table".
const char *crc32c_kind() noexcept;

}  // namespace dpmodule
