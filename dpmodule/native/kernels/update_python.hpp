// Rules as Python gives them.
#pragma once

#include "python.hpp"
#include "update.hpp"

namespace dpmodule::vector {

// Reads a dict: "kind" is a name in `kind_names` of python.cpp, the other keys are fields of UpdateRule. False with
// Python's error set.
bool read_rule(PyObject *given, UpdateRule *rule);

}  // namespace dpmodule::vector
