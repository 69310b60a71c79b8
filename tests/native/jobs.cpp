// Functors for tests: they wait, fail in every way there is, and count themselves.
#include <dpmodule/functor.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

#include <pthread.h>

namespace {

std::atomic<int> living{0}, running{0}, destroyed_without_gil{0}, run_with_gil{0};
std::mutex gate_mutex;
std::condition_variable gate;
bool gate_open = false;

class Counted : public dpmodule::Functor {
  public:
    Counted() { ++living; }
    ~Counted() override {
        if (!PyGILState_Check()) ++destroyed_without_gil;
        --living;
    }
    void operator()() override {
        if (PyGILState_Check()) ++run_with_gil;
        ++running;
        struct Leave {
            ~Leave() { --running; }
        } leave;
        work();
    }
    virtual void work() {}
};

class Sleep : public Counted {
  public:
    explicit Sleep(double seconds) : seconds_(seconds) {}
    void work() override { std::this_thread::sleep_for(std::chrono::duration<double>(seconds_)); }

  private:
    double seconds_;
};

class Wait : public Counted {
    void work() override {
        std::unique_lock<std::mutex> lock(gate_mutex);
        gate.wait(lock, [] { return gate_open; });
    }
};

class Fail : public Counted {
  public:
    Fail(int kind, std::string text) : kind_(kind), text_(std::move(text)) {}
    void work() override {
        if (kind_ == -1) throw std::runtime_error(text_);
        if (kind_ == -2) throw std::bad_alloc();
        if (kind_ == -3) throw 42;
        throw dpmodule::Error(static_cast<dpmodule::Kind>(kind_), text_);
    }

  private:
    int kind_;
    std::string text_;
};

class Value : public Counted {
  public:
    explicit Value(PyObject *object) : object_(dpmodule::keep(object)) {}
    PyObject *result() override {
        if (PyCallable_Check(object_.get())) return PyObject_CallNoArgs(object_.get());
        return Py_NewRef(object_.get());
    }

  private:
    std::shared_ptr<PyObject> object_;
};

class NoResult : public Counted {
    PyObject *result() override { return nullptr; }
};

class ThrowingResult : public Counted {
    PyObject *result() override { throw dpmodule::Error(dpmodule::Kind::argument, "thrown by result"); }
};

class Name : public Counted {
    void work() override { pthread_getname_np(pthread_self(), name_, sizeof name_); }
    PyObject *result() override { return PyUnicode_FromString(name_); }
    char name_[64] = "";
};

template <typename Job>
PyObject *make(PyObject *, PyObject *) {
    return dpmodule::make_capsule(std::make_shared<Job>());
}

PyObject *sleep(PyObject *, PyObject *seconds) {
    double value = PyFloat_AsDouble(seconds);
    return PyErr_Occurred() ? nullptr : dpmodule::make_capsule(std::make_shared<Sleep>(value));
}

PyObject *fail(PyObject *, PyObject *arguments) {
    int kind;
    const char *text;
    if (!PyArg_ParseTuple(arguments, "iy", &kind, &text)) return nullptr;
    return dpmodule::make_capsule(std::make_shared<Fail>(kind, text));
}

PyObject *value(PyObject *, PyObject *object) { return dpmodule::make_capsule(std::make_shared<Value>(object)); }

PyObject *set_gate(PyObject *, PyObject *open) {
    {
        std::lock_guard<std::mutex> lock(gate_mutex);
        gate_open = PyObject_IsTrue(open);
    }
    gate.notify_all();
    Py_RETURN_NONE;
}

PyObject *counts(PyObject *, PyObject *) {
    return Py_BuildValue("{sisisisi}", "living", living.load(), "running", running.load(), "destroyed_without_gil",
                         destroyed_without_gil.load(), "run_with_gil", run_with_gil.load());
}

PyObject *sum(PyObject *, PyObject *object) {
    dpmodule::Bytes bytes;
    if (!dpmodule::bytes_from(object, bytes)) return nullptr;
    unsigned long long total = 0;
    for (unsigned char byte : bytes) total += byte;
    return PyLong_FromUnsignedLongLong(total);
}

PyObject *bytes_capsule(PyObject *, PyObject *object) {
    dpmodule::Bytes bytes;
    if (!dpmodule::bytes_from(object, bytes)) return nullptr;
    return dpmodule::make_capsule(bytes.slice(1, bytes.size - 1));
}

PyMethodDef methods[] = {
    {"noop", make<Counted>, METH_NOARGS, ""},
    {"sleep", sleep, METH_O, ""},
    {"wait", make<Wait>, METH_NOARGS, ""},
    {"fail", fail, METH_VARARGS, ""},
    {"value", value, METH_O, ""},
    {"no_result", make<NoResult>, METH_NOARGS, ""},
    {"throwing_result", make<ThrowingResult>, METH_NOARGS, ""},
    {"thread_name", make<Name>, METH_NOARGS, ""},
    {"set_gate", set_gate, METH_O, ""},
    {"counts", counts, METH_NOARGS, ""},
    {"sum", sum, METH_O, ""},
    {"bytes_capsule", bytes_capsule, METH_O, ""},
    {nullptr, nullptr, 0, nullptr},
};

PyModuleDef definition = {PyModuleDef_HEAD_INIT, "dpm_test_jobs", "", -1, methods, nullptr, nullptr, nullptr, nullptr};

}  // namespace

PyMODINIT_FUNC PyInit_dpm_test_jobs() { return PyModule_Create(&definition); }
