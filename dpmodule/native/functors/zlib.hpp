// The system's libz, loaded on first use.
//
// The extension must build without zlib's headers and load without the library, so it does not link to it; without it
// Python's zlib does this work. Usually Python's module `zlib` has already loaded libz.so.1, since native/blocks.py
// imports it first, and dlopen finds that one, even outside the system's folders.
#pragma once

#include <dlfcn.h>

namespace dpmodule {

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
inline constexpr int z_ok = 0, z_stream_end = 1, z_need_dictionary = 2, z_memory_error = -4, z_buffer_error = -5;
inline constexpr int z_no_flush = 0, z_finish = 4, z_deflated = 8, z_default_strategy = 0;

struct Zlib {
    const char *(*version)();
    int (*deflate_init)(ZStream *, int level, int method, int window_bits, int memory_level, int strategy,
                        const char *version, int size);
    int (*deflate)(ZStream *, int flush);
    int (*deflate_end)(ZStream *);
    unsigned long (*deflate_bound)(ZStream *, unsigned long size);
    int (*inflate_init)(ZStream *, int window_bits, const char *version, int size);
    int (*inflate)(ZStream *, int flush);
    int (*inflate_end)(ZStream *);
};

template <typename Function>
bool find_function(void *library, const char *name, Function &function) noexcept {
    function = reinterpret_cast<Function>(dlsym(library, name));
    return function != nullptr;
}

inline bool find_all(void *library, Zlib &z) noexcept {
    return find_function(library, "zlibVersion", z.version) &&
           find_function(library, "deflateInit2_", z.deflate_init) && find_function(library, "deflate", z.deflate) &&
           find_function(library, "deflateEnd", z.deflate_end) &&
           find_function(library, "deflateBound", z.deflate_bound) &&
           find_function(library, "inflateInit2_", z.inflate_init) && find_function(library, "inflate", z.inflate) &&
           find_function(library, "inflateEnd", z.inflate_end) && z.version()[0] == '1';
}

inline const Zlib *load_zlib() noexcept {
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
    static const Zlib *const library = load_zlib();
    return library;
}

}  // namespace dpmodule
