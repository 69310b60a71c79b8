// The module `dpmodule._native`: collects what the other files define.
#include "python.hpp"

namespace {

PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "dpmodule._native", "The native side of dpmodule; use dpmodule.native.", -1,
    nullptr, nullptr, nullptr, nullptr, nullptr};

using Add = int (*)(PyObject *);
constexpr Add parts[] = {
    nullptr,
};

}  // namespace

PyMODINIT_FUNC PyInit__native() {
    PyObject *module = PyModule_Create(&definition);
    if (!module) return nullptr;
    for (Add add : parts) {
        if (add && add(module) < 0) {
            Py_DECREF(module);
            return nullptr;
        }
    }
    return module;
}
