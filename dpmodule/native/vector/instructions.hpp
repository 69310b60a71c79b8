// Which lanes_*.hpp this CPU runs best; whoever compiles code for several of them asks here which to call.
#pragma once

namespace dpmodule::vector {

enum class Instructions { Plain, Avx2, Avx512 };

// The best for this CPU that the compiler knew. `DPMODULE_ISA=plain|avx2|avx512` asks for less, for tests and measurements.
Instructions instructions();

}  // namespace dpmodule::vector
