// AUTOBATCH_NUMBERS of the module: what Python calls the engine's operations and kernels, and their numbers.
#include "python.hpp"
#include "signature.hpp"

namespace dpmodule::autobatch {
namespace {

// False: Python has raised.
template <std::size_t count>
bool add_numbers(PyObject *all, const char *what, const char *const (&names)[count]) {
    PyObject *found = PyDict_New();
    bool fits = found;
    for (std::size_t i = 0; fits && i < count; i++) {
        PyObject *number = PyLong_FromSize_t(i);
        fits = number && PyDict_SetItemString(found, names[i], number) == 0;
        Py_XDECREF(number);
    }
    fits = fits && PyDict_SetItemString(all, what, found) == 0;
    Py_XDECREF(found);
    return fits;
}

}  // namespace
}  // namespace dpmodule::autobatch

namespace dpmodule {

int add_autobatch_numbers(PyObject *module) {
    using namespace autobatch;
    PyObject *all = PyDict_New();
    const bool fits = all && add_numbers(all, "operation", names_of_Op) && add_numbers(all, "unary", names_of_Unary) &&
                      add_numbers(all, "binary", names_of_Binary) &&
                      add_numbers(all, "reduction", names_of_Reduction) &&
                      add_numbers(all, "arrangement", names_of_Arrangement) &&
                      add_numbers(all, "draw", names_of_Draw) && add_numbers(all, "convolution", names_of_Convolution);
    const int done = fits ? PyModule_AddObjectRef(module, "AUTOBATCH_NUMBERS", all) : -1;
    Py_XDECREF(all);
    return done;
}

}  // namespace dpmodule
