#include "pipe/core.hpp"

#include "errors.hpp"

namespace dpmodule::pipe {

PyObject *raise_current() { return set_current_exception(); }

}  // namespace dpmodule::pipe
