// `multiply_few_rows` for Python. Compilers without vector types get none.
#include "addresses.hpp"
#include "few_rows.hpp"

#if defined(__GNUC__)

namespace dpmodule {
namespace {

PyObject *few_rows_tensors(PyObject *, PyObject *const *given, Py_ssize_t count) {
    Arguments next(given, count, 10);
    FewRows run{};
    run.rows = next.size();
    run.units = next.size();
    run.features = next.size();
    run.data = next.floats();
    run.data_gap = next.size();
    run.weight = next.floats();
    run.weight_gap = next.size();
    run.bias = next.floats();
    run.result = next.floats();
    run.threads = static_cast<int>(next.size());
    return next.good() ? without_gil(multiply_few_rows, run) : nullptr;
}

// Python keeps a pointer to this table
PyMethodDef few_rows_functions[] = {
    {"multiply_few_rows", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(few_rows_tensors)), METH_FASTCALL,
     "multiply_few_rows(rows, units, features, data, data_gap, weight, weight_gap, bias, result, threads)\n--\n\n"
     "Multiply one row to four with a dense layer's weight; arguments are sizes and addresses, see few_rows.hpp."},
    {nullptr, nullptr, 0, nullptr}};

}  // namespace

int add_few_rows(PyObject *module) { return PyModule_AddFunctions(module, few_rows_functions); }

}  // namespace dpmodule

#else

int dpmodule::add_few_rows(PyObject *) { return 0; }

#endif
