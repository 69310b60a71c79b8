// The builder of the current engine.
#pragma once

#include "builder.hpp"
#include "python_state.hpp"

namespace dpmodule::autobatch {

extern Builder *builder_of_current;
inline Builder &current_builder() { return *builder_of_current; }

}  // namespace dpmodule::autobatch
