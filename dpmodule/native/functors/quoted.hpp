// Quoting of data in messages.
#pragma once

#include <cstddef>
#include <string>

namespace dpmodule {

// Return at most 40 bytes in quotes, with unprintable ones as \xNN.
inline std::string quoted(const char *begin, const char *end) {
    constexpr std::ptrdiff_t most = 40;
    const bool cut = end - begin > most;
    if (cut) end = begin + most;
    std::string text = "'";
    for (; begin < end; ++begin) {
        const unsigned char byte = static_cast<unsigned char>(*begin);
        if (byte >= 32 && byte < 127) {
            text += *begin;
        } else {
            constexpr const char *hex = "0123456789abcdef";
            text += std::string("\\x") + hex[byte >> 4] + hex[byte & 15];
        }
    }
    return text + (cut ? "'..." : "'");
}

}  // namespace dpmodule
