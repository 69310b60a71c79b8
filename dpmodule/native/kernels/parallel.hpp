// Parallel loops on torch's OpenMP threads. The extension has no own threads for this, since they would compete with
// torch's spinning threads for processors.
#pragma once

#include <algorithm>
#include <cstddef>

namespace dpmodule {

// Calls `work(data, part)` for each of `parts` parts, on at most `threads` threads; sequentially without OpenMP.
void parallel_for(std::ptrdiff_t parts, int threads, void (*work)(const void *data, std::ptrdiff_t part),
                  const void *data);

// The same for `work(part)`.
template <class Work>
void parallel_for(std::ptrdiff_t parts, int threads, const Work &work) {
    parallel_for(
        parts, threads, [](const void *data, std::ptrdiff_t part) { (*static_cast<const Work *>(data))(part); }, &work);
}

// Calls `work(begin, end)` for consecutive ranges of `count` items, one for each of `threads` threads, at least one.
template <class Work>
void parallel_ranges(std::ptrdiff_t count, std::ptrdiff_t threads, const Work &work) {
    const std::ptrdiff_t parts = std::max<std::ptrdiff_t>(threads, 1);
    parallel_for(parts, static_cast<int>(parts),
                 [&](std::ptrdiff_t part) { work(count * part / parts, count * (part + 1) / parts); });
}

// Yields to the processor's other hardware thread for a moment.
inline void relax() {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

}  // namespace dpmodule
