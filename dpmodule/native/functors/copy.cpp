// The functor that copies memory.
#include <cstring>

#include "python.hpp"
#include "ready.hpp"

namespace dpmodule {
namespace {

// dpmodule.native.functors.copy has checked the ranges; it knows the objects they belong to.
class Copy final : public Ready<std::size_t> {
  public:
    Copy(unsigned char *target, const unsigned char *source, std::size_t size, PyObject *owners)
        : target_(target), source_(source), size_(size), owners_(keep(owners)) {}

  private:
    std::size_t work() const override {
        if (size_ > 0) std::memmove(target_, source_, size_);  // source and target may be parts of one buffer
        return size_;
    }
    PyObject *to_python(const std::size_t &made) const override { return PyLong_FromSize_t(made); }

    unsigned char *const target_;
    const unsigned char *const source_;
    const std::size_t size_;
    const std::shared_ptr<PyObject> owners_;
};

PyObject *make_copy(PyObject *, PyObject *args) {
    unsigned long long target, source;
    Py_ssize_t size;
    PyObject *owners;
    if (!PyArg_ParseTuple(args, "KKnO", &target, &source, &size, &owners)) return nullptr;
    return ready_from([&] {
        return std::make_shared<Copy>(reinterpret_cast<unsigned char *>(static_cast<std::uintptr_t>(target)),
                                      reinterpret_cast<const unsigned char *>(static_cast<std::uintptr_t>(source)),
                                      static_cast<std::size_t>(size), owners);
    });
}

PyMethodDef copy_functions[] = {
    {"copy", make_copy, METH_VARARGS, "copy(target, source, size, owners): a functor; both are addresses."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

int add_copy(PyObject *module) { return PyModule_AddFunctions(module, copy_functions); }

}  // namespace dpmodule
