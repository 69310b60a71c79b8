#include "zlib.hpp"

#include <dlfcn.h>

namespace dpmodule {
namespace {

template <typename Function>
bool find(void *library, const char *name, Function &function) noexcept {
    function = reinterpret_cast<Function>(dlsym(library, name));
    return function != nullptr;
}

bool find_all(void *library, Zlib &z) noexcept {
    return find(library, "zlibVersion", z.version) && find(library, "inflateInit2_", z.inflate_init) &&
           find(library, "inflate", z.inflate) && find(library, "inflateEnd", z.inflate_end) && z.version()[0] == '1';
}

const Zlib *load() noexcept {
    static Zlib found;
#if defined(__APPLE__)
    constexpr const char *name = "libz.1.dylib";
#else
    constexpr const char *name = "libz.so.1";
#endif
    void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL);  // never closed
    return library && find_all(library, found) ? &found : nullptr;
}

}  // namespace

const Zlib *zlib() noexcept {
    static const Zlib *const library = load();
    return library;
}

}  // namespace dpmodule
