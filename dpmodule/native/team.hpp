// Parts of one piece of work by the threads that torch computes with. The extension has none of its own for this: a
// second set beside torch's would wait for processors on which torch's threads still wait for work.
#pragma once

#include <cstddef>

namespace dpmodule {

// Calls `work(data, part)` for each of `parts` parts, by at most `threads` threads; one after the other where the
// process has no OpenMP.
void in_parts(std::ptrdiff_t parts, int threads, void (*work)(void *data, std::ptrdiff_t part), void *data);

}  // namespace dpmodule
