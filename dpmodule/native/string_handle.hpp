// dpmodule.streams.StringHandle: bytes shared between Python and C++ without copies.
#pragma once

#include <dpmodule/functor.h>

namespace dpmodule {

// Make a Python StringHandle over bytes: a new reference, or nullptr with an exception set. Needs the GIL.
PyObject *make_handle(Bytes bytes) noexcept;

// Make bytes over anything StringHandle takes, tensors included; false with an exception set. Needs the GIL.
bool bytes_of_any(PyObject *object, Bytes &out) noexcept;

}  // namespace dpmodule
