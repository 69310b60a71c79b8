// `multiply`, `pack` and `dense` for Python, and `vector_width`, the numbers they compute with at once. Compilers without
// vector types get none of them.
#include "addresses.hpp"
#include "product.hpp"

#if defined(__GNUC__)

#include <algorithm>

namespace dpmodule {
namespace {

Matrix matrix(Arguments &next) {
    Matrix found{};
    found.at = next.floats();
    found.row_gap = next.size();
    found.column_gap = next.size();
    return found;
}

PyObject *multiply_tensors(PyObject *, PyObject *const *given, Py_ssize_t count) {
    Arguments next(given, count, 12);
    Product product{};
    product.rows = next.size();
    product.columns = next.size();
    product.depth = next.size();
    product.left = matrix(next);
    product.right = matrix(next);
    product.bias = next.floats();
    product.result = next.floats();
    product.threads = static_cast<int>(next.size());
    return next.good() ? without_gil(multiply, product) : nullptr;
}

PyObject *size_of_pack(PyObject *, PyObject *const *given, Py_ssize_t count) {
    Arguments next(given, count, 2);
    const Py_ssize_t columns = next.size(), depth = next.size();
    return next.good() ? PyLong_FromSsize_t(packed_size(columns, depth)) : nullptr;
}

PyObject *pack_tensor(PyObject *, PyObject *const *given, Py_ssize_t count) {
    Arguments next(given, count, 6);
    const Py_ssize_t columns = next.size(), depth = next.size();
    const Matrix right = matrix(next);
    float *to = next.floats();
    if (!next.good()) return nullptr;
    pack(right, columns, depth, to);
    Py_RETURN_NONE;
}

constexpr Py_ssize_t kMostLayers = 16, kOfLayer = 5, kOfAll = 4;

PyObject *run_dense(PyObject *, PyObject *const *given, Py_ssize_t count) {
    const Py_ssize_t layers = std::min(kMostLayers, std::max<Py_ssize_t>(1, (count - kOfAll) / kOfLayer));
    Arguments next(given, count, kOfAll + kOfLayer * layers);
    DenseLayer each[kMostLayers];
    Dense run{};
    run.rows = next.size();
    run.data = next.floats();
    run.result = next.floats();
    run.threads = static_cast<int>(next.size());
    run.layers = each;
    for (; run.count < layers; ++run.count) {
        DenseLayer &layer = each[run.count];
        layer.units = next.size();
        layer.features = next.size();
        layer.packed = next.floats();
        layer.bias = next.floats();
        layer.rectified = next.size() != 0;
    }
    return next.good() ? without_gil(dense, run) : nullptr;
}

// Python keeps a pointer to this table
PyMethodDef product_functions[] = {
    {"multiply", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(multiply_tensors)), METH_FASTCALL,
     "multiply(rows, columns, depth, left, row_gap, column_gap, right, row_gap, column_gap, bias, result, "
     "threads)\n--\n\n"
     "Multiply two matrices; arguments are sizes, strides and addresses, see product.hpp."},
    {"packed_size", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(size_of_pack)), METH_FASTCALL,
     "packed_size(columns, depth)\n--\n\nReturn how many numbers `pack` writes."},
    {"pack", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(pack_tensor)), METH_FASTCALL,
     "pack(columns, depth, right, row_gap, column_gap, packed)\n--\n\n"
     "Lay out a right matrix for `dense`; see product.hpp."},
    {"dense", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(run_dense)), METH_FASTCALL,
     "dense(rows, data, result, threads, units, features, packed, bias, rectified, ...)\n--\n\n"
     "Run dense layers, five arguments each and 16 at most; see product.hpp."},
    {nullptr, nullptr, 0, nullptr}};

}  // namespace

int add_product(PyObject *module) {
    if (PyModule_AddIntConstant(module, "vector_width", vector_width()) < 0) return -1;
    return PyModule_AddFunctions(module, product_functions);
}

}  // namespace dpmodule

#else

int dpmodule::add_product(PyObject *) { return 0; }

#endif
