// `multiply` for Python, and `vector_width`, the numbers it computes with at once. Compilers without vector types get
// neither.
#include "addresses.hpp"
#include "product.hpp"

#if defined(__GNUC__)

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
    Arguments next(given, count, 11);
    Product product{};
    product.rows = next.size();
    product.columns = next.size();
    product.depth = next.size();
    product.left = matrix(next);
    product.right = matrix(next);
    product.bias = next.floats();
    product.result = next.floats();
    return next.good() ? without_gil(multiply, product) : nullptr;
}

// Python keeps a pointer to this table
PyMethodDef product_functions[] = {
    {"multiply", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(multiply_tensors)), METH_FASTCALL,
     "multiply(rows, columns, depth, left, row_gap, column_gap, right, row_gap, column_gap, bias, result)\n--\n\n"
     "Multiply two matrices; arguments are sizes, strides and addresses, see product.hpp."},
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
