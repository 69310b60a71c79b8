// Parts of one piece of work by the threads that torch computes with. The extension has none of its own for this: a
// second set beside torch's would wait for processors on which torch's threads still wait for work.
#pragma once

#include <algorithm>
#include <cstddef>

namespace dpmodule {

// Calls `work(data, part)` for each of `parts` parts, by at most `threads` threads; one after the other where the
// process has no OpenMP.
void in_parts(std::ptrdiff_t parts, int threads, void (*work)(const void *data, std::ptrdiff_t part), const void *data);

// The same for `work(part)`.
template <class Work>
void in_parts(std::ptrdiff_t parts, int threads, const Work &work) {
    in_parts(
        parts, threads, [](const void *data, std::ptrdiff_t part) { (*static_cast<const Work *>(data))(part); }, &work);
}

// Calls `work(begin, end)` for neighbouring ranges of `count` things, one for each of `threads` threads, but at least one.
template <class Work>
void in_ranges(std::ptrdiff_t count, std::ptrdiff_t threads, const Work &work) {
    const std::ptrdiff_t parts = std::max<std::ptrdiff_t>(threads, 1);
    in_parts(parts, static_cast<int>(parts),
             [&](std::ptrdiff_t part) { work(count * part / parts, count * (part + 1) / parts); });
}

// Let the processor's other thread run for a moment.
inline void relax() {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

}  // namespace dpmodule
