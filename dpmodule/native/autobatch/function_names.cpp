#include "function_names.hpp"

#include <algorithm>

namespace dpmodule::autobatch {

bool ArgumentNames::read(PyObject *function) {
    clear();
    if (!PyFunction_Check(function)) return true;
    PyObject *code = PyFunction_GET_CODE(function);
    const auto *plain = reinterpret_cast<const PyCodeObject *>(code);
    if (plain->co_kwonlyargcount || plain->co_flags & (CO_VARARGS | CO_VARKEYWORDS)) return true;
    PyObject *variables = PyObject_GetAttrString(code, "co_varnames");
    names = variables ? PyTuple_GetSlice(variables, 0, plain->co_argcount) : nullptr;
    Py_XDECREF(variables);
    defaults = Py_XNewRef(PyFunction_GET_DEFAULTS(function));
    return names;
}

void ArgumentNames::clear() {
    Py_CLEAR(names);
    Py_CLEAR(defaults);
}

bool Arguments::put_in_order(const ArgumentNames &known, PyObject *keywords) {
    const Py_ssize_t given = count, all = known.names ? PyTuple_GET_SIZE(known.names) : 0;
    if (given > all || all > most) return false;
    std::copy_n(at, given, ordered_);
    std::fill(ordered_ + given, ordered_ + all, nullptr);
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(keywords); i++) {
        Py_ssize_t place = given;
        while (place < all && PyTuple_GET_ITEM(known.names, place) != PyTuple_GET_ITEM(keywords, i))
            place++;  // both are interned
        if (place == all) return false;
        ordered_[place] = at[given + i];
        count = std::max(count, place + 1);
    }
    const Py_ssize_t first = all - (known.defaults ? PyTuple_GET_SIZE(known.defaults) : 0);
    for (Py_ssize_t i = given; i < count; i++) {
        if (!ordered_[i] && i < first) return false;
        if (!ordered_[i]) ordered_[i] = PyTuple_GET_ITEM(known.defaults, i - first);
    }
    at = ordered_;
    return true;
}

}  // namespace dpmodule::autobatch
