// The functor that computes CRC-32C (Castagnoli), the checksum of record formats, iSCSI and ext4.
#include "python.hpp"
#include "ready.hpp"
#include "types.hpp"

#include <array>
#include <cstring>

#if defined(__x86_64__) && defined(__GNUC__)
#define DPMODULE_CRC32C_SSE 1
#include <nmmintrin.h>
#elif defined(__aarch64__) && defined(__GNUC__)
#define DPMODULE_CRC32C_ARM 1
#include <arm_acle.h>
#ifdef __linux__
#include <sys/auxv.h>
#endif
#endif

namespace dpmodule {
namespace {

constexpr std::uint32_t polynomial = 0x82F63B78;  // 0x1EDC6F41 with its bits reversed

using Table = std::array<std::array<std::uint32_t, 256>, 8>;

// slices[k][b] is the checksum of the byte b followed by k zeros.
const Table slices = [] {
    Table table{};
    for (std::uint32_t byte = 0; byte < 256; ++byte) {
        std::uint32_t crc = byte;
        for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ (crc & 1 ? polynomial : 0);
        table[0][byte] = crc;
    }
    for (std::size_t k = 1; k < table.size(); ++k) {
        for (std::size_t byte = 0; byte < 256; ++byte) {
            const std::uint32_t before = table[k - 1][byte];
            table[k][byte] = (before >> 8) ^ table[0][before & 255];
        }
    }
    return table;
}();

std::uint64_t load(const unsigned char *data) noexcept {
    std::uint64_t word;
    std::memcpy(&word, data, sizeof word);
    return word;
}

std::uint32_t by_table(std::uint32_t crc, const unsigned char *data, std::size_t size) noexcept {
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    for (; size >= 8; data += 8, size -= 8) {
        const std::uint64_t word = load(data) ^ crc;
        crc = 0;
        for (int k = 0; k < 8; ++k) crc ^= slices[7 - k][(word >> (8 * k)) & 255];
    }
#endif
    for (; size > 0; ++data, --size) crc = (crc >> 8) ^ slices[0][(crc ^ *data) & 255];
    return crc;
}

#if defined(DPMODULE_CRC32C_SSE) || defined(DPMODULE_CRC32C_ARM)

// The instruction has a latency of three cycles but can issue every cycle, so three pieces of the data are summed in
// parallel. Extending a checksum over the following pieces multiplies it by a power of x: four table lookups.
class Shift {
  public:
    explicit Shift(std::size_t zeros) {
        std::array<std::uint32_t, 32> of_bit{};
        for (int bit = 0; bit < 32; ++bit) {
            std::uint32_t crc = std::uint32_t{1} << bit;
            for (std::size_t i = 0; i < zeros; ++i) crc = (crc >> 8) ^ slices[0][crc & 255];
            of_bit[bit] = crc;
        }
        for (int k = 0; k < 4; ++k) {
            for (std::uint32_t byte = 0; byte < 256; ++byte) {
                std::uint32_t crc = 0;
                for (int bit = 0; bit < 8; ++bit) crc ^= byte >> bit & 1 ? of_bit[8 * k + bit] : 0;
                table_[k][byte] = crc;
            }
        }
    }
    std::uint32_t operator()(std::uint32_t crc) const noexcept {
        return table_[0][crc & 255] ^ table_[1][crc >> 8 & 255] ^ table_[2][crc >> 16 & 255] ^ table_[3][crc >> 24];
    }

