// Random bits of one worker: splitmix64, whose numbers depend on seed and worker only.
#pragma once

#include <cstdint>

namespace dpmodule::hogwild {

class Random {
  public:
    Random(std::uint64_t seed, std::uint64_t worker) noexcept
        : state_(mix(seed) ^ mix(worker + 0x51ed2701a3c5e96bull)) {}

    std::uint64_t next() noexcept { return mix(state_ += step); }

  private:
    static constexpr std::uint64_t step = 0x9e3779b97f4a7c15ull;

    static std::uint64_t mix(std::uint64_t x) noexcept {
        x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
        x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
        return x ^ (x >> 31);
    }

    std::uint64_t state_;
};

}  // namespace dpmodule::hogwild
