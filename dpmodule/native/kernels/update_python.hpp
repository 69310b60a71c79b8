// Reading update rules from Python.
#pragma once

#include "python.hpp"
#include "update.hpp"

namespace dpmodule::vector {

// Reads a dict: "kind" is a name in `kind_names` of python.cpp, the other keys are fields of UpdateRule. Returns false
// with a Python error set.
bool read_rule(PyObject *given, UpdateRule *rule);

}  // namespace dpmodule::vector
