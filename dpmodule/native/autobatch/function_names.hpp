// Arguments given by name.
#pragma once

#include <algorithm>
#include "python.hpp"

namespace dpmodule::autobatch {

// What the arguments of a function in Python are called, and what they are where they are left out.
struct ArgumentNames {
    PyObject *names, *defaults;  // tuples; nullptr for no names known, and for no defaults
    // False: Python has raised.
    bool read(PyObject *function);
    void clear();
};

// The arguments of a call in their order.
class Arguments {
  public:
    // False: only the function itself can tell what these are.
    bool read(const ArgumentNames &known, PyObject *const *args, std::size_t flags, PyObject *keywords) {
        at = args;
        count = PyVectorcall_NARGS(flags);
        if (keywords) return put_in_order(known, keywords);
        return !known.names || count <= PyTuple_GET_SIZE(known.names);
    }
    PyObject *const *at;
    Py_ssize_t count;

  private:
    bool put_in_order(const ArgumentNames &known, PyObject *keywords);
    static constexpr Py_ssize_t most = 8;
    PyObject *ordered_[most];
};

inline bool ArgumentNames::read(PyObject *function) {
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

inline void ArgumentNames::clear() {
    Py_CLEAR(names);
    Py_CLEAR(defaults);
}

inline bool Arguments::put_in_order(const ArgumentNames &known, PyObject *keywords) {
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
