#include "parallel.hpp"

#include <dlfcn.h>

namespace dpmodule {
namespace {

// The process's OpenMP runtime functions, as compiled code calls them: torch provides no other access to its threads.
struct OpenMp {
    void (*parallel)(void (*)(void *), void *, unsigned threads, unsigned flags) = nullptr;
    int (*thread)() = nullptr;
    int (*threads)() = nullptr;

    OpenMp() {
        parallel = reinterpret_cast<decltype(parallel)>(dlsym(RTLD_DEFAULT, "GOMP_parallel"));
        thread = reinterpret_cast<decltype(thread)>(dlsym(RTLD_DEFAULT, "omp_get_thread_num"));
        threads = reinterpret_cast<decltype(threads)>(dlsym(RTLD_DEFAULT, "omp_get_num_threads"));
    }

    bool there() const { return parallel && thread && threads; }
};

const OpenMp &open_mp() {
    static const OpenMp found;
    return found;
}

struct Team {
    std::ptrdiff_t parts;
    void (*work)(const void *, std::ptrdiff_t);
    const void *data;
};

// The work of one thread: consecutive parts.
void of_one_thread(void *given) {
    const Team &team = *static_cast<const Team *>(given);
    const std::ptrdiff_t thread = open_mp().thread(), threads = open_mp().threads();
    const std::ptrdiff_t end = team.parts * (thread + 1) / threads;
    for (std::ptrdiff_t part = team.parts * thread / threads; part < end; ++part) team.work(team.data, part);
}

}  // namespace

void parallel_for(std::ptrdiff_t parts, int threads, void (*work)(const void *, std::ptrdiff_t), const void *data) {
    if (threads > 1 && parts > 1 && open_mp().there()) {
        Team team{parts, work, data};
        open_mp().parallel(of_one_thread, &team, static_cast<unsigned>(threads), 0);
        return;
    }
    for (std::ptrdiff_t part = 0; part < parts; ++part) work(data, part);
}

}  // namespace dpmodule
