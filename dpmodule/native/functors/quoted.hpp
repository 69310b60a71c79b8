// Pieces of data as messages show them.
#pragma once

#include <string>

namespace dpmodule {

// A piece of text in quotes: what is not printable as \xNN, no more than 40 bytes.
std::string quoted(const char *begin, const char *end);

}  // namespace dpmodule
