// Objects of torch and of Python that the recorder needs.
#pragma once

#include "../python.hpp"

namespace dpmodule::recording {

struct Setup {
    PyTypeObject *tensor = nullptr, *parameter = nullptr;
    PyTypeObject *value = nullptr;   // the class of values, a subclass of torch.Tensor
    PyObject *make_value = nullptr;  // torch.Tensor._make_subclass
    PyObject *stand_in = nullptr;    // makes a tensor without memory of a shape and a dtype
    PyObject *strided = nullptr;     // torch.strided
    PyObject *is_wrapped = nullptr;  // True for tensors inside torch.func
    PyObject *is_grad_enabled = nullptr, *is_autocast_enabled = nullptr;
    PyObject *autocast_state = nullptr;   // a hashable object
    PyObject *constant_types = nullptr;   // of torch's objects that never change, tensors aside
    PyObject *default_dtype = nullptr;    // torch.get_default_dtype
    PyObject *classify = nullptr;         // how a function is treated
    PyObject *outside = nullptr;          // a call with values of another or a former recording
    PyObject *count_modes = nullptr;      // torch._C._len_torch_function_stack
    PyObject *disabled = nullptr;         // torch._C.DisableTorchFunction
    PyObject *dtypes = nullptr;           // of numbers: see Spec::number
    PyObject *comparisons = nullptr;      // Python's number of a comparison (Py_LT, ...) by function
    PyObject *answers = nullptr;          // the tensors False and True
    PyObject *module = nullptr;           // torch.nn.Module
    PyObject *state_of_module = nullptr;  // dicts and lists with the state of a module that may be a cell, or None
    PyObject *store_of_module = nullptr;  // the CellStore of a module
    PyObject *not_a_cell = nullptr;       // an exception
};

extern Setup setup;

// Number of a description of tensors; -1 with an exception.
int spec_number(PyObject *shape, PyObject *dtype, PyObject *device, bool needs_grad);

int spec_of_tensor(PyObject *tensor);

}  // namespace dpmodule::recording
