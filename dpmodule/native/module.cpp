// The module `dpmodule._native`, with the types and functions of the other files.
#include "python.hpp"

#include <cstring>

namespace {

PyModuleDef definition = {PyModuleDef_HEAD_INIT,
                          "dpmodule._native",
                          "C++ implementation of dpmodule.native.",
                          -1,
                          nullptr,
                          nullptr,
                          nullptr,
                          nullptr,
                          nullptr};

int add_all(PyObject *module) {
#define ADD(part) \
    if (dpmodule::add_##part(module) < 0) return -1;
    DPMODULE_PARTS(ADD)
#undef ADD
    return PyModule_AddStringConstant(module, "fingerprint", DPMODULE_FINGERPRINT);
}

}  // namespace

PyTypeObject *dpmodule::add_type(PyObject *module, PyType_Spec &spec, PyTypeObject *base) {
    PyObject *type = PyType_FromSpecWithBases(&spec, reinterpret_cast<PyObject *>(base));
    if (!type || PyModule_AddObjectRef(module, std::strrchr(spec.name, '.') + 1, type) < 0) return nullptr;
    return reinterpret_cast<PyTypeObject *>(type);
}

PyMODINIT_FUNC PyInit__native() {
    PyObject *module = PyModule_Create(&definition);
    if (module && add_all(module) < 0) Py_CLEAR(module);
    return module;
}
