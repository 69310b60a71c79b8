// The arguments of a call, as a key and operands.
#pragma once

#include <vector>

#include "recording.hpp"
#include "setup.hpp"

namespace dpmodule::recording {

enum Tag : std::int64_t {
    value_tag,
    parameter_tag,
    integer_tag,
    real_tag,
    object_tag,
    sequence_tag,
    slice_tag,
    keyword_tag
};

// Number of an object in a dict of numbers; -1 with an exception.
inline int number_in(PyObject *numbers, PyObject *object) {
    if (PyObject *found = PyDict_GetItemWithError(numbers, object)) return static_cast<int>(PyLong_AsLong(found));
    if (PyErr_Occurred()) return -1;
    const Py_ssize_t count = PyDict_Size(numbers);
    const Reference number(PyLong_FromSsize_t(count));
    return number && PyDict_SetItem(numbers, object, number.get()) == 0 ? static_cast<int>(count) : -1;
}

class Arguments {
  public:
    // With `only_constants`, nothing but tensors, numbers, texts, types and such objects of torch as dtypes.
    explicit Arguments(RecorderObject *self, bool only_constants = false)
        : self_(self), only_constants_(only_constants) {
        key.reserve(24);
    }

    // The grad mode and the automatic casts of now.
    bool add_modes() {
        const Reference grad(PyObject_CallNoArgs(setup.is_grad_enabled)),
            cast(PyObject_CallNoArgs(setup.is_autocast_enabled));
        if (!grad || !cast) return false;
        has_grad = grad.get() == Py_True;
        const bool has_casts = cast.get() == Py_True;
        key.push_back(has_grad + 2 * has_casts);
        if (!has_casts) return true;
        const Reference state(PyObject_CallNoArgs(setup.autocast_state));
        return state && add(state.get());
    }

    bool add_all(PyObject *const *args, std::size_t count, PyObject *keywords) {
        for (std::size_t i = 0; i < count; ++i) {
            if (!add(args[i])) return false;
        }
        PyObject *name, *item;
        for (Py_ssize_t at = 0; keywords && PyDict_Next(keywords, &at, &name, &item);) {
            if (!add_keyword(name, item)) return false;
        }
        return true;
    }

    // False, perhaps with an exception, if an argument can be neither a part of a key nor an operand.
    bool add(PyObject *item) {
        if (Py_TYPE(item) == setup.value) return add_value(item);
        if (PyLong_CheckExact(item)) {
            int overflow;
            const long long number = PyLong_AsLongLongAndOverflow(item, &overflow);
            if (overflow) return false;
            return push(integer_tag, number);
        }
        if (item == Py_None || PyBool_Check(item) || item == Py_Ellipsis || PyType_Check(item))
            return push_pointer(item);
        if (PyFloat_CheckExact(item)) {
            const double number = PyFloat_AS_DOUBLE(item);
            std::int64_t bits;
            static_assert(sizeof bits == sizeof number);
            __builtin_memcpy(&bits, &number, sizeof bits);
            return push(real_tag, bits);
        }
        if (PyTuple_Check(item) || PyList_Check(item)) {
            const Py_ssize_t count = PySequence_Fast_GET_SIZE(item);
            push(sequence_tag, count);
            if (!push_pointer(reinterpret_cast<PyObject *>(Py_TYPE(item)))) return false;
            for (Py_ssize_t i = 0; i < count; ++i) {
                if (!add(PySequence_Fast_GET_ITEM(item, i))) return false;
            }
            return true;
        }
        if (PySlice_Check(item)) {
            const auto *slice = reinterpret_cast<PySliceObject *>(item);
            key.push_back(slice_tag);
            return add(slice->start) && add(slice->stop) && add(slice->step);
        }
        if (Py_TYPE(item) == setup.tensor || Py_TYPE(item) == setup.parameter) return add_leaf(item);
        if (PyObject_TypeCheck(item, setup.tensor)) return false;
        if (only_constants_ && !PyUnicode_CheckExact(item)) {
            const int is_constant = PyObject_IsInstance(item, setup.constant_types);
            if (is_constant <= 0) return false;
        }
        const Reference typed(PyTuple_Pack(2, Py_TYPE(item), item));
        const int number = typed ? number_in(table.constant_numbers, typed.get()) : -1;
        if (number < 0) PyErr_Clear();  // it is not hashable
        return number >= 0 && push(object_tag, -number - 1);
    }

    bool add_keyword(PyObject *name, PyObject *item) {
        const int number = number_in(table.constant_numbers, name);
        push(keyword_tag, number);
        return number >= 0 && add(item);
    }

    Key key;
    bool has_grad = false;
    std::vector<Operand> operands;
    std::vector<PyObject *> given;  // the operands as objects, borrowed

  private:
    bool push(std::int64_t tag, std::int64_t number) {
        key.push_back(tag);
        key.push_back(number);
        return true;
    }

    bool push_pointer(PyObject *object) { return push(object_tag, reinterpret_cast<std::intptr_t>(object)); }

    bool push_operand(Tag tag, const Operand &operand, PyObject *item) {
        operands.push_back(operand);
        given.push_back(item);
        return push(tag, operand.spec);
    }

    bool add_value(PyObject *item) {
        const PlaceObject *place = place_of_value(item);
        return place && place->recorder == self_ && push_operand(value_tag, place->place, item);
    }

    bool add_leaf(PyObject *tensor) {
        const int number = leaf_number(self_, tensor);
        if (number < 0) return false;
        const Leaf &leaf = self_->leaves[number];
        return push_operand(leaf.is_parameter ? parameter_tag : value_tag, {~number, 0, 0, leaf.spec}, tensor);
    }

    RecorderObject *self_;
    bool only_constants_;
};

}  // namespace dpmodule::recording
