// `convolve` for Python, some convolutions one after the other, and `convolution_block`, how many filters lie together in
// a weight; for x86 alone.
#include "addresses.hpp"
#include "convolution.hpp"

#if defined(__GNUC__) && defined(__x86_64__)

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <new>

namespace dpmodule {
namespace {

// A convolution as Python describes it: `sizes` are those of `Convolution`, in its order.
struct Row {
    std::int64_t sizes[3], y[6], x[6], block, relu;
    std::int64_t data, weight, bias, other, result;  // places among the addresses
};

Axis axis(const std::int64_t (&sizes)[6]) { return {sizes[0], sizes[1], sizes[2], sizes[3], sizes[4], sizes[5]}; }

class Steps {
  public:
    // False sets Python's error.
    bool read(PyObject *rows, PyObject *threads, PyObject *const *addresses, Py_ssize_t count) {
        threads_ = static_cast<int>(std::max(1L, PyLong_AsLong(threads)));
        if (PyErr_Occurred()) return false;
        char *bytes;
        Py_ssize_t size;
        if (PyBytes_AsStringAndSize(rows, &bytes, &size) < 0) return false;
        if (size % sizeof(Row)) {
            PyErr_Format(PyExc_ValueError, "rows has %zd bytes, expected %zu for each convolution", size, sizeof(Row));
            return false;
        }
        Arguments next(addresses, count, count);
        for (Py_ssize_t at = 0; at < count; ++at) addresses_.push_back(next.floats());
        for (Py_ssize_t at = 0; next.good() && at < size; at += sizeof(Row)) {
            Row row;
            std::memcpy(&row, bytes + at, sizeof row);
            if (!add(row)) return false;
        }
        return next.good();
    }

    static bool run(const Steps &steps) { return convolve(steps.convolutions_, steps.threads_); }

  private:
    bool add(const Row &r) {
        for (const std::int64_t place : {r.data, r.weight, r.bias, r.other, r.result}) {
            if (place < 0 || place >= static_cast<std::int64_t>(addresses_.size())) {
                PyErr_Format(PyExc_IndexError, "a place is %lld, expected one among %zu addresses",
                             static_cast<long long>(place), addresses_.size());
                return false;
            }
        }
        const auto at = [this](std::int64_t place) { return addresses_[static_cast<std::size_t>(place)]; };
        convolutions_.push_back({r.sizes[0], r.sizes[1], r.sizes[2], axis(r.y), axis(r.x), r.block, at(r.data),
                                 at(r.weight), at(r.bias), at(r.other), at(r.result), r.relu});
        return true;
    }

    int threads_;
    std::vector<float *> addresses_;
    std::vector<Convolution> convolutions_;
};

PyObject *convolve_tensors(PyObject *, PyObject *const *given, Py_ssize_t count) {
    if (count < 2) {
        PyErr_Format(PyExc_TypeError, "expected rows, threads and addresses, got %zd arguments", count);
        return nullptr;
    }
    try {
        Steps steps;
        return steps.read(given[0], given[1], given + 2, count - 2) ? without_gil(Steps::run, steps) : nullptr;
    } catch (const std::bad_alloc &) {
        return PyErr_NoMemory();
    }
}

PyObject *block_of(PyObject *, PyObject *given) {
    const Py_ssize_t filters = PyLong_AsSsize_t(given);
    return filters == -1 && PyErr_Occurred() ? nullptr : PyLong_FromSsize_t(convolution_block(filters));
}

// Python keeps a pointer to this table
PyMethodDef convolution_functions[] = {
    {"convolve", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(convolve_tensors)), METH_FASTCALL,
     "convolve(rows, threads, *addresses)\n--\n\n"
     "Convolve images, once for each 22 numbers of 64 bits in `rows`: images, channels, filters; size, result, kernel, "
     "stride, dilate and pad of height and of width; block, relu; and which of the addresses are those of data, "
     "weight, bias, other and result, see convolution.hpp. As many of torch's threads share the work."},
    {"convolution_block", block_of, METH_O,
     "convolution_block(filters)\n--\n\n"
     "Return how many filters lie together in the weight that `convolve` reads; 0: the processor is not for it."},
    {nullptr, nullptr, 0, nullptr}};

}  // namespace

int add_convolution(PyObject *module) { return PyModule_AddFunctions(module, convolution_functions); }

}  // namespace dpmodule

#else

int dpmodule::add_convolution(PyObject *) { return 0; }

#endif
