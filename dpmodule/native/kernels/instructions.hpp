// Which code this CPU runs best; whoever compiles it for several instruction sets asks here which to call.
#pragma once

namespace dpmodule::vector {

enum class Instructions { Plain, Avx2, Avx512 };

// The best of this CPU. `DPMODULE_ISA=plain|avx2|avx512` asks for less, for tests and measurements.
Instructions best_instructions();

}  // namespace dpmodule::vector
