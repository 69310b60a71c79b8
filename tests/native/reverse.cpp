// A functor of a user: takes bytes of any kind and gives their reverse as a StringHandle.
#include <algorithm>
#include <string>

#include <dpmodule/functor.h>

namespace {

class Reverse : public dpmodule::Functor {
  public:
    explicit Reverse(dpmodule::Bytes bytes) : bytes_(std::move(bytes)) {}
    void operator()() override {
        std::string text(bytes_.text());
        std::reverse(text.begin(), text.end());
        reversed_ = dpmodule::bytes_of(std::move(text));
    }
    PyObject *result() override { return dpmodule::handle_of(reversed_); }

  private:
    dpmodule::Bytes bytes_, reversed_;
};

PyObject *reverse(PyObject *, PyObject *argument) {
    dpmodule::Bytes bytes;
    if (!dpmodule::bytes_from(argument, bytes)) return nullptr;
    return dpmodule::make_capsule(std::make_shared<Reverse>(std::move(bytes)));
}

// The same bytes as a capsule, and their address.
PyObject *echo(PyObject *, PyObject *argument) {
    dpmodule::Bytes bytes;
    if (!dpmodule::bytes_from(argument, bytes)) return nullptr;
    PyObject *address = PyLong_FromVoidPtr(const_cast<std::byte *>(bytes.data));
    return Py_BuildValue("NN", dpmodule::make_capsule(std::move(bytes)), address);
}

PyMethodDef functions[] = {
    {"reverse", reverse, METH_O, "A functor."},
    {"echo", echo, METH_O, "(capsule, address)"},
    {nullptr, nullptr, 0, nullptr},
};
PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "dpm_test_reverse", nullptr, -1, functions, nullptr, nullptr, nullptr, nullptr};

}  // namespace

PyMODINIT_FUNC PyInit_dpm_test_reverse() { return PyModule_Create(&definition); }