  private:
    std::array<std::array<std::uint32_t, 256>, 4> table_{};
};

constexpr std::size_t long_piece = 4096, short_piece = 256;

#if defined(DPMODULE_CRC32C_SSE)
#define DPMODULE_CRC32C_TARGET __attribute__((target("sse4.2")))
DPMODULE_CRC32C_TARGET inline std::uint64_t word_step(std::uint64_t crc, std::uint64_t word) noexcept {
    return _mm_crc32_u64(crc, word);
}
DPMODULE_CRC32C_TARGET inline std::uint64_t byte_step(std::uint64_t crc, unsigned char byte) noexcept {
    return _mm_crc32_u8(static_cast<std::uint32_t>(crc), byte);
}
bool has_instruction() noexcept { return __builtin_cpu_supports("sse4.2"); }
#else
#define DPMODULE_CRC32C_TARGET __attribute__((target("+crc")))
DPMODULE_CRC32C_TARGET inline std::uint64_t word_step(std::uint64_t crc, std::uint64_t word) noexcept {
    return __crc32cd(static_cast<std::uint32_t>(crc), word);
}
DPMODULE_CRC32C_TARGET inline std::uint64_t byte_step(std::uint64_t crc, unsigned char byte) noexcept {
    return __crc32cb(static_cast<std::uint32_t>(crc), byte);
}
bool has_instruction() noexcept {
#if defined(__linux__)
    return getauxval(AT_HWCAP) & (1UL << 7);  // HWCAP_CRC32
#else
    return true;  // all 64-bit ARM processors of Apple have it
#endif
}
#endif

// Process all complete triples of pieces.
DPMODULE_CRC32C_TARGET
std::uint64_t triples(std::uint64_t crc, const unsigned char *&data, std::size_t &size, std::size_t piece,
                      const Shift &shift) noexcept {
    for (; size >= 3 * piece; data += 3 * piece, size -= 3 * piece) {
        std::uint64_t second = 0, third = 0;
        for (std::size_t i = 0; i < piece; i += 8) {
            crc = word_step(crc, load(data + i));
            second = word_step(second, load(data + piece + i));
            third = word_step(third, load(data + 2 * piece + i));
        }
        crc = shift(static_cast<std::uint32_t>(crc)) ^ second;
        crc = shift(static_cast<std::uint32_t>(crc)) ^ third;
    }
    return crc;
}

DPMODULE_CRC32C_TARGET
std::uint32_t by_instruction(std::uint32_t value, const unsigned char *data, std::size_t size) noexcept {
    static const Shift over_long(long_piece), over_short(short_piece);
    std::uint64_t crc = triples(value, data, size, long_piece, over_long);
    crc = triples(crc, data, size, short_piece, over_short);
    for (; size >= 8; data += 8, size -= 8) crc = word_step(crc, load(data));
    for (; size > 0; ++data, --size) crc = byte_step(crc, *data);
    return static_cast<std::uint32_t>(crc);
}

#endif

// Continue a checksum over more bytes, starting from 0. Uses tables, on any processor.
std::uint32_t crc32c_by_table(std::uint32_t value, const unsigned char *data, std::size_t size) {
    return ~by_table(~value, data, size);
}

// Like crc32c_by_table, but uses the processor's instruction if it has one.
std::uint32_t crc32c(std::uint32_t value, const unsigned char *data, std::size_t size) {
#if defined(DPMODULE_CRC32C_SSE) || defined(DPMODULE_CRC32C_ARM)
    static const bool fast = has_instruction();
    if (fast) return ~by_instruction(~value, data, size);
#endif
    return crc32c_by_table(value, data, size);
}

// Return the method that `crc32c` uses on this machine.
const char *crc32c_kind() {
#if defined(DPMODULE_CRC32C_SSE)
    return has_instruction() ? "sse4.2" : "table";
#elif defined(DPMODULE_CRC32C_ARM)
    return has_instruction() ? "arm" : "table";
#else
    return "table";
#endif
}

PyObject *make_crc32c(PyObject *, PyObject *args) {
    PyObject *data;
    unsigned value;
    int by_table = 0;
    Bytes input;
    if (!PyArg_ParseTuple(args, "OI|p", &data, &value, &by_table) || !bytes_of_any(data, input)) return nullptr;
    return ready_from([=] { return (by_table ? crc32c_by_table : crc32c)(value, input.begin(), input.size); },
                      PyLong_FromUnsignedLong);
}

PyObject *kind(PyObject *, PyObject *) { return PyUnicode_FromString(crc32c_kind()); }

PyMethodDef checksum_functions[] = {
    {"crc32c", guard<make_crc32c>, METH_VARARGS, "crc32c(data, value, by_table=False): a functor."},
    {"crc32c_kind", kind, METH_NOARGS, "Return the method used on this machine: sse4.2, arm or table."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

int add_checksum(PyObject *module) { return PyModule_AddFunctions(module, checksum_functions); }

}  // namespace dpmodule
