// The choice among code compiled for several instruction sets.
#pragma once

namespace dpmodule::vector {

enum class Instructions { Plain, Avx2, Avx512 };

// The best instruction set of this CPU. `DPMODULE_ISA=plain|avx2|avx512` selects a lower one, for tests and
// measurements.
Instructions best_instructions();

}  // namespace dpmodule::vector
