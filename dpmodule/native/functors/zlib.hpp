// The system's libz, loaded on first use.
//
// The extension must build without zlib's headers and load without the library, so it does not link to it. Usually Python's
// module `zlib` has already loaded libz.so.1, and dlopen finds that one, even outside the system's folders.
#pragma once

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
inline constexpr int z_no_flush = 0, z_ok = 0, z_stream_end = 1, z_memory_error = -4, z_buffer_error = -5;

struct Zlib {
    const char *(*version)();
    int (*inflate_init)(ZStream *, int window_bits, const char *version, int size);
    int (*inflate)(ZStream *, int flush);
    int (*inflate_end)(ZStream *);
};

// Return the library, or nullptr if there is none.
const Zlib *zlib() noexcept;

}  // namespace dpmodule
