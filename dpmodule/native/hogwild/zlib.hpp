// The system's libz, loaded on first use.
//
// The extension must build without zlib's headers and load without the library, so it does not link to it. Usually Python's
// module `zlib` has already loaded libz.so.1, and dlopen finds that one, even outside the system's folders.
#pragma once

#include <dlfcn.h>

namespace dpmodule::hogwild {

// zlib's z_stream. All versions 1.x, and zlib-ng's compatible library, have the same layout; the library checks the size
// and version passed to it.
struct ZStream {
    const unsigned char *next_in = nullptr;
    unsigned avail_in = 0;
    unsigned long total_in = 0;
    unsigned char *next_out = nullptr;
    unsigned avail_out = 0;
    unsigned long total_out = 0;
    const char *message = nullptr;
    void *state = nullptr;
    void *(*allocate)(void *, unsigned, unsigned) = nullptr;
    void (*free)(void *, void *) = nullptr;
    void *opaque = nullptr;
    int data_type = 0;
    unsigned long adler = 0;
    unsigned long reserved = 0;
};

// Return codes and flush values used here.
inline constexpr int z_no_flush = 0, z_ok = 0, z_stream_end = 1, z_memory_error = -4, z_buffer_error = -5;

struct Zlib {
    const char *(*version)();
    int (*inflate_init)(ZStream *, int window_bits, const char *version, int size);
    int (*inflate)(ZStream *, int flush);
    int (*inflate_end)(ZStream *);
};

template <typename Function>
bool find(void *library, const char *name, Function &function) noexcept {
    function = reinterpret_cast<Function>(dlsym(library, name));
    return function != nullptr;
}

inline bool find_all(void *library, Zlib &z) noexcept {
    return find(library, "zlibVersion", z.version) && find(library, "inflateInit2_", z.inflate_init) &&
           find(library, "inflate", z.inflate) && find(library, "inflateEnd", z.inflate_end) && z.version()[0] == '1';
}

inline const Zlib *load() noexcept {
    static Zlib found;
#if defined(__APPLE__)
    constexpr const char *name = "libz.1.dylib";
#else
    constexpr const char *name = "libz.so.1";
#endif
    void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL);  // never closed
    return library && find_all(library, found) ? &found : nullptr;
}

// Return the library, or nullptr if there is none.
inline const Zlib *zlib() noexcept {
    static const Zlib *const library = load();
    return library;
}

}  // namespace dpmodule::hogwild
