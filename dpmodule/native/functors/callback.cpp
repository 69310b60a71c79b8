// A functor that calls Python, for work whose library was not found: slower, and it takes the GIL, but the same names work.
#include "errors.hpp"
#include "python.hpp"
#include "ready.hpp"

namespace dpmodule {
namespace {

class Callback final : public Functor {
  public:
    explicit Callback(PyObject *function) : function_(keep(function)) {}

    void operator()() override {
        if (finalizing()) throw Error(Kind::state, "Python is ending");
        PyGILState_STATE state = PyGILState_Ensure();
        PyObject *result = PyObject_CallNoArgs(function_.get());
        PyObject *type = nullptr, *error = nullptr, *traceback = nullptr;
        if (!result) {
            PyErr_Fetch(&type, &error, &traceback);
            PyErr_NormalizeException(&type, &error, &traceback);
        }
        Py_XDECREF(type);
        Py_XDECREF(traceback);
        Py_XSETREF(result_, result);
        Py_XSETREF(error_, error);
        PyGILState_Release(state);
    }

    PyObject *result() override {
        if (result_) return Py_NewRef(result_);
        if (error_) PyErr_SetObject(reinterpret_cast<PyObject *>(Py_TYPE(error_)), error_);
        return nullptr;
    }

    ~Callback() override {
        Py_XDECREF(result_);
        Py_XDECREF(error_);
    }

  private:
    const std::shared_ptr<PyObject> function_;
    PyObject *result_ = nullptr, *error_ = nullptr;  // read and written with the GIL
};

PyObject *make_callback(PyObject *, PyObject *function) {
    return ready_from([=] { return std::make_shared<Callback>(function); });
}

PyMethodDef callback_functions[] = {
    {"callback", make_callback, METH_O, "callback(function): a functor that calls a function of Python."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

int add_callback(PyObject *module) { return PyModule_AddFunctions(module, callback_functions); }

}  // namespace dpmodule
