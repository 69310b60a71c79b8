// Plans as Python gives them: see NativePlan in hogwild/native_engine.py.
#pragma once

#include "python.hpp"
#include "run.hpp"

namespace dpmodule::hogwild {

// Each reads a tuple or list; false with Python's error set.
bool read_plan(PyObject *given, Plan &plan);
bool read_parts(PyObject *given, std::vector<Part> &parts);

}  // namespace dpmodule::hogwild
